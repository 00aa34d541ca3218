"""NDCG of learning to rank with similarities, beside LightGBM's lambdarank where it is installed.

Needs the folder of public data as an argument or in DISTFMS_REALDATA:
`ranking/{lightgbm_rank,ohsumed_fold1}_{train,test}.parquet`. The ridge is chosen for each
similarity by NDCG@5 in cross-validation on the training queries; the linear model is that of the
similarity `linear`. LightGBM does 100 rounds with its defaults.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from distfms.methods.frame.ranking import RankingScores
from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec

SIMILARITIES = ("sigmoid", "manhattan", "gaussian", "linear")
CUTOFFS = (1, 3, 5, 10)


def landmarks(folder: Path, name: str, similarity: str, out: str, n_landmarks: int):
    """NDCG on the held-out queries, and of the chosen ridge in cross-validation."""
    paths = {
        key: str(folder / "ranking" / f"{name}_{part}.parquet")
        for key, part in (("path", "train"), ("test_path", "test"))
    }
    spec = {
        "name": f"{name}-{similarity}",
        "method": "landmarks",
        "data": {**paths, "target": "label", "query": "qid", "folds": 5},
        "landmarks": {"task": "ranking", "similarity": similarity, "landmarks": n_landmarks},
        "tune": {"grid": {"ridge": [10.0, 1.0, 0.1, 0.01, 0.001]}, "measure": "ndcg@5"},
        "output": out,
    }
    run = run_job(build_spec(spec)).folder
    metrics = json.loads((run / "metrics.json").read_text())
    chosen = json.loads((run / "tuning.json").read_text())["chosen"]
    return [metrics["test"][f"ndcg@{k}"] for k in CUTOFFS], chosen


def boosted(folder: Path, name: str):
    import lightgbm

    parts = []
    for part in ("train", "test"):
        table = pq.read_table(folder / "ranking" / f"{name}_{part}.parquet").to_pandas()
        table = table.sort_values("qid", kind="stable")
        X = table.drop(columns=["label", "qid"]).to_numpy(float)
        parts.append((X, table["label"].to_numpy(float), table["qid"].to_numpy()))
    (X, y, query), (other, truth, its_query) = parts
    data = lightgbm.Dataset(X, y, group=np.unique(query, return_counts=True)[1])
    options = {"objective": "lambdarank", "verbose": -1, "seed": 0, "num_threads": 1}
    scores = lightgbm.train(options, data, 100).predict(other)
    keys = its_query.astype(np.uint64)
    return RankingScores.from_rows(keys, truth, scores[:, np.newaxis], CUTOFFS).mean[:, 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", default=os.environ.get("DISTFMS_REALDATA"))
    parser.add_argument("--landmarks", type=int, default=500)
    args = parser.parse_args()
    if args.folder is None:
        parser.error("name the folder of public data, or set DISTFMS_REALDATA")
    folder = Path(args.folder)
    print(f"NDCG at {CUTOFFS} on held-out queries, {args.landmarks} landmarks")
    for name in ("lightgbm_rank", "ohsumed_fold1"):
        try:
            print(name, "lambdarank", np.round(boosted(folder, name), 3), flush=True)
        except ImportError:
            print("LightGBM is not installed")
        for similarity in SIMILARITIES:
            with tempfile.TemporaryDirectory() as out:
                scores, chosen = landmarks(folder, name, similarity, out, args.landmarks)
            print(name, similarity, np.round(scores, 3), chosen, flush=True)


if __name__ == "__main__":
    main()
