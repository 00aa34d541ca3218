"""Parameters of estimators, made from the options of their jobs, and scikit-learn's checks."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter, Signature
from textwrap import indent
from typing import Any

import numpy as np
from sklearn.utils import check_random_state, check_X_y, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from distfms.errors import DataError, DistfmsError
from distfms.runs.options_table import key_meanings
from distfms.spec import DataSection, Section

#: Parameters that all estimators have beside the options of their methods.
COMMON = {
    "exclude": "Names or globs of columns of frames and files to leave out.",
    "missing": "What to do with missing values: ``error``, ``drop`` (the row) or ``mean``.",
    "folds": "Cross-validation folds, 0 for none. ``auto`` is 5 where there are 20 rows or "
    "more and the statistics of the folds take up to 256 MiB, otherwise 0.",
    "tune": "Options to try by cross-validation: lists of values by parameter, or the section "
    "``tune`` of a job, with measure and rule.",
    "random_state": "Seed of all random streams.",
    "n_jobs": "Partitions to process in parallel; by default the number of cores.",
    "verbose": "Print the progress of the job.",
}


def signature_of(
    options: type[Section],
    first: Sequence[str],
    defaults: Mapping[str, Any],
    left_out: Sequence[str],
) -> Signature:
    """Return the signature of an estimator's constructor.

    Parameters
    ----------
    options : type
        Model of the section of the method, whose defaults hold; what is no plain value is None.
    first : sequence of str
        Options that may be given by position.
    defaults : mapping
        Other defaults, and parameters that are no options of the job.
    left_out : sequence of str
        Options that are no parameters.
    """
    defaults_of: dict[str, Any] = {}
    for name in (*first, *options.model_fields):
        option = options.model_fields[name]
        plain = isinstance(option.default, str | int | float) or option.default == ()
        defaults_of[name] = option.default if plain else None
        if option.is_required():
            defaults_of[name] = Parameter.empty
    defaults_of |= dict.fromkeys(COMMON)
    for name in ("exclude", "missing", "folds"):
        defaults_of[name] = DataSection.model_fields[name].default
    defaults_of |= {"random_state": 0, "verbose": False, **defaults}
    return Signature(
        [
            Parameter(
                name,
                Parameter.POSITIONAL_OR_KEYWORD if name in first else Parameter.KEYWORD_ONLY,
                default=value,
            )
            for name, value in defaults_of.items()
            if name not in left_out
        ]
    )


def described(signature: Signature, options: type[Section], more: Mapping[str, str]) -> str:
    """Return the section ``Parameters`` of a docstring."""
    meanings = {**key_meanings(options), **COMMON, **more}
    lines = ["Parameters", "----------"]
    for name, parameter in signature.parameters.items():
        default = "" if parameter.default is Parameter.empty else f", default={parameter.default!r}"
        lines += [f"{name}{default}", indent(meanings.get(name, ""), "    ")]
    return "\n".join(lines)


def plain(value: Any) -> Any:
    """Return a value of a parameter as a spec has it, without arrays and numbers of numpy."""
    if isinstance(value, Mapping):
        return {name_of(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def name_of(key: Any) -> str:
    """Return the key of a mapping as a spec has it: True is class 1, and so is 1.0."""
    is_whole = isinstance(key, float) and key.is_integer()
    return str(int(key)) if is_whole or isinstance(key, bool) else str(key)


@contextmanager
def in_words_of_python(method: str) -> Iterator[None]:
    """Say errors of a job by the names of parameters."""
    try:
        yield
    except DistfmsError as error:
        raise type(error)(said(str(error), method)) from error


_WORDS = {"true": "True", "false": "False", "null": "None"}


def said(text: str, method: str) -> str:
    """Write a message about a job spec as one about parameters."""
    text = re.sub(rf"`(?:data|tune|engine|{method})\.(\w)", r"`\1", text)
    text = re.sub(rf"(?:section )?`(?:data|tune|engine|{method})`: ", "", text)
    text = re.sub(r"\b[Ii]n the job spec, (?:section )?", "", text)
    text = text.replace("The job spec is missing the key", "There is no value for")
    text = re.sub(r" `distfms options \w+( --all)?` lists the keys\.", "", text)
    text = re.sub(r"Unknown key (`\S+`) in the job spec", r"Unknown parameter \1", text)
    text = re.sub(r" in the data section\b", "", text)
    return re.sub(r"`(\w+): ([^`]*)`", _assignment, text)


def _assignment(match: re.Match[str]) -> str:
    name, value = match.groups()
    words = re.sub(r"[A-Za-z_][\w.]*", lambda w: _WORDS.get(w[0], repr(w[0])), value)
    return f"`{name}={words}`"


# --- what scikit-learn expects of targets, columns and common parameters ---


def target_names(y: Any) -> list[str]:
    """Names of targets: those of a frame or series, otherwise ``y`` or ``y0``, ``y1``, …."""
    if hasattr(y, "columns"):
        return [str(label) for label in y.columns]
    if isinstance(getattr(y, "name", None), str) and not hasattr(y, "chunks"):
        return [y.name]
    shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    return [f"y{i}" for i in range(shape[1])] if len(shape) == 2 and shape[1] > 1 else ["y"]


def checked_target(estimator: Any, y: Any, n_rows: int) -> np.ndarray:
    """Check a target in memory as scikit-learn does."""
    tags = get_tags(estimator)
    is_class = tags.estimator_type == "classifier"
    if is_class:
        y = as_stored(y)
    else:
        tell_classes(estimator, y)
    checks = {"multi_output": tags.target_tags.multi_output, "y_numeric": not is_class}
    _, y = check_X_y(np.zeros((n_rows, 1)), y, estimator=estimator, **checks)
    if is_class:
        check_classification_targets(y)
        if len(classes := np.unique(y)) < 2:
            (only,) = classes.tolist()
            raise DataError(f"The target holds 1 class, {only!r}; at least 2 are needed.")
    checked: np.ndarray = y
    return checked


def as_stored(y: Any) -> Any:
    """Return classes of pandas, and truths among objects, with the type of their values.

    scikit-learn makes floats of nullable integers and of truths, also of those in categories.
    """
    if not hasattr(y, "dtype"):
        return y
    values = getattr(y.dtype, "categories", y)
    dtype = values.dtype
    kind = getattr(dtype, "kind", "")  # polars has none
    is_changed = kind == "b"
    if kind == "O" and len(values):
        is_changed = all(isinstance(value, bool | np.bool_) for value in values)
    elif kind in ("i", "u"):
        is_changed = not isinstance(dtype, np.dtype)
    if not is_changed or getattr(y, "hasnans", False):
        return y
    listed = y.tolist() if hasattr(y, "tolist") else list(y)
    return np.asarray(listed)


def tell_classes(estimator: Any, y: Any) -> None:
    """Refuse texts as the target of a regressor, and warn of two classes."""
    values = np.asarray(y)
    classifier = getattr(estimator, "_classifier", "")
    name = type(estimator).__name__
    is_text = values.dtype.kind in "US"
    if values.dtype.kind in "OT" and values.size:
        is_text = any(isinstance(value, str) for value in values.ravel()[:100].tolist())
    if is_text:
        instead = f"use {classifier}" if classifier else "give a number for each class"
        raise DataError(f"The target holds texts, and {name} predicts numbers: {instead}.")
    if not classifier or values.ndim != 1 or values.dtype.kind not in "buif":
        return
    if values.dtype.kind == "b" or (np.isin(values, (0, 1)).all() and np.ptp(values) == 1):
        low = values.min()
        high = values.max()
        warnings.warn(
            f"The target holds two values, {low} and {high}, which {name} predicts as numbers. If "
            f"they are classes, use {classifier}.",
            UserWarning,
            stacklevel=2,
        )


def check_columns(
    estimator: Any, names: Sequence[str], named: bool, *, reset: bool = False
) -> None:
    """Set or check number and names of an estimator's columns, as scikit-learn does."""
    head: Any = np.empty((0, len(names)))
    if named:
        import pandas as pd

        head = pd.DataFrame(head, columns=list(names))
    validate_data(estimator, head, reset=reset, skip_check_array=True)


def seed_of(random_state: Any) -> int:
    """Return the seed that a state stands for."""
    if random_state is None:
        return 0
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
