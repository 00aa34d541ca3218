"""What the theorems promise, of a target whose goodness is known."""

import numpy as np
import pytest

from distfms import LandmarkRegressor
from tests.reference import landmarks as literal


@pytest.mark.parametrize("n_landmarks", [5, 40])
def test_a_good_similarity_keeps_the_promise_of_theorem_5(n_landmarks):
    """Of f(x) = E w(x')K(x, x') with |w| ≤ B, from which targets do not differ: ε₀ = 0."""
    rng = np.random.default_rng(0)
    X, new = rng.uniform(-1, 1, size=(2, 300, 2))
    everyone, bound = rng.uniform(-1, 1, size=(2000, 2)), 3.0
    weights = bound * np.sign(everyone[:, 0])
    apart = [np.square(rows[:, np.newaxis] - everyone).sum(axis=2) for rows in (X, new)]
    target, truth = (np.exp(-own / 2) @ weights / len(everyone) for own in apart)
    similarity = {"name": "gaussian", "sigma": 1.0}
    own = {"similarity": similarity, "scaling": "none", "metric": "none"}
    model = LandmarkRegressor(**own, landmarks=n_landmarks, folds=0).fit(X, target)
    error = np.abs(model.predict(new) - truth).mean()
    assert error < literal.excess(bound, n_landmarks, len(X), 0.05)
    assert error < 0.05
