"""The laws of models: every shape, every paper, from teacher forcing to stepping, saving and looking."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from saccade.maps.record import Recording, attentions, record
from saccade.models.shapes import EncoderDecoder
from saccade.nn.losses import token_loss
from saccade.nn.packed import packed
from saccade.train.trainer import load_tensors, named_tensors
from tests.laws.models import (
    ANSWERING,
    CONTRASTIVE,
    IMAGE_MODELS,
    LANGUAGE_MODELS,
    SEQUENCE_MODELS,
    TEXT_MODELS,
    all_models,
    dual_encoder,
    encoder_only,
    language_model,
    lengths_mask,
    pixels,
    sequence_model,
    text_outputs,
    tokens,
)

SEQUENCE = pytest.mark.parametrize("name", SEQUENCE_MODELS)
LANGUAGE = pytest.mark.parametrize("name", LANGUAGE_MODELS)
CLOSE = {"rtol": 0, "atol": 1e-9}


@SEQUENCE
@pytest.mark.parametrize("pieces", [(1, 1, 1, 1, 1, 1), (4, 2), (2, 1, 3)])
def test_step_by_step_equals_all_at_once(name: str, pieces: tuple[int, ...]) -> None:
    model = sequence_model(name)
    source, mask, target = tokens(3, 7), lengths_mask([7, 4, 2], 7), tokens(3, 6, seed=1)
    past = model.begin(model.encode(source, mask), 6)
    states = []
    for piece in target.split(list(pieces), dim=1):
        state, past = model.decoder.step(piece, past)
        states.append(state)
    torch.testing.assert_close(torch.cat(states, 1), model(source, mask, target), **CLOSE)


@LANGUAGE
def test_a_language_model_steps_as_it_runs(name: str) -> None:
    model, text = language_model(name), tokens(2, 21)
    past = model.begin(2, 21)
    states = []
    for piece in text.split(1, dim=1):  # past the first capacity of the cache, so that it grows
        state, past = model.decoder.step(piece, past)
        states.append(state)
    torch.testing.assert_close(torch.cat(states, 1), model(text), **CLOSE)


@SEQUENCE
def test_padding_batch_size_and_batch_order_change_nothing(name: str) -> None:
    model = sequence_model(name)
    source, target, lengths = tokens(3, 7), tokens(3, 5, seed=1), [7, 3, 5]
    together = model(source, lengths_mask(lengths, 7), target)
    order = torch.tensor([2, 0, 1])
    shuffled = model(source[order], lengths_mask([5, 7, 3], 7), target[order])
    torch.testing.assert_close(shuffled, together[order], **CLOSE)
    for row, length in enumerate(lengths):
        alone = model(source[row : row + 1, :length], None, target[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone, **CLOSE)


@SEQUENCE
def test_float32_agrees_too_at_its_own_tolerance(name: str) -> None:
    """Stepping, and a row alone against the same row in a padded batch."""
    model = sequence_model(name).float()
    source, mask, target = tokens(3, 7), lengths_mask([7, 4, 2], 7), tokens(3, 6, seed=1)
    whole = model(source, mask, target)
    past = model.begin(model.encode(source, mask), 6)
    states = []
    for piece in target.split(1, dim=1):
        state, past = model.decoder.step(piece, past)
        states.append(state)
    torch.testing.assert_close(torch.cat(states, 1), whole, rtol=0, atol=1e-4)
    torch.testing.assert_close(model(source[1:2, :4], None, target[1:2]), whole[1:2], rtol=0, atol=1e-4)


@SEQUENCE
def test_what_stands_in_padding_changes_nothing(name: str) -> None:
    model = sequence_model(name)
    source, mask, target = tokens(2, 6), lengths_mask([6, 3], 6), tokens(2, 4, seed=1)
    other = torch.where(mask, source, tokens(2, 6, seed=9))
    assert not torch.equal(source, other)
    torch.testing.assert_close(model(source, mask, target), model(other, mask, target), **CLOSE)


@SEQUENCE
def test_the_future_of_the_target_changes_nothing(name: str) -> None:
    model = sequence_model(name)
    source, target = tokens(2, 5), tokens(2, 6, seed=1)
    changed = target.clone()
    changed[:, 4:] = 3 + (target[:, 4:] - 2) % 8
    before, after = model(source, None, target), model(source, None, changed)
    torch.testing.assert_close(before[:, :4], after[:, :4], **CLOSE)
    assert not torch.allclose(before[:, 4:], after[:, 4:])


@SEQUENCE
def test_record_on_equals_record_off(name: str) -> None:
    model = sequence_model(name)
    source, mask, target = tokens(2, 5), lengths_mask([5, 3], 5), tokens(2, 4, seed=1)
    plain = model(source, mask, target)
    with record(model) as recording:
        looked = model(source, mask, target)
    torch.testing.assert_close(looked, plain, **CLOSE)
    assert len(recording) == len(attentions(model))
    for seen in recording:
        rows = seen.weights.sum(-1)
        torch.testing.assert_close(rows, torch.ones_like(rows), **CLOSE)
        hidden_columns = seen.weights[1, :, :, 3:] if seen.weights.shape[-1] == 5 else seen.weights[:0]
        assert (hidden_columns == 0).all()
    assert all(attention.tap is None for _, attention in attentions(model))


def test_a_look_records_nothing_that_other_threads_ask_for() -> None:
    model = sequence_model("transformer")
    wide, narrow = (tokens(3, 5), None, tokens(3, 4, seed=1)), (tokens(1, 5), None, tokens(1, 4, seed=1))
    with ThreadPoolExecutor(1) as other, record(model) as recording:
        other.submit(model, *wide).result()
        model(*narrow)
        look = other.submit(lambda: [seen.weights for seen in _looked(model, wide)])  # waits for its turn
        model(*narrow)
        alone = [seen.weights for seen in recording]
    assert {len(weights) for weights in alone} == {1}
    assert {len(weights) for weights in look.result()} == {3}


def test_a_copy_for_use_that_is_made_during_a_look_has_no_taps() -> None:
    model = sequence_model("transformer")
    with record(model):
        copied = packed(model)
    assert all(attention.tap is None for _, attention in attentions(copied))


def _looked(model: EncoderDecoder, inputs: tuple[Tensor, None, Tensor]) -> Recording:
    with record(model) as recording:
        model(*inputs)
    return recording


def test_taps_are_off_after_an_error() -> None:
    model = sequence_model("transformer")
    with pytest.raises(ZeroDivisionError), record(model):
        raise ZeroDivisionError
    assert all(attention.tap is None for _, attention in attentions(model))


@SEQUENCE
def test_every_model_knows_the_order_of_its_source(name: str) -> None:
    model = sequence_model(name)
    source, target = torch.tensor([[3, 4, 5, 6, 7]]), tokens(1, 4, seed=1)
    assert not torch.allclose(model(source, None, target), model(source.flip(1), None, target), atol=1e-5)


def test_a_transformer_without_positions_is_blind_to_order() -> None:
    from saccade.config.models import TransformerSettings
    from saccade.models.transformer import transformer
    from tests.laws.models import VOCABULARY, ready

    settings = TransformerSettings(width=8, heads=2, hidden=12, encoder_layers=2, decoder_layers=1, positions="none")
    model = ready(transformer(settings, VOCABULARY, VOCABULARY))
    source, target = torch.tensor([[3, 4, 5, 6, 7]]), tokens(1, 4, seed=1)
    order = torch.tensor([2, 0, 4, 3, 1])
    torch.testing.assert_close(model(source, None, target), model(source[:, order], None, target), **CLOSE)
    memory, moved = model.encode(source), model.encode(source[:, order])
    torch.testing.assert_close(memory.states[:, order], moved.states, **CLOSE)


@pytest.mark.parametrize("name", all_models())
def test_models_survive_the_meta_device_and_safetensors(name: str, tmp_path: Path) -> None:
    """Built without memory, given memory, loaded from a file: equal bit for bit, ties still tied, nothing lost."""
    model = all_models()[name]()
    tensors = named_tensors(model)
    save_file({key: value.contiguous() for key, value in tensors.items()}, tmp_path / "model.safetensors")
    with torch.device("meta"):
        rebuilt = all_models()[name]()
    rebuilt = rebuilt.to_empty(device="cpu").eval()
    load_tensors(rebuilt, load_file(tmp_path / "model.safetensors"), name)
    again = named_tensors(rebuilt)
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[key], tensors[key]) for key in tensors)
    for one, other in zip(_outputs(name, model), _outputs(name, rebuilt), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", all_models())
def test_every_parameter_gets_a_gradient(name: str) -> None:
    model = all_models()[name]()
    sum((output * output).sum() + output.sum() for output in _outputs(name, model)).backward()
    without = [key for key, parameter in model.named_parameters() if parameter.grad is None]
    # the output layer is applied by the loss, not by the model's own forward pass
    assert [key for key in without if not key.startswith("output.")] == []


@SEQUENCE
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_four_times_accumulation_equals_a_batch_four_times_as_large(name: str, smoothing: float) -> None:
    model = sequence_model(name)
    source, mask = tokens(8, 6), lengths_mask([6, 5, 4, 3, 2, 6, 1, 4], 6)
    target, target_mask = tokens(8, 6, seed=1), lengths_mask([5, 1, 2, 5, 3, 4, 2, 1], 5)
    count = int(target_mask.sum())

    def gradients(parts: int) -> list[torch.Tensor]:
        model.zero_grad()
        for rows in torch.arange(8).chunk(parts):
            states = model(source[rows], mask[rows], target[rows, :-1])
            loss = token_loss(states, target[rows, 1:], target_mask[rows], model.output, smoothing=smoothing)
            (loss.smoothed / count).backward()
        return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]

    for whole, accumulated in zip(gradients(1), gradients(4), strict=True):
        torch.testing.assert_close(whole, accumulated, **CLOSE)


def test_the_transformer_of_the_paper_has_as_many_parameters_as_it_should() -> None:
    from saccade.config.models import TransformerSettings
    from saccade.models.shapes import parameter_count
    from saccade.models.transformer import transformer

    shared = {"encoder_layers": 6, "decoder_layers": 6, "order": "post", "tie": "all"}
    base = TransformerSettings(width=512, heads=8, hidden=2048, **shared)
    big = TransformerSettings(width=1024, heads=16, hidden=4096, **shared)
    with torch.device("meta"):
        assert parameter_count(transformer(base, 37_000, 37_000)) == 63_082_496
        assert parameter_count(transformer(big, 37_000, 37_000)) == 214_245_376


def test_pooling_and_two_encoders_do_not_see_padding() -> None:
    source, mask = tokens(2, 6), lengths_mask([6, 3], 6)
    classifier, pair = encoder_only(), dual_encoder()
    torch.testing.assert_close(classifier(source, mask)[1:], classifier(source[1:, :3]), **CLOSE)
    torch.testing.assert_close(pair.embed_left(source, mask)[1:], pair.embed_left(source[1:, :3]), **CLOSE)
    similarity = pair(pair.embed_left(source, mask), pair.embed_right(source, mask))
    assert similarity.shape == (2, 2)
    torch.testing.assert_close(pair.embed_left(source).norm(dim=-1), torch.ones(2, dtype=torch.float64), **CLOSE)


def _outputs(name: str, model: torch.nn.Module) -> list[torch.Tensor]:
    """What a model gives for a fixed input, whatever its shape."""
    source, mask, target = tokens(2, 5), lengths_mask([5, 3], 5), tokens(2, 4, seed=1)
    if name in SEQUENCE_MODELS:
        return [model(source, mask, target)]
    if name in LANGUAGE_MODELS:
        return [model(target)]
    if name in TEXT_MODELS:
        return text_outputs(model, source, mask)
    if name in IMAGE_MODELS:
        return [model(pixels(2))]
    if name in ANSWERING:
        return [model(pixels(2), torch.tensor([1, 0]), source, mask)]
    if name in CONTRASTIVE:
        return [model(model.embed_left(pixels(2)), model.embed_right(source, mask))]
    if name == "encoder only":
        return [model(source, mask)]
    return [model(model.embed_left(source, mask), model.embed_right(source, mask))]
