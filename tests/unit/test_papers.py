"""What the benchmarks of the papers compute themselves is what the papers write."""

import json

import numpy as np
import pytest

from benchmarks.papers import multi_selection, sequences, similarities, tables
from benchmarks.papers.tables import Figure, Table, significant
from distfms.methods.sequence import evaluate
from tests.reference import landmarks, multiselect
from tests.reference.multiselect_cases import random_judgments


@pytest.mark.parametrize("any_order", [False, True])
def test_copies_and_averages_are_literal_forward_selections(any_order):
    allowed = multi_selection.in_any_order if any_order else multi_selection.in_fixed_order
    for seed in range(3):
        judgments, label, _ = random_judgments(seed)
        first = multi_selection.Judged(judgments, label)
        bought = multi_selection.by_copies(first, 7, allowed)
        by_averages = multi_selection.by_averages(first, 7)
        for budget in (1, 4, 7):
            literal = multiselect.copies(judgments, label, budget, any_order)
            np.testing.assert_array_equal(bought(budget), literal)
            steps = budget // 2
            chosen = multiselect.forward_selection(
                judgments.mean(axis=2), label, steps, lambda *_: True
            )
            expected = 2 * np.bincount(np.array(chosen, dtype=int), minlength=5)
            np.testing.assert_array_equal(by_averages(budget), expected)


def test_averages_take_the_first_judgments_and_those_that_there_are():
    judgments = np.array(
        [[[1.0, 3.0, np.nan], [5.0, 7.0, 0.0]], [[2.0, np.nan, np.nan], [1, 2, 3]]]
    )
    judged = multi_selection.Judged(judgments, np.zeros(2))
    np.testing.assert_allclose(judged.averages(np.array([2, 0])), [[2.0], [2.0]])
    np.testing.assert_allclose(judged.averages(np.array([1, 3])), [[1.0, 4.0], [2.0, 2.0]])


def test_timeliness_and_oracles_are_the_products():
    rng = np.random.default_rng(0)
    cost = np.append(0.0, np.cumsum(rng.uniform(1, 5, 8)))
    value = np.append(0.0, np.cumsum(rng.uniform(0, 1, 8)))
    curve = cost, value
    for oracle, expected in zip(
        sequences.oracle(curve), evaluate.oracle_curve(*curve), strict=True
    ):
        np.testing.assert_allclose(oracle, expected)
    for alpha in (0.5, 0.97, 1.0):
        cut = sequences.stopping_cost(curve, alpha)
        assert cut == evaluate.stopping_cost(*curve, alpha)
        expected = evaluate.timeliness(*curve, stop=cut)
        assert sequences.timeliness(curve, cut) / value[-1] == pytest.approx(expected)


def test_kernels_and_kernel_regression_are_literal():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((12, 3))
    new = rng.standard_normal((5, 3))
    y = rng.random(12)
    rows = similarities.Rows(X, y, new, np.zeros(5), X)
    sigma = similarities.width(rows)
    parameters = {"a": 1 / 3, "r": -1.0, "sigma": sigma}
    for name in ("sigmoid", "manhattan", "gaussian", "euclidean"):
        K = landmarks.embedding(name, new, X, parameters)
        np.testing.assert_allclose(similarities.kernel(name, new, X, sigma), K)
        expected = landmarks.kernel_regression(K, y)
        np.testing.assert_allclose(similarities.kernel_regression(name, rows), expected)


def test_numbers_are_written_with_their_digits():
    assert [significant(v, 3) for v in (123.4, 0.0123, 57.25, 4e-5)] == [
        "123", "0.0123", "57.2", "4.00e-05",
    ]  # fmt: skip
    assert str(Figure([57.0, 57.5], "55.2")) == "57.2 ± 0.4 (55.2)"
    assert str(Figure([141.0])) == "141"


def test_a_section_is_replaced_and_rows_are_flat(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BENCHMARKS", tmp_path)
    readme = tmp_path / "README.md"
    monkeypatch.setattr(tables, "README", readme)
    readme.write_text("# Title\n\nText.\n")
    made = Table("Table 1", "What it is.", [{"data": "it", "ours": Figure([1.0, 2.0], "1.4")}])
    tables.write("one", "One", [made], 2, "abc")
    tables.write("two", "Two", [made], 1, "abc")
    once = readme.read_text()
    tables.write("one", "One", [made], 2, "abc")
    assert readme.read_text() == once
    assert once.count("## ") == 2
    assert "| it | 1.5 ± 0.7 (1.4) |" in once
    result = json.loads((tmp_path / "results" / "papers-one.json").read_text())
    assert result["seeds"] == [0, 1]
    row = {"table": "Table 1", "data": "it", "ours": 1.5, "ours printed": "1.4"}
    assert result["rows"] == [{**row, "ours deviation": 0.707107}]
