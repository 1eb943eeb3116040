"""Trainings as a person sees them: a live line in a terminal, plain lines elsewhere, and the demonstration."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from saccade import api, ladder
from saccade.errors import RunWarning
from saccade.maps.render import save_maps, to_text
from saccade.train.progress import Evaluated, Event, Skipped, Split, Stopped
from saccade.train.progress import Progress as Advance
from saccade.train.signals import StopRequest, watch_for_stop

DEMO = {
    "reverse-rnn": "recurrent, one vector between encoder and decoder",
    "reverse-attention": "recurrent, looks back at each step (Bahdanau)",
    "reverse": "Transformer",
}
DEMO_INPUT = "s a c c a d e"
DEMO_SENTENCE = "Jane visite l'Afrique en septembre."
CROWDED = 0.4  # load of a processor from which on threads wait for each other more than they help


def follow(training: api.Training, console: Console) -> int:
    """Show a training until it ends; returns the exit code: 0, or the signal's that stopped it."""
    run, trainer = training.run.path, training.trainer
    kinds = f"{training.recipe.task.kind} with {training.recipe.model.kind}"
    with _stoppable(console) as stop:
        count, trained = training.parameters, training.trained_parameters
        counted = f"{count:,} parameters" + (f", {trained:,} of them trained" if trained < count else "")
        console.print(f"{kinds}, {counted}, into {run}", markup=False, soft_wrap=True)
        for reason in (*training.reasons, *_crowded(torch.get_num_threads())):
            console.print(f"  {reason}", markup=False, soft_wrap=True)
        begun = trainer.step
        if begun:
            console.print(f"going on after step {trainer.step}", markup=False)
        with (
            _lines(console, trainer.step, training.recipe.train.steps) as tell,
            closing(training.events(stop)) as events,
        ):
            for event in events:
                tell(event)
                if isinstance(event, Stopped):
                    last = event
    if last.reason == "signal":
        advice = f"stopped after step {last.step}, saved; go on with: saccade train --resume {run}"
        console.print(advice, markup=False, soft_wrap=True)
        if stop.signal == signal.SIGPIPE:  # on the other side somebody may still be listening
            warnings.warn(f"nobody reads the output any more: {advice}", RunWarning, stacklevel=2)
        return stop.exit_code
    best = "" if last.best_score is None else f"; best {last.best_score:.4f} at step {last.best_step}"
    console.print(f"done after step {last.step}{best}; weights in {run}/final", markup=False, soft_wrap=True)
    if last.step == begun:
        reached = f"train.{last.reason}={getattr(training.recipe.train, last.reason)} was reached before"
        more = f"saccade train --resume {run} --override --set train.{last.reason}=MORE"
        console.print(f"nothing was left to do: {reached}; to go on: {more}", markup=False, soft_wrap=True)
    return 0


def _crowded(threads: int) -> list[str]:
    """What to do about other work, where there is some: threads meet hundreds of times in an update, and if one has no
    processor, all wait."""
    load, processors = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0, os.cpu_count() or 1
    if threads == 1 or load < CROWDED * processors:
        return []
    return [
        f"the load is {load:.1f} on {processors} processors: if other work goes on, fewer threads than {threads} are "
        "faster: --set train.threads=1"
    ]


def demo(directory: Path | None, console: Console) -> int:
    """Translate the course's sentence with the model that ships and show what it looked at; then train the three models
    of the course on reverse, and show accuracy and attention of each; returns the exit code."""
    directory = directory or next(path for number in count(1) if not (path := Path("runs") / f"demo-{number}").exists())
    console.rule("French to English, with the model that ships", align="left", style="dim")
    translator = api.load(api.SHIPPED)
    console.print(f"{DEMO_SENTENCE}  ->  {translator.translate(DEMO_SENTENCE)}", markup=False, soft_wrap=True)
    seen = translator.look(DEMO_SENTENCE)
    console.print(to_text(seen[0], width=console.width), markup=False, soft_wrap=True)
    save_maps(seen[:1], directory / "translation.png")
    save_maps(seen, directory / "translation.html")
    table = Table("model", "parameters", "right from first to last", "seconds", box=None, pad_edge=False)
    pictures = [directory / "translation.png", directory / "translation.html"]
    for recipe, description in DEMO.items():
        console.rule(f"{recipe}: {description}", align="left", style="dim")
        begun = time.monotonic()
        training = api.begin(recipe, out=directory / recipe)
        if code := follow(training, console):
            return code
        seconds = time.monotonic() - begun
        model = api.load(directory / recipe)
        answer = model.predict([DEMO_INPUT])[0].text
        console.print(f"{DEMO_INPUT}  ->  {answer}", markup=False)
        if maps := model.look(DEMO_INPUT):
            console.print(to_text(maps[0], width=console.width), markup=False, soft_wrap=True)
            save_maps(maps, directory / f"{recipe}.png")
            pictures.append(directory / f"{recipe}.png")
        else:
            console.print("nothing to look at: all it knows of the source is one vector", markup=False)
        table.add_row(description, f"{training.parameters:,}", f"{model.score().values['exact']:.1%}", f"{seconds:.0f}")
    console.rule(style="dim")
    console.print(table)
    console.print("attention maps: " + ", ".join(map(str, pictures)), markup=False, soft_wrap=True)
    return 0


def climb(directory: Path, settings: Sequence[str], minutes: float, console: Console) -> int:
    """Show the rungs as they are trained, then the table, and save the plot; returns the exit code."""

    def tell(name: str, event: Event) -> None:
        if isinstance(event, Evaluated):
            console.print(f"{name}: {_evaluated(event)}", markup=False, soft_wrap=True)

    with _stoppable(console) as stop:
        rungs = ladder.climb(directory, settings, minutes=minutes, tell=tell, stop=stop)
    if stop:
        console.print(
            f"stopped; what was trained is in {directory}, and the same command goes on", markup=False, soft_wrap=True
        )
        return stop.exit_code
    table = Table("model", "parameters", "updates", "BLEU", "chrF", "p", box=None, pad_edge=False)
    for rung in rungs:
        p_value = "" if rung.p_value is None else f"{rung.p_value:.3f}"
        table.add_row(
            rung.name,
            f"{rung.parameters:,}",
            f"{rung.updates:,}",
            f"{rung.bleu.shown} {rung.bleu.ends}",
            rung.chrf.shown,
            p_value,
        )
    console.print(table)
    console.print(f"{minutes / len(rungs):g} minutes each; p: of the difference to the row above", markup=False)
    console.print(rungs[0].bleu.signature, markup=False, soft_wrap=True)
    ladder.plot(rungs).savefig(directory / "ladder.png", dpi=110)
    console.print(f"scores against minutes and length: {directory / 'ladder.png'}", markup=False, soft_wrap=True)
    return 0


@contextmanager
def _stoppable(console: Console) -> Iterator[StopRequest]:
    """Asked to stop by a signal, or by a reader who has gone (`| head`): in both cases the end is a saved run."""
    with watch_for_stop() as stop:

        def unread() -> None:
            console.quiet = True
            stop.signal = stop.signal or signal.SIGPIPE
            with suppress(OSError), Path(os.devnull).open("wb") as nowhere:  # what is left to be flushed goes there
                os.dup2(nowhere.fileno(), console.file.fileno())

        before = console.on_broken_pipe
        console.on_broken_pipe = unread  # type: ignore[method-assign]
        try:
            yield stop
        finally:
            console.on_broken_pipe = before  # type: ignore[method-assign]


@contextmanager
def _lines(console: Console, step: int, steps: int) -> Iterator[Callable[[Event], None]]:
    if not console.is_terminal or console.is_dumb_terminal or console.no_color:
        yield lambda event: _plain(console, event)
        return
    columns = (MofNCompleteColumn(), BarColumn(16), TextColumn("{task.fields[text]}"))
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=steps, completed=step, text="")

        def tell(event: Event) -> None:
            if isinstance(event, Advance):
                progress.update(bar, completed=event.step, text=_advance(event))
            elif text := _told(event):
                progress.console.print(text, markup=False)

        yield tell


def _plain(console: Console, event: Event) -> None:
    if isinstance(event, Advance):
        console.print(f"step {event.step}/{event.steps}  {_advance(event)}", markup=False, soft_wrap=True)
    elif text := _told(event):
        console.print(text, markup=False, soft_wrap=True)


def _told(event: Event) -> str | None:
    """What is said once and stays on the screen."""
    if isinstance(event, Evaluated):
        return _evaluated(event)
    if isinstance(event, Skipped):
        return f"step {event.step}  skipped, {event.in_a_row} in a row: {event.problem}"
    if isinstance(event, Split):
        return f"step {event.step}  out of memory: from here on every batch is cut into {event.parts} parts"
    return None


def _advance(event: Advance) -> str:
    hours, rest = divmod(round(event.seconds_left), 3600)
    left = (f"{hours:02}:" if hours else "") + f"{rest // 60:02}:{rest % 60:02}"
    means = "  ".join(f"{name} {mean:.4f}" for name, mean in list(event.means.items())[:1])
    return f"{means}  {event.tokens_per_second:,.0f} tok/s  rate {event.rate:.1e}  left {left}"


def _evaluated(event: Evaluated) -> str:
    values = "  ".join(f"{name} {value:.4f}" for name, value in event.scores.values.items())
    return f"step {event.step}  validation: {values}{'  (best so far)' if event.best else ''}"
