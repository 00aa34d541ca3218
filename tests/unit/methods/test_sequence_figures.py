from __future__ import annotations

from typing import Any

import pytest

from distfms.methods.sequence import figures
from distfms.report.page import Figure, Section, Table
from distfms.report.provenance import build_page
from tests.unit.report.checks import check_page

GROUPS = [("blood", ["b1", "b2"], 2.0, 0.3), ("scan", ["s"], 6.0, 0.25), ("age", ["a"], 2.0, 0.05)]


def selection() -> dict[str, Any]:
    steps, spent, share = [], 0.0, 0.0
    for group, columns, cost, gain in GROUPS:
        spent, share = spent + cost, share + gain
        steps.append(
            {
                "group": group,
                "columns": columns,
                "cost": cost,
                "spent": spent,
                "explained_variance": share,
                "gain": gain,
            }
        )
    return {
        "method": "sequence",
        "criterion": "fr",
        "cost_aware": True,
        "doubling": False,
        "ridge": 1e-5,
        "family": "gaussian",
        "sequence": steps,
        "timeliness": 0.7,
        "notes": ["`scan` is dear."],
    }


def curve(name: str, spent: tuple[float, ...] = (0.0, 2.0, 8.0, 10.0)) -> dict[str, Any]:
    shares = (0.0, 0.3, 0.55, 0.6)
    return {
        "name": name,
        "points": [
            {"spent": s, "explained_variance": v, "validation": 0.9 * v, "test": 0.8 * v}
            for s, v in zip(spent, shares, strict=True)
        ],
    }


def metrics() -> dict[str, Any]:
    return {
        "train": {"r2": 0.6},
        "test": {"r2": 0.48},
        "folds": [{"r2": 0.5}, {"r2": 0.54}],
        "curves": [curve("fr"), curve("omp", (0.0, 6.0, 8.0, 10.0)), curve("oracle")],
        "timeliness": {
            "omp": {"timeliness": 0.4, "alpha": 0.9, "stopping_cost": 7.5, "alpha_timeliness": 0.3},
            "fr": {"timeliness": 0.7, "alpha": 0.9, "stopping_cost": 8.0, "alpha_timeliness": 0.6},
        },
    }


MANIFEST = {"spec_name": "heart"}


def render(selection: Any, metrics: Any, manifest: Any = MANIFEST) -> str:
    head = figures.headline(selection, metrics)
    found = figures.sections(selection, metrics, manifest)
    return check_page(build_page(head, found, manifest, figures.SUBTITLE).render())


def plain(text: str) -> str:
    return text.replace("\u00a0", " ").replace("\u202f", " ")


def tables(found: list[Section]) -> dict[str, Table]:
    return {b.caption[:10]: b for s in found for b in s.blocks if isinstance(b, Table)}


def test_headline_says_where_most_is_reached() -> None:
    assert plain(figures.headline(selection(), metrics())) == (
        "90 % of what all 3 groups explain is there after 2 groups, at 80 % of the whole cost"
    )


@pytest.mark.parametrize(("cost", "n_groups"), [(1.0, 1), (2.0, 1), (2.1, 2), (10.0, 3), (99, 3)])
def test_a_group_under_way_counts(cost: float, n_groups: int) -> None:
    content = metrics()
    content["timeliness"]["fr"]["stopping_cost"] = cost
    assert f"after {n_groups} group" in plain(figures.headline(selection(), content))


def test_headline_without_a_stopping_cost_gives_the_held_out_share() -> None:
    content = {**metrics(), "timeliness": None}
    assert plain(figures.headline(selection(), content)) == "3 groups explain 48 % of the variance"
    assert figures.headline({}, {}) == "No group explains anything of the target"


def test_page_says_all_that_was_asked() -> None:
    text = render(selection(), metrics())
    for expected in (
        "forward regression (fr)",
        "oracle order",
        "90 % reached",
        "+25.00 % for 6",
        "scan",
        "3 groups, 4 columns",
        "held-out rows",
        "What was read",
        "How to reproduce",
    ):
        assert expected in text


def test_timeliness_table_ranks_and_sets_off_the_chosen_rule() -> None:
    table = tables(figures.sections(selection(), metrics(), MANIFEST))["Timeliness"]
    assert [row[0] for row in table.rows] == ["forward regression (fr)", "matching pursuit (omp)"]
    assert list(table.emphasis) == [0]


def test_sequence_table_has_gains_and_costs() -> None:
    table = tables(figures.sections(selection(), metrics(), MANIFEST))["The sequen"]
    assert [row[1:4] for row in table.rows] == [["blood", 2, 2.0], ["scan", 1, 6.0], ["age", 1, 2]]
    assert [row[6] for row in table.rows] == pytest.approx([0.15, 0.25 / 6, 0.025])


@pytest.mark.parametrize(
    ("changes", "names", "own"),
    [
        ({}, ["omp", "fr"], "fr"),
        ({"cost_aware": False}, ["fr", "g-fr"], "g-fr"),
        ({"doubling": True}, ["omp", "doubling-fr"], "doubling-fr"),
    ],
)
def test_the_chosen_curve_is_found(changes: dict[str, Any], names: list[str], own: str) -> None:
    other = (0.0, 1.0, 3.0, 10.0)
    curves = [curve(name) if name == own else curve(name, other) for name in names]
    content = {"curves": curves, "timeliness": {name: {"timeliness": 0.5} for name in names}}
    table = tables(figures.sections({**selection(), **changes}, content, {}))["Timeliness"]
    assert list(table.emphasis) == [names.index(own)]


def test_without_curves_the_sequence_itself_is_drawn() -> None:
    found = figures.sections(selection(), {}, {})
    charts = [b for s in found for b in s.blocks if isinstance(b, Figure)]
    assert len(charts) == 2
    assert "training rows" in render(selection(), {})


def test_every_optional_key_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    render(dict.fromkeys(selection()), dict.fromkeys(metrics()))
    render({}, {}, {})
    for chart in ("line_chart", "bar_chart"):  # drawing takes time; it is tested above
        monkeypatch.setattr(figures, chart, lambda *_, **__: "<svg></svg>")
    for key in selection():
        render({k: v for k, v in selection().items() if k != key}, metrics())
        render({**selection(), key: None}, metrics())
    for key in metrics():
        render(selection(), {k: v for k, v in metrics().items() if k != key})
        render(selection(), {**metrics(), key: None})


def test_many_rules_are_cut_to_what_can_be_told_apart() -> None:
    content = {**metrics(), "curves": [*(curve(f"rule {i}") for i in range(12)), curve("fr")]}
    found = figures.sections(selection(), content, MANIFEST)
    first = next(b for s in found for b in s.blocks if isinstance(b, Figure))
    assert "5 more are in metrics.json" in first.caption
    assert "forward regression (fr)" in first.svg


@pytest.mark.parametrize(("last", "told"), [(0.52, True), (0.535, False)])
def test_groups_that_lose_what_others_gained_are_told(last: float, told: bool) -> None:
    content = metrics()
    points = content["curves"][0]["points"]
    for n_groups, (point, value) in enumerate(zip(points, (0.0, 0.3, 0.54, last), strict=True)):
        point |= {"validation": value, "n_groups": n_groups}
    text = plain(render(selection(), content))
    expected = "is best after 2 groups, at a cost of 8: 54.0 %, against 52.0 % of all groups"
    assert (expected in text) == told


def test_variants_of_rules_have_names() -> None:
    content = metrics()
    content["curves"] = [curve("fr"), curve("fr-blind"), curve("omp-no-whiten-blind-doubling")]
    content["timeliness"] = {c["name"]: {"timeliness": 0.5} for c in content["curves"]}
    table = tables(figures.sections(selection(), content, MANIFEST))["Timeliness"]
    assert [row[0] for row in table.rows] == [
        "forward regression (fr)",
        "fr, cost-blind",
        "omp-no-whiten, cost-blind, doubling",
    ]


def test_the_rule_by_name_is_the_chosen_curve() -> None:
    content = {**metrics(), "curves": [curve("fr"), curve("fr-blind")]}
    content["timeliness"] = {name: {"timeliness": 0.5} for name in ("fr", "fr-blind")}
    chosen = {**selection(), "rule": "fr-blind", "cost_aware": False}
    table = tables(figures.sections(chosen, content, MANIFEST))["Timeliness"]
    assert [table.rows[i][0] for i in table.emphasis] == ["fr, cost-blind"]


def test_without_a_plateau_most_is_looked_for() -> None:
    content = metrics()
    content["timeliness"]["fr"] |= {"alpha": 1.0, "stopping_cost": 10.0}
    assert plain(figures.headline(selection(), content)) == (
        "95 % of what all 3 groups explain is there after 3 groups, at 100 % of the whole cost"
    )
    wide = selection()
    wide["sequence"][2]["explained_variance"] = 0.56
    assert "after 2 groups, at 80 %" in plain(figures.headline(wide, content))


def test_accuracy_has_a_figure_of_its_own() -> None:
    content = metrics()
    for i, point in enumerate(content["curves"][0]["points"]):
        point["accuracy"] = 0.6 + i / 10
    assert "Accuracy of the chosen sequence on held-out rows" in render(selection(), content)
    assert "Accuracy of" not in render(selection(), metrics())
