"""Jobs made at random run to an end: finite, and the same on threads and processes.

``DISTFMS_VALID_JOBS`` sets how many the slow test makes; of 1,000 each takes about a second.
"""

import os
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.engine.local import LocalExecutor
from distfms.errors import DistfmsError
from distfms.runs import driver
from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec
from distfms.runs.predict import predict_file
from tests.faults.cases import contents
from tests.faults.valid_jobs import made_job

N_JOBS = int(os.environ.get("DISTFMS_VALID_JOBS", "24"))


def test_one_job_of_each_method(tmp_path):
    require_jobs(range(4), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(120 + 10 * N_JOBS)
def test_valid_jobs(tmp_path):
    with LocalExecutor(2, processes=True) as processes:
        require_jobs(range(4, 4 + N_JOBS), tmp_path, processes)


def require_jobs(seeds, folder, processes=None):
    """Run jobs, nearly all of which are accepted."""
    refused = {}
    for n_made, seed in enumerate(seeds, 1):
        made = made_job(seed)
        data = folder / f"data-{seed}"
        try:
            run = run_job(build_spec(made.spec(data, folder / f"runs-{seed}", workers=2))).folder
        except DistfmsError as error:
            refused[seed] = str(error)
            assert len(refused) <= 1 + n_made // 10, refused
            continue
        require_finite(run, data)
        if processes is not None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(driver, "make_executor", lambda *_: nullcontext(processes))
                again = build_spec(made.spec(data, folder / f"again-{seed}"))
                assert contents(run_job(again).folder) == contents(run), made.seed


def require_finite(run, data):
    """Check the numbers of a model and of its predictions."""
    with np.load(run / "weights.npz") as arrays:
        for name, array in arrays.items():
            own = array[~np.isinf(array)] if name == "limits" else array  # infinite: not cut
            assert own.dtype.kind != "f" or np.isfinite(own).all(), name
    out = run.parent / "predicted.parquet"
    predict_file(run, str(data), out)
    predicted = pq.read_table(out)
    for column in numbers(predicted).values():
        assert np.isfinite(column).all(), predicted.schema


def numbers(table):
    """Columns of numbers, by name."""
    kinds = (pa.types.is_floating, pa.types.is_integer)
    names = [f.name for f in table.schema if any(is_kind(f.type) for is_kind in kinds)]
    return {name: table[name].to_numpy() for name in names}
