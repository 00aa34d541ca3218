"""A job imports only what it uses: each library costs its start a quarter of a second or more."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import distfms

HEAVY = ("pandas", "ray", "distributed", "sklearn", "scipy.stats", "celer", "numba", "rich")
#: What a check does without as well: decompositions, processes, the registry, pages and charts.
NOT_TO_CHECK = (*HEAVY, "dask", "scipy", "jinja2", "multiprocessing", "distfms.runs.finished")
NOT_TO_CHECK += ("distfms.registry", "distfms.report.page")

SCRIPT = """
import sys
from distfms.cli import main
for arguments in ({arguments}):
    try:
        main(arguments)
    except SystemExit as end:
        assert not end.code
print([name for name in {heavy} if name in sys.modules])
"""


@pytest.mark.parametrize("method", ["sequence", "multiselect"])
def test_local_jobs_and_predictions_on_parquet(tmp_path, method):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 120))
    columns = {f"x{i}": pa.array(row) for i, row in enumerate(x)}
    options = "{model: linear, baselines: [omp]}"
    if method == "multiselect":
        columns = {n: [[v, v + 1.0] for v in c.to_pylist()] for n, c in columns.items()}
        options = "{budget: 4, plan: true}"
    columns |= {"id": np.arange(120), "y": x.sum(axis=0)}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    data = f"{{path: '{tmp_path}/a.parquet', target: y, id: id, folds: 3}}"
    spec = f"{{name: a, method: {method}, {method}: {options}, data: {data}}}"
    (tmp_path / "spec.yaml").write_text(spec)
    run = ["run", f"{tmp_path}/spec.yaml", "--out", f"{tmp_path}/run"]
    predict = ["predict", f"{tmp_path}/run", f"{tmp_path}/a.parquet", "--out", f"{tmp_path}/p.pq"]
    check = ["check", f"{tmp_path}/spec.yaml"]
    for arguments, heavy in (f"{run}, {predict}", HEAVY), (f"{check},", NOT_TO_CHECK):
        script = SCRIPT.format(arguments=arguments, heavy=heavy)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr


def test_windows_is_refused_at_once():
    script = "import sys; sys.platform = 'win32'; import distfms"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ImportError: distfms needs the file locks and signals of Linux or macOS" in done.stderr


#: What estimators do without.
NOT_TO_FIT = ("ray", "distributed", "celer", "numba", "lightgbm", "duckdb", "distfms.registry")
FIT = """; import numpy as np; X = np.random.default_rng(0).normal(size=(60, 3))
GroupSequencer().fit(X, X[:, 0]).predict(X)"""
ESTIMATORS = "GroupSequencer, LandmarkRegressor, FeatureMultiSelector, load_estimator"


@pytest.mark.parametrize(
    ("imported", "use", "also"),
    [(ESTIMATORS, "", ("dask", "jinja2", "distfms.report.page")), ("GroupSequencer", FIT, ())],
)
def test_estimators_import_little_beside_scikit_learn(imported, use, also):
    script = f"import gc, sys; from distfms import {imported}; assert gc.isenabled()" + use
    script += f"\nprint([name for name in {(*NOT_TO_FIT, *also)} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_the_package_shows_its_public_names_only():
    script = "import sys, distfms; print(dir(distfms) == sorted(distfms.__all__))"
    script += "; print(distfms.__version__, [m for m in sys.modules if m.startswith('distfms.')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    shown, version = done.stdout.splitlines()
    assert shown == "True"
    assert version == f"{distfms.__version__} []"
    command = [sys.executable, "-m", "distfms.cli", "--version"]
    said = subprocess.run(command, capture_output=True, text=True).stdout
    assert said.split()[-1] == distfms.__version__
