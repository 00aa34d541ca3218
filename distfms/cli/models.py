"""The commands ``distfms models …``: versions of models, and which is current."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distfms.cli.terminal import AsJson, Registry, Storage, complain, say, show, storage_options
from distfms.errors import SpecError

if TYPE_CHECKING:
    from distfms import registry as models

app = typer.Typer(
    help="List, compare and switch versions of models.", no_args_is_help=True, rich_markup_mode=None
)

Name = Annotated[str, typer.Argument(help="Model, as in `distfms models list`.")]
NameOrNone = Annotated[str | None, typer.Argument(help="Model; by default all.")]
Because = Annotated[
    str, typer.Option("--because", metavar="TEXT", help="Reason, for `distfms models log`.")
]


def _open(named: str | None, storage: list[str] | None) -> models.Registry:
    from distfms.registry import open_registry
    from distfms.store.places import reading

    registry = open_registry(named, storage_options(storage))
    with reading(registry.root):
        if not registry.root.exists():
            raise SpecError(
                f"There is no registry at {registry.root}. Name another with --registry; the first "
                "`distfms retrain` of a job creates one."
            )
    return replace(registry, note=lambda line: complain(f"Note: {line}"))


def _current(kept: models.Registry, name: str) -> int | None:
    """Return the number of the current version; note that it is not known."""
    try:
        return kept.last(name).version
    except SpecError as error:
        kept.note(str(error))
        return None


def _print(rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print rows with the same keys as a table or as JSON."""
    if as_json:
        say(json.dumps(rows, indent=1, ensure_ascii=False))
    elif rows:
        show(list(rows[0]), [list(map(_text, row.values())) for row in rows])
    else:
        say("None found.")


def _text(value: Any) -> str:
    from distfms.runs.finished import flat

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
    name: Annotated[str | None, typer.Argument(help="Model whose versions to list.")] = None,
    as_json: AsJson = False,
    registry: Registry = None,
    storage: Storage = None,
) -> None:
    """List the models of a registry, or the versions of one."""
    kept = _open(registry, storage)
    if name is None:
        models_ = []
        for model in kept.names():
            numbers = [version.number for version in kept.versions(model)]
            models_.append({"name": model, "current": _current(kept, model), "versions": numbers})
        return _print(models_, as_json)
    current = _current(kept, name)
    rows = [
        {
            "version": version.number,
            "current": version.number == current,
            "created": version.created,
            "parent": version.parent,
            "facts": version.facts,
        }
        for version in kept.versions(name) or [kept.version(name)]
    ]
    return _print(rows, as_json)


@app.command("show")
def show_(
    model: Annotated[str, typer.Argument(metavar="NAME[@VERSION]")],
    as_json: AsJson = False,
    registry: Registry = None,
    storage: Storage = None,
) -> None:
    """Show the details of a version, by default the current one."""
    from distfms.runs.finished import flat, parse_model

    kept = _open(registry, storage)
    name, number = parse_model(model)
    version = kept.version(name, number)
    changes = [c for c in kept.history(name) if c.kind != "remove"]
    content = version.model_dump(mode="json") | {
        "place": str(kept.files(name, version)),
        "promoted": [c.created for c in changes if c.version == version.number],
    }
    if as_json:
        return say(json.dumps(content, indent=1, ensure_ascii=False))
    return show(("what", "value"), [(key, _text(v)) for key, v in flat(content).items()])


@app.command()
def diff(
    name: Name,
    a: Annotated[int, typer.Argument(help="Version.")],
    b: Annotated[int, typer.Argument(help="Version to compare with.")],
    as_json: AsJson = False,
    registry: Registry = None,
    storage: Storage = None,
) -> None:
    """Compare two versions: details, files (by sha256) and selection."""
    from distfms.retrain.gate import chosen_in
    from distfms.runs.finished import flat

    kept = _open(registry, storage)
    versions = [kept.version(name, n) for n in (a, b)]
    first, second = (flat(v.facts) | v.files | chosen_in(kept, name, v.number) for v in versions)
    rows = [
        {"what": key, str(a): first.get(key), str(b): second.get(key)}
        for key in {**first, **second}
    ]
    _print([row for row in rows if row[str(a)] != row[str(b)]], as_json)


@app.command()
def log(
    name: Name, as_json: AsJson = False, registry: Registry = None, storage: Storage = None
) -> None:
    """Show the history of promotions, rollbacks and removals."""
    changes = _open(registry, storage).history(name)
    if as_json:
        return say(json.dumps([change.model_dump() for change in changes], indent=1))
    for c in changes:
        versions = ", ".join(map(str, c.removed)) if c.kind == "remove" else c.version or "none"
        say(f"{c.number}  {c.created}  {c.kind} {versions}  {c.author}  {c.because}".rstrip())


@app.command()
def promote(
    model: Annotated[str, typer.Argument(metavar="NAME@VERSION")],
    because: Because = "",
    registry: Registry = None,
    storage: Storage = None,
) -> None:
    """Promote a version: make it the current one."""
    from distfms.runs.finished import parse_model

    name, number = parse_model(model)
    if number is None:
        raise SpecError(f"Name the version of {name!r} to promote, such as {name}@3.")
    _open(registry, storage).promote(name, number, because=because)
    say(f"{name}: version {number} is current.")


@app.command()
def rollback(
    name: Name, because: Because = "", registry: Registry = None, storage: Storage = None
) -> None:
    """Promote the previous version again.

    Works during a retraining too.
    """
    record = _open(registry, storage).rollback(name, because)
    say(f"{name}: version {record.version} is current again.")


@app.command()
def gc(
    name: Name,
    keep: Annotated[int, typer.Option(min=1, help="Number of latest versions to keep.")],
    because: Because = "",
    registry: Registry = None,
    storage: Storage = None,
) -> None:
    """Remove old versions.

    Never removes the current version or the one before it.
    """
    removed = _open(registry, storage).gc(name, keep, because)
    say(f"{name}: removed {', '.join(map(str, removed)) or 'nothing'}.")


@app.command()
def verify(name: NameOrNone = None, registry: Registry = None, storage: Storage = None) -> None:
    """Check records and files; exit with code 2 if any is damaged."""
    kept = _open(registry, storage)
    names = kept.names() if name is None else [name]
    problems = [f"{n}: {problem}" for n in names for problem in kept.verify(n)]
    for problem in problems:
        say(problem)
    if problems:
        raise SpecError(
            f"Damaged records or versions: {len(problems)}. Restore them from a copy of the "
            "registry; until then they are passed over."
        )
    say(f"No damage found: {', '.join(names) or 'there are no models'}.")
