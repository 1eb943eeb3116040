"""Answers from a folder of ONNX graphs, by greedy or beam search, with numpy and onnxruntime alone.

    encoder:  what is read -> memory, first states
    decoder:  tokens, memory, states -> logits of what follows, next states
    ranking in a beam = log p(y) / ((5 + length) / 6)^alpha                                           (Wu et al. 2016)

This file stands alone and lies in every exported folder of a model that writes: copy it, or read it as the definition
of what has to be done. saccade.json beside it says what the graphs take and give.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Answer:
    """What was written, without start and end, and what it was ranked by."""

    tokens: tuple[int, ...]
    score: float
    ended: bool  # by the end token, and not by its limit


@dataclass(frozen=True)
class Hypothesis:
    """An answer that goes on, in a row of the batch."""

    tokens: tuple[int, ...]
    score: float  # sum of log-probabilities
    row: int


class Writer:
    """A model that writes: after an encoder has read something, or going on from a prompt where there is none."""

    def __init__(self, folder: str | Path, *, providers: Sequence[str] = ("CPUExecutionProvider",)):
        self.folder = Path(folder)
        self.contract: dict[str, Any] = json.loads((self.folder / "saccade.json").read_text(encoding="utf-8"))
        self.graphs = self.contract["graphs"]
        self.sessions = {
            name: onnxruntime.InferenceSession(str(self.folder / graph["file"]), providers=list(providers))
            for name, graph in self.graphs.items()
        }

    def write(
        self,
        given: Sequence[Any],
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        limits: Sequence[int] | None = None,
    ) -> list[Answer]:
        """The best answer to each source (ids, frames or an image), or the best continuation of each prompt (ids).

        What is not said is as the recipe of the model says; `limits` are the most tokens that each answer may have.
        """
        search = self.contract["search"]
        width = search["beam"] if beam is None else beam
        alpha = search["length_penalty"] if length_penalty is None else length_penalty
        allowed = [self.limit(each) for each in given] if limits is None else list(limits)
        if "encoder" in self.sessions:
            memory, states = self.read(given)
            start = np.full((len(given), 1), self.contract["ids"]["start"])
            return self._search(start, memory, states, allowed, width, alpha)
        # prompts one by one: all rows of a call have the same number of tokens behind them
        prompts = [np.array([each], dtype=np.int64) for each in given]
        return [
            self._search(prompt, {}, self.states(1), [limit], width, alpha)[0]
            for prompt, limit in zip(prompts, allowed, strict=True)
        ]

    def limit(self, given: Any) -> int:
        """How many tokens an answer may have, as in the recipe."""
        limit = self.contract["limit"]
        found = max(1, int(limit["factor"] * math.ceil(len(given) / limit["stride"])) + limit["extra"])
        if limit["window"] is None:
            return found
        if not 0 < len(given) <= limit["window"]:
            raise ValueError(f"a prompt must have 1 to {limit['window']} tokens; got {len(given)}")
        return min(found, limit["window"] - len(given) + 1)  # the last token is written, and not read

    def read(self, sources: Sequence[Any]) -> tuple[Arrays, Arrays]:
        """Memory and first states, a row for each source."""
        inputs = {each["name"]: each["type"] for each in self.graphs["encoder"]["inputs"]}
        arrays = [np.asarray(source, dtype=inputs["source"]) for source in sources]
        if "mask" not in inputs:
            return self.encode({"source": np.stack(arrays)})
        multiple = self.graphs["encoder"]["multiple"]
        longest = -(-max(map(len, arrays)) // multiple) * multiple
        source = np.full((len(arrays), longest, *arrays[0].shape[1:]), self.contract["ids"]["pad"], arrays[0].dtype)
        mask = np.zeros((len(arrays), longest), dtype=bool)
        for row, array in enumerate(arrays):
            source[row, : len(array)], mask[row, : len(array)] = array, True
        return self.encode({"source": source, "mask": mask})

    def encode(self, inputs: Arrays) -> tuple[Arrays, Arrays]:
        """Memory and first states of a batch as the graph takes it."""
        names = self.graphs["encoder"]["outputs"]
        found = dict(zip(names, self.sessions["encoder"].run(names, inputs), strict=True))
        memory = {name: array for name, array in found.items() if name.startswith("memory.")}
        return memory, self.states(len(inputs["source"])) | {n: a for n, a in found.items() if n not in memory}

    def states(self, rows: int) -> Arrays:
        """States with nothing behind them: zeros, and caches without cells."""
        sizes = {"rows": rows, "past": 0}
        return {
            each["name"]: np.zeros([sizes.get(size, size) for size in each["shape"]], each["type"])
            for each in self.graphs["decoder"]["inputs"]
            if each["name"].startswith("state.")
        }

    def step(self, tokens: np.ndarray, memory: Mapping[str, np.ndarray], states: Arrays) -> tuple[np.ndarray, Arrays]:
        """Tokens (R, t) and what is behind them -> logits (R, V) of what follows the last, the next states."""
        names = self.graphs["decoder"]["outputs"]
        logits, *following = self.sessions["decoder"].run(names, {"tokens": tokens, **memory, **states})
        return logits, dict(zip(states, following, strict=True))

    def _search(
        self, tokens: np.ndarray, memory: Arrays, states: Arrays, limits: Sequence[int], width: int, alpha: float
    ) -> list[Answer]:
        """All sentences side by side: each has one hypothesis at first, and `width` later."""
        ids = self.contract["ids"]
        found: list[list[Answer]] = [[] for _ in limits]
        live = {sentence: [Hypothesis((), 0.0, sentence)] for sentence in range(len(limits))}
        while live:
            sentences = [sentence for sentence, group in live.items() for _ in group]
            behind = {name: array[sentences] for name, array in memory.items()}  # a row of memory for each hypothesis
            logits, states = self.step(tokens, behind, states)
            log_p = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)  # (R, V)
            log_p[:, ids["never"]] = -np.inf
            going = {
                sentence: _grown(group, log_p, found[sentence], limits[sentence], width, alpha, ids["end"])
                for sentence, group in live.items()
            }
            live = {sentence: group for sentence, group in going.items() if group}
            kept = [hypothesis for group in live.values() for hypothesis in group]
            states = {name: array[[hypothesis.row for hypothesis in kept]] for name, array in states.items()}
            tokens = np.array([[hypothesis.tokens[-1]] for hypothesis in kept], dtype=np.int64)
            rows = iter(range(len(kept)))
            live = {s: [Hypothesis(each.tokens, each.score, next(rows)) for each in group] for s, group in live.items()}
        return [max(answers, key=lambda each: (each.ended, each.score)) for answers in found]


def _grown(
    group: Sequence[Hypothesis],
    log_p: np.ndarray,
    found: list[Answer],
    limit: int,
    width: int,
    alpha: float,
    end: int,
) -> list[Hypothesis]:
    """The hypotheses of one sentence a token later; those that end are put among the `found`."""

    def rank(score: float, length: int) -> float:
        return score if width == 1 else score / ((5 + length) / 6) ** alpha

    total = np.array([each.score for each in group])[:, None] + log_p[[each.row for each in group]]  # (W, V)
    going: list[Hypothesis] = []
    # each hypothesis can end in one way only, so twice the width leaves enough that go on
    for place, choice in enumerate(_largest(total.ravel(), 1 if width == 1 else 2 * width)):
        parent, token = divmod(int(choice), total.shape[1])
        score, tokens = float(total[parent, token]), (*group[parent].tokens, int(token))
        if score == -np.inf:
            continue
        if token == end or len(tokens) >= limit:
            if place < width:
                ended = token == end
                found.append(Answer(tokens[:-1] if ended else tokens, rank(score, len(tokens)), ended))
        elif len(going) < width:
            going.append(Hypothesis(tokens, score, group[parent].row))
    best = max((each.score for each in found if each.ended), default=-np.inf)
    # log-probabilities only fall: what cannot overtake the best at its longest never will
    return going if any(rank(each.score, limit + 1) > best for each in going) else []


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """Where the largest values are, largest first."""
    chosen = np.argpartition(-values, min(count, len(values)) - 1)[:count]
    return chosen[np.argsort(-values[chosen], kind="stable")]
