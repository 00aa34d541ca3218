"""Fixtures that end-to-end tests share."""

import pytest

from distfms.data.files.dataset import PartitionReader
from distfms.runs.driver import run_job
from tests.browser import CHROMIUM, Browser
from tests.e2e.retrain_jobs import again, growing_job, write_day
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


@pytest.fixture
def days(tmp_path):
    """Folder with the data of two days."""
    write_day(tmp_path / "data", "2026-01-02", 2)
    write_day(tmp_path / "data", "2026-01-03", 3)
    return tmp_path / "data"


@pytest.fixture
def trained(days, tmp_path):
    """Spec of a job whose model of these days is in place."""
    spec = growing_job(days, tmp_path / "runs")
    first = again(spec)
    assert (first.version, first.promoted, first.reasons) == (1, True, ())
    return spec


@pytest.fixture
def read_columns(monkeypatch):
    """Names of all columns that any task reads."""
    seen = set()
    read = PartitionReader.column_tables

    def watched(self, partition, names):
        seen.update(names)
        return read(self, partition, names)

    monkeypatch.setattr(PartitionReader, "column_tables", watched)
    return seen


@pytest.fixture(scope="session")
def look(tmp_path_factory):
    """Check a page with so many charts in a browser; nothing is checked where there is none."""
    if CHROMIUM is None:
        yield lambda page, n_charts: None
        return
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser.check
    browser.close()
