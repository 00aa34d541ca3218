"""Searches whose candidates are spread over shards, for tests of the pools and of the searches."""

from __future__ import annotations

import numpy as np

from distfms.methods.sequence.linear_path import SequencePath
from distfms.methods.sequence.problem import SequenceProblem
from distfms.solve.buying import Problem, SelectionPath
from distfms.solve.costs import GroupCosts
from tests.reference.multiselect_cases import build_problem
from tests.reference.sequence import correlated, make_problem


def require_same(path: SelectionPath, expected: SelectionPath) -> None:
    """Every bit of two paths."""
    assert path.attributes.tolist() == expected.attributes.tolist()
    assert path.objective.tobytes() == expected.objective.tobytes()
    assert (path.status, path.criterion) == (expected.status, expected.criterion)


def awkward_problem(seed: int, psd: str) -> Problem:
    """Duplicates, dependent and constant attributes, some without noise, far apart in index."""
    d = 45
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((400, d))
    values[:, d - 1] = values[:, 0]
    values[:, d - 2] = values[:, 3]
    values[:, d // 2] = values[:, 1] - 2 * values[:, d // 3]
    values[:, 7] = 0.0
    values -= values.mean(axis=0)
    external = values.T @ values / 400
    v = rng.choice([0.0, 0.3, 1.0, 4.0], d)
    v[[0, 1, 7, d // 2, d // 3, d - 1]] = 0.0
    v[d - 2] = v[3] = 0.7
    weights = rng.standard_normal(d) * (rng.random(d) < 0.6)
    b = external @ weights
    costs = rng.choice([1.0, 1.5, 4.0], d)
    return build_problem(
        b, v, external, label_variance=float(weights @ b) + 1.0, costs=costs, psd=psd
    )


# --- sequencing ---------------------------------------------------------------------------------


def awkward_sequence_problem(
    seed: int, *, ridge: float = 0.0, n_targets: int = 1, scattered: bool = False
) -> SequenceProblem:
    """Groups of several sizes; the last repeats the first, one depends on others."""
    rng = np.random.default_rng(seed)
    sizes = [3, 1, 2, 4, 3, 2, 2, 1, 3, 2, 4, 2, 1, 3]
    X, Y, groups = correlated(rng, 300, sizes, n_targets=n_targets)
    X[:, groups[-1]] = 2.0 * X[:, groups[0]]
    X[:, groups[7]] = X[:, groups[2]].sum(axis=1, keepdims=True)
    if scattered:
        places = rng.permutation(X.shape[1])
        X = X[:, np.argsort(places)]
        groups = [sorted(places[group].tolist()) for group in groups]
    own = rng.choice([0.5, 1.0, 2.0, 9.0], len(sizes))
    return make_problem(X, Y, groups, GroupCosts(own), ridge)


def require_same_sequence(path: SequencePath, expected: SequencePath) -> None:
    """Every bit of two paths."""
    for name, value in vars(expected).items():
        other = getattr(path, name)
        if isinstance(value, np.ndarray):
            assert other.tobytes() == value.tobytes(), name
        elif name != "outline":
            assert other == value, name
