"""Each option that can be tuned, of each method and form of model: its values are compared."""

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.methods import METHODS
from distfms.methods import load_method as method_of
from distfms.methods.landmarks import fit
from distfms.runs.driver import run_job
from tests.e2e.jobs import content, spec_of

METRICS = "metrics.json"
N = 120
LANDMARKS = {"landmarks": 20, "metric": "none", "baselines": [], "ridge": 1e-4, "clip": False}
LANDMARKS |= {"similarity": "gaussian"}
#: Of one width nothing is chosen.
WIDTH = {"similarity": {"name": "gaussian", "sigma": 1.5}}
SPARSE = {**LANDMARKS, "task": "sparse", "bound": 8.0, "keep": 8}
SEQUENCE = {"groups": {"pair": ["a", "b"]}, "costs": {"pair": 0.45, "c": 0.5}, "baselines": []}
SEQUENCE |= {"model": "linear", "ridge": 1e-3, "max_groups": 1, "cost_aware": False}
TREES = {"model": "lightgbm", "lightgbm": {"num_iterations": 5, "min_data_in_leaf": 5}}
TREES |= {"criterion": "fr", "expand": None}
# What runs choose for themselves would differ between them.
JUDGMENTS = {"budget": 6, "costs": {"a": 3}, "baselines": [], "psd": "nearest"}
JUDGMENTS |= {"algorithm": "full", "ridge": 0.01}
ONLINE = {"attributes_per_example": 4, "solver": "online", "repeats": 0}
TWO_PHASE = {"draws": "two_phase", "confidence": 0.5}
OF_ALL = {"keep": 2, "ridge": 10.0, "landmarks": 4, "bound": 0.1}
ORDER = {"cost_aware": True, "doubling": True, "max_groups": 3}

#: Form of a method: method, target, measure in a grid and of a run, section, and for each option
#: that the form has a value far from that of the section, or the default.
CASES = {
    "squared": ("landmarks", "y", "mse", LANDMARKS, {"landmarks": 4, **OF_ALL, "intercept": False}),
    "sparse": ("landmarks", "y", "mse", SPARSE, {"selection": "steps", "ridge": 10.0, "keep": 2}),
    "metric": (
        *("landmarks", "y", "mse", {**LANDMARKS, "metric": "diagonal", **WIDTH}),
        {"ridge": 10.0},
    ),
    "stepwise": (
        *("landmarks", "y", "mse", {**SPARSE, "selection": "steps"}),
        {"bound": 1.0, "keep": 2, "ridge": 10.0},
    ),
    "insensitive": (
        *("landmarks", "y", "mae", {**LANDMARKS, "loss": "epsilon_insensitive"}),
        {"smoothing": 2.0, **OF_ALL, "epsilon": 2.0},
    ),
    "insensitive steps": (
        *("landmarks", "y", "mae"),
        {**SPARSE, "loss": "epsilon_insensitive", "selection": "steps"},
        {"epsilon": 2.0, "bound": 1.0, "keep": 2, "smoothing": 2.0},
    ),
    "ordinal": (
        *("landmarks", "level", "mae", {**LANDMARKS, "task": "ordinal", "spacing": 0.5}),
        {"ridge": 10.0, "gamma": 4.0, "spacing": 5.0},
    ),
    "classes": ("landmarks", "flag", "loss", {**LANDMARKS, "task": "classification"}, OF_ALL),
    "hinge": (
        *("landmarks", "flag", "loss"),
        {**LANDMARKS, "task": "classification", "loss": "hinge"},
        {"ridge": 10.0, "smoothing": 1.0},
    ),
    "ranking": (
        "landmarks",
        "level",
        "ndcg@5",
        {**LANDMARKS, "task": "ranking"},
        {"bound": 0.1, **OF_ALL},
    ),
    "sequence": (
        *("sequence", "y", "mse", SEQUENCE),
        {"criterion": "omp-no-whiten", **ORDER, "ridge": 3.0},
    ),
    "logistic": (
        *("sequence", "flag", "mse", {**SEQUENCE, "family": "logistic"}),
        {**ORDER, "ridge": 3.0, "criterion": "omp-no-whiten"},
    ),
    # The ridge of these decides about nothing but the order of the groups.
    "trees": (
        *("sequence", "y", "mse", {**SEQUENCE, **TREES}),
        {**ORDER, "criterion": "omp-no-whiten"},
    ),
    "judgments": (
        *("multiselect", "y", "projected_loss", JUDGMENTS),
        {
            **{"budget": 12, "ridge": 10.0, "algorithm": "scoring", "criterion": "gain"},
            **{"psd": "none"},
        },
    ),
    # With steps so long that the bound is met.
    "online": (
        *("attribute_efficient", "y", "mse", {**ONLINE, "step_factor": 30.0}),
        {**{"draws": "uniform", "bound": 100.0, "step_factor": 0.1}, **{"inner_product": "base"}},
    ),
    "two phases": (
        *("attribute_efficient", "y", "mse", {**ONLINE, **TWO_PHASE}),
        {"confidence": 0.0, "first_step_factor": 10.0, "first_examples": 30},
    ),
}
#: The first option of a form of each method; all others take minutes.
USUAL = {("squared", "landmarks"), ("sequence", "criterion"), ("judgments", "budget")}
USUAL |= {("online", "algorithm")}
CELLS = [
    pytest.param(form, option, marks=() if (form, option) in USUAL else pytest.mark.slow)
    for form, case in CASES.items()
    for option in case[-1]
]
#: How near the scores of a run are, where a run asks for other models than a grid: folds fit fewer
#: prefixes, or judge models of as many landmarks as those of all rows.
NEAR = {"logistic": 0.02, "stepwise": 0.2, "insensitive steps": 0.3}


def table(name):
    """Rows whose target is not linear in five columns, or their judgments."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(N, 5)) * [1.0, 1.0, 2.0, 1.0, 0.5]
    X[:, 1] += 2 * X[:, 0]
    X[:, 3] += X[:, 2]
    y = X[:, 0] + np.sin(2 * X[:, 1]) + 0.4 * X[:, 2] + 0.3 * X[:, 3] + 0.5 * rng.normal(size=N)
    columns = {"id": np.arange(N), "y": y, "level": np.digitize(y, [-1.0, 0.0, 1.0]) * 1.0}
    columns |= {"flag": (y > 0) * 1.0, "query": np.repeat(np.arange(N // 8), 8)}
    for name_of, values in zip("abcde", X.T, strict=True):
        noise = 3.0 * rng.normal(size=(N, 2))
        columns[name_of] = (values[:, None] + noise).tolist() if name == "multiselect" else values
    return pa.table(columns)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    for method in METHODS:
        pq.write_table(table(method), folder / f"{method}.parquet")
    return folder


@pytest.fixture(scope="module")
def folds(data, tmp_path_factory):
    """Scores of a run on each fold."""

    @cache
    def found(form, *changes):
        metrics = content(run(data, tmp_path_factory.mktemp("run"), form, dict(changes)), METRICS)
        name = CASES[form][2]
        names = (name, name.replace("variance", "deviance"))
        return [next(fold[n] for n in names if n in fold) for fold in metrics["folds"]]

    return found


@pytest.fixture(scope="module", autouse=True)
def few_steps():
    """Steps with a pass each end early."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "STEPS_TOLERANCE", 0.05)
        yield


def run(data, output, form, section, **more):
    method, target, _, own, _ = CASES[form]
    role = "query" if form == "ranking" else "id"
    unused = [n for n in ("id", "query", "y", "level", "flag") if n not in (role, target)]
    rows = {"target": target, role: role, "exclude": unused, "folds": 2, "test": 0.0}
    rows["path"] = str(data / f"{method}.parquet")
    job = {"name": "one", "method": method, "data": rows, method: {**own, **section}}
    return run_job(spec_of({**job, "engine": {"workers": 1}, "output": str(output)}, more)).folder


@pytest.mark.parametrize(("form", "option"), CELLS)
def test_values_are_compared_by_the_scores_of_their_runs(data, folds, tmp_path, form, option):
    method, _, measure, own, options = CASES[form]
    default = method_of(method).Options.model_fields[option].default
    values = [options[option], own.get(option, default)]
    tune = {"grid": {option: values}, "measure": measure}
    tuned = content(run(data, tmp_path, form, {}, tune=tune), "tuning.json")
    scores = [point["folds"] for point in tuned["points"]]
    assert np.abs(np.subtract(*scores)).max() > 1e-4 * np.abs(scores).max()
    alone = [folds(form, (option, values[0])), folds(form)]
    np.testing.assert_allclose(scores, alone, rtol=NEAR.get(form, 1e-9))


def test_no_option_is_left_out():
    for name in METHODS:
        tried = {option for case in CASES.values() if case[0] == name for option in case[-1]}
        assert tried == set(method_of(name).tunable)
