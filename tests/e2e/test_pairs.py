"""Jobs that solve from pairs of attributes, from a spec to predictions, against the rows."""

from functools import partial

import lightgbm
import numpy as np
import pyarrow.parquet as pq
import pytest

import distfms as package
from distfms.data.rows.folds import hash_keys, mix, with_seed
from distfms.errors import DataError, SpecError
from distfms.methods.attribute_efficient import form, method, options
from distfms.methods.attribute_efficient.cells import SHARES
from distfms.methods.attribute_efficient.draws import Draws, drawing_weights, smoothed
from distfms.methods.attribute_efficient.lessons import stream
from distfms.runs.driver import run_job
from distfms.runs.finished import read_run
from distfms.runs.predict import predict_file
from distfms.runs.prepare import prepare
from distfms.solve.trees import DEFAULTS, FIXED
from tests.e2e.attribute_efficient_jobs import IDS, Y, few_columns, few_job
from tests.e2e.attribute_efficient_jobs import NAMES as ALL_NAMES
from tests.e2e.attribute_efficient_jobs import X as ALL
from tests.e2e.jobs import content
from tests.e2e.sequence_jobs import write_rows
from tests.e2e.test_attribute_efficient import PARTS, TRAIN
from tests.reference.attribute_efficient import (
    predict_cut,
    predict_gaps,
    predict_normal,
    solve_pairs,
    within,
)

# The eighth attribute is always 0.
VARIES = np.arange(len(ALL_NAMES)) != 7
NAMES = [name for name in ALL_NAMES if name != "x7"]
X = ALL[:, VARIES]
KEYS = hash_keys(np.array(IDS))
INNER = (KEYS % np.uint64(5)).astype(int)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("pairs") / "data", few_columns())


def few(features):
    """Columns with the one that is always 0."""
    return few_columns(np.insert(features, 7, 0.0, axis=1))


def pairs_job(data, output, own=None, /, **changes):
    section = {"exclude": ["x7"], **changes.pop("data", {})}
    own = {"solver": "pairs", "repeats": 0, **(own or {})}
    return few_job(data, output, own, data=section, **changes)


def literal_draws(draws):
    """What is observed of all rows, NaN elsewhere, shape (n, d)."""
    key = stream(0, 0)
    weights = None
    if draws == "moments":
        weights = drawing_weights((X[TRAIN] ** 2).mean(axis=0))
    if draws == "two_phase":
        alike = Draws(5, key, phases=True)
        own = TRAIN & alike.first_phase(KEYS)
        first = alike.observe(X[own].T, KEYS[own])
        seen = (~np.isnan(first)).sum(axis=1)
        weights = drawing_weights(smoothed(np.nansum(first**2, axis=1), seen))
    return Draws(5, key, weights, draws == "two_phase").observe(X.T, KEYS).T


def solved(observed, own):
    """The literal solution from some training rows."""
    return solve_pairs(observed[own], Y[own], INNER[own])


@pytest.mark.parametrize("draws", ["uniform", "moments", "two_phase"])
def test_the_model_is_that_of_the_pairs(data, tmp_path, draws):
    folder = run_job(pairs_job(data, tmp_path, {"draws": draws})).folder
    selection = content(folder, "selection.json")
    metrics = content(folder, "metrics.json")
    observed = literal_draws(draws)
    weights, intercept = solved(observed, TRAIN)
    found = np.array([selection["coefficients"][name] for name in NAMES])
    np.testing.assert_allclose(found, weights, rtol=1e-6, atol=1e-8)
    assert selection["intercept"] == pytest.approx(intercept)
    n_seen = int((~np.isnan(observed[TRAIN])).sum())
    scanned = TRAIN.sum() * len(NAMES) if draws == "moments" else 0
    assert content(folder, "manifest.json")["attributes"] == {
        "observed": n_seen,
        "scanned": scanned,
    }
    rows = observed[TRAIN], Y[TRAIN]
    squares = (predict_cut(found, selection["intercept"], *rows, X[~TRAIN]) - Y[~TRAIN]) ** 2
    null = ((Y[~TRAIN] - Y[TRAIN].mean()) ** 2).sum()
    assert metrics["test"]["relative_loss"] == pytest.approx(squares.sum() / null)
    # Folds are solved without, and judged on all that their rows have.
    for entry in metrics["folds"]:
        own = TRAIN & (entry["fold"] != PARTS)
        out = entry["fold"] == PARTS
        predicted = predict_cut(*solved(observed, own), observed[own], Y[own], X[out])
        assert entry["mse"] == pytest.approx(np.mean((predicted - Y[out]) ** 2))


@pytest.mark.parametrize("options", [{}, {"draws": "two_phase"}, {"solver": "online"}])
def test_values_too_large_to_be_squared_are_refused(tmp_path, options):
    far = X.copy()
    far[17, 3] = -1.3e104
    folder = write_rows(tmp_path / "data", few(far))
    with pytest.raises(DataError, match=r"data/.*row group.*'x3' has values up to 1.3e\+104") as no:
        run_job(pairs_job(folder, tmp_path / "runs", options))
    assert no.value.exit_code == 2
    assert not list((tmp_path / "runs").rglob("selection.json"))


def test_nothing_is_written_where_no_attribute_varies(tmp_path):
    folder = write_rows(tmp_path / "data", few(np.ones_like(X)))
    with pytest.raises(DataError, match="No attribute varies among what was observed"):
        run_job(pairs_job(folder, tmp_path / "runs"))
    assert not list((tmp_path / "runs").rglob("*.step"))


def predicted(rows, own, others):
    """Literal predictions of some rows, with gaps or without, learned from some."""
    seen = rows[own], Y[own]
    whole = predict_cut(*solved(rows, own), *seen, rows[others])
    by_pattern = predict_gaps(*seen, INNER[own], rows[others])
    return np.where(np.isnan(rows[others]).any(axis=1), by_pattern, whole)


def imputed_losses(rows, own, others):
    """Test losses of ridges on imputed means, with each constant."""
    fill = np.nanmean(rows[own], axis=0)
    level = Y[own].mean()
    seen = rows[own], within(rows[own], rows[others])
    z, z_other = (np.where(np.isnan(x), fill, x) - fill for x in seen)
    scale = z.std(axis=0)
    n = own.sum()
    gram = (z / scale).T @ (z / scale) / n
    cross = (z / scale).T @ (Y[own] - level) / n
    ridges = [
        np.linalg.solve(gram + c * np.eye(len(fill)), cross) for c in 10.0 ** np.arange(-6, 3)
    ]
    results = [np.clip(z_other @ (w / scale) + level, Y[own].min(), Y[own].max()) for w in ridges]
    return [np.sum((f - Y[others]) ** 2) / np.sum((Y[others] - level) ** 2) for f in results]


@pytest.fixture(scope="module")
def gaps():
    """Rows of which half of the values are missing; a few have all, and one has none."""
    found = X.copy()
    found[np.random.default_rng(0).random(X.shape) < 0.5] = np.nan
    found[5:8] = X[5:8]
    found[8] = np.nan
    return found


def test_rows_that_come_with_gaps(gaps, tmp_path):
    """Are predicted by the weights of what each has, on folds and when the model is used."""
    folder = write_rows(tmp_path / "data", few(gaps))
    section = {"missing": "pairs"}
    own = {"attributes_per_example": None}
    run = run_job(pairs_job(folder, tmp_path / "runs", own, data=section)).folder
    selection = content(run, "selection.json")
    manifest = content(run, "manifest.json")
    np.testing.assert_allclose(
        list(selection["coefficients"].values()), solved(gaps, TRAIN)[0], rtol=1e-6, atol=1e-8
    )
    predict_file(run, str(folder), tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")["predicted_y"].to_numpy()
    everything = np.ones(len(Y), dtype=bool)
    np.testing.assert_allclose(found, predicted(gaps, TRAIN, everything), rtol=1e-7, atol=1e-9)
    assert found[8] == pytest.approx(Y[TRAIN].mean())
    model = package.load(run)
    for one in (4, 6, 8):  # alone as among others, bit by bit
        alone = {name: gaps[one : one + 1, j] for j, name in enumerate(NAMES)}
        assert model.predict(alone)["predicted_y"][0].as_py() == found[one]
    metrics = content(run, "metrics.json")
    assert metrics["test"]["mse"] == pytest.approx(np.mean((found - Y)[~TRAIN] ** 2))
    sums = np.zeros(2)
    for entry in metrics["folds"]:
        own = TRAIN & (entry["fold"] != PARTS)
        out = entry["fold"] == PARTS
        assert entry["mse"] == pytest.approx(np.mean((predicted(gaps, own, out) - Y[out]) ** 2))
        sums += entry["mse"] * entry["n_rows"], np.sum((Y[out] - Y[own].mean()) ** 2)
    imputed = metrics["baselines"]["imputed"]
    losses = imputed_losses(gaps, TRAIN, ~TRAIN)
    assert imputed["test"]["relative_loss"] in [pytest.approx(loss) for loss in losses]
    point = metrics["curves"][0]["points"][0]
    assert point["validation"]["relative_loss"] == pytest.approx(sums[0] / sums[1])
    assert any("as missing at random: x0" in note for note in manifest["notes"])
    drawn = prepare(pairs_job(folder, tmp_path, {"attributes_per_example": None}))
    assert drawn.job.options.attributes_per_example == 5


def literal_normal(observed, own, target):
    """What the normal model of some rows makes of all."""
    predicted = predict_normal(observed[own], target[own], within(observed[own], observed))
    return np.clip(predicted, target[own].min(), target[own].max())


CURVED = np.where(X[:, 0] > 1.0, 1.0, -1.0) * np.where(X[:, 1] > 0.5, 1.0, -1.0) + 0.1 * Y


def literal_trees(observed, own, target=CURVED):
    """What LightGBM on the values observed of some rows predicts; least hashes come first."""
    order = np.flatnonzero(own)[np.argsort(mix(with_seed(KEYS[own], 0)))]
    options = {**DEFAULTS, **FIXED, "objective": "regression", "seed": 0}
    mean = target[own].mean()
    deviation = target[own].std()
    label = (target[order] - mean) / deviation
    data = lightgbm.Dataset(observed[order], label=label, params=options)
    data.construct()
    out = INNER[order] == 0
    train, other = (data.subset(np.flatnonzero(rows)) for rows in (~out, out))
    stop = lightgbm.early_stopping(20, verbose=False)
    best = lightgbm.train({**options, "metric": ""}, train, 300, [other], callbacks=[stop])
    model = lightgbm.train({**options, "num_iterations": best.best_iteration}, data)
    return lambda rows: mean + deviation * model.predict(rows)


@pytest.mark.parametrize("missing", [False, True])
def test_lightgbm_on_the_cells_where_the_target_is_not_linear(gaps, tmp_path, missing):
    rows = gaps if missing else X
    folder = write_rows(tmp_path / "data", few_columns(np.insert(rows, 7, 0.0, axis=1), CURVED))
    own = {"solver": "auto", **({"attributes_per_example": None} if missing else {})}
    section = {"missing": "pairs"} if missing else {}
    job = partial(pairs_job, folder, tmp_path / "runs", data=section)
    run = run_job(job(own)).folder
    observed = gaps if missing else literal_draws("uniform")
    predict_file(run, str(folder), tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")["predicted_y"].to_numpy()
    np.testing.assert_allclose(found, literal_trees(observed, TRAIN)(rows))
    alone = {name: rows[4:5, j] for j, name in enumerate(NAMES)}
    assert package.load(run).predict(alone)["predicted_y"][0].as_py() == found[4]
    metrics, (_, finished) = content(run, "metrics.json"), read_run(run).open()
    assert metrics["test"]["mse"] == pytest.approx(np.mean((found - CURVED)[~TRAIN] ** 2))
    for entry in metrics["folds"]:
        left = TRAIN & (entry["fold"] != PARTS)
        out = entry["fold"] == PARTS
        predicted = literal_trees(observed, left)(rows[out])
        assert entry["mse"] == pytest.approx(np.mean((predicted - CURVED[out]) ** 2))
    assert metrics["baselines"]["normal"]["validation"]["ahead"] < -0.1
    notes = finished.manifest["notes"]
    headline = method.METHOD.headline(finished)
    assert any(note.startswith("Chosen by cross-validation: LightGBM") for note in notes)
    full = int(np.sum(TRAIN)) * 5 // len(NAMES)
    text = f"Buy {full}\xa0whole rows instead: for the same cost LightGBM explains "
    assert (text in headline) == (not missing)
    gains = {name: own.amount for name, own in method.METHOD.chosen(finished).items()}
    assert set(sorted(gains, key=gains.get)[-2:]) == {"x0", "x1"}


def test_a_mean_of_a_normal_model_and_lightgbm_where_each_knows_a_part(gaps, tmp_path):
    target = 2.0 * Y / Y.std() + 3.0 * CURVED / CURVED.std()
    folder = write_rows(tmp_path / "data", few_columns(np.insert(gaps, 7, 0.0, axis=1), target))
    own = {"solver": "auto", "attributes_per_example": None}
    run = run_job(pairs_job(folder, tmp_path / "runs", own, data={"missing": "pairs"})).folder
    model = content(run, "model.json")
    metrics = content(run, "metrics.json")
    share = model["share"]

    def both(own):
        return literal_normal(gaps, own, target), literal_trees(gaps, own, target)(gaps)

    predict_file(run, str(folder), tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")["predicted_y"].to_numpy()
    normal, trees = both(TRAIN)
    np.testing.assert_allclose(found, (1 - share) * normal + share * trees, rtol=1e-6)
    outs = [entry["fold"] == PARTS for entry in metrics["folds"]]
    of_folds = [both(TRAIN & ~out) for out in outs]
    losses = {
        tried: [
            np.mean(((1 - tried) * normal + tried * trees - target)[out] ** 2)
            for (normal, trees), out in zip(of_folds, outs, strict=True)
        ]
        for tried in SHARES
    }
    assert 0 < share < 1
    assert np.mean(losses[share]) == min(map(np.mean, losses.values()))
    # Of each fold is reported what the others choose.
    for fold, entry in enumerate(metrics["folds"]):
        others = [f for f in range(len(outs)) if f != fold]
        chosen = min(SHARES, key=lambda tried: np.mean([losses[tried][f] for f in others]))
        assert entry["mse"] == pytest.approx(losses[chosen][fold], rel=1e-6)
    _, finished = read_run(run).open()
    assert finished.selection["algorithm"] == "mixed"
    assert any("LightGBM makes" in n for n in finished.manifest["notes"])
    assert {"normal", "lightgbm"} < {*metrics["baselines"]}


def test_pairs_of_more_attributes_than_one_process_holds_are_refused(data, tmp_path, monkeypatch):
    monkeypatch.setattr(form, "LARGEST_PAIRS", len(NAMES) - 1)
    for draws in ("uniform", "two_phase"):
        with pytest.raises(SpecError, match=r"at most 10 attributes.* have 11.* `solver: online`"):
            prepare(pairs_job(data, tmp_path, {"draws": draws, "solver": "pairs"}))
    assert prepare(pairs_job(data, tmp_path, {"solver": "online"})).job.options.solver == "online"


def test_auto_takes_the_online_learner_where_its_options_are_set(data, tmp_path, monkeypatch):
    for own, solver in (
        ({}, "pairs"),
        ({"inner_product": "base"}, "online"),
        ({"bound": 9.0}, "online"),
    ):
        own = {"solver": "auto", **own}
        assert prepare(pairs_job(data, tmp_path, own)).job.options.solver == solver
    monkeypatch.setattr(options, "MOST_PAIRS", len(NAMES) - 1)  # and of more attributes than that
    job = prepare(pairs_job(data, tmp_path, {"solver": "auto"})).job
    assert job.describe()["method"].startswith("ddaerr: ")


def test_noise_is_predicted_by_its_mean_or_claims_nothing(tmp_path):
    rng = np.random.default_rng(2)
    claims = []
    algorithms = set()
    for number in range(4):
        target = rng.normal(size=len(Y))
        folder = write_rows(tmp_path / str(number), few_columns(ALL, target))
        run = run_job(pairs_job(folder, tmp_path / "runs", {"solver": "auto"})).folder
        metrics = content(run, "metrics.json")
        claims += [1.0 - entry["relative_loss"] for entry in metrics["folds"]]
        algorithm = content(run, "selection.json")["algorithm"]
        algorithms.add(algorithm)
        headline = method.METHOD.headline(read_run(run).open()[1])
        if algorithm == "mean":
            assert headline.startswith("Use no model: ")
            predict_file(run, str(folder), tmp_path / "out.parquet")
            predicted = pq.read_table(tmp_path / "out.parquet")["predicted_y"].to_numpy()
            assert np.ptp(predicted) == 0.0
    assert "mean" in algorithms
    assert np.mean(claims) < 0.005
