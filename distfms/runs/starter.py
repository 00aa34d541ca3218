"""A commented job spec to start from, by what a sample of the data says."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from distfms.engine.storage import create_whole, writing
from distfms.errors import SpecError
from distfms.methods import METHODS, load_method
from distfms.runs.look import Look, look_at, reasons
from distfms.runs.options_table import key_meanings
from distfms.spec import DataSection, LongForm, Section

#: What each method answers.
QUESTIONS = {
    "multiselect": "How many judgments of each attribute should I buy?",
    "sequence": "In which order should I compute groups of features that cost something?",
    "landmarks": "What predicts best from similarities to a few rows?",
    "attribute_efficient": "What can be learned from a few attributes of each example?",
}
#: Columns that a comment names.
_LISTED = 20


def look_at_data(data: str | None) -> Look:
    """Look at data of a job, if there are any."""
    from distfms.data.files.dataset import open_dataset

    return Look() if data is None else look_at(open_dataset(data))


def signs(look: Look) -> dict[str, str]:
    """Return what speaks for each method in some data."""
    n_gaps = sum(column.n_missing > 0 for column in look.features)
    n_judged = sum(column.kind == "judgments" for column in look.features)
    found = dict.fromkeys(QUESTIONS, "")
    if look.long:
        found["multiselect"] = f"each row is one judgment ({', '.join(look.long.values())})"
    elif n_judged:
        found["multiselect"] = f"{n_judged} columns hold lists of judgments"
    elif look.rater:
        found["multiselect"] = f"the column {look.rater} names raters"
    if look.target and not look.long:
        kind = "classes" if look.target.has_classes else "numbers"
        found["landmarks"] = f"{look.target.name} holds {kind}"
        if look.separator:
            found["sequence"] = f"names of columns share beginnings before {look.separator!r}"
        if n_gaps:
            found["attribute_efficient"] = f"{n_gaps} columns have missing values"
    return found


def write_starter(named: str, data: str | None, look: Look, out: Path) -> None:
    """Write a commented spec for a method, on data that were looked at.

    Raises
    ------
    SpecError
        If there is no such method, the data hold nothing to learn, or the file exists.
    """
    name = named.replace("-", "_")
    if name not in METHODS:
        raise SpecError(f"Unknown method {named!r}; choose from {', '.join(METHODS)}.")
    if data is not None and not look.long and (look.target is None or not look.features):
        told = "; ".join(reasons(list(look.columns.values())))
        raise SpecError(
            f"There is nothing to learn from {data}: it needs a target and a feature that vary. "
            f"{told}."
        )
    stem = re.sub(r"[^A-Za-z0-9]+", "-", re.split(r"[/\\]", (data or "").rstrip("/"))[-1])
    stem = re.sub(r"-(parquet|csv|tsv|jsonl|ndjson|arrow|feather|xlsx)(-gz)?$", "", stem)
    lines = [
        f"# `distfms check {out}` shows what this job would do, `distfms options {name}`",
        "# lists all options. Remove the # before a key to set it.",
        f"name: {'-'.join(filter(None, (name, stem.strip('-'))))}",
        f"method: {name}",
        "",
        "data:",
        *_data_lines(name, data, look),
        "",
        f"{name}:",
        *_option_lines(name, look),
    ]
    with writing(out):
        if not create_whole(out, "\n".join([*lines, ""]).encode()):
            raise SpecError(f"{out} exists. Name another file with --out.")


def _data_lines(method: str, data: str | None, look: Look) -> Iterator[str]:
    if look.long:
        yield from _entries(DataSection, {"path": data})
        yield from _long_lines(look)
        yield from _entries(DataSection, {"folds": "auto", "test": 0.2})
        return
    kinds: dict[str, list[str]] = {}
    for column in look.columns.values():
        kinds.setdefault(column.kind, []).append(column.name)
    for kind, names in kinds.items():
        more = f", … {len(names)} in all" if len(names) > _LISTED else ""
        yield from _commented(f"Columns of {kind}: {', '.join(names[:_LISTED])}{more}")
    columns = list(look.columns.values())
    dropped = [c for c in columns if c.excluded and c.name not in (look.id, look.rater)]
    texts = [c.name for c in look.features if c.kind == "text"]
    if method in ("multiselect", "attribute_efficient"):  # which learn from numbers alone
        yield from _commented(f"Left out, as they hold text: {', '.join(texts)}" if texts else "")
    else:
        texts = []
    for line in reasons(dropped):
        yield from _commented(f"Left out: {line}")
    for column in columns:
        yield from _commented(column.nearly)
    for column in look.features:
        if column.suspect:
            yield from _commented(f"Leave out {column.name}? It {column.suspect}.")
    if look.rater and method == "multiselect":
        yield from _commented(
            f"Each row seems to be what one {look.rater} said of one object: give `data.long` one "
            f"row per judgment, by `frame.melt(id_vars=[{look.id!r}, {look.rater!r}, …])`."
        )
    target = look.target.name if look.target else "y"
    exclude = [*(c.name for c in dropped), *texts]
    if look.rater:
        exclude.append(look.rater)
    times = [c.name for c in columns if c.kind == "time"]
    numbers = [c.name for c in columns if c.as_numbers and not c.excluded]
    gaps = any(c.n_missing for c in look.features)
    values = {"path": data or "data", "target": target, "id": look.id, "exclude": exclude or None}
    yield from _entries(DataSection, values)
    if numbers:
        yield from _entries(DataSection, {"numbers": numbers})
    if gaps:
        yield from _entries(DataSection, {"missing": "mean"})
    if times:
        yield from _entries(DataSection, {"time": None}, {"time": times[0]})
    yield from _entries(DataSection, {"folds": "auto", "test": 0.2})


def _long_lines(look: Look) -> Iterator[str]:
    """Yield the section about judgments in long form; its label is an attribute."""
    yield from _commented(f"Attributes: {', '.join(look.labels[:_LISTED])}")
    yield "  # Columns of judgments in long form: one row per (object, attribute, rater)"
    yield "  long:"
    label = next((t for t in look.labels if t.lower() in ("label", "target", "overall")), None)
    own = {**look.long, "label": label or look.labels[-1]}
    yield from ("  " + line for line in _entries(LongForm, own))


def _option_lines(method: str, look: Look) -> Iterator[str]:
    """Yield the method's section: what the target and the columns say, then what is usual."""
    model = load_method(method).Options
    values = dict(load_method(method).starter)
    target = look.target
    if target is not None and target.has_classes:
        levels = ", ".join(map(str, target.levels)) or f"{target.n_levels} texts"
        two = target.n_levels == 2
        own = {
            "sequence": {"family": "logistic" if two else "softmax"},
            "landmarks": {"task": "classification"},
            "attribute_efficient": {"positive": target.levels[-1]} if two else {},
        }
        number = {"sequence": "family: gaussian", "landmarks": "task: regression"}.get(method)
        other = f" (or, read as a number, `{number}`)" if target.kind == "number" and number else ""
        if method in own:
            yield from _commented(f"{target.name} holds classes: {levels}{other}.")
        values |= own.get(method, {})
    if method == "sequence":
        if look.separator:
            del values["groups"]
            values["prefix_separator"] = look.separator
        if any(column.n_missing for column in look.features):
            values["expand"] = {"missing": True}
    if method == "attribute_efficient":
        n_numbers = sum(column.kind == "number" for column in look.features)
        values["attributes_per_example"] = min(4, n_numbers) or 4
    yield from _entries(model, values)


def _entries(
    model: type[Section], values: Mapping[str, Any], shown: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """Yield keys with the first sentence of their meaning; commented out where they are None."""
    meanings = key_meanings(model)
    for key, value in values.items():
        yield from _commented(f"{' '.join(meanings[key].split()).partition('. ')[0]}".rstrip("."))
        text = (shown or {}).get(key, "")
        given = json.dumps(value, ensure_ascii=False)
        yield f"  # {key}: {text}".rstrip() if value is None else f"  {key}: {given}"


def _commented(text: str) -> list[str]:
    indent = "  # "
    return textwrap.wrap(
        text, 98, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
