"""What the columns of a dataset are for: target, features, weight, query, id and time."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from distfms.errors import DataError, SpecError, nearest

if TYPE_CHECKING:
    import pyarrow as pa

#: Lists of ids of the raters of all attributes, and of one attribute by its name.
OF_ALL = "raters"
OF_ONE = "__raters"

_GLOB = re.compile(r"[*?\[]")
#: What a column is taken for that nothing names.
_INDEX = "the index of a frame"

_INDEX_LEVEL = re.compile(r"__index_level_\d+__")


@dataclass(frozen=True)
class Roles:
    """Column names by role; `features` are in their final order.

    `text_features` and `text_targets` are those of them that are categories.
    """

    target: tuple[str, ...]
    features: tuple[str, ...]
    weight: str | None = None
    query: str | None = None
    id: str | None = None
    time: str | None = None
    text_features: tuple[str, ...] = ()
    text_targets: tuple[str, ...] = ()

    def with_row_columns(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return names of columns and those of what goes with every row: weight, query and id."""
        of_rows = (self.weight, self.query, self.id)
        return tuple(dict.fromkeys((*names, *(name for name in of_rows if name is not None))))

    @property
    def fold_key(self) -> str | None:
        """Column whose value decides the fold: the query if there is one, else the id.

        A ranking cannot be judged when its rows are scattered over folds.
        """
        return self.query or self.id


def resolve_roles(
    schema: pa.Schema,
    *,
    target: str | Sequence[str] | None,
    features: str | Sequence[str] = ("*",),
    globs: bool = True,
    exclude: str | Sequence[str] = (),
    weight: str | None = None,
    query: str | None = None,
    id: str | None = None,
    time: str | None = None,
    judgments: bool = False,
    classes: bool = False,
) -> Roles:
    """Resolve names and globs to the columns of a schema.

    Parameters
    ----------
    schema : pyarrow.Schema
    target : str, sequence of str or None
        Names of numeric columns; None or empty where there is nothing to predict.
    features, exclude : str or sequence of str
        Names or globs (``*``, ``?``, ``[…]``; case counts). A name wins over a glob, but ``*`` is
        always every column; one of that name alone is ``[*]``. Features keep the order of the
        patterns, and the order of the schema within a pattern. A glob passes over columns that
        have another role, and over the index of a pandas frame.
    globs : bool, default=True
        False where `features` are names alone, as those of a trained model.
    weight, query, id, time : str, optional
        Column names.
    judgments : bool, default=False
        Whether features may be lists of numbers.
    classes : bool, default=False
        Whether targets may be text, which names classes.

    Returns
    -------
    Roles

    Raises
    ------
    SpecError
        If a column is given two roles or named twice, or no feature is left.
    DataError
        If a column does not exist (the message names the nearest one) or its type does not fit
        its role.
    """
    targets = (target,) if isinstance(target, str) else tuple(target or ())
    single = {"weight": weight, "query": query, "id": id, "time": time}
    named = [("target", name) for name in targets]
    named += [(role, name) for role, name in single.items() if name is not None]
    _check_named(schema, named)
    taken = {name: role for role, name in named}
    if judgments:
        columns = rater_columns(schema).values()
        taken |= {name: "the ids of raters" for name in columns if name not in taken}
    patterns = (features,) if isinstance(features, str) else tuple(features)
    excluded = (exclude,) if isinstance(exclude, str) else tuple(exclude)
    if not globs:
        require_columns(schema, patterns, "a feature")
    for name in index_columns(schema):
        taken.setdefault(name, _INDEX)
    chosen = _choose_features(schema.names, patterns, excluded, taken, globs)
    texts = {name for name in (*chosen, *targets) if is_categorical(schema.field(name).type)}
    for name in targets:
        if not (classes and name in texts):
            _require_number(schema, name, "target")
    if weight is not None:
        _require_number(schema, weight, "weight")
    for name in chosen:
        if judgments or name not in texts:
            _require_feature(schema, name, judgments)
    text_features = tuple(name for name in chosen if name in texts)
    text_targets = tuple(name for name in targets if name in texts)
    return Roles(targets, chosen, weight, query, id, time, text_features, text_targets)


def require_columns(schema: pa.Schema, names: Iterable[str], role: str = "column") -> None:
    """Check that columns exist; `role` says what for in the message."""
    columns = set(schema.names)
    for name in names:
        if name not in columns:
            raise _no_column(name, role, schema.names)


def _no_column(name: str, role: str, names: Iterable[str]) -> DataError:
    return DataError(f"The data have no column {name!r}, named as {role}.{nearest(name, names)}")


def require_same_kinds(
    schema: pa.Schema, held_out: pa.Schema, columns: Iterable[str], path: str
) -> None:
    """Check that held-out data at `path` hold columns of the same kind as the training data."""
    names = set(held_out.names)
    for name in columns:
        if name not in names:
            raise DataError(
                f"The held-out data {path} have no column {name!r}, which the training data have."
                f"{nearest(name, held_out.names)}"
            )
        expected = schema.field(name).type
        actual = held_out.field(name).type
        if _kind(expected) != _kind(actual):
            raise DataError(
                f"The column {name!r} of the held-out data {path} holds {actual}, but {expected} "
                "in the training data. Convert it."
            )


def _kind(dtype: pa.DataType) -> str:
    """Name what values of a type are used as."""
    kinds = {"number": is_number, "list of numbers": is_number_list, "category": is_categorical}
    return next((kind for kind, holds in kinds.items() if holds(dtype)), str(dtype))


def is_number(dtype: pa.DataType) -> bool:
    """Whether values of a type are taken as numbers: integers, floats, decimals, booleans."""
    import pyarrow.types as pat

    tests = (pat.is_integer, pat.is_floating, pat.is_boolean, pat.is_decimal)
    return any(holds(dtype) for holds in tests)


def is_categorical(dtype: pa.DataType) -> bool:
    """Whether values of a type are taken as categories: strings and dictionaries."""
    import pyarrow.types as pat

    tests = (pat.is_string, pat.is_large_string, pat.is_string_view, pat.is_dictionary)
    return any(holds(dtype) for holds in tests)


def is_list(dtype: pa.DataType) -> bool:
    """Whether values of a type are lists."""
    import pyarrow.types as pat

    return pat.is_list(dtype) or pat.is_large_list(dtype) or pat.is_fixed_size_list(dtype)


def is_number_list(dtype: pa.DataType) -> bool:
    """Whether values of a type are lists of numbers."""
    return is_list(dtype) and is_number(dtype.value_type)


def plain_type(dtype: pa.DataType) -> pa.DataType:
    """Return a type with text as `pa.string()`, however it is stored, and lists of text so too.

    Dictionaries, offsets of 64 bits and views do not matter to whoever reads text, but arrays of
    two of these types can neither be joined nor compared.
    """
    import pyarrow as pa
    import pyarrow.types as pat

    if pat.is_large_string(dtype) or pat.is_string_view(dtype):
        return pa.string()
    if pat.is_dictionary(dtype) and pat.is_string(plain_type(dtype.value_type)):
        return pa.string()
    if is_list(dtype) and pat.is_string(plain_type(dtype.value_type)):
        return pa.list_(pa.string())
    return dtype


def _check_named(schema: pa.Schema, named: Sequence[tuple[str, str]]) -> None:
    seen: dict[str, str] = {}
    for role, name in named:
        require_columns(schema, [name], f"`{role}`")
        if name in seen:
            twice = f"twice as {role}" if seen[name] == role else f"as {seen[name]} and as {role}"
            raise SpecError(f"The column {name!r} is named {twice}: give it one role.")
        seen[name] = role


def _choose_features(
    names: Iterable[str],
    patterns: Sequence[str],
    excluded: Sequence[str],
    taken: dict[str, str],
    globs: bool,
) -> tuple[str, ...]:
    """Resolve the feature patterns, in their order."""
    names = dict.fromkeys(names)  # tables may have many columns
    times = Counter(patterns)
    out = set[str]()
    for pattern in excluded:
        matched = _matching(names, pattern)
        if not matched:  # it would silently exclude nothing
            raise DataError(
                f"`exclude` names {pattern!r}, which matches no column.{nearest(pattern, names)}"
            )
        out.update(matched)
    chosen: dict[str, None] = {}
    for pattern in patterns:
        if not globs or _is_literal(names, pattern):
            _refuse_second_role(pattern, times, out, taken)
            chosen[pattern] = None
            continue
        matched = _matching(names, pattern)
        if not matched and not _GLOB.search(pattern):
            raise _no_column(pattern, "a feature", names)
        if not matched:
            raise DataError(f"The pattern {pattern!r} in `features` matches no column.")
        chosen.update(dict.fromkeys(n for n in matched if n not in taken and n not in out))
    if not chosen:
        raise SpecError(
            "No feature column is left after removing target, id, weight and excluded columns: "
            "check `features` and `exclude`."
        )
    return tuple(chosen)


def _is_literal(names: Collection[str], pattern: str) -> bool:
    """Return whether a pattern is a column's name, which may hold brackets; ``*`` is always all."""
    return pattern in names and pattern != "*"


def _matching(names: Collection[str], pattern: str) -> list[str]:
    if _is_literal(names, pattern):
        return [pattern]
    return [name for name in names if fnmatchcase(name, pattern)]


def _refuse_second_role(
    name: str, times: Counter[str], out: set[str], taken: dict[str, str]
) -> None:
    """Refuse a feature given by its name that is named for anything else."""
    if taken.get(name, _INDEX) != _INDEX:
        raise SpecError(
            f"The column {name!r} is named as a feature and as {taken[name]}: give it one role."
        )
    if name in out:
        raise SpecError(f"The column {name!r} is both in `features` and excluded: remove one.")
    if times[name] > 1:
        raise SpecError(f"The column {name!r} is twice in `features`: name it once.")


def _require_number(schema: pa.Schema, name: str, role: str) -> None:
    """Refuse a column that must hold numbers and does not."""
    import pyarrow.types as pat

    dtype = schema.field(name).type
    if pat.is_null(dtype):
        raise DataError(f"All values of the {role} column {name!r} are missing.")
    if not is_number(dtype):
        classes = (
            "; if it names classes, take the method `sequence` or `landmarks`, without `family` "
            "and `task`"
        )
        raise DataError(
            f"The {role} column {name!r} holds {dtype}, but must hold numbers: "
            f"convert it or name another column{classes if role == 'target' else ''}."
        )


def _require_feature(schema: pa.Schema, name: str, judgments: bool) -> None:
    """Refuse a feature column, no category, of a type that gives no numbers."""
    import pyarrow.types as pat

    dtype = schema.field(name).type
    advice = f"Convert it, or leave it out with `exclude: [{name}]`."
    if pat.is_null(dtype):
        raise DataError(f"All values of the feature column {name!r} are missing. {advice}")
    if not (is_number(dtype) or (judgments and is_number_list(dtype))):
        kinds = "numbers or lists of numbers" if judgments else "a number or category in each row"
        raise DataError(
            f"The feature column {name!r} holds {dtype}, but must hold {kinds}. {advice}"
        )


def rater_columns(schema: pa.Schema) -> dict[str, str]:
    """Return the columns of rater ids by attribute; that of all attributes under its own name."""
    import pyarrow.types as pat

    bases = {name.rpartition("__")[0] for name in schema.names if not name.endswith(OF_ONE)}
    columns = {}
    for name in schema.names:
        dtype = schema.field(name).type
        attribute = name.removesuffix(OF_ONE)
        named = name == OF_ALL or (name != attribute and attribute in {*schema.names, *bases})
        if not (named and is_list(dtype)):
            continue
        held = dtype.value_type
        if is_number(held) or is_categorical(held) or pat.is_null(held):
            columns[attribute] = name
    return columns


def index_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that pandas wrote the index of a frame to, as the metadata say."""
    try:
        named = (schema.pandas_metadata or {}).get("index_columns", ())
    except ValueError:  # no JSON
        named = ()
    return tuple(name for name in schema.names if name in named or _INDEX_LEVEL.fullmatch(name))


def index_metadata(schema: pa.Schema) -> dict[str, str] | None:
    """Return metadata that say which columns hold an index, and nothing else."""
    index = index_columns(schema)
    return {"pandas": json.dumps({"index_columns": index})} if index else None
