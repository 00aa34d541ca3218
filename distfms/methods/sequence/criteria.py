"""Selection rules: what one step maximises, before it is divided by the cost."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from distfms.errors import SpecError
from distfms.methods.sequence.residual import ResidualGram

Criterion = Callable[[], np.ndarray]
"""Value of every own group at the present S, in units of explained variance F."""

CRITERIA = ("omp", "fr", "omp-single", "omp-no-whiten")
"""Rules that score groups; see `make_criterion`."""


def make_criterion(rule: str, state: ResidualGram) -> Criterion:
    """Return a function that scores all own groups of a state as it is when called.

    Parameters
    ----------
    rule : {"omp", "fr", "omp-single", "omp-no-whiten"}
        ``fr``: F(S ∪ g) − F(S). ``omp``: ½ b_gᵀ(X_gᵀX_g/n)⁺b_g, the whitened gradient, without
        the ridge. ``omp-single``: ½ max_j b_gj². ``omp-no-whiten``: ½ ‖b_g‖². With several
        targets squares are summed over them (Frobenius norms).
    state : ResidualGram
        With ``blocks=True`` for ``fr``.

    Raises
    ------
    SpecError
        If the rule is unknown.

    References
    ----------
    Hu, Grubb, Bagnell, Hebert, "Efficient Feature Group Sequencing for Anytime Linear
    Prediction", Algorithm 1 and Section 2.
    """
    if rule == "fr":
        return state.group_gains
    if rule == "omp":
        return _whitened(state)
    if rule == "omp-single":
        return _from_squares(state, lambda squares: squares.max(axis=1))
    if rule == "omp-no-whiten":
        return _from_squares(state, lambda squares: squares.sum(axis=1))
    raise SpecError(f"criterion {rule!r} is none of {', '.join(CRITERIA)}.")


def _from_squares(state: ResidualGram, reduce: Callable[[np.ndarray], np.ndarray]) -> Criterion:
    """Rule on the squared gradient of each column, shape (m, s) for a class of groups."""

    def values() -> np.ndarray:
        result = np.empty(state.n_groups)
        for size_class in state.classes:
            gradient = state.gradient(size_class)
            squares = np.einsum("msp,msp->ms", gradient, gradient)
            result[size_class.groups] = 0.5 * reduce(squares)
        return result

    return values


def _whitened(state: ResidualGram) -> Criterion:
    """Rule ½ ‖W_g b_g‖² with W_gᵀW_g the pseudo-inverse of the raw block, found once."""
    whiteners = [_whiteners(state.raw_blocks(size_class)) for size_class in state.classes]

    def values() -> np.ndarray:
        result = np.empty(state.n_groups)
        for size_class, whitener in zip(state.classes, whiteners, strict=True):
            white = whitener @ state.gradient(size_class)
            result[size_class.groups] = 0.5 * np.einsum("msp,msp->m", white, white)
        return result

    return values


def _whiteners(blocks: np.ndarray) -> np.ndarray:
    """Λ^{-1/2}Uᵀ of each block (m, s, s), rows of negligible eigenvalues set to 0."""
    eigenvalues, vectors = np.linalg.eigh(blocks)
    size = blocks.shape[1]
    floor = eigenvalues[:, -1:] * (8 * np.finfo(np.float64).eps * max(size, 16))
    kept = eigenvalues > floor
    scale = np.where(kept, 1.0 / np.sqrt(np.where(kept, eigenvalues, 1.0)), 0.0)
    return np.ascontiguousarray(scale[:, :, None] * vectors.transpose(0, 2, 1))
