"""Cost-weighted group lasso on the compressed problem: the paper's baseline ``Sparse``.

With G = XᵀX/n = RᵀR and z = R⁻ᵀXᵀY/n the problems on (X, Y) and on (R, z) have the same
solutions, because ‖Y − Xw‖²/n and ‖z − Rw‖² differ by a constant. So a solver that wants a
design matrix gets one of D rows instead of n. The solver is celer's.

Not pure: celer, of the extra ``benchmark``, is imported here when it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distfms.errors import SpecError
from distfms.methods.sequence.problem import SequenceProblem


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
    """(R, z) with RᵀR = G and Rᵀz = b, one row for each eigenvalue that is not negligible.

    Parameters
    ----------
    gram : numpy.ndarray of shape (d, d)
        Positive semi-definite.
    target : numpy.ndarray of shape (d, P)
        In the range of `gram`.

    Returns
    -------
    R : numpy.ndarray of shape (r, d)
    z : numpy.ndarray of shape (r, P)
    """
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

    Parameters
    ----------
    problem : SequenceProblem
        Its ridge plays no part. Each group is weighted with what it costs as the first one,
        shared costs included.
    n_penalties : int
        Number of penalties, log-spaced.
    smallest : float
        Least penalty as a share of the one at which the first group enters.
    tol : float
        Duality gap that celer stops at, relative to ‖z‖².
    penalties : sequence of float, optional
        The penalties themselves, instead.

    Returns
    -------
    SparsePath
        Evaluate it with ``sequence(problem, "given", order=path.order)``.

    Raises
    ------
    SpecError
        If celer is not installed.

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
