"""Points of a grid on a fold, the section of the report, and the search of scikit-learn."""

from dataclasses import replace

import numpy as np

from distfms.methods.frame.cross_validation import Fold
from distfms.methods.sequence.options import OrderRule
from distfms.methods.sequence.problem import FeatureGroups
from distfms.methods.sequence.procedure import SequenceProcedure
from distfms.report.tuning import tuning_section
from distfms.solve.costs import GroupCosts, SharedCost
from distfms.stats.comoments import CoMoments

# --- sequences ----------------------------------------------------------------------------------


def sequence_fold(seed=0, **changes):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(6, 90))
    X[1] += X[0]
    block = np.vstack([X, X[0] - 2 * X[3] + 0.5 * X[5] + rng.normal(size=90)])
    train = CoMoments.from_block(block[:, :60])
    held_out = CoMoments.from_block(block[:, 60:])
    options = {"rules": (OrderRule("fr"),), "ridge": 1e-3, "max_groups": None, "seed": 0, **changes}
    procedure = SequenceProcedure(
        feature_names=tuple("abcdef"),
        target_names=("y",),
        groups=FeatureGroups(("p", "q", "r", "s"), ((0, 1), (2,), (3, 4), (5,))),
        costs=GroupCosts(np.array([2.0, 1.0, 3.0, 1.0]), (SharedCost("visit", (0, 2), 1.5),)),
        **options,
    )
    return procedure, Fold({"moments": train}, {"moments": held_out}), block


def test_procedures_that_differ_in_their_ridge_share_the_matrix_of_a_fold():
    procedure, fold, _ = sequence_fold()
    first = procedure.problem_on(fold)
    second = replace(procedure, ridge=0.5).problem_on(fold)
    assert second.gram is first.gram
    assert (first.ridge, second.ridge) == (1e-3, 0.5)


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
