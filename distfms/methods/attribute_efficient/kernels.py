"""The compiled step of GAERR and GAELR, in O(k log d) operations.

The weights are ``w = scale · v``. A step changes at most k entries of ``v``; a projection (ridge)
or another normaliser (lasso) changes only the scale. The probabilities of the inner product are
the leaves of a binary tree of sums, whose root does not drift, as a parent is always the sum of its
children. The average of all weights is gathered lazily: an entry is multiplied with the sum of the
scales since it last changed. As differences of that sum lose digits when the scale shrinks
geometrically, everything is settled in O(d) when it has fallen by a factor of a thousand.

This module imports numba; import it where it is used.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from numba import njit as jit
from numba import uint64

# Columns of the table of attributes. A row is one cache line; only lasso has logarithms.
VALUE, GATHERED, SINCE, INNER, PENDING, SEEN, LOG, POINT = range(8)
# Numbers of a chain: the scale and its sum, the squared norm of v (ridge) or the normaliser (lasso)
# and its peak, all since everything was settled, the logarithm that lasso's v is relative to, the
# scale when everything was settled, η, B, and what divides the values for the inner product: their
# number times the norm.
SCALE, TOTAL, NORM, PEAK, BASE, START_SCALE, STEP, BOUND, INNER_UNIT = range(9)
N_NUMBERS = 9
# Counts of a chain: examples learned, examples averaged, distinct attributes observed, examples
# since everything was settled.
N_EXAMPLES, N_AVERAGED, N_SEEN, N_UNSETTLED = range(4)
N_COUNTS = 4
# Form of a chain: lasso rather than ridge, probabilities of the inner product by squares of the
# weights, attributes for the point, attributes in all, whether squares are gathered.
LASSO, SQUARES, N_POINT, N_DRAWS, GATHERS = range(5)


class State(NamedTuple):
    """All of a chain, in arrays that steps change in place; `tree` has its root at node 1.

    Node n has the children 2n and 2n + 1. `shares` (d,) are the cumulative probabilities of the
    point; `squares` (d, 2) sum and count the squares of the values that a first phase observed.
    """

    table: np.ndarray
    tree: np.ndarray
    shares: np.ndarray
    squares: np.ndarray
    numbers: np.ndarray
    counts: np.ndarray
    form: np.ndarray
    key: np.ndarray


#: Fall of the scale or of the norm at which everything is settled.
_FALL = 1e-3
#: Examples for each attribute after which all is settled in any case, which bounds rounding.
_SETTLE_EVERY = 32

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_ONE, _11, _27, _30, _31 = (np.uint64(n) for n in (1, 11, 27, 30, 31))
_UNIT = 2.0**-53

njit = partial(jit, cache=True, error_model="numpy")
inlined = partial(njit, forceinline=True)


@njit
def uniform(key: np.uint64, index: int) -> float:
    """Return number `index` of the stream of a key, in [0, 1): splitmix64."""
    z = uint64(key) + (uint64(index) + _ONE) * _GOLDEN
    z = (z ^ (z >> _30)) * _MIX_1
    z = (z ^ (z >> _27)) * _MIX_2
    return ((z ^ (z >> _31)) >> _11) * _UNIT


# --- the tree -----------------------------------------------------------------------------------


@njit
def _set_leaf(tree: np.ndarray, leaf: int, value: float) -> None:
    node = (len(tree) >> 1) + leaf
    tree[node] = value
    while node > 1:  # the value stays in a register, and is not stored to be read again
        value += tree[node ^ 1]
        node >>= 1
        tree[node] = value


@njit
def _find_leaf(tree: np.ndarray, share: float) -> int:
    """Return the leaf at a share of the sum of all leaves; its value is positive."""
    remaining = share * tree[1]
    node = 1
    n_leaves = len(tree) >> 1
    while node < n_leaves:
        node *= 2
        if remaining >= tree[node] and tree[node + 1] > 0.0:
            remaining -= tree[node]
            node += 1
    return node - n_leaves


@njit
def _leaf_value(value: float, inner: float, form: np.ndarray) -> float:
    return value * value if form[SQUARES] else abs(value) * inner


# --- settling -----------------------------------------------------------------------------------


@njit
def settle(state: State) -> None:
    """Bring the average up to date, take the scale into the values, and build the tree anew."""
    table = state.table
    tree = state.tree
    numbers = state.numbers
    form = state.form
    n_attributes = len(table)
    n_leaves = len(tree) >> 1
    scale = numbers[SCALE]
    for i in range(n_attributes):
        table[i, GATHERED] += table[i, VALUE] * (numbers[TOTAL] - table[i, SINCE])
        table[i, SINCE] = 0.0
    if form[LASSO]:
        norm = 0.0
        for i in range(n_attributes):
            norm += _hyperbolic(table[i, LOG], numbers[BASE])[1]
        numbers[BASE] += math.log(norm)
    norm = 0.0
    for i in range(n_attributes):
        if form[LASSO]:
            table[i, VALUE], share = _hyperbolic(table[i, LOG], numbers[BASE])
            norm += share
        else:
            table[i, VALUE] *= scale
            norm += table[i, VALUE] * table[i, VALUE]
        tree[n_leaves + i] = _leaf_value(table[i, VALUE], table[i, INNER], form)
    for node in range(n_leaves - 1, 0, -1):
        tree[node] = tree[2 * node] + tree[2 * node + 1]
    scale = numbers[BOUND] / norm if form[LASSO] else 1.0
    numbers[NORM] = norm
    numbers[PEAK] = norm
    numbers[SCALE] = scale
    numbers[START_SCALE] = scale
    numbers[TOTAL] = 0.0
    state.counts[N_UNSETTLED] = 0


@njit
def _hyperbolic(log: float, base: float) -> tuple[float, float]:
    """Return sinh and cosh of a logarithm, both divided by the exponential of the base."""
    up = math.exp(log - base)
    down = math.exp(-log - base)
    sine = math.sinh(log) * math.exp(-base) if abs(log) < 1.0 else 0.5 * (up - down)
    return sine, 0.5 * (up + down)


# --- a step -------------------------------------------------------------------------------------


@inlined
def draw(state: State, number: int, attributes: np.ndarray, factors: np.ndarray) -> None:
    """Draw the attributes of an example, and by what their values are to be multiplied.

    The first ``N_POINT`` are for the point, x̃ = Σ factor · value · e; the rest for the inner
    product, which Σ factor · value estimates. There is nothing to observe for the latter while all
    weights are 0: the attribute is then −1.
    """
    table = state.table
    tree = state.tree
    numbers = state.numbers
    shares = state.shares
    n_leaves = len(tree) >> 1
    n_point = state.form[N_POINT]
    n_draws = state.form[N_DRAWS]
    first = number * n_draws
    for r in range(n_draws):
        u = uniform(state.key[0], first + r)
        if r < n_point:
            i = np.searchsorted(shares, u * shares[-1], side="right")
            attributes[r] = i
            factors[r] = table[i, POINT]
        elif tree[1] > 0.0:
            i = _find_leaf(tree, u)
            probability = tree[n_leaves + i] / tree[1]
            weight = numbers[SCALE] * table[i, VALUE]
            attributes[r] = i
            factors[r] = weight / (probability * numbers[INNER_UNIT])
        else:
            attributes[r] = -1
            factors[r] = 0.0


@inlined
def learn(
    state: State, target: float, values: np.ndarray, attributes: np.ndarray, factors: np.ndarray
) -> None:
    """Make a step by the observed values of one example."""
    table = state.table
    squares = state.squares
    numbers = state.numbers
    counts = state.counts
    form = state.form
    n_point = form[N_POINT]
    n_draws = form[N_DRAWS]
    counts[N_EXAMPLES] += 1
    counts[N_AVERAGED] += 1
    counts[N_UNSETTLED] += 1
    numbers[TOTAL] += numbers[SCALE]
    residual = -target
    for r in range(n_draws):
        i = attributes[r]
        if i < 0:
            continue
        if r < n_point:
            table[i, PENDING] += factors[r] * values[r]
        else:
            residual += factors[r] * values[r]
        if table[i, SEEN] != counts[N_EXAMPLES]:
            table[i, SEEN] = counts[N_EXAMPLES]
            counts[N_SEEN] += 1
            if form[GATHERS]:
                squares[i, 0] += values[r] * values[r]
                squares[i, 1] += 1.0
    for r in range(n_point):
        i = attributes[r]
        if table[i, PENDING] != 0.0:  # the first of equal draws has their sum
            move = numbers[STEP] * residual * table[i, PENDING]
            table[i, PENDING] = 0.0
            if move != 0.0:
                _move(state, i, -move)
    if form[LASSO]:
        numbers[SCALE] = numbers[BOUND] / numbers[NORM]
    else:
        length = numbers[SCALE] * math.sqrt(max(numbers[NORM], 0.0))
        if length > numbers[BOUND]:
            numbers[SCALE] *= numbers[BOUND] / length
    numbers[PEAK] = max(numbers[PEAK], numbers[NORM])
    if (
        numbers[SCALE] < _FALL * numbers[START_SCALE]
        or numbers[NORM] < _FALL * numbers[PEAK]
        or counts[N_UNSETTLED] >= _SETTLE_EVERY * len(table)
    ):
        settle(state)


@njit
def _move(state: State, i: int, move: float) -> None:
    """Move one weight (ridge) or its logarithm (lasso)."""
    table = state.table
    numbers = state.numbers
    base = numbers[BASE]
    old = table[i, VALUE]
    table[i, GATHERED] += old * (numbers[TOTAL] - table[i, SINCE])
    table[i, SINCE] = numbers[TOTAL]
    if state.form[LASSO]:
        _, before = _hyperbolic(table[i, LOG], base)
        table[i, LOG] += min(max(move, -1.0), 1.0)
        new, after = _hyperbolic(table[i, LOG], base)
        difference = after - before
    else:
        new = old + move / numbers[SCALE]
        difference = (new - old) * (new + old)
    numbers[NORM] += difference
    table[i, VALUE] = new
    leaf = _leaf_value(new, table[i, INNER], state.form)
    _set_leaf(state.tree, i, leaf)


# --- many examples ------------------------------------------------------------------------------


@njit
def learn_rows(state: State, rows: np.ndarray, target: np.ndarray, order: np.ndarray) -> None:
    """Draw and learn from some rows, in an order; of a row only what was drawn is looked at."""
    n_draws = state.form[N_DRAWS]
    attributes = np.empty(n_draws, dtype=np.int64)
    factors = np.empty(n_draws)
    values = np.empty(n_draws)
    for place in range(len(order)):
        row = order[place]
        draw(state, state.counts[N_EXAMPLES], attributes, factors)
        for r in range(n_draws):
            values[r] = rows[row, attributes[r]] if attributes[r] >= 0 else 0.0
        learn(state, target[row], values, attributes, factors)
