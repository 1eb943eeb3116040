"""The processor's own code says what torch says, whatever the shapes, and does without where it cannot be made."""

from __future__ import annotations

import ctypes
import math
import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.nn import native
from saccade.nn.choice import continuations
from saccade.nn.native import NativeLinear, RowLosses, cross_entropy, log_probabilities, remember

COMPILER = next(filter(None, map(shutil.which, native.COMPILERS)), "")


def compiles() -> bool:
    """Whether there is a compiler, and whether it knows OpenMP."""
    command, program = [COMPILER, "-fopenmp", "-x", "c++", "-", "-o", os.devnull], b"#include <omp.h>\nint main() {}"
    return bool(COMPILER) and subprocess.run(command, input=program, capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(
    not compiles(), reason="no C++ compiler with OpenMP here: torch computes all, as other tests show"
)
PROCESSORS = {"this processor": "native", "one without VNNI": "skylake-avx512", "one of 256 bits": "haswell"}
X86 = pytest.mark.skipif(platform.machine() not in native.X86, reason="named by instructions of x86")


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)


@pytest.fixture(scope="module", params=PROCESSORS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The library as it is compiled here, and as it would be for processors with fewer instructions."""
    needed = {"one without VNNI": "avx512bw", "one of 256 bits": "avx2"}.get(request.param, "")
    if needed not in native._processor():
        pytest.skip(f"this processor has no {needed}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SACCADE_NATIVE", PROCESSORS[request.param])
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        library = native.library.__wrapped__()
    assert library is not None
    return library


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("outputs", "inputs"), [(1, 1), (40, 33), (64, 8), (65, 130), (200, 64), (130, 1300)])
@pytest.mark.parametrize("rows", [1, 2, 5, 6, 13, 27])
def test_a_product_is_the_product(made: ctypes.CDLL, rows: int, outputs: int, inputs: int, bias: bool) -> None:
    weight, shift, x = drawn(outputs, inputs), drawn(outputs, seed=2) if bias else None, drawn(rows, inputs, seed=3)
    expected = F.linear(x, weight, shift)
    sums = max(1e-5, 1e-7 * inputs)  # of what roundings add up to
    torch.testing.assert_close(NativeLinear(made, weight, shift, in_bytes=False)(x), expected, atol=sums, rtol=1e-5)
    rounded = NativeLinear(made, weight, shift, in_bytes=True)(x)
    steps = inputs**0.5 * float(weight.abs().max() * x.abs().max()) / made.levels()  # of rounding, as they add up
    assert float((rounded - expected).abs().max()) < 2 * steps


@pytest.mark.parametrize("in_bytes", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sentences", [1, 45])
def test_what_is_real_of_a_memory_is_remembered(
    made: ctypes.CDLL, sentences: int, threads: int, in_bytes: bool
) -> None:
    """By the map, in the places of keys and values; zeros where nothing is real, whatever was there before."""
    heads, cells, width, before = 6, 9, 5, torch.get_num_threads()
    linear = NativeLinear(made, drawn(2 * heads * width, 33), drawn(2 * heads * width), in_bytes=in_bytes)
    states, draw = drawn(sentences, cells, 33, seed=3), torch.Generator().manual_seed(4)
    mask = torch.rand(sentences, cells, generator=draw) < 0.6
    expected = linear(states).unflatten(-1, (2, heads, width)).permute(2, 0, 3, 1, 4)  # (2, B, H, S, K)
    try:
        torch.set_num_threads(threads)
        for real in (mask, None):
            found = torch.full((2, sentences, heads, cells, width), math.nan, dtype=torch.float32)
            remember(linear, states, real, *found)
            shown = torch.ones_like(mask) if real is None else real
            assert torch.equal(found, torch.where(shown[None, :, None, :, None], expected, 0.0))
    finally:
        torch.set_num_threads(before)
    with pytest.raises(ValueError, match="do not fit keys"):
        remember(linear, states[:, 1:], None, *found)


@pytest.mark.parametrize("in_bytes", [False, True])
@pytest.mark.parametrize("inputs", [129, 1300])  # at once, and block by block
def test_rows_depend_neither_on_their_neighbours_nor_on_the_threads(
    made: ctypes.CDLL, inputs: int, in_bytes: bool
) -> None:
    product, x = NativeLinear(made, drawn(500, inputs), drawn(500), in_bytes=in_bytes), drawn(413, inputs, seed=4)
    x[3] *= 1000
    alone = torch.cat([product(row[None]) for row in x])
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            assert torch.equal(product(x), alone)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("in_bytes", [False, True])
@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_what_is_no_number_stays_none_and_touches_no_other_row(
    made: ctypes.CDLL, in_bytes: bool, broken: float
) -> None:
    product, x = NativeLinear(made, drawn(40, 33), None, in_bytes=in_bytes), drawn(5, 33, seed=4)
    whole = product(x)
    x[2, 7] = broken
    found = product(x)
    assert not found[2].isfinite().any()
    assert torch.equal(found[[0, 1, 3, 4]], whole[[0, 1, 3, 4]])


def test_vectors_of_another_width_or_kind_are_refused(made: ctypes.CDLL) -> None:
    product = NativeLinear(made, drawn(4, 8), None, in_bytes=False)
    with pytest.raises(ValueError, match=r"vectors of 8 numbers on the processor; got torch.float32, \(2, 9\) on cpu"):
        product(drawn(2, 9))
    with pytest.raises(ValueError, match=r"vectors of 8 numbers on the processor; got torch.float64, \(2, 8\) on cpu"):
        product(drawn(2, 8).double())
    with pytest.raises(ValueError, match=r"vectors of 8 numbers on the processor; got torch.float32, \(2, 8\) on meta"):
        product(drawn(2, 8).to("meta"))


ALL = (True, True, True)


def with_slopes(rows: int, width: int, words: int, bias: bool) -> tuple[tuple[Tensor, Tensor, Tensor | None], Tensor]:
    shift = drawn(words, seed=3) if bias else None
    target = torch.randint(words, (rows,), generator=torch.Generator().manual_seed(4))
    return (drawn(rows, width), 0.3 * drawn(words, width, seed=2), shift), target


def by_formula(given: tuple[Tensor, Tensor, Tensor | None], target: Tensor, smoothing: float) -> RowLosses:
    x, weight, bias = (None if each is None else each.double().requires_grad_() for each in given)
    assert x is not None and weight is not None
    logits = F.linear(x, weight, bias)
    smoothed = F.cross_entropy(logits, target, reduction="sum", label_smoothing=smoothing)
    smoothed.backward()
    surprise = F.cross_entropy(logits, target, reduction="sum")
    gradients = tuple(None if each is None else each.grad for each in (x, weight, bias))
    return RowLosses(smoothed.detach(), surprise.detach(), (logits.argmax(-1) == target).sum(), gradients)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("rows", "width", "words"), [(0, 4, 3), (1, 1, 2), (7, 5, 11), (50, 33, 101), (13, 64, 600), (60, 130, 64)]
)
@pytest.mark.parametrize("low", [torch.float32, torch.bfloat16])
def test_a_loss_and_its_gradients_are_those_of_the_formula(
    made: ctypes.CDLL,
    low: torch.dtype,
    rows: int,
    width: int,
    words: int,
    bias: bool,
    smoothing: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native, "library", lambda: made)
    monkeypatch.setattr(native, "MOST_ROWS", 13)  # several chunks, the last not full
    given, target = with_slopes(rows, width, words, bias)
    found, expected = (
        cross_entropy(*given, target, smoothing, low=low, wanted=ALL),
        by_formula(given, target, smoothing),
    )
    if low == torch.bfloat16 and not made.has_pairs():
        assert found is None
        return
    assert found is not None
    near = 1e-5 if low == torch.float32 else 2e-2  # of the largest: bfloat16 has eight bits
    for ours, theirs in zip((*found[:2], *found.gradients), (*expected[:2], *expected.gradients), strict=True):
        if theirs is None:
            assert ours is None
        else:
            torch.testing.assert_close(
                ours.double(), theirs, rtol=near, atol=near * float(theirs.abs().max()) if theirs.numel() else 0.0
            )
    assert low == torch.bfloat16 or int(found.correct) == int(expected.correct)


@pytest.mark.parametrize("low", [torch.float32, torch.bfloat16])
def test_a_loss_does_not_depend_on_the_threads(
    made: ctypes.CDLL, low: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "library", lambda: made)
    monkeypatch.setattr(native, "MOST_ROWS", 24)
    given, target = with_slopes(61, 70, 333, bias=True)
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(cross_entropy(*given, target, 0.1, low=low, wanted=ALL))
    finally:
        torch.set_num_threads(threads)
    one, *others = found
    for other in others:
        if one is None:  # no bfloat16 here
            assert other is None
            continue
        for ours, theirs in zip((*one[:3], *one.gradients), (*other[:3], *other.gradients), strict=True):
            assert torch.equal(ours, theirs)


def test_gradients_of_a_loss_are_there_where_they_are_asked_for(
    made: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "library", lambda: made)
    given, target = with_slopes(20, 16, 50, bias=True)
    whole = cross_entropy(*given, target, 0.1, low=torch.float32, wanted=ALL)
    for wanted in ((False, False, False), (True, False, False), (False, True, False), (False, False, True)):
        part = cross_entropy(*given, target, 0.1, low=torch.float32, wanted=wanted)
        assert part is not None and whole is not None and part.smoothed == whole.smoothed
        for asked, ours, theirs in zip(wanted, part.gradients, whole.gradients, strict=True):
            assert torch.equal(ours, theirs) if asked else ours is None


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_a_loss_of_what_is_no_number_is_none(made: ctypes.CDLL, broken: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library", lambda: made)
    given, target = with_slopes(20, 16, 50, bias=False)
    given[0][7, 3] = broken
    found = cross_entropy(*given, target, 0.1, low=torch.float32, wanted=ALL)
    assert found is not None and not found.smoothed.isfinite()
    alone = found.gradients[0].isfinite().all(-1)
    assert alone.tolist() == [row != 7 for row in range(20)]


@pytest.mark.parametrize("shape", [(1, 5), (3, 64), (7, 1000), (40, 5000)])
def test_log_probabilities_are_those_of_a_softmax(shape: tuple[int, int]) -> None:
    logits = 30 * drawn(*shape)
    logits[0, 1] = -torch.inf
    torch.testing.assert_close(log_probabilities(logits.clone()), logits.log_softmax(-1), atol=1e-4, rtol=1e-5)
    assert log_probabilities(logits.double()).dtype == torch.float64


def test_a_row_with_a_nan_has_no_probabilities() -> None:
    logits = drawn(3, 100)
    logits[1, 40] = torch.nan
    found = log_probabilities(logits)
    assert found[1].isnan().all()
    assert found[[0, 2]].isfinite().all()


@pytest.mark.parametrize("count", [1, 2, 8])
@pytest.mark.parametrize("shape", [(1, 8), (3, 64), (7, 1001), (40, 5000)])
def test_the_best_words_come_first_and_of_equals_the_first(shape: tuple[int, int], count: int) -> None:
    x = drawn(*shape).mul(20).round()  # many are equal
    found = continuations(x, [0.0] * len(x), 1, each=count, count=count)
    order = x.sort(stable=True, dim=-1, descending=True)
    assert list(found.row) == [row for row in range(len(x)) for _ in range(count)]
    assert list(found.word) == order.indices[:, :count].flatten().tolist()
    assert list(found.log_p) == list(found.score) == order.values[:, :count].flatten().tolist()
    assert list(found.highest) == x.amax(-1).tolist()


@pytest.mark.parametrize("off", [False, True])
@pytest.mark.parametrize("each", [1, 3, 6])
@pytest.mark.parametrize("width", [1, 2, 5])
def test_a_beam_goes_on_with_the_best_sums(width: int, each: int, off: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if off:
        monkeypatch.setattr(native, "library", lambda: None)
    log_p, score = drawn(4 * width, 300), (3 * drawn(4 * width)).tolist()
    score[0] = -torch.inf  # a row that only fills its sentence up
    count = min(6, width * each)
    found = continuations(log_p, score, width, each=each, count=count)
    for sentence in range(4):
        rows = range(sentence * width, (sentence + 1) * width)
        offered = [
            (score[row] + float(log_p[row, word]), row, int(word))
            for row in rows
            for word in log_p[row].topk(each).indices
        ]
        best = sorted(offered, reverse=True)[:count]
        own = slice(sentence * count, (sentence + 1) * count)
        told = zip(found.score[own], found.row[own], found.word[own], strict=True)
        real = [(way, wanted) for way, wanted in zip(told, best, strict=True) if wanted[0] > -torch.inf]
        assert [way[1:] for way, _ in real] == [wanted[1:] for _, wanted in real]
        assert [way[0] for way, _ in real] == pytest.approx([wanted[0] for _, wanted in real], rel=1e-6)
        chosen = zip(found.log_p[own], found.row[own], found.word[own], strict=True)
        assert all(value == float(log_p[row, word]) for value, row, word in chosen)
    assert list(found.highest) == log_p.amax(-1).tolist()


@pytest.mark.parametrize("off", [False, True])
def test_a_single_one_is_the_first_of_its_equals_with_our_own_code_and_without(
    off: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if off:
        monkeypatch.setattr(native, "library", lambda: None)
    found = continuations(torch.zeros(3, 40, dtype=torch.float32), [0.0] * 3, 1, each=1, count=1)
    assert list(found.word) == [0, 0, 0]
    assert list(found.log_p) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(("rows", "each", "count"), [(3, 2, 2), (4, 51, 2), (4, 2, 5)])
def test_continuations_that_are_not_there_are_refused(rows: int, each: int, count: int) -> None:
    with pytest.raises(ValueError, match=r"log-probabilities \(\d, 50\) cannot give"):
        continuations(drawn(rows, 50), [0.0] * 4, 2, each=each, count=count)


def test_probabilities_can_be_written_to_though_logits_could_not() -> None:
    with torch.inference_mode():
        logits = drawn(3, 100)
    found = log_probabilities(logits)
    found[:, 0] = -torch.inf
    assert logits.isfinite().all()


@pytest.mark.parametrize("words", [200, 5000])
def test_a_nan_is_larger_than_all_and_nothing_is_as_good_as_nothing(words: int) -> None:
    x = drawn(2, words)
    x[0, 150] = torch.nan
    x[1] = -torch.inf
    found = continuations(x, [0.0, 0.0], 1, each=2, count=2)
    assert found.word[0] == 150 and math.isnan(found.score[0]) and math.isnan(found.highest[0])
    assert list(found.score[2:]) == [-torch.inf] * 2 and list(found.word[2:]) == [0, 1]
    beam = continuations(x.flip(0), [0.0, -9.0], 2, each=2, count=2)
    assert list(beam.row) == [1, 1] and beam.word[0] == 150


@pytest.mark.parametrize("few", [1, 7, 8, 9])
@pytest.mark.parametrize("infinite", [0, 2])
def test_where_few_words_may_follow_they_come_before_those_that_may_not(few: int, infinite: int) -> None:
    """As many as are asked for, more, or fewer, all in the same lane of vectors or not."""
    for apart in (64, 61):
        x = torch.full((1, 3000), -torch.inf, dtype=torch.float32)
        place = 5 + apart * torch.arange(few)
        x[0, place] = drawn(few)
        x[0, place[:infinite]] = torch.inf
        order = x.sort(stable=True, dim=-1, descending=True)
        found = continuations(x, [0.0], 1, each=8, count=8)
        assert list(found.word) == order.indices[0, :8].tolist()
        assert list(found.score) == order.values[0, :8].tolist()


def test_without_our_own_code_torch_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library", lambda: None)
    x = drawn(3, 50)
    assert torch.equal(log_probabilities(x), x.log_softmax(-1))
    assert continuations(x, [0.0] * 3, 1, each=4, count=4).word == x.topk(4).indices.flatten().tolist()


def compilers(monkeypatch: pytest.MonkeyPatch, cache: Path) -> list[list[str]]:
    """The commands that are run, as they come."""
    commands: list[list[str]] = []
    run = subprocess.run

    def noted(command: list[str], **how: object) -> object:
        commands.append(command)
        return run(command, **how)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", noted)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.delenv("SACCADE_NATIVE", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(native, "FLAGS", ("-O0", *native.FLAGS[2:]))  # sooner made
    return commands


def test_it_is_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands = compilers(monkeypatch, tmp_path)
    assert native.library.__wrapped__() is not None
    assert native.library.__wrapped__() is not None
    assert len(commands) == 1
    assert [file.suffix for file in (tmp_path / "saccade").iterdir()] == [".so"]


def test_a_damaged_file_is_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands = compilers(monkeypatch, tmp_path)
    native._compiled(COMPILER).write_bytes(b"")
    assert native.library.__wrapped__() is not None
    assert len(commands) == 2


def test_a_compiler_may_have_arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compilers(monkeypatch, tmp_path)
    monkeypatch.setenv("CXX", f"{COMPILER} -DNOTHING")
    assert native.library.__wrapped__() is not None


def test_numbers_of_other_kinds_need_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library", lambda: pytest.fail("nothing to compile"))
    log_probabilities(drawn(2, 9).double())
    continuations(drawn(2, 9).double(), [0.0, 0.0], 1, each=1, count=1)


def test_another_processor_gets_code_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands = compilers(monkeypatch, tmp_path)
    native.library.__wrapped__()
    monkeypatch.setattr(native, "_processor", lambda: "flags: none")
    native.library.__wrapped__()
    assert len(commands) == 2


def test_a_compiler_that_is_not_there_leaves_nothing_and_torch_computes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compilers(monkeypatch, tmp_path)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert native.library.__wrapped__() is None
    assert list((tmp_path / "saccade").iterdir()) == []


def test_a_compiler_that_fails_is_tried_once_and_its_reason_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    commands = compilers(monkeypatch, tmp_path)
    monkeypatch.setenv("CXX", f"{COMPILER} --no-such-option")
    with caplog.at_level("INFO", "saccade"):
        assert native.library.__wrapped__() is None
        assert native.library.__wrapped__() is None
    assert len(commands) == 1
    (reason,) = (tmp_path / "saccade").iterdir()
    assert "--no-such-option" in reason.read_text()
    assert "compiling" in caplog.text and str(reason) in caplog.text
    reason.unlink()
    assert native.library.__wrapped__() is None
    assert len(commands) == 2


def test_a_place_where_nothing_can_be_kept_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    compilers(monkeypatch, tmp_path / "file")
    assert native.library.__wrapped__() is None


@X86
@pytest.mark.parametrize(
    ("processor", "levels"),
    [
        ("x86-64", 0),
        ("sandybridge", 0),
        ("haswell", 63),
        ("alderlake", 127),
        ("cascadelake", 127),
        ("sapphirerapids", 127),  # with a matrix unit
    ],
)
def test_code_can_be_made_for_another_processor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, processor: str, levels: int
) -> None:
    """Those that add up four products of eight bits at once round inputs to twice as many levels; the oldest have no
    products of eight bits."""
    commands = compilers(monkeypatch, tmp_path)
    monkeypatch.setenv("SACCADE_NATIVE", processor)
    made = native.library.__wrapped__()
    assert f"-march={processor}" in commands[0]
    assert made is not None
    assert made.levels() == levels


@pytest.mark.parametrize("asked", ["", "1"])
def test_turned_on_it_is_made_for_this_processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: str) -> None:
    commands = compilers(monkeypatch, tmp_path)
    monkeypatch.setenv("SACCADE_NATIVE", asked)
    assert native.library.__wrapped__() is not None
    assert "-march=native" in commands[0]


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_NATIVE", "0")
    assert native.library.__wrapped__() is None
