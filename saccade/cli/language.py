"""Verbs for language models: generate, prompt, transformations, heads. torch is imported inside them only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saccade.cli import terminal
from saccade.cli.terminal import Precise, RunPath, Step, Threads
from saccade.cli.writing import lines_to
from saccade.errors import SaccadeError

app = typer.Typer()


@app.command()
def generate(
    run: RunPath,
    prompt: Annotated[
        list[str] | None, typer.Option(help="Text to go on from; - reads it from standard input. Repeatable.")
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="How many tokens at most.")] = 200,
    temperature: Annotated[float, typer.Option(help="Below 1 bolder, above 1 stranger; 0: the most probable.")] = 1.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="From the k most probable only.")] = None,
    top_p: Annotated[float | None, typer.Option(help="From the most probable that sum to p.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End before this text. Repeatable.")] = None,
    no_repeat: Annotated[int | None, typer.Option(min=1, help="No run of so many tokens twice.")] = None,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
    n: Annotated[int, typer.Option("--n", min=1, max=1000, help="Continuations of each prompt.")] = 1,
    beyond: Annotated[
        str, typer.Option(metavar="slide|stop", help="When the window of the model is full.", show_default=True)
    ] = "slide",
    stream: Annotated[bool, typer.Option("--stream", help="Show the text as it grows.")] = False,
    precision: Precise = "float32",
    threads: Threads = None,
    step: Step = None,
) -> None:
    """Continue a text with a language model: saccade generate RUN --prompt "To be, or"."""
    from saccade.decode import Greedy, Sample

    if "" in (stop or ()):
        raise SaccadeError("--stop is empty: every text would end at once")
    if beyond not in ("slide", "stop"):
        raise SaccadeError(f"--beyond is slide or stop; got {beyond!r}")
    prompts = ["\n".join(terminal.lines(Path("-"))) if text == "-" else text for text in prompt or [""]]
    if stream and (n > 1 or len(prompts) > 1):
        raise SaccadeError(f"--stream shows one text as it grows; there are {n * len(prompts)}")
    if temperature == 0 and n > 1:
        raise SaccadeError(f"there is one most probable text and not {n}: --n needs a --temperature above 0")
    drawn = Sample(answers=n, temperature=temperature or 1.0, top_k=top_k, top_p=top_p, seed=seed)
    predictor = terminal.loaded(run, step, threads, precision=precision)
    shown, screen = "", terminal.out.file

    def tell(text: str) -> None:
        nonlocal shown
        if text.startswith(shown):
            screen.write(text[len(shown) :])
            screen.flush()
            shown = text

    several = n * len(prompts) > 1
    with lines_to(None) as write:
        if stream:
            screen.write(prompts[0])
        found = predictor.generate(
            prompts,
            tokens=tokens,
            method=drawn if temperature else Greedy(scored=False),
            beyond=beyond,  # type: ignore[arg-type]
            stop=stop or (),
            no_repeat=no_repeat,
            tell=tell if stream else None,
        )
        if stream:
            tell(found[0].text)
            write("")
            return
        for prediction in found:
            for answer in prediction.answers:
                write(f"{prediction.input}{answer.text}" + ("\n---" if several else ""))


@app.command()
def prompt(
    run: RunPath,
    examples: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Pairs to learn from: input and output between tabs.")
    ] = None,
    inputs: Annotated[list[str] | None, typer.Option("--input", help="What to answer. Repeatable.")] = None,
    test: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Pairs to be scored on; with a first column, groups with a rule each."),
    ] = None,
    shots: Annotated[
        str | None,
        typer.Option(help="With --test: numbers of examples, as in 0,1,4.", show_default="0,1,2,4,8 if there are"),
    ] = None,
    template: Annotated[
        str | None, typer.Option(help=r"How a pair is written, with {input}, {output} and \n.", show_default=False)
    ] = None,
    tokens: Annotated[int, typer.Option(min=1, help="Of an answer at most.")] = 60,
    show: Annotated[bool, typer.Option(help="Show the prompt before each answer.")] = True,
    threads: Threads = None,
    step: Step = None,
) -> None:
    """Programming by prompt: examples in, the same done to an input. With --test, accuracy by number of examples."""
    from saccade import prompting

    form = prompting.Template((template or prompting.TEMPLATE).replace("\\n", "\n"))
    given = [pair for pairs in prompting.read_groups(str(examples)).values() for pair in pairs] if examples else []
    if (test is None) == (not inputs):
        raise SaccadeError("say what to answer: --input TEXT, or --test FILE to be scored")
    if test is None and shots is not None:
        raise SaccadeError("--shots are numbers of examples to be scored with: they go with a --test FILE")
    predictor = terminal.loaded(run, step, threads)
    if test is None:
        asked = [form.prompt(given, text) for text in inputs or ()]
        for text, found in zip(asked, prompting.answer(predictor, asked, form, tokens=tokens), strict=True):
            terminal.out.file.write(f"{text if show else ''}{found}\n" + ("---\n" if show and len(asked) > 1 else ""))
        return
    try:
        counts = None if shots is None else [int(part) for part in shots.split(",")]
    except ValueError:
        raise SaccadeError(f"--shots are numbers with commas between; got {shots!r}") from None
    groups = prompting.read_groups(str(test))
    if show:
        pairs = next(iter(groups.values()))
        terminal.note(form.prompt(given or pairs[:1], pairs[-1][0]))
    for each in prompting.shots(predictor, groups, counts, form, examples=given, tokens=tokens):
        control = "" if each.shuffled is None else f"   answers shuffled {each.shuffled.shown} {each.shuffled.ends}"
        terminal.say(f"{each.examples:3d} examples   right {each.right.shown} {each.right.ends}{control}")


@app.command()
def transformations(
    out_: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where train.txt, seen.tsv and held_out.tsv go.")],
    texts: Annotated[int, typer.Option(min=1, help="Texts to train on.")] = 40_000,
    seed: Annotated[int, typer.Option(min=0, help="Of the words.")] = 1,
) -> None:
    """Write texts from which a small model learns to understand rules by their examples; some rules are held out."""
    from saccade.data.transformations import write_transformations

    for path in write_transformations(out_, texts=texts, seed=seed):
        terminal.say(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


@app.command()
def heads(
    run: RunPath,
    examples: Annotated[int, typer.Option(min=1, help="Of the validation part.")] = 256,
    out_: terminal.Plot = None,
    threads: Threads = None,
    step: Step = None,
) -> None:
    """Do we really need all heads? Remove each in turn and measure the loss again, with 95% intervals."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.table import Table

    from saccade.heads import Heads, remove_each

    terminal.require_writable(out_)
    predictor = terminal.loaded(run, step, threads)
    found: Heads | None = None
    columns = (TextColumn("removing heads"), MofNCompleteColumn(), BarColumn(16))
    with Progress(*columns, console=terminal.err, transient=True, disable=not terminal.err.is_terminal) as progress:
        bar = progress.add_task("", total=None)
        for found in remove_each(predictor, examples=examples):
            progress.update(bar, completed=len(found.removals))
    assert found is not None
    table = Table("attention", "head", "change of loss", "95% interval", "", box=None, pad_edge=False)
    for each in found.removals:
        ends = f"[{each.interval[0]:+.4f}, {each.interval[1]:+.4f}]"
        name = "" if each.head else each.name
        table.add_row(name, str(each.head + 1), f"{each.change:+.4f}", ends, "missed" if each.needed else "")
    terminal.out.print(table)
    total = len(found.removals)
    terminal.say(f"loss {found.loss:.4f} on {found.examples} examples; {found.needed} of {total} heads are missed")
    if out_ is not None:
        from saccade.bench.heads import draw_heads

        draw_heads(found, out_)
        terminal.say(str(out_))
