"""Runs as folders of CTranslate2, which translates and generates without torch (Klein et al. 2020, OpenNMT).

    model.bin = version, name and revision of the layout, then each tensor with its name, shape and type, then aliases

We write the files ourselves. Where the library is installed it also has to say what our model says before the folder
gets its name.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saccade import api
from saccade.config import Recipe
from saccade.config.language import GPTSettings
from saccade.config.models import TransformerSettings
from saccade.data.lexicon import Lexicon
from saccade.data.vocab import END, PAD, SPECIALS, START, Pieces
from saccade.errors import SaccadeError
from saccade.exchange.architecture import longest_text, require_plain
from saccade.exchange.folder import CONFIG, new_folder, write_json
from saccade.models.transformer import TransformerDecoder, TransformerEncoder
from saccade.nn.attention import Attention
from saccade.nn.positions import Learned, Rotary
from saccade.nn.stack import Block
from saccade.predictor import Predictor
from saccade.train.checkpoint import write_file
from saccade.train.run import Run

Variables = dict[str, Tensor]

FILE, VERSION = "model.bin", 6
LAYOUTS = {"translate": ("TransformerSpec", 7), "language": ("TransformerDecoderSpec", 8)}  # name, revision
VOCABULARIES = {"translate": "shared_vocabulary.json", "language": "vocabulary.json"}
FITTING = {"translate": "transformer", "language": "gpt"}  # task -> the model of ours that has a layout
TYPES = {torch.float32: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3}
ACTIVATIONS = {"relu": 0, "gelu_tanh": 1, "silu": 2, "gelu": 3, "tanh": 5, "sigmoid": 6}
GATED = {"reglu": 0, "swiglu": 2, "geglu": 3, "glu": 6}
LONGEST = 1024  # positions of a table that we could go on with for ever; the library cuts inputs there anyway
TOLERANCE = 1e-4  # between log-probabilities of the library and ours, relative to the largest


def export_run(path: str | Path, folder: str | Path) -> list[str]:
    """Write a run as a folder that CTranslate2 reads; refused, with nothing left behind, where it says other things."""
    predictor, run = api.load(path), Run.open(path)
    recipe = predictor.recipe
    _require_expressible(recipe)
    vocabulary = Pieces.load(run.vocab) if recipe.task.kind == "translate" else Lexicon.load(run.vocab)
    tokens, marks = _tokens(vocabulary)
    with torch.no_grad():
        variables = _variables(predictor.model.eval(), recipe)
    with new_folder(Path(folder)) as temporary:
        write_file(temporary / FILE, _encoded(variables, *LAYOUTS[recipe.task.kind]))
        write_json(temporary / CONFIG, _config(recipe, marks))
        write_file(temporary / VOCABULARIES[recipe.task.kind], [json.dumps(tokens, indent=0).encode()])
        shutil.copyfile(run.vocab / vocabulary.FILE, temporary / vocabulary.FILE)
        checked = _checked(predictor, temporary, tokens, marks)
    size = (Path(folder) / FILE).stat().st_size
    return [f"{LAYOUTS[recipe.task.kind][0]}: {len(variables)} tensors, {size / 1e6:.1f} MB", checked]


def _require_expressible(recipe: Recipe) -> None:
    """All settings that CTranslate2 has no place for, at once."""
    task, model = recipe.task.kind, recipe.model
    if FITTING.get(task) != model.kind:
        known = ", ".join(f"{task} with {kind}" for task, kind in FITTING.items())
        raise SaccadeError(f"CTranslate2 has no model {model.kind} for {task}; there is {known}")
    assert isinstance(model, TransformerSettings | GPTSettings)
    combine = getattr(model, "combine", "add")
    wrong = {
        f"norm {model.norm}": model.norm not in ("layer", "rms"),
        f"positions {model.positions}": model.positions in ("relative", "distances"),
        f"combine {combine}": combine != "add",
        f"activation {model.activation}": model.activation not in ACTIVATIONS | GATED,
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
    assert isinstance(model, TransformerSettings | GPTSettings)
    said: dict[str, Any] = {
        "bos_token": marks["start"],
        "eos_token": marks["end"],
        "unk_token": marks["unknown"],
        "layer_norm_epsilon": model.epsilon or (1e-6 if model.norm == "rms" else 1e-5),
    }
    if recipe.task.kind == "translate":
        return said | {"decoder_start_token": marks["start"], "add_source_bos": False, "add_source_eos": False}
    return said | {"multi_query_attention": model.kv_heads not in (None, model.heads)}


def _variables(model: Any, recipe: Recipe) -> Variables:
    """All tensors and settings under the names of the layout."""
    decoder, longest = model.decoder, max(LONGEST, longest_text(recipe))
    projection = {"weight": model.output.weight} | ({} if model.output.bias is None else {"bias": model.output.bias})
    found = {
        **_under("decoder", _side(decoder, recipe, longest)),
        **_under("decoder/embeddings", {"weight": decoder.embedding.weight}),
        **_under("decoder/projection", projection),
        "decoder/alignment_layer": torch.tensor(-1, dtype=torch.int16),
        "decoder/alignment_heads": torch.tensor(0, dtype=torch.int16),  # the mean of all heads
        "decoder/start_from_zero_embedding": _truth(False),
    }
    if recipe.task.kind == "translate":
        found |= _under("encoder", _side(model.encoder, recipe, longest))
        found |= _under("encoder/embeddings_0", {"weight": model.encoder.embedding.weight})
    return {name: each.detach().float() if each.is_floating_point() else each for name, each in sorted(found.items())}


def _side(side: TransformerEncoder | TransformerDecoder, recipe: Recipe, longest: int) -> Variables:
    """Positions, blocks and last norm of an encoder or decoder, and what they have in common."""
    model, embedding, stack = recipe.model, side.embedding, side.stack
    assert isinstance(model, TransformerSettings | GPTSettings)
    found = {
        "num_heads": torch.tensor(model.heads, dtype=torch.int16),
        "pre_norm": _truth(stack.norm is not None),
        "activation": torch.tensor((ACTIVATIONS | GATED)[model.activation], dtype=torch.int8),
        "scale_embeddings": _truth(embedding.scaled),
    }
    if model.positions != "rotary":
        # without a table the library would add sines of its own, which are others
        places = embedding.positions
        count = places.longest if isinstance(places, Learned) else longest
        at = torch.arange(count)
        table = embedding.weight.new_zeros(count, model.width) if places is None else places(at, count)
        found["position_encodings/encodings"] = table
    if stack.norm is not None:
        found |= _under("layer_norm", _norm(stack.norm))
    for number, block in enumerate(stack.blocks):
        found |= _under(f"layer_{number}", _block(block))
    return found


def _block(block: Block) -> Variables:
    attention, feed_forward = block.attention, block.feed_forward
    found = {
        **_under("self_attention", _attention(attention)),
        **_under("self_attention/layer_norm", _norm(block.around_attention.norm)),
        **_under("self_attention/linear_0", _linear(attention.query, attention.key, attention.value)),
        **_under("self_attention/linear_1", _linear(attention.output)),
        **_under("ffn/layer_norm", _norm(block.around_feed_forward.norm)),
        **_under("ffn/linear_0", _linear(feed_forward.gate or feed_forward.expand)),
        **_under("ffn/linear_1", _linear(feed_forward.contract)),
    }
    if feed_forward.gate is not None:
        found |= _under("ffn/linear_0_noact", _linear(feed_forward.expand))
    if (cross := block.cross) is not None and block.around_cross is not None:
        found |= _under("attention/layer_norm", _norm(block.around_cross.norm))
        found |= _under("attention/linear_0", _linear(cross.query))
        found |= _under("attention/linear_1", _linear(cross.key, cross.value))
        found |= _under("attention/linear_2", _linear(cross.output))
    return found


def _attention(attention: Attention) -> Variables:
    """Settings that an attention has of its own."""
    found: Variables = {}
    if attention.kv_heads != attention.heads:
        found["num_heads_kv"] = torch.tensor(attention.kv_heads, dtype=torch.int32)
    if isinstance(attention.positions, Rotary):
        found["rotary_dim"] = torch.tensor(0, dtype=torch.int32)  # all columns
        found["rotary_interleave"] = _truth(attention.positions.layout == "interleaved")
        found["rotary_base"] = torch.tensor(10_000.0)
    return found


def _linear(*maps: nn.Module) -> Variables:
    """One linear map, or several as one."""
    return {part: torch.cat([getattr(each, part) for each in maps]) for part in ("weight", "bias")}


def _norm(norm: nn.Module) -> Variables:
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    found: Variables = {"gamma": norm.weight}
    return found | {"beta": norm.bias} if isinstance(norm, nn.LayerNorm) else found


def _truth(value: bool) -> Tensor:
    return torch.tensor(value, dtype=torch.int8)


def _under(scope: str, variables: Variables) -> Variables:
    return {f"{scope}/{name}": each for name, each in variables.items()}


def _encoded(variables: Variables, layout: str, revision: int) -> Iterator[bytes | memoryview]:
    """model.bin piece by piece; a table that is there already is written as an alias."""
    aliases: dict[str, str] = {}
    tables: Variables = {}
    for name, each in variables.items():
        if each.dim() == 2:
            same = (other for other, table in tables.items() if torch.equal(table, each))
            first = next(same, None)
            if first is None:
                tables[name] = each
            else:
                aliases[name] = first
    yield struct.pack("<I", VERSION) + _string(layout) + struct.pack("<II", revision, len(variables) - len(aliases))
    for name, each in variables.items():
        if name not in aliases:
            size = each.numel() * each.element_size()
            shape = struct.pack(f"<B{each.dim()}I", each.dim(), *each.shape)
            yield _string(name) + shape + struct.pack("<BI", TYPES[each.dtype], size)
            yield each.contiguous().reshape(-1).view(torch.uint8).numpy().data
    yield struct.pack("<I", len(aliases)) + b"".join(map(_string, (part for pair in aliases.items() for part in pair)))


def _string(text: str) -> bytes:
    return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"


@torch.no_grad()
def _checked(predictor: Predictor, folder: Path, tokens: Sequence[str], marks: Mapping[str, str]) -> str:
    """Whether the library gives random texts the log-probabilities that we give them, and writes what we would: at
    every step the token that is most probable here, or one as probable."""
    try:
        import ctranslate2
    except ImportError:
        return "not checked against CTranslate2 itself: the package ctranslate2 is not installed"
    recipe, ids = predictor.recipe, {token: number for number, token in enumerate(tokens)}
    longest = max(1, min(longest_text(recipe), getattr(recipe.model, "longest", LONGEST), 18) // 2)
    draw, lengths = torch.Generator().manual_seed(1), (longest, max(1, longest // 2), 1)
    sources, targets = ([torch.randint(len(ids), (n,), generator=draw).tolist() for n in lengths] for _ in range(2))
    given, expected = ([[tokens[id_] for id_ in text] for text in texts] for texts in (sources, targets))
    never = [[token] for token in (marks["pad"], marks["start"]) if token != marks["end"]]
    how: dict[str, Any] = {"beam_size": 1, "suppress_sequences": never}
    place: dict[str, Any] = {"device": "cpu", "compute_type": "float32", "intra_threads": torch.get_num_threads()}
    try:
        if recipe.task.kind == "translate":
            translator = ctranslate2.Translator(str(folder), **place)
            how |= {"max_decoding_length": longest, "min_decoding_length": 0}
            found = [each.hypotheses[0] for each in translator.translate_batch(given, **how)]
            scores = [each.log_probs for each in translator.score_batch(given, expected)]
            targets = [[*target, END] for target in targets]  # which is scored, too
        else:
            generator = ctranslate2.Generator(str(folder), **place)
            how |= {"max_length": longest, "min_length": 0, "include_prompt_in_result": False}
            # one by one: of prompts of several lengths the results begin with what the longer ones have more
            found = [generator.generate_batch([prompt], **how)[0].sequences[0] for prompt in given]
            scored = generator.score_batch([start + rest for start, rest in zip(given, expected, strict=True)])
            scores = [each.log_probs[len(start) - 1 :] for each, start in zip(scored, given, strict=True)]
    except RuntimeError as error:
        raise SaccadeError(f"the export is refused: CTranslate2 {ctranslate2.__version__}: {error}") from error
    for source, target, score, words in zip(sources, targets, scores, found, strict=True):
        ours = _log_probabilities(predictor, source, target)
        _require_near("CTranslate2 has other log-probabilities", _of(ours, target), torch.tensor(score))
        answer = [ids[word] for word in words] + [ids[marks["end"]]] * (len(words) < longest)
        ours = _log_probabilities(predictor, source, answer)
        ours[:, [ids[token] for (token,) in never]] = -torch.inf
        _require_near("CTranslate2 writes other tokens, less probable here", ours.amax(-1), _of(ours, answer))
    return f"checked against CTranslate2 {ctranslate2.__version__}"


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
