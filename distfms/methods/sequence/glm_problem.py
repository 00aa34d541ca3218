"""From the selection problem on co-moments to a generalised linear sequence, and to a predictor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distfms.errors import SpecError
from distfms.methods.sequence.anytime import AnytimePredictor
from distfms.methods.sequence.families import Array, get_family
from distfms.methods.sequence.glm import GlmDesign, GlmSequence, PassFunction, sequence_glm
from distfms.methods.sequence.path import PrefixModels
from distfms.methods.sequence.problem import SequenceProblem

GLM_CRITERIA = ("omp", "omp-no-whiten")
"""Rules of Appendix B: the squared norm of the gradient, whitened or as it is."""


def glm_criterion(criterion: str, doubling: bool = False) -> str:
    """Rule that a generalised linear sequence is found by when another is asked for.

    Parameters
    ----------
    criterion : str
        ``fr`` would need a fit for each candidate at each step; its place is taken by ``omp``,
        the whitened gradient.
    doubling : bool
        Refused.

    Returns
    -------
    {"omp", "omp-no-whiten"}

    Raises
    ------
    SpecError
        If the rule has no form for generalised linear models.
    """
    if doubling:
        raise SpecError("`doubling` is for the gaussian family only.")
    chosen = "omp" if criterion == "fr" else criterion
    if chosen not in GLM_CRITERIA:
        raise SpecError(
            f"criterion {criterion!r} is for the gaussian family only; the others have "
            f"{', '.join(GLM_CRITERIA)} (and take fr for omp)."
        )
    return chosen


@dataclass(frozen=True, eq=False)
class GlmProblem:
    """A selection problem as a generalised linear model sees it.

    Attributes
    ----------
    problem : SequenceProblem
        Groups and costs; its target plays no part.
    design : GlmDesign
        Of all D features; constant ones are in no group.
    n_outputs : int
        P: responses, or classes.
    """

    problem: SequenceProblem
    design: GlmDesign
    n_outputs: int

    @classmethod
    def of(cls, problem: SequenceProblem, family: str, n_outputs: int) -> GlmProblem:
        """Take standardisation, groups and costs from a problem on co-moments."""
        scaling = problem.scaling
        scale = np.ones(len(scaling.scale))
        scale[scaling.kept] = scaling.scale[scaling.kept]
        return cls(problem, GlmDesign(get_family(family), scaling.mean, scale), n_outputs)

    @property
    def columns(self) -> list[NDArray[np.int64]]:
        """Positions of each group's columns among the D features."""
        kept = self.problem.scaling.kept
        return [kept[list(group)].astype(np.int64) for group in self.problem.groups.columns]

    @property
    def gram(self) -> Array:
        """Correlations of the D features; the identity where one is constant."""
        kept = self.problem.scaling.kept
        gram = np.eye(self.design.n_columns)
        gram[np.ix_(kept, kept)] = self.problem.gram
        return gram

    def sequence(
        self,
        pass_fn: PassFunction,
        *,
        criterion: str = "omp",
        cost_aware: bool = True,
        max_refits: int | None = None,
        max_groups: int | None = None,
        max_iter: int = 50,
        tol: float = 1e-8,
    ) -> GlmSequence:
        """Put the groups in order; see :func:`~distfms.methods.sequence.glm.sequence_glm`."""
        return sequence_glm(
            pass_fn,
            self.design,
            self.gram,
            self.columns,
            self.problem.costs.marginal,
            n_outputs=self.n_outputs,
            cost_aware=cost_aware,
            whiten=criterion == "omp",
            ridge=self.problem.ridge,
            max_refits=max_refits,
            max_groups=max_groups,
            max_iter=max_iter,
            tol=tol,
        )

    def predictor(
        self, path: GlmPath, target_names: tuple[str, ...] | None = None
    ) -> AnytimePredictor:
        """Predictor of all prefixes.

        Parameters
        ----------
        path : GlmPath
            Of this problem.
        target_names : tuple of str, optional
            Names of the outputs; default: of the targets.
        """
        models = path.models(self.design)
        columns = self.columns
        scaling = self.problem.scaling
        return AnytimePredictor(
            groups=tuple(self.problem.groups.names[g] for g in path.order),
            columns=tuple(tuple(columns[g].tolist()) for g in path.order),
            feature_names=scaling.feature_names,
            target_names=scaling.target_names if target_names is None else target_names,
            spent=path.spent,
            coefficients=models.coefficients,
            intercept=models.intercept,
            fill=scaling.mean,
            family=self.design.family.name,
        )


@dataclass(frozen=True, eq=False)
class GlmPath:
    """A generalised linear sequence as arrays, for storage without pickle.

    Attributes
    ----------
    order : ndarray of int, shape (K,)
        Groups of the problem.
    cost, score : ndarray of shape (K,)
        Cost of each step, and what it was chosen by.
    refit_at : ndarray of int, shape (R,)
        Prefix lengths that were fitted anew; see `GlmSequence`.
    weights : ndarray of shape (R + 1, D + 1, P)
        Coefficients of the standardised columns, intercept last, of the null model and each refit.
    loss : ndarray of shape (R + 1,)
        Their mean training losses, half the deviance.
    status : ndarray of str, shape (R + 1,)
        How their fits ended; see `GlmFit`.
    n_passes : int
        Passes over the data in all.
    """

    order: NDArray[np.intp]
    cost: Array
    score: Array
    refit_at: NDArray[np.intp]
    weights: Array
    loss: Array
    status: np.ndarray
    n_passes: int

    def n_candidates(self, n_groups: int) -> int:
        """Count candidates evaluated: before each refit all groups not taken are scored.

        Parameters
        ----------
        n_groups : int
            Groups of the problem.
        """
        return sum(n_groups - int(taken) for taken in (0, *self.refit_at[:-1]))

    @classmethod
    def of(cls, result: GlmSequence) -> GlmPath:
        """Take what is worth keeping of a sequence."""
        lengths = (0, *result.refit_at)
        return cls(
            order=np.array(result.groups, dtype=np.intp),
            cost=result.costs,
            score=result.scores,
            refit_at=np.array(result.refit_at, dtype=np.intp),
            weights=np.stack([result.weights_at(k) for k in lengths]),
            loss=np.array([refit.loss for refit in result.refits]),
            status=np.array([refit.status for refit in result.refits], dtype=np.str_),
            n_passes=result.n_passes,
        )

    def __len__(self) -> int:
        return len(self.order)

    @property
    def spent(self) -> Array:
        """Cost of the prefixes 1..K."""
        return np.cumsum(self.cost)

    @property
    def curve_cost(self) -> Array:
        """Cost of the prefixes 0..K."""
        return np.concatenate(([0.0], self.spent))

    @property
    def model_of_prefix(self) -> NDArray[np.intp]:
        """Position of the model of each prefix 0..K: of the longest refitted one in it."""
        return np.searchsorted(self.refit_at, np.arange(len(self) + 1), side="right")

    @property
    def explained_deviance(self) -> Array:
        """1 − deviance / null deviance on the training rows, of the prefixes 0..K."""
        if not self.loss[0] > 0.0:
            return np.zeros(len(self) + 1)
        return 1.0 - self.loss[self.model_of_prefix] / self.loss[0]

    def models(self, design: GlmDesign) -> PrefixModels:
        """Coefficients of the linear score of the prefixes 0..K in original units."""
        pairs = [design.original_units(weights) for weights in self.weights]
        at = self.model_of_prefix
        return PrefixModels(
            np.stack([w for w, _ in pairs])[at], np.stack([b for _, b in pairs])[at]
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Content as named arrays."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> GlmPath:
        """Inverse of `to_arrays`."""
        content: dict[str, Any] = {field.name: arrays[field.name] for field in fields(cls)}
        return cls(**{**content, "n_passes": int(arrays["n_passes"])})
