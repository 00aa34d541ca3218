from dataclasses import replace

import pytest

from distfms.errors import SpecError
from distfms.runs.projection import Projection, most_values

GIB = 2**30


@pytest.mark.parametrize(
    ("n_units", "workers", "units_per_task", "processes", "expected"),
    [
        # Values that wait are bounded by the depth of the tree, and by the workers.
        (1024, 4, 1, False, 4 + 10 + 4),
        (1024 * 1024, 4, 1, False, 4 + 20 + 4),
        # Workers without work hold nothing.
        (1, 16, 1, False, 2),
        (1024, 4, 1, True, 4 + 10 + 4 + 8),
        (1024, 4, 8, False, 4 + 10 + 4 + 4 * 3),
    ],
)
def test_values_held_at_the_same_time(n_units, workers, units_per_task, processes, expected):
    assert most_values(n_units, workers, units_per_task, processes) == expected


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
