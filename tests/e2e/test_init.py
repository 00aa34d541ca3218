"""`init` writes a spec that asks the right question of files of many kinds, and that runs."""

import json

import numpy as np
import pandas as pd
import pytest
from ruamel.yaml import YAML
from sklearn import datasets

N = 150


def wine(rng):
    bunch = datasets.load_wine(as_frame=True)
    return bunch.frame.assign(target=[f"cultivar {k}" for k in bunch.target])


def cancer(rng):
    return datasets.load_breast_cancer(as_frame=True).frame.iloc[:, -12:]


def diabetes(rng):
    return datasets.load_diabetes(as_frame=True).frame


def with_gaps(rng):
    frame = cancer(rng)
    return frame.mask(rng.uniform(size=frame.shape) < [0.05] * 11 + [0])


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


def two_thousand(rng):
    values = rng.normal(size=(N, 2000))
    frame = pd.DataFrame(values, columns=[f"x{k}" for k in range(2000)])
    return frame.assign(y=values[:, :5].sum(axis=1))


def few_levels(rng):
    frame = diabetes(rng)
    return frame.assign(target=pd.qcut(frame["target"], 4, labels=False))


@pytest.mark.parametrize(
    ("make", "method", "data", "options"),
    [
        (wine, "sequence", {"target": ["target"]}, {"family": "softmax"}),
        (wine, "landmarks", {}, {"task": "classification"}),
        (cancer, "sequence", {"target": ["target"]}, {"family": "logistic"}),
        (cancer, "attribute_efficient", {}, {"positive": 1}),
        (diabetes, "sequence", {"target": ["target"]}, {"family": "auto"}),
        (diabetes, "landmarks", {}, {"task": "regression"}),
        (with_gaps, "sequence", {"missing": "mean"}, {"expand": {"splines": 0, "missing": True}}),
        (with_words, "sequence", {"numbers": ["bmi"], "missing": "mean"}, {}),
        (with_ids, "landmarks", {"exclude": ["row", "remark", "unit"]}, {}),
        (with_dates, "sequence", {"exclude": ["seen"]}, {}),
        (booleans, "sequence", {}, {"family": "logistic"}),
        (prefixes, "sequence", {}, {"prefix_separator": "_", "family": "logistic"}),
        (few_levels, "landmarks", {}, {"task": "classification"}),
        (long_ratings, "multiselect", {"long": {"object": "item", "label": "label"}}, {}),
        (two_thousand, "landmarks", {"target": ["y"]}, {"task": "regression"}),
    ],
)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_spec_runs_and_asks_what_was_meant(
    make, method, data, options, ending, tmp_path, monkeypatch, distfms
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DISTFMS_CACHE", str(tmp_path / "cache"))
    frame, path = make(np.random.default_rng(0)), tmp_path / f"my table.{ending}"
    if ending == "parquet":
        if make is two_thousand:
            pytest.skip("one kind of file is enough")
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=make is diabetes, sep=";" if make is cancer else ",")
    assert distfms("init", method, path).code == 0
    spec = YAML(typ="safe").load((tmp_path / "job.yaml").read_text())
    assert spec["name"] == f"{method}-my-table"
    assert distfms("run", "job.yaml", "--out", "run", "-q").code == 0, frame
    resolved = YAML(typ="safe").load((tmp_path / "run" / "spec.yaml").read_text())
    for section, wanted in ((resolved["data"], data), (resolved[method], options)):
        for key, value in wanted.items():
            found = section[key]
            if isinstance(value, dict):
                found = {name: found[name] for name in value}
            assert found == value, key
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())


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
    refused = distfms("init", "sequence", "data.csv")
    assert refused.code == 2
    assert reason in refused.err
    assert not (tmp_path / "job.yaml").exists()


def test_without_a_method_the_questions_are_shown(tmp_path, monkeypatch, distfms):
    monkeypatch.chdir(tmp_path)
    long_ratings(np.random.default_rng(0)).to_csv("ratings.csv", index=False)
    told = distfms("init", "ratings.csv").out
    assert "How many judgments of each attribute should I buy? Here each row is one judg" in told
    assert "distfms init METHOD ratings.csv" in told
    prefixes(np.random.default_rng(0)).to_csv("rows.csv", index=False)
    told = distfms("init", "rows.csv").out
    assert "Here names of columns share beginnings before '_'." in told
    assert "Here target holds classes." in told
    assert distfms("init", "no-such-file.csv").code == 2
