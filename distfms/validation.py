"""What is wrong with a section of a spec, in words of specs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel

from distfms.errors import nearest


def explained(
    problems: Sequence[Mapping[str, Any]], content: Any, model: type[BaseModel], section: str
) -> str:
    """Say what is wrong with one key; a value may be in conflict with each form that it can have.

    A misspelt key also shows as a missing one: the misspelling is what helps.
    """
    first = min(problems, key=lambda problem: problem["type"] != "extra_forbidden")
    located = []
    for problem in problems:
        # Where an item is at fault, the list without it also counts as too short.
        is_followed = problem["type"] == "too_short" and len(problem["input"]) > 0
        if problem["loc"][:1] == first["loc"][:1] and not is_followed:
            located.append((problem, _location(problem, content)))
    problem, location = min(located, key=lambda entry: (_weight(entry[0]), -len(entry[1])))
    key = ".".join([section, *location] if section else location)
    if problem["type"] == "extra_forbidden":
        top, _, _ = section.partition(".")
        if key in ("data.sheet", "data.sheet_name"):
            return (
                f"There is no key `{key}`: name the sheet of a workbook after its path, as in "
                "`path: book.xlsx#2024`."
            )
        return (
            f"Unknown key `{key}` in the job spec."
            f"{nearest(location[-1], _fields_at(model, location[:-1]))} "
            f"`distfms options {top} --all` lists the keys."
        )
    if problem["type"] == "missing":
        return f"The job spec is missing the key `{key}`."
    messages = {_message(problem): None}
    if problem["type"] in _WRONG_FORM:
        messages = {_message(other): None for other, place in located if place == location}
    message = " or ".join(messages).replace(" or it must be ", " or ")
    if not location:
        return f"In the job spec, section `{section}`: {message}."
    if "storage_options" in location:  # it may be a secret
        return f"In the job spec, `{key}`: {message}."
    return f"In the job spec, `{key}` is {problem['input']!r}: {message}."


#: Problems of values that do not have one of several forms.
_WRONG_FORM = (
    "bool_type", "dict_type", "float_type", "int_type", "literal_error", "model_type",
    "string_type", "tuple_type",
)  # fmt: skip


def _weight(problem: Mapping[str, Any]) -> int:
    """Return what is said last: a value of the right form that is wrong within tells more."""
    if problem["type"] in _WRONG_FORM:
        return 2
    return 0 if problem["type"] == "extra_forbidden" else 1


def _location(problem: Mapping[str, Any], content: Any) -> list[str]:
    """Return the keys that lead to a problem, without the names of forms between them."""
    keys = []
    for part in problem["loc"]:
        is_item = isinstance(part, int) and isinstance(content, list | tuple)
        if is_item or (isinstance(content, Mapping) and part in content):
            content = content[part]
            keys.append(str(part))
    if problem["type"] == "missing":
        keys.append(problem["loc"][-1])
    return keys


def _message(problem: Mapping[str, Any]) -> str:
    """Return in words of specs what pydantic says of a value."""
    if problem["type"] == "string_too_short":
        return "it is empty; give a value, or leave the key out"
    if problem["type"] == "too_short":
        least = problem["ctx"]["min_length"]
        return "it is empty; give at least one" if least == 1 else f"give at least {least}"
    if problem["type"] in ("byte_size", "byte_size_unit"):
        return "write it as `512MiB` or `4 GB`"
    message: str = problem["msg"].removeprefix("Value error, ").removesuffix(".")
    for pattern, plainer in _PLAINER.items():
        message = re.sub(pattern, plainer, message)
    return message


#: Words of pydantic, and those of specs.
_PLAINER = {
    "^(Input|String) should be": "it must be",
    "a valid tuple": "a list",
    "a valid dictionary( or instance of .*)?": "a section",
    "a valid string": "text",
    "a valid integer(, .*)?": "an integer",
    "a valid number(, .*)?": "a number",
    "a valid boolean(, .*)?": "true or false",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
}


def sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Find the models that a field's annotation names."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from sections_in(inner)


def _fields_at(model: type[BaseModel], location: Sequence[str]) -> list[str]:
    """Return the keys of the section that a location within a section leads to."""
    for part in location:
        field = model.model_fields.get(part)
        if field is not None:  # else it names a section among several
            model = next(sections_in(field.annotation))
    return list(model.model_fields)
