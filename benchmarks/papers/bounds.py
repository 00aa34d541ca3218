"""The bounds of the four papers, by the numbers of their equations and theorems.

Constants are as printed. Where a printed constant does not follow from its own proof, the docstring
says what does, and that is computed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np
from scipy.linalg import block_diag

# --- Sabato and Kalai, feature multi-selection ----------------------------------------------------


def least_eigenvalue(external: np.ndarray, costs: Sequence[float], budget: float) -> float:
    """λ of Theorem 3.1: the least eigenvalue of Σ among attributes that the budget can pay for."""
    least = math.inf
    for chosen in subsets(range(len(costs))):
        if chosen and sum(costs[a] for a in chosen) <= budget:
            least = min(least, np.linalg.eigvalsh(external[np.ix_(chosen, chosen)])[0])
    return float(least)


def selection_error(algorithm: str, lam: float, B: int, d: int, m: int, delta: float) -> float:
    """Theorem 3.1, right-hand side without its constants, for judgments in [−1, 1]."""
    error = math.log(B * d / delta) / (lam**2 * math.sqrt(m))
    return error if algorithm == "scoring" else min(B, d) ** 3 * error


def objects_needed(algorithm: str, lam: float, B: int, d: int, delta: float) -> float:
    """Theorem 3.1: the least m, without constants and logarithms of m."""
    if algorithm == "scoring":
        return math.log(d / delta) / lam**2
    most = min(B, d)
    return most * math.log(most * d / delta) / lam**2


# --- Hu, Grubb, Bagnell and Hebert, group sequencing ----------------------------------------------

Value = Callable[[Sequence[int]], float]


def gamma(X: np.ndarray, ridge: float) -> float:
    """γ = (λ* + λ)/(1 + λ) of Lemma 3.1, with λ* the least eigenvalue of XᵀX/n."""
    least = float(np.linalg.eigvalsh(X.T @ X / len(X))[0])
    return (max(least, 0.0) + ridge) / (1.0 + ridge)


def whitened(X: np.ndarray, groups: Sequence[Sequence[int]]) -> np.ndarray:
    """Centred rows with X_gᵀX_g = nI for every group (Section 5.4)."""
    whitened = X - X.mean(axis=0)
    for group in map(list, groups):
        basis, _ = np.linalg.qr(whitened[:, group])
        whitened[:, group] = basis * math.sqrt(len(X))
    return whitened


def whitened_gamma(gram: np.ndarray, groups: Sequence[Sequence[int]], ridge: float) -> float:
    """γ of Lemma 3.1 of the whitened groups, from XᵀX/n; 0 where a group is singular."""
    halves = []
    for group in map(list, groups):
        values, vectors = np.linalg.eigh(gram[np.ix_(group, group)])
        if values[0] <= 1e-12 * values[-1]:
            return 0.0
        halves.append(vectors / np.sqrt(values))
    order = [column for group in groups for column in group]
    half = block_diag(*halves)
    white = half.T @ gram[np.ix_(order, order)] @ half
    return (max(float(np.linalg.eigvalsh(white)[0]), 0.0) + ridge) / (1.0 + ridge)


def share_of_same_cost(gamma: float, spent: float, cost: float) -> float:
    """Theorem 3.2: F(G⟨spent⟩) > (1 − exp(−γ · spent/cost)) · F(S⟨cost⟩)."""
    return -math.expm1(-gamma * spent / cost)


def submodularity(value: Value, n_groups: int) -> float:
    """γ of Equation 9, by all sets.

    The largest γ ≤ 1 with γ · (F(A ∪ x) − F(A)) ≤ F(A′ ∪ x) − F(A′) for all A′ ⊆ A and x.
    """
    table = {frozenset(chosen): value(chosen) for chosen in subsets(range(n_groups))}
    least = 1.0
    for bigger in table:
        for x in set(range(n_groups)) - bigger:
            late = table[bigger | {x}] - table[bigger]
            if late <= 1e-12:
                continue
            for smaller in map(frozenset, subsets(sorted(bigger))):
                early = table[smaller | {x}] - table[smaller]
                least = min(least, early / late)
    return max(least, 0.0)


def share_of_quarter_cost(gamma: float) -> float:
    """Theorem 4.3: F(G⟨B⟩) > (1 − exp(−γ²/(1 + γ))) · F(S⟨B/4⟩), by doubling, γ of Equation 9."""
    return -math.expm1(-(gamma**2) / (1.0 + gamma))


def is_doubling_capable(costs: Sequence[float], order: Sequence[int]) -> bool:
    """Definition 4.2, of the order that doubling found."""
    spent = 0.0
    for place, group in enumerate(order):
        cheapest = min(costs[g] for g in order[place:])
        if place and cheapest > spent:
            return False
        spent += costs[group]
    return True


# --- Kar and Jain, similarity functions -----------------------------------------------------------


def landmark_excess(B: float, d: int, n: int, delta: float) -> float:
    """Theorem 5 (its proof, C.1): what d landmarks and n rows add to ε₀ + ε of the loss."""
    of_landmarks = 32.0 * B * math.sqrt(math.log(1.0 / delta) / d)
    return of_landmarks + 3.0 * B * math.sqrt(math.log(1.0 / delta) / n)


def sparse_excess(B: float, d: int, n: int, delta: float, tau: float) -> float:
    """Theorem 9 (its proof, D.1): the same for k = τd landmarks that are chosen of d."""
    of_landmarks = 32.0 * B * math.sqrt(math.log(1.0 / delta) / (tau * d))
    of_steps = math.sqrt(18.0 * B**2 / (tau * d))
    return of_landmarks + of_steps + sparse_generalisation(B, d, n, delta)


def sparse_generalisation(B: float, d: int, n: int, delta: float) -> float:
    """Lemma 22 for slopes and |K| up to 1, the second term twice as in the proof of Theorem 9."""
    return 2.0 * B * (math.sqrt(2.0 * math.log(2 * d) / n) + math.sqrt(-math.log(delta) / (2 * n)))


def double_dipping(B: float, slope: float, n: int, delta: float) -> float:
    """Theorem 20 and McDiarmid: how much more than on the n rows that are also landmarks.

    The paper sums these two up as 4BC_L√(log(1/δ)/n), which is less than its second term.
    """
    expected = 2.0 * B * slope / math.sqrt(n)
    return expected + 6.0 * B * slope * math.sqrt(math.log(1.0 / delta) / (2 * n))


def ordinal_error(loss: float, gamma: float, spacing: float) -> float:
    """Theorem 13: ψ_{Δ/γ̄}(ε₀/γ̄) with ψ_Δ(x) = (x + Δ − 1)/Δ and γ̄ = max(γ, 1).

    Bounds the mean absolute error of levels where γ ≥ 1 and thresholds are Δ ≥ γ apart. Closer
    ones give rows without a loss a negative share, which can make it less than the error. For
    γ < 1 the proof takes the loss at margin 1 for the lesser one at margin γ.
    """
    margin = max(gamma, 1.0)
    apart = spacing / margin
    return (loss / margin + apart - 1.0) / apart


def mislabelling(loss: float, gamma: float) -> float:
    """Theorem 13: the share of rows with another level, for γ ≥ 1."""
    return loss / max(gamma, 1.0)


def ndcg_regret(loss: float, m: int) -> float:
    """Theorem 30 (its proof): 1 − NDCG of m documents ≤ C_F/√C_S · √ε₀, ε₀ = ‖s − η(r)‖².

    C_S = 2, and C_F is twice the norm of 1/F(1), …, 1/F(m), F(t) = log(1 + t).
    """
    discounts = 1.0 / np.log(1.0 + np.arange(1, m + 1))
    return float(2.0 * np.linalg.norm(discounts) / math.sqrt(2.0) * math.sqrt(loss))


# --- Kukliansky and Shamir, few attributes --------------------------------------------------------


def ridge_risk(B: float, G: float, m: int, step: float) -> float:
    """Theorem 3.1: excess risk of GAERR with E‖g̃‖₂² ≤ G²."""
    return 2.0 * B**2 / (step * m) + step / 2.0 * G**2


def lasso_risk(B: float, G: float, m: int, d: int, step: float) -> float:
    """Theorem 4.1: excess risk of GAELR with ‖E g̃²‖_∞ ≤ G², for steps of at most 1/(2G)."""
    return B * (math.log(2 * d) / (step * m) + 5.0 * step * G**2)


def uniform_slopes(B: float, d: int, k: int) -> float:
    """G of uniform sampling: G² ≤ 8B²d/k (Lemmas 3.3 and 3.8 of Hazan and Koren)."""
    return B * math.sqrt(8.0 * d / k)


def aerr_step(B: float, G: float, m: int) -> float:
    """Return η = 2B/(G√m), after Theorem 3.1; the paper prints it for AELR too (Section 4)."""
    return 2.0 * B / (G * math.sqrt(m))


def aelr_step(G: float, m: int, d: int) -> float:
    """η = √(log 2d/(5m))/G, which minimises Theorem 4.1 and gives the bound printed for AELR."""
    return math.sqrt(math.log(2 * d) / (5.0 * m)) / G


def aerr_printed(B: float, d: int, k: int, m: int) -> float:
    """Excess risk of AERR: 4B²√(2d/(km))."""
    return 4.0 * B**2 * math.sqrt(2.0 * d / (k * m))


def aelr_printed(B: float, d: int, k: int, m: int) -> float:
    """Excess risk of AELR: 4B²√(10 d log 2d/(km))."""
    return 4.0 * B**2 * math.sqrt(10.0 * d * math.log(2 * d) / (k * m))


def half_norm(moments: np.ndarray) -> float:
    """‖s‖_{1/2} = (Σ √s_i)²."""
    return float(np.sqrt(moments).sum() ** 2)


def ddaerr_risk(B: float, moments: np.ndarray, k: int, m: int) -> float:
    """Theorem 3.3: 4B²/√m · √(‖s‖_{1/2}/k + 1)."""
    return 4.0 * B**2 / math.sqrt(m) * math.sqrt(half_norm(moments) / k + 1.0)


def ddaelr_risk(B: float, moments: np.ndarray, k: int, m: int) -> float:
    """Theorem 4.4: 4B²√(5 log 2d (‖s‖₁ + k)/(km)), for m ≥ log 2d."""
    return 4.0 * B**2 * math.sqrt(5.0 * math.log(2 * len(moments)) * (moments.sum() + k) / (k * m))


def two_phase_ddaerr_risk(
    B: float, moments: np.ndarray, k: int, m1: int, m2: int, delta: float
) -> float:
    """Theorem 3.4: the lesser of what always holds and what holds with probability 1 − δ."""
    d = len(moments)
    always = 4.0 * B**2 / math.sqrt(m2) * math.sqrt(6.0 * d / k)
    doubt = d * math.sqrt(2.0 * d * math.log(2 * d / delta) / ((k + 1) * m1))
    norm = (math.sqrt(half_norm(moments)) + doubt) ** 2
    return min(always, 16.0 * B**2 / math.sqrt(m2) * math.sqrt(norm / k + 1.0))


def two_phase_ddaelr_risk(
    B: float, moments: np.ndarray, k: int, m1: int, m2: int, delta: float
) -> float:
    """Theorem 4.5: the lesser of what always holds and what holds with probability 1 − δ."""
    d = len(moments)
    always = 61.0 * B**2 * math.sqrt(d * math.log(2 * d) / (k * m2))
    doubt = min(d * math.log(2 * d / delta) / ((k + 1) * m1), 1.0)
    norm = 16.0 * moments.sum() + 88.0 * d / 3.0 * doubt + k
    return min(always, 4.0 * B**2 * math.sqrt(5.0 * norm * math.log(2 * d) / (k * m2)))


def subsets(items: Collection[int]) -> Iterator[tuple[int, ...]]:
    """All sets of items, the smallest first."""
    sizes = range(len(items) + 1)
    return itertools.chain.from_iterable(itertools.combinations(items, size) for size in sizes)
