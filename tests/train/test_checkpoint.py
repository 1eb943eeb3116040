"""Damaged, hostile and foreign checkpoints: refused or passed over, in one line that says what is wrong."""

import hashlib
import json
import pickle
import shutil
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from saccade.errors import RunError, RunWarning
from saccade.train.checkpoint import Checkpoint
from saccade.train.run import Run
from saccade.train.tensors import DamagedError, encode, read_tensors, require_match


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Two checkpoints; the tests damage the newer one."""
    run = Run.create(tmp_path / "run", "format: 1\n")
    for step in (1, 2):
        weights = {"w": torch.full((64,), float(step))}
        run.save(Checkpoint(step, weights, {"w/m": torch.ones(64)}, {"torch": torch.ones(8)}, {"cursor": step}))
    return run


def newest(run: Run, name: str = "model.safetensors") -> Path:
    return run.path / "step-000002" / name


def vouch(run: Run, name: str) -> None:
    """Make the manifest agree with a changed file, as someone with bad intentions would."""
    manifest = json.loads(newest(run, "manifest.json").read_text())
    data = newest(run, name).read_bytes()
    manifest["files"][name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    newest(run, "manifest.json").write_text(json.dumps(manifest))


def expect_fallback(run: Run, problem: str) -> None:
    """`latest` warns and goes one back, `load` refuses and names the step that would do; both in one line."""
    with pytest.warns(RunWarning, match=rf"^[^\n]*{problem}[^\n]*; using step 1 instead\Z"):
        found = run.latest()
    assert found is not None and found.step == 1 and found.state == {"cursor": 1}
    with pytest.raises(RunError, match=rf"^[^\n]*{problem}[^\n]*; step 1 would do\Z"):
        run.load(2)


def safetensors(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype: str, shape: list[int], *offsets: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


FILES = ["model.safetensors", "optimizer.safetensors", "random.safetensors", "state.json"]


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_named_with_expected_and_found_bytes(run: Run, name: str) -> None:
    data = newest(run, name).read_bytes()
    newest(run, name).write_bytes(data[:-3])
    expect_fallback(run, f"step-000002/{name}: expected {len(data)} bytes, found {len(data) - 3}")


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_caught_by_the_hash(run: Run, name: str) -> None:
    data = bytearray(newest(run, name).read_bytes())
    data[-2] ^= 1
    newest(run, name).write_bytes(data)
    expect_fallback(run, rf"step-000002/{name}: the content changed .* expected SHA-256 \w+\.\.\., found \w+\.\.\.")


@pytest.mark.parametrize("name", [*FILES, "manifest.json"])
def test_a_missing_file_is_named(run: Run, name: str) -> None:
    newest(run, name).unlink()
    expect_fallback(run, f"step-000002/{name}: No such file")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"format": 1}', '{"format": "1", "files": {}}', "[" * 100_000]
)
def test_a_manifest_that_is_none_is_named(run: Run, text: str) -> None:
    newest(run, "manifest.json").write_text(text)
    expect_fallback(run, "step-000002/manifest.json: not ")


def test_a_manifest_that_omits_a_file_does_not_vouch_for_it(run: Run) -> None:
    manifest = json.loads(newest(run, "manifest.json").read_text())
    del manifest["files"]["model.safetensors"]
    newest(run, "manifest.json").write_text(json.dumps(manifest))
    expect_fallback(run, r"model\.safetensors: not listed in manifest\.json")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_bytes_are_damaged_the_error_is_for_people(run: Run, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([*FILES, "manifest.json"]))
    before = newest(run, name).read_bytes()
    place = data.draw(st.integers(0, len(before) - 1))
    damage = data.draw(st.binary(max_size=12))
    newest(run, name).write_bytes(before[:place] + damage + before[place + len(damage) + (not damage) :])
    try:
        loaded = run.load(2)
        assert name == "manifest.json" or newest(run, name).read_bytes() == before
        assert loaded.state == {"cursor": 2} and (loaded.model["w"] == 2).all()
    except RunError as error:
        assert "step-000002" in str(error)
    finally:
        newest(run, name).write_bytes(before)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", r"not a checkpoint \(an empty file\)"),
        (b"abc", r"not a checkpoint \(a text file\)"),
        ("Grüße\n".encode() * 20, r"not a checkpoint \(a text file\)"),
        (b"\0\1\2", r"not a checkpoint \(3 bytes\)"),
        (pickle.dumps({"w": [1.0] * 99}), r"not a checkpoint \(a pickle or zip file"),
        (b"PK\x03\x04" + bytes(99), r"not a checkpoint \(a pickle or zip file"),
        (safetensors({}, length=10**12), r"its header claims 1\.0 TB, the file has 10 bytes"),
        (safetensors({}, length=2**64 - 1), "its header claims"),
        (safetensors([]), "not a valid safetensors file"),
        (safetensors("[" * 5000), "not a valid safetensors file"),
        (struct.pack("<Q", 9000) + b"[" * 9000, "not a valid safetensors file"),
        (safetensors({"w": entry("F32", [2], 0, 8)}, bytes(7)), "expected 77 bytes by its header, found 76"),
        (safetensors({"w": entry("F32", [2], 0, 8)}, bytes(9)), "expected 77 bytes by its header, found 78"),
        (safetensors({"w": entry("F32", [2**62, 8], 0, 8)}, bytes(8)), "not a valid safetensors file"),
        (safetensors({"w": entry("F32", [-2], 0, 8)}, bytes(8)), "not a valid safetensors file"),
        (safetensors({"w": entry("X", [2], 0, 8)}, bytes(8)), "not a valid safetensors file"),
        (safetensors({"v": entry("F32", [2], 0, 8), "w": entry("F32", [2], 4, 12)}, bytes(12)), "not a valid"),
    ],
    ids=[
        *("empty", "text", "text beyond ASCII", "three bytes", "pickle", "zip", "header of 1 TB", "header of 2^64"),
        *("list", "string", "nesting", "truncated", "trailing", "overflow", "negative", "unknown type", "overlap"),
    ],
)
def test_what_is_not_a_safetensors_file_is_refused_even_if_a_manifest_vouches_for_it(
    run: Run, content: bytes, problem: str
) -> None:
    newest(run).write_bytes(content)
    with pytest.raises(DamagedError, match=rf"^[^\n]*model\.safetensors: [^\n]*{problem}[^\n]*\Z"):
        read_tensors(newest(run))
    vouch(run, "model.safetensors")
    expect_fallback(run, problem)


def test_a_hostile_pickle_is_not_opened(run: Run, tmp_path: Path) -> None:
    marker = tmp_path / "marker"

    class Hostile:
        def __reduce__(self):
            return (Path.touch, (marker,))

    for content in (pickle.dumps(Hostile()), b""):
        newest(run).write_bytes(content)
        if not content:
            torch.save(Hostile(), newest(run))
        expect_fallback(run, "a pickle or zip file")
        vouch(run, "model.safetensors")
        expect_fallback(run, "a pickle or zip file")
    assert not marker.exists()


def test_state_that_is_not_json_is_named(run: Run) -> None:
    newest(run, "state.json").write_text("{")
    vouch(run, "state.json")
    expect_fallback(run, r"state\.json: not JSON")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name_unless_allowed(run: Run, value: float) -> None:
    weights = {"good": torch.ones(3), "bad": torch.tensor([1.0, value]), "small": torch.ones(2).to(torch.float8_e5m2)}
    run.save(Checkpoint(2, weights, {}, {}, {"cursor": 2}))
    expect_fallback(run, r"model\.safetensors: NaN or infinity in 'bad'")
    for loaded in (run.load(2, allow_nonfinite=True), run.latest(allow_nonfinite=True)):
        assert loaded is not None and torch.equal(loaded.model["good"], torch.ones(3))
    assert "bad" in run.weights(2, allow_nonfinite=True)[0]


def test_when_no_checkpoint_can_be_read_the_training_does_not_start_from_nothing(run: Run) -> None:
    for step in (1, 2):
        (run.path / f"step-{step:06d}" / "model.safetensors").write_bytes(b"")
    with pytest.raises(RunError, match=r"no checkpoint of .*run can be read: .*step-000002.*step-000001"):
        run.latest()
    with pytest.raises(RunError, match="no older step would do"):
        run.load(2)


def test_a_step_that_is_not_there_is_refused_with_those_that_are(run: Run) -> None:
    with pytest.raises(RunError, match="has no step 7; there is: 1, 2"):
        run.load(7)


def test_a_renamed_directory_is_noticed_and_links_and_other_names_are_passed_over(run: Run) -> None:
    (run.path / "latest").symlink_to("step-000099")
    shutil.copytree(run.path / "step-000001", run.path / "step-000001-copy")
    shutil.copytree(run.path / "step-000001", run.path / "step-1")
    assert run.steps() == [1, 2]
    shutil.move(run.path / "step-000002", run.path / "step-000009")
    with pytest.warns(RunWarning, match="step-000009: holds step 2, .*rename it back; using step 1 instead"):
        run.latest()
    shutil.move(run.path / "step-000009", run.path / "step-000002")
    found = run.latest()
    assert found is not None and found.step == 2


def test_a_newer_format_says_which_version_reads_it_and_is_not_passed_over(run: Run) -> None:
    manifest = json.loads(newest(run, "manifest.json").read_text())
    newest(run, "manifest.json").write_text(json.dumps({**manifest, "format": 2, "written_by": "9.1.0"}))
    for read in (run.latest, lambda: run.load(2), run.weights):
        with pytest.raises(RunError, match=r"manifest\.json: format 2 is newer than 1, .* saccade 9\.1\.0: install"):
            read()


# A checkpoint of format 1, byte for byte. It must stay readable: never change it, add one per format.
GOLDEN = {
    "model.safetensors": b"\x90"
    + bytes(7)
    + b'{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},'
    b'"b":{"dtype":"BOOL","shape":[2],"data_offsets":[8,10]}}  ' + bytes.fromhex("0000c03f000000c00100"),
    "optimizer.safetensors": b"\x60"
    + bytes(7)
    + b'{"__metadata__":{"format":"pt"},"w/exp_avg":{"dtype":"F64","shape":[1,2],"data_offsets":[0,16]}}'
    + bytes.fromhex("000000000000d03f000000000000e03f"),
    "random.safetensors": b"\x58"
    + bytes(7)
    + b'{"__metadata__":{"format":"pt"},"torch":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}'
    + bytes.fromhex("010203"),
    "state.json": b'{"cursor": {"epoch": 3}}',
}
GOLDEN_MANIFEST = {
    "format": 1,
    "written_by": "0.1.0",
    "step": 7,
    "files": {
        "model.safetensors": {
            "size": 162,
            "sha256": "91533280ad26f3f432a0bf9590ac838410bbbbd94e03ffd412979f39adee932a",
        },
        "optimizer.safetensors": {
            "size": 120,
            "sha256": "983b63dcd8e8105610ac2a6bb688b26987ad740fdaa3d90f308bdc8979243085",
        },
        "random.safetensors": {
            "size": 99,
            "sha256": "c1cc5389e4cb03c69a119ebcbc4b984885e86c72b12fc0f2de562cca1f14ff9e",
        },
        "state.json": {"size": 24, "sha256": "54d037926913523e9a46e9e8c2b059a775d187e42fe035b7950f90d7c4a4d14f"},
    },
}


def test_a_checkpoint_of_every_earlier_format_is_read(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "old", "format: 1\n")
    (run.path / "step-000007").mkdir()
    for name, content in GOLDEN.items():
        (run.path / "step-000007" / name).write_bytes(content)
    (run.path / "step-000007" / "manifest.json").write_text(json.dumps(GOLDEN_MANIFEST))
    loaded = run.load(7)
    assert torch.equal(loaded.model["w"], torch.tensor([[1.5, -2.0]]))
    assert torch.equal(loaded.model["b"], torch.tensor([True, False]))
    assert torch.equal(loaded.optimizer["w/exp_avg"], torch.tensor([[0.25, 0.5]], dtype=torch.float64))
    assert torch.equal(loaded.random["torch"], torch.tensor([1, 2, 3], dtype=torch.uint8))
    assert loaded.state == {"cursor": {"epoch": 3}}


dtypes = st.sampled_from(
    [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.int16, torch.uint8, torch.bool]
)
tensors = st.builds(
    lambda shape, dtype: torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype),
    st.lists(st.integers(0, 3), max_size=3),
    dtypes,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), tensors, max_size=5))
def test_what_we_write_the_safetensors_library_reads(tmp_path: Path, named: dict[str, torch.Tensor]) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"".join(bytes(piece) for piece in encode(named)))
    for found in (load_file(path), read_tensors(path)):
        assert found.keys() == named.keys()
        assert all(found[name].dtype == named[name].dtype and torch.equal(found[name], named[name]) for name in named)


# Fitting a model or an optimizer


def test_tensors_that_fit_are_accepted() -> None:
    require_match({"a": torch.ones(2, 3), "b": torch.tensor(1)}, {"a": (2, 3), "b": torch.Size([])}, "the model")
    require_match({}, {}, "the model")


def test_all_differences_are_told_at_once_with_the_nearest_names() -> None:
    found = {"embed.wieght": torch.ones(2), "zzz": torch.ones(1), "out.weight": torch.ones(10, 4), "ok": torch.ones(1)}
    expected = {"embed.weight": (2,), "out.weight": (12, 4), "ok": (1,)}
    with pytest.raises(RunError) as caught:
        require_match(found, expected, "the model of run 'first'")
    assert str(caught.value).splitlines() == [
        "the model of run 'first' does not fit; nothing was loaded:",
        "  missing (1): embed.weight",
        "  unexpected (2): embed.wieght (did you mean 'embed.weight'?), zzz",
        "  wrong shape (1): out.weight is (10, 4), expected (12, 4)",
    ]


def test_long_lists_of_differences_are_cut() -> None:
    with pytest.raises(RunError, match=r"missing \(500\): n000, .*, n009, and 490 more\Z"):
        require_match({}, {f"n{i:03}": (1,) for i in range(500)}, "the model")


def test_the_optimizer_state_of_another_model_is_refused() -> None:
    state = {"w/exp_avg": torch.zeros(3, 4), "w/step": torch.tensor(5.0)}
    with pytest.raises(
        RunError, match=r"the optimizer does not fit.*\n  wrong shape \(1\): w/exp_avg is \(3, 4\), exp"
    ):
        require_match(state, {"w/exp_avg": (4, 3), "w/step": ()}, "the optimizer")
