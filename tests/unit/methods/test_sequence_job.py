"""Parts of the job of group sequencing: options, rules, counts, scores, curves."""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from distfms.data.files.dataset import open_dataset
from distfms.data.rows.batches import ColumnPlan
from distfms.errors import DataError, SpecError
from distfms.methods.frame.contract import Inputs
from distfms.methods.frame.rows import CategoryReader, RowSource, require_levels, section_roles
from distfms.methods.sequence import form
from distfms.methods.sequence.evaluate import SequenceCurve, compared, thinned
from distfms.methods.sequence.options import OrderRule, SequenceOptions, parse_rule
from distfms.methods.sequence.problem import FeatureGroups, Scaling, SequenceOutline
from distfms.solve.costs import GroupCosts
from distfms.spec import DataSection, parse_section
from tests.reference.sequence import comoments, correlated, make_problem, search


def options(**content):
    return parse_section(SequenceOptions, content, "sequence")


# --- options and rules --------------------------------------------------------------------------


def test_names_of_rules_go_both_ways():
    for base in ("fr", "omp", "omp-single", "omp-no-whiten"):
        for aware, doubling in itertools.product((True, False), repeat=2):
            rule = OrderRule(base, aware, doubling)
            assert parse_rule(rule.name) == rule
    for name in ("", "blind", "-blind", "fr-doubling-blind", "random-blind", "FR"):
        with pytest.raises(SpecError, match="Unknown rule"):
            parse_rule(name)


def test_a_table_becomes_costs(tmp_path, monkeypatch):
    csv = tmp_path / "c.csv"
    parquet = tmp_path / "c.parquet"
    csv.write_text("group,cost\nscan,6.5\ndefault,3\n")
    pq.write_table(pa.table({"cost": [6.5, 3.0], "group": ["scan", "default"]}), parquet)
    monkeypatch.setenv("PRICES", str(tmp_path))
    for name in ("c.csv", "c.parquet"):
        found = options(costs=f"${{PRICES}}/{name}")
        assert found.costs == {"scan": 6.5, "default": 3}
    # The resolved section holds the prices, so another price list is another job.
    again = parse_section(SequenceOptions, found.model_dump(mode="json"), "sequence")
    assert again == found


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"group": ["a"], "price": [1.0]}, r"c\.parquet needs the columns"),
        ({"group": ["a"], "cost": pa.array([None], pa.float64())}, "costs.a.*number"),
        ("PAR1", "cannot be read"),
        ("group,price\nage,1\n", "needs the columns 'group' and 'cost'"),
        ("group,cost\nage,1\nage,2\n", "'age' is there twice"),
        ("group,cost\nage,much\n", "costs.age.*number"),
        ("group,cost\nage,\n", "costs.age.*number"),
    ],
)
def test_tables_of_costs_that_cannot_be_read(tmp_path, content, message):
    file = tmp_path / ("c.csv" if str(content).startswith("group") else "c.parquet")
    if isinstance(content, str):
        file.write_text(content)
    else:
        pq.write_table(pa.table(content), file)
    with pytest.raises(SpecError, match=message):
        options(costs=str(file))
    with pytest.raises(SpecError, match="NOWHERE, which is not set"):
        options(costs="${NOWHERE}/c.csv")


# --- reading ------------------------------------------------------------------------------------


def source(tmp_path, columns, *, held_out=False, levels=(), **section):
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet", row_group_size=7)
    content = {"path": "x", "target": "y", "missing": "mean", "folds": 0, **section}
    data = parse_section(DataSection, content, "data")
    dataset = open_dataset(tmp_path / "rows.parquet", max_rows=data.max_partition_rows)
    plan = ColumnPlan.of(section_roles(dataset, data), dict(levels))
    return dataset, RowSource(dataset.reader, data, 0, held_out, plan)


def test_all_that_changes_a_partial_changes_its_key(tmp_path):
    columns = {"a": [1.0], "c": ["u"], "y": [1.0], "w": [1.0], "k": [1]}
    keys = []
    for section, levels in [
        ({}, ["u"]),
        ({}, ["u", "v"]),
        ({"folds": 2}, ["u"]),
        ({"test": 0.5}, ["u"]),
        ({"weight": "w"}, ["u"]),
        ({"id": "k"}, ["u"]),
        ({"missing": "drop"}, ["u"]),
        ({"exclude": "a"}, ["u"]),
    ]:
        _, rows = source(tmp_path, columns, levels={"c": levels}, **section)
        keys.append(rows.moments().key())
    keys.append(CategoryReader(rows.reader, ("c",)).key())
    keys.append(CategoryReader(rows.reader, ("c", "d")).key())
    assert all(a != b for i, a in enumerate(keys) for b in keys[:i])


def test_a_category_without_values_is_refused(tmp_path):
    columns = {"c": pa.array([None] * 15, pa.string()), "y": np.zeros(15)}
    dataset, _ = source(tmp_path, columns, levels={"c": []})
    empty = CategoryReader(dataset.reader, ("c",))(dataset.partitions[0])
    with pytest.raises(DataError, match="categorical column 'c' are missing"):
        require_levels(empty["categories"].train())


# --- curves -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "limit"), [(1, 5), (5, 5), (6, 5), (1000, 200)])
def test_thinned(n, limit):
    kept = thinned(n, limit)
    assert (kept[0], kept[-1]) == (0, n - 1)
    assert len(kept) == min(n, limit)
    assert (np.diff(kept) > 0).all()


def compare():
    X, Y, groups = correlated(np.random.default_rng(4), 300, [2, 1, 3, 1])
    train = make_problem(X[:200], Y[:200], groups, [4.0, 1.0, 2.0, 9.0])
    paths = {name: search(train, name) for name in ("fr-blind", "omp")}
    test = comoments(X[200:], Y[200:])
    curves = {
        name: SequenceCurve(
            p.groups,
            p.fitted,
            p.curve_cost,
            {"train": {"explained_variance": p.curve_value}, "test": p.held_out(test)},
        )
        for name, p in paths.items()
    }
    return curves, compared(curves, {"oracle": next(iter(curves)), "oracle:omp": "omp"})


def test_alpha_timeliness_is_cut_where_omp_reaches_alpha():
    curves, metrics = compare()
    omp = curves["omp"]
    alpha = metrics["alpha"]["alpha"]
    cut = omp.cost[np.argmax(omp.value >= alpha * omp.value[-1])]
    own = curves["fr-blind"]
    first = own.cost[np.argmax(own.value >= alpha * own.value[-1])]
    assert metrics["alpha"] == {"alpha": alpha, "stopping_cost": first, "cut": cut}
    assert 0.95 <= alpha < 1.0
    x = np.linspace(0, cut, 200_001)
    for name, curve in curves.items():
        entry = metrics["timeliness"][name]
        share = np.interp(x, curve.cost, curve.value).mean() / curve.value[-1]
        assert entry["alpha_timeliness"] == pytest.approx(share, rel=1e-4)
        test = curve.scores["test"]["explained_variance"]
        share = np.interp(x, curve.cost, test).mean() / test[-1]
        assert entry["test_alpha_timeliness"] == pytest.approx(share, rel=1e-4)
    assert metrics["timeliness"]["oracle"]["test_alpha_timeliness"] is None


def test_oracles_are_of_a_rule_that_is_compared_too():
    names = ("oracle", "oracle:sparse", "oracle:omp-blind-doubling", "oracle:fr")
    rules = form.Rules.of(options(baselines=names), GroupCosts(np.ones(2)))
    assert [rule.name for rule in rules.compared] == ["fr", "sparse", "omp-blind-doubling"]
    found = ("fr", "sparse", "omp-blind-doubling", "fr")
    assert rules.oracles == dict(zip(names, found, strict=True))
    assert rules.has_lasso
    for name in ("oracle:oracle", "oracle:", "oracle:nope"):
        with pytest.raises(SpecError, match="Unknown rule"):
            parse_rule(name)


# --- the job without a run ----------------------------------------------------------------------


def make_job(tmp_path, content, **section):
    columns = {"a": [1.0, 2.0], "c": ["u", "v"], "b": [2.0, 1.0], "y": [0.0, 1.0]}
    dataset, rows = source(tmp_path, columns, levels={"c": []}, **section)
    return form.make_job(options(**content), Inputs(dataset, None, rows.section), 0)


def test_the_job_says_what_it_will_do(tmp_path):
    job = make_job(
        tmp_path,
        {"groups": {"ab": ["a", "b"]}, "costs": {"ab": 3}, "baselines": ["omp", "fr", "omp"]},
    )
    text = job.describe()
    assert text["columns"] == "3, 1 of them categorical"
    assert text["groups"] == "2 (1 to 3 each)"
    assert text["baselines"] == "omp"  # each once, and not the rule itself
    # The target is 0 in one row and 1 in the other.
    told = "'y' has 2 whole values (0, 1), which are used as numbers. If they are classes, set"
    assert told in text["first 2 rows"]
    assert "sequence.family: softmax" in text["first 2 rows"]
    assert job.columns == ("a", "c", "b", "y")
    numbers = make_job(tmp_path, {}, exclude="c")
    assert numbers.statistics_bytes == 8 * 3 * 3**2 * 2
    assert job.statistics_bytes > numbers.statistics_bytes


def test_long_notes_are_cut_and_said_once():
    names = tuple(f"f{i:02d}" for i in range(20))
    scaling = Scaling(
        (*names, "x"), ("y",), np.array([20]), *[np.zeros(21)] * 2, *[np.zeros(1)] * 2
    )
    groups = FeatureGroups(("x",), ((0,),))
    costs = GroupCosts(np.ones(1))
    shown = (
        "20 constant columns left out: f00, f01, f02, f03, f04, f05, f06, f07, f08, f09, f10, f11"
    )
    for dropped, others in ((names, []), (("a",), ["Groups of constant columns left out: a."])):
        outline = SequenceOutline(
            groups=groups, costs=costs, ridge=0.0, scaling=scaling, dropped_groups=dropped
        )
        assert outline.notes() == [f"{shown} and 8 more.", *others]
