"""A commented job spec to start from, by what a sample of the data says."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from distfms.data.files.dataset import open_dataset
from distfms.data.files.formats.copies import Copies
from distfms.data.rows.roles import is_number
from distfms.engine.memory import counted
from distfms.errors import SpecError
from distfms.methods import METHODS, load_method
from distfms.report.formatting import percent
from distfms.runs.look import Look, answers_on_one_scale, look_at, reasons
from distfms.runs.options_table import key_meanings
from distfms.spec import DataSection, LongForm, Section
from distfms.store.places import create_whole, writing

#: What each method answers.
QUESTIONS = {
    "multiselect": "How many judgments of each attribute should I buy?",
    "sequence": "In which order should I compute groups of features that cost something?",
    "landmarks": "What predicts best from similarities to a few rows?",
    "attribute_efficient": "What can be learned from a few attributes of each example?",
}
#: Columns that a comment names; targets that are named; costs that are written one by one.
_LISTED = 20
_RUNNERS_UP = 4
_MOST_COSTS = 200
#: The end of a file's name, before that of a sheet.
_ENDING = r"\.(parquet|csv|tsv|jsonl|ndjson|arrow|feather|xls[xmb]?|ods)(\.gz)?(?=#|$)"
#: Rows from which some are held out.
_MANY_ROWS = 2_000
#: Methods that learn from numbers alone.
_OF_NUMBERS = ("multiselect", "attribute_efficient")
#: Share of missing values from which learning from gaps is the question.
_MANY_GAPS = 0.3


def look_at_data(data: str | None, say: Callable[[str], None]) -> Look:
    """Look at data of a job, if there are any; users should know what is said."""
    return Look() if data is None else look_at(open_dataset(data, copies=Copies(say=say)))


def answerable(look: Look) -> dict[str, str]:
    """Return the methods whose questions data can answer, and why, the likeliest first."""
    answers = {}
    if judgments := _judgments_said(look):
        answers["multiselect"] = judgments
    if look.long or look.target is None or not look.features:
        return answers
    target = f"to predict {look.target.name}"
    if look.query is not None:
        answers["landmarks"] = f"rows of one {look.query} are ranked by {look.target.name}"
    share = 0.0 if look.target.kind == "text" else _share_of_gaps(look)
    gaps = f"{percent(share)} of the values are missing, {target}"
    if share > _MANY_GAPS:
        answers["attribute_efficient"] = gaps
    answers["sequence"] = f"{_groups_said(look)}, {target}"
    answers.setdefault("landmarks", f"{look.n_rows:,} rows, {target}")
    if share > 0.01:
        answers["attribute_efficient"] = gaps
    return answers


def _judgments_said(look: Look) -> str:
    """Return what shows that data hold judgments; empty if nothing does."""
    if look.long:
        return f"each row is one judgment ({', '.join(look.long.values())})"
    n_lists = sum(column.kind == "judgments" for column in look.features)
    if n_lists:
        return f"{n_lists} columns hold lists of judgments"
    if look.judged:
        first, columns = next(iter(look.judged.items()))
        example = f"{first} in {', '.join(columns)}"
        return f"{len(look.judged)} attributes are judged several times, as {example}"
    return f"the column {look.rater} names raters" if look.rater else ""


def _groups_said(look: Look) -> str:
    """Return what the groups of features may be."""
    answers = answers_on_one_scale(look)
    if answers:
        low = answers[0].levels[0]
        high = answers[0].levels[-1]
        return f"{len(answers)} columns hold answers from {low} to {high}: which questions to ask"
    if look.separator:
        return f"names of columns share beginnings before {look.separator!r}"
    return f"{counted(len(look.features), 'column')} that may cost something"


def _share_of_gaps(look: Look) -> float:
    """Return the share of missing values among those of features that are numbers."""
    numbers = [column for column in look.features if column.kind == "number"]
    n_missing = sum(column.n_missing for column in numbers)
    return n_missing / max(1, look.n_looked_at * len(numbers))


def read_prices(path: str) -> dict[str, float]:
    """Read a table of prices: a column of names and one of numbers, in any format of data."""
    dataset = open_dataset(path)
    table = dataset.reader.read(dataset.partitions[0], dataset.schema.names)
    kinds = [is_number(field.type) for field in dataset.schema]
    if kinds != [False, True]:
        raise SpecError(
            f"{path} must have two columns, names of groups or attributes and what they cost; it "
            f"has {', '.join(dataset.schema.names)}."
        )
    names, prices = (column.to_pylist() for column in table.columns)
    return dict(zip(names, prices, strict=True))


def write_starter(
    named: str, data: str | None, look: Look, out: Path, prices: Mapping[str, float] | None = None
) -> None:
    """Write a commented spec for a method, on data that were looked at.

    `prices` are of groups or attributes, as far as they are known.

    Raises
    ------
    SpecError
        If there is no such method, the data hold nothing to learn, or the file exists.
    """
    name = named.replace("-", "_")
    if name not in METHODS:
        raise SpecError(f"Unknown method {named!r}; choose from {', '.join(METHODS)}.")
    if data is not None and not look.long and (look.target is None or not look.features):
        exclusions = "; ".join(reasons(list(look.columns.values())))
        raise SpecError(
            f"There is nothing to learn from {data}: it needs a target and a feature that vary. "
            f"{exclusions}."
        )
    file = re.split(r"[/\\]", (data or "").rstrip("/"))[-1]
    stem = re.sub(r"[^A-Za-z0-9]+", "-", re.sub(_ENDING, "", file))
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
        *_cost_lines(name, look, prices or {}),
    ]
    with writing(out):
        if not create_whole(out, "\n".join([*lines, ""]).encode()):
            raise SpecError(f"{out} exists. Name another file with --out.")


def _data_lines(method: str, data: str | None, look: Look) -> Iterator[str]:
    if look.long:
        yield from _entries(DataSection, {"path": data})
        yield from _long_lines(look)
        yield from _divided(look)
        return
    kinds: dict[str, list[str]] = {}
    for column in look.columns.values():
        kinds.setdefault(column.kind, []).append(column.name)
    for kind, names in kinds.items():
        count = f", … {len(names)} in all" if len(names) > _LISTED else ""
        yield from _commented(f"Columns of {kind}: {', '.join(names[:_LISTED])}{count}")
    columns = list(look.columns.values())
    left_out = [c for c in columns if c.excluded and c.name not in (look.id, look.rater)]
    judged = set[str]().union(*look.judged.values())
    for column in look.features:
        if method == "multiselect" and judged and column.name not in judged:
            left_out.append(replace(column, excluded="is judged once"))
        elif method in _OF_NUMBERS and column.kind == "text":
            left_out.append(replace(column, excluded="holds text"))
    for line in reasons(left_out):
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
    runners_up = [c.name for c in look.targets[1:_RUNNERS_UP]]
    if runners_up and look.is_guessed:
        yield from _commented(f"The target is guessed; it may also be {', '.join(runners_up)}.")
    exclude = [column.name for column in left_out]
    if look.rater:
        exclude.append(look.rater)
    times = [c.name for c in columns if c.kind == "time"]
    policy = ""
    if any(column.n_missing for column in look.features):
        policy = "pairs" if method == "attribute_efficient" else "mean"
    values = {"path": data or "data", "target": target, "id": look.id, "exclude": exclude or None}
    numbers = [c.name for c in columns if c.as_numbers and not c.excluded]
    more = {"numbers": numbers, "query": look.query, "missing": policy}
    yield from _entries(DataSection, values | {key: value for key, value in more.items() if value})
    if times:
        yield from _entries(DataSection, {"time": None}, {"time": times[0]})
    yield from _divided(look)


def _divided(look: Look) -> Iterator[str]:
    """Yield how rows are divided: few are all needed to learn from, and folds report of them."""
    held_out = 0.2 if look.n_rows >= _MANY_ROWS else None
    yield from _entries(DataSection, {"folds": "auto", "test": held_out}, {"test": "0.2"})


def _long_lines(look: Look) -> Iterator[str]:
    """Yield the section about judgments in long form; its label is an attribute."""
    yield from _commented(f"Attributes: {', '.join(look.labels[:_LISTED])}")
    yield "  # Columns of judgments in long form: one row per (object, attribute, rater)"
    yield "  long:"
    roles = {**look.long, "label": look.label}
    if look.label == look.label_column:
        roles["label_from"] = "column"
    if look.has_repeats:
        roles["duplicates"] = "keep"
    yield from ("  " + line for line in _entries(LongForm, roles))


def _option_lines(method: str, look: Look) -> Iterator[str]:
    """Yield the method's section: what the target and the columns say, then what is usual."""
    model = load_method(method).Options
    values = dict(load_method(method).starter)
    target = look.target
    if target is not None and target.has_classes:
        levels = ", ".join(map(str, target.levels)) or f"{target.n_levels} texts"
        two = target.n_levels == 2
        of_classes = {
            "sequence": {"family": "logistic" if two else "softmax"},
            "landmarks": {"task": "classification"},
            "attribute_efficient": {"positive": target.levels[-1]} if two else {},
        }
        number = {"sequence": "family: gaussian", "landmarks": "task: regression"}.get(method)
        alternative = (
            f" (or, read as a number, `{number}`)" if target.kind == "number" and number else ""
        )
        if method in of_classes and look.query is None:
            yield from _commented(f"{target.name} holds classes: {levels}{alternative}.")
        values |= of_classes.get(method, {})
    elif target is not None and target.is_scale:
        of_levels = {"sequence": "family: softmax", "landmarks": "task: ordinal"}.get(method)
        if of_levels and look.query is None:
            yield from _commented(
                f"{target.name} is read as a number; for levels, set `{of_levels}`."
            )
    if method == "sequence":
        if look.separator:
            values["groups"] = look.separator
        if any(column.n_missing for column in look.features):
            values["expand"] = {"missing": True}
    if method == "landmarks" and look.query is not None:
        values["task"] = "ranking"
        if target is not None and target.name.lower() in ("position", "rank"):
            yield from _commented(
                f"Greater must be better: where {target.name} 1 is the best, turn it round first."
            )
    if method in ("sequence", "multiselect"):
        values.pop("costs", None)  # written below, one by one
    has_gaps = any(column.n_missing for column in look.features)
    if method == "attribute_efficient" and has_gaps:
        del values["attributes_per_example"]
    elif method == "attribute_efficient":
        n_numbers = sum(column.kind == "number" for column in look.features)
        values["attributes_per_example"] = min(4, n_numbers) or 4
    yield from _entries(model, values)


def _cost_lines(method: str, look: Look, prices: Mapping[str, float]) -> Iterator[str]:
    """Yield a table of costs to fill in, of every group or attribute."""
    if method not in ("sequence", "multiselect"):
        return
    names = list(dict.fromkeys(_cost_names(method, look)))
    unknown = sorted(prices.keys() - {*names, "default"})
    if unknown and names:
        raise SpecError(
            f"There are prices of {', '.join(unknown)}, which the data do not have; they have "
            f"{', '.join(names)}."
        )
    if not prices:
        unit = "group for a new row" if method == "sequence" else "judgment of an attribute"
        yield from _commented(
            f"Fill in what a {unit} costs: money, seconds, calls. Until then all cost 1."
        )
    if not names or len(names) > _MOST_COSTS:
        yield f"  costs: {json.dumps({'default': 1, **prices}, ensure_ascii=False)}"
        return
    yield "  costs:"
    for name in names:
        yield f"    {json.dumps(name, ensure_ascii=False)}: {prices.get(name, 1)}"


def _cost_names(method: str, look: Look) -> list[str]:
    """Return the names of what has a cost: groups of columns, or attributes."""
    if look.long:
        return [name for name in look.labels if name != look.label]
    if method == "multiselect":
        lists = [column.name for column in look.features if column.kind == "judgments"]
        return [*lists, *look.judged] or [column.name for column in look.features]
    if look.separator is None:
        return [column.name for column in look.features]
    return [column.name.partition(look.separator)[0] for column in look.features]


def _entries(
    model: type[Section], values: Mapping[str, Any], shown: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """Yield keys with the first sentence of their meaning; commented out where they are None."""
    meanings = key_meanings(model)
    for key, value in values.items():
        yield from _commented(f"{' '.join(meanings[key].split()).partition('. ')[0]}".rstrip("."))
        text = (shown or {}).get(key, "")
        text_value = json.dumps(value, ensure_ascii=False)
        yield f"  # {key}: {text}".rstrip() if value is None else f"  {key}: {text_value}"


def _commented(text: str) -> list[str]:
    indent = "  # "
    return textwrap.wrap(
        text, 98, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
