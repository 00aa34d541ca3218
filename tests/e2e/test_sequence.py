"""Group sequencing from a spec to a finished run, against plain numpy on the rows."""

import numpy as np
import pytest

from distfms.errors import SpecError
from distfms.runs.driver import run_job
from distfms.runs.prepare import prepare
from tests.e2e.jobs import content
from tests.e2e.sequence_jobs import LiteralRows, curve, mixed_job
from tests.reference.sequence import fitted, literal_sequence


def explained(literal, held_out, chosen, ridge=1e-5):
    """Explained variance on held-out rows of a set of groups, from the rows."""
    X, Y, X_out, Y_out = literal.split(held_out)
    used = [c for g in chosen for c in literal.groups[g]]
    residual = Y_out - X_out[:, used] @ fitted(X, Y, used, ridge) if used else Y_out
    return 1 - (residual**2).sum() / (Y_out**2).sum()


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("fr-doubling", {"doubling": True}),
        ("omp-blind", {"criterion": "omp", "cost_aware": False}),
        ("omp-no-whiten", {"criterion": "omp-no-whiten"}),
    ],
)
def test_the_sequence_is_the_literal_one(mixed_data, mixed_columns, tmp_path, rule, options):
    literal = LiteralRows(mixed_columns)
    X, Y, *_ = literal.split(literal.test)
    how = {"cost_aware": True, "doubling": False, "criterion": "fr"} | options
    criterion = how.pop("criterion")
    expected = literal_sequence(criterion, X, Y, literal.groups, literal.cost, 1e-5, **how)
    spec = mixed_job(mixed_data, tmp_path, sequence={**options, "baselines": []})
    selection = content(run_job(spec).folder, "selection.json")
    steps = selection["sequence"]
    assert selection["rule"] == rule
    assert [s["group"] for s in steps] == [literal.group_names[g] for g in expected.order]
    assert [s["cost"] for s in steps] == expected.costs
    np.testing.assert_allclose([s["gain"] for s in steps], expected.gains, rtol=1e-8, atol=1e-12)
    assert steps[-1]["spent"] == pytest.approx(2 + 1 + 6 + 1 + 1 + 1.5)


def test_held_out_curves_are_those_of_the_rows(mixed_run, mixed_columns):
    literal = LiteralRows(mixed_columns)
    metrics = content(mixed_run, "metrics.json")
    selection = content(mixed_run, "selection.json")
    order = [literal.group_names.index(s["group"]) for s in selection["sequence"]]
    points = curve(metrics, "fr")
    assert [p["n_groups"] for p in points] == list(range(6))
    expected = [explained(literal, literal.test, order[:k]) for k in range(6)]
    np.testing.assert_allclose(
        [p["test"]["explained_variance"] for p in points], expected, rtol=1e-9, atol=1e-12
    )
    assert metrics["test"]["explained_variance"] == pytest.approx(expected[-1], rel=1e-9)
    variance = np.var(literal.y[literal.test])
    assert metrics["test"]["mse"] == pytest.approx((1 - metrics["test"]["r2"]) * variance, rel=1e-9)
    assert metrics["test"]["n_rows"] == literal.test.sum()


def losses_on_folds(columns, points, rule):
    """Losses on fold j without j and k at each point, (3, 3, M), from the rows; sizes of folds."""
    literal = LiteralRows(columns)
    losses = np.empty((3, 3, len(points)))
    for fold, other in np.ndindex(3, 3):
        held_out = literal.parts == fold
        keep = ~literal.test & (held_out | (literal.parts != other))
        train = LiteralRows(columns)
        train.X = literal.X[keep]
        train.y = literal.y[keep]
        inner = held_out[keep]
        X, Y, *_ = train.split(inner)
        found = literal_sequence(rule, X, Y, literal.groups, literal.cost, 1e-5)
        spent = np.cumsum(found.costs)
        null = np.mean((train.y[inner] - train.y[~inner].mean()) ** 2)
        for place, point in enumerate(points):
            within = int((spent <= point["budget"] + 1e-9).sum())
            share = explained(train, inner, found.order[:within])
            losses[fold, other, place] = (1 - share) * null
    sizes = np.array([np.sum(literal.parts == fold) for fold in range(3)])
    return losses, sizes / sizes.sum()


def test_a_group_lasso_is_of_the_squared_loss(mixed_data, tmp_path):
    options = {"family": "poisson", "baselines": ["sparse"]}
    with pytest.raises(SpecError, match=r"sparse.*is a lasso of the squared loss.*`poisson`"):
        prepare(mixed_job(mixed_data, tmp_path, sequence=options))


def test_what_was_left_out_and_filled_in_is_said(mixed_run, mixed_columns):
    literal = LiteralRows(mixed_columns)
    manifest = content(mixed_run, "manifest.json")
    assert manifest["dropped"] == {"rows": literal.n_dropped}
    assert manifest["imputed"] == literal.n_gaps
    assert sum(manifest["objects"].values()) == len(literal.y)
    assert content(mixed_run, "selection.json")["constant"] == ["still"]
    page = (mixed_run / "report.html").read_text()
    for text in (f"{literal.n_dropped} rows were left out", "still", "ward"):
        assert text in page
    assert content(mixed_run, "model.json")["sources"]["ward"] == ["east", "north", "west"]


def test_cross_validation_is_that_of_the_rows_and_says_where_to_stop(mixed_run, mixed_columns):
    metrics = content(mixed_run, "metrics.json")
    for rule in ("omp", "fr"):
        points = curve(metrics, rule)
        of_pairs, share = losses_on_folds(mixed_columns, points, rule)
        losses = of_pairs[range(3), range(3)]
        mean = 1 - share @ losses / (share @ losses[:, 0])
        validation = [p["validation"]["explained_variance"] for p in points]
        np.testing.assert_allclose(validation, mean, rtol=1e-9, atol=1e-12)

    def fewest(losses, folds):
        """The fewest groups within one standard error, paired by fold, of the best mean."""
        part = share[folds] / share[folds].sum()
        best = int((part @ losses[folds]).argmin())
        more = losses[folds] - losses[folds][:, [best]]
        squares = (part[:, None] * (more - part @ more)) ** 2
        error = np.sqrt(len(folds) / (len(folds) - 1) * squares.sum(axis=0))
        return int(np.argmax(part @ more <= error)), best

    (first, best), stop = fewest(losses, [0, 1, 2]), metrics["stop"]
    # The others choose by models that did not learn from the fold that reports.
    others = [fewest(of_pairs[:, k], [j for j in range(3) if j != k])[0] for k in range(3)]
    honest = losses[range(3), others]
    nulls = losses[:, 0]
    mean = share @ nulls
    left = share @ honest / mean
    of_folds = metrics["folds_at_stop"]
    assert [own["fold"] for own in of_folds] == [0, 1, 2]
    scores = [1 - own["explained_variance"] for own in of_folds]
    away = (honest - left * nulls) / nulls.clip(mean / 2, mean)
    np.testing.assert_allclose(scores, left + away - share @ away, rtol=1e-9)
    assert stop == {
        "rule": "one_standard_error",
        "n_groups": first,
        "model": first,
        "spent": points[first]["budget"],
        "best_n_groups": best,
        "best_spent": points[best]["budget"],
        "validation": {"explained_variance": pytest.approx(1 - left)},
    }
    assert content(mixed_run, "model.json")["stop"] == metrics["stop"]
