"""Commands to begin with: a first spec, what can be set, what notes mean."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from distfms.cli.terminal import say
from distfms.errors import SpecError, nearest


def _named_methods(begun: str) -> list[str]:
    """Return methods for the completion of a word."""
    from distfms.methods import METHODS

    return [name for name in METHODS if name.startswith(begun)]


def init(
    method: Annotated[
        str | None,
        typer.Argument(
            help="Method; left out, the four questions are shown.", autocompletion=_named_methods
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Argument(help="Folder, file, glob or URL of data to look at.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Spec file to write.")] = Path("job.yaml"),
) -> None:
    """Write a commented job spec to start from, by what a sample of the data says."""
    from rich.prompt import Prompt

    from distfms.methods import METHODS
    from distfms.runs.starter import QUESTIONS, look_at_data, signs, write_starter

    if data is None and method is not None and method.replace("-", "_") not in METHODS:
        if not Path(method).exists() and not any(sign in method for sign in "/*"):
            write_starter(method, None, look_at_data(None), out)  # which says what there is
        method, data = None, method
    look = look_at_data(data)
    if method is None:
        found = signs(look)
        for name, question in QUESTIONS.items():
            say(f"{name:20} {question}{f' Here {found[name]}.' if found[name] else ''}")
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            say(f"Name one of them: distfms init METHOD {data or '[DATA]'}")
            return
        method = Prompt.ask("Method", choices=list(METHODS))
    write_starter(method, data, look, out)
    say(f"Wrote {out}. Look through it, then run: distfms check {out}")


def _named_sections(begun: str) -> list[str]:
    """Return sections for the completion of a word."""
    from distfms.runs.options_table import section_models

    return [name for name in section_models() if name.startswith(begun)]


def options(
    section: Annotated[
        str | None,
        typer.Argument(
            help="Section, such as `multiselect` or `data.long`.", autocompletion=_named_sections
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also list what beginners leave as it is.")
    ] = False,
) -> None:
    """List the sections of the job spec, or the keys of one."""
    from distfms.runs.options_table import options_lines

    width = min(shutil.get_terminal_size().columns, 100)
    for line in options_lines(section, width, everything):
        say(line)


def topics() -> dict[str, Path]:
    """Return the pages of documentation by the folders that they explain."""
    import distfms

    package = Path(distfms.__file__).parent
    pages = {"house": package / "README.md"}
    for page in sorted(package.glob("**/README.md")):
        if page.parent != package:
            pages[page.parent.name] = page
    return pages


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
    """Say what a note means, or what all notes mean."""
    from distfms.report.notes import table

    known = table()
    if code is not None and code.upper() not in known:
        raise SpecError(f"There is no note {code}. `distfms explain` lists all.")
    for one in known if code is None else [code.upper()]:
        say(f"{one}: {known[one]['means']}")
