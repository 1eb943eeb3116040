"""Regression by attention to the examples: numbers in, a number out, and which examples it was made of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from saccade.config import Recipe
from saccade.config.regression import KernelSettings, RegressSettings
from saccade.data.readers import hash_of
from saccade.data.tables import noisy_curve, read_table
from saccade.decode import Method
from saccade.errors import SaccadeError
from saccade.maps.record import record
from saccade.maps.render import AttentionMap, Tokens
from saccade.metrics import Score, bootstrap_interval
from saccade.metrics.score import exchanged
from saccade.models.kernel import KernelRegression
from saccade.tasks.answers import at_rest, refuse_target, wanted_answers
from saccade.tasks.base import Answer, Loss, Prediction, Scores, Term

FILE = "table.json"
HELD_OUT = 0.2
AT_ONCE = 1 << 22  # weights of inputs to examples that exist at a time
LARGEST_PROCESS = 5_000  # examples of a Gaussian process, whose time grows with the cube and memory with the square


@dataclass(frozen=True)
class PointBatch:
    """Which training examples are to be predicted from all others."""

    rows: Tensor  # (B,)
    numbers: tuple[int, ...]
    counts: dict[str, int]


class Regress:
    """See saccade.tasks.base.Task for what each method is for."""

    def __init__(self, recipe: Recipe):
        assert isinstance(recipe.task, RegressSettings)
        if not isinstance(recipe.model, KernelSettings):
            raise SaccadeError(f"model.kind {recipe.model.kind!r} cannot regress; kernel can")
        self.recipe, self.settings, self.kernel = recipe, recipe.task, recipe.model
        self._center = self._spread = np.zeros(0)

    def fitted(self) -> tuple[Recipe, Sequence[str]]:
        train, valid = self.tables
        return self.recipe, [f"{len(train):,} examples of {train.shape[1] - 1} numbers, {len(valid):,} to validate on"]

    @cached_property
    def tables(self) -> tuple[np.ndarray, np.ndarray]:
        """Train and validation rows; which is which is decided by a hash of the row."""
        settings = self.settings
        rows = noisy_curve(settings.examples, noise=settings.noise, seed=settings.seed)
        if settings.data is not None:
            rows = read_table(settings.data)
        held = np.array([hash_of(" ".join(map(repr, row))) < HELD_OUT * (1 << 64) for row in rows.tolist()])
        where = settings.data or "task.examples"
        if held.sum() < 2 or (~held).sum() < 2:  # one alone does not vary, and errors are shares of the variation
            raise SaccadeError(f"{where}: {len(rows)} examples are too few to train and to validate on")
        for part, use in ((rows[~held], "train"), (rows[held], "validate")):
            if np.ptp(part[:, -1]) == 0:
                raise SaccadeError(
                    f"{where}: the last column, which is to be predicted, is {part[0, -1]:g} in all of the "
                    f"{len(part):,} examples to {use} on"
                )
        return rows[~held], rows[held]

    def prepare(self, directory: Path) -> None:
        train, _ = self.tables
        self._center, self._spread = train.mean(0), np.where(train.std(0) > 0, train.std(0), 1.0)
        content = {"center": self._center.tolist(), "spread": self._spread.tolist(), "examples": len(train)}
        (directory / FILE).write_text(json.dumps(content) + "\n", encoding="utf-8")

    def load(self, directory: Path) -> None:
        try:
            content = json.loads((directory / FILE).read_text(encoding="utf-8"))
            self._center, self._spread = np.array(content["center"]), np.array(content["spread"])
            self._examples = int(content["examples"])
        except (OSError, ValueError, KeyError) as error:
            raise SaccadeError(f"{directory / FILE}: cannot read the scales of the table: {error}") from error

    def examples(self, split: str) -> Sequence[int]:
        return range(len(self.tables[0 if split == "train" else 1]))

    def length(self, example: int) -> int:  # noqa: ARG002 - one is like another
        return 1

    def collate(self, examples: Sequence[int], numbers: Sequence[int]) -> PointBatch:
        return PointBatch(torch.tensor(list(examples)), tuple(numbers), {"loss": len(examples)})

    def model(self) -> KernelRegression:
        inputs = len(self._center) - 1
        if hasattr(self, "_examples"):  # a trained model brings its examples along
            return KernelRegression(self.kernel, torch.zeros(self._examples, inputs), torch.zeros(self._examples))
        points = self._scaled(self.tables[0])
        return KernelRegression(self.kernel, points[:, :-1].contiguous(), points[:, -1].contiguous())

    def loss(self, model: KernelRegression, batch: PointBatch) -> Loss:
        """Squared error of each example predicted from all the others (leave one out)."""
        answers = model(model.examples[batch.rows], without=batch.rows)
        return {"loss": Term(((answers - model.targets[batch.rows]) ** 2).sum())}

    def predict(
        self,
        model: KernelRegression,
        inputs: Sequence[str],
        method: Method | None = None,
    ) -> list[Prediction]:
        if wanted_answers(method) > 1:
            raise SaccadeError("a number is predicted, and there is no second best: ask for one answer")
        found = []
        for text in inputs:
            try:
                point = self._read(text)
            except SaccadeError as error:
                found.append(Prediction(text, refusal=str(error)))
                continue
            answer = float(self._answers(model, point[None])[0])
            found.append(Prediction(text, (Answer(f"{answer:.6g}", 0.0),)))
        return found

    def score(self, model: KernelRegression) -> Scores:
        """The share of the variance that is explained, 1 - error^2 / variance."""
        valid = self.tables[1]
        answers = self._answers(model, valid[:, :-1])
        error = float(((answers - valid[:, -1]) ** 2).mean())
        explained = 1 - error / float(valid[:, -1].var() or 1.0)
        samples = [(_shown(row[:-1]), f"{a:.4g}", f"{row[-1]:.4g}") for row, a in zip(valid, answers, strict=True)]
        return Scores("explained", {"explained": explained, "error": error**0.5, "width": model.width}, samples)

    def evaluate(self, model: KernelRegression, split: str) -> Sequence[Score]:
        """Root mean squared errors, in percent of the target's standard deviation."""
        if split != "valid":
            raise SaccadeError(f"a table has no part called {split}, only valid")
        train, valid = self.tables
        truth = valid[:, -1]

        def root(squares: np.ndarray) -> float:
            return 100 * float((squares.mean() / truth.var()) ** 0.5)

        def error(name: str, answers: np.ndarray) -> Score:
            squares = (answers - truth) ** 2
            return Score(name, root(squares), bootstrap_interval(squares, root), "percent of the target's deviation")

        answers = self._answers(model, valid[:, :-1])
        found = [error("error", answers)]
        if len(train) <= LARGEST_PROCESS:
            process = self.process(model, valid[:, :-1])
            found.append(error("error of a Gaussian process with the same kernel", process))
        return [
            *found,
            error("error of the mean (baseline)", np.full(len(truth), train[:, -1].mean())),
            error("error with inputs shuffled (control)", np.array(exchanged(answers.tolist()))),
        ]

    def look(
        self,
        model: KernelRegression,
        text: str,
        target: str | None = None,
        *,
        pieces: bool = False,  # noqa: ARG002
    ) -> list[AttentionMap]:
        """Which examples the answer was made of; several inputs between semicolons give several rows."""
        refuse_target(target)
        points = np.stack([self._read(part) for part in text.split(";")])
        with at_rest(model), record(model) as recording:
            model(self._scaled_inputs(points))
        rows = Tokens(tuple(_shown(point) for point in points))
        examples = (model.examples.numpy() * self._spread[:-1]) + self._center[:-1]
        order = np.lexsort(examples.T[::-1])
        weights = next(iter(recording)).weights[0][:, :, torch.from_numpy(order)]
        columns = Tokens(tuple(_shown(examples[place]) for place in order))
        return [AttentionMap("which examples the answer is made of", weights, rows, columns)]

    def process(self, model: KernelRegression, inputs: np.ndarray) -> np.ndarray:
        """The mean of a Gaussian process whose noise is the leave-one-out error of the kernel: see formulas.scores."""
        with at_rest(model):
            known, asked = model.embed(model.examples).double(), model.embed(self._scaled_inputs(inputs)).double()
            rows = torch.arange(len(model.targets))
            noise = float(((model(model.examples, without=rows) - model.targets) ** 2).mean())
            width = model.width

            def likeness(x: Tensor, y: Tensor) -> Tensor:
                return torch.exp(-(torch.cdist(x, y) ** 2) / (2 * width**2))

            inner = likeness(known, known) + noise * torch.eye(len(known), dtype=torch.double)
            weights = torch.linalg.solve(inner, model.targets.double())
            return (likeness(asked, known) @ weights).numpy() * self._spread[-1] + self._center[-1]

    def _answers(self, model: KernelRegression, inputs: np.ndarray) -> np.ndarray:
        parts = self._scaled_inputs(inputs).split(max(1, AT_ONCE // len(model.examples)))
        with at_rest(model):
            answers = torch.cat([model(part) for part in parts])
        return answers.double().numpy() * self._spread[-1] + self._center[-1]

    def _scaled(self, rows: np.ndarray) -> Tensor:
        return torch.from_numpy((rows - self._center) / self._spread).float()

    def _scaled_inputs(self, inputs: np.ndarray) -> Tensor:
        return torch.from_numpy((inputs - self._center[:-1]) / self._spread[:-1]).float()

    def _read(self, text: str) -> np.ndarray:
        wanted = len(self._center) - 1
        try:
            numbers = np.array([float(cell) for cell in text.replace(",", " ").split()])
        except ValueError:
            raise SaccadeError(f"{text!r} is not {wanted} numbers") from None
        if len(numbers) != wanted or not np.isfinite(numbers).all():
            raise SaccadeError(f"{text!r} is not {wanted} finite numbers")
        return numbers


def _shown(numbers: np.ndarray) -> str:
    return " ".join(f"{number:.3g}" for number in numbers)
