"""Fixtures that end-to-end tests share."""

import pytest

from distfms.runs.driver import run_job
from tests.e2e.sequence_jobs import mixed_job, mixed_rows, write_rows


@pytest.fixture(scope="session")
def mixed_columns():
    """Rows of `mixed_rows`, not to be changed."""
    return mixed_rows()


@pytest.fixture(scope="session")
def mixed_data(mixed_columns, tmp_path_factory):
    """Folder with these rows."""
    return write_rows(tmp_path_factory.mktemp("mixed") / "rows", mixed_columns)


@pytest.fixture(scope="session")
def mixed_run(mixed_data, tmp_path_factory):
    """Folder of a finished run of `mixed_job` on them."""
    return run_job(mixed_job(mixed_data, tmp_path_factory.mktemp("runs"))).folder
