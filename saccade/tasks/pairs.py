"""What all tasks from sequence to sequence share: batches of pairs, answers by search, and maps of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from saccade.config.training import DecodeSettings
from saccade.data.vocab import END, START, Vocabulary
from saccade.decode import Beam, Hypothesis, Including, Method, rerank_by_coverage
from saccade.errors import SaccadeError
from saccade.maps.record import attentions, record
from saccade.maps.render import AttentionMap, Axis, Groups, Tokens
from saccade.models.shapes import EncoderDecoder, Memory
from saccade.nn.positions import reach
from saccade.tasks.answers import Plan, at_rest, search_answers
from saccade.tasks.base import Prediction
from saccade.tasks.written import WrittenBatch, as_prediction, look_while_writing, padded, written_batch

Pair = tuple[list[int], list[int]]  # source and target ids, without start and end


def collate_pairs(pairs: Sequence[Pair], numbers: Sequence[int]) -> WrittenBatch:
    """Pad to the longest; an empty source has nothing to be attended and is refused."""
    for number, (ids, _) in zip(numbers, pairs, strict=True):
        if not ids:
            raise SaccadeError(f"example {number} has an empty source: there is nothing to read")
    source, source_mask = padded([ids for ids, _ in pairs])
    return written_batch(source, source_mask, [target for _, target in pairs], numbers)


def covering(
    model: EncoderDecoder, source: list[int], hypotheses: list[Hypothesis], strength: float
) -> list[Hypothesis]:
    """The hypotheses in the order of their coverage-penalised scores: each is replayed once, with the taps on."""
    if not strength or not attentions(model):
        return hypotheses
    weights = []
    for hypothesis in hypotheses:
        batch = collate_pairs([(source, list(hypothesis.tokens))], [0])
        with record(model) as recording:
            model(batch.source, batch.source_mask, batch.target[:, :-1])
        across = [seen.weights[0].mean(0) for seen in recording if seen.name.startswith("decoder") and not seen.causal]
        weights.append(torch.stack(across).mean(0))  # (T, S)
    return rerank_by_coverage(hypotheses, weights, strength)


def answer_pairs(
    model: EncoderDecoder,
    sources: Sequence[list[int]],
    settings: DecodeSettings,
    vocabulary: Vocabulary,
    method: Method | None = None,
) -> list[list[Hypothesis]]:
    """Search answers for each source, in tokens of `vocabulary`."""
    plan = Plan.of(settings, vocabulary, method)
    wanted = plan.method.best
    if settings.coverage_penalty:
        plan = replace(plan, method=_telling_all(plan.method))  # all that ended are looked at again

    def encode(numbers: Sequence[int]) -> Memory:
        return model.encode(*padded([sources[number] for number in numbers]))

    modules = model.named_modules() if isinstance(model, nn.Module) else ()  # an export has none to look at
    room = reach(module for name, module in modules if "decoder" in name.split(".")) - plan.extra
    limits = [int(settings.limit_factor * len(source)) + settings.limit_extra for source in sources]
    limits = [max(1, int(min(limit, room))) for limit in limits]
    with at_rest(model):
        found = search_answers(model, encode, limits, plan)
        return [
            covering(model, source, hypotheses, settings.coverage_penalty)[:wanted]
            for source, hypotheses in zip(sources, found, strict=True)
        ]


def _telling_all(method: Method) -> Method:
    """A beam that hands out all its hypotheses, not the best alone."""
    if isinstance(method, Including):
        return replace(method, beam=replace(method.beam, best=method.width))
    return replace(method, best=method.width) if isinstance(method, Beam) else method


def predict_pairs(
    model: EncoderDecoder,
    inputs: Sequence[str],
    vocabularies: tuple[Vocabulary, Vocabulary],
    settings: DecodeSettings,
    method: Method | None = None,
) -> list[Prediction]:
    """Answers as text; an input that cannot be read is refused, and the others are answered."""
    read = [_read(text, vocabularies[0]) for text in inputs]
    sources = [source for source in read if not isinstance(source, str)]
    found = iter(answer_pairs(model, sources, settings, vocabularies[1], method))
    return [
        Prediction(text, refusal=each) if isinstance(each, str) else as_prediction(text, next(found), vocabularies[1])
        for text, each in zip(inputs, read, strict=True)
    ]


def _read(text: str, vocabulary: Vocabulary) -> list[int] | str:
    """Its ids, or why there are none."""
    try:
        return vocabulary.encode(text) or f"the input {text!r} is empty: there is nothing to read"
    except SaccadeError as error:
        return str(error)


def look_at_pair(
    model: EncoderDecoder,
    source: list[int],
    target: list[int],
    vocabularies: tuple[Vocabulary, Vocabulary],
    *,
    pieces: bool = True,
) -> list[AttentionMap]:
    """Where every attention looked while the target was written. Unless `pieces` are wanted, axes are whole words."""
    read = Tokens(tuple(vocabularies[0].pieces(source)))
    maps = look_while_writing(model, collate_pairs([(source, target)], [0]), read, vocabularies[1])
    if pieces:
        return maps
    words: dict[Axis, Groups] = {read: vocabularies[0].words(source)}
    for ids in ([START, *target], [*target, END]):
        words[Tokens(tuple(vocabularies[1].pieces(ids)))] = vocabularies[1].words(ids)
    return [each.grouped(words[each.rows], words[each.columns]) for each in maps]
