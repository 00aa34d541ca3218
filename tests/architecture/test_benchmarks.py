"""The README of the benchmarks shows what scripts measured, and nothing else."""

from __future__ import annotations

import pytest

from benchmarks import record


def test_tables_of_the_readme_are_those_of_the_results() -> None:
    text = record.README.read_text(encoding="utf-8")
    assert record.readme(text) == text, "run `python -m benchmarks.record`"
    assert len(text.encode()) <= 8_192


@pytest.mark.parametrize("name", record.results())
def test_a_result_says_by_which_script_and_commit(name: str) -> None:
    result = record.results()[name]
    module = result["script"].removeprefix("python -m ").split()[0].removeprefix("benchmarks.")
    path = record.FOLDER / module
    assert path.with_suffix(".py").exists() or (path / "__main__.py").exists()
    assert result["commit"]
    assert len({tuple(row) for row in result["rows"]}) == 1
