"""Accuracy and NDCG of every prefix on held-out rows: what co-moments cannot tell.

References
----------
Järvelin, Kekäläinen, "Cumulated gain-based evaluation of IR techniques", ACM TOIS 20 (2002).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from distfms.data.batches import RowBatch
from distfms.data.dataset import Partition
from distfms.data.folds import hash_keys
from distfms.errors import DataError
from distfms.methods.contract import PartialReader
from distfms.methods.rows import RowSource
from distfms.stats.base import Folded
from distfms.stats.bundle import Bundle

PLATEAU_START = 0.95
"""A plateau begins once this share of the final objective is there ..."""

PLATEAU_COST = 0.20
"""... and the next per cent of it needs more than this share of all cost."""


def timeliness(
    cost: np.ndarray, value: np.ndarray, *, stop: float | None = None, final: float | None = None
) -> float:
    """Area under value against cost over the whole area, stop × final value.

    The curve runs linearly between its points.

    Parameters
    ----------
    cost : array_like of shape (K + 1,)
        Cost of the prefixes, ascending, usually from 0.
    value : array_like of shape (K + 1,)
        Explained variance of the prefixes.
    stop : float, optional
        Cost at which the curve is cut, interpolated there: the α-stopping cost for
        α-timeliness. Beyond the last cost the curve stays where it is. Default: the last cost.
    final : float, optional
        Value that the whole area is measured with. Default: the last value, which is the same
        for all sequences of the same groups.

    Returns
    -------
    float
        In [0, 1] for a curve that never exceeds `final`; 0 when `stop` is not above the first
        cost (0-timeliness is zero) or `final` is not positive.
    """
    cost, value = np.asarray(cost, dtype=np.float64), np.asarray(value, dtype=np.float64)
    stop = float(cost[-1]) if stop is None else float(stop)
    final = float(value[-1]) if final is None else float(final)
    if stop <= cost[0] or final <= 0:
        return 0.0
    inside = cost < stop
    cut_cost = np.append(cost[inside], stop)
    cut_value = np.append(value[inside], np.interp(stop, cost, value))
    area = float(np.trapezoid(cut_value, cut_cost))
    return area / ((stop - float(cost[0])) * final)


def stopping_cost(cost: np.ndarray, value: np.ndarray, alpha: float) -> float:
    """α-stopping cost: that of the first prefix with α of the final value.

    Parameters
    ----------
    cost, value : array_like of shape (K + 1,)
        Training curve of CS-G-OMP, ``path.curve_cost`` and ``path.curve_value``.
    alpha : float
        In [0, 1].

    Raises
    ------
    ValueError
        If `alpha` is outside [0, 1].
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is {alpha!r}, not in [0, 1]")
    cost, value = np.asarray(cost, dtype=np.float64), np.asarray(value, dtype=np.float64)
    needed = alpha * value[-1]
    reached = value >= needed - 1e-12 * abs(value[-1])  # the last gains are rounding
    return float(cost[np.argmax(reached)])


def plateau(cost: np.ndarray, value: np.ndarray) -> float:
    """α at which a curve reaches its final plateau, 1 if it has none.

    The least α of 0.95, 0.96, …, 0.99 such that going from α to α + 0.01 of the final value
    needs more than 20 % of all cost.

    Parameters
    ----------
    cost, value : array_like of shape (K + 1,)
        Training curve of CS-G-OMP.
    """
    total = float(cost[-1]) - float(cost[0])
    for percent in range(round(100 * PLATEAU_START), 100):
        here = stopping_cost(cost, value, percent / 100)
        after = stopping_cost(cost, value, (percent + 1) / 100)
        if after - here > PLATEAU_COST * total:
            return percent / 100
    return 1.0


@dataclass(frozen=True, eq=False)
class OracleCurve:
    """Curve of the found groups reordered by gain per cost.

    Attributes
    ----------
    order : numpy.ndarray of int, shape (K,)
        Steps of the original sequence in their new order.
    cost, value : numpy.ndarray of shape (K + 1,)
        Of the prefixes, from 0.
    """

    order: np.ndarray
    cost: np.ndarray
    value: np.ndarray


def oracle_curve(cost: np.ndarray, value: np.ndarray) -> OracleCurve:
    """Approximate upper bound: steps in descending order of gain per cost.

    Gains and costs of the steps are taken to stay what they were. Equal ratios keep their order.

    Parameters
    ----------
    cost, value : array_like of shape (K + 1,)
        Curve of a sequence, with costs that grow at every step.
    """
    step_cost, gain = np.diff(cost), np.diff(value)
    # What is free comes first, in the order in which it was found.
    per_cost = np.divide(gain, step_cost, out=np.full(len(gain), np.inf), where=step_cost > 0)
    order = np.argsort(-per_cost, kind="stable")
    return OracleCurve(
        order=order,
        cost=float(cost[0]) + np.concatenate(([0.0], np.cumsum(step_cost[order]))),
        value=float(value[0]) + np.concatenate(([0.0], np.cumsum(gain[order]))),
    )


MAX_POINTS = 200
"""Most points of a curve in ``metrics.json``."""


def thinned(n: int, limit: int) -> np.ndarray:
    """Positions of at most `limit` of n items, evenly, the first and the last among them."""
    if n <= limit:
        return np.arange(n)
    return np.unique(np.linspace(0, n - 1, limit).round().astype(np.intp))


@dataclass(frozen=True, eq=False)
class Curve:
    """How well the prefixes 0..K of a rule's sequence do.

    Attributes
    ----------
    groups : tuple of str
        In the order of the sequence.
    cost, value : numpy.ndarray of shape (K + 1,)
        Cost, and share explained on the training rows.
    test : numpy.ndarray of shape (K + 1,), optional
        Share explained on the held-out rows.
    more : mapping of str to numpy.ndarray of shape (K + 1,)
        Further numbers of each prefix; NaN where one is not known.
    validation : numpy.ndarray, optional
        Share explained in cross-validation, of the prefixes that `thinned` keeps.
    """

    groups: tuple[str, ...]
    cost: np.ndarray
    value: np.ndarray
    test: np.ndarray | None = None
    more: Mapping[str, np.ndarray] = field(default_factory=dict)
    validation: np.ndarray | None = None

    def points(self) -> list[dict[str, Any]]:
        """Return the entries of ``metrics.json``, thinned."""
        found = []
        for i, prefix in enumerate(thinned(len(self.cost), MAX_POINTS).tolist()):
            more = {name: float(values[prefix]) for name, values in self.more.items()}
            point = {
                "n_groups": prefix,
                "spent": float(self.cost[prefix]),
                "explained_variance": float(self.value[prefix]),
                "validation": None if self.validation is None else float(self.validation[i]),
                "test": None if self.test is None else float(self.test[prefix]),
            }
            found.append(point | {name: v for name, v in more.items() if not np.isnan(v)})
        return found


def compared(
    curves: Mapping[str, Curve], reference: Curve, alpha: float | None, with_oracle: bool
) -> dict[str, Any]:
    """Compare the sequences of rules: ``curves``, ``timeliness``, ``alpha``, ``baselines``.

    Parameters
    ----------
    curves : mapping of str to Curve
        By the name of the rule; the chosen one first.
    reference : Curve
        Where it reaches `alpha`, α-timeliness of all rules is cut, while `stopping_cost` is each
        rule's own.
    alpha : float or None
        Share of the final objective; None for the plateau rule.
    with_oracle : bool
        Compare with the steps of the chosen sequence in the order of their gain per cost.
    """
    if with_oracle:
        own = next(iter(curves.values()))
        oracle = oracle_curve(own.cost, own.value)
        more = {name: oracle.value for name in own.more if name == "explained_deviance"}
        curves = {**curves, "oracle": Curve((), oracle.cost, oracle.value, more=more)}
    share = plateau(reference.cost, reference.value) if alpha is None else alpha
    cut = stopping_cost(reference.cost, reference.value, share)
    drawn: list[dict[str, Any]] = [
        {"name": name, "points": curve.points()} for name, curve in curves.items()
    ]
    return {
        "curves": drawn,
        "timeliness": _timeliness(curves, share, cut),
        "alpha": {"alpha": share, "stopping_cost": cut, "by_plateau": alpha is None},
        "baselines": {
            entry["name"]: {
                "groups": list(curves[entry["name"]].groups) or None,
                **entry["points"][-1],
            }
            for entry in drawn[1:]
        },
    }


def _timeliness(
    curves: Mapping[str, Curve], alpha: float, cut: float
) -> dict[str, dict[str, float | None]]:
    """Timeliness of every rule, on a scale that all share."""
    end = max(float(curve.cost[-1]) for curve in curves.values())
    final = max(float(curve.value[-1]) for curve in curves.values())
    tests = [float(curve.test[-1]) for curve in curves.values() if curve.test is not None]
    return {
        name: {
            "timeliness": timeliness(curve.cost, curve.value, stop=end, final=final),
            "alpha": alpha,
            "stopping_cost": stopping_cost(curve.cost, curve.value, alpha),
            "alpha_timeliness": timeliness(curve.cost, curve.value, stop=cut, final=final),
            "test_alpha_timeliness": None
            if curve.test is None
            else timeliness(curve.cost, curve.test, stop=cut, final=max(tests)),
        }
        for name, curve in curves.items()
    }


CUTOFF = 5
"""Positions of a ranking that count."""

_MAX_RELEVANCE = 30


@dataclass(frozen=True, eq=False)
class AccuracyCounts:
    """Correctly classified rows; a mergeable statistic.

    Attributes
    ----------
    weight : float
        Σ w of the rows.
    correct : ndarray of shape (M, P)
        Σ w of the rows that each of M models classifies correctly, for P binary targets.
    """

    weight: float
    correct: np.ndarray

    @classmethod
    def from_scores(
        cls,
        scores: np.ndarray,
        target: np.ndarray,
        threshold: float,
        weight: np.ndarray | None = None,
    ) -> AccuracyCounts:
        """Classify by a threshold.

        Parameters
        ----------
        scores : ndarray of shape (n, M, P)
        target : ndarray of shape (n, P)
            Two values, one on each side of the threshold.
        threshold : float
            A score above it means the greater of the two.
        weight : ndarray of shape (n,), optional
        """
        right = (scores > threshold) == (target > threshold)[:, np.newaxis, :]
        weight = np.ones(len(target)) if weight is None else weight
        return cls(float(weight.sum()), np.tensordot(weight, right, axes=(0, 0)))

    @classmethod
    def empty(cls, n_models: int, n_targets: int) -> AccuracyCounts:
        """Return the counts of no rows: the identity of `merge`."""
        return cls(0.0, np.zeros((n_models, n_targets)))

    @property
    def accuracy(self) -> np.ndarray:
        """Share of rows classified correctly, mean over the targets, shape (M,); NaN for none."""
        if not self.weight > 0:
            return np.full(len(self.correct), np.nan)
        return self.correct.mean(axis=1) / self.weight

    def merge(self, other: AccuracyCounts) -> AccuracyCounts:
        """Return the counts of the rows of both."""
        return AccuracyCounts(self.weight + other.weight, self.correct + other.correct)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Content as named arrays."""
        return {"weight": np.asarray(self.weight), "correct": self.correct}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> AccuracyCounts:
        """Inverse of `to_arrays`."""
        return cls(float(arrays["weight"]), arrays["correct"])


def ndcg(scores: np.ndarray, relevance: np.ndarray, cutoff: int = CUTOFF) -> np.ndarray | None:
    """Normalised discounted cumulative gain of one query.

    Parameters
    ----------
    scores : ndarray of shape (n, M)
        Of n documents, by M models.
    relevance : ndarray of shape (n,)
        Gain 2^relevance − 1.
    cutoff : int
        Positions that count; position r has the discount 1 / log₂(1 + r).

    Returns
    -------
    ndarray of shape (M,), or None
        None if no document is relevant, so that every order is as good. Documents of equal score
        share the discounts of their positions, so that the order of the rows plays no part.
    """
    gain = np.exp2(relevance) - 1.0
    discount = 1.0 / np.log2(2.0 + np.arange(min(cutoff, len(gain))))
    best = np.sort(gain)[::-1][: len(discount)] @ discount
    if not best > 0:
        return None
    cumulated = np.concatenate(([0.0], np.cumsum(discount)))
    cumulated = np.append(cumulated, np.full(len(gain) - len(discount), cumulated[-1]))
    from scipy.stats import rankdata

    first = rankdata(-scores, "min", axis=0).astype(np.intp)
    last = rankdata(-scores, "max", axis=0).astype(np.intp)
    share = (cumulated[last] - cumulated[first - 1]) / (last - first + 1)
    return gain @ share / best


@dataclass(frozen=True, eq=False)
class RankingScores:
    """NDCG summed over queries; a statistic that merges in the order of the rows.

    A query's rows must follow one another. The first and the last query of a run of rows may go
    on in the next run, so their rows are kept until it is known that they are complete.

    Attributes
    ----------
    total : ndarray of shape (M,)
        Σ NDCG over the complete queries that have a relevant document.
    n_queries, n_irrelevant : int
        Complete queries with and without a relevant document.
    closed : ndarray of uint64
        Keys of the complete queries, ascending.
    keys : ndarray of uint64, shape (0,), (1,) or (2,)
        Of the first and the last query.
    sizes : ndarray of int64
        Rows of each of them.
    relevance : ndarray of shape (n,)
    scores : ndarray of shape (n, M)
        Of these rows.
    """

    total: np.ndarray
    n_queries: int
    n_irrelevant: int
    closed: np.ndarray
    keys: np.ndarray
    sizes: np.ndarray
    relevance: np.ndarray
    scores: np.ndarray

    @classmethod
    def empty(cls, n_models: int) -> RankingScores:
        """Scores of no rows: the identity of `merge`."""
        return cls(
            total=np.zeros(n_models),
            n_queries=0,
            n_irrelevant=0,
            closed=np.zeros(0, dtype=np.uint64),
            keys=np.zeros(0, dtype=np.uint64),
            sizes=np.zeros(0, dtype=np.int64),
            relevance=np.zeros(0),
            scores=np.zeros((0, n_models)),
        )

    @classmethod
    def from_rows(
        cls, keys: np.ndarray, relevance: np.ndarray, scores: np.ndarray
    ) -> RankingScores:
        """Scores of rows in their order.

        Parameters
        ----------
        keys : ndarray of uint64, shape (n,)
            Equal for the rows of one query, and only for them.
        relevance : ndarray of shape (n,)
        scores : ndarray of shape (n, M)

        Raises
        ------
        DataError
            If the rows of a query are not together, or a relevance is not in 0 … 30.
        """
        if not len(keys):
            return cls.empty(scores.shape[1])
        if relevance.min() < 0 or relevance.max() > _MAX_RELEVANCE:
            raise DataError(
                f"NDCG is wanted because `data.query` is set, and needs a target from 0 (not "
                f"relevant) to {_MAX_RELEVANCE}; found {relevance.min():g} to "
                f"{relevance.max():g}. Name the column as `id` if rows are only to be kept "
                "together in folds."
            )
        starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
        sizes = np.diff(np.append(starts, len(keys)))
        return _closing_inner(cls.empty(scores.shape[1]), keys[starts], sizes, relevance, scores)

    @property
    def mean(self) -> np.ndarray:
        """Mean NDCG over the queries with a relevant document, shape (M,); NaN for none.

        The queries that are still open count as complete.
        """
        total, n_queries = self.total.copy(), self.n_queries
        for relevance, scores in _runs(self.sizes, self.relevance, self.scores):
            value = ndcg(scores, relevance)
            if value is not None:
                total += value
                n_queries += 1
        return total / n_queries if n_queries else np.full(len(total), np.nan)

    def merge(self, other: RankingScores) -> RankingScores:
        """Scores of the rows of both, those of `other` after those of this value.

        Raises
        ------
        DataError
            If the rows of a query are not together.
        """
        if not len(self.keys) or not len(other.keys):
            return other if not len(self.keys) else self
        keys, sizes = list(self.keys), list(self.sizes)
        rest_keys, rest_sizes = list(other.keys), list(other.sizes)
        if keys[-1] == rest_keys[0]:
            sizes[-1] += rest_sizes.pop(0)
            rest_keys.pop(0)
        both = RankingScores(
            self.total + other.total,
            self.n_queries + other.n_queries,
            self.n_irrelevant + other.n_irrelevant,
            np.concatenate((self.closed, other.closed)),
            *(getattr(self, name)[:0] for name in ("keys", "sizes", "relevance", "scores")),
        )
        return _closing_inner(
            both,
            np.array(keys + rest_keys, dtype=np.uint64),
            np.array(sizes + rest_sizes, dtype=np.int64),
            np.concatenate((self.relevance, other.relevance)),
            np.concatenate((self.scores, other.scores)),
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Content as named arrays."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> RankingScores:
        """Inverse of `to_arrays`."""
        counts = ("n_queries", "n_irrelevant")
        content: dict[str, Any] = {
            f.name: int(arrays[f.name]) if f.name in counts else arrays[f.name] for f in fields(cls)
        }
        return cls(**content)


def _closing_inner(
    base: RankingScores,
    keys: np.ndarray,
    sizes: np.ndarray,
    relevance: np.ndarray,
    scores: np.ndarray,
) -> RankingScores:
    """Add runs of rows to what is complete; all but the first and the last are complete now."""
    total, n_queries, n_irrelevant = base.total.copy(), base.n_queries, base.n_irrelevant
    for own_relevance, own_scores in _runs(sizes, relevance, scores)[1:-1]:
        value = ndcg(own_scores, own_relevance)
        if value is None:
            n_irrelevant += 1
        else:
            total += value
            n_queries += 1
    closed = np.sort(np.concatenate((base.closed, keys[1:-1])))
    _require_contiguous(closed, keys)
    ends = np.zeros(len(relevance), dtype=bool)
    ends[: sizes[0]] = True
    ends[len(ends) - sizes[-1] :] = True
    outer = [0] if len(keys) == 1 else [0, len(keys) - 1]
    return RankingScores(
        total,
        n_queries,
        n_irrelevant,
        closed,
        keys[outer],
        sizes[outer],
        relevance[ends],
        scores[ends],
    )


def _runs(
    sizes: Sequence[int] | np.ndarray, relevance: np.ndarray, scores: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows of each query."""
    bounds = np.cumsum(sizes)[:-1]
    if not len(sizes):
        return []
    return list(zip(np.split(relevance, bounds), np.split(scores, bounds), strict=True))


def _require_contiguous(closed: np.ndarray, keys: np.ndarray) -> None:
    """Refuse a query that began again after it had ended."""
    everything = np.sort(np.concatenate((closed, keys[[0, -1]] if len(keys) > 1 else keys)))
    if (everything[1:] == everything[:-1]).any():
        raise DataError(
            "The rows of a query do not follow one another in the held-out data, so its ranking "
            "cannot be judged in one pass. Sort the data by the `query` column, or name that "
            "column as `id` to do without NDCG."
        )


_CHUNK_VALUES = 1 << 20


@dataclass(frozen=True, eq=False)
class Scorers:
    """Linear models that are to be judged, M of them.

    Attributes
    ----------
    coefficients : ndarray of shape (M, D, P)
    intercept : ndarray of shape (M, P)
    fill : ndarray of shape (D,)
        What a missing value is taken for.
    """

    coefficients: np.ndarray
    intercept: np.ndarray
    fill: np.ndarray

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Scores of rows.

        Parameters
        ----------
        features : ndarray of shape (D, n)

        Returns
        -------
        ndarray of shape (n, M, P)
        """
        n_models, n_features, n_targets = self.coefficients.shape
        flat = self.coefficients.transpose(1, 0, 2).reshape(n_features, -1)
        filled = np.where(np.isnan(features), self.fill[:, np.newaxis], features)
        scores = filled.T @ flat
        return scores.reshape(-1, n_models, n_targets) + self.intercept

    def digest(self) -> str:
        """Hexadecimal digest of the models."""
        content = hashlib.sha256()
        for array in (self.coefficients, self.intercept, self.fill):
            content.update(np.ascontiguousarray(array).tobytes())
        return content.hexdigest()


@dataclass(frozen=True, eq=False)
class ScoreReader(PartialReader):
    """Reads ``accuracy`` and ``ranking`` of the held-out rows, whichever are wanted.

    Attributes
    ----------
    source : RowSource
    scorers : Scorers
    threshold : float or None
        Between the two values of binary targets; None for no accuracy.
    ranks : bool
        Whether rows have a query to be ranked in.
    """

    source: RowSource
    scorers: Scorers
    threshold: float | None
    ranks: bool

    @property
    def part_types(self) -> Mapping[str, type[Any]]:
        """Class of each member's parts."""
        types: dict[str, type[Any]] = {}
        if self.threshold is not None:
            types["accuracy"] = AccuracyCounts
        if self.ranks:
            types["ranking"] = RankingScores
        return types

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition and judge its held-out rows."""
        block = self.source.read(partition)
        rows = block.part_slices[0 if self.source.held_out else -1]
        n_models, _, n_targets = self.scorers.coefficients.shape
        members: dict[str, Folded[Any]] = {}
        if self.threshold is not None:
            none = AccuracyCounts.empty(n_models, n_targets)
            members["accuracy"] = self._test_only(none, self._accuracy(block, rows))
        if self.ranks:
            ranking = self._ranking(block, rows)
            members["ranking"] = self._test_only(RankingScores.empty(n_models), ranking)
        return Bundle(members)

    def _test_only(self, nothing: Any, test: Any) -> Folded[Any]:
        return Folded((nothing,) * (self.source.n_parts - 1) + (test,))

    def _accuracy(self, block: RowBatch, rows: slice) -> AccuracyCounts:
        n_models, _, n_targets = self.scorers.coefficients.shape
        result = AccuracyCounts.empty(n_models, n_targets)
        for chunk in self._chunks(rows):
            scores = self.scorers(block.features[:, chunk])
            weight = None if block.weight is None else block.weight[chunk]
            assert self.threshold is not None
            result = result.merge(
                AccuracyCounts.from_scores(scores, block.target[:, chunk].T, self.threshold, weight)
            )
        return result

    def _ranking(self, block: RowBatch, rows: slice) -> RankingScores:
        result = RankingScores.empty(len(self.scorers.coefficients))
        for chunk in self._chunks(rows):
            assert block.rows.query is not None
            keys = hash_keys(block.rows.query[chunk])
            scores = self.scorers(block.features[:, chunk])[:, :, 0]
            relevance = block.target[0, chunk].copy()  # the block's memory is used again
            result = result.merge(RankingScores.from_rows(keys, relevance, scores))
        return result

    def _chunks(self, rows: slice) -> Iterator[slice]:
        """Cut rows into runs whose scores fit the cache."""
        n_models, n_features, n_targets = self.scorers.coefficients.shape
        step = max(1, _CHUNK_VALUES // max(n_models * n_targets, n_features))
        for start in range(rows.start, rows.stop, step):
            yield slice(start, min(start + step, rows.stop))

    def key(self) -> dict[str, Any]:
        """Everything but the partition that a partial depends on."""
        return {
            **self.source.key(),
            "kind": "scores",
            "query": self.source.plan.roles.query,
            "models": self.scorers.digest(),
            "threshold": self.threshold,
            "ranks": self.ranks,
        }
