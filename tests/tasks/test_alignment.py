"""Attention that shows which word translates which: chosen, and taught."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from saccade import api
from saccade.data.vocab import Symbols
from saccade.errors import SaccadeError
from saccade.maps.record import record
from saccade.tasks.alignment import AlignedBatch, Choice, aligned_batch, choose_attention, guided_loss, piece_links
from saccade.tasks.pairs import collate_pairs, look_at_pair
from saccade.train.run import Run
from tests.laws.models import sequence_model
from tests.numbers import corpus
from tests.test_translation import SMALL

LETTERS = Symbols("abcdefgh")
PAIRS = [([3, 4, 5], [6, 7]), ([8], [9, 3, 4])]
LINKS = [[(0, 0), (2, 0), (1, 1)], [(0, 2)]]


def batch() -> AlignedBatch:
    wanted = [piece_links(pair, links, LETTERS) for pair, links in zip(PAIRS, LINKS, strict=True)]
    return aligned_batch(collate_pairs(PAIRS, [0, 1]), wanted)


def test_a_piece_should_look_evenly_at_what_its_word_is_linked_to() -> None:
    assert batch().alignment.tolist() == [
        [[0.5, 0.0, 0.5], [0.0, 1.0, 0.0], [0.0] * 3, [0.0] * 3],
        [[0.0] * 3, [0.0] * 3, [1.0, 0.0, 0.0], [0.0] * 3],
    ]
    assert batch().counts["alignment"] == 3


@pytest.mark.parametrize("name", ["bahdanau", "luong", "convolutional", "transformer"])
def test_the_guided_loss_is_the_cross_entropy_of_one_head(name: str) -> None:
    model, given = sequence_model(name), batch()
    found = guided_loss(model, given, smoothing=0.0, weight=0.3)["alignment"]
    with record(model) as recording:
        model(given.source, given.source_mask, given.target[:, :-1])
    across = [seen for seen in recording if seen.name.startswith("decoder") and not seen.causal]
    head = across[-2 if len(across) > 1 else 0].weights[:, 0]
    expected = -sum(
        given.alignment[row, t, s] * head[row, t, s].log() for row, t, s in given.alignment.nonzero().tolist()
    )
    torch.testing.assert_close(found.sum.double(), torch.as_tensor(expected).double(), rtol=1e-5, atol=1e-6)
    assert found.weight == 0.3
    found.sum.backward()
    assert all(attention.tap is None for attention in model.modules() if hasattr(attention, "tap"))


def test_without_attention_there_is_nothing_to_choose() -> None:
    assert choose_attention(sequence_model("sutskever once"), [(PAIRS[0], LINKS[0])], LETTERS) is None


def test_the_chosen_head_is_the_one_that_agrees_with_most_links() -> None:
    model = sequence_model("transformer")
    maps = look_at_pair(model, *PAIRS[0], (LETTERS, LETTERS), pieces=False)
    wanted = next(each for each in maps if each.name == "decoder block 2, cross-attention").weights[1]
    links = [(int(i), j) for j, i in enumerate(wanted[:-1].argmax(-1))]
    choice = choose_attention(model, [(PAIRS[0], links)], LETTERS)
    assert choice is not None
    assert choice.agreement == 1.0
    assert torch.equal(choice.weights(maps)[:-1].argmax(-1), wanted[:-1].argmax(-1))
    assert torch.equal(Choice().weights(maps), maps[0].mean)
    assert torch.equal(Choice("decoder block 2, cross-attention", 1).weights(maps), wanted)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("aligned")
    for name, side in (("n.fr", 0), ("n.en", 1)):
        (directory / name).write_text("".join(f"{pair[side]}\n" for pair in corpus()[:600]), encoding="utf-8")
    return directory


def test_a_guided_training_teaches_a_head_and_the_run_remembers_which(files: Path, tmp_path: Path) -> None:
    where = [f'task.source="{files}/n.fr"', f'task.target="{files}/n.en"']
    short = [each for each in SMALL if not each.startswith(("train.steps", "task.swap"))]
    agreements = []
    for name, weight in (("plain", 0.0), ("guided", 1.0)):
        more = [f"task.guided_alignment={weight}", "train.steps=60", "model.decoder_layers=2", "task.valid_examples=40"]
        api.train("translate", out=tmp_path / name, settings=[*where, *short, *more])
        _, state = Run.open(tmp_path / name).weights()
        agreements.append(state["conclusions"]["alignment"]["agreement"])
    assert agreements[1] > max(0.8, agreements[0] + 0.2)
    task = api.load(tmp_path / "guided").task
    assert task.alignment.map == "decoder block 1, cross-attention"  # type: ignore[attr-defined]
    assert task.alignment.head == 0  # type: ignore[attr-defined]


def test_links_of_ones_own_must_match_the_data(files: Path, tmp_path: Path) -> None:
    (tmp_path / "links").write_text("0-0\n")
    where = [f'task.source="{files}/n.fr"', f'task.target="{files}/n.en"', f'task.alignments="{tmp_path}/links"']
    with pytest.raises(SaccadeError, match=r"has 1 lines, and .*n\.fr has"):
        api.begin("translate", out=tmp_path / "run", settings=[*where, *SMALL, "task.guided_alignment=0.1"])
    (tmp_path / "links").write_text("0-0\n" * 4 + "0-0 1-99\n" + "0-0\n" * 595)
    with pytest.raises(SaccadeError, match=r"links:5: 1-99 is outside the pair, which has \d and \d words"):
        api.begin("translate", out=tmp_path / "run", settings=[*where, *SMALL, "task.guided_alignment=0.1"])
    with pytest.raises(SaccadeError, match="whose weight is 0"):
        api.begin("translate", out=tmp_path / "run", settings=[*where, *SMALL])
    assert not (tmp_path / "run").exists()


def test_a_model_without_attention_cannot_be_guided_and_no_run_is_made(files: Path, tmp_path: Path) -> None:
    settings = [f'task.source="{files}/n.fr"', f'task.target="{files}/n.en"', "model.kind=sutskever"]
    with pytest.raises(SaccadeError, match="needs a model with attention, and sutskever has none"):
        api.begin("translate", out=tmp_path / "run", settings=[*settings, "task.guided_alignment=0.3"])
    assert not (tmp_path / "run").exists()
