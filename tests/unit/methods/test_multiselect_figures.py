import numpy as np
import pytest

from distfms.methods.frame.contract import FinishedRun
from distfms.methods.multiselect import figures
from distfms.methods.multiselect.method import METHOD
from tests.unit.report.checks import check_page, manifest, plain, tables


def selection():
    path = [("calm", 1, 1), ("age", 1, 4), ("calm", 2, 1)]
    steps = []
    spent = 0
    for attribute, repeats, cost in path:
        spent += cost
        own = {"attribute": attribute, "count": 1, "repeats": repeats, "cost": cost, "spent": spent}
        steps.append(own | {"objective": 5.0 * spent, "projected_loss": 100 - 5.0 * spent})
    alike = {"mean": 5.0, "n_judgments": 100, "n_missing": 0, "mean_judgments": 2.0}
    attributes = [
        dict(zip(("name", "b", "v", "sigma", "cost"), own, strict=True)) | alike
        for own in (
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
        "repeats": {"age": 1, "calm": 2},
        "path": steps,
        "attributes": attributes,
        "constant": ["race"],
    }


def scores(loss, mse, n, n_complete):
    """What is measured on some objects whose raters are unknown."""
    raters = {"known": False, "buy_from": "independent", "loss_independent": 70.0}
    return {
        "projected_loss": loss,
        "mse": mse,
        "label_variance": 100.0,
        "n_objects": n,
        "n_objects_with_all_judgments": n_complete,
        "raters": raters | dict.fromkeys(("loss_same", "noise_correlation")),
    }


LOSS = "projected_loss"


def whole(projected, validation, test):
    """Losses at the whole budget."""
    losses = {"train": projected, "validation": validation, "test": test}
    return {"budget": 6, "spent": 6, **{rows: {LOSS: loss} for rows, loss in losses.items()}}


def of_choice(*losses):
    """Losses on folds of what the others choose."""
    return [
        {"fold": f, LOSS: loss, "loss_of_mean": 100.0, "weight": 1.0}
        for f, loss in enumerate(losses)
    ]


def metrics():
    def curve(name, factor):
        points = [
            {
                "budget": spent,
                "spent": spent,
                "train": {LOSS: 100 - 5.0 * factor * spent},
                "validation": {
                    LOSS: 100 - 4.0 * factor * spent,
                    "lower": 95 - 4.0 * factor * spent,
                    "upper": 105 - 4.0 * factor * spent,
                },
                "test": {LOSS: 100 - 3.0 * factor * spent},
            }
            for spent in range(7)
        ]
        return {"name": name, "points": points}

    return {
        "train": {**scores(70.0, 71.0, 90, 40), "r2": 0.29},
        "test": scores(82.0, 83.0, 60, 20),
        "folds": [{"mse": 75.0, "weight": 1.0}, {"mse": 77.0, "weight": 1.0}],
        "folds_of_choice": of_choice(76.0, 76.0),
        "chosen": whole(70.0, 76.0, 82.0),
        "baselines": {
            "scoring": {**whole(74.0, None, 84.0), "repeats": {"age": 1}},
            "copies": {**whole(75.0, 78.0, None), "repeats": {"calm": 2}},
        },
        "curves": [curve("full", 1), curve("scoring", 0.8), curve("single: age", 0.3)],
    }


MANIFEST = manifest()
MODEL = {"attributes": ["age", "calm"], "intercept": 3.25, "target": "mood"}
WEIGHTS = {"repeats": [1, 2], "weights": [0.5, -4.0], "means": [5.0, 6.0]}


def finished(selection, metrics):
    weights = {name: np.array(values) for name, values in WEIGHTS.items()}
    return FinishedRun(selection, metrics, MODEL, MANIFEST, weights)


def headline(selection, metrics):
    return plain(figures.headline(finished(selection, metrics)))


def sections(selection, metrics):
    return figures.sections(finished(selection, metrics))


def render(selection, metrics):
    return check_page(METHOD.page(finished(selection, metrics)))


def changed(content, changes):
    """The content with other values at dotted paths."""
    for path, value in changes.items():
        *parents, name = path.split(".")
        place = content
        for parent in parents:
            place = place[parent]
        place[name] = value
    return content


BUY = "For each object buy 2 judgments of `calm` and 1 of `age` at a cost of 6"
BETTER = {"name": "lasso", "gain": 7.0, "standard_error": 2.0}
FOLDS = of_choice(72.0, 80.0)
#: Attributes on which raters do not agree.
NOISE = [
    {**own, "v": 1.0, "sigma": sigma}
    for own, sigma in zip(selection()["attributes"], (0.0, 0.1, 0.1, 0.18), strict=True)
]
TOO_FEW = " objects are too few to say what they explain"


@pytest.mark.parametrize(
    ("chosen", "measured", "text"),
    [
        ({}, {}, f"{BUY}: they explain 18% of `mood`"),
        # As of a fold of 60 objects, where those of 45 deviate by √32.
        ({}, {"folds_of_choice": FOLDS}, f"{BUY}: they explain 18 ± 5% of `mood`"),
        (
            {"repeats": {"age": 5, "calm": 4, "kind": 3, "warm": 2, "race": 1}},
            {},
            "For each object buy 15 judgments of 5 attributes at a cost of 6: they explain 18% of",
        ),
        # The most trusted loss: of held-out objects, else of the cross-validation.
        ({}, {"test.projected_loss": None}, f"{BUY}: they explain 24% of"),
        ({}, {"test.label_variance": 164.0}, f"{BUY}: they explain 50% of"),
        ({}, {"test.projected_loss": -1e-12}, f"{BUY}: they explain 100% of"),
        ({}, {"test": None}, f"{BUY}: they explain 24% of `mood`"),
        # Few are fewer than a fold has.
        ({}, {"test.n_objects": 40}, f"{BUY}: they explain 24% of `mood`"),
        (
            {},
            {"test": None, "folds_of_choice": of_choice(101.0, 98.0)},
            "Do not buy judgments: the mean of `mood` is as good; they explain 1 ± 2% of it.",
        ),
        (
            {},
            {"test": None, "folds_of_choice": of_choice(106.0, 110.0)},
            "Do not buy judgments: the mean of `mood` is as good; they explain −8 ± 2% of it.",
        ),
        (
            {},
            {"test": None, "folds_of_choice": []},
            f"{BUY}; what they explain of `mood` is not measured.\nSet `data.folds` or",
        ),
        (
            {},
            {"test": None, "folds_of_choice": FOLDS, "better": BETTER},
            f"{BUY}: they explain 24 ± 4% of `mood`.\nLasso explains 7 ± 2 points more: set "
            "`algorithm: auto` to buy what it chooses.",
        ),
        (
            {},
            {"better": {**BETTER, "name": "scoring"}},
            f"{BUY}: they explain 18% of `mood`.\nScoring explains 7 ± 2 points more.",
        ),
        ({}, {"test": None, "train.n_objects": 5}, f"{BUY}; 5{TOO_FEW}"),
        (
            {},
            {"test.projected_loss": -6.0, "chosen.test.projected_loss": -6.0},
            f"{BUY}; 60{TOO_FEW}",
        ),
        ({"repeats": {}, "path": []}, {}, "Buy nothing: no judgment tells anything about"),
        (
            {"repeats": {}, "path": [], "algorithm": "nothing"},
            {},
            "Buy nothing: no judgments predict `mood` better than its mean does.",
        ),
        (
            {"repeats": {}, "path": [], "attributes": NOISE},
            {},
            "Buy nothing: raters do not agree on any attribute.\nObjects differ most on `warm`: "
            "3.1% of the variance of its judgments.",
        ),
        (
            {"attributes": NOISE},
            {"test.projected_loss": -6.0},
            f"{BUY}; raters do not agree on any attribute.",
        ),
    ],
)
def test_headline_says_what_to_buy_and_what_it_explains(chosen, measured, text):
    found = headline(changed(selection(), chosen), changed(metrics(), measured))
    assert found.startswith(text)
    assert ("points more" in found) == ("better" in measured)


@pytest.mark.parametrize(
    ("measured", "absent"),
    [
        ({"train.r2": 0.99, "test.n_objects": 5, "test.r2": 0.99}, "99%"),
        ({"train.r2": 0.99, "test": None}, "99%"),
        (
            {
                "test.projected_loss": -6.0,
                "chosen.test.projected_loss": -6.0,
                "train.n_objects": 90,
            },
            "106%",
        ),
    ],
)
def test_what_cannot_be_said_is_promised_nowhere(measured, absent):
    content = changed(metrics(), {"train.n_objects": 5, **measured})
    chosen = {**selection(), "projected_loss": 1.0}
    assert absent not in plain(render(chosen, content))
    if absent == "99%":
        found = tables(sections(chosen, content))
        assert "Share explained" not in found["Losses of "].columns()


def test_tables_of_the_page():
    found = tables(sections(selection(), metrics()))
    measures = found["Losses of "]
    titles = ["", "Objects", "Variance of the label", "Loss", "Share explained", "Plain error"]
    assert list(measures.columns()) == titles
    assert [[row.get(title) for title in titles] for row in measures.rows] == [
        ["Training objects", 90, 100, 70, 0.29, None],
        ["Mean of 2 folds, each held out once", None, None, None, None, 76],
        ["± between folds", None, None, None, None, pytest.approx(2**0.5)],
        ["Held-out objects", 60, 100, 82, None, None],
        ["Training objects that hold all judgments", 40, None, None, None, 71],
        ["Held-out objects that hold all judgments", 20, None, None, None, 83],
    ]
    attributes = found["All attrib"]
    assert [[*row.values()][:4] for row in attributes.rows] == [
        ["calm", 2, -4.0, 0.3],
        ["age", 1, 0.5, 0.2],
        ["warm", 0, None, -0.2],
        ["kind", 0, None, None],
    ]
    for row in attributes.rows:  # of two judgments v̂ is halved
        ratio = row["v̂/σ̂²"]
        expected = ratio and pytest.approx(1 / (1 + ratio / max(1, row["Buy"])))
        assert row["Reliability"] == expected
    assert "the prediction of mood, whose intercept is 3.25;" in attributes.caption
    baselines = found["The select"]
    assert [row["Way to spend"] for row in baselines.rows] == ["Full", "Scoring", "Copies"]
    losses = [[*row.values()][3:6] for row in baselines.rows]
    assert losses == [[70, 76, 82], [74, None, 84], [75, 78, None]]
    assert "100 among the training objects, 100 among those held out" in baselines.caption
