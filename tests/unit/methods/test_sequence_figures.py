import pytest

from distfms.methods.frame.contract import FinishedRun
from distfms.methods.sequence import figures
from distfms.methods.sequence.method import METHOD
from distfms.report.page import Figure
from tests.unit.report.checks import check_page, manifest, plain

GROUPS = [("blood", ["b1", "b2"], 2.0, 0.3), ("scan", ["s"], 6.0, 0.25), ("age", ["a"], 2.0, 0.05)]


def selection():
    steps = []
    spent = 0.0
    share = 0.0
    for group, columns, cost, gain in GROUPS:
        spent = spent + cost
        share = share + gain
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
        "rule": "fr",
        "notes": ["`scan` is dear."],
    }


def curve(name, spent=(0.0, 2.0, 8.0, 10.0)):
    shares = (0.0, 0.3, 0.55, 0.6)
    return {
        "name": name,
        "points": [
            {
                "n_groups": n,
                "budget": s,
                "train": {"explained_variance": v},
                "validation": {"explained_variance": 0.9 * v},
                "test": {"explained_variance": 0.8 * v},
            }
            for n, (s, v) in enumerate(zip(spent, shares, strict=True))
        ],
    }


def metrics():
    return {
        "train": {"r2": 0.6, "n_rows": 90},
        "test": {"r2": 0.48, "n_rows": 30},
        "folds": [{"r2": 0.5, "weight": 1.0}, {"r2": 0.54, "weight": 1.0}],
        "curves": [curve("fr"), curve("omp", (0.0, 6.0, 8.0, 10.0)), curve("oracle")],
        "timeliness": {"omp": timely(0.4, 7.5), "fr": timely(0.7, 8.0), "oracle": timely(0.2, 8.0)},
        "stop": {
            "rule": "one_standard_error",
            "model": 2,
            "n_groups": 2,
            "spent": 8.0,
            "best_n_groups": 3,
            "best_spent": 10.0,
        },
    }


def timely(value, stop):
    return {
        "timeliness": value,
        "alpha": 0.9,
        "stopping_cost": stop,
        "alpha_timeliness": value - 0.1,
        "test_alpha_timeliness": None,
    }


MANIFEST = manifest()


def finished(selection, metrics):
    return FinishedRun(selection, metrics, {"target_names": ["risk"]}, MANIFEST, {})


def headline(selection, metrics):
    return plain(figures.headline(finished(selection, metrics)))


def sections(selection, metrics):
    return figures.sections(finished(selection, metrics))


def render(selection, metrics):
    return check_page(METHOD.page(finished(selection, metrics)))


@pytest.mark.parametrize(
    ("n_groups", "n_steps", "text"),
    [
        (
            2,
            3,
            "Measure 2 of 3 groups: they explain 44% of the variation of `risk` for 80% of the "
            "cost; all 3 explain 48%.",
        ),
        (0, 3, "Measure nothing: no group predicts better than always answering the mean."),
        (1, 3, "Measure 1 of 3 groups: it explains 24%"),
        (3, 3, "Measure all 3 groups: they explain 48%"),
        (1, 1, "Measure `blood`: it explains 24% of the variation of `risk`."),
    ],
)
def test_headline_says_what_the_advised_groups_explain(n_groups, n_steps, text):
    content = metrics()
    content["stop"] |= {
        "model": n_groups,
        "n_groups": n_groups,
        "spent": (0.0, 2.0, 8.0, 10.0)[n_groups],
    }
    chosen = {**selection(), "sequence": selection()["sequence"][:n_steps]}
    assert headline(chosen, content).startswith(text)
    render(chosen, content)


def test_headline_has_the_errors_of_the_advised_and_of_all_groups():
    content = metrics()
    n_rows = {"n_rows": 50, "weight": 50.0}
    content["folds"] = [
        {"fold": 0, "explained_variance": 0.50, **n_rows},
        {"fold": 1, "explained_variance": 0.60, **n_rows},
    ]
    content["folds_at_stop"] = [
        {"fold": 0, "explained_variance": 0.48},
        {"fold": 1, "explained_variance": 0.50},
    ]
    # A fold's deviation, 7.1 and 1.4%, of twice its rows.
    content["test"]["n_rows"] = 100
    found = headline(selection(), content)
    assert "explain 44 ± 1% of the variation of `risk`" in found
    assert found.endswith("; all 3 explain 48 ± 5%.")


@pytest.mark.parametrize(
    ("aurocs", "text"),
    [
        ((0.6, 0.8, 0.7), "as well as all of them: AUROC 0.70 ± 0.06 for"),
        ((0.2, 0.8, 0.6), "always answering `no` is as good; AUROC 0.53 ± 0.18."),
        # What three folds cannot say, two say less: so few rows have an error of their own.
        ((0.69, 0.71, None), "as well as all of them: AUROC 0.70 ± 0.12 for"),
    ],
)
def test_an_auroc_is_of_what_the_other_folds_choose(aurocs, text):
    content = of_two_classes(aurocs)
    content["test"] = None
    assert text in headline(selection(), content)


def test_held_out_rows_of_one_class_have_no_auroc():
    content = of_two_classes((0.6, 0.8, None))
    one_class = {
        "rows": "test",
        "auroc": None,
        "sampling_error": None,
        "confusion": [[30, 0], [0, 0]],
    }
    content["classes"] |= {**one_class, "largest_share": 1.0}
    assert "100% of rows correct (a constant: 100%)" in headline(selection(), content)


def of_two_classes(aurocs):
    content = metrics()
    size = {"n_rows": 50, "weight": 50.0}
    content["folds"] = [{"fold": fold, **size} for fold in range(3)]
    content["classes"] = {
        "rows": "validation",
        "names": ["no", "yes"],
        "confusion": [[100, 0], [50, 0]],
        "auroc": 0.9,
        "sampling_error": 0.12,
        "folds": [{"fold": fold, "auroc": auroc} for fold, auroc in enumerate(aurocs)],
    }
    return content


def test_other_rules_are_thin_lines_beside_the_chosen_one():
    content = {**metrics(), "curves": [*(curve(f"rule {i}") for i in range(3)), curve("fr")]}
    content["timeliness"] = {c["name"]: timely(0.5, 8.0) for c in content["curves"]}
    found = sections(selection(), content)
    answer, *_ = (b for s in found for b in s.blocks if isinstance(b, Figure))
    assert "blood" in answer.svg
    assert "Thin lines: other rules" in answer.caption


def test_the_oracle_of_a_rule_has_a_name_and_is_no_rule_to_follow():
    title = "oracle order of matching pursuit (omp)"
    assert figures.rule_title("oracle:omp") == title
    content = metrics()
    content["curves"].append(curve("oracle:omp"))
    assert title not in render(selection(), content)
    content["timeliness"]["oracle:omp"] = timely(0.5, 8.0)
    assert title in render(selection(), content)
