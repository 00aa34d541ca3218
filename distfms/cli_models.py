"""The commands ``distfms models …``: versions of models, and which is in place."""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distfms.errors import SpecError
from distfms.terminal import Registry, Storage, say, show, storage_options

if TYPE_CHECKING:
    from distfms import registry as models

app = typer.Typer(help="List, compare and switch versions of models.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Of the model, as `distfms models list` has it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

#: Seconds that others wait for a promotion.
_PROMOTION_S = 60.0


def _open(named: str | None, storage: list[str] | None) -> models.Registry:
    from distfms.runs.models import open_registry

    return open_registry(named, storage_options(storage))


def _print(rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print rows with the same keys as a table or as JSON."""
    if as_json:
        say(json.dumps(rows, indent=1, ensure_ascii=False))
    elif rows:
        show(list(rows[0]), [[_text(value) for value in row.values()] for row in rows])
    else:
        say("There are none.")


def _text(value: Any) -> str:
    from distfms.runs.models import flat

    if isinstance(value, Mapping):
        numbers = {k: v for k, v in flat(value).items() if isinstance(v, int | float)}
        return ", ".join(f"{key} {_text(number)}" for key, number in numbers.items())
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


@app.command("list")
def list_(
    name: Annotated[str | None, typer.Argument(help="A model, to list its versions.")] = None,
    as_json: AsJson = False,
    registry: Registry = None,
    storage: Storage = None,
) -> None:
    """List the models of a registry, or the versions of one."""
    kept = _open(registry, storage)
    if name is None:
        names = [(n, kept.versions(n), kept.current(n)) for n in kept.names()]
        rows = [
            {"name": n, "in_place": c and c.number, "versions": [v.number for v in versions]}
            for n, versions, c in names
        ]
        return _print(rows, as_json)
    in_place, keys = kept.current(name), ("created", "parent", "facts")
    versions = kept.versions(name) or [kept.version(name)]
    rows = [
        {"version": v.number, "in_place": v == in_place} | {k: getattr(v, k) for k in keys}
        for v in versions
    ]
    return _print(rows, as_json)


@app.command("show")
def show_(
    model: Annotated[str, typer.Argument(metavar="NAME[@VERSION]")],
    as_json: AsJson = False,
    registry: Registry = None,
    storage: Storage = None,
) -> None:
    """Show a version, or the one in place: facts, files, and when it was put in place."""
    from distfms.runs.models import flat, parse_model

    kept, (name, number) = _open(registry, storage), parse_model(model)
    version = kept.version(name, number)
    changes = [c for c in kept.history(name) if c.kind != "remove"]
    content = version.model_dump(mode="json") | {
        "place": str(kept.files(name, version)),
        "put_in_place": [c.created for c in changes if c.version == version.number],
    }
    if as_json:
        return say(json.dumps(content, indent=1, ensure_ascii=False))
    return show(("what", "value"), [(key, _text(v)) for key, v in flat(content).items()])


@app.command()
def diff(
    name: Name,
    a: Annotated[int, typer.Argument(help="Version.")],
    b: Annotated[int, typer.Argument(help="Another version.")],
    as_json: AsJson = False,
    registry: Registry = None,
    storage: Storage = None,
) -> None:
    """Show what differs between two versions: facts, files by their sha256, what was chosen."""
    from distfms.retrain.selection import chosen_in
    from distfms.runs.models import flat

    kept = _open(registry, storage)
    versions = [kept.version(name, n) for n in (a, b)]
    one, two = (flat(v.facts) | v.files | chosen_in(kept, name, v.number) for v in versions)
    rows = [{"what": k, str(a): one.get(k), str(b): two.get(k)} for k in {**one, **two}]
    _print([row for row in rows if row[str(a)] != row[str(b)]], as_json)


@app.command()
def promote(
    model: Annotated[str, typer.Argument(metavar="NAME@VERSION")],
    registry: Registry = None,
    storage: Storage = None,
) -> None:
    """Put a version in place."""
    from distfms.runs.models import parse_model

    kept, (name, number) = _open(registry, storage), parse_model(model)
    if number is None:
        raise SpecError(f"Say which version of {name!r} to promote, as {name}@3.")
    kept.version(name, number)
    with kept.locked(name, f"{getpass.getuser()}@{socket.gethostname()}", _PROMOTION_S):
        kept.promote(name, number)
    say(f"{name}: version {number} is in place.")


@app.command()
def rollback(name: Name, registry: Registry = None, storage: Storage = None) -> None:
    """Put the version in place that was there before; also while a retraining is under way."""
    found = _open(registry, storage).rollback(name)
    say(f"{name}: version {found.version} is in place again.")


@app.command()
def gc(
    name: Name,
    keep: Annotated[int, typer.Option(min=1, help="How many of the last versions to keep.")],
    registry: Registry = None,
    storage: Storage = None,
) -> None:
    """Remove old versions; never the one in place nor the one before it."""
    removed = _open(registry, storage).gc(name, keep)
    say(f"{name}: removed {', '.join(map(str, removed)) or 'nothing'}.")
