"""Jobs made at random run to an end: finite, the same on threads and processes and in memory.

``DISTFMS_VALID_JOBS`` sets how many the slow test makes; of 1,000 each takes about a second.
"""

import os
from contextlib import nullcontext
from inspect import signature

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import distfms
from distfms.engine.local import LocalExecutor
from distfms.errors import DistfmsError
from distfms.runs import driver
from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec
from distfms.runs.predict import predict_file
from tests.faults.cases import contents
from tests.faults.valid_jobs import made_job

N_JOBS = int(os.environ.get("DISTFMS_VALID_JOBS", "24"))

#: Options that say which estimator it is.
_KINDS = ("family", "task", "penalty")

#: By the method, and by one of these.
_ESTIMATORS = {
    ("sequence", "gaussian"): "GroupSequencer",
    ("sequence", "poisson"): "GroupSequencer",
    ("sequence", "logistic"): "GroupSequenceClassifier",
    ("sequence", "softmax"): "GroupSequenceClassifier",
    ("landmarks", "regression"): "LandmarkRegressor",
    ("landmarks", "sparse"): "LandmarkRegressor",
    ("landmarks", "ordinal"): "LandmarkOrdinalRegressor",
    ("landmarks", "classification"): "LandmarkClassifier",
    ("landmarks", "ranking"): "LandmarkRanker",
    ("attribute_efficient", "ridge"): "AttributeEfficientRidge",
    ("attribute_efficient", "lasso"): "AttributeEfficientLasso",
}


def test_one_job_of_each_method(tmp_path):
    require_jobs(range(4), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(120 + 10 * N_JOBS)
def test_valid_jobs(tmp_path):
    with LocalExecutor(2, processes=True) as processes:
        n_estimators = require_jobs(range(4, 4 + N_JOBS), tmp_path, processes)
    print(f"{N_JOBS} jobs, {n_estimators} estimators")
    assert n_estimators > N_JOBS // 8


def require_jobs(seeds, folder, processes=None):
    """Run jobs, nearly all of which are accepted; return how many estimators agreed."""
    refused, n_estimators = dict[int, str](), 0
    for n_made, seed in enumerate(seeds, 1):
        made, data = made_job(seed), folder / f"data-{seed}"
        try:
            run = run_job(build_spec(made.spec(data, folder / f"runs-{seed}", workers=2))).folder
        except DistfmsError as error:
            refused[seed] = str(error)
            assert len(refused) <= 1 + n_made // 10, refused
            continue
        predicted = require_finite(run, data)
        n_estimators += require_estimator(made, data, predicted)
        if processes is not None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(driver, "make_executor", lambda *_: nullcontext(processes))
                again = build_spec(made.spec(data, folder / f"again-{seed}"))
                assert contents(run_job(again).folder) == contents(run), made.seed
    return n_estimators


def require_finite(run, data):
    """Check the numbers of a model and of its predictions; return these."""
    with np.load(run / "weights.npz") as arrays:
        for name, array in arrays.items():
            own = array[~np.isinf(array)] if name == "limits" else array  # infinite: not cut
            assert own.dtype.kind != "f" or np.isfinite(own).all(), name
    out = run.parent / "predicted.parquet"
    predict_file(run, str(data), out)
    predicted = pq.read_table(out)
    for column in numbers(predicted).values():
        assert np.isfinite(column).all(), predicted.schema
    return predicted


def numbers(table):
    """Columns of numbers, by name."""
    kinds = (pa.types.is_floating, pa.types.is_integer)
    names = [f.name for f in table.schema if any(is_kind(f.type) for is_kind in kinds)]
    return {name: table[name].to_numpy() for name in names}


def require_estimator(made, data, predicted):
    """Check that an estimator with the same options predicts as the job, where there is one."""
    kind = next((made.options[key] for key in _KINDS if key in made.options), None)
    name = _ESTIMATORS.get((made.method, kind))
    if name is None or made.data["test"]:
        return False
    Estimator = getattr(distfms, name)
    taken = signature(Estimator).parameters.keys()
    given = {k: v for k, v in made.options.items() if k in taken or k not in _KINDS}
    given |= {"folds": made.data["folds"], "missing": made.data.get("missing", "error")}
    model = Estimator(**given, random_state=made.seed)
    others = {"query": made.data["query"]} if "query" in made.data else {}
    rows = pq.read_table(data).drop_columns([*others.values()])
    found = model.fit(str(data), "y", **others).predict(rows.drop_columns(["y"]).to_pandas())
    expected = predicted.column("predicted_y").to_pylist()
    if isinstance(expected[0], str):
        assert list(found) == expected, made.seed
    else:
        np.testing.assert_allclose(found, expected, 1e-9, 1e-9, err_msg=f"job {made.seed}")
    return True
