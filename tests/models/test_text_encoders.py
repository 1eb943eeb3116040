"""BERT and XLNet as papers: sizes, masks, segments, and the two streams."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from saccade.config.language import BERTSettings, XLNetSettings
from saccade.maps.record import record
from saccade.models.bert import MaskedLanguageModel, bert
from saccade.models.shapes import parameter_count
from saccade.models.xlnet import PermutedLanguageModel, xlnet
from tests.laws.models import VOCABULARY, lengths_mask, ready, tokens

CLOSE = {"rtol": 0, "atol": 1e-9}


def small_bert(**more: object) -> MaskedLanguageModel:
    return ready(bert(BERTSettings(width=8, heads=2, hidden=12, layers=2, **more), VOCABULARY, 12))


def small_xlnet() -> PermutedLanguageModel:
    return ready(xlnet(XLNetSettings(width=8, heads=2, hidden=12, layers=2), VOCABULARY, 12))


def changed(text: Tensor, place: int) -> Tensor:
    """The same text with another token in one place."""
    other = text.clone()
    other[:, place] = 3 + (text[:, place] - 2) % (VOCABULARY - 3)
    return other


def test_the_base_size_has_as_many_parameters_as_published() -> None:
    with torch.device("meta"):
        base = {"width": 768, "heads": 12, "layers": 12}
        assert parameter_count(bert(BERTSettings(**base, next_sentence=True), 30_522, 512)) == 110_106_428
        # without the relative segments of the original: 12 x (2 x 768 + 768) fewer than its 116,750,336
        assert parameter_count(xlnet(XLNetSettings(**base), 32_000, 512)) == 116_722_688


def test_initial_weights_have_the_published_deviation_and_norms_the_published_epsilon() -> None:
    model = bert(BERTSettings(width=192, heads=2, next_sentence=True), 500, 12)
    for weight in (model.encoder.embedding.weight, model.encoder.stack.blocks[1].feed_forward.expand.weight):
        assert abs(float(weight.detach().std()) - 0.04) < 0.002
    norms = [module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)]
    assert len(norms) == 2 * 4 + 2
    assert {norm.eps for norm in norms} == {1e-12}


def test_every_token_sees_both_sides() -> None:
    for model in (small_bert(), small_bert(order="pre", norm="rms"), small_xlnet()):
        text = tokens(1, 6)
        states = model.encoder(text).states
        for place in (0, 5):
            assert ((model.encoder(changed(text, place)).states - states).abs().amax(-1) > 1e-6).all()


def test_segments_are_seen_and_one_text_is_the_first() -> None:
    model, text = small_bert(next_sentence=True), tokens(2, 6)
    segments = torch.tensor([[0, 0, 0, 1, 1, 1]] * 2)
    assert not torch.allclose(model(text, None, segments), model(text))
    torch.testing.assert_close(model(text, None, torch.zeros_like(text)), model(text), **CLOSE)
    assert model.follows(model.encoder(text)).shape == (2, 2)


def test_a_model_without_a_head_for_pairs_says_so() -> None:
    model = small_bert()
    with pytest.raises(ValueError, match="no next-sentence head"):
        model.follows(model.encoder(tokens(1, 4)))
    with pytest.raises(ValueError, match="no segments"):
        small_xlnet().encoder(tokens(1, 4), None, torch.zeros(1, 4, dtype=torch.long))


def test_in_the_order_of_the_text_the_query_stream_knows_only_what_stands_before() -> None:
    model, text = small_xlnet(), tokens(2, 6)
    rank = torch.arange(6).expand(2, 6)
    states = model(text, None, rank)
    for place in range(6):
        moved = (model(changed(text, place), None, rank) - states).abs().amax((0, 2))
        assert (moved[: place + 1] < 1e-12).all(), "a token was seen where it is asked for, or before"
        assert (moved[place + 1 :] > 1e-9).all()


def test_in_any_order_the_query_stream_knows_only_what_has_a_lower_rank() -> None:
    model, text = small_xlnet(), tokens(1, 6)
    rank = torch.tensor([[-1, 2, 0, -1, 1, 3]])
    states = model(text, None, rank)
    for place in range(6):
        moved = (model(changed(text, place), None, rank) - states).abs().amax((0, 2))
        assert torch.equal(moved > 1e-9, rank[0] > rank[0, place])


def test_with_all_in_sight_the_content_stream_is_an_ordinary_encoder() -> None:
    model, text, mask = small_xlnet(), tokens(2, 6), lengths_mask([6, 4], 6)
    content, _ = model.streams(text, mask, torch.zeros_like(text))
    torch.testing.assert_close(content, model.encoder(text, mask).states, **CLOSE)


def test_both_streams_are_seen_by_a_tap_and_rows_sum_to_one_where_there_is_something_to_see() -> None:
    model, text = small_xlnet(), tokens(1, 5)
    rank = torch.arange(5)[None]
    with record(model) as recording:
        looked = model(text, None, rank)
    torch.testing.assert_close(looked, model(text, None, rank), **CLOSE)
    for seen in recording:
        content, query = seen.weights[0].split(5, dim=1)
        torch.testing.assert_close(content.sum(-1), torch.ones(2, 5, dtype=torch.float64), **CLOSE)
        assert torch.equal(query.diagonal(dim1=1, dim2=2), torch.zeros(2, 5, dtype=torch.float64))
        assert float(query[:, 0].abs().sum()) == 0  # nothing comes before the first
        torch.testing.assert_close(query[:, 1:].sum(-1), torch.ones(2, 4, dtype=torch.float64), **CLOSE)


def test_only_distances_matter_to_xlnet() -> None:
    """The same five tokens, alone and behind three that cannot be seen."""
    model, text = small_xlnet(), tokens(1, 8)
    mask = torch.tensor([[False] * 3 + [True] * 5])
    torch.testing.assert_close(model.encoder(text, mask).states[:, 3:], model.encoder(text[:, 3:]).states, **CLOSE)


def test_a_text_beyond_the_table_of_positions_is_refused_by_bert_and_read_by_xlnet() -> None:
    with pytest.raises(ValueError, match="beyond the table of 12"):
        small_bert().encoder(tokens(1, 13))
    assert small_xlnet().encoder(tokens(1, 13)).states.shape == (1, 13, 8)
