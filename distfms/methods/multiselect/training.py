"""What a selection is made from: settings and training statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from distfms.errors import DataError
from distfms.methods.multiselect.baselines import averages, copies, single_attribute
from distfms.methods.multiselect.greedy import Algorithm, Criterion, select
from distfms.methods.multiselect.objective import Problem, Psd
from distfms.methods.multiselect.path import SelectionPath
from distfms.methods.multiselect.refine import refine
from distfms.stats.base import Folded
from distfms.stats.judgments import CopiesStatistics, JudgmentEstimates, JudgmentStatistics


@dataclass(frozen=True)
class Settings:
    """What decides about a selection, beside the statistics.

    Attributes
    ----------
    names : tuple of str, length d
    budget : float
    costs : ndarray of shape (d,)
    ridge : float
    psd : {"nearest", "none"}
        See :class:`~distfms.methods.multiselect.objective.Problem`.
    criterion : {"best", "gain_per_cost", "gain"}
    internal_variance : ndarray of shape (d,), or None
        Known internal variances, NaN where they are estimated.
    n_judgments : int
        Judgments per attribute of the Averages and Copies baselines.
    algorithms : tuple of str
        The chosen algorithm first, then the baselines.
    refine : bool
        Whether the chosen algorithm's selection is improved by exchanges.
    """

    names: tuple[str, ...]
    budget: float
    costs: np.ndarray
    ridge: float = 0.0
    psd: Psd = "nearest"
    criterion: Criterion = "best"
    internal_variance: np.ndarray | None = None
    n_judgments: int = 2
    algorithms: tuple[str, ...] = field(default=("full",))
    refine: bool = False

    def estimates(self, statistics: JudgmentStatistics) -> JudgmentEstimates:
        """Estimates of the training data."""
        return statistics.estimates(self.internal_variance, self.names)

    def problem(self, estimates: JudgmentEstimates) -> Problem:
        """Feature multi-selection in numbers, from the estimates of the training data."""
        return Problem.from_estimates(
            estimates, self.costs, self.ridge, names=self.names, psd=self.psd
        )

    def known_variance(self) -> np.ndarray:
        """Return the given internal variances, NaN where they are estimated; shape (d,)."""
        if self.internal_variance is None:
            return np.full(len(self.names), np.nan)
        return self.internal_variance

    def estimable(self, statistics: JudgmentStatistics) -> np.ndarray:
        """Tell which attributes some objects suffice to estimate.

        Parameters
        ----------
        statistics : JudgmentStatistics

        Returns
        -------
        ndarray of bool, shape (d,)
            Judged at all, and judged twice somewhere unless the internal variance is given.
        """
        repeated = (statistics.n_repeated > 0) | ~np.isnan(self.known_variance())
        return (statistics.n_judged > 0) & repeated

    def restricted(self, attributes: np.ndarray) -> Settings:
        """Return the settings for some attributes only.

        Parameters
        ----------
        attributes : ndarray of int
        """
        known = self.internal_variance
        return replace(
            self,
            names=tuple(self.names[int(a)] for a in attributes),
            costs=self.costs[attributes],
            internal_variance=None if known is None else known[attributes],
        )


@dataclass(frozen=True, eq=False)
class Sample:
    """Statistics of one set of objects.

    Attributes
    ----------
    judgments : JudgmentStatistics
    copies : CopiesStatistics or None
    """

    judgments: JudgmentStatistics
    copies: CopiesStatistics | None = None

    @classmethod
    def of(cls, members: Mapping[str, Folded[Any]], without: int | None = None) -> Sample:
        """Take the training objects of statistics by fold.

        Parameters
        ----------
        members : mapping of str to Folded
            ``judgments`` and maybe ``copies``.
        without : int, optional
            A fold to leave out.
        """
        return cls(
            **{
                name: folded.train() if without is None else folded.train_without(without)
                for name, folded in members.items()
            }
        )

    def restricted(self, attributes: np.ndarray) -> Sample:
        """Return the statistics of some attributes only.

        Parameters
        ----------
        attributes : ndarray of int
        """
        judgments, copies = self.judgments.take(attributes), self.copies
        if copies is not None:
            columns = attributes[:, None] * copies.copies + np.arange(copies.copies)
            kept = np.append(columns.ravel(), copies.comoments.n_columns - 1)
            copies = replace(copies, comoments=copies.comoments.take(kept))
        return Sample(judgments, copies)


@dataclass(frozen=True, eq=False)
class Training:
    """Training statistics with the estimates and the problem that all algorithms share.

    Attributes
    ----------
    settings : Settings
    sample : Sample
    estimates : JudgmentEstimates
    problem : Problem
        Making it costs O(d³) for ``psd: nearest``, which is why it is made once.
    """

    settings: Settings
    sample: Sample
    estimates: JudgmentEstimates
    problem: Problem

    @classmethod
    def of(cls, settings: Settings, sample: Sample) -> Training:
        """Derive the estimates and the problem.

        Parameters
        ----------
        settings : Settings
        sample : Sample

        Raises
        ------
        DataError
            If an attribute cannot be estimated.
        """
        estimates = settings.estimates(sample.judgments)
        return cls(settings, sample, estimates, settings.problem(estimates))

    def choose(self, algorithm: str) -> SelectionPath:
        """Run one algorithm or baseline.

        Parameters
        ----------
        algorithm : str
            ``full``, ``scoring``, ``averages``, ``copies`` or ``single:NAME``.

        Returns
        -------
        SelectionPath
        """
        settings, problem = self.settings, self.problem
        if algorithm == "averages":
            return averages(
                self.estimates,
                settings.budget,
                settings.costs,
                n_judgments=settings.n_judgments,
                ridge=settings.ridge,
                names=settings.names,
            )
        if algorithm == "copies":
            if self.sample.copies is None:
                raise DataError("The Copies baseline needs the statistics of single judgments.")
            return copies(
                self.sample.copies,
                settings.budget,
                settings.costs,
                ridge=settings.ridge,
                names=settings.names,
            )
        if algorithm.startswith("single:"):
            return single_attribute(problem, algorithm.removeprefix("single:"), settings.budget)
        return select(problem, settings.budget, _objective_of(algorithm), settings.criterion)

    def selected(self, path: SelectionPath) -> np.ndarray:
        """Return what is bought in the end by the chosen algorithm, whose greedy path is given.

        Parameters
        ----------
        path : SelectionPath
            Of the first of the settings' algorithms.

        Returns
        -------
        ndarray of int, shape (d,)
            Where the path ends, after the exchanges of ``refine`` if the settings ask for them.
        """
        repeats = path.final_repeats
        if not self.settings.refine or not path.n_steps:
            return repeats
        kind = _objective_of(self.settings.algorithms[0])
        return refine(self.problem, repeats, self.settings.budget, kind).repeats


def _objective_of(algorithm: str) -> Algorithm:
    return "scoring" if algorithm == "scoring" else "full"
