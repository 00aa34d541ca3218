"""Similarities against their formulas."""

import numpy as np
import pytest

from distfms.errors import SpecError
from distfms.methods.landmarks import similarity
from distfms.methods.landmarks.options import LandmarksOptions
from distfms.methods.landmarks.similarity import (
    LandmarkMap,
    Similarity,
    landmark_arrays,
    landmark_maps,
)
from distfms.stats.comoments import Moments
from distfms.stats.sample import RowSample
from tests.reference import landmarks as literal

NAMES = [name for name in similarity.PARAMETERS if name != similarity.PRECOMPUTED]
RNG = np.random.default_rng(3)
ROWS = RNG.normal(size=(4, 23))
LANDMARKS = RNG.normal(size=(5, 4))


def plain(name, landmarks=LANDMARKS, sigma=1.7, **parameters):
    own = Similarity(name, tuple(parameters.items())).resolved(4, lambda: sigma)
    zeros = np.zeros(landmarks.shape[1])
    return LandmarkMap(own, zeros, zeros + 1.0, zeros, landmarks)


@pytest.mark.parametrize("name", NAMES)
def test_formulas(name):
    mapping = plain(name)
    expected = literal.embedding(name, ROWS.T, LANDMARKS, dict(mapping.similarity.parameters))
    np.testing.assert_allclose(mapping(ROWS), expected.T, rtol=1e-11)
    if name in similarity.KERNELS:  # may be as narrow as a number can be
        narrow = plain(name, np.eye(4), sigma=1e-200)(np.eye(4))
        np.testing.assert_array_equal(narrow, np.eye(4))


@pytest.mark.parametrize("name", NAMES[1:4])
@pytest.mark.parametrize("offset", [1e7, 1.6e9])
def test_offsets_of_columns_cost_no_digits(name, offset):
    rng = np.random.default_rng(0)
    rows = offset + np.round(rng.normal(size=(3, 60)), 3)  # exact to 2e-7 with the largest offset
    moments = Moments.from_block(np.ascontiguousarray(rows))
    sample = RowSample.from_rows(60, np.arange(60, dtype=np.uint64), np.arange(60), rows, None)
    arrays = landmark_arrays(sample, moments, 3, LandmarksOptions(scaling="none"), 60)
    mapping, product = landmark_maps(
        [Similarity(name), Similarity("linear")], arrays, sample
    ).values()
    assert not product.shift.any()  # it would be another similarity
    found = mapping(rows)
    p = dict(mapping.similarity.parameters)
    expected = literal.embedding(name, rows.T, rows.T, p)
    away = 1e-5 if name == "laplace" else 1e-11  # roots of what rounding left
    np.testing.assert_allclose(found, expected, atol=away)
    assert found.max() <= (1.0 if name in similarity.KERNELS else 0.0)
    pairs = np.linalg.norm(rows[:, :, None] - rows[:, None], axis=0)
    if name == "gaussian":
        assert p["sigma"] == pytest.approx(pairs.sum() / (60 * 59), rel=1e-9)


def product(rows, landmarks):
    return rows @ landmarks.T


def test_a_function_of_the_user():
    found = plain(f"{__name__}:product")(ROWS)
    np.testing.assert_allclose(found, plain("linear")(ROWS), rtol=1e-12)
    with pytest.raises(SpecError, match="cannot be imported"):
        similarity.user_function("no.such.module:function")
