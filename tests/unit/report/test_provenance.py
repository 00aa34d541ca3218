from distfms.report.metrics import measure_rows, tables_of
from distfms.report.sections import build_page, notes
from tests.unit.report.checks import check_page, manifest


def text_of(content):
    return check_page(build_page("Head", [], content, "Method").render())


def test_all_that_was_read_is_said():
    text = text_of(manifest())
    for expected in (
        "Files 3",
        "Rows 1,500",
        "Size 3.00 MiB",
        "Partitions 6",
        "5 computed, 2 from the cache",
        "Objects, test 300",
        "Judgments 1,090,422",
        "Judgments, used 7 in 2 entries",
        "Left out, rows without label 3",
        "Seed 7",
        "numpy",
        "2.50 s",
        "selection.json",
        "Method · run of 2026-01-02 03:04:05 UTC",
        "Made by distfms 0.1.0",
    ):
        assert expected in text


def test_of_very_many_files_the_first_are_shown():
    entry = manifest()["inputs"][0]
    many = {**manifest(), "inputs": [{**entry, "path": f"p{i}"} for i in range(1234)]}
    text = text_of(many)
    assert "Files 1,234" in text
    assert "The first 200 of 1,234" in text
    assert "p199" in text
    assert "p200" not in text


def test_notes_are_said_once():
    (note,) = notes(manifest(), ["Another."])
    assert note.text == "One thing.\n\nAnother."
    assert notes({**manifest(), "notes": []}) == []


def test_measures_of_other_rows_stand_below_and_folds_count_by_their_weight():
    folds = [
        {"fold": 0, "mse": 1.0, "r2": None, "n_rows": 3, "weight": 30.0},
        {"fold": 1, "mse": 3.0, "r2": 0.5, "n_rows": 1, "weight": 10.0},
    ]
    rows = measure_rows({"train": {"mse": 2.0}, "test": None, "folds": folds})
    (table,) = tables_of(rows, {"mse": "Error"}, "c")
    # √2 times the standard error, √(2 · 2 · ((0.75 · 0.5)² + (0.25 · 1.5)²))
    results = {title: [cell.text for cell in cells] for title, cells in table.columns().items()}
    labels = ["Training rows", "Mean of 2 folds, each held out once", "± between folds"]
    assert results == {"": labels, "Error": ["2", "1.5", "1.061"], "R²": ["–", "0.5", "–"]}
