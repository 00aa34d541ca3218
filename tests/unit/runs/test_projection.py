from __future__ import annotations

from typing import Any

import pytest

from distfms.errors import SpecError
from distfms.runs.projection import PROCESS_BYTES, project

GIB = 2**30


@pytest.mark.parametrize(
    ("options", "name", "expected"),
    [
        # Values that wait are bounded by the depth of the tree, and by the workers.
        ({}, "values_bytes", 7 * (4 + 10 + 4)),
        ({}, "units_bytes", 2 * 100 * 4),
        ({}, "processes_bytes", PROCESS_BYTES),
        ({}, "total_bytes", PROCESS_BYTES + 800 + 126),
        ({"n_units": 1024 * 1024}, "values_bytes", 7 * (4 + 20 + 4)),
        # Workers without work hold nothing.
        ({"n_units": 1, "workers": 16}, "values_bytes", 14),
        ({"processes": True}, "processes_bytes", 5 * PROCESS_BYTES),
        ({"units_per_task": 8}, "values_bytes", 7 * (4 + 10 + 4 + 4 * 3)),
    ],
)
def test_projection(options: dict[str, Any], name: str, expected: int) -> None:
    given = {"n_units": 1024, "units_bytes": 800, "value_bytes": 7, "workers": 4}
    assert getattr(project(**{**given, **options}), name) == expected


def test_require_refuses_with_numbers() -> None:
    p = project(1000, 4 * GIB, GIB, 2)
    p.require(p.total_bytes)
    with pytest.raises(
        SpecError, match=r"about 18\.3 GiB .* 18\.0 GiB is available .*workers"
    ) as no:
        p.require(18 * GIB)
    assert "  " not in str(no.value)
    assert "\n" not in str(no.value)
