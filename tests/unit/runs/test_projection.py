from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.errors import SpecError
from distfms.runs.job_spec import build_spec
from distfms.runs.prepare import prepare
from distfms.runs.projection import Projection, most_values, project_job

GIB = 2**30


@pytest.mark.parametrize(
    ("n_units", "workers", "value_bytes", "processes", "expected"),
    [
        # Values that wait are bounded by the depth of the tree, and by the workers.
        (1024, 4, GIB, False, 4 + 10 + 4),
        (1024 * 1024, 4, GIB, False, 4 + 20 + 4),
        # Workers without work hold nothing.
        (1, 16, GIB, False, 2),
        (1024, 4, GIB, True, 4 + 10 + 4 + 8),
        (1024, 4, 0, False, 4 + 10 + 4 + 4 * 5),
    ],
)
def test_values_held_at_the_same_time(n_units, workers, value_bytes, processes, expected):
    sizes = {"unit_bytes": 1, "value_bytes": value_bytes}
    assert most_values(n_units, workers, **sizes, processes=processes) == expected


@pytest.mark.parametrize(("cache", "kept"), [(True, "each"), (False, "")])
def test_partials_are_kept_unless_the_spec_says_not_to(cache, kept, tmp_path):
    pq.write_table(pa.table({"x": [1.0, 2.0], "y": [2.0, 1.0]}), tmp_path / "rows.parquet")
    data = {"path": str(tmp_path / "rows.parquet"), "target": "y"}
    content = {"name": "job", "method": "sequence", "data": data, "engine": {"cache": cache}}
    prepared = prepare(build_spec(content))
    assert project_job(prepared.spec.engine, prepared.job, 1).cached == kept


def test_require_refuses_with_numbers():
    projection = Projection(
        10**6, 1000, 1000, GIB, GIB, 2, 4 * GIB, 0, GIB // 4, GIB, 14 * GIB, None, "each"
    )
    projection.require(projection.total_bytes)
    replace(projection, limit=19 * GIB).require(GIB)
    refused = r"about 18\.2 GiB .* 18\.0 GiB is available .*workers"
    with pytest.raises(SpecError, match=refused) as no:
        projection.require(18 * GIB)
    assert "  " not in str(no.value)
    assert "\n" not in str(no.value)
