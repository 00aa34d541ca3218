"""The pure part of group sequencing: from co-moments to sequences and what they explain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from distfms.errors import SpecError
from distfms.methods.contract import Answer
from distfms.methods.cross_validation import CALLS, Fold, Members
from distfms.methods.sequence.greedy import sequence
from distfms.methods.sequence.problem import (
    FeatureGroups,
    GroupCosts,
    SequencePath,
    SequenceProblem,
    problem_from_comoments,
)
from distfms.methods.sequence.residual import CRITERIA
from distfms.methods.sequence.timeliness import MAX_POINTS, thinned, timeliness
from distfms.methods.statistics_job import Procedure
from distfms.stats.base import Statistic
from distfms.stats.comoments import CoMoments

DEFAULT_BASELINES = ("omp", "fr-blind", "oracle", "sparse")
"""What a sequence is compared with when the spec does not say."""

OTHERS = ("oracle", "sparse", "random")
"""Baselines that are no variant of a criterion."""

SPARSE_TOL = 1e-3
"""Relative duality gap of the group lasso: only the order of entry is wanted, and at a thousandth
the fits of an ill-conditioned path take a fifteenth of the time for as good an order (measured on
218 groups of a ranking: timeliness 0.9435, against 0.9431 at a millionth)."""

_BLIND, _DOUBLING = "-blind", "-doubling"


@dataclass(frozen=True)
class Rule:
    """How groups are put in order.

    Attributes
    ----------
    criterion : str
        One of ``fr``, ``omp``, ``omp-single``, ``omp-no-whiten``, ``oracle``, ``sparse``,
        ``random``.
    cost_aware, doubling : bool
        Of the first four.
    """

    criterion: str
    cost_aware: bool = True
    doubling: bool = False

    @property
    def name(self) -> str:
        """Name in specs and results: ``fr``, ``fr-blind``, ``omp-doubling``, …."""
        blind = "" if self.cost_aware else _BLIND
        return self.criterion + blind + (_DOUBLING if self.doubling else "")

    def path(
        self, problem: SequenceProblem, *, seed: int = 0, max_groups: int | None = None
    ) -> SequencePath:
        """Put the groups of a problem in order."""
        if self.criterion == "oracle":
            raise SpecError("The oracle is a curve, not a sequence.")
        if self.criterion == "sparse":
            order = sparse_path(problem, tol=SPARSE_TOL).order.tolist()
            return sequence(problem, "given", order=order, max_groups=max_groups)
        return sequence(
            problem,
            self.criterion,
            cost_aware=self.cost_aware,
            doubling=self.doubling,
            seed=seed,
            max_groups=max_groups,
        )


def parse_rule(name: str) -> Rule:
    """Rule of a name."""
    if name in OTHERS:
        return Rule(name)
    rest = name.removesuffix(_DOUBLING)
    criterion = rest.removesuffix(_BLIND)
    rule = Rule(criterion, criterion == rest, rest != name)
    if criterion not in CRITERIA:
        known = ", ".join((*CRITERIA, *OTHERS))
        raise SpecError(
            f"There is no rule `{name}`. Known are {known}; the first four also with the endings "
            f"{_BLIND} and {_DOUBLING}."
        )
    return rule


@dataclass(frozen=True, eq=False)
class SparsePath:
    """Group lasso solutions and the order in which groups entered.

    Attributes
    ----------
    penalties : numpy.ndarray of shape (L,)
        λ of ½‖Y − Xw‖²/n + λ Σ c(g) ‖w_g‖₂, descending.
    coefficients : numpy.ndarray of shape (L, d, P)
        On standardised columns.
    entry : numpy.ndarray of int, shape (J,)
        First position on the path at which a group is not 0; L for those that never entered.
    order : numpy.ndarray of int, shape (J,)
        Groups by entry; within one penalty by descending ‖w_g‖ / c(g); groups that never
        entered last, by their gradient per cost at the least penalty.
    """

    penalties: np.ndarray
    coefficients: np.ndarray
    entry: np.ndarray
    order: np.ndarray


def compress(gram: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(R, z) with RᵀR = G and Rᵀz = b, one row for each eigenvalue that is not negligible."""
    eigenvalues, vectors = np.linalg.eigh(gram)
    kept = eigenvalues > eigenvalues[-1] * len(gram) * np.finfo(np.float64).eps
    root = np.sqrt(eigenvalues[kept])
    basis = vectors[:, kept].T
    return root[:, None] * basis, (basis @ target) / root[:, None]


def sparse_path(
    problem: SequenceProblem,
    *,
    n_penalties: int = 100,
    smallest: float = 1e-4,
    tol: float = 1e-6,
    penalties: Sequence[float] | None = None,
) -> SparsePath:
    """Cost-weighted group lasso along a path of penalties.

    Notes
    -----
    With P targets the compressed problem is written as one of P r rows and P d columns, which
    takes P² times the memory.
    """
    solve = _solver()
    design, response = compress(problem.gram, problem.target)
    n_targets, n_rows = problem.n_targets, len(design)
    columns = problem.groups.columns
    costs = problem.costs.alone
    # A weight of nothing would be no penalty at all; a free group enters first with a small one.
    weights = np.maximum(costs, 1e-6 * costs.max()) if costs.max() > 0 else np.ones(len(costs))
    # celer divides the squared error by the number of rows, and so must the penalty be.
    rows = n_rows * n_targets
    wide = np.asfortranarray(np.kron(np.eye(n_targets), design))
    dim = problem.gram.shape[0]
    groups = [[p * dim + c for p in range(n_targets) for c in group] for group in columns]
    if penalties is None:
        top = _group_norms(problem.target[None], columns)[0] / weights
        penalties = np.geomspace(top.max(), top.max() * smallest, n_penalties).tolist()
    alphas = np.sort(np.asarray(penalties, dtype=np.float64))[::-1]
    _, flat, _ = solve(
        wide,
        response.T.ravel(),
        pb="grouplasso",
        groups=groups,
        weights=np.ascontiguousarray(weights, dtype=np.float64),
        alphas=alphas / rows,
        tol=tol,
        max_iter=100,
    )
    coefficients = flat.T.reshape(len(alphas), n_targets, dim).transpose(0, 2, 1)
    return _with_order(problem, alphas, np.ascontiguousarray(coefficients), weights)


def _solver() -> Any:
    """Import the path solver of celer, or say how to get it."""
    try:
        from celer import celer_path
    except ImportError as error:
        raise SpecError(
            "The baseline 'sparse' needs the package celer, which is not installed: "
            "pip install 'distfms[sparse]', or leave the baseline out."
        ) from error
    return celer_path


def _group_norms(values: np.ndarray, columns: Sequence[Sequence[int]]) -> np.ndarray:
    """‖values_g‖_F for each penalty and group; `values` (L, d, P)."""
    squares = np.einsum("ldp,ldp->ld", values, values)
    return np.sqrt(np.stack([squares[:, list(group)].sum(axis=1) for group in columns], axis=1))


def _with_order(
    problem: SequenceProblem, penalties: np.ndarray, coefficients: np.ndarray, weights: np.ndarray
) -> SparsePath:
    """Order of entry from the solutions."""
    columns, n_penalties = problem.groups.columns, len(penalties)
    norms = _group_norms(coefficients, columns)
    active = norms > 0
    entry = np.where(active.any(axis=0), active.argmax(axis=0), n_penalties)
    gradient = problem.target - problem.gram @ coefficients[-1]
    strength = _group_norms(gradient[None], columns)[0]
    entered = entry < n_penalties
    rows = np.minimum(entry, n_penalties - 1)
    strength = np.where(entered, norms[rows, np.arange(len(columns))], strength) / weights
    order = np.lexsort((np.arange(len(columns)), -strength, entry))
    return SparsePath(penalties, coefficients, entry, order)


MEASURES = {"timeliness": True, "explained_variance": True, "mse": False}
"""What `tune` compares sequences by, and whether more is better."""


@dataclass(frozen=True)
class SequenceProcedure(Procedure):
    """What decides about sequences besides the statistics.

    Attributes
    ----------
    rules : tuple of Rule
    feature_names : tuple of str, length D
        Rows of a batch.
    target_names : tuple of str, length P
    groups : FeatureGroups
        Partition of the D columns.
    costs : GroupCosts
    ridge : float
    max_groups : int or None
    seed : int
        Of the ``random`` baseline.
    """

    part_types: ClassVar[Mapping[str, type[Statistic]]] = {"moments": CoMoments}
    path_type: ClassVar[Any] = SequencePath

    rules: tuple[Rule, ...]
    feature_names: tuple[str, ...]
    target_names: tuple[str, ...]
    groups: FeatureGroups
    costs: GroupCosts
    ridge: float
    max_groups: int | None
    seed: int

    def size(self, members: Members) -> tuple[int, float]:
        """Return the number of rows and their weight."""
        moments = members["moments"]
        return int(moments.n_samples), float(moments.weight)

    def problem(self, train: Members) -> SequenceProblem:
        """Return the selection problem of some rows: the D features, then the P targets."""
        n_features, n_targets = len(self.feature_names), len(self.target_names)
        return problem_from_comoments(
            train["moments"],
            features=range(n_features),
            targets=range(n_features, n_features + n_targets),
            feature_names=self.feature_names,
            target_names=self.target_names,
            groups=self.groups,
            costs=self.costs,
            ridge=self.ridge,
        )

    def problem_on(self, fold: Fold) -> SequenceProblem:
        """Return the problem of all rows but a fold's, whose matrix does not have the ridge."""
        problem = fold.once("problem", lambda: self.problem(fold.train))
        return replace(problem, ridge=self.ridge)

    def search(self, problem: SequenceProblem, rule: Rule) -> SequencePath:
        """Return the sequence of a rule."""
        return rule.path(problem, seed=self.seed, max_groups=self.max_groups)

    def grid(self, path: SequencePath) -> np.ndarray:
        """Return the costs of the prefixes whose scores are kept."""
        return path.curve_cost[thinned(len(path) + 1, MAX_POINTS)]

    def score(
        self, problem: SequenceProblem, path: SequencePath, held_out: Members, budgets: np.ndarray
    ) -> Answer:
        """Score the longest prefix that each budget affords."""
        curve = path.held_out(held_out["moments"])
        prefixes = [path.affordable(budget) for budget in budgets]
        return {
            "r2": curve.r2[prefixes],
            "mse": curve.mse.mean(axis=1)[prefixes],
            "explained_variance": curve.explained_variance[prefixes],
        }

    def evaluate(self, fold: Fold, rule: Rule, budgets: np.ndarray) -> Answer:
        """Search without a fold; score on it what each budget affords, and the whole sequence."""
        problem = self.problem_on(fold)
        path = self.search(problem, rule)
        found = self.score(problem, path, fold.held_out, budgets)
        whole = self.score(problem, path, fold.held_out, path.curve_cost[-1:])
        return {**found, **{f"whole/{measure}": values[0] for measure, values in whole.items()}}

    def tuned_values(self, fold: Fold, ends: Sequence[int | None], measure: str) -> np.ndarray:
        """Measure sequences that end after so many groups, on a fold."""
        path = self.search(self.problem_on(fold), self.rules[0])
        curve = path.held_out(fold.held_out["moments"])
        last = [len(path) if end is None else min(end, len(path)) for end in ends]
        if measure == "timeliness":
            # On one scale for all points: what all groups cost, and all that can be explained.
            whole = float(self.costs.own.sum() + sum(item.cost for item in self.costs.shared))
            cost, value = path.curve_cost, curve.explained_variance
            return np.array(
                [timeliness(cost[: k + 1], value[: k + 1], stop=whole, final=1.0) for k in last]
            )
        values = curve.mse.mean(axis=1) if measure == "mse" else curve.explained_variance
        return values[last]

    def store(
        self, problem: SequenceProblem, paths: Mapping[str, SequencePath]
    ) -> dict[str, np.ndarray]:
        """Return the paths as named arrays."""
        return {
            f"{name}/{key}": array
            for name, path in paths.items()
            for key, array in path.to_arrays().items()
        }

    def restore(
        self, train: Members, arrays: Mapping[str, np.ndarray]
    ) -> tuple[SequenceProblem, dict[str, SequencePath]]:
        """Return problem and paths, in the order of the rules."""
        problem = self.problem(train)
        found: dict[str, dict[str, np.ndarray]] = {rule.name: {} for rule in self.rules}
        for name, array in arrays.items():
            rule, _, key = name.partition("/")
            found[rule][key] = array
        paths = {n: self.path_type.from_arrays(own, problem) for n, own in found.items()}
        return problem, paths

    def n_operations(self) -> float:
        """Return about how many multiplications a sequence takes, calls counted as such."""
        n_columns, n_groups = len(self.feature_names), len(self.groups)
        n_steps = n_groups if self.max_groups is None else min(self.max_groups, n_groups)
        return float(n_columns) ** 2 * n_columns * n_steps / n_groups + CALLS * n_steps
