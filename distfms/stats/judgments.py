"""What feature multi-selection needs to know of judgments, mergeable, for any numbers of judgments.

References
----------
.. [1] S. Sabato and A. Kalai, "Feature Multi-Selection among Subjective Features", ICML 2013,
   section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distfms.errors import DataError, first_of
from distfms.stats.batch import checked_weight
from distfms.stats.comoments import CoMoments
from distfms.stats.ragged import Ragged, check_rows
from distfms.stats.raters import RaterStatistics

#: Fields of `JudgmentStatistics` that merge by addition: sums and counts.
_SUMS = ("variance_sum", "variance_weight", "noise_sum", "single_weight")
_COUNTS = ("n_judgments", "n_judged", "n_repeated")
#: All of its fields that have a number for each attribute, in order.
_WITHIN = (*_SUMS, *_COUNTS)

#: Fields of `JudgmentEstimates` that have a number for each attribute.
_BY_ATTRIBUTE = (
    *("b", "v", "noise", "external_variance", "means"),
    *("n_judgments", "n_missing", "mean_judgments"),
)


@dataclass(frozen=True, eq=False)
class JudgmentEstimates:
    """Estimates that the search for repeats works on, of `n` attributes out of `d`.

    Attributes
    ----------
    b : ndarray of shape (n,)
        Covariance of the mean judgment with the label, over the objects that have one.
    v : ndarray of shape (n,)
        Internal variance: mean over objects with two judgments or more of their variance (n − 1
        in the denominator), or the value given.
    second_moment : ndarray of shape (n, d)
        S: mean of (x̄_i − x̄)(x̄_i − x̄)ᵀ over the objects that have both attributes.
    noise : ndarray of shape (n,)
        u: mean over objects of the variance of their mean judgment, VarEst/k, or v where k = 1.
    external : ndarray of shape (n, d)
        Σ̂ = S − Diag(u) or, where raters are known, off the diagonal the mean product of judgments
        by different raters. Not made positive semi-definite.
    external_variance : ndarray of shape (n,)
        σ̂² = max(0, Σ̂[a, a]).
    label_variance, label_mean : float
        Population variance and mean of the label.
    means : ndarray of shape (n,)
        x̄: mean over objects of the mean judgment.
    n_objects : int
    n_judgments : ndarray of shape (n,), int
    n_missing : ndarray of shape (n,), int
        Objects without a judgment of the attribute.
    mean_judgments : ndarray of shape (n,)
        Mean number of judgments of the objects that have any.
    noise_covariance : ndarray of shape (n, d), or None
        N̂ of two judgments by one rater, v on its diagonal, 0 where no rater judged both of an
        object; None where raters are not known.
    """

    b: np.ndarray
    v: np.ndarray
    second_moment: np.ndarray
    noise: np.ndarray
    external: np.ndarray
    external_variance: np.ndarray
    label_variance: float
    label_mean: float
    means: np.ndarray
    n_objects: int
    n_judgments: np.ndarray
    n_missing: np.ndarray
    mean_judgments: np.ndarray
    noise_covariance: np.ndarray | None = None

    def take(self, attributes: np.ndarray) -> JudgmentEstimates:
        """Estimates of some attributes, in the order given; all matrices are square."""
        grid = np.ix_(attributes, attributes)
        chosen: dict[str, Any] = {name: getattr(self, name)[attributes] for name in _BY_ATTRIBUTE}
        chosen |= {name: getattr(self, name)[grid] for name in ("second_moment", "external")}
        if self.noise_covariance is not None:
            chosen["noise_covariance"] = self.noise_covariance[grid]
        return replace(self, **chosen)

    @property
    def sigma(self) -> np.ndarray:
        """External standard deviation σ̂, shape (n,)."""
        return np.sqrt(self.external_variance)


@dataclass(frozen=True, eq=False)
class JudgmentStatistics:
    """Mergeable summary of the labels and of the judgments of `n` attributes out of `d`.

    Attributes
    ----------
    means : CoMoments
        Of d + 1 columns: each object's mean judgment of each attribute (missing where it has
        none), then the label. Of its matrix the rows of the n attributes where these are a run of
        them, and all rows by default.
    label : CoMoments
        Of the label alone.
    variance_sum : ndarray of shape (n,)
        Σ w VarEst over objects with two judgments or more; VarEst has n − 1 in the denominator.
    variance_weight : ndarray of shape (n,)
        Σ w over those objects.
    noise_sum : ndarray of shape (n,)
        Σ w VarEst/k over those objects.
    single_weight : ndarray of shape (n,)
        Σ w over objects with one judgment.
    n_judgments, n_judged, n_repeated : ndarray of shape (n,), int64
        Judgments; objects with any; objects with two or more.
    raters : RaterStatistics or None
        What raters tell; None where they are not known.

    Notes
    -----
    Objects of weight 0 are left out of everything, counts included.
    """

    means: CoMoments
    label: CoMoments
    variance_sum: np.ndarray
    variance_weight: np.ndarray
    noise_sum: np.ndarray
    single_weight: np.ndarray
    n_judgments: np.ndarray
    n_judged: np.ndarray
    n_repeated: np.ndarray
    raters: RaterStatistics | None = None

    @classmethod
    def empty(cls, n_attributes: int, attributes: slice | None = None) -> JudgmentStatistics:
        """Summary of no objects: the identity of `merge`, whether raters are known or not."""
        n = len(range(*(attributes or slice(None)).indices(n_attributes)))
        sums: Any = [np.zeros(n) for _ in _SUMS]
        counts: Any = [np.zeros(n, dtype=np.int64) for _ in _COUNTS]
        means = CoMoments.empty(n_attributes + 1, attributes)
        return cls(means, CoMoments.empty(1), *sums, *counts)

    @classmethod
    def from_block(
        cls,
        judgments: Sequence[Ragged],
        label: np.ndarray,
        weight: np.ndarray | None = None,
        *,
        attributes: slice | None = None,
        raters: Sequence[Ragged] | None = None,
    ) -> JudgmentStatistics:
        """Summarise one batch of objects.

        Parameters
        ----------
        judgments : sequence of Ragged, length d
            Each with n rows; empty lists are allowed.
        label : ndarray of shape (n,)
        weight : ndarray of shape (n,), optional
            At least 0.
        attributes : slice, optional
            The run of attributes to summarise, paired with all; by default all.
        raters : sequence of Ragged, length d, optional
            In the place of each judgment a whole number that tells its rater from the others of
            the object, negative where that is not known.

        Returns
        -------
        JudgmentStatistics

        Raises
        ------
        DataError
            If a judgment or label is not finite (missing judgments are shorter lists, not NaN),
            a weight is negative, or the numbers of rows differ.
        """
        label = np.asarray(label, dtype=np.float64)
        check_rows(judgments, label.size)
        is_bad = ~np.isfinite(label)
        if is_bad.any():
            bad = int(np.argmax(is_bad))
            raise DataError(
                f"the label of object {bad} is {label[bad]}; labels must be finite numbers"
            )
        keep, weight = checked_weight(weight)
        if keep is not None:
            judgments = [ragged.take(keep) for ragged in judgments]
            label = label[keep]
            raters = raters and [codes.take(keep) for codes in raters]
        summarised = range(*(attributes or slice(None)).indices(len(judgments)))
        block = np.empty((len(judgments) + 1, label.size))
        block[-1] = label
        within = []
        for attribute, ragged in enumerate(judgments):
            block[attribute], squares = ragged.means_and_squares()
            if attribute in summarised:
                within.append(_within_objects(ragged.counts(), squares, weight))
        table = np.array(within, dtype=np.float64).reshape(len(within), len(_WITHIN))
        sums: Any = table[:, : len(_SUMS)].T.copy()
        counts: Any = table[:, len(_SUMS) :].T.astype(np.int64)
        label_moments = CoMoments.from_block(label[np.newaxis], weight)
        means = CoMoments.from_block(block, weight, rows=attributes, overwrite=raters is None)
        statistics = cls(means, label_moments, *sums, *counts)
        if raters is None:
            return statistics
        of_raters = RaterStatistics.from_block(judgments, raters, block[:-1], means, weight)
        return replace(statistics, raters=of_raters)

    @property
    def n_attributes(self) -> int:
        """Number d of all attributes."""
        return self.means.n_columns - 1

    @property
    def attributes(self) -> slice:
        """The n attributes that are summarised."""
        return slice(self.means.start, self.means.start + self.variance_sum.size)

    @property
    def n_objects(self) -> int:
        """Number of objects of positive weight."""
        return self.means.n_samples

    def by_column(self) -> dict[str, np.ndarray]:
        """Return what partitions are compared by; see :meth:`CoMoments.by_column`.

        ``internal`` is v̂ and ``repeated`` the weight that it is a mean over; the last column, the
        label, has none.
        """
        columns = self.means.by_column()
        columns["internal"][:-1] = self.internal_variance()
        columns["repeated"][:-1] = self.variance_weight
        return columns

    def merge(self, later: JudgmentStatistics) -> JudgmentStatistics:
        """Summary of the objects of both, for the same attributes."""
        if not self.n_objects and (later.n_objects or later.raters is not None):
            return later
        if not later.n_objects:
            return self
        added = {name: getattr(self, name) + getattr(later, name) for name in _SUMS + _COUNTS}
        return JudgmentStatistics(
            means=self.means.merge(later.means),
            label=self.label.merge(later.label),
            raters=self.raters and later.raters and self.raters.merge(later.raters),
            **added,
        )

    def scaled(self, factor: float) -> JudgmentStatistics:
        """Multiply every object's weight by `factor` > 0 (decay); counts stay."""
        sums = {name: getattr(self, name) * factor for name in _SUMS}
        means = self.means.scaled(factor)
        label = self.label.scaled(factor)
        raters = self.raters and self.raters.scaled(factor)
        return replace(self, means=means, label=label, raters=raters, **sums)

    def take(self, attributes: np.ndarray | Sequence[int]) -> JudgmentStatistics:
        """Summary of some attributes, in the order given, and of the label."""
        index = np.arange(self.n_attributes)[np.asarray(attributes)]
        taken = {name: getattr(self, name)[index] for name in _WITHIN}
        raters = self.raters and self.raters.take(index)
        means = self.means.take(np.append(index, self.n_attributes))
        return replace(self, means=means, raters=raters, **taken)

    def internal_variance(self) -> np.ndarray:
        """Return v̂ of each attribute, NaN where no object has two judgments; shape (n,)."""
        out = np.full(self.variance_sum.size, np.nan)
        np.divide(self.variance_sum, self.variance_weight, out=out, where=self.n_repeated > 0)
        return out

    def estimates(
        self, internal_variance: np.ndarray | None = None, names: Sequence[str] | None = None
    ) -> JudgmentEstimates:
        """Estimates of the methods page and of [1]_, for numbers of judgments that vary.

        Parameters
        ----------
        internal_variance : ndarray of shape (n,), optional
            v of each attribute where it is known, NaN where it is to be estimated. A value given
            replaces the mean over objects, also where an object has a single judgment; it does
            not replace the variances of objects with more.
        names : sequence of str, length n, optional
            Names of the attributes for messages.

        Returns
        -------
        JudgmentEstimates

        Raises
        ------
        DataError
            If there are no objects, an attribute has no judgment, or an attribute has neither an
            object with two judgments nor a given internal variance.
        """
        if names is None:
            names = [f"number {a}" for a in range(self.attributes.start, self.attributes.stop)]
        if not self.n_objects:
            raise DataError("There is no object to estimate from.")
        _refuse(self.n_judged == 0, names, "no object has a judgment; exclude these attributes")
        v = self.internal_variance()
        if internal_variance is not None:
            v = np.where(np.isnan(internal_variance), v, internal_variance)
        _refuse(
            np.isnan(v),
            names,
            "no object has two judgments, so the internal variance cannot be estimated; collect a "
            "second judgment of some objects, set `internal_variance`, or exclude these attributes",
        )
        d = self.n_attributes
        attributes = self.attributes
        noise = (self.noise_sum + v * self.single_weight) / self.means.observed_weight[attributes]
        covariance = self.means.covariance(pairwise=True)[: v.size]
        second_moment = covariance[:, :d]
        external = second_moment.copy()
        noise_covariance = None
        if self.raters is not None:
            external = self.raters.different.covariance(pairwise=True).copy()
            noise_covariance = self.raters.noise_covariance(v)
        external[np.arange(v.size), attributes.start + np.arange(v.size)] -= noise
        return JudgmentEstimates(
            b=covariance[:, d].copy(),
            v=v,
            second_moment=second_moment,
            noise=noise,
            external=external,
            external_variance=np.maximum(np.diagonal(external, attributes.start), 0.0),
            label_variance=float(self.label.variance()[0]),
            label_mean=float(self.means.mean[d]),
            means=self.means.mean[attributes].copy(),
            n_objects=self.n_objects,
            n_judgments=self.n_judgments,
            n_missing=self.n_objects - self.n_judged,
            mean_judgments=self.n_judgments / self.n_judged,
            noise_covariance=noise_covariance,
        )


def _refuse(bad: np.ndarray, names: Sequence[str], reason: str) -> None:
    """Raise `DataError` naming the attributes for which `bad` holds."""
    refused = [str(names[int(a)]) for a in np.flatnonzero(bad)]
    if refused:
        plural = "s" if len(refused) > 1 else ""
        raise DataError(f"Attribute{plural} {first_of(refused)}: {reason}.")


def _within_objects(
    counts: np.ndarray, squares: np.ndarray, weight: np.ndarray | None
) -> list[float]:
    """Return the sums of `JudgmentStatistics`, in its order, for one attribute."""
    is_single = counts == 1
    is_repeated = counts >= 2
    n_single = int(np.count_nonzero(is_single))
    n_repeated = int(np.count_nonzero(is_repeated))
    rows: Any = is_repeated if n_repeated < counts.size else slice(None)  # nothing is copied
    k = counts[rows]
    variance = squares[rows] / (k - 1)
    repeated_weight = float(n_repeated)
    single_weight = float(n_single)
    if weight is not None:
        variance *= weight[rows]
        repeated_weight = float(weight[rows].sum())
        single_weight = float(weight[is_single].sum())
    return [
        float(variance.sum()),
        repeated_weight,
        float((variance / k).sum()),
        single_weight,
        int(counts.sum()),
        n_single + n_repeated,
        n_repeated,
    ]
