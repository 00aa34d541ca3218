"""What a default sequence takes to be found, and columns that hardly vary without a fold."""

import sys

import lightgbm
import numpy as np
import pandas as pd
import pytest

from distfms.data.rows.folds import assign_parts
from distfms.methods.sequence import greedy
from tests.e2e.jobs import content, run_on

N_FOLDS = 5


def run(frame, folder, **sequence):
    return run_on(frame, folder, "sequence", sequence, {"id": "id", "folds": N_FOLDS})


def linear_rows(n=400, d=12):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(d)])
    frame["y"] = X @ np.linspace(2.0, 0.1, d) + rng.normal(size=n)
    return frame.assign(id=np.arange(n))


def test_linear_models_are_found_by_one_pass_few_searches_and_few_fits(tmp_path, monkeypatch):
    fits = []
    searches = []
    train = lightgbm.train
    search = greedy.sequence

    def counted_fit(*given, **options):
        fits.append(0)
        return train(*given, **options)

    def counted_search(*given, **options):
        searches.append(0)
        return search(*given, **options)

    monkeypatch.setattr(lightgbm, "train", counted_fit)
    for module in list(sys.modules.values()):
        if getattr(module, "sequence", None) is search:
            monkeypatch.setattr(module, "sequence", counted_search)
    folder = run(linear_rows(1_200), tmp_path)  # not few
    assert content(folder, "manifest.json")["passes"] == 1
    assert len(searches) <= 18
    assert len(fits) <= 12
    assert content(folder, "selection.json")["family"] == "gaussian"
    assert content(folder, "metrics.json")["reference"]["folds"]


@pytest.mark.parametrize("model", ["linear", "auto"])
def test_a_column_that_hardly_varies_without_a_fold_explodes_nowhere(tmp_path, model):
    frame = linear_rows()
    fold = assign_parts(frame["id"].to_numpy(), n_folds=N_FOLDS, test=0.0, seed=0)
    noise = np.random.default_rng(1).normal(size=len(frame))
    # Without fold 2 its deviation is a millionth of what it is with it.
    frame["rare"] = np.where(fold == 2, noise, 1e-6 * noise)
    for ridge in ("auto", 1e-5):
        folder = run(frame, tmp_path / str(ridge), model=model, ridge=ridge)
        metrics = content(folder, "metrics.json")
        assert len(metrics["folds"]) == N_FOLDS
        assert min(own["explained_variance"] for own in metrics["folds"]) > 0.85
