from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest

from distfms.methods.multiselect import figures
from distfms.report.page import Figure, Section, Table
from distfms.report.provenance import build_page
from tests.unit.report.checks import check_page


def selection() -> dict[str, Any]:
    path = [("calm", 1, 1), ("age", 1, 4), ("calm", 2, 1)]
    steps, spent = [], 0
    for attribute, repeats, cost in path:
        spent += cost
        steps.append(
            {
                "attribute": attribute,
                "count": 1,
                "repeats": repeats,
                "cost": cost,
                "spent": spent,
                "objective": 5.0 * spent,
                "projected_loss": 100 - 5.0 * spent,
            }
        )
    attributes = [
        {
            "name": name,
            "b": b,
            "v": v,
            "sigma": sigma,
            "cost": cost,
            "mean": 5.0,
            "n_judgments": 100,
            "n_missing": 0,
            "mean_judgments": 2.0,
        }
        for name, b, v, sigma, cost in (
            ("age", 4.0, 1.0, 2.0, 4),
            ("calm", 3.0, 2.0, 1.0, 1),
            ("kind", 0.5, 3.0, 0.0, 1),
            ("warm", -1.0, 2.5, 0.5, 1),
        )
    ]
    return {
        "method": "multiselect",
        "algorithm": "full",
        "criterion": "gain_per_cost",
        "budget": 6,
        "spent": 6,
        "label_variance": 100.0,
        "objective": 30.0,
        "projected_loss": 70.0,
        "status": "ok",
        "repeats": {"age": 1, "calm": 2, "kind": 0, "warm": 0},
        "path": steps,
        "attributes": attributes,
        "constant": ["race"],
    }


def metrics() -> dict[str, Any]:
    def curve(name: str, factor: float) -> dict[str, Any]:
        points = [
            {
                "spent": spent,
                "projected_loss": 100 - 5.0 * factor * spent,
                "validation_loss": 100 - 4.0 * factor * spent,
                "lower": 95 - 4.0 * factor * spent,
                "upper": 105 - 4.0 * factor * spent,
                "test_loss": 100 - 3.0 * factor * spent,
            }
            for spent in range(7)
        ]
        return {"name": name, "points": points}

    return {
        "train": {"projected_loss": 70.0, "mse": 71.0, "r2": 0.29},
        "test": {"projected_loss": 82.0, "mse": 83.0},
        "folds": [{"mse": 75.0}, {"mse": 77.0}],
        "baselines": {
            "scoring": {"train": {"projected_loss": 74.0}, "test": {"projected_loss": 84.0}},
            "copies": {
                "projected_loss": 75.0,
                "validation_loss": 78.0,
                "test_loss": None,
                "repeats": {"calm": 2},
                "spent": 2,
            },
        },
        "curves": [curve("full", 1), curve("scoring", 0.8), curve("single: age", 0.3)],
    }


MANIFEST = {"spec_name": "faces", "distfms": "0.1.0", "notes": ["Look here."]}


def render(selection: Any, metrics: Any, manifest: Any = MANIFEST) -> str:
    head = figures.headline(selection, metrics)
    found = figures.sections(selection, metrics, manifest)
    return check_page(build_page(head, found, manifest, figures.SUBTITLE).render())


def plain(text: str) -> str:
    return text.replace("\u00a0", " ").replace("\u202f", " ")


def tables(found: list[Section]) -> dict[str, Table]:
    return {b.caption[:12]: b for s in found for b in s.blocks if isinstance(b, Table)}


def test_headline_gives_the_held_out_share_first() -> None:
    assert plain(figures.headline(selection(), metrics())) == (
        "A budget of 6 buys 18 % of the label's variance, with 3 judgments an object"
    )


def test_headline_counts_judgments_where_each_costs_one() -> None:
    assert plain(figures.headline({**selection(), "spent": 3}, metrics())) == (
        "3 judgments an object buy 18 % of the label's variance"
    )


@pytest.mark.parametrize(
    ("test", "validated", "share"),
    [({"mse": 90.0}, True, "10 %"), (None, True, "24 %"), (None, False, "30 %")],
)
def test_headline_falls_back_to_what_is_there(test: Any, validated: bool, share: str) -> None:
    content = {**metrics(), "test": test}
    if not validated:
        for curve in content["curves"]:
            for point in curve["points"]:
                point["validation_loss"] = None
    assert share in plain(figures.headline(selection(), content))


def test_headline_divides_by_the_variance_of_the_rows_it_speaks_of() -> None:
    content = {**metrics(), "test": {"projected_loss": 82.0, "label_variance": 164.0}}
    assert "50 %" in plain(figures.headline(selection(), content))
    found = figures.sections(selection(), content, MANIFEST)
    shares = [row[6] for row in tables(found)["The selectio"].rows]
    assert shares == pytest.approx([0.5, 1 - 84 / 164, 0.22])
    assert "Among the held-out objects the label's variance is 164." in render(selection(), content)


def test_headline_is_honest_about_nothing() -> None:
    assert "none of the label" in figures.headline(
        selection(), {**metrics(), "test": {"projected_loss": 120.0}}
    )
    nothing = {**selection(), "repeats": {"age": 0}, "path": []}
    assert figures.headline(nothing, metrics()).startswith("No judgment is worth its cost")
    assert "No judgment" in render(nothing, {**metrics(), "curves": []})


@pytest.mark.parametrize("spent", [3, 6])
def test_an_impossible_loss_is_no_share_of_the_variance(spent: int) -> None:
    chosen = {**selection(), "spent": spent}
    content = {**metrics(), "test": {"projected_loss": -6.0}}
    head = plain(figures.headline(chosen, content))
    bought = "3 judgments an object"
    assert head == (
        f"{bought if spent == 3 else f'A budget of 6 for {bought}'}: too few objects to estimate "
        "what that explains"
    )
    page = plain(render(chosen, content))
    assert "106 %" not in page
    assert "(the estimate, held-out objects, is −6)" in page
    share = tables(figures.sections(chosen, content, MANIFEST))["The selectio"].rows[0][6]
    assert share is None


def test_a_loss_of_nothing_but_rounding_explains_all() -> None:
    content = {**metrics(), "test": {"projected_loss": -1e-12}}
    assert "buys 100 % of the label's variance" in plain(figures.headline(selection(), content))


def test_page_says_all_that_was_asked() -> None:
    text = render(selection(), metrics())
    for expected in (
        "Look here.",
        "1 attribute never varied and took no part: race.",
        "What a budget buys",
        "cross-validated",
        "budget 6",
        "only age",
        "1 × 4 = 4",
        "b̂ / σ̂",
        "1 attribute without external variance (σ̂ = 0) cannot be drawn.",
        "What was read",
        "How to reproduce",
    ):
        assert expected in text


def test_attributes_are_drawn_at_the_ratios_of_the_paper() -> None:
    text = render(selection(), metrics())
    assert "age: b̂/σ̂ = 2, v̂/σ̂ = 0.5, r = 1" in text
    assert "warm: b̂/σ̂ = −2, v̂/σ̂ = 5, r = 0" in text


def test_attribute_table_ranks_by_judgments_then_correlation() -> None:
    table = tables(figures.sections(selection(), metrics(), MANIFEST))["All attribut"]
    assert [row[0] for row in table.rows] == ["calm", "age", "warm", "kind"]
    correlation = {row[0]: row[2] for row in table.rows}
    assert correlation == {"calm": 0.3, "age": 0.2, "warm": -0.2, "kind": None}


def test_path_table_gives_every_smaller_budget() -> None:
    table = tables(figures.sections(selection(), metrics(), MANIFEST))["The order of"]
    assert [list(row) for row in table.rows] == [
        ["calm", 1, 1, 1, 1, 95.0, pytest.approx(0.05)],
        ["age", 1, 1, 4, 5, 75.0, pytest.approx(0.25)],
        ["calm", 1, 2, 1, 6, 70.0, pytest.approx(0.30)],
    ]


def test_baselines_stand_below_the_selection() -> None:
    table = tables(figures.sections(selection(), metrics(), MANIFEST))["The selectio"]
    assert [row[0] for row in table.rows] == ["Full", "Scoring", "Copies"]
    assert [row[3:6] for row in table.rows] == [[70, 76, 82], [74, None, 84], [75, 78, None]]
    assert [row[6] for row in table.rows] == pytest.approx([0.18, 0.16, 0.22])


def test_early_end_refinement_and_interval_are_said() -> None:
    content = metrics()
    content["train"]["projected_loss_interval"] = {"level": 0.95, "lower": 61.5, "upper": 78}
    changed = {**selection(), "status": "no_positive_gain", "refined": True}
    text = render(changed, content)
    assert "no further judgment lowers the loss" in text
    assert "Exchanging judgments" in text
    assert "between 61.5 and 78 with 95 % confidence" in text
    assert "positive semi-definite" not in text
    plain_text = render(selection(), metrics())
    assert "Exchanging judgments" not in plain_text
    assert "confidence" not in plain_text


@pytest.mark.parametrize(("estimate", "differs"), [(70.0 + 1e-12, False), (71.0, True)])
def test_two_projected_losses_of_one_selection_are_explained(estimate, differs) -> None:
    content = metrics()
    content["train"]["projected_loss"] = 70.0
    interval = {"level": 0.95, "estimate": estimate, "lower": 61.5, "upper": 78}
    content["train"]["projected_loss_interval"] = interval
    assert ("It is of the covariance made positive" in render(selection(), content)) is differs


def test_content_survives_json_and_is_not_changed() -> None:
    contents = [json.loads(json.dumps(c)) for c in (selection(), metrics(), MANIFEST)]
    before = copy.deepcopy(contents)
    assert render(*contents) == render(selection(), metrics())
    assert contents == before


def test_every_optional_key_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    render(dict.fromkeys(selection()), dict.fromkeys(metrics()))
    render({}, {}, {})
    for chart in (
        "line_chart",
        "bar_chart",
        "scatter_chart",
    ):  # drawing takes time; it is tested above
        monkeypatch.setattr(figures, chart, lambda *_, **__: "<svg></svg>")
    for key in selection():
        render({k: v for k, v in selection().items() if k != key}, metrics())
        render({**selection(), key: None}, metrics())
    for key in metrics():
        render(selection(), {k: v for k, v in metrics().items() if k != key})
        render(selection(), {**metrics(), key: None})


def test_a_thousand_attributes_stay_readable() -> None:
    many = selection()
    many["attributes"] = [
        {**many["attributes"][i % 4], "name": f"a_{i}_{'x' * 80}"} for i in range(1500)
    ]
    many["repeats"] = {a["name"]: 1 + i % 3 for i, a in enumerate(many["attributes"])}
    found = figures.sections(many, metrics(), MANIFEST)
    captions = " ".join(b.caption for s in found for b in s.blocks if isinstance(b, Figure))
    assert "The 30 with most; 1470 more are in the table." in captions
    assert len(tables(found)["All attribut"].rows) == 1000
    check_page(build_page("h", found, {}).render())


def test_curves_run_over_budgets_where_they_name_them() -> None:
    content = metrics()
    for curve in content["curves"]:
        curve["points"] = [{**p, "budget": 10 * p["spent"]} for p in curve["points"]]
    found = figures.sections({**selection(), "budget": 60}, content, MANIFEST)
    chart = next(b.svg for s in found for b in s.blocks if isinstance(b, Figure))
    assert re.search(r">50</text>", chart)


@pytest.mark.parametrize(("drop", "cut"), [(4.0, True), (14.0, False)])
def test_a_scale_that_does_not_begin_at_zero_says_so(drop: float, cut: bool) -> None:
    points = [{"spent": s, "projected_loss": 100 - drop * s} for s in range(7)]
    content = {"curves": [{"name": name, "points": points} for name in ("full", "scoring")]}
    found = figures.sections(selection(), content, MANIFEST)
    captions = [b.caption for s in found for b in s.blocks if isinstance(b, Figure)]
    assert ["begin at zero" in caption for caption in captions[:2]] == [cut, cut]


def test_path_of_many_steps_is_cut_and_says_so() -> None:
    long = {**selection(), "path": selection()["path"] * 50}
    table = tables(figures.sections(long, metrics(), MANIFEST))["The order of"]
    assert len(table.rows) == 60
    assert "90 more are in selection.json" in table.caption


@pytest.mark.parametrize(
    "losses", [[4.0, 4.0], [0.0, 0.0], [-3.0, -3.0], [9.0, 11.0], [2.0, 30.0], [-9.0, 1.0]]
)
def test_scale_of_losses_is_never_empty(losses):
    """Also where all are alike, or all are far above the variance of the label."""
    low, high = figures._loss_limits([figures.Line("all", [1, 2], losses)], 4.0)
    assert low < high
    assert min(losses) < high


def test_a_refined_selection_is_a_point_of_its_own() -> None:
    chosen, content = selection() | {"refined": True}, metrics()
    point = {"budget": 6, "spent": 6, "projected_loss": 68.0, "validation_loss": 70.5}
    content["chosen"] = point | {"test_loss": None, "lower": 60.0, "upper": 80.0}
    content["test"] = None
    page = plain(render(chosen, content))
    assert "circles show the selection that it became by exchanging judgments" in page
    # The answer is told by the refined selection's losses, not by those of the path's end (76).
    assert "cross-validation; 100 without judgments" in page
    found = tables(figures.sections(chosen, content, MANIFEST))["The selectio"]
    assert found.rows[0][4] == 70.5
    both = n_circles(chosen, content)
    content["chosen"] = point | {"validation_loss": None}
    assert both == 2 * n_circles(chosen, content) > 0
    assert n_circles(selection(), content) == 0


def n_circles(chosen: Any, content: Any) -> int:
    """Count strokes of the circles that set off points of the curve."""
    figure = next(
        block
        for section in figures.sections(chosen, content, MANIFEST)
        for block in section.blocks
        if isinstance(block, Figure)
    )
    return len(re.findall(r"stroke-width: 2[;\"]", figure.svg))
