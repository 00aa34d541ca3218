"""Lessons: an algorithm, or a set of chains, on some examples; pure functions of the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Protocol

import numpy as np

from distfms.methods.attribute_efficient.draws import Draws, drawing_weights, smoothed
from distfms.methods.attribute_efficient.from_pairs import (
    FoldPairs,
    Solution,
    full_candidates,
    lasso_candidates,
    ridge_candidates,
    solve,
)
from distfms.methods.attribute_efficient.learner import Chain, Design
from distfms.methods.attribute_efficient.pairs import INNER_FOLDS, Pairs
from distfms.methods.attribute_efficient.sampling import Penalty
from distfms.stats.base import merge_tree
from distfms.stats.comoments import Moments

#: Rows, targets, and which of them in which order.
Ordered = tuple[np.ndarray, np.ndarray, np.ndarray]


class Examples(Protocol):
    """Training examples in an order that a key decides."""

    def ordered(self, key: int, chain: int, n_chains: int, fold: int) -> Iterator[Ordered]:
        """Iterate over the examples of one of some chains, all but those of a fold (−1: none)."""


@dataclass(frozen=True, eq=False)
class Lesson:
    """An algorithm on at most `n_examples`, all but those of a `fold` (−1 for none).

    `design` is that of one chain. What is no chain but one solve has a name, `solved`: ``pairs``,
    ``rows`` or ``imputed``. `key` decides the order of the examples and the draws.
    """

    design: Design
    key: int
    n_examples: int
    n_chains: int = 1
    solved: str = ""
    fold: int = -1


@dataclass(frozen=True, eq=False)
class Learned:
    """What a lesson taught: weights (d,) for attributes as they come, and what was observed.

    `sampling` (d,) and `step` are those at the end.
    """

    weights: np.ndarray
    n_examples: int
    n_seen: int
    sampling: np.ndarray | None = None
    step: float = 0.0
    intercept: float = 0.0
    noise_level: float = 0.0


def learn_chain(lesson: Lesson, number: int, examples: Examples) -> Learned:
    """Learn from the examples of one of the lesson's chains."""
    chain = Chain(lesson.design, stream(lesson.key, number))
    share = -(-lesson.n_examples // lesson.n_chains)
    for rows, target, order in _first(share, _of_chain(lesson, number, examples)):
        chain.learn(rows, target, order)
    return Learned(
        chain.weights,
        chain.n_examples,
        chain.n_seen,
        chain.probabilities,
        chain.step,
        lesson.design.offset,
    )


def average(chains: list[Learned]) -> Learned:
    """Average chains, each by its examples."""
    n_examples = sum(chain.n_examples for chain in chains)
    shares = [chain.n_examples / max(n_examples, 1) for chain in chains]
    weights = np.sum([s * c.weights for s, c in zip(shares, chains, strict=True)], axis=0)
    n_seen = sum(chain.n_seen for chain in chains)
    return replace(chains[0], weights=weights, n_examples=n_examples, n_seen=n_seen)


def learn(lesson: Lesson, examples: Examples) -> Learned:
    """Learn a lesson, chain after chain."""
    if not lesson.solved:
        numbers = range(lesson.n_chains)
        return average([learn_chain(lesson, number, examples) for number in numbers])
    found = list(_first(lesson.n_examples, _of_chain(lesson, 0, examples, n_chains=1)))
    return _on_folds(lesson, found)


def stream(key: int, number: int) -> int:
    """Return the key of a stream of random numbers among those of a key."""
    return int(np.random.SeedSequence([key, number]).generate_state(1, np.uint64)[0])


def _of_chain(
    lesson: Lesson, number: int, examples: Examples, n_chains: int | None = None
) -> Iterator[Ordered]:
    return examples.ordered(lesson.key, number, n_chains or lesson.n_chains, lesson.fold)


def _first(n_examples: int, ordered: Iterator[Ordered]) -> Iterator[Ordered]:
    """Cut a sequence of examples off."""
    for rows, target, order in ordered:
        yield rows, target, order[:n_examples]
        n_examples -= len(order)
        if n_examples <= 0:
            return


def learned_from(pairs: Pairs, penalty: Penalty, full: bool = False) -> Learned:
    """Solve from pairs of attributes, or of rows that were observed in full."""
    candidates = lasso_candidates if penalty == "lasso" else ridge_candidates
    folds = FoldPairs([*pairs.folds.values()])
    found = solve(folds, full_candidates if full else candidates)
    counts = np.sum([own.observed_weight[:-1] for own in folds.folds], axis=0)
    return learned_of(found, sum(own.n_samples for own in folds.folds), counts)


def learned_of(found: Solution, n_rows: int, counts: np.ndarray) -> Learned:
    """Return what a solve teaches, from rows whose attributes were observed `counts` times."""
    return Learned(
        found.weights,
        n_rows,
        int(counts.sum()),
        counts / n_rows,
        intercept=found.intercept,
        noise_level=found.noise_level,
    )


def _on_folds(lesson: Lesson, found: list[Ordered]) -> Learned:
    """Solve from the pairs that are drawn of the examples, by their number in the order."""
    design, draws = lesson.design, Draws(None, lesson.key)
    if lesson.solved == "imputed":
        found = _imputed(found)
    if lesson.solved == "pairs":
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
        pairs = pairs.merge(Pairs.of(observed, (keys % np.uint64(INNER_FOLDS)).astype(int)))
    return learned_from(pairs, design.penalty, lesson.solved != "pairs")


def _numbered(found: list[Ordered]) -> Iterator[Ordered]:
    """Iterate over values (d, n), targets and numbers of examples in their order."""
    start = 0
    for rows, target, order in found:
        numbers = np.arange(start, start + len(order), dtype=np.uint64)
        yield rows[order].T, target[order], numbers
        start += len(order)


def _imputed(found: list[Ordered]) -> list[Ordered]:
    """Replace missing values with the means of the examples' observed ones."""
    moments = merge_tree([Moments.from_block(rows[order].T) for rows, _, order in found])
    return [
        (np.where(np.isnan(rows), moments.mean, rows), target, order)
        for rows, target, order in found
    ]


def weights_after(first: Moments) -> np.ndarray:
    """Return the weights of draws after a first phase."""
    return drawing_weights(smoothed(first.weight * first.second_moment, first.weight))
