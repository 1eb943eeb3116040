"""Runs as folders of CTranslate2, which translates, generates and encodes without torch (Klein et al. 2020, OpenNMT).

We write the files ourselves. Where the library is installed it also has to say what our model says before the folder
gets its name.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saccade import api
from saccade.config import Recipe
from saccade.config.language import BERTSettings, GPTSettings
from saccade.config.models import TransformerSettings
from saccade.data.lexicon import Lexicon
from saccade.data.vocab import END, PAD, SPECIALS, START, Pieces
from saccade.errors import SaccadeError
from saccade.exchange.architecture import longest_text, require_plain
from saccade.exchange.ctranslate2_layout import ACTIVATIONS, GATED, LONGEST, encoded, encoder_of, variables
from saccade.exchange.folder import CONFIG, new_folder, write_json
from saccade.predictor import Predictor
from saccade.train.checkpoint import write_file
from saccade.train.run import Run

FILE, SHARED = "model.bin", "shared_vocabulary.json"
# task and model of a run -> name and revision of its layout
LAYOUTS = {
    ("translate", "transformer"): ("TransformerSpec", 7),
    ("language", "gpt"): ("TransformerDecoderSpec", 8),
    ("masked", "bert"): ("TransformerEncoderSpec", 1),
    ("classify", "bert"): ("TransformerEncoderSpec", 1),
}
ENCODER = "TransformerEncoderSpec"
TOLERANCE = 1e-4  # between log-probabilities or states of the library and ours, relative to the largest


def export_run(path: str | Path, folder: str | Path) -> list[str]:
    """Write a run as a folder that CTranslate2 reads; refused, with nothing left behind, where it says other things."""
    predictor, run = api.load(path), Run.open(path)
    recipe = predictor.recipe
    _require_expressible(recipe)
    vocabulary = Pieces.load(run.vocab) if recipe.task.kind == "translate" else Lexicon.load(run.vocab)
    tokens, marks = _tokens(vocabulary)
    with torch.no_grad():
        tensors = variables(predictor.model.eval(), recipe)
    layout, revision = LAYOUTS[recipe.task.kind, recipe.model.kind]
    with new_folder(Path(folder)) as temporary:
        write_file(temporary / FILE, encoded(tensors, layout, revision))
        write_json(temporary / CONFIG, _config(recipe, marks))
        name = SHARED if recipe.task.kind == "translate" else "vocabulary.json"
        write_file(temporary / name, [json.dumps(tokens, indent=0).encode()])
        shutil.copyfile(run.vocab / vocabulary.FILE, temporary / vocabulary.FILE)
        checked = _checked(predictor, temporary, tokens, marks)
    size = (Path(folder) / FILE).stat().st_size
    notes = ["the encoder alone: CTranslate2 has no place for what is made of its states"] if layout == ENCODER else []
    return [f"{layout}: {len(tensors)} tensors, {size / 1e6:.1f} MB", *notes, checked]


def _require_expressible(recipe: Recipe) -> None:
    """All settings that CTranslate2 has no place for, at once."""
    task, model = recipe.task.kind, recipe.model
    if (task, model.kind) not in LAYOUTS:
        known = ", ".join(f"{task} with {kind}" for task, kind in LAYOUTS)
        raise SaccadeError(f"CTranslate2 has no model {model.kind} for {task}; there is {known}")
    assert isinstance(model, TransformerSettings | GPTSettings | BERTSettings)
    combine, positions = getattr(model, "combine", "add"), getattr(model, "positions", "learned")
    wrong = {
        f"norm {model.norm}": model.norm not in ("layer", "rms"),
        f"positions {positions}": positions in ("relative", "distances"),
        f"combine {combine}": combine != "add",
        f"activation {model.activation}": model.activation not in ACTIVATIONS | GATED,
        "low_rank matrices beside its own": getattr(recipe.task, "low_rank", 0) > 0,
    }
    require_plain("CTranslate2", wrong)


def _tokens(vocabulary: Pieces | Lexicon) -> tuple[list[str], dict[str, str]]:
    """The spelling of every id, as the tokenizer's file has it, and of those that are no text."""
    if isinstance(vocabulary, Pieces):
        special, offset, ids = dict(enumerate(SPECIALS)), len(SPECIALS), {"pad": PAD, "start": START, "end": END}
        unknown = None
    else:
        marks, offset, unknown = vocabulary.marks, vocabulary.offset, vocabulary.unknown
        special = marks.names if offset else {}
        ids = {"pad": marks.pad, "start": marks.start, "end": marks.end}
    spelled = vocabulary.tokenizer.id_to_token
    tokens = [special.get(n) or spelled(n - offset) or f"<{n}>" for n in range(len(vocabulary))]
    if len(set(tokens)) < len(tokens):
        twice = next(token for n, token in enumerate(tokens) if token in tokens[:n])
        raise SaccadeError(f"two ids of the vocabulary are spelled {twice!r}, which CTranslate2 cannot tell apart")
    ids["unknown"] = ids["pad"] if unknown is None else unknown
    return tokens, {name: tokens[id_] for name, id_ in ids.items()}


def _config(recipe: Recipe, marks: Mapping[str, str]) -> dict[str, Any]:
    model = recipe.model
    assert isinstance(model, TransformerSettings | GPTSettings | BERTSettings)
    said: dict[str, Any] = {
        "bos_token": marks["start"],
        "eos_token": marks["end"],
        "unk_token": marks["unknown"],
        "layer_norm_epsilon": model.epsilon or (1e-6 if model.norm == "rms" else 1e-5),
    }
    if recipe.task.kind == "translate":
        return said | {"decoder_start_token": marks["start"], "add_source_bos": False, "add_source_eos": False}
    return said | {"multi_query_attention": getattr(model, "kv_heads", None) not in (None, model.heads)}


@torch.no_grad()
def _checked(predictor: Predictor, folder: Path, tokens: Sequence[str], marks: Mapping[str, str]) -> str:
    """Whether the library says of random texts what we do."""
    try:
        import ctranslate2
    except ImportError:
        return "not checked against CTranslate2 itself: the package ctranslate2 is not installed"
    try:
        if isinstance(predictor.recipe.model, BERTSettings):
            _require_same_states(predictor, folder)
        else:
            _require_same_texts(predictor, folder, tokens, marks)
    except RuntimeError as error:
        raise SaccadeError(f"the export is refused: CTranslate2 {ctranslate2.__version__}: {error}") from error
    return f"checked against CTranslate2 {ctranslate2.__version__}"


def check(predictor: Predictor, folder: Path) -> str:
    """Refuse a folder that says other things than the run; in words, what was asked."""
    run_vocabulary: Any = getattr(predictor.task, "pieces", None) or predictor.task.lexicon  # type: ignore[attr-defined]
    with torch.no_grad():
        return _checked(predictor, folder, *_tokens(run_vocabulary))


def pieces_apart(folder: Path, pieces: Pieces) -> int:
    """How many pieces of a folder that translates are others than those of a run."""
    return sum(one != other for one, other in zip_longest(_vocabulary(folder), _tokens(pieces)[0]))


def _vocabulary(folder: Path) -> list[str]:
    path = folder / SHARED
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SaccadeError(f"{path}: cannot read the vocabulary of a model that translates: {error}") from error
    if not isinstance(found, list):
        raise SaccadeError(f"{path}: must be a list of pieces; got {type(found).__name__}")
    return found


def translated(
    folder: Path, sources: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]
) -> tuple[list[list[int]], list[float]]:
    """What CTranslate2 writes, greedily, with as much room as the answers take, and how probable it finds the answers,
    their end included."""
    import ctranslate2

    tokens = _vocabulary(folder)
    ids = {token: number for number, token in enumerate(tokens)}
    given, expected = ([[tokens[id_] for id_ in text] for text in texts] for texts in (sources, answers))
    translator = ctranslate2.Translator(str(folder), **_place())
    never = [[tokens[PAD]], [tokens[START]]]
    longest = 2 * max(map(len, answers)) + 1
    found = translator.translate_batch(given, beam_size=1, max_decoding_length=longest, suppress_sequences=never)
    scores = [sum(each.log_probs) for each in translator.score_batch(given, expected)]
    return [[ids[word] for word in each.hypotheses[0]] for each in found], scores


def _place() -> dict[str, Any]:
    return {"device": "cpu", "compute_type": "float32", "intra_threads": torch.get_num_threads()}


def _require_same_states(predictor: Predictor, folder: Path) -> None:
    """Of texts of several lengths, padded, in two parts where the model tells them apart."""
    import ctranslate2

    encoder = encoder_of(predictor.model)
    longest = min(longest_text(predictor.recipe), 18)
    draw, lengths = torch.Generator().manual_seed(1), torch.tensor([longest, max(1, longest // 2), 1])
    mask = torch.arange(longest) < lengths[:, None]
    tokens = torch.randint(encoder.embedding.vocabulary, mask.shape, generator=draw)
    segments = torch.randint(encoder.segments.vocabulary, mask.shape, generator=draw)
    memory = encoder(tokens, mask, segments)
    texts, parts = ([row[real].tolist() for row, real in zip(each, mask, strict=True)] for each in (tokens, segments))
    found = ctranslate2.Encoder(str(folder), **_place()).forward_batch(texts, token_type_ids=parts)
    states = torch.from_numpy(np.array(found.last_hidden_state))
    _require_near("CTranslate2 has other states", memory.states[mask], states[mask])
    if memory.summary is not None:
        _require_near(
            "CTranslate2 sums texts up otherwise", memory.summary[:, 0], torch.from_numpy(np.array(found.pooler_output))
        )


def _require_same_texts(predictor: Predictor, folder: Path, tokens: Sequence[str], marks: Mapping[str, str]) -> None:
    """Random texts have the log-probabilities that we give them, and what is written is what we would: at every step
    the token that is most probable here, or one as probable."""
    import ctranslate2

    recipe, ids = predictor.recipe, {token: number for number, token in enumerate(tokens)}
    longest = max(1, min(longest_text(recipe), getattr(recipe.model, "longest", LONGEST), 18) // 2)
    draw, lengths = torch.Generator().manual_seed(1), (longest, max(1, longest // 2), 1)
    sources, targets = ([torch.randint(len(ids), (n,), generator=draw).tolist() for n in lengths] for _ in range(2))
    given, expected = ([[tokens[id_] for id_ in text] for text in texts] for texts in (sources, targets))
    never = [[token] for token in (marks["pad"], marks["start"]) if token != marks["end"]]
    how: dict[str, Any] = {"beam_size": 1, "suppress_sequences": never}
    if recipe.task.kind == "translate":
        translator = ctranslate2.Translator(str(folder), **_place())
        how |= {"max_decoding_length": longest, "min_decoding_length": 0}
        found = [each.hypotheses[0] for each in translator.translate_batch(given, **how)]
        scores = [each.log_probs for each in translator.score_batch(given, expected)]
        targets = [[*target, END] for target in targets]  # which is scored, too
    else:
        generator = ctranslate2.Generator(str(folder), **_place())
        how |= {"max_length": longest, "min_length": 0, "include_prompt_in_result": False}
        # one by one: of prompts of several lengths the results begin with what the longer ones have more
        found = [generator.generate_batch([prompt], **how)[0].sequences[0] for prompt in given]
        scored = generator.score_batch([start + rest for start, rest in zip(given, expected, strict=True)])
        scores = [each.log_probs[len(start) - 1 :] for each, start in zip(scored, given, strict=True)]
    for source, target, score, words in zip(sources, targets, scores, found, strict=True):
        ours = _log_probabilities(predictor, source, target)
        _require_near("CTranslate2 has other log-probabilities", _of(ours, target), torch.tensor(score))
        answer = [ids[word] for word in words] + [ids[marks["end"]]] * (len(words) < longest)
        ours = _log_probabilities(predictor, source, answer)
        ours[:, [ids[token] for (token,) in never]] = -torch.inf
        _require_near("CTranslate2 writes other tokens, less probable here", ours.amax(-1), _of(ours, answer))


def _log_probabilities(predictor: Predictor, source: list[int], target: list[int]) -> Tensor:
    """Of every token at each place of the target, given the source and what stands before it -> (T, V)."""
    model, before = predictor.model, target[:-1]
    if predictor.recipe.task.kind == "translate":
        states = model(torch.tensor([source]), None, torch.tensor([[START, *before]]))
    else:
        states = model(torch.tensor([[*source, *before]]))
    output: Any = model.output
    return output(states[0, -len(target) :]).log_softmax(-1)


def _of(log_p: Tensor, tokens: list[int]) -> Tensor:
    return log_p.gather(-1, torch.tensor(tokens)[:, None])[:, 0]  # (T, V) -> (T,)


def _require_near(what: str, ours: Tensor, theirs: Tensor) -> None:
    apart = float((ours - theirs).abs().max()) if ours.shape == theirs.shape else torch.inf
    if not apart <= TOLERANCE * max(1.0, float(ours.abs().max())):
        raise SaccadeError(f"the export is refused: {what}, by {apart:.1e}")
