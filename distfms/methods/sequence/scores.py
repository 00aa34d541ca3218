"""How well the prefixes of a sequence do: timeliness, and accuracy and NDCG of held-out rows.

References
----------
Järvelin, Kekäläinen, "Cumulated gain-based evaluation of IR techniques", ACM TOIS 20 (2002).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any

import numpy as np

from distfms.data.batches import RowBatch
from distfms.data.dataset import Partition
from distfms.data.folds import hash_keys
from distfms.errors import DataError
from distfms.methods.contract import PartialReader
from distfms.methods.passes import Sums
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
    """α-stopping cost: that of the first prefix with α of the final value."""
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
    """Compare the sequences of rules: ``curves``, ``timeliness``, ``alpha``, ``baselines``."""
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


def ndcg(scores: np.ndarray, relevance: np.ndarray, cutoff: int = CUTOFF) -> np.ndarray | None:
    """Normalised discounted cumulative gain of one query."""
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
    n_queries : int
        How many these are.
    closed : ndarray of uint64
        Keys of the complete queries, ascending.
    keys : ndarray of uint64, shape (n,)
        Of the rows of the first and the last query.
    relevance : ndarray of shape (n,)
    scores : ndarray of shape (n, M)
    """

    total: np.ndarray
    n_queries: int
    closed: np.ndarray
    keys: np.ndarray
    relevance: np.ndarray
    scores: np.ndarray

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
        if len(keys) and (relevance.min() < 0 or relevance.max() > _MAX_RELEVANCE):
            raise DataError(
                f"NDCG is wanted because `data.query` is set, and needs a target from 0 (not "
                f"relevant) to {_MAX_RELEVANCE}; found {relevance.min():g} to "
                f"{relevance.max():g}. Name the column as `id` if rows are only to be kept "
                "together in folds."
            )
        total, closed = np.zeros(scores.shape[1]), np.zeros(0, dtype=np.uint64)
        return cls(total, 0, closed, keys, relevance, scores)._settled()

    @property
    def mean(self) -> np.ndarray:
        """Mean NDCG over the queries with a relevant document, shape (M,); NaN for none.

        The queries that are still open count as complete.
        """
        total, n_queries = self._with(self._runs())
        return total / n_queries if n_queries else np.full(len(total), np.nan)

    def merge(self, other: RankingScores) -> RankingScores:
        """Scores of the rows of both, those of `other` after those of this value.

        Raises
        ------
        DataError
            If the rows of a query are not together.
        """
        rows = ("closed", "keys", "relevance", "scores")
        joined = {k: np.concatenate((getattr(self, k), getattr(other, k))) for k in rows}
        total, n_queries = self.total + other.total, self.n_queries + other.n_queries
        return RankingScores(total, n_queries, **joined)._settled()

    def _settled(self) -> RankingScores:
        """Take the queries between the first and the last for complete."""
        runs = self._runs()
        begun = np.sort(np.concatenate((self.closed, self.keys[[run.start for run in runs]])))
        if (begun[1:] == begun[:-1]).any():
            raise DataError(
                "The rows of a query do not follow one another in the held-out data, so its "
                "ranking cannot be judged in one pass. Sort the data by the `query` column, or "
                "name that column as `id` to do without NDCG."
            )
        inner = runs[1:-1]
        total, n_queries = self._with(inner)
        closed = np.concatenate((self.closed, self.keys[[run.start for run in inner]]))
        open_ = np.ones(len(self.keys), dtype=bool)
        for run in inner:
            open_[run] = False
        rows = (self.keys[open_], self.relevance[open_], self.scores[open_])
        return RankingScores(total, n_queries, np.sort(closed), *rows)

    def _runs(self) -> list[slice]:
        """Rows of each query."""
        if not len(self.keys):
            return []
        starts = np.flatnonzero(self.keys[1:] != self.keys[:-1]) + 1
        return [slice(*pair) for pair in pairwise([0, *starts.tolist(), len(self.keys)])]

    def _with(self, runs: Sequence[slice]) -> tuple[np.ndarray, int]:
        """Sum and number of queries with those of some runs."""
        values = [ndcg(self.scores[run], self.relevance[run]) for run in runs]
        known = [value for value in values if value is not None]
        return sum(known, start=self.total.copy()), self.n_queries + len(known)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Content as named arrays."""
        return {member.name: np.asarray(getattr(self, member.name)) for member in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> RankingScores:
        """Inverse of `to_arrays`."""
        content: dict[str, Any] = {**arrays, "n_queries": int(arrays["n_queries"])}
        return cls(**content)


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
        """Scores of rows."""
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
        accuracy = {} if self.threshold is None else {"accuracy": Sums}
        return {**accuracy, "ranking": RankingScores} if self.ranks else accuracy

    def __call__(self, partition: Partition) -> Bundle:
        """Read the partition and judge its held-out rows."""
        batch = self.source.read(partition)
        rows = batch.part_slices[0 if self.source.held_out else -1]
        n_models, n_features, n_targets = self.scorers.coefficients.shape
        keys, nothing = np.zeros(0, dtype=np.uint64), np.zeros((0, n_models))
        none = {
            "accuracy": Sums({}),
            "ranking": RankingScores.from_rows(keys, np.zeros(0), nothing),
        }
        found: dict[str, Any] = {name: none[name] for name in self.part_types}
        step = max(1, _CHUNK_VALUES // max(n_models * n_targets, n_features))
        for start in range(rows.start, rows.stop, step):
            chunk = slice(start, min(start + step, rows.stop))
            scores = self.scorers(batch.features[:, chunk])
            for name in found:
                judge = self._accuracy if name == "accuracy" else self._ranking
                found[name] = found[name].merge(judge(batch, chunk, scores))
        before = self.source.n_parts - 1
        parts = {name: (none[name],) * before + (own,) for name, own in found.items()}
        return Bundle({name: Folded(own) for name, own in parts.items()})

    def _accuracy(self, batch: RowBatch, rows: slice, scores: np.ndarray) -> Sums:
        """Weight of the rows, and of those that each model classifies correctly, (M, P)."""
        threshold = 0.5 if self.threshold is None else self.threshold
        target = batch.target[:, rows].T[:, np.newaxis]
        right = (scores > threshold) == (target > threshold)
        weight = np.ones(len(scores)) if batch.weight is None else batch.weight[rows]
        correct = np.tensordot(weight, right, axes=(0, 0))
        return Sums({"weight": np.array(weight.sum()), "correct": correct})

    def _ranking(self, batch: RowBatch, rows: slice, scores: np.ndarray) -> RankingScores:
        assert batch.rows.query is not None
        relevance = batch.target[0, rows].copy()  # the batch's memory is used again
        keys = hash_keys(batch.rows.query[rows])
        return RankingScores.from_rows(keys, relevance, scores[:, :, 0])

    def key(self) -> dict[str, Any]:
        """Everything but the partition that a partial depends on."""
        return {
            **self.source.key(),
            "kind": "scores of prefixes",
            "query": self.source.plan.roles.query,
            "models": self.scorers.digest(),
            "threshold": self.threshold,
            "ranks": self.ranks,
        }


def share_correct(sums: Sums) -> np.ndarray:
    """Share of rows classified correctly, mean over the targets, shape (M,); NaN for none."""
    return np.asarray(sums["correct"].mean(axis=1) / (float(sums["weight"]) or np.nan))
