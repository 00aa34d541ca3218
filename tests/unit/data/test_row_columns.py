"""Columns that hold the index of a frame are not used unless named."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.rows.roles import index_columns
from distfms.errors import DataError
from distfms.runs.prepare import prepare
from tests.e2e.jobs import spec_of

N = 240
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"a": RNG.normal(size=N), "y": RNG.normal(size=N)})


def prepared(path, **data):
    content = {"name": "rows", "method": "sequence", "output": str(path)}
    return prepare(spec_of({**content, "data": {"path": str(path), "target": "y", **data}}, {}))


def written(folder, frame, n_files=2, **options):
    """Write rows in files of several row groups, shuffled within each file."""
    folder.mkdir()
    for number, rows in enumerate(np.array_split(np.arange(len(frame)), n_files)):
        part = frame.iloc[rows].sample(frac=1.0, random_state=number)
        part.to_parquet(folder / f"{number}.parquet", row_group_size=N // 6, **options)
    return folder


@pytest.mark.parametrize("name", [None, "visit"])
def test_the_index_of_a_frame_is_not_used_unless_named(tmp_path, name):
    column = name or "__index_level_0__"
    data = written(tmp_path / "shuffled", FRAME.rename_axis(name))
    plain = written(tmp_path / "plain", FRAME, n_files=1, index=False)
    job = prepared(data, test_path=str(plain))
    assert job.job.features == ("a",)
    (note,) = job.origin.notes
    assert repr(column) in note
    assert "name it in `features`" in note
    assert not prepared(data, exclude=column).origin.notes
    assert prepared(data, features=["*", column]).job.features == ("a", column)
    assert prepared(data, id=column).job.form.roles.id == column
    # Nor is a file without it another kind of file, wherever it stands.
    for other in ("-.parquet", "z.parquet"):
        (plain / "0.parquet").rename(data / other)
        assert prepared(data).job.features == ("a",)
        (data / other).rename(plain / "0.parquet")
    pq.write_table(pa.table({"y": FRAME["y"]}), data / "z.parquet")
    with pytest.raises(DataError, match="lacks the column 'a'"):
        prepared(data)


def test_an_index_is_known_by_metadata_or_by_its_name():
    table = pa.Table.from_pandas(FRAME.set_index("a"))
    assert index_columns(table.schema) == ("a",)
    assert index_columns(table.schema.with_metadata({"pandas": "{"})) == ()
    assert index_columns(pa.schema([("__index_level_1__", pa.int64())])) == ("__index_level_1__",)
