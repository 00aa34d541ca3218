"""`init` writes a spec that asks the right question of files of many kinds, and that runs."""

import json

import numpy as np
import pandas as pd
import pytest
from ruamel.yaml import YAML
from sklearn import datasets

from distfms.runs.job_spec import load_spec
from distfms.runs.prepare import prepare

N = 150


def wine(rng):
    frame = datasets.load_wine(as_frame=True).frame.iloc[::4]
    return frame.assign(target="cultivar " + frame["target"].astype(str))


def cancer(rng):
    return datasets.load_breast_cancer(as_frame=True).frame.iloc[:, -12:]


def diabetes(rng):
    return datasets.load_diabetes(as_frame=True).frame


def with_words(rng):
    """Numbers with words for gaps and thousands, and a column of codes."""
    frame = diabetes(rng)
    frame["bmi"] = [
        f"{1e4 * (v + 1):,.1f}" if k % 9 else "unknown" for k, v in enumerate(frame["bmi"])
    ]
    return frame.assign(zip=[f"{k % 7:05}" for k in range(len(frame))])


def with_ids(rng):
    frame = diabetes(rng).assign(row=range(442), code=rng.permutation(442) + 10_000)
    return frame.assign(remark=[f"patient {k} was seen" for k in range(442)], unit="mg")


def with_dates(rng):
    days = pd.date_range("2024-01-01", periods=442).strftime("%d/%m/%Y")
    return diabetes(rng).assign(seen=rng.permutation(days))[["seen", *diabetes(rng).columns]]


def booleans(rng):
    frame = cancer(rng)
    return frame.assign(target=frame["target"] == 1, raised=frame["worst area"] > 700)


def prefixes(rng):
    frame = cancer(rng)
    return frame.set_axis([f"{'ab'[k % 2]}_{k}" for k in range(11)] + ["target"], axis=1)


def long_ratings(rng):
    truth = rng.normal(size=60)
    rows = [
        (f"o{o}", name, f"r{r}", round(truth[o] + rng.normal(), 2))
        for o in range(60)
        for name in ("warm", "loud", "label")
        for r in range(3)
    ]
    return pd.DataFrame(rows, columns=["item", "question", "rater", "score"])


def few_levels(rng):
    frame = diabetes(rng).iloc[::6]
    return frame.assign(target=pd.qcut(frame["target"], 4, labels=False))


#: Tables whose jobs are run, one for each method.
RUN = (wine, cancer, long_ratings, few_levels)
#: Tables that are written as Parquet; others are CSV.
PARQUET = (wine, booleans, prefixes)


@pytest.mark.parametrize(
    ("make", "method", "data", "options"),
    [
        (wine, "sequence", {"target": ["target"]}, {"family": "softmax"}),
        (cancer, "attribute_efficient", {}, {"positive": 1}),
        (
            with_words,
            "sequence",
            {"numbers": ["bmi"], "missing": "mean"},
            {"family": "gaussian", "expand": {"splines": 0, "missing": True}},
        ),
        (with_ids, "landmarks", {"exclude": ["row", "remark", "unit"]}, {"task": "regression"}),
        (with_dates, "sequence", {"exclude": ["seen"]}, {}),
        (booleans, "sequence", {}, {"family": "logistic"}),
        (prefixes, "sequence", {}, {"groups": "_", "family": "logistic"}),
        (few_levels, "landmarks", {}, {"task": "classification"}),
        (long_ratings, "multiselect", {"long": {"object": "item", "label": "label"}}, {}),
    ],
)
def test_the_spec_runs_and_asks_what_was_meant(
    make, method, data, options, tmp_path, monkeypatch, distfms
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DISTFMS_CACHE", str(tmp_path / "cache"))
    frame = make(np.random.default_rng(0))
    path = tmp_path / f"my table.{'parquet' if make in PARQUET else 'csv'}"
    if make in PARQUET:
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=make is with_words, sep=";" if make is cancer else ",")
    assert distfms("init", path, "--method", method).code == 0
    spec = YAML(typ="safe").load((tmp_path / "job.yaml").read_text())
    assert spec["name"] == f"{method}-my-table"
    prepared = prepare(load_spec("job.yaml"))
    results = {"data": prepared.spec.data.model_dump(), method: prepared.job.options.model_dump()}
    for section, wanted in (("data", data), (method, options)):
        for key, value in wanted.items():
            resolved = results[section][key]
            if isinstance(value, dict):
                resolved = {name: resolved[name] for name in value}
            assert resolved == (tuple(value) if isinstance(value, list) else value), key
    if make in RUN:
        assert distfms("run", "job.yaml", "--out", "run", "-q").code == 0
        assert json.loads((tmp_path / "run" / "metrics.json").read_text())


def labs(rng):
    """A panel with gaps; what is predicted comes last."""
    frame = pd.DataFrame(rng.normal(size=(N, 4)).round(2), columns=["bili", "chol", "ast", "age"])
    return frame.mask(rng.uniform(size=frame.shape) < 0.1).assign(died=rng.choice(["no", "yes"], N))


def wide(rng):
    truth = rng.normal(size=(N, 2))
    columns = {"wine": [f"w{k}" for k in range(N)]}
    for attribute, name in enumerate(("fruity", "dry")):
        for k in (1, 2, 3):
            columns[f"{name}_{k}"] = (truth[:, attribute] + rng.normal(size=N)).round(1)
    return pd.DataFrame(columns).assign(price=truth.sum(1))


def long_with_prices(rng):
    frame = long_ratings(rng)
    frame = frame[frame["question"] != "label"]
    prices = dict(zip(frame["item"].unique(), rng.normal(size=60), strict=True))
    # One judge is asked three times.
    return frame.assign(price=frame["item"].map(prices), rater="model")


def searches(rng):
    query = np.repeat(np.arange(N // 5), 5)
    frame = pd.DataFrame({"session_id": query, "stars": rng.normal(size=N)})
    return frame.assign(near=rng.normal(size=N), clicked=rng.choice(2, N))


def questions(rng):
    answers = pd.DataFrame(rng.integers(1, 6, size=(N, 6)), columns=[f"q{k}" for k in range(6)])
    return answers.assign(wellbeing=answers.sum(axis=1) + rng.normal(size=N))


def holes(rng):
    values = rng.normal(size=(N, 5))
    frame = pd.DataFrame(values, columns=list("abcde"))
    return frame.mask(rng.uniform(size=frame.shape) < 0.5).assign(outcome=values.sum(axis=1))


@pytest.mark.parametrize(
    ("make", "method", "data", "said"),
    [
        (labs, "sequence", {"target": "died"}, "Guessed what to predict: died"),
        (
            wide,
            "multiselect",
            {"target": "price", "exclude": ["wine"]},
            "as fruity in fruity_1, fruity_2",
        ),
        (long_with_prices, "multiselect", {}, "each row is one judgment"),
        (searches, "landmarks", {"query": "session_id", "target": "clicked"}, "are ranked by"),
        (questions, "sequence", {"target": "wellbeing"}, "6 columns hold answers from 1 to 5"),
        (holes, "attribute_efficient", {"target": "outcome", "missing": "pairs"}, "are missing"),
    ],
)
def test_the_question_is_found(make, method, data, said, tmp_path, monkeypatch, distfms):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DISTFMS_CACHE", str(tmp_path / "cache"))
    make(np.random.default_rng(0)).to_csv("table.csv", index=False)
    out = distfms("init", "table.csv").out
    assert said in out
    spec = YAML(typ="safe").load((tmp_path / "job.yaml").read_text())
    assert spec["method"] == method
    assert {key: spec["data"][key] for key in data} == data
    assert distfms("check", "job.yaml").code == 0
    if make is long_with_prices:
        assert spec["data"]["long"]["label"] == "price"
        assert spec["data"]["long"]["label_from"] == "column"
        assert spec["data"]["long"]["duplicates"] == "keep"


def test_prices_are_written_and_wrong_names_refused(tmp_path, monkeypatch, distfms):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DISTFMS_CACHE", str(tmp_path / "cache"))
    labs(np.random.default_rng(0)).to_csv("labs.csv", index=False)
    (tmp_path / "prices.csv").write_text("group,cost\nbili,12.5\nchol,3\n")
    assert distfms("init", "labs.csv", "--costs", "prices.csv", "--target", "age").code == 0
    spec = YAML(typ="safe").load((tmp_path / "job.yaml").read_text())
    assert spec["data"]["target"] == "age"
    assert spec["sequence"]["costs"] == {"bili": 12.5, "chol": 3, "ast": 1, "died": 1}
    (tmp_path / "prices.csv").write_text("group,cost\nbilli,12.5\n")
    refused = distfms("init", "labs.csv", "--costs", "prices.csv", "--out", "other.yaml")
    assert refused.code == 2
    assert "prices of billi" in refused.err
    assert distfms("init", "labs.csv", "--target", "dead", "--out", "other.yaml").code == 2


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("a,b,y\n" + "1,x,2\n" * 30, "a, b, y: has the same value in every row"),
        ("y\n" + "".join(f"{k * k % 7}\n" for k in range(30)), "a target and a feature that vary"),
    ],
)
def test_nothing_to_learn(content, reason, tmp_path, monkeypatch, distfms):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_text(content)
    refused = distfms("init", "data.csv", "--method", "sequence")
    assert refused.code == 2
    assert reason in refused.err
    assert not (tmp_path / "job.yaml").exists()


def test_without_data_the_questions_are_shown(tmp_path, monkeypatch, distfms):
    monkeypatch.chdir(tmp_path)
    assert "How many judgments of each attribute should I buy?" in distfms("init").out
    refused = distfms("init", "no-such-file.csv")
    assert refused.code == 2
    assert "no file or folder no-such-file.csv" in refused.err
