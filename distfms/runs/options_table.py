"""The keys of a job spec as a user can look them up: kind, default and meaning of each.

Kinds and defaults come from the sections' models, meanings from the ``Attributes`` of their
docstrings, so there is nothing to keep in step.
"""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, get_args

from pydantic.fields import FieldInfo

from distfms.errors import SpecError, nearest
from distfms.methods import METHODS, load_method
from distfms.runs.job_spec import OutputSection, TopKeys
from distfms.spec import DataSection, EngineSection, Section, TuneSection

_TYPES = {"string": "text", "integer": "integer", "number": "number", "boolean": "true | false"}
_BOUNDS = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
_INDENT = " " * 6
_EMPTY = ("minItems", "minLength", "minProperties")


@dataclass(frozen=True)
class Option:
    """One key of a section.

    Attributes
    ----------
    name : str
    kind : str
        Allowed values, or the type with its range.
    default : str or None
        As YAML; empty for an optional key without a value, None for one that has to be given.
    text : str
        What it means.
    """

    name: str
    kind: str
    default: str | None
    text: str

    def line(self) -> str:
        """Say it without its meaning, for the user."""
        given = {None: "required", "": "optional"}.get(self.default, f"default {self.default}")
        return f"  {self.name}: {self.kind}; {given}"


def section_models() -> dict[str, type[Section]]:
    """Return the models of all sections by their dotted names, sections in sections after them."""
    models: dict[str, type[Section]] = {
        "data": DataSection,
        **{method: load_method(method).Options for method in METHODS},
        "tune": TuneSection,
        "engine": EngineSection,
        "output": OutputSection,
    }
    found = {}
    for name, model in models.items():
        found[name] = model
        for key, field in model.model_fields.items():
            found.update({f"{name}.{key}": inner for inner in _sections_in(field.annotation)})
    return found


def section_options(model: type[Section], name: str = "") -> list[Option]:
    """Return the keys of a section.

    Parameters
    ----------
    model : type
        The section's model.
    name : str
        Dotted name of the section, to refer to sections in it.

    Returns
    -------
    list of Option
        In the order of the model.
    """
    texts = attribute_texts(model)
    schemas = model.model_json_schema()["properties"]
    return [
        Option(key, _kind(schemas[key], f"{name}.{key}"), _default(field), texts.get(key, ""))
        for key, field in model.model_fields.items()
    ]


def attribute_texts(documented: type) -> dict[str, str]:
    """Read the ``Attributes`` of a numpydoc docstring.

    Parameters
    ----------
    documented : type

    Returns
    -------
    dict of str to str
        Description by name, on one line; empty where there is none.
    """
    doc = inspect.cleandoc(documented.__doc__ or "")
    _, _, rest = doc.partition("\nAttributes\n----------\n")
    # Another section would begin with a line of its own and dashes below it.
    body = re.split(r"\n[^\n]+\n-{3,}\n", rest)[0]
    texts: dict[str, str] = {}
    names: list[str] = []
    for line in body.splitlines():
        if line and not line[0].isspace():
            names = [name.strip() for name in line.partition(" : ")[0].split(",")]
            texts.update(dict.fromkeys(names, ""))
        else:
            texts.update({name: f"{texts[name]} {line.strip()}".strip() for name in names})
    return {name: _plain(text) for name, text in texts.items()}


def options_lines(section: str | None = None, width: int = 100) -> list[str]:
    """List the keys of a section, or what sections there are.

    Parameters
    ----------
    section : str, optional
        Dotted name, as ``multiselect`` or ``data.long``. Default: the keys at the top of a spec
        and all sections, a line each.
    width : int
        Characters that a line may have.

    Returns
    -------
    list of str

    Raises
    ------
    SpecError
        If there is no such section.
    """
    models = section_models()
    if section is None:
        return _overview(models, width)
    if section not in models:
        raise SpecError(f"A job spec has no section `{section}`.{nearest(section, models)}")
    options = section_options(models[section], section)
    return [f"{section}: {_summary(models[section])}", *_listed(options, width)]


def _overview(models: Mapping[str, type[Section]], width: int) -> list[str]:
    column = max(map(len, models))
    return [
        "Keys at the top of a job spec:",
        *_listed(section_options(TopKeys), width),
        "",
        "Sections (`distfms options SECTION` lists the keys of one):",
        *(f"  {name:{column}}  {_summary(model)}" for name, model in models.items()),
    ]


def _listed(options: Sequence[Option], width: int) -> list[str]:
    """Give keys a line each; those that one text explains stand together above it."""
    lines = []
    for text, some in groupby(options, key=lambda option: option.text):
        lines += [option.line() for option in some]
        lines += textwrap.wrap(
            text, width, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False
        )
    return lines


def _summary(model: type[Section]) -> str:
    return _plain(inspect.cleandoc(model.__doc__ or "").partition("\n")[0])


def _plain(text: str) -> str:
    """Write a text of a docstring without its markup."""
    text = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"\1", text)
    return text.replace("``", "`")


def _sections_in(annotation: Any) -> Iterator[type[Section]]:
    """Find the models that a field's annotation names."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for inner in get_args(annotation):
        yield from _sections_in(inner)


def _default(field: FieldInfo) -> str | None:
    if field.is_required():
        return None
    value = field.get_default(call_default_factory=True)
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _kind(schema: Mapping[str, Any], dotted: str) -> str:
    """Say what a JSON schema allows."""
    if "$ref" in schema:
        return f"keys of `{dotted}`"
    if "anyOf" in schema:
        some = [one for one in schema["anyOf"] if one.get("type") != "null"]
        return " or ".join(_kind(one, dotted) for one in some)
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    limits = [f"{sign} {schema[key]}" for key, sign in _BOUNDS.items() if key in schema]
    least = "non-empty " if any(schema.get(key) for key in _EMPTY) else ""
    return f"{least}{_type(schema, dotted)} {', '.join(limits)}".rstrip()


def _type(schema: Mapping[str, Any], dotted: str) -> str:
    kind = schema.get("type")
    if kind in _TYPES:
        return _TYPES[kind]
    if kind == "array":
        inner = schema.get("items") or {}
        return f"list of {_kind(inner, dotted)}"
    if kind == "object":
        inner = schema.get("additionalProperties")
        return f"mapping of names to {_kind(inner if isinstance(inner, dict) else {}, dotted)}"
    return "any value"
