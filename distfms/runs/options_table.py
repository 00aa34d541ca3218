"""The keys of a job spec for users: kind, default and meaning of each."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from distfms.errors import SpecError, nearest
from distfms.methods import METHODS, load_method
from distfms.runs.job_spec import OutputSection, TopKeys
from distfms.spec import DataSection, EngineSection, RetrainSection, Section, TuneSection
from distfms.validation import sections_in

_TYPES = {"string": "text", "integer": "integer", "number": "number", "boolean": "true | false"}
_BOUNDS = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
_EMPTY = ("minItems", "minLength", "minProperties")


def section_models() -> dict[str, type[BaseModel]]:
    """Return the models of all sections by their dotted names, sections in sections after them."""
    models: dict[str, type[BaseModel]] = {
        "data": DataSection,
        **{method: load_method(method).Options for method in METHODS},
        "tune": TuneSection,
        "retrain": RetrainSection,
        "engine": EngineSection,
        "output": OutputSection,
    }
    sections = {}
    for name, model in models.items():
        sections[name] = model
        for key, field in model.model_fields.items():
            sections.update({f"{name}.{key}": inner for inner in sections_in(field.annotation)})
    return sections


#: What a beginner sets.
_FIRST = {
    "multiselect": ("budget", "costs", "plan"),
    "sequence": ("groups", "costs", "family", "budget"),
    "landmarks": ("task", "similarity", "landmarks"),
    "attribute_efficient": ("attributes_per_example", "penalty", "positive"),
    "data": ("path", "long", "target", "id", "features", "exclude", "missing", "folds", "test"),
    "engine": ("kind", "address", "workers"),
    "output": ("path", "registry"),
}


def options_lines(
    section: str | None = None, width: int = 100, everything: bool = True
) -> list[str]:
    """List the keys of a section such as ``data.long``, or those at the top and all sections.

    Without `everything`, of large sections only those that a beginner sets.
    """
    models = section_models()
    if section is None:
        column = max(map(len, models))
        return [
            "Keys at the top of a job spec:",
            *_keys(TopKeys, "", width, TopKeys.model_fields),
            "",
            "Sections (`distfms options SECTION` lists the keys of one):",
            *(f"  {name:{column}}  {_summary(model)}" for name, model in models.items()),
        ]
    if section not in models:
        raise SpecError(f"A job spec has no section `{section}`.{nearest(section, models)}")
    model = models[section]
    keys: Collection[str] = model.model_fields
    keys = keys if everything else _FIRST.get(section, keys)
    lines = [f"{section}: {_summary(model)}", *_keys(model, section, width, keys)]
    n_hidden = len(model.model_fields) - len(keys)
    return [*lines, f"{n_hidden} more: distfms options {section} --all"] if n_hidden else lines


def _keys(
    model: type[BaseModel], section: str, width: int, shown: Collection[str]
) -> Iterator[str]:
    """Yield a line for each key that is wanted, and its meaning below."""
    schemas = model.model_json_schema()["properties"]
    meanings = key_meanings(model)
    for key, field in model.model_fields.items():
        if key not in shown:
            continue
        yield f"  {key}: {_kind(schemas[key], f'{section}.{key}')}; {_default(field)}"
        indent = " " * 6
        yield from textwrap.wrap(
            meanings[key],
            width,
            initial_indent=indent,
            subsequent_indent=indent,
            break_on_hyphens=False,
        )


def key_meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return the text below each key of a model: no job but this table needs it."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(model)))
    return {
        ast.unparse(key.target): inspect.cleandoc(ast.literal_eval(text.value))
        for key, text in pairwise(tree.body[0].body)  # type: ignore[attr-defined]
        if isinstance(key, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def _summary(model: type[BaseModel]) -> str:
    return (model.__doc__ or "").partition("\n")[0]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or isinstance(value, Section):  # a section's keys have their own defaults
        return "optional"
    if not isinstance(value, str):
        value = json.dumps(to_jsonable_python(value, exclude_none=True))
    return f"default {value}"


def _kind(schema: Mapping[str, Any], dotted: str) -> str:
    """Return what a JSON schema allows, in words."""
    if "$ref" in schema:
        return f"keys of `{dotted}`"
    if "anyOf" in schema:
        kinds = [kind for kind in schema["anyOf"] if kind.get("type") != "null"]
        return " or ".join(_kind(kind, dotted) for kind in kinds)
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    limits = [f"{sign} {schema[key]}" for key, sign in _BOUNDS.items() if key in schema]
    open_ended = "prefixItems" not in schema
    least = "non-empty " if open_ended and any(schema.get(key) for key in _EMPTY) else ""
    return f"{least}{_type(schema, dotted)} {', '.join(limits)}".rstrip()


def _type(schema: Mapping[str, Any], dotted: str) -> str:
    kind = schema.get("type")
    inner = schema.get("additionalProperties")
    if kind == "array":
        (first,) = schema.get("prefixItems", [{}])[:1]
        return f"list of {_kind(schema.get('items') or first, dotted)}"
    if kind == "object":
        names = schema.get("propertyNames", {}).get("const", "names")
        return f"mapping of {names} to {_kind(inner if isinstance(inner, dict) else {}, dotted)}"
    return _TYPES.get(str(kind), "any value")
