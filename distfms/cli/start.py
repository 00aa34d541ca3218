"""Commands to begin with: a first spec, what can be set, what notes mean."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distfms.cli.terminal import say
from distfms.errors import SpecError, nearest

if TYPE_CHECKING:
    from distfms.runs.look import Look


def init(
    data: Annotated[
        str | None,
        typer.Argument(
            help="Folder, file, glob or URL of data to look at; book.xlsx#2024 is one sheet of "
            "a workbook."
        ),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Method; by default the likeliest for the data.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Column to predict.")] = None,
    costs: Annotated[
        str | None,
        typer.Option(
            help="Table of two columns: names of groups or attributes, and what they cost."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Spec file to write.")] = Path("job.yaml"),
) -> None:
    """Look at data and write a spec to start from.

    Also says which questions the data can answer.
    """
    from distfms.runs.starter import QUESTIONS, answerable, look_at_data, read_prices, write_starter

    if data is None and method is None:
        for name, question in QUESTIONS.items():
            say(f"{name:20} {question}")
        say("Name your data: distfms init DATA")
        return
    look = look_at_data(data, say)
    if target is not None:
        look = look.with_target(target)
    elif look.target is not None and sys.stdin.isatty() and sys.stdout.isatty():
        look = look.with_target(_asked_target(look))
    answers = answerable(look)
    if answers and data is not None:
        say("These data can answer:")
        for name, why in answers.items():
            say(f"  {name:20} {QUESTIONS[name]} ({why})")
    if look.target is not None and look.is_guessed and not look.long:
        names = ", ".join(column.name for column in look.targets[1:4])
        also = f" (also: {names})" if names else ""
        say(f"Guessed what to predict: {look.target.name}{also}. Name another with --target.")
    chosen = method or next(iter(answers), "sequence")
    prices = None if costs is None else read_prices(costs)
    write_starter(chosen, data, look, out, prices)
    say(f"Wrote {out} for `{chosen}`. Look through it, then run: distfms check {out}")


def _asked_target(look: Look) -> str:
    """Ask which column to predict."""
    from rich.prompt import Prompt

    names = list(look.columns)
    return Prompt.ask("Column to predict", choices=names, default=look.targets[0].name)


def options(
    section: Annotated[
        str | None, typer.Argument(help="Section, such as `multiselect` or `data.long`.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="List all keys, not only those that beginners set.")
    ] = False,
) -> None:
    """List the sections of the job spec, or the keys of one."""
    from distfms.runs.options_table import options_lines

    width = min(shutil.get_terminal_size().columns, 100)
    for line in options_lines(section, width, everything):
        say(line)


def topics() -> dict[str, Path]:
    """Return the pages of documentation by the folders that they explain."""
    package = Path(__file__).parents[1]
    pages = {page.parent.name: page for page in sorted(package.glob("**/README.md"))}
    return {"house": pages.pop(package.name), **pages}


def help_(
    topic: Annotated[
        str | None, typer.Argument(help="Topic, such as `sequence` or `data`; left out, all.")
    ] = None,
) -> None:
    """Show a page of the documentation, or list the topics."""
    from rich.console import Console
    from rich.markdown import Markdown

    pages = topics()
    if topic is None:
        for name, page in pages.items():
            title = page.read_text("utf-8").partition("\n")[0].lstrip("# ")
            say(f"{name:20} {title}")
        return
    name = topic.replace("-", "_")
    if name not in pages:
        hint = nearest(name, list(pages)) or " `distfms help` lists all."
        raise SpecError(f"There is no topic {topic!r}.{hint}")
    Console().print(Markdown(pages[name].read_text("utf-8")))


def explain(
    code: Annotated[
        str | None, typer.Argument(help="Code at the end of a note, such as N014.")
    ] = None,
) -> None:
    """Explain a note by its code, or list all notes."""
    from distfms.report.notes import table

    notes = table()
    if code is not None and code.upper() not in notes:
        raise SpecError(f"There is no note {code}. `distfms explain` lists all.")
    for key in notes if code is None else [code.upper()]:
        say(f"{key}: {notes[key]['means']}")
