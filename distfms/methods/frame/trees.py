"""Boosted trees of LightGBM as its own text, with the same bits on every machine."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

DEFAULTS = {"num_leaves": 15}
"""Parameters of LightGBM that differ from its own defaults."""

#: Parameters on which the bits depend.
FIXED = {"deterministic": True, "force_row_wise": True, "num_threads": 1, "verbosity": -1}

#: Rows, and numbers in them, that LightGBM fits 300 trees to in ten seconds or less: what trees
#: that models are compared with learn from.
MOST_ROWS, MOST_VALUES = 50_000, 5_000_000
#: Most trees where their number is chosen, and how many in vain end the search for it.
_MOST_TREES, _PATIENCE = 300, 20
#: Trees that tell orders apart.
QUICK = 100
#: Names that LightGBM has for the number of trees.
_N_TREES = {
    "num_iterations", "num_iteration", "n_iter", "num_tree", "num_trees", "num_round",
    "num_rounds", "nrounds", "num_boost_round", "n_estimators", "max_iter",
}  # fmt: skip


def lightgbm() -> Any:
    """Return the package, which takes a second to load."""
    import lightgbm as package

    return package


@lru_cache(maxsize=512)
def booster(text: str) -> Any:
    """Return a model by its text."""
    return lightgbm().Booster(model_str=text)


def fitted(
    inputs: np.ndarray,
    response: np.ndarray,
    parameters: Mapping[str, Any],
    fold: np.ndarray,
    n_trees: int | None = None,
    **data: Any,
) -> str:
    """Return the text of a model of rows (n, S), by default of as many trees as a fold likes best.

    `fold` (n,) says which rows are left out together; `data` is what else LightGBM is told of them.
    """
    rows, parameters = _data(inputs, response, parameters, data)
    if not parameters.keys() & _N_TREES:
        n_trees = n_trees or int(_stopped(rows, parameters, fold == fold.min()).best_iteration)
        parameters["num_iterations"] = n_trees
    text: str = lightgbm().train(parameters, rows).model_to_string()
    return text


def _data(
    inputs: np.ndarray, response: np.ndarray, parameters: Mapping[str, Any], data: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    parameters = {**DEFAULTS, **parameters}
    return lightgbm().Dataset(inputs, label=response, params=parameters, **data), parameters


def _stopped(data: Any, parameters: Mapping[str, Any], held_out: np.ndarray) -> Any:
    """Return a model of some rows that has the number of trees of the least loss on others."""
    package = lightgbm()
    if held_out.all():
        held_out = np.arange(len(held_out)) % 5 == 0
    train, other = (data.subset(np.flatnonzero(rows)) for rows in (~held_out, held_out))
    return package.train(
        {**parameters, "metric": ""},
        train,
        _MOST_TREES,
        valid_sets=[other],
        callbacks=[package.early_stopping(_PATIENCE, verbose=False)],
    )
