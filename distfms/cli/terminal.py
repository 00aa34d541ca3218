"""What all commands share: printing, and options of the same meaning."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from distfms.errors import printable

Storage = Annotated[
    list[str] | None,
    typer.Option(
        "--storage",
        metavar="KEY=VALUE",
        help="Option of the storage, such as `endpoint_url=http://host:9000` or `secret=${NAME}`.",
    ),
]
Registry = Annotated[
    str | None,
    typer.Option(
        envvar="DISTFMS_REGISTRY",
        help="Folder or URL of the registry; by default the spec's, or runs/registry.",
    ),
]
Stop = Annotated[
    str,
    typer.Option(
        help="prefix: all rows use the same groups; rows: each row stops when it is sure."
    ),
]
MeanBudget = Annotated[
    float | None, typer.Option(help="With --stop rows: largest mean cost of a row.")
]
Confidence = Annotated[
    float | None, typer.Option(help="With --stop rows: stop when a class has this probability.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def say(line: str) -> None:
    """Print a line at once."""
    print(printable(line), flush=True)


def complain(line: str) -> None:
    """Print a line on standard error."""
    print(printable(line), file=sys.stderr, flush=True)


def storage_options(assignments: list[str] | None) -> dict[str, Any]:
    """Return storage options as they were given on the command line."""
    from distfms.spec import set_dotted

    return set_dotted({}, assignments or [])


def show(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=None, header_style="bold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    Console().print(table)
