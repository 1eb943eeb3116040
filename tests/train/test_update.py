"""One update: exact over its batches, refused when it is not finite, in parts when it does not fit."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from saccade import api
from saccade.config import Recipe, load_recipe
from saccade.errors import SaccadeError
from saccade.models.shapes import EncoderDecoder
from saccade.tasks.base import Loss, Term
from saccade.tasks.pairs import Pair, collate_pairs
from saccade.tasks.rearrange import Rearrange
from saccade.tasks.written import WrittenBatch
from saccade.train.progress import Skipped, Split, Stopped, Update
from saccade.train.run import Run
from saccade.train.trainer import Trainer, named_tensors
from saccade.train.update import NonFiniteError, cut

TINY = (
    "model.width=16",
    "model.hidden=32",
    "model.encoder_layers=1",
    "task.symbols=6",
    "task.train_examples=64",
    "task.valid_examples=8",
    "train.steps=8",
    "train.threads=1",
)
WEIGHTS_ALONE = ("train.optimizer.weight_decay=0.0", "train.clip=null", "train.optimizer.epsilon=1e-3")


def recipe(*settings: str) -> Recipe:
    return load_recipe("reverse", [*TINY, *settings])


def trainer(*settings: str, kind: type[Rearrange] = Rearrange) -> Trainer:
    chosen = recipe(*settings)
    return Trainer(kind(chosen), chosen.train)


# Accumulation


def test_accumulating_batches_equals_one_large_batch() -> None:
    """All 64 examples in one batch, or in several: the same update, up to rounding."""
    whole = trainer("train.batch_tokens=100000", *WEIGHTS_ALONE)
    parts = trainer("train.batch_tokens=208", *WEIGHTS_ALONE)
    batches = parts.batches.plan(0)
    assert len(batches) >= 4
    parts = trainer("train.batch_tokens=208", f"train.accumulate={len(batches)}", *WEIGHTS_ALONE)
    one, other = next(whole.steps()), next(parts.steps())
    assert isinstance(one, Update) and isinstance(other, Update)
    assert one.means == pytest.approx(other.means, rel=1e-5)
    for name, tensor in named_tensors(whole.model).items():
        torch.testing.assert_close(tensor, named_tensors(parts.model)[name], rtol=0, atol=2e-5)


# Numbers that are not finite


class Poisoned(Rearrange):
    """Wherever one of these examples is, the loss is not a number."""

    poison: tuple[int, ...] = (5,)

    def loss(self, model: EncoderDecoder, batch: WrittenBatch) -> Loss:
        loss = dict(super().loss(model, batch))
        if set(self.poison) & set(batch.numbers):
            loss["loss"] = Term(loss["loss"].sum * float("nan"))
        return loss


class Hopeless(Poisoned):
    poison = tuple(range(64))


def test_a_loss_that_is_not_finite_stops_before_the_update_and_names_the_batch() -> None:
    run = trainer()
    with torch.no_grad():
        run.model.decoder.stack.blocks[0].feed_forward.expand.weight[0, 0] = float("nan")
    before = {name: tensor.clone() for name, tensor in named_tensors(run.model).items()}
    with pytest.raises(SaccadeError, match=r"at step 1; first seen in decoder\.stack\.blocks\.0.*with examples \d+"):
        next(run.steps())
    for name, tensor in named_tensors(run.model).items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0, equal_nan=True)
    assert all(parameter.grad is None for parameter in run.model.parameters())


def test_an_update_that_is_not_made_leaves_the_statistics_of_batches_as_they_were() -> None:
    def changed(run: Trainer) -> list[bool]:
        before = {name: tensor.clone() for name, tensor in run.model.named_buffers() if "running" in name}
        with suppress(NonFiniteError):
            next(run.steps())
        after = dict(run.model.named_buffers())
        return [not torch.equal(after[name], tensor) for name, tensor in before.items()]

    assert all(changed(trainer("model.norm=batch")))
    assert not any(changed(trainer("model.norm=batch", kind=Hopeless)))


def test_a_gradient_that_is_not_finite_names_the_module_it_was_first_seen_in() -> None:
    run = trainer()
    module = run.model.encoder.stack.blocks[0].feed_forward.expand
    module.weight.register_hook(lambda gradient: gradient / 0)
    with pytest.raises(SaccadeError, match=r"the gradient is not finite at step 1; first seen in encoder\..*\.expand,"):
        next(run.steps())
    assert all(parameter.grad is None for parameter in run.model.parameters())


def test_updates_that_are_not_finite_are_skipped_and_told_and_the_others_are_made(tmp_path: Path) -> None:
    chosen = recipe("train.skip_nonfinite=1", "train.batch_tokens=128")
    events = list(api.begin(chosen, out=tmp_path / "run", task=Poisoned(chosen)).events())
    skipped = [event for event in events if isinstance(event, Skipped)]
    assert skipped and all(5 in event.examples and event.in_a_row == 1 for event in skipped)
    assert isinstance(events[-1], Stopped) and events[-1].step == 8
    run = Run.open(tmp_path / "run")
    told = [record for record in run.metrics() if "skipped" in record]
    assert [(record["step"], tuple(record["examples"])) for record in told] == [(e.step, e.examples) for e in skipped]
    assert "the loss is not finite" in told[0]["skipped"]
    assert all(torch.isfinite(tensor).all() for tensor in run.weights()[0].values())


def test_more_than_so_many_in_a_row_stop_the_run_and_the_checkpoint_before_is_good(tmp_path: Path) -> None:
    chosen = recipe("train.skip_nonfinite=2", "train.steps=4", "train.batch_tokens=128")
    api.train(chosen, out=tmp_path / "run")
    before = Run.open(tmp_path / "run").load(4)
    more = api.resumed(tmp_path / "run", settings=["train.steps=9"], override=True, task=Hopeless(chosen))
    seen: list[Any] = []
    with pytest.raises(
        SaccadeError, match=r"^the loss is not finite at step 5; first seen in the loss itself, with ex"
    ):
        seen += more.events()
    assert [record["step"] for record in Run.open(tmp_path / "run").metrics() if "skipped" in record] == [5, 5]
    after = Run.open(tmp_path / "run").latest()
    assert after is not None and after.step == 4
    assert all(torch.equal(after.model[name], before.model[name]) for name in before.model)


def test_a_run_with_skips_resumes_bit_for_bit(tmp_path: Path) -> None:
    chosen = recipe(
        *("train.skip_nonfinite=3", "train.batch_tokens=128", "train.accumulate=2", "train.steps=14"),
        *("train.save_every=1", "train.log_every=2", "model.dropout=0.2"),
    )
    api.train(chosen, out=tmp_path / "whole", task=Poisoned(chosen))
    whole = Run.open(tmp_path / "whole")
    skips = [record["step"] for record in whole.metrics() if "skipped" in record]
    assert len(skips) >= 2
    events = api.begin(chosen, out=tmp_path / "broken", task=Poisoned(chosen)).events()
    for event in events:
        if isinstance(event, Skipped) and event.step == skips[-1]:
            break  # walk away right after a skip: it is logged, and the checkpoint is from before it
    events.close()
    api.resume(tmp_path / "broken", task=Poisoned(chosen))
    broken = Run.open(tmp_path / "broken")
    assert broken.metrics() == whole.metrics()
    one, other = whole.load(14), broken.load(14)
    for part in ("model", "optimizer", "random"):
        left, right = getattr(one, part), getattr(other, part)
        assert left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


# Memory


class Narrow(Rearrange):
    """A machine whose memory holds so many examples; collate draws at random, as tasks may."""

    room = 8
    error: tuple[type[Exception], str] = (torch.OutOfMemoryError, "no room")
    held: weakref.ref[torch.Tensor] | None = None

    def collate(self, examples: Sequence[Pair], numbers: Sequence[int]) -> WrittenBatch:
        turned = [(pair[0], pair[1][::-1]) if torch.rand(()) < 0.5 else pair for pair in examples]
        return collate_pairs(turned, numbers)

    def loss(self, model: EncoderDecoder, batch: WrittenBatch) -> Loss:
        loss = super().loss(model, batch)
        assert self.held is None or self.held() is None, "what did not fit is still in memory when it is tried again"
        if len(batch.numbers) > self.room:
            self.held = weakref.ref(loss["loss"].sum)
            kind, text = self.error
            raise kind(text)
        return loss


class Wide(Narrow):
    room = 1000


class OutOfHost(Narrow):
    error = (RuntimeError, "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried to")


class NoRoomAtAll(Narrow):
    room = 0


ONE_BATCH = ("train.batch_tokens=120", "train.accumulate=2", "model.dropout=0.0", "train.split_when_full=true")


def gradients(kind: type[Rearrange], updates: int) -> tuple[list[list[torch.Tensor]], int]:
    """Of each of the first updates, in double precision; and the parts that batches were cut into."""
    run = trainer(*ONE_BATCH, kind=kind)
    run.model.double()
    seen: list[list[torch.Tensor]] = []
    own = list(run.model.parameters())
    run.optimizer.register_step_pre_hook(lambda *_: seen.append([p.grad.clone() for p in own if p.grad is not None]))
    steps = run.steps()
    for _ in range(updates):
        next(steps)
    return seen, run.updater.parts


@pytest.mark.parametrize("kind", [Narrow, OutOfHost])
def test_an_update_that_does_not_fit_is_redone_in_parts_with_the_same_gradient(kind: type[Rearrange]) -> None:
    (whole, one_part), (split, parts) = gradients(Wide, 2), gradients(kind, 2)
    assert (one_part, parts) == (1, 4)
    for one, other in zip(whole, split, strict=True):
        assert len(one) == len(other) > 10
        for left, right in zip(one, other, strict=True):
            torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-12)


def test_the_split_is_told_kept_and_saved(tmp_path: Path) -> None:
    chosen = recipe(*ONE_BATCH, "model.dropout=0.2", "train.save_every=2")
    events = list(api.begin(chosen, out=tmp_path / "whole", task=Narrow(chosen)).events())
    splits = [event for event in events if isinstance(event, Split)]
    assert splits[0].step == 1 and splits[-1].parts == 4
    told = [(record["step"], record["parts"]) for record in Run.open(tmp_path / "whole").metrics() if "parts" in record]
    assert told == [(split.step, split.parts) for split in splits]
    broken = api.begin(chosen, out=tmp_path / "broken", task=Narrow(chosen)).events()
    while getattr(next(broken), "step", 0) < 4:
        pass
    broken.close()
    again = api.resumed(tmp_path / "broken", task=Narrow(chosen))
    assert again.trainer.updater.parts == 4
    assert not [event for event in again.events() if isinstance(event, Split)]
    one, other = (Run.open(tmp_path / name).load(8).model for name in ("whole", "broken"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_without_splitting_the_shape_of_the_batch_and_the_remedies_are_named() -> None:
    run = trainer("train.batch_tokens=120", kind=Narrow)
    size = len(run.batches.plan(0)[0])
    longest = max(run.task.length(run.examples[number]) for number in run.batches.plan(0)[0])
    with pytest.raises(SaccadeError) as caught:
        next(run.steps())
    text = str(caught.value)
    assert f"out of memory at step 1, with a batch of {size} examples of up to {longest} tokens" in text
    assert "train.batch_tokens=60 with train.accumulate=2" in text
    assert "train.split_when_full=true" in text
    assert all(parameter.grad is None for parameter in run.model.parameters())


def test_when_not_even_one_example_fits_it_stops_and_says_so() -> None:
    run = trainer(*ONE_BATCH, kind=NoRoomAtAll)
    with pytest.raises(SaccadeError, match="out of memory at step 1, with a batch of 1 example of up to"):
        next(run.steps())


def test_a_loss_that_needs_whole_batches_is_never_cut() -> None:
    class Whole(Narrow):
        indivisible = True

    for setting in ("train.split_when_full=True", "train.accumulate=2"):
        with pytest.raises(SaccadeError, match=f"{setting} would cut a batch into parts, but .* needs batches whole"):
            trainer(setting, kind=Whole)
    with pytest.raises(SaccadeError, match=r"out of memory .*Try train\.batch_tokens=60, or a smaller model"):
        next(trainer("train.batch_tokens=120", kind=Whole).steps())


def test_another_runtime_error_is_nobodys_memory() -> None:
    class Broken(Narrow):
        error = (RuntimeError, "mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        next(trainer(*ONE_BATCH, kind=Broken).steps())


@pytest.mark.parametrize(("size", "parts"), [(1, 1), (7, 2), (8, 4), (3, 8)])
def test_parts_are_alike_in_order_and_never_empty(size: int, parts: int) -> None:
    found = cut(range(size), parts)
    assert [number for part in found for number in part] == list(range(size))
    assert len(found) == min(size, parts)
    assert max(map(len, found)) - min(map(len, found)) <= 1


# Examples that cannot be used


def test_an_example_that_cannot_be_collated_is_named() -> None:
    class Fragile(Rearrange):
        def collate(self, examples: Sequence[Pair], numbers: Sequence[int]) -> WrittenBatch:
            if 7 in numbers:
                raise KeyError("no such picture")
            return super().collate(examples, numbers)

    with pytest.raises(SaccadeError, match=r"^cannot train with example 7: KeyError: 'no such picture'$"):
        list(trainer("train.batch_tokens=128", kind=Fragile).steps())


def test_an_example_that_the_model_cannot_take_is_named() -> None:
    settings = ("task.longest=12", "model.longest=10")
    run = trainer(*settings)
    long = {number for number, example in enumerate(run.examples) if run.task.length(example) > 10}
    with pytest.raises(SaccadeError, match=r"^cannot train with example \d+: .*beyond the table of 10") as caught:
        list(run.steps())
    assert int(str(caught.value).split()[4].rstrip(":")) in long
