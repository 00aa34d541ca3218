from __future__ import annotations

from typing import Any

from distfms.report.measures import measure_tables, without_empty_columns
from distfms.report.page import Column, Page
from distfms.report.provenance import build_page, notes, provenance_sections
from tests.unit.report.checks import check_page


def manifest() -> dict[str, Any]:
    return {
        "distfms": "0.1.0",
        "created": "2026-01-02T03:04:05Z",
        "spec_name": "demo",
        "inputs": [
            {"path": f"part-{i}.parquet", "n_rows": 500, "n_bytes": 2**20, "fingerprint": "ab" * 32}
            for i in range(3)
        ],
        "n_partitions": 6,
        "n_rows": 1500,
        "seed": 7,
        "packages": {"scipy": "1.2.3", "numpy": "2.0.1"},
        "stages": [
            {"name": "statistics", "seconds": 2.5, "n_read": 4, "n_cached": 2, "files": {"s": "x"}},
            {"name": "selection", "seconds": 0.25, "n_read": 1, "files": ["selection.json"]},
        ],
        "objects": {"train": 1200, "test": 300},
        "judgments": {"total": 1_090_422, "used": {"calm": 3, "kind": 4}},
        "dropped": {"rows_without_label": 3},
        "notes": ["One thing.", "One thing."],
    }


def text_of(content: dict[str, Any]) -> str:
    return check_page(Page("p", sections=provenance_sections(content)).render())


def test_all_that_was_read_is_said() -> None:
    text = text_of(manifest())
    for expected in (
        "Files 3",
        "Rows 1 500",
        "Size 3 MiB",
        "Partitions 6",
        "5 computed from the data, 2 taken",
        "Objects, test 300",
        "Judgments 1 090 422",
        "Judgments, used 7 in 2 entries",
        "Left out, rows without label 3",
        "Seed 7",
        "numpy",
        "2.50 s",
        "selection.json",
    ):
        assert expected in text


def test_counts_of_the_manifest_itself_come_first() -> None:
    assert "9 computed from the data, 1 taken" in text_of(
        {**manifest(), "n_read": 9, "n_cached": 1}
    )


def test_an_empty_manifest_makes_a_page() -> None:
    text = text_of({})
    assert "What was read" in text
    assert "None" not in text


def test_entries_of_another_shape_are_taken_as_they_come() -> None:
    text = text_of({"dropped": 12, "judgments": "many", "inputs": None, "stages": None})
    assert "Left out 12" in text
    assert "Judgments many" in text


def test_of_very_many_files_the_first_are_shown() -> None:
    many = {"inputs": [{"path": f"p{i}", "n_rows": 1} for i in range(1234)]}
    text = text_of(many)
    assert "Files 1 234" in text
    assert "The first 200 of 1 234" in text
    assert "p199" in text
    assert "p200" not in text


def test_build_page_has_date_and_version_only_from_the_manifest() -> None:
    text = check_page(build_page("Head", [], manifest(), "Method").render())
    assert "Method · run of 2026-01-02 03:04:05 UTC" in text
    assert "Made by distfms 0.1.0" in text
    assert "run of" not in check_page(build_page("Head", [], {}).render())


def test_notes_are_said_once() -> None:
    (note,) = notes(manifest(), ["Another."])
    assert note.text == "One thing.\n\nAnother."
    assert notes({}) == []


def test_measures_stand_side_by_side() -> None:
    (table,) = measure_tables(
        {
            "train": {"mse": 2.0},
            "test": None,
            "folds": [{"fold": 0, "mse": 1.0}, {"fold": 1, "mse": 3.0}],
        },
        "c",
    )
    assert [title for title, _ in table.heads()] == [
        "Measure",
        "Training",
        "Mean of 2 folds",
        "± between folds",
    ]
    assert [cell.text for cell in table.cells()[0]] == ["mse", "2", "2", "1.414"]


def test_folds_count_by_their_weight() -> None:
    folds = [
        {"fold": 0, "mse": 1.0, "r2": None, "n_rows": 3, "weight": 30.0},
        {"fold": 1, "mse": 3.0, "r2": 0.5, "n_rows": 1, "weight": 10.0},
    ]
    (table,) = measure_tables({"train": {}, "folds": folds}, "c")
    # √2 times the standard error, √(2 · 2 · ((0.75 · 0.5)² + (0.25 · 1.5)²))
    assert [[cell.text for cell in row] for row in table.cells()] == [
        ["mse", "1.5", "1.061"],
        ["r2", "0.5", "–"],
    ]


def test_no_measures_make_no_table() -> None:
    assert measure_tables({}, "c") == []
    assert measure_tables({"train": {"mse": None}}, "c") == []


def test_empty_columns_are_left_out_but_the_first() -> None:
    table = without_empty_columns([Column("a"), Column("b"), Column("c")], [[None, None, 1]], "c")
    assert [title for title, _ in table.heads()] == ["a", "c"]
