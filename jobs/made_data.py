"""Write made tables for jobs of this folder, as there are no public ones: python made_data.py.

The values are drawn, so what a job says of them shows how to read an answer, not what is true of
any model, machine or payment. The files are written to the folder ``made``.
"""

from pathlib import Path

import numpy as np
import pandas as pd

FOLDER = Path("made")


def judges(rng: np.random.Generator) -> pd.DataFrame:
    """400 summaries, each scored three times from 1 to 5 by a language model on six rubrics.

    The rubrics share a halo, some are noisier than others, and the human rating follows three.
    """
    noise = {
        "faithful": 0.9,
        "complete": 0.7,
        "clear": 0.5,
        "concise": 0.5,
        "tone": 1.2,
        "useful": 1.4,
    }
    weight = {"faithful": 0.6, "complete": 0.4, "useful": 0.5}
    halo = rng.normal(size=400)
    truth = {rubric: 0.5 * halo + 0.8 * rng.normal(size=400) for rubric in noise}
    human = sum(weight[rubric] * truth[rubric] for rubric in weight) + 0.4 * rng.normal(size=400)
    tables = []
    for rubric, deviation in noise.items():
        for call in range(3):
            scores = 3 + truth[rubric] + deviation * rng.normal(size=400)
            columns = {"summary": np.arange(400), "rubric": rubric, "call": call}
            tables.append(pd.DataFrame(columns).assign(score=scores.round().clip(1, 5)))
    rows = pd.concat(tables)
    return rows.assign(human=(3 + human).round(1).clip(1, 5)[rows["summary"]])


def prompts(rng: np.random.Generator) -> pd.DataFrame:
    """400 models that solve, or not, 60 prompts of three topics, and their scores on all prompts.

    Abilities, topics and difficulties are drawn as item response theory has them.
    """
    n, d = 400, 60
    ability = rng.normal(size=(n, 3)) * [1.4, 0.8, 0.6]
    loading = 0.3 * np.abs(rng.normal(size=(3, d)))
    topic = rng.integers(3, size=d)
    loading[topic, np.arange(d)] += np.abs(rng.normal(size=d))
    odds = np.exp(ability @ loading + 1.5 * rng.normal(size=d))
    is_solved = (rng.random((n, d)) < odds / (1 + odds)).astype(int)
    frame = pd.DataFrame(is_solved, columns=[f"prompt{number:02}" for number in range(d)])
    return frame.assign(score=100 * is_solved.mean(axis=1))


def payments(rng: np.random.Generator) -> pd.DataFrame:
    """3,000 payments, of which one in ten is fraud; features come from views of a feature store.

    Most payments are told apart by the request and the account; the graph tells the others.
    """
    n = 3_000
    is_fraud = rng.random(n) < 0.1
    is_careful = is_fraud & (rng.random(n) < 0.3)
    crude = 3.0 * (is_fraud & ~is_careful)
    return pd.DataFrame(
        {
            "request_amount": crude + rng.normal(size=n),
            "request_hour": 0.5 * crude + rng.normal(size=n),
            "account_age": rng.normal(size=n) - 0.8 * crude,
            "account_country": rng.choice(["here", "near", "far"], n),
            "device_changes": crude + rng.normal(size=n),
            "history_mean_30d": rng.normal(size=n) + 0.5 * is_fraud,
            "history_count_30d": rng.normal(size=n) + 0.5 * is_fraud,
            "graph_distance": 3.0 * is_fraud + rng.normal(size=n),
            "text_1": rng.normal(size=n) + 1.0 * is_careful,
            "text_2": rng.normal(size=n),
            "fraud": np.where(is_fraud, "yes", "no"),
        }
    )


def machine(rng: np.random.Generator) -> pd.DataFrame:
    """300 hours of a machine with eight sensors, which overlap, and the wear measured after."""
    n = 300
    load, heat, wear = rng.normal(size=(3, n))
    columns = {
        "heat_inside": heat + 0.5 * load + 0.2 * rng.normal(size=n),
        "heat_outside": heat + 0.6 * rng.normal(size=n),
        "current": load + 0.3 * rng.normal(size=n),
    }
    for place, noise in (("bearing", 0.5), ("gear", 0.8), ("housing", 1.6)):
        columns[f"{place}_rms"] = wear + 0.6 * load + noise * rng.normal(size=n)
        columns[f"{place}_kurtosis"] = wear**2 + noise * rng.normal(size=n)
    columns["acoustic"] = wear + 0.8 * rng.normal(size=n)
    columns["oil_particles"] = wear + 0.5 * rng.normal(size=n)
    target = 40 + 6 * wear + 2 * heat + 3 * rng.normal(size=n)
    return pd.DataFrame(columns).assign(wear_um=target)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for make in (judges, prompts, payments, machine):
        path = FOLDER / f"{make.__name__}.parquet"
        make(np.random.default_rng(0)).to_parquet(path, index=False)
        print(path)
