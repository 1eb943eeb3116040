"""Models of Hugging Face's format: a folder becomes a run, a run becomes a folder.

An export is read again by the import before it gets its name: tensors bit for bit, and what both models say.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saccade import api
from saccade.config import Recipe, dump_recipe, explained
from saccade.config.training import DecodeSettings
from saccade.data.lexicon import Lexicon
from saccade.data.vocab import END, PAD, START, Pieces
from saccade.errors import SaccadeError, did_you_mean
from saccade.exchange import bert, clip, distilbert, gpt2, marian, roberta, vit, xlnet
from saccade.exchange.architecture import Architecture, Sizes, labels_left_out, longest_text
from saccade.exchange.folder import (
    CONFIG,
    WEIGHTS,
    Config,
    new_folder,
    read_config,
    read_json,
    read_weights,
    write_json,
    write_weights,
)
from saccade.exchange.tokens import FILE, read_pieces, read_tokenizer, write_lexicon, write_pieces
from saccade.predictor import Predictor, for_people
from saccade.tasks.filling import SPELLED, read_gaps
from saccade.tasks.masked import Masked
from saccade.tasks.permuted import Permuted
from saccade.tasks.space import tokens_of
from saccade.train.run import Run
from saccade.train.trainer import named_tensors, weights_to_use

ARCHITECTURES = {
    each.name: each
    for each in (
        *(gpt2.LANGUAGE, gpt2.BARE, bert.PRETRAINING, bert.MASKED, bert.BARE, bert.LABELS, vit.LABELS),
        *(marian.MARIAN, marian.PEGASUS, distilbert.MASKED, distilbert.BARE),
        *(roberta.MASKED, roberta.BARE, roberta.LABELS),
        *(xlnet.LANGUAGE, xlnet.BARE, clip.MODEL),
    )
}

# task and model of a run -> what it is written as
COUNTERPARTS = {
    ("language", "gpt"): gpt2.LANGUAGE,
    ("masked", "bert"): bert.MASKED,
    ("permuted", "xlnet"): xlnet.LANGUAGE,
    ("classify", "bert"): bert.LABELS,
    ("classify_images", "vit"): vit.LABELS,
    ("contrast", "clip"): clip.MODEL,
    ("translate", "transformer"): marian.MARIAN,
}

# files of a folder that are kept with a run as they are, and go back with it
KEPT = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json"),
    *("merges.txt", "vocab.txt", "generation_config.json", "preprocessor_config.json", "processor_config.json"),
)
WRITING = ("translate", "language")  # tasks whose answers are searched
ORIGIN = "huggingface"  # where, in a run's vocab/
LABELS = "labels.json"
# that a written tokenizer is tried on
TEXTS, GAPS = ("the cat sat on the mat", " two  spaces,\nand a line: 12 °C?"), f"the cat {SPELLED} on {SPELLED} mat"
TOLERANCE = 1e-6  # between what two models with the same tensors say, relative to the largest


def import_folder(folder: str | Path, out: str | Path) -> list[str]:
    """Make the run `out` of a folder with config.json, weights and tokenizer; what there is to say, in words."""
    folder = Path(folder)
    config = read_config(folder)
    tensors = read_weights(folder)
    architecture = _architecture(config, tensors)
    recipe = _recipe(architecture, config, tensors)
    run = Run.create(out, dump_recipe(recipe))
    try:
        _keep(folder, config, architecture, run.vocab)
        fresh = _model_tensors(recipe, run)
        table = architecture.table(recipe)
        found = table.into(tensors, fresh, f"the weights of {folder}, as {architecture.name},")
        if aside := table.aside(tensors):
            write_weights(run.vocab / ORIGIN, aside)
        run.save_final(found, {"vocabulary": run.vocab_hash()})
    except BaseException:
        shutil.rmtree(run.path, ignore_errors=True)
        raise
    count = sum(tensor.numel() for tensor in found.values())
    return [f"{architecture.name}: {count:,} parameters, for {recipe.task.kind}", *architecture.notes(config)]


def export_run(path: str | Path, folder: str | Path) -> list[str]:
    """Write a run as a folder that transformers reads; refused, with nothing left behind, where what was written is not
    the same model."""
    predictor = api.load(path)
    run = Run.open(path)
    origin = run.vocab / ORIGIN
    original = read_json(origin / CONFIG) if origin.is_dir() else {}
    architecture = _fitting(predictor.recipe, original)
    sizes = _sizes(run, architecture)
    stored = weights_to_use(run)[0]  # in the precision they were stored in
    tensors = {name: each.to(stored[name].dtype) for name, each in named_tensors(predictor.model).items()}
    config = _config(architecture, predictor.recipe, sizes, original, tensors)
    with new_folder(Path(folder)) as temporary:
        written = architecture.table(predictor.recipe).back(tensors | _aside(origin), bare=architecture.bare)
        write_weights(temporary, written)
        write_json(temporary / CONFIG, config)
        if original:
            for name in KEPT:
                if (origin / name).is_file():
                    shutil.copyfile(origin / name, temporary / name)
        else:
            _write_vocabulary(run, architecture, predictor.recipe, config, temporary)
            _require_same_ids(predictor, architecture, temporary)
        _require_same(predictor, tensors, temporary, architecture, sizes)
    notes = [*_search_left_out(predictor.recipe, architecture), *labels_left_out(predictor)]
    size = (Path(folder) / WEIGHTS).stat().st_size
    return [f"{architecture.name}: {len(written)} tensors, {size / 1e6:.1f} MB", *notes]


def _recipe(architecture: Architecture, config: Config, names: Collection[str]) -> Recipe:
    """What config.json says, in our words; values that no model can have are said in one line."""
    try:
        return architecture.recipe(config, names)
    except ValueError as error:
        raise SaccadeError(f"{config.path}: {explained(error)}") from error


def _search_left_out(recipe: Recipe, architecture: Architecture) -> list[str]:
    """What a recipe asks of a search and no file of the folder says. The length_penalty of transformers is another
    formula: in a beam, which that of the recipe decides, theirs may choose otherwise whatever its value."""
    decode, usual = recipe.decode, DecodeSettings()
    if recipe.task.kind not in WRITING:
        return []
    unlike = [name for name in DecodeSettings.model_fields if getattr(decode, name) != getattr(usual, name)]
    unlike += ["length_penalty"] if decode.beam > 1 and decode.length_penalty == usual.length_penalty else []
    named = [f"decode.{name}" for name in unlike if name not in (*architecture.carried, "valid_beam")]
    return [f"the folder does not carry {', '.join(named)}"] if named else []


def _aside(origin: Path) -> dict[str, Tensor]:
    """Tensors that came with a run and that it has no place for."""
    return read_weights(origin) if (origin / WEIGHTS).is_file() else {}


def _architecture(config: Config, names: Collection[str] = ()) -> Architecture:
    """By its name in config.json or, without one, the first of its type; files of long ago have the type only in the
    names of their tensors."""
    named = config.values.get("architectures")
    if isinstance(named, list) and named:
        if (name := str(named[0])) in ARCHITECTURES:
            return ARCHITECTURES[name]
        near = did_you_mean(name, ARCHITECTURES) or f"; known are {', '.join(ARCHITECTURES)}"
        raise SaccadeError(f"{config.path}: the architecture {name!r} is not known here{near}")
    written = (each.type for each in ARCHITECTURES.values() if any(name.startswith(f"{each.type}.") for name in names))
    kind = config.text("model_type", next(written, None))
    found = [each for each in ARCHITECTURES.values() if each.type == kind]
    if not found:
        known = sorted({each.type for each in ARCHITECTURES.values()})
        raise SaccadeError(f"{config.path}: model_type {kind!r} is not known here; known are {', '.join(known)}")
    return found[0]


def _fitting(recipe: Recipe, original: Mapping[str, Any]) -> Architecture:
    """What a run is written as: what it came from, or what has a place for all it has."""
    if original.get("architectures") or original.get("model_type"):
        return _architecture(Config(Path(ORIGIN) / CONFIG, original))
    found = COUNTERPARTS.get((recipe.task.kind, recipe.model.kind))
    if found is None:
        known = ", ".join(f"{task} with {model}" for task, model in COUNTERPARTS)
        raise SaccadeError(
            f"a model {recipe.model.kind} for {recipe.task.kind} has no counterpart at Hugging Face; there is {known}"
        )
    if found is bert.MASKED and getattr(recipe.task, "next_sentence", False):
        return bert.PRETRAINING
    if getattr(recipe.model, "first_position", 0) == roberta.FIRST:
        return roberta.LABELS if found is bert.LABELS else roberta.MASKED
    return marian.PEGASUS if found is marian.MARIAN and getattr(recipe.model, "order", "") == "pre" else found


def _keep(folder: Path, config: Config, architecture: Architecture, vocab: Path) -> None:
    """What a task loads beside the weights, and the files that an export gives back."""
    if architecture.vocabulary == "lexicon":
        lexicon = architecture.lexicon(folder, config)
        if architecture.masks and lexicon.marks.mask is None:
            raise SaccadeError(f"{folder}: the tokenizer has no mask: tokenizer_config.json should name its mask_token")
        lexicon.save(vocab)
    elif architecture.vocabulary == "pieces":
        read_pieces(folder, config).save(vocab)
    if architecture.labelled:
        (vocab / LABELS).write_text(json.dumps(config.labels(), ensure_ascii=False) + "\n", encoding="utf-8")
    origin = vocab / ORIGIN
    origin.mkdir()
    for name in (CONFIG, *KEPT):
        if (folder / name).is_file():
            shutil.copyfile(folder / name, origin / name)


def _model_tensors(recipe: Recipe, run: Run) -> dict[str, Tensor]:
    """Of a new model; drawn alike each time, where a file does not have all of it."""
    task = api.make_task(recipe)
    task.load(run.vocab)
    with for_people(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return named_tensors(task.model())


def _sizes(run: Run, architecture: Architecture) -> Sizes:
    labels: Sequence[str] = json.loads((run.vocab / LABELS).read_text("utf-8")) if architecture.labelled else ()
    if architecture.vocabulary == "lexicon" and (run.vocab / Lexicon.MARKS).is_file():
        lexicon = Lexicon.load(run.vocab)
        marks = {"pad": lexicon.marks.pad, "start": lexicon.marks.start, "end": lexicon.marks.end}
        return Sizes(len(lexicon), marks, labels)
    if architecture.vocabulary == "pieces":
        return Sizes(len(Pieces.load(run.vocab)), {"pad": PAD, "start": START, "end": END}, labels)
    return Sizes(labels=labels)


def _config(
    architecture: Architecture,
    recipe: Recipe,
    sizes: Sizes,
    original: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
) -> dict[str, Any]:
    """config.json: that of the origin where there is one, since we know less of it than it says."""
    kinds = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
    kind = str(next(iter(kinds))).removeprefix("torch.") if len(kinds) == 1 else "float32"
    if original:
        before = original.get("dtype", original.get("torch_dtype", "float32"))
        return dict(original) if kind == before else {**original, "dtype": kind}
    assert architecture.config is not None
    said: dict[str, Any] = {"architectures": [architecture.name], "model_type": architecture.type, "dtype": kind}
    if architecture.labelled:
        named = {str(number): label for number, label in enumerate(sizes.labels)}
        said |= {"id2label": named, "label2id": {label: int(number) for number, label in named.items()}}
    return said | architecture.config(recipe, sizes)


def _write_vocabulary(
    run: Run, architecture: Architecture, recipe: Recipe, config: Mapping[str, Any], folder: Path
) -> None:
    if architecture.vocabulary == "lexicon":
        lexicon, segments = Lexicon.load(run.vocab), config.get("type_vocab_size", 1)
        write_lexicon(folder, lexicon, longest_text(recipe), framed=architecture.framed, segments=segments)
    elif architecture.vocabulary == "pieces":
        write_pieces(folder, Pieces.load(run.vocab), longest_text(recipe))
    for name, said in architecture.files(recipe).items():
        write_json(folder / name, said)


def _require_same_ids(predictor: Predictor, architecture: Architecture, folder: Path) -> None:
    """Compare what the tokenizer that was written makes of a few texts with what the task reads."""
    if architecture.vocabulary == "none":
        return
    tokenizer, task = read_tokenizer(folder), predictor.task
    texts = dict(zip(TEXTS, TEXTS, strict=True))
    if isinstance(task, Masked | Permuted) and (mask := task.lexicon.marks.mask) is not None:
        texts[GAPS] = GAPS.replace(SPELLED, str(tokenizer.id_to_token(mask)))
    for ours, theirs in texts.items():
        found, read = tokenizer.encode(theirs).ids, _read_here(predictor, ours)
        if found != read:
            raise SaccadeError(f"the export is refused: {FILE} makes {found} of {theirs!r}, and the task reads {read}")


def _read_here(predictor: Predictor, text: str) -> list[int]:
    """The ids that a model is given of a text, however long."""
    task: Any = predictor.task
    match predictor.recipe.task.kind:
        case "translate":
            return task.pieces.encode(text)
        case "language":
            return task.lexicon.encode(text)
        case "contrast":
            return tokens_of(task.pieces, [text], sys.maxsize)[0]
        case _:
            return read_gaps(text, task.lexicon, sys.maxsize).tokens[0].tolist()


@torch.no_grad()
def _require_same(
    predictor: Predictor, tensors: Mapping[str, Tensor], folder: Path, architecture: Architecture, sizes: Sizes
) -> None:
    """Import what was written and compare: tensors bit for bit, and what both models say to random inputs."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "run"
        import_folder(folder, out)
        again, _ = Run.open(out).weights()
        drawn = {name for rule in architecture.table(predictor.recipe).rules if not rule.theirs for name in rule.ours}
        different = [
            name
            for name, each in tensors.items()
            if name not in drawn and not (name in again and torch.equal(each, again[name]))
        ]
        if different:
            raise SaccadeError(f"the export is refused: {', '.join(different[:5])} came back otherwise than written")
        said = [
            architecture.probe(model.eval(), predictor.recipe, sizes, torch.Generator().manual_seed(1))
            for model in (predictor.model, api.load(out).model)
        ]
        apart = float((said[0] - said[1]).abs().max())
        if apart > TOLERANCE * max(1.0, float(said[0].abs().max())):
            raise SaccadeError(f"the export is refused: the model read again differs in what it says, by {apart:.1e}")
