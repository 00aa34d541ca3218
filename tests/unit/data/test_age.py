"""Which partitions count, and how much."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from distfms.data.files.age import remember
from distfms.data.files.dataset import open_dataset
from distfms.errors import DataError
from distfms.spec import Forgetting

NAMES = ("day=2026-01-01/a", "day=2026-01-02/a", "day=2026-01-02/b", "day=2026-01-09/a")


@pytest.fixture
def dataset(tmp_path):
    for number, name in enumerate(NAMES):
        path = tmp_path / "data" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        stamps = [datetime(2026, 3, 1 + number, hour) for hour in (4, 2, 9)]
        table = pa.table({"x": [float(number)] * 3, "when": stamps, "n": [1, 2, 3]})
        pq.write_table(table, path)
    return open_dataset(tmp_path / "data")


def ages(dataset, time=None, **forgetting):
    found = remember(dataset, Forgetting(**forgetting), time)
    return [part.name.removeprefix("data/") for part in found.partitions], [
        part.weight for part in found.partitions
    ]


@pytest.mark.parametrize(
    ("time", "forgetting", "weight"),
    [
        (None, {}, [1.0] * 4),
        (None, {"window": "2 partitions"}, [1.0] * 2),
        (None, {"window": "7 days"}, [1.0]),
        (None, {"window": "8 days"}, [1.0] * 3),
        (None, {"window": "8.5 days"}, [1.0] * 4),
        ("when", {"window": "2 days"}, [1.0] * 2),
        (None, {"half_life": "1 partition"}, [0.125, 0.25, 0.5, 1.0]),
        (None, {"half_life": "7 days"}, [2 ** (-8 / 7), 0.5, 0.5, 1.0]),
    ],
)
def test_the_last_partitions_are_kept_and_older_ones_weigh_less(dataset, time, forgetting, weight):
    names, found = ages(dataset, time, **forgetting)
    assert names == [f"{name}.parquet" for name in NAMES[-len(weight) :]]
    assert found == pytest.approx(weight)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("part-20261399", r"part-20261399\.parquet holds no date"),
        (f"{datetime.now(UTC) + timedelta(days=40):%Y-%m-%d}", "machine's clock"),
    ],
)
def test_names_without_a_date_or_with_one_to_come(tmp_path, name, message):
    pq.write_table(pa.table({"x": [1.0]}), tmp_path / f"{name}.parquet")
    with pytest.raises(DataError, match=message):
        ages(open_dataset(tmp_path), window="3 days")


@pytest.mark.parametrize(("column", "words"), [("n", "no dates"), ("gone", "no column 'gone'")])
def test_a_time_column_without_dates_is_refused(dataset, column, words):
    with pytest.raises(DataError, match=words):
        ages(dataset, column, window="3 days")


@pytest.mark.parametrize("forgetting", [{"window": "0 days"}, {"half_life": "0 partitions"}])
def test_no_age_at_all_is_refused(forgetting):
    with pytest.raises(ValidationError, match="above 0"):
        Forgetting(**forgetting)
