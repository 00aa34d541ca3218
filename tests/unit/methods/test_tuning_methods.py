"""Points of a grid on a fold, the section of the report, and the search of scikit-learn."""

from distfms.report.tuning import tuning_section

# --- sequences ----------------------------------------------------------------------------------


# --- the report ---------------------------------------------------------------------------------


def entry(points, **changes):
    tuning = {
        "measure": "mse",
        "higher_is_better": False,
        "rule": "best",
        "chosen": points[0]["options"],
        "folds": [{"fold": 0, "n_rows": 9}, {"fold": 1, "n_rows": 8}],
        "points": points,
    }
    return {"tuning": {**tuning, **changes}}


def points_over(**values):
    from distfms.methods.frame.tuning import grid_points

    return [
        {
            "options": options,
            "folds": [1.0 + i, 2.0 + i],
            "mean": 1.5 + i,
            "standard_error": 0.5,
            "best": i == 0,
            "chosen": i == 0,
        }
        for i, options in enumerate(grid_points(values))
    ]


def test_section_has_words_and_a_table():
    points = points_over(ridge=[1e-6, 1e-3, 0.1], criterion=["fr", "omp"])
    points[1] |= {"mean": None, "standard_error": None, "folds": [None, 1.0]}  # not a number
    text, table = tuning_section(entry(points)).blocks
    assert text.text.startswith(
        "Chosen: ridge 1e-06, criterion fr. Compared 6\xa0points of the grid"
    )
    assert "2\xa0folds" in text.text
    assert list(table.emphasis) == [0]
    assert [list(row.values()) for row in table.rows[:2]] == [
        ["1e-06", "fr", 1.5, 0.5, "chosen"],
        ["1e-06", "omp", None, None, ""],
    ]
    assert len(table.rows) == 6
    assert tuning_section({"train": {}}).blocks == []
