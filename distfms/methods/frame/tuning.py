"""Options chosen by cross-validation: the points of a grid, and the choice among them.

Statistics do not depend on the options that can be tuned, and all that follows is what a run with
the chosen options alone would do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Literal

import numpy as np

from distfms.errors import DataError, SpecError, nearest
from distfms.methods import load_method
from distfms.methods.frame.choose import InTurn, Rule, best, chosen_without, fewest
from distfms.methods.frame.contract import Job, Method, Run
from distfms.methods.frame.cross_validation import FoldWork
from distfms.methods.frame.moments import points_on_folds
from distfms.report.formatting import as_number, option_text, options_text
from distfms.spec import Grid, Section, TuneSection, parse_section
from distfms.stats.base import Bundle, number_or_none, over_folds
from distfms.stats.folds import FoldAnswers

ChoiceRule = Literal["best", "one_standard_error"]
Point = dict[str, Any]

#: Folds that `data.folds: auto` stands for where it stands for any.
AUTO_FOLDS = 5
#: Most points times folds of a grid. A small evaluation takes a hundredth of a second, a large one
#: minutes: more than this is a slip or wants a coarser grid first.
MOST_EVALUATIONS = 10_000


def grid_points(grid: Grid) -> list[Point]:
    """List every combination of the values, the last option varying fastest."""
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def options_to_tune(method: Method, content: Any, tune: TuneSection) -> Section:
    """Read a method's section whose options are to be tuned; raises SpecError as `parse_section`.

    An option that has to be given, or is chosen by itself, and is tuned instead has the first of
    its values, until one is chosen; a number of things has the greatest, which holds the others.
    """
    if content is not None and not isinstance(content, Mapping):
        return parse_section(method.Options, content, method.name)
    options = dict(content or {})
    tried = {}
    for name, values in tune.grid.items():
        field = method.Options.model_fields.get(name)
        if field is None or name in options:
            continue
        if field.is_required() or field.default == "auto":
            are_counts = all(isinstance(value, int) for value in values)
            options[name] = max(values) if are_counts else values[0]
            tried[name] = f"tune.grid.{name}[{values.index(options[name])}]"
    with _as_tried(method.name, tried):
        return parse_section(method.Options, options, method.name)


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
            f"`tune.grid` has {n_points:,} points, that is {n_points * n_folds:,} evaluations on "
            f"{n_folds} folds; at most {MOST_EVALUATIONS:,} are allowed. Try fewer values, then "
            "finer ones around the best in a second run."
        )
    content = options.model_dump(mode="json")
    grid = {}
    for name, values in tune.grid.items():
        grid[name] = tuple(
            _read(method, content, name, place, value) for place, value in enumerate(values)
        )
    for point in grid_points(grid):
        try:
            parse_section(method.Options, {**content, **point}, method.name)
        except SpecError as error:
            raise SpecError(f"With `tune` at {options_text(point)}: {error}") from error
    measure = tune.measure or next(iter(method.measures))
    if measure not in method.measures:
        raise SpecError(
            f"`tune.measure` is {measure!r}, which {method.name} does not have."
            f"{nearest(measure, method.measures)}"
        )
    return tune.model_copy(update={"grid": grid, "measure": measure})


def _require_tunable(method: Method, name: str) -> None:
    if name in method.tunable:
        return
    if name not in method.Options.model_fields:
        raise SpecError(
            f"`tune.grid.{name}` is not an option of "
            f"`{method.name}`.{nearest(name, method.tunable)}"
        )
    raise SpecError(
        f"`tune.grid.{name}` cannot be tuned. Choose from {', '.join(method.tunable)}, or run a "
        "job for each value."
    )


def _read(method: Method, content: Mapping[str, Any], name: str, place: int, value: Any) -> Any:
    key = f"tune.grid.{name}[{place}]"
    if isinstance(value, bool) != isinstance(content[name], bool):
        raise SpecError(f"In the job spec, `{key}` is {value!r}, which `{name}` cannot be.")
    with _as_tried(method.name, {name: key}):
        options = parse_section(method.Options, {**content, name: value}, method.name)
    return getattr(options, name)


@contextmanager
def _as_tried(method: str, keys: Mapping[str, str]) -> Iterator[None]:
    """Reword errors about options as errors about the values to try, which have these keys."""
    try:
        yield
    except SpecError as error:
        text = str(error)
        for name, key in keys.items():
            text = text.replace(f"`{method}.{name}`", f"`{key}`")
        if text == str(error) and len(keys) == 1:
            (key,) = keys.values()
            text = f"With `{key}`: {text}"
        raise SpecError(text) from error


# --- the choice ---------------------------------------------------------------------------------

RULES: Mapping[ChoiceRule, Rule] = {"best": best, "one_standard_error": fewest}
"""Rules of `tune.rule`, which choose among the points of a grid."""


@dataclass(frozen=True, eq=False)
class Compared:
    """What folds say of points.

    Attributes
    ----------
    points : sequence of Point
        From the simplest on.
    on_folds : FoldAnswers
    values : ndarray of shape (n_points, n_folds)
        Measure of every point on every fold.
    higher_is_better : bool
        What the measure says.
    """

    points: Sequence[Point]
    on_folds: FoldAnswers
    values: np.ndarray
    higher_is_better: bool

    def choice(self, rule: Rule) -> dict[str, Any]:
        """Choose a point; return entries of ``tuning.json``.

        Raises
        ------
        DataError
            If no point has a number on every fold.
        """
        sign = -1.0 if self.higher_is_better else 1.0
        weights = self.on_folds.weight
        chosen = rule(sign * self.values, np.array(weights))
        means = over_folds(self.values, weights)
        is_whole = means.n_known == self.values.shape[1]
        mean = np.where(is_whole, means.mean, np.nan)
        error = np.where(is_whole, means.standard_error, np.nan)
        least = int(np.nanargmin(sign * mean))
        entries = []
        for number, point in enumerate(self.points):
            entry = {
                "options": point,
                "folds": [number_or_none(value) for value in self.values[number]],
                "mean": number_or_none(mean[number]),
                "standard_error": number_or_none(error[number]),
                "best": number == least,
                "chosen": number == chosen,
            }
            entries.append(entry)
        folds = zip(self.on_folds.folds, self.on_folds.n_rows, strict=True)
        return {
            "higher_is_better": self.higher_is_better,
            "chosen": self.points[chosen],
            "folds": [{"fold": fold, "n_rows": n_rows} for fold, n_rows in folds],
            "points": entries,
        }


@dataclass(frozen=True)
class LeftOpen:
    """What each point of a grid leaves open, and chooses for itself.

    Attributes
    ----------
    candidates : callable
        Options → points of what they leave open, one that has all of them where it is nothing.
    rule : callable
        From these points to the rule that chooses among them.
    """

    candidates: Callable[[Any], Sequence[Point]]
    rule: Callable[[Sequence[Point]], Rule]


def losses_without_choice(
    comparison: Mapping[str, Any],
    weights: Sequence[float],
    rule_of: Callable[[Sequence[Point]], Rule],
) -> np.ndarray:
    """Return the loss on each fold of what all the other folds choose, shape (n_folds,).

    `comparison` is what `choose_options` returns, or the same of what options left open alone;
    `rule_of` is that of a `LeftOpen`.
    """
    points = comparison["points"]
    losses = np.array([point["folds"] for point in points], dtype=np.float64)
    tried = [point["options"] for point in points]
    among = RULES[comparison["rule"]]
    rule = rule_in_turn(tried, comparison["tuned"], LeftOpen(list, rule_of), among)
    choices = chosen_without(losses, weights, rule)
    of_folds: np.ndarray = losses[choices, np.arange(losses.shape[1])]
    return of_folds


def rule_in_turn(
    points: Sequence[Point], tuned: Collection[str], left_open: LeftOpen | None, among: Rule
) -> Rule:
    """Return the rule that chooses what points with the same tuned options leave open, first."""
    if left_open is None:
        return among
    if not tuned:
        return left_open.rule(points)
    groups: dict[str, list[int]] = {}
    for number, point in enumerate(points):
        key = options_text({name: point[name] for name in tuned})
        groups.setdefault(key, []).append(number)
    numbers = [tuple(group) for group in groups.values()]
    within = []
    for group in numbers:
        untuned = [_without(points[number], tuned) for number in group]
        within.append(left_open.rule(untuned))
    return InTurn(tuple(numbers), tuple(within), among)


def _without(point: Mapping[str, Any], names: Collection[str]) -> Point:
    return {name: value for name, value in point.items() if name not in names}


#: Options, and the content of ``tuning.json`` or None where nothing was compared.
ChosenOptions = tuple[Any, dict[str, Any] | None]


def tuned_job(method: Method, job: Job, tune: TuneSection) -> Job:
    """Return a job that chooses options by a checked grid, whose values fit the data.

    Raises
    ------
    SpecError
        Naming the value, as ``tune.grid.ridge[1]``, or why there is no cross-validation.
    """
    if job.untunable is not None:
        raise SpecError(job.untunable)
    if job.tuned_by is not None and tune.measure not in job.tuned_by:
        raise SpecError(
            f"`tune.measure` is {tune.measure}, which models of this task and loss do not have; "
            f"they have {', '.join(job.tuned_by)}."
        )
    for name, values in tune.grid.items():
        for place, value in enumerate(values):
            with _as_tried(job.name, {name: f"tune.grid.{name}[{place}]"}):
                _check_value(method, job, name, value)
    return replace(job, tune=tune)


def _check_value(method: Method, job: Job, name: str, value: Any) -> None:
    options = job.options.changed(**{name: value})
    changed = method.make_job(options, job.inputs, job.seed)
    if changed.untunable is not None:
        raise SpecError(changed.untunable)
    if method.check_tried is not None:
        method.check_tried(name, changed, job)


def tuned_in_words(job: Job) -> str:
    """Return what the grid of a spec tries, for `check` and before a run."""
    assert job.tune is not None
    n_points = len(grid_points(job.tune.grid))
    rule = "the best" if job.tune.rule == "best" else "the simplest that is not clearly worse"
    # What points leave open they may choose for themselves.
    at_least = "at least " if job.candidates(job.options) else ""
    return (
        f"{_grid_in_words(job.tune.grid)}: {n_points:,} points on {job.n_folds} folds, "
        f"{at_least}{job.n_tried * job.n_folds:,} evaluations; {rule} by {job.tune.measure}"
    )


def candidates_in_words(job: Job) -> str:
    """Return what folds choose from where the spec leaves it open."""
    tuned = () if job.tune is None else job.tune.grid
    untuned = [_without(grid, tuned) for grid in job.candidates(job.options)]
    grids = [grid for grid in untuned if grid]
    if not grids:
        return "none: the spec says all"
    n_candidates = sum(len(grid_points(grid)) for grid in grids)
    listed = " | ".join(_grid_in_words(grid) for grid in grids)
    if job.n_folds < 2:
        return f"{n_candidates:,}, without folds: {listed}"
    n_fits = n_candidates * (job.n_folds + job.n_pairs)
    pairs = f" and {job.n_pairs} pairs of them" if job.n_pairs else ""
    folds = f"{job.n_folds} folds{pairs}"
    return f"{folds} × {n_candidates:,} candidates, up to {n_fits:,} fits: {listed}"


def passes_in_words(job: Job) -> str:
    """Return how often a job reads its rows."""
    fewest, most = job.passes
    if most is None:
        return f"{fewest} or more"
    return str(most) if fewest == most else f"{fewest} to {most}"


def _grid_in_words(grid: Grid) -> str:
    options = []
    for name, values in grid.items():
        texts = ", ".join(option_text(value) for value in values)
        options.append(f"{name} {texts}")
    return "; ".join(options)


def choose_options(
    run: Run,
    job: Job,
    statistics: Bundle,
    procedure_of: Callable[[Any], Any],
    evaluate: Callable[[FoldWork], FoldAnswers] | None = None,
    left_open: LeftOpen | None = None,
) -> ChosenOptions:
    """Choose options by cross-validation, where the spec has a grid; step ``tune``.

    Parameters
    ----------
    run : Run
    job : Job
    statistics : Bundle
    procedure_of : callable
        Options → the pure part with these.
    evaluate : callable, optional
        Evaluates work on folds; by default on actors, of these statistics.
    left_open : LeftOpen, optional
        What each point chooses for itself.

    Returns
    -------
    options : Section
        Those of the job, or with those of the chosen point.
    tuning : dict, or None without a grid
        Content of ``tuning.json``.
    """
    if job.tune is None:
        return job.options, None
    answers = partial(points_on_folds, run, job, statistics, procedure_of, evaluate=evaluate)
    tuning = run.step("tune", lambda: _compared_points(run, job, answers, left_open))
    return job.options.changed(**tuning["chosen"]), tuning


def _compared_points(
    run: Run, job: Job, answers: Callable[..., Any], left_open: LeftOpen | None
) -> dict[str, Any]:
    assert job.tune is not None
    tune = job.tune
    points = grid_points(tune.grid)
    if left_open is not None:
        of_points = [left_open.candidates(job.options.changed(**point)) for point in points]
        pairs = zip(points, of_points, strict=True)
        points = [{**point, **candidate} for point, of_point in pairs for candidate in of_point]
    measure = str(tune.measure)
    on_folds, values = answers(points, measure)
    run.account(tuning={"fits": on_folds.n_done})
    _require_folds(run, job.n_folds, len(on_folds.folds))
    higher_is_better = load_method(job.name).measures[measure]
    rule = rule_in_turn(points, tune.grid, left_open, RULES[tune.rule])
    choice = Compared(points, on_folds, values, higher_is_better).choice(rule)
    run.note(
        f"Chosen by cross-validation among {len(points):,} points: "
        f"{options_text(choice['chosen'])}."
    )
    for name, values_tried in tune.grid.items():
        note_edge(run, name, choice["chosen"][name], values_tried)
    return {"measure": measure, "rule": tune.rule, "tuned": list(tune.grid), **choice}


def _require_folds(run: Run, n_folds: int, n_usable: int) -> None:
    """Tell of folds that cannot be used; two must be left."""
    if n_usable < n_folds:
        run.note(
            f"{n_folds - n_usable} of {n_folds} folds are ignored in tuning: they or the "
            "others have fewer than two rows, or the target of the others is constant. Choose "
            "fewer folds."
        )
    if n_usable < 2:
        raise DataError(
            f"Only {n_usable} of {n_folds} folds can be used, too few to tune by: a fold needs "
            "two rows or more, and the others as many and a target that varies. Choose fewer "
            "folds (`data.folds`) or add rows."
        )


def note_edge(run: Run, name: str, value: Any, tried: Sequence[Any]) -> None:
    """Tell the user that the chosen number is the least or the greatest of three or more."""
    numbers = sorted({v for v in tried if as_number(v) is not None})
    if len(numbers) > 2 and value in (numbers[0], numbers[-1]) and value != 0:
        run.note(
            f"`{name}` is {value:g}, at the end of the values tried ({numbers[0]:g} to "
            f"{numbers[-1]:g}): values beyond it may be better. Add some to `tune.grid`."
        )
