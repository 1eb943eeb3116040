"""saccade.json of a folder of ONNX graphs: how text becomes ids, how sound and images become numbers, how an answer
begins and ends, and what the numbers of an answer mean."""

from __future__ import annotations

from typing import Any

from saccade.data.gridworld import ACTIONS, COLOURS
from saccade.data.lexicon import Lexicon
from saccade.data.vocab import END, PAD, SPECIALS, START, Characters, Pieces
from saccade.exchange.onnx_inputs import IMAGES, stride_of
from saccade.predictor import Predictor

VOCABULARY = "vocab"  # the folder of the run's own vocabulary, as it is
IMAGE = {"channels": "RGB", "lowest": -1.0, "highest": 1.0}  # of what was 0 and 255
LEFT_OUT = ("coverage_penalty", "minimum_length", "no_repeat", "prefix", "must_include", "must_not_include")


def ways_in_and_out(predictor: Predictor) -> dict[str, Any]:
    """What is not said by the graphs themselves."""
    task: Any = predictor.task
    settings: Any = predictor.recipe.task
    kind = predictor.recipe.task.kind
    found: dict[str, Any] = {}
    names = [name for name in ("lexicon", "pieces", "vocabulary") if hasattr(type(task), name)]
    if kind == "follow":
        sides = zip(("read", "written"), ("commands", "actions"), task.vocabularies, strict=True)
        found["text"] = {side: _spelling(each, f"{VOCABULARY}/{folder}") for side, folder, each in sides}
    elif kind == "walk":
        found["text"] = {"read": _spelling(task.words), "written": {"symbols": task.actions.symbols, "offset": 3}}
    elif names or kind in ("copy", "reverse", "sort"):
        found["text"] = _spelling(getattr(task, names[0] if names else "vocabulary"))
    if kind in (*IMAGES, "classify_images", "contrast", "answer", "interact"):
        found["image"] = IMAGE
    if kind == "transcribe":
        found["sound"] = {name: getattr(settings, name) for name in ("rate", "features", "mels", "window", "hop")}
    labels = ACTIONS if kind == "interact" else getattr(task, "labels", getattr(task, "answers", None))
    if labels is not None:
        found["labels"] = list(labels)
    if kind == "interact":
        found["goals"] = list(COLOURS)
    if kind == "contrast":
        model: Any = predictor.model
        found["scale"] = float(model.log_scale.exp())
    return found


def way_of_writing(predictor: Predictor) -> dict[str, Any]:
    """How an answer begins, ends and is searched."""
    recipe, decode = predictor.recipe, predictor.recipe.decode
    kind, settings = recipe.task.kind, recipe.task
    limit: dict[str, Any] = {"factor": decode.limit_factor, "extra": decode.limit_extra, "window": None}
    ids: dict[str, Any] = {"pad": PAD, "start": START, "end": END, "never": [PAD, START]}
    if kind in IMAGES:  # a word has a space before it, and everything an end
        limit |= {"factor": 0.0, "extra": int(getattr(settings, "longest", 0)) + (2 if kind == "read" else 1)}
    if kind == "language":
        lexicon: Lexicon = getattr(predictor.task, "lexicon")  # noqa: B009 - this task has one
        marks = lexicon.marks
        never = {marks.pad, marks.start, marks.mask, marks.end} - ({marks.end} if lexicon.published_ids else set())
        ids = {"pad": marks.pad, "start": None, "end": marks.end, "never": sorted(n for n in never if n is not None)}
        limit["window"] = getattr(settings, "window", None)
    return {
        "ids": ids,
        "limit": limit | {"stride": stride_of(predictor)},
        "search": {"beam": decode.beam, "length_penalty": decode.length_penalty},
    }


def left_out_of_search(predictor: Predictor) -> list[str]:
    """What a recipe asks of a search that the loop in the folder does not do."""
    return [f"decode.{name}" for name in LEFT_OUT if getattr(predictor.recipe.decode, name)]


def _spelling(vocabulary: Any, folder: str = VOCABULARY) -> dict[str, Any]:
    """Ids are those of the file, counted from zero, plus `offset`; `before` is put before a text."""
    found: dict[str, Any] = {
        "file": f"{folder}/{vocabulary.FILE}",
        "offset": getattr(vocabulary, "offset", len(SPECIALS)),
        "before": " " if isinstance(vocabulary, Pieces | Characters) else "",
    }
    return found | ({"marks": vars(vocabulary.marks)} if isinstance(vocabulary, Lexicon) else {})
