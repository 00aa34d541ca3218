"""A weight counts equal rows, and one that all rows have counts for nothing."""

import numpy as np
import pandas as pd
import pytest

from tests.e2e.jobs import content, run_on

N = 36


def table(method):
    """Few rows, of which an ``id`` names each; three of six columns tell of the target."""
    rng = np.random.default_rng(5)
    truth = rng.normal(size=(N, 6))
    frame = pd.DataFrame({"id": np.arange(N), "y": truth[:, :3].sum(axis=1) + rng.normal(size=N)})
    for name, values in zip("abcdef", truth.T, strict=True):
        judgments = values[:, None] + rng.normal(size=(N, 2))
        frame[name] = list(judgments) if method == "multiselect" else judgments[:, 0]
    return frame


@pytest.fixture(scope="module", params=["multiselect", "sequence"])
def method(request):
    return str(request.param)


@pytest.mark.parametrize("folds", [0, 3])
def test_weight_two_is_the_row_twice_and_a_constant_weight_is_none(tmp_path, method, folds):
    plain = table(method)
    twice = plain["id"] % 3 == 0
    tables = {
        "plain": plain,
        "constant": plain.assign(w=0.7),
        "whole constant": plain.assign(w=3),
        "twice": pd.concat([plain, plain[twice]], ignore_index=True),
        "weight two": plain.assign(w=np.where(twice, 2.0, 1.0)),
        "weights in thousands": plain.assign(w=np.where(twice, 2000.0, 1000.0)),
    }
    options = {"multiselect": {"budget": 8}, "sequence": {"baselines": [], "model": "linear"}}
    answers = {}
    for name, frame in tables.items():
        data = {"id": "id", "folds": folds}
        if "w" in frame:
            data["weight"] = "w"
        folder = run_on(frame, tmp_path / name, method, options[method], data)
        selection = content(folder, "selection.json")
        with np.load(folder / "weights.npz") as arrays:
            weights = arrays["weights" if method == "multiselect" else "coefficients"]
        answers[name] = selection["ridge"], weights
    for name, like in [
        ("constant", "plain"),
        ("whole constant", "plain"),
        ("weight two", "twice"),
        ("weights in thousands", "twice"),
    ]:
        assert answers[name][0] == answers[like][0], name
        np.testing.assert_allclose(answers[name][1], answers[like][1], rtol=1e-6, atol=1e-9)
