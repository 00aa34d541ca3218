"""Points of a grid on a fold, the section of the report, and the search of scikit-learn."""

import re
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.synthetic import ragged_of
from distfms.methods.frame.cross_validation import Fold
from distfms.methods.multiselect import objective
from distfms.methods.multiselect.procedure import BuyingRule as SelectionRule
from distfms.methods.multiselect.procedure import SelectionProcedure
from distfms.methods.sequence.options import OrderRule
from distfms.methods.sequence.problem import FeatureGroups, GroupCosts, SharedCost
from distfms.methods.sequence.procedure import MEASURES as SEQUENCE_MEASURES
from distfms.methods.sequence.procedure import SequenceProcedure
from distfms.report.metrics import tuning_section
from distfms.report.page import Figure
from distfms.stats.comoments import CoMoments
from distfms.stats.judgments import JudgmentStatistics

# --- sequences ----------------------------------------------------------------------------------


def sequence_fold(seed=0, **changes):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(6, 90))
    X[1] += X[0]
    block = np.vstack([X, X[0] - 2 * X[3] + 0.5 * X[5] + rng.normal(size=90)])
    train, held_out = CoMoments.from_block(block[:, :60]), CoMoments.from_block(block[:, 60:])
    options = {"rules": (OrderRule("fr"),), "ridge": 1e-3, "max_groups": None, "seed": 0, **changes}
    procedure = SequenceProcedure(
        feature_names=tuple("abcdef"),
        target_names=("y",),
        groups=FeatureGroups(("p", "q", "r", "s"), ((0, 1), (2,), (3, 4), (5,))),
        costs=GroupCosts(np.array([2.0, 1.0, 3.0, 1.0]), (SharedCost("visit", (0, 2), 1.5),)),
        **options,
    )
    return procedure, Fold({"moments": train}, {"moments": held_out}), block


@pytest.mark.parametrize("measure", list(SEQUENCE_MEASURES))
@pytest.mark.parametrize("doubling", [False, True])
def test_a_path_answers_for_each_end(measure, doubling):
    rules = (OrderRule("fr", True, doubling),)
    procedure, fold, _ = sequence_fold(rules=rules)
    ends = [1, None, 3, 2, 9]
    together = procedure.tuned_values(fold, ends, measure)
    alone = [
        sequence_fold(rules=rules, max_groups=end)[0].tuned_values(fold, [end], measure)[0]
        for end in ends
    ]
    assert together.tolist() == alone
    assert procedure.size(fold.held_out) == (30, 30.0)


def test_procedures_that_differ_in_their_ridge_share_the_matrix_of_a_fold():
    procedure, fold, _ = sequence_fold()
    first = procedure.problem_on(fold)
    second = replace(procedure, ridge=0.5).problem_on(fold)
    assert second.gram is first.gram
    assert (first.ridge, second.ridge) == (1e-3, 0.5)


def test_measures_by_hand():
    procedure, fold, block = sequence_fold(ridge=0.2)
    path = procedure.search(procedure.problem_on(fold), OrderRule("fr"))
    X, y = block[:6, :60].T, block[6, :60]
    mean, scale, level, spread = X.mean(0), X.std(0), y.mean(), y.std()
    Z, z = (X - mean) / scale, (y - level) / spread
    Z_out, z_out = (block[:6, 60:].T - mean) / scale, (block[6, 60:] - level) / spread
    spent, explained, chosen, paid = [0.0], [0.0], [], False
    for k, name in enumerate(path.groups):
        group = procedure.groups.names.index(name)
        chosen += procedure.groups.columns[group]
        shares = group in (0, 2) and not paid
        paid = paid or group in (0, 2)
        spent.append(spent[-1] + procedure.costs.own[group] + 1.5 * shares)
        A = Z[:, chosen]
        w = np.linalg.solve(A.T @ A / 60 + 0.2 * np.eye(len(chosen)), A.T @ z / 60)
        error = z_out - Z_out[:, chosen] @ w
        explained.append(1 - (error**2).sum() / (z_out**2).sum())
        last = (error**2).mean() * spread**2
        assert k < 4
    area = np.trapezoid(explained, spent) / 8.5
    literal = {"timeliness": area, "explained_variance": explained[-1], "mse": last}
    for measure, value in literal.items():
        assert procedure.tuned_values(fold, [None], measure) == pytest.approx([value], rel=1e-9)
    found = procedure.evaluate(fold, OrderRule("fr"), path.curve_cost)
    np.testing.assert_allclose(found["explained_variance"][:-1], explained, rtol=1e-9, atol=1e-12)
    assert found["mse"][-1] == pytest.approx(last, rel=1e-9)


def test_a_sequence_that_ends_early_stays_where_it_is():
    procedure, fold, _ = sequence_fold()
    (short,) = procedure.tuned_values(fold, [1], "timeliness")
    path = procedure.search(procedure.problem_on(fold), OrderRule("fr"))
    value = path.held_out(fold.held_out["moments"])["explained_variance"][1]
    first = path.curve_cost[1]
    assert short == pytest.approx((first * value / 2 + (8.5 - first) * value) / 8.5)


# --- selections ---------------------------------------------------------------------------------


def selection_fold(costs, seed=0, **changes):
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(120, 4))
    label = truth @ [1.0, 2.0, -1.0, 0.2] + 0.3 * rng.normal(size=120)
    judgments = truth[:, :, None] + rng.normal(size=(120, 4, 2))
    parts = [
        JudgmentStatistics.from_block(
            [ragged_of(judgments[rows, a]) for a in range(4)], label[rows]
        )
        for rows in (slice(0, 80), slice(80, 120))
    ]
    procedure = SelectionProcedure(
        tuple("abcd"), 1.0, np.array(costs, float), np.full(4, np.nan), **changes
    )
    return procedure, Fold(*({"judgments": part} for part in parts))


@pytest.mark.parametrize("costs", [[1, 1, 1, 1], [2, 2, 2, 2], [1, 3, 2, 0.5]])
@pytest.mark.parametrize("algorithm", ["full", "scoring", "lasso"])
def test_budgets_together_are_budgets_alone(costs, algorithm):
    rules = (SelectionRule(algorithm),)
    procedure, fold = selection_fold(costs, rules=rules, ridge=0.01)
    budgets = (3.0, 12.0, 7.0, 5.5)
    largest = replace(procedure, budget=12.0)
    together = largest.tuned_values(fold, budgets, "projected_loss")
    for budget, found in zip(budgets, together, strict=True):
        # The cross-validation of a job with this budget.
        alone = replace(procedure, budget=budget).evaluate(
            fold, SelectionRule(algorithm), np.array([budget])
        )
        assert found == pytest.approx(alone["projected_loss"][-1], rel=1e-12)
    assert largest.size(fold.held_out) == (40, 40.0)


@pytest.mark.parametrize("without", [(), (2,)])
def test_a_fold_makes_its_problem_once_for_every_point(monkeypatch, without):
    procedure, fold = selection_fold([1, 3, 2, 0.5], seed=3)
    if without:  # an attribute that nobody has judged outside of the fold
        rng = np.random.default_rng(4)
        numbers = [0 if a in without else 2 for a in range(4)]
        ragged = [ragged_of(rng.normal(size=(50, n))) for n in numbers]
        sample = JudgmentStatistics.from_block(ragged, rng.normal(size=50))
        fold = Fold({"judgments": sample}, fold.held_out)
    points = [
        replace(procedure, rules=(SelectionRule(a),), criterion=c, psd=p, ridge=r)
        for a in ("full", "scoring") for c in ("gain", "gain_per_cost")
        for p in ("nearest", "none") for r in (0.0, 0.5)
    ]  # fmt: skip
    alone = [
        point.tuned_values(Fold(fold.train, fold.held_out), (5.0,), "projected_loss")
        for point in points
    ]
    made, nearest = [], objective.nearest_psd
    monkeypatch.setattr(objective, "nearest_psd", lambda m: made.append(m.shape) or nearest(m))
    shared = [point.tuned_values(fold, (5.0,), "projected_loss") for point in points]
    assert shared == alone
    assert made == [(4 - len(without),) * 2]


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


def test_section_has_words_a_figure_and_a_table():
    points = points_over(ridge=[1e-6, 1e-3, 0.1], criterion=["fr", "omp"])
    points[1] |= {"mean": None, "standard_error": None, "folds": [None, 1.0]}  # not a number
    text, figure, table = tuning_section(entry(points)).blocks
    assert text.text.startswith(
        "Chosen: ridge 1e-06, criterion fr. Compared 6\xa0points of the grid"
    )
    assert "2\xa0folds" in text.text
    assert "Ring: the chosen point" in figure.caption
    assert list(table.emphasis) == [0]
    assert [list(row.values()) for row in table.rows[:2]] == [
        ["1e-06", "fr", 1.5, 0.5, "chosen"],
        ["1e-06", "omp", None, None, ""],
    ]
    assert len(table.rows) == 6
    assert tuning_section({"train": {}}).blocks == []


@pytest.mark.parametrize(
    "values",
    [
        {"criterion": ["fr", "omp"]},
        {"ridge": [0.1, 1.0]},
        {"max_groups": [1, 2, 3, None]},
        {"ridge": [1.0, 2.0, 3.0], "max_groups": [*range(1, 4)], "criterion": list("abc")},
    ],
)
def test_the_table_alone_where_no_line_fits(values):
    section = tuning_section(entry(points_over(**values)))
    assert not any(isinstance(block, Figure) for block in section.blocks)


@pytest.mark.parametrize(("far", "is_cut"), [(9.0, False), (1e6, True)])
def test_a_point_that_diverges_does_not_flatten_the_others(far, is_cut):
    points = points_over(ridge=[float(i) for i in range(1, 9)])
    points[-1]["mean"] = far
    figure = tuning_section(entry(points)).blocks[1]
    assert ("Values beyond the scale are in the table." in figure.caption) == is_cut
    assert not re.search(r'class="y-tick"><text[^>]*>[^<]*000', figure.svg)
