from __future__ import annotations

import copy
import re
from typing import Any

import numpy as np
import pytest

from distfms.methods.contract import FinishedRun
from distfms.methods.multiselect import answer_figures, figures
from distfms.methods.multiselect.method import METHOD
from distfms.report.page import Figure, Section, Table
from distfms.report.plots import Line
from tests.unit.report.checks import check_page, manifest


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
        "refined": False,
        "repeats": {"age": 1, "calm": 2, "kind": 0, "warm": 0},
        "path": steps,
        "attributes": attributes,
        "constant": ["race"],
    }


UNKNOWN_RATERS = {
    "known": False,
    "buy_from": "independent",
    "loss_independent": 70.0,
    "loss_same": None,
    "loss_ignored": None,
    "noise_correlation": None,
}


def metrics() -> dict[str, Any]:
    def curve(name: str, factor: float) -> dict[str, Any]:
        points = [
            {
                "budget": spent,
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

    last = {"budget": 6, "spent": 6, "lower": None, "upper": None}
    return {
        "train": {
            "projected_loss": 70.0,
            "mse": 71.0,
            "r2": 0.29,
            "label_variance": 100.0,
            "n_objects": 90,
            "n_objects_with_all_judgments": 40,
            "projected_loss_interval": None,
            "raters": dict(UNKNOWN_RATERS),
        },
        "test": {
            "projected_loss": 82.0,
            "mse": 83.0,
            "label_variance": 100.0,
            "n_objects": 30,
            "n_objects_with_all_judgments": 20,
            "raters": dict(UNKNOWN_RATERS),
        },
        "folds": [{"mse": 75.0, "weight": 1.0}, {"mse": 77.0, "weight": 1.0}],
        "chosen": {**last, "projected_loss": 70.0, "validation_loss": 76.0, "test_loss": 82.0},
        "baselines": {
            "scoring": {
                **last,
                "projected_loss": 74.0,
                "validation_loss": None,
                "test_loss": 84.0,
                "repeats": {"age": 1},
            },
            "copies": {
                **last,
                "projected_loss": 75.0,
                "validation_loss": 78.0,
                "test_loss": None,
                "repeats": {"calm": 2},
            },
        },
        "curves": [curve("full", 1), curve("scoring", 0.8), curve("single: age", 0.3)],
    }


MANIFEST = manifest()
MODEL = {"attributes": ["age", "calm"], "intercept": 3.25, "target": "mood"}
WEIGHTS = {"repeats": [1, 2], "weights": [0.5, -4.0], "means": [5.0, 6.0]}


def finished(selection: Any, metrics: Any) -> FinishedRun:
    weights = {name: np.array(values) for name, values in WEIGHTS.items()}
    return FinishedRun(selection, metrics, MODEL, MANIFEST, weights)


def headline(selection: Any, metrics: Any) -> str:
    return plain(answer_figures.headline(finished(selection, metrics)))


def sections(selection: Any, metrics: Any) -> list[Section]:
    return figures.sections(finished(selection, metrics))


def render(selection: Any, metrics: Any) -> str:
    return check_page(METHOD.page(finished(selection, metrics)))


def plain(text: str) -> str:
    return text.replace("\u00a0", " ").replace("\u202f", " ")


def tables(found: list[Section]) -> dict[str, Table]:
    return {b.caption[:12]: b for s in found for b in s.blocks if isinstance(b, Table)}


def test_headline_says_what_to_buy_and_the_held_out_share() -> None:
    assert headline(selection(), metrics()) == (
        "Buy 2 judgments of calm and 1 of age: they explain 18 % of the label's variance on "
        "held-out objects"
    )


def test_headline_sums_up_what_is_bought_less() -> None:
    many = selection()
    many["repeats"] = {"age": 5, "calm": 4, "kind": 3, "warm": 2, "race": 1}
    assert headline(many, metrics()).startswith(
        "Buy 5 judgments of age, 4 of calm, 3 of kind and 3 of 2 other attributes: "
    )


@pytest.mark.parametrize(
    ("test", "validated", "share"),
    [
        ({"projected_loss": None, "mse": 90.0, "label_variance": 100.0}, 76.0, "10 %"),
        ({"projected_loss": 82.0, "mse": None, "label_variance": 164.0}, 76.0, "50 %"),
        (None, 76.0, "24 %"),
        ({"projected_loss": -1e-12, "mse": None, "label_variance": 100.0}, 76.0, "100 %"),
    ],
)
def test_headline_takes_the_most_trusted_loss(test: Any, validated: Any, share: str) -> None:
    content = {**metrics(), "test": test and {"n_objects": 30, **test}}
    content["chosen"]["validation_loss"] = validated
    assert f": they explain {share} of the label" in headline(selection(), content)


def test_headline_promises_nothing_of_the_objects_that_chose() -> None:
    content = {**metrics(), "test": None}
    content["chosen"]["validation_loss"] = None
    found = headline(selection(), content)
    assert (
        found == "Buy 2 judgments of calm and 1 of age; hold objects out to see what they explain"
    )
    assert "projected from the training objects, which is optimistic" in plain(
        render(selection(), content)
    )


def test_headline_trusts_cross_validation_more_than_a_few_held_out_objects() -> None:
    content = metrics()
    content["test"]["n_objects"] = 5
    assert "explain 24 % of the label's variance in cross-validation" in headline(
        selection(), content
    )


@pytest.mark.parametrize("n_test", [5, None])
def test_few_objects_promise_no_share_anywhere(n_test: int | None) -> None:
    content = metrics()
    content["train"] |= {"n_objects": 5, "r2": 0.99}
    content["test"] = n_test and {**content["test"], "n_objects": n_test, "r2": 0.99}
    chosen = {**selection(), "projected_loss": 1.0}
    assert headline(chosen, content) == (
        "Buy 2 judgments of calm and 1 of age; 5 objects are too few to say what they explain"
    )
    found = tables(sections(chosen, content))
    assert [c.title for c in found["The order of"].columns][-1] == "Projected loss"
    assert "Share explained" not in [c.title for c in found["What the mod"].columns]
    assert "99 %" not in plain(render(chosen, content))


def test_headline_is_honest_about_nothing() -> None:
    nothing = {**selection(), "repeats": {"age": 0}, "path": []}
    assert headline(nothing, metrics()).startswith("No judgment is worth its cost")
    assert "No judgment" in render(nothing, {**metrics(), "curves": []})


def test_an_impossible_loss_is_no_share_of_the_variance() -> None:
    content = metrics()
    content["test"]["projected_loss"] = content["chosen"]["test_loss"] = -6.0
    assert headline(selection(), content) == (
        "Buy 2 judgments of calm and 1 of age; 30 objects are too few to say what they explain"
    )
    assert "106 %" not in plain(render(selection(), content))


def test_every_row_of_the_measures_is_of_the_same_objects() -> None:
    table = tables(sections(selection(), metrics()))["What the mod"]
    titles = ["", "Objects", "Variance of the label", "Loss", "Share explained", "Plain error"]
    assert [column.title for column in table.columns] == titles
    assert table.rows == [
        ["Training objects", 90, 100, 70, 0.29, None],
        ["Mean of 2 folds, each left out once", None, None, None, None, 76],
        ["± between folds", None, None, None, None, pytest.approx(2**0.5)],
        ["Held-out objects", 30, 100, 82, None, None],
        ["Training objects that hold all judgments", 40, None, None, None, 71],
        ["Held-out objects that hold all judgments", 20, None, None, None, 83],
    ]


def test_coefficients_stand_in_a_table_with_the_most_important_first() -> None:
    table = tables(sections(selection(), metrics()))["The model. A"]
    assert table.rows == [["calm", 2, -4.0, -4.0, 6.0], ["age", 1, 0.5, 1.0, 5.0]]
    assert "A prediction of mood is 3.25 plus" in table.caption


def test_page_says_all_that_was_asked() -> None:
    text = render(selection(), metrics())
    for expected in (
        "One thing.",
        "1 attribute never varied and played no part: race.",
        "What a budget buys",
        "cross-validated",
        "budget 6",
        "only age",
        "1 × 4 = 4",
        "1 attribute without variance between objects (σ̂ = 0) cannot be drawn.",
        "What was read",
        "How to reproduce",
    ):
        assert expected in text


def test_attributes_are_drawn_by_noise_and_correlation() -> None:
    text = render(selection(), metrics())
    assert "age: correlation 0.2, r = 1" in text
    assert "warm: correlation −0.2, r = 0" in text


def test_attribute_table_ranks_by_judgments_then_correlation() -> None:
    table = tables(sections(selection(), metrics()))["All attribut"]
    assert [row[0] for row in table.rows] == ["calm", "age", "warm", "kind"]
    correlation = {row[0]: row[2] for row in table.rows}
    assert correlation == {"calm": 0.3, "age": 0.2, "warm": -0.2, "kind": None}


def test_path_table_gives_every_smaller_budget() -> None:
    table = tables(sections(selection(), metrics()))["The order of"]
    assert [list(row) for row in table.rows] == [
        ["calm", 1, 1, 1, 1, 95.0, pytest.approx(0.05)],
        ["age", 1, 1, 4, 5, 75.0, pytest.approx(0.25)],
        ["calm", 1, 2, 1, 6, 70.0, pytest.approx(0.30)],
    ]


def test_baselines_stand_below_the_selection() -> None:
    table = tables(sections(selection(), metrics()))["The selectio"]
    assert [row[0] for row in table.rows] == ["Full", "Scoring", "Copies"]
    assert [row[3:6] for row in table.rows] == [[70, 76, 82], [74, None, 84], [75, 78, None]]
    assert "100 among the training objects, 100 among those held out" in table.caption


def test_early_end_refinement_and_interval_are_said() -> None:
    content = metrics()
    content["train"]["projected_loss_interval"] = {
        "level": 0.95,
        "estimate": 70.0,
        "lower": 61.5,
        "upper": 78,
    }
    changed = {**selection(), "status": "no_positive_gain", "refined": True}
    text = render(changed, content)
    assert "no further judgment lowers the loss" in text
    assert "Exchanging judgments" in text
    assert "With 95 % confidence the loss that the search projected, 70, lies between" in text
    assert "positive semi-definite" not in text
    plain_text = render(selection(), metrics())
    assert "Exchanging judgments" not in plain_text
    assert "jackknife" not in plain_text


def test_content_is_not_changed() -> None:
    contents = selection(), metrics()
    before = copy.deepcopy(contents)
    render(*contents)
    assert contents == before


def test_a_thousand_attributes_stay_readable() -> None:
    many = selection()
    many["attributes"] += [
        {**many["attributes"][i % 4], "name": f"a_{i}_{'x' * 80}"} for i in range(1500)
    ]
    many["repeats"] = {a["name"]: 1 + i % 3 for i, a in enumerate(many["attributes"])}
    found = sections(many, metrics())
    captions = " ".join(b.caption for s in found for b in s.blocks if isinstance(b, Figure))
    assert "The first 30 with most judgments; 1\u202f474 more are in the table." in captions
    assert len(tables(found)["All attribut"].rows) == 1000


def test_curves_run_over_budgets_where_they_name_them() -> None:
    content = metrics()
    for curve in content["curves"]:
        curve["points"] = [{**p, "budget": 10 * p["spent"]} for p in curve["points"]]
    found = sections({**selection(), "budget": 60}, content)
    chart = next(b.svg for s in found for b in s.blocks if isinstance(b, Figure))
    assert re.search(r">50</text>", chart)


@pytest.mark.parametrize(("drop", "cut"), [(4.0, True), (14.0, False)])
def test_a_scale_that_does_not_begin_at_zero_says_so(drop: float, cut: bool) -> None:
    points = [{"budget": s, "spent": s, "projected_loss": 100 - drop * s} for s in range(7)]
    curves = [{"name": name, "points": points} for name in ("full", "scoring")]
    content = {**metrics(), "curves": curves}
    found = sections(selection(), content)
    captions = [b.caption for s in found for b in s.blocks if isinstance(b, Figure)]
    assert ["begin at zero" in caption for caption in captions[:2]] == [cut, cut]


def test_path_of_many_steps_is_cut_and_says_so() -> None:
    long = {**selection(), "path": selection()["path"] * 50}
    table = tables(sections(long, metrics()))["The order of"]
    assert len(table.rows) == 60
    assert "90 more are in selection.json" in table.caption


@pytest.mark.parametrize(
    "losses", [[4.0, 4.0], [0.0, 0.0], [-3.0, -3.0], [9.0, 11.0], [2.0, 30.0], [-9.0, 1.0]]
)
def test_scale_of_losses_is_never_empty(losses):
    """Also where all are alike, or all are far above the variance of the label."""
    low, high = figures._loss_limits([Line("all", [1, 2], losses)], 4.0)
    assert low < high
    assert min(losses) < high


def test_a_refined_selection_is_a_point_of_its_own() -> None:
    chosen, content = selection() | {"refined": True}, metrics()
    point = {"budget": 6, "spent": 6, "projected_loss": 68.0, "validation_loss": 70.5}
    content["chosen"] = point | {"test_loss": None, "lower": 60.0, "upper": 80.0}
    content["test"] = None
    page = plain(render(chosen, content))
    assert "circles show the selection after judgments were exchanged" in page
    # The answer is told by the refined selection's losses, not by those of the path's end (76).
    assert "in cross-validation; 100 without judgments" in page
    found = tables(sections(chosen, content))["The selectio"]
    assert found.rows[0][4] == 70.5
    both = n_circles(chosen, content)
    content["chosen"] = point | {"validation_loss": None, "test_loss": None}
    assert both == 2 * n_circles(chosen, content) > 0
    assert n_circles(selection(), content) == 0


def n_circles(chosen: Any, content: Any) -> int:
    """Count strokes of the circles that set off points of the curve."""
    figure = next(
        block
        for section in sections(chosen, content)
        for block in section.blocks
        if isinstance(block, Figure)
    )
    return len(re.findall(r"stroke-width: 2[;\"]", figure.svg))


def test_who_judges() -> None:
    assert "judgments were taken as independent" in plain(render(selection(), metrics()))
    known = metrics()
    correlation = {"age": {"calm": 0.61, "<warm>": None}, "calm": {"age": 0.61, "<warm>": None}}
    correlation["<warm>"] = {"age": None, "calm": None}
    for rows, loss in (("train", 70.0), ("test", 82.0)):
        losses = {"loss_independent": loss, "loss_same": loss + 2, "loss_ignored": loss - 9}
        known[rows]["raters"] = {
            "known": True,
            "buy_from": "same",
            "noise_correlation": correlation,
            **losses,
        }
    page = render(selection(), known)
    assert "Correlation of one rater" in page
    assert "0.61" in page
    text = plain(page)
    assert "from the same raters (bold)" in text
    for number in ("84", "73", "61"):
        assert number in text
