"""The current model, and what has changed in the data since."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from pydantic import Field

from distfms.data.dataset import DataFile
from distfms.errors import SpecError, nearest
from distfms.methods.contract import FinishedRun, Inputs
from distfms.registry import Record, Registry
from distfms.retrain.drift import Summaries
from distfms.runs.driver import Prepared, describe_inputs
from distfms.runs.finished import read_version
from distfms.spec import parse_yaml
from distfms.stats.base import from_bytes

#: Summaries of partitions, in a run.
DRIFT = "statistics/drift.npz"

_ANEW = (
    "Retrain under another `name`, or with --anew, which promotes the new model without a "
    "comparison."
)


@dataclass(frozen=True, eq=False)
class InPlace:
    """The current version: its number, its run, and its spec."""

    number: int
    run: FinishedRun
    spec: Mapping[str, Any]
    summaries: Mapping[str, Any]

    def summaries_of(self, names: Sequence[str]) -> Summaries | None:
        """Return those of its partitions, where they are of the columns of these names."""
        if "files" not in self.summaries or self.summaries["names"].tolist() != names:
            return None
        return Summaries(**{f.name: self.summaries[f.name] for f in fields(Summaries)})

    @classmethod
    def read(
        cls, registry: Registry, name: str, allow: Iterable[str], anew: bool
    ) -> InPlace | None:
        """Read the current version; of a damaged one, to be replaced anew, only its number."""
        number = registry.last(name).version
        if number is None:
            return None
        try:
            version, found = read_version(registry, name)
            spec = parse_yaml(found.files["spec.yaml"].decode(), f"spec.yaml of {found.called}")
            summaries = from_bytes(found.files[DRIFT]) if DRIFT in found.files else {}
            return cls(version.number, found.open(allow)[1], spec, summaries)
        except SpecError as error:
            if not anew:
                raise
            registry.note(f"Replacing version {number} without reading it. {error}")
            return cls(number, FinishedRun({}, {}, {}, {"inputs": []}, {}), {}, {})


def made_before(registry: Registry, name: str, identity: str) -> tuple[int | None, bool]:
    """Return the last version of an identity that was ever promoted, and whether it was withdrawn.

    A version is withdrawn by a rollback, or by the promotion of an older one; not by a newer one.
    """
    promoted, withdrawn, current = set[int | None](), set[int | None](), None
    for change in registry.history(name):
        if change.version != current:
            if change.kind == "rollback" or (change.version or 0) < (current or 0):
                withdrawn.add(current)
            current = change.version
            promoted.add(current)
            withdrawn.discard(current)
    versions = [v for v in registry.versions(name) if v.facts.get("identity") == identity]
    made = next((v.number for v in reversed(versions) if v.number in promoted), None)
    return made, made in withdrawn


class Refusal(Record):
    """Files that have drifted: name → version, and whether somebody has accepted it."""

    files: dict[str, tuple[str, bool]] = Field(default_factory=dict)

    @classmethod
    def read(cls, registry: Registry, name: str) -> Refusal:
        """Read the last record of a model."""
        return registry.journal(name, cls).last(skip=True) or cls(number=0)

    def write(self, registry: Registry, name: str, files: dict[str, tuple[str, bool]]) -> Refusal:
        """Write the next record, unless it would say the same."""
        journal = registry.journal(name, Refusal)
        new = Refusal(number=journal.next_number(), files=self.files | files)
        if new.files != self.files:
            journal.write(new)
        return new

    def accept(
        self, registry: Registry, name: str, files: Sequence[DataFile], named: Sequence[str]
    ) -> Refusal:
        """Accept files by their names in the data, or parts of their paths."""
        known = {file.name: (file.version, True) for file in files}
        found = dict[str, tuple[str, bool]]()
        for one in named:
            own = {file: v for file, v in known.items() if f"/{one}/" in f"/{file}/"}
            if not own:
                raise SpecError(f"There is no file {one!r} to accept.{nearest(one, known)}")
            found |= own
        return self.write(registry, name, found)


@dataclass(frozen=True)
class Changes:
    """How the files of the data differ from those behind the current model.

    Attributes
    ----------
    new, changed, vanished : tuple of str
        Names of files.
    n_new_rows, n_lost_rows, n_before : int
        Rows of new and changed files; rows fewer in changed and vanished ones; rows behind the
        current model.
    """

    new: tuple[str, ...]
    changed: tuple[str, ...]
    vanished: tuple[str, ...]
    n_new_rows: int
    n_lost_rows: int
    n_before: int

    @classmethod
    def between(
        cls,
        before: Sequence[Mapping[str, Any]],
        inputs: Inputs,
        forgotten: Sequence[str],
        same: Callable[[str], bool],
    ) -> Changes:
        """Compare the inputs of a manifest with the data as they are.

        A file is unchanged where name, footer and stamp (etag, or time of modification) are the
        same. Where only the stamp differs, as in a copy, its rows decide: `same` compares their
        statistics. What the window has passed has not vanished.
        """

        def changed_file(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
            touched = old.get("version", new["version"]) != new["version"]
            return old["footer"] != new["footer"] or (touched and not same(new["name"]))

        known = {file["name"]: file for file in before}
        now = {file["name"]: file for file in describe_inputs(inputs)["inputs"]}
        new = [name for name in now if name not in known]
        changed = [name for name in now if name in known and changed_file(known[name], now[name])]
        vanished = [name for name in known if name not in now and name not in forgotten]
        fewer = [known[name]["n_rows"] - now[name]["n_rows"] for name in changed]
        return cls(
            tuple(new),
            tuple(changed),
            tuple(vanished),
            n_new_rows=sum(now[name]["n_rows"] for name in (*new, *changed)),
            n_lost_rows=sum(known[name]["n_rows"] for name in vanished)
            + sum(n for n in fewer if n > 0),
            n_before=sum(file["n_rows"] for file in before),
        )


def require_same_question(prepared: Prepared, in_place: InPlace) -> None:
    """Refuse to compare a model with one that answers another question, or knew the held-out rows.

    Raises
    ------
    SpecError
    """
    spec, before = prepared.spec.to_mapping(), in_place.spec
    if before["method"] != spec["method"]:
        raise SpecError(
            f"Version {in_place.number} of {spec['name']!r}, the current model, is of the method "
            f"`{before['method']}`, and the spec's is `{spec['method']}`. {_ANEW}"
        )
    data = ("target", "id", "query", "weight", "test", "long")
    own: dict[tuple[str, ...], str] = {
        ("data", key): "it decides what is predicted or which rows are held out" for key in data
    }
    own |= {("seed",): "it decides which rows are held out"}
    why = "it decides what is predicted or selected from"
    own |= {(spec["method"], option): why for option in prepared.method.question}
    for keys, why in own.items():
        was, now = _at(before, keys), _at(spec, keys)
        if was != now:
            raise SpecError(
                f"`{'.'.join(keys)}` is {_said(now)} in the spec and was {_said(was)} for version "
                f"{in_place.number} of {spec['name']!r}, the current model: {why}. {_ANEW}"
            )
    _require_same_columns(prepared, in_place)


def _require_same_columns(prepared: Prepared, in_place: InPlace) -> None:
    before, now = (in_place.run.retraining or {}).get("columns"), columns_of(prepared)
    if before is None or before == now:
        return
    gone, new = (", ".join(sorted(set(a) - set(b))) for a, b in ((before, now), (now, before)))
    other = ", ".join(
        f"{n} ({before[n]}, now {now[n]})" for n in before if n in now and before[n] != now[n]
    )
    found = (("gone", gone), ("new", new), ("of another type", other))
    listed = "; ".join(f"{what}: {names}" for what, names in found if names)
    raise SpecError(
        f"The columns of the data differ from those of version {in_place.number} of "
        f"{prepared.spec.name!r}, the current model ({listed}). Restore them, or name the columns "
        f"to learn from in `data.features`. {_ANEW}"
    )


def columns_of(prepared: Prepared) -> dict[str, str]:
    """Return the types of the columns that a job reads."""
    schema = prepared.opened.inputs.train.schema
    return {name: str(schema.field(name).type) for name in prepared.job.columns()}


def _at(content: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        content = content.get(key) if isinstance(content, Mapping) else None
    return json.loads(json.dumps(content))


def _said(value: Any) -> str:
    return "not set" if value in (None, [], {}) else json.dumps(value, ensure_ascii=False)
