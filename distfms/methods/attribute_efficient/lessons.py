"""Lessons, an algorithm on some examples, and what they are worth: pure functions of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from itertools import groupby
from typing import Any, Protocol

import numpy as np

from distfms.errors import DataError
from distfms.methods.attribute_efficient.candidates import constant_of
from distfms.methods.attribute_efficient.draws import Draws, drawing_weights, smoothed
from distfms.methods.attribute_efficient.from_pairs import (
    FoldPairs,
    Learned,
    Units,
    full_candidates,
    lasso_candidates,
    ridge_candidates,
    solve,
)
from distfms.methods.attribute_efficient.gaps import solve_gaps
from distfms.methods.attribute_efficient.learner import Chain, Design, Penalty
from distfms.methods.attribute_efficient.options import (
    FULL,
    MOST_CURVES,
    ON_FOLDS,
    AttributeEfficientOptions,
)
from distfms.methods.attribute_efficient.pairs import INNER_FOLDS, Pairs, inner_folds
from distfms.methods.attribute_efficient.read import Ordered
from distfms.methods.frame.contract import FoldAnswers
from distfms.methods.frame.cross_validation import Members
from distfms.methods.frame.curves import number_or_none, points_of
from distfms.stats.base import over_folds
from distfms.stats.comoments import Moments


class Examples(Protocol):
    """Training examples in an order that a key decides."""

    def ordered(self, key: int, fold: int) -> Iterator[Ordered]:
        """Iterate over the examples but those of a fold (−1: none)."""


@dataclass(frozen=True, eq=False)
class Lesson:
    """An algorithm on at most `n_examples`, all but those of a `fold` (−1 for none).

    `name` is that of the algorithm, or of what is no chain: ``pairs`` and ``rows`` are solved on
    folds; ``online`` and ``offline`` observe all attributes within the bound. `key` decides the
    order of the examples and the draws, `units` those that are solved in. With `observes_norm`,
    attributes are divided by what the chain observes.
    """

    design: Design
    key: int
    n_examples: int
    name: str = ""
    fold: int = -1
    units: Units = "deviations"
    observes_norm: bool = False


def learn(lesson: Lesson, examples: Examples) -> Learned:
    """Learn from the examples of a lesson."""
    in_order = _first(lesson.n_examples, examples.ordered(lesson.key, lesson.fold))
    if lesson.name in ON_FOLDS:
        return _on_folds(lesson, list(in_order))
    if lesson.name in FULL:
        return _in_full(lesson, list(in_order))
    key = stream(lesson.key, 0)
    chain = Chain(lesson.design, key)
    for rows, target, order in in_order:
        if lesson.observes_norm and not chain.n_examples and len(order):
            norm = chain.observed_norm(rows, order)
            chain = Chain(replace(lesson.design, norm=norm), key)
        chain.learn(rows, target, order)
    return Learned(
        chain.weights,
        chain.n_examples,
        chain.n_seen,
        chain.probabilities,
        chain.step,
        lesson.design.offset,
        norm=chain.design.norm,
    )


def stream(key: int, number: int) -> int:
    """Return the key of a stream of random numbers among those of a key."""
    return int(np.random.SeedSequence([key, number]).generate_state(1, np.uint64)[0])


def _first(n_examples: int, ordered: Iterator[Ordered]) -> Iterator[Ordered]:
    """Cut a sequence of examples off."""
    for rows, target, order in ordered:
        yield rows, target, order[:n_examples]
        n_examples -= len(order)
        if n_examples <= 0:
            return


def learned_from(
    pairs: Pairs, penalty: Penalty, units: Units = "deviations", takes_gaps: bool = False
) -> Learned:
    """Solve from pairs of attributes; with `takes_gaps` also for rows that lack values."""
    candidates = lasso_candidates if penalty == "lasso" else ridge_candidates
    folds = FoldPairs([*pairs.folds.values()])
    found = solve(folds, candidates, units)
    return replace(found, gaps=solve_gaps(folds, units)) if takes_gaps else found


def _on_folds(lesson: Lesson, found: list[Ordered]) -> Learned:
    """Solve from the pairs that are drawn of the examples, by their number in the order."""
    design, draws = lesson.design, Draws(None, lesson.key)
    if lesson.name == "pairs":
        phases = design.sampling == "two_phase"
        draws = Draws(design.n_draws, lesson.key, phases=phases)
        if phases:
            firsts = [draws.first_moments(x, keys) for x, _, keys in _numbered(found)]
            draws = replace(draws, weights=weights_after(reduce(Moments.merge, firsts)))
        elif design.sampling == "moments" and design.moments is not None:
            draws = replace(draws, weights=drawing_weights(design.moments))
    pairs = Pairs({})
    for values, target, keys in _numbered(found):
        observed = np.vstack([draws.observe(values, keys), target])
        pairs = pairs.merge(Pairs.of(observed, inner_folds(keys)))
    if lesson.name == "pairs":
        return learned_from(pairs, design.penalty, lesson.units)
    return solve(FoldPairs([*pairs.folds.values()]), full_candidates, lesson.units)


def _in_full(lesson: Lesson, found: list[Ordered]) -> Learned:
    """Learn within the bound from all attributes of the examples: row by row, or at once."""
    from distfms.methods.attribute_efficient.full_information import (
        offline_lasso,
        offline_ridge,
        online,
    )

    design, n = lesson.design, sum(len(order) for *_, order in found)
    d, bound, is_lasso = design.n_attributes, design.bound, design.penalty == "lasso"
    scaled = ((rows[own] / design.norm, target[own] - design.offset) for rows, target, own in found)
    if lesson.name == "offline":
        sums = reduce(np.add, (np.vstack([x.T, y]) @ x / n for x, y in scaled))
        solve_within = offline_lasso if is_lasso else offline_ridge
        weights = solve_within(sums[:-1], sums[-1], bound) / design.norm
        return Learned(weights, n, d * n, intercept=design.offset)
    step = design.step_factor * design.in_full(design.n_examples).step()
    weights, total = np.zeros(d), np.zeros(d)
    for x, y in scaled:
        online(x, y, weights, total, is_lasso, step, bound)
    return Learned(total / n / design.norm, n, d * n, step=step, intercept=design.offset)


def _numbered(found: list[Ordered]) -> Iterator[Ordered]:
    """Iterate over values (d, n), targets and numbers of examples in their order."""
    start = 0
    for rows, target, order in found:
        numbers = np.arange(start, start + len(order), dtype=np.uint64)
        yield rows[order].T, target[order], numbers
        start += len(order)


def weights_after(first: Moments) -> np.ndarray:
    """Return the weights of draws after a first phase."""
    return drawing_weights(smoothed(first.weight * first.second_moment, first.weight))


def design_of(
    options: AttributeEfficientOptions,
    members: Members,
    n_examples: int | None = None,
    in_full: bool = False,
) -> Design:
    """Return what a chain learns, from statistics of its rows.

    The norm is 1 where a chain observes it, unless rows are observed `in_full`. A DataError says
    that targets are beyond the bound.
    """
    moments, n_rows = members["moments"], members["counts"].n_rows
    n_examples = n_rows if n_examples is None else n_examples
    offset = constant_of(options, moments)
    farthest = float(max(moments.maximum[-1] - offset, offset - moments.minimum[-1]))
    bound = farthest if options.bound is None else options.bound
    if farthest > bound:
        where = f"{farthest:g} from its mean" if options.intercept else f"{farthest:g}"
        raise DataError(
            f"The target goes up to {where}, beyond `bound` ({bound:g}), as no prediction can: set "
            f"it to at least {farthest:g}, leave it out, or divide the target."
        )
    second = moments.second_moment[:-1]
    if isinstance(options.norm, float):
        norm = options.norm
    elif in_full or options.scans_norm:
        norm = norm_of(options.penalty, members)
    else:
        norm = 1.0
    return design_with(
        options,
        n_examples,
        n_rows,
        bound=bound,
        norm=norm,
        moments=second,
        n_attributes=len(second),
        offset=offset,
    )


def norm_of(penalty: Penalty, members: Members) -> float:
    """Return the largest norm of a row (ridge), or of an attribute (lasso)."""
    moments = members["moments"]
    if penalty == "lasso":
        return float(np.maximum(np.abs(moments.minimum), np.abs(moments.maximum))[:-1].max())
    return float(members["norms"].maximum[0])


def design_with(
    options: AttributeEfficientOptions, n_examples: int, n_rows: int, **known: Any
) -> Design:
    """Return what a chain learns from examples, which are some of the rows."""
    if options.first_examples is not None:
        known["first_share"] = Fraction(options.first_examples, n_rows)
    return Design(
        penalty=options.penalty,
        sampling=options.sampling,
        n_draws=options.attributes_per_example or known["n_attributes"],
        n_examples=max(1, n_examples),
        even_split=options.split == "even",
        improved=options.inner_product == "improved",
        step_factor=options.step_factor,
        first_step_factor=options.first_step_factor,
        confidence=options.confidence,
        **known,
    )


def lessons_of(options: AttributeEfficientOptions, members: Members, seed: int) -> list[Lesson]:
    """List the lessons that curves are made of.

    Rows that are observed in full have as many attributes in fewer examples, and all rows.
    """
    n_rows, n_attributes = members["counts"].n_rows, len(members["moments"].mean) - 1
    drawn = options.attributes_per_example or n_attributes
    sizes = [n_rows >> i for i in reversed(range(options.sizes))]
    sizes = [size for size in sizes if size >= 2]
    at_once = (*ON_FOLDS, "offline")
    full = sorted({size * drawn // n_attributes for size in sizes} | {n_rows})
    return [
        lesson_of(name, size, stream(seed, repeat), options, members)
        for name in options.compared
        if name not in at_once or name == options.chosen or n_attributes <= MOST_CURVES
        for size in (full if name in FULL else sizes)
        if size >= (2 * INNER_FOLDS if name in ON_FOLDS else 2)
        for repeat in range(options.repeats)
    ]


def lesson_of(
    name: str, size: int, key: int, options: AttributeEfficientOptions, members: Members
) -> Lesson:
    """Return a lesson; those of one repeat, with one key, have the same order of examples."""
    if name in (*ON_FOLDS, *FULL):
        design = design_of(options, members, size, in_full=name in FULL)
        return Lesson(design, key, size, name=name, units=options.units)
    # Beside a solver that centres the target, the online learner centres it too.
    online = {"solver": "online", "algorithm": name, "intercept": options.centred}
    own = options.model_copy(update=online)
    design, observes_norm = design_of(own, members, size), own.observes_norm
    return Lesson(design, key, size, name, observes_norm=observes_norm)


def curves(
    lessons: Sequence[Lesson], learned: Sequence[Learned], losses: Mapping[str, np.ndarray]
) -> list[dict[str, Any]]:
    """Summarise the repeats of each algorithm at each size, by the rows of the losses."""
    found = []
    for name, places in groupby(range(len(lessons)), lambda i: lessons[i].name):
        own = [list(repeats) for _, repeats in groupby(places, lambda i: lessons[i].n_examples)]
        counts = {
            "budget": [float(np.mean([learned[i].n_seen for i in repeats])) for repeats in own],
            "examples": [lessons[repeats[0]].n_examples for repeats in own],
            "repeats": [len(repeats) for repeats in own],
        }
        scores = {
            rows: {
                "relative_loss": [loss[repeats].mean() for repeats in own],
                "deviation": [loss[r].std(ddof=1) if len(r) > 1 else np.nan for r in own],
            }
            for rows, loss in losses.items()
        }
        found.append({"name": name, "points": points_of(counts, scores)})
    return found


def ends(
    paths: Mapping[str, Learned],
    measured: Mapping[str, Mapping[str, np.ndarray]],
    validated: FoldAnswers | None,
) -> list[dict[str, Any]]:
    """Return curves of one point each, of all rows, from the measures of models by rows.

    ``ahead`` is how much less a relative loss is than that of the first, with its standard error.
    """
    found, loss, folds = [], "relative_loss", list[dict[str, Any]]()
    for number, (name, path) in enumerate(paths.items()):
        counts = {"budget": [path.n_seen], "examples": [path.n_examples], "repeats": [1]}
        scores = {
            rows: {measure: values[number : number + 1] for measure, values in own.items()}
            for rows, own in measured.items()
        }
        if validated is not None:
            scores["validation"] = {
                measure: validated.means(number, measure).mean for measure in scores["train"]
            }
            own = validated.values(number, loss)
            over = over_folds(validated.values(0, loss) - own, validated.weight)
            scores["validation"] |= {"ahead": over.mean, "ahead_error": over.standard_error}
            pairs = zip(validated.folds, own[0].tolist(), strict=True)
            folds = [{"fold": fold, loss: number_or_none(value)} for fold, value in pairs]
        points = [{**point, "folds": folds} for point in points_of(counts, scores)]
        found.append({"name": name, "points": points})
    return found
