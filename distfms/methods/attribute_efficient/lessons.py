"""Lessons, an algorithm on some examples, and what they are worth: pure functions of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from itertools import groupby
from typing import Any

import numpy as np

from distfms.errors import DataError
from distfms.methods.attribute_efficient.from_pairs import Learned
from distfms.methods.attribute_efficient.learner import Chain, Design, Penalty
from distfms.methods.attribute_efficient.options import (
    ALGORITHMS,
    FULL,
    MOST_OFFLINE,
    N_SIZES,
    AttributeEfficientOptions,
)
from distfms.methods.attribute_efficient.read import Ordered, TrainingRows
from distfms.methods.frame.curves import points_of
from distfms.stats.base import Members, number_or_none, over_folds
from distfms.stats.folds import FoldAnswers


@dataclass(frozen=True, eq=False)
class Lesson:
    """An algorithm on at most `n_examples`, all but those of a `fold` (−1 for none).

    `name` is that of the algorithm; ``online`` and ``offline`` observe all attributes within the
    bound. `key` decides the order of the examples and the draws. With `observes_norm`, attributes
    are divided by what the chain observes.
    """

    design: Design
    key: int
    n_examples: int
    name: str = ""
    fold: int = -1
    observes_norm: bool = False


def learn(lesson: Lesson, examples: TrainingRows) -> Learned:
    """Learn from the examples of a lesson."""
    in_order = _first(lesson.n_examples, examples.ordered(lesson.key, lesson.fold))
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


def _in_full(lesson: Lesson, blocks: list[Ordered]) -> Learned:
    """Learn within the bound from all attributes of the examples: row by row, or at once."""
    from distfms.methods.attribute_efficient.full_information import (
        offline_lasso,
        offline_ridge,
        online,
    )

    design = lesson.design
    scaled = [(rows[order] / design.norm, target[order]) for rows, target, order in blocks]
    n_examples = sum(len(target) for _, target in scaled)
    is_lasso = design.penalty == "lasso"
    step = 0.0
    if lesson.name == "offline":
        products = [np.vstack([rows.T, target]) @ rows / n_examples for rows, target in scaled]
        sums = reduce(np.add, products)
        solve_within = offline_lasso if is_lasso else offline_ridge
        weights = solve_within(sums[:-1], sums[-1], design.bound)
    else:
        step = design.step_factor * design.in_full(design.n_examples).step()
        current = np.zeros(design.n_attributes)
        total = np.zeros(design.n_attributes)
        for rows, target in scaled:
            online(rows, target, current, total, is_lasso, step, design.bound)
        weights = total / n_examples
    return Learned(weights / design.norm, n_examples, design.n_attributes * n_examples, step=step)


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
    moments = members["moments"]
    n_rows = members["counts"].n_rows
    n_examples = n_rows if n_examples is None else n_examples
    farthest = float(max(moments.maximum[-1], -moments.minimum[-1]))
    bound = farthest if options.bound is None else options.bound
    if farthest > bound:
        raise DataError(
            f"The target goes up to {farthest:g}, beyond `bound` ({bound:g}), as no prediction "
            f"can: set it to at least {farthest:g}, leave it out, or divide the target."
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
    )


def norm_of(penalty: Penalty, members: Members) -> float:
    """Return the largest norm of a row (ridge), or of an attribute (lasso)."""
    moments = members["moments"]
    if penalty == "lasso":
        return float(np.maximum(np.abs(moments.minimum), np.abs(moments.maximum))[:-1].max())
    return float(members["norms"].maximum[0])


def design_with(
    options: AttributeEfficientOptions, n_examples: int, n_rows: int, **facts: Any
) -> Design:
    """Return what a chain learns from examples, which are some of the rows."""
    if options.first_examples is not None:
        facts["first_share"] = Fraction(options.first_examples, n_rows)
    return Design(
        penalty=options.penalty,
        sampling=options.sampling,
        n_draws=options.attributes_per_example or facts["n_attributes"],
        n_examples=max(1, n_examples),
        improved=options.inner_product == "improved",
        step_factor=options.step_factor,
        first_step_factor=options.first_step_factor,
        confidence=options.confidence,
        **facts,
    )


def lessons_of(options: AttributeEfficientOptions, members: Members, seed: int) -> list[Lesson]:
    """List the lessons that curves are made of.

    Rows that are observed in full have as many attributes in fewer examples, and all rows.
    """
    n_rows = members["counts"].n_rows
    n_attributes = len(members["moments"].mean) - 1
    drawn = options.attributes_per_example or n_attributes
    sizes = [n_rows >> i for i in reversed(range(N_SIZES)) if n_rows >> i >= 2]
    at_most_costs = [size * drawn // n_attributes for size in sizes]
    full_sizes = sorted(size for size in {*at_most_costs, n_rows} if size >= 2)
    lessons = []
    for name in options.compared:
        if name == "offline" and n_attributes > MOST_OFFLINE:
            continue
        for size in full_sizes if name in FULL else sizes:
            for repeat in range(options.repeats):
                key = stream(seed, repeat)
                lessons.append(lesson_of(name, size, key, options, members))
    return lessons


def lesson_of(
    name: str, size: int, key: int, options: AttributeEfficientOptions, members: Members
) -> Lesson:
    """Return a lesson; those of one repeat, with one key, have the same order of examples."""
    if name in FULL:
        return Lesson(design_of(options, members, size, in_full=True), key, size, name)
    options = options.model_copy(update={"draws": ALGORITHMS[options.penalty][name]})
    design = design_of(options, members, size)
    return Lesson(design, key, size, name, observes_norm=options.observes_norm)


def curves(
    lessons: Sequence[Lesson],
    learned: Sequence[Learned],
    losses: Mapping[str, np.ndarray],
    n_repeats: int,
) -> list[dict[str, Any]]:
    """Summarise the repeats of each algorithm at each size, by the rows of the losses."""
    drawn = []
    n_seen = np.array([path.n_seen for path in learned], dtype=float)
    for name, places in groupby(range(len(lessons)), lambda place: lessons[place].name):
        by_size = np.array([*places]).reshape(-1, n_repeats)
        counts = {
            "budget": n_seen[by_size].mean(axis=1),
            "examples": [lessons[place].n_examples for place in by_size[:, 0]],
            "repeats": np.full(len(by_size), n_repeats),
        }
        scores = {}
        for rows, of_rows in losses.items():
            repeated = of_rows[by_size]
            deviation = np.full(len(by_size), np.nan)
            if n_repeats > 1:
                deviation = repeated.std(axis=1, ddof=1)
            scores[rows] = {"relative_loss": repeated.mean(axis=1), "deviation": deviation}
        drawn.append({"name": name, "points": points_of(counts, scores)})
    return drawn


def ends(
    paths: Mapping[str, Learned],
    measured: Mapping[str, Mapping[str, np.ndarray]],
    validated: FoldAnswers | None,
) -> list[dict[str, Any]]:
    """Return curves of one point each, of all rows, from the measures of models by rows.

    ``ahead`` is how much less a relative loss is than that of the first, with its standard error.
    """
    loss = "relative_loss"
    curves_of_ends = []
    for number, (name, path) in enumerate(paths.items()):
        counts = {"budget": [path.n_seen], "examples": [path.n_examples], "repeats": [1]}
        scores: dict[str, dict[str, Any]] = {}
        for rows, measures in measured.items():
            scores[rows] = {measure: values[[number]] for measure, values in measures.items()}
        folds = []
        if validated is not None:
            of_folds = validated.values(number, loss)
            ahead = over_folds(validated.values(0, loss) - of_folds, validated.weight)
            means = {measure: validated.means(number, measure).mean for measure in scores["train"]}
            means |= {"ahead": ahead.mean, "ahead_error": ahead.standard_error}
            scores["validation"] = means
            for fold, value in zip(validated.folds, of_folds[0].tolist(), strict=True):
                folds.append({"fold": fold, loss: number_or_none(value)})
        points = [{**point, "folds": folds} for point in points_of(counts, scores)]
        curves_of_ends.append({"name": name, "points": points})
    return curves_of_ends
