"""Reports of every kind of job as a browser shows them, on a screen and on a telephone."""

import numpy as np
import pandas as pd
import pytest

from distfms import (
    AttributeEfficientRidge,
    FeatureMultiSelector,
    GroupSequenceClassifier,
    GroupSequencer,
    LandmarkRegressor,
)
from tests.browser import CHROMIUM

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 6))
Y = X @ [2.0, 1.0, 0.5, 0.0, 0.0, 0.0] + 0.3 * RNG.normal(size=240)
CLASSES = np.array(["low", "middle", "high"])[np.digitize(Y, [-1.0, 1.0])]
JUDGMENTS = X[..., None] + RNG.normal(size=(240, 6, 3))
TUNED = {"folds": 3, "tune": {"ridge": [1.0, 0.1, 0.01]}}
KINDS = {
    "multiselect": (FeatureMultiSelector(12, baselines=["scoring", "copies"], **TUNED), Y, 4),
    "classes": (GroupSequenceClassifier(folds=3), CLASSES, 6),
    "landmarks": (LandmarkRegressor(["sigmoid", "manhattan"], landmarks=20, **TUNED), Y, 1),
    "online": (AttributeEfficientRidge(3, solver="online", repeats=2, folds=0), Y, 1),
}


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
@pytest.mark.parametrize("kind", KINDS)
def test_a_report_is_whole_and_readable(kind, tmp_path, look):
    model, y, n_charts = KINDS[kind]
    page = tmp_path / "report.html"
    page.write_text(model.fit(JUDGMENTS if kind == "multiselect" else X, y).report())
    look(page, n_charts)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
def test_tables_are_saved_without_formulas(tmp_path, look):
    names = ["=1+1", "@sum", "-x()", "+y", "\t=z", '=HYPERLINK("a,b")']
    page = tmp_path / "report.html"
    model = GroupSequencer(baselines=[], folds=3).fit(pd.DataFrame(X, columns=names), Y)
    page.write_text(model.report())
    look(page, 2)
