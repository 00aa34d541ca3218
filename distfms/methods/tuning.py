"""Options chosen by cross-validation: the grid, its checks, the rules of the choice.

It knows no method: what may be tried, and by which measures, a method says
(:class:`distfms.methods.contract.Method`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from distfms.errors import DataError, SpecError, nearest
from distfms.report.formatting import options_text
from distfms.spec import Section, TuneSection, parse_section
from distfms.stats.fold_means import over_folds

if TYPE_CHECKING:
    from distfms.methods.contract import Method

Rule = Literal["best", "one_standard_error"]
Point = dict[str, Any]

#: Most points times folds of a grid. A small evaluation takes a hundredth of a second, a large one
#: minutes: more than this is a slip or wants a coarser grid first.
MOST_EVALUATIONS = 10_000


def grid_points(grid: Mapping[str, Sequence[Any]]) -> list[Point]:
    """List every combination of the values, the last option varying fastest."""
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def options_to_tune(method: Method, content: Any, tune: TuneSection) -> Section:
    """Read a method's section whose options are to be tuned; raises SpecError as `parse_section`.

    An option that has to be given, or is chosen by itself, and is tuned instead has the first of
    its values, until one is chosen.
    """
    if content is not None and not isinstance(content, Mapping):
        return parse_section(method.Options, content, method.name)
    fields = method.Options.model_fields
    added = {
        name: values[0]
        for name, values in tune.grid.items()
        if name in fields
        and (fields[name].is_required() or fields[name].default == "auto")
        and name not in (content or {})
    }
    try:
        return parse_section(method.Options, {**(content or {}), **added}, method.name)
    except SpecError as error:
        named = [name for name in added if f"`{method.name}.{name}`" in str(error)]
        raise renamed(error, method.name, named[0], 0) if named else error from error


def checked_grid(method: Method, options: Section, tune: TuneSection, n_folds: int) -> TuneSection:
    """Check a grid against the method's section, value by value and combination by combination.

    Return it with the values as the section's model reads them, and the measure filled in. A
    SpecError names the option or the value, as ``tune.grid.ridge[1]``.
    """
    if n_folds < 2:
        raise SpecError(
            "`tune` compares by cross-validation and needs `data.folds` of at least 2; it is "
            f"{n_folds}."
        )
    for name in tune.grid:
        _require_tunable(method, name)
    n_points = math.prod(len(values) for values in tune.grid.values())
    if n_points * n_folds > MOST_EVALUATIONS:
        raise SpecError(
            f"`tune.grid` has {n_points:,} points, which are {n_points * n_folds:,} evaluations "
            f"on {n_folds} folds; at most {MOST_EVALUATIONS:,} are done. Try fewer values, and "
            "finer ones around the best in a second run."
        )
    content = options.model_dump(mode="json")
    grid = {
        name: tuple(_read(method, content, name, i, value) for i, value in enumerate(values))
        for name, values in tune.grid.items()
    }
    for name, values in grid.items():
        _refuse_repeated(name, values)
    for point in grid_points(grid):
        _read_point(method, content, point)
    measure = _measure(method, tune.measure)
    return tune.model_copy(update={"grid": grid, "measure": measure})


def _require_tunable(method: Method, name: str) -> None:
    if name in method.tunable:
        return
    if name not in method.Options.model_fields:
        raise SpecError(
            f"`tune.grid.{name}` is no option of `{method.name}`.{nearest(name, method.tunable)}"
        )
    reason = method.not_tunable.get(name, "the cross-validation does not depend on it")
    raise SpecError(
        f"`tune.grid.{name}` cannot be tuned: {reason}. What can: {', '.join(method.tunable)}."
        if method.tunable
        else f"`tune`: the method {method.name} has no options to tune."
    )


def _read(method: Method, content: Mapping[str, Any], name: str, place: int, value: Any) -> Any:
    where = f"tune.grid.{name}[{place}]"
    if isinstance(value, bool) != isinstance(content[name], bool):
        raise SpecError(f"In the job spec, `{where}` is {value!r}, which `{name}` cannot be.")
    try:
        options = parse_section(method.Options, {**content, name: value}, method.name)
    except SpecError as error:
        raise renamed(error, method.name, name, place) from error
    return getattr(options, name)


def renamed(error: SpecError, method: str, name: str, place: int) -> SpecError:
    """Reword an error about an option as one about a value to try."""
    where = f"tune.grid.{name}[{place}]"
    text, option = str(error), f"`{method}.{name}`"
    if option in text:
        return SpecError(text.replace(option, f"`{where}`"))
    return SpecError(f"With `{where}`: {text}")


def _read_point(method: Method, content: Mapping[str, Any], point: Point) -> None:
    try:
        parse_section(method.Options, {**content, **point}, method.name)
    except SpecError as error:
        raise SpecError(f"With `tune` at {options_text(point)}: {error}") from error


def _refuse_repeated(name: str, values: Sequence[Any]) -> None:
    for i, value in enumerate(values):
        if value in values[:i]:
            raise SpecError(
                f"`tune.grid.{name}[{i}]` is {value!r}, as is `tune.grid.{name}"
                f"[{values.index(value)}]`. Name each value once."
            )


def _measure(method: Method, wanted: str | None) -> str:
    known = list(method.measures)
    if wanted is None:
        return known[0]
    if wanted not in known:
        raise SpecError(
            f"`tune.measure` is {wanted!r}, which {method.name} does not have."
            f"{nearest(wanted, known)}"
        )
    return wanted


# --- the choice ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Choice:
    """What the folds say of every point: mean and standard error (n_points,), and which is taken.

    They are NaN for a point that some fold has no number for. `best` is the first of those with the
    best mean, `chosen` what the rule takes.
    """

    mean: np.ndarray
    standard_error: np.ndarray
    best: int
    chosen: int


def choose(
    values: np.ndarray, weights: Sequence[float], rule: Rule, higher_is_better: bool
) -> Choice:
    """Choose a point of a grid.

    Parameters
    ----------
    values : ndarray of shape (n_points, n_folds)
        Measure of every point on every fold, the points from the simplest on.
    weights : sequence of float, length n_folds
        Weight of the rows of each fold, positive; at least 2 folds.
    rule : {"best", "one_standard_error"}
    higher_is_better : bool
        What the measure says.

    Returns
    -------
    Choice

    Raises
    ------
    DataError
        If no point has a number on every fold.

    Notes
    -----
    Means and standard errors are those of :func:`distfms.stats.fold_means.over_folds`.
    ``one_standard_error`` takes the first point whose mean is not worse than the best mean by more
    than the standard error of the best.

    References
    ----------
    Breiman, Friedman, Olshen, Stone, "Classification and Regression Trees" (1984), Section 3.4.3;
    Hastie, Tibshirani, Friedman, "The Elements of Statistical Learning" (2009), Section 7.10.
    """
    found = over_folds(values, weights)
    # A mean over some folds cannot be compared with one over all.
    whole = found.n_known == values.shape[1]
    mean, error = (np.where(whole, a, np.nan) for a in (found.mean, found.standard_error))
    loss = np.where(np.isfinite(mean), -mean if higher_is_better else mean, np.inf)
    if not np.isfinite(loss).any():
        raise DataError(
            "No point of `tune.grid` could be measured on every fold: some fold has too few rows, "
            "or nothing to explain. Choose fewer folds (`data.folds`)."
        )
    best = int(np.argmin(loss))
    chosen = best
    if rule == "one_standard_error":
        chosen = int(np.argmax(loss <= loss[best] + error[best]))
    return Choice(mean, error, best, chosen)
