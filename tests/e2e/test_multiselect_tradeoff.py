"""Losses at a constant number of judgments: objects that are drawn, judged k times."""

import numpy as np
import pytest

from distfms.data.rows.folds import assign_parts, hash_keys, with_seed
from distfms.errors import SpecError
from distfms.runs.prepare import prepare
from tests.e2e.multiselect_jobs import job, notes, objects, run, write

N = 300
WANTED = {"budget": 4, "k": [2, 3, 9], "products": [200, 500], "draws": 2}


def by_hand(tmp_path, columns, k, product, seed):
    """Run a job on the training objects of a draw, with their first k judgments."""
    ids = np.arange(N)
    test = assign_parts(ids, n_folds=0, test=0.3, seed=0) == 1
    m = (~test).sum()
    share = (with_seed(with_seed(hash_keys(ids), seed), 0) >> np.uint64(11)) * 2.0**-53
    drawn = ~test & (share < product / (k * m))
    places = []
    for name, keep, most in (("train", drawn, k), ("test", test, None)):
        own = {
            key: [
                v[:most] if key in "abc" else v
                for v, kept in zip(values, keep, strict=True)
                if kept
            ]
            for key, values in columns.items()
        }
        places.append(str(write(tmp_path / f"{k}-{product}-{seed}-{name}", own)))
    data = {"path": places[0], "test_path": places[1], "test": 0.0, "folds": 0}
    options = {"budget": 4, "ridge": 0.01, "baselines": ["scoring"]}
    _, _, metrics, _ = run(places[0], tmp_path / "runs", data=data, multiselect=options)
    losses = {c["name"]: c["points"][-1]["test"]["projected_loss"] for c in metrics["curves"]}
    return losses, drawn.sum()


def test_losses_are_those_of_jobs_on_the_objects_drawn(tmp_path):
    columns = objects(N, k=4)
    path = write(tmp_path / "rows", columns, row_group_size=70)
    options = {"budget": 6, "ridge": 0.01, "baselines": [], "k_against_m": WANTED}
    folder, _, metrics, manifest = run(
        path, tmp_path / "runs", data={"test": 0.3}, multiselect=options
    )
    told = metrics["k_against_m"]
    assert told["budget"] == 4
    m = metrics["train"]["n_objects"]
    assert [(p["product"], p["k"], p["name"]) for p in told["points"]] == [
        (product, k, name)
        for product in (200, 500)
        for k in (2, 3)
        for name in ("full", "scoring")
        if product <= k * m
    ]
    for point in told["points"]:
        own = tmp_path, columns, point["k"], point["product"]
        jobs = [by_hand(*own, seed) for seed in (0, 1)]
        losses = [of_rules[point["name"]] for of_rules, _ in jobs]
        assert point["projected_loss"] == pytest.approx(np.mean(losses), rel=1e-9)
        assert point["deviation"] == pytest.approx(np.std(losses, ddof=1), rel=1e-6)
        assert point["n_objects"] == np.mean([n for _, n in jobs])
    assert "Some points of `multiselect.k_against_m` are left out" in notes(manifest)
    page = (folder / "report.html").read_text()
    assert "Full, k·m = 200" in page


@pytest.mark.parametrize(
    ("data", "own", "told"),
    [
        ({"test": 0.0}, {"k": [2]}, "on held-out objects, and there are none"),
        ({}, {"k": [1]}, "k_against_m"),
        ({}, {"k": [2], "budget": 1e9}, r"`multiselect\.k_against_m\.budget` is 1e\+09"),
        ({}, {"k": []}, "k_against_m"),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path, data, own, told):
    path = write(tmp_path / "rows", objects())
    with pytest.raises(SpecError, match=told):
        prepare(job(path, tmp_path / "runs", data=data, multiselect={"k_against_m": own}))
