"""Boosted trees of LightGBM, kept as text, with the same bits on every machine.

LightGBM holds labels as float32, in which y + 1e8 of deviation 2 is a constant. So a regression is
fitted to z = (y - mean) / deviation, and every score is put back: mean + deviation · f(x). The text
of a model ends with a line of these two numbers, which LightGBM itself does not look at.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

DEFAULTS = {"num_leaves": 15}
"""Parameters of LightGBM that differ from its own defaults."""

#: Parameters on which the bits depend.
FIXED = {"deterministic": True, "force_row_wise": True, "num_threads": 1, "verbosity": -1}

#: Rows, and numbers in them, that LightGBM fits 300 trees to in ten seconds or less: what trees
#: that models are compared with learn from.
MOST_ROWS = 50_000
MOST_VALUES = 5_000_000
#: Most trees where their number is chosen, and how many in vain end the search for it.
_MOST_TREES = 300
_PATIENCE = 20
#: Trees that tell orders apart.
QUICK = 100
#: Names that LightGBM has for the number of trees.
_N_TREES = {
    "num_iterations", "num_iteration", "n_iter", "num_tree", "num_trees", "num_round",
    "num_rounds", "nrounds", "num_boost_round", "n_estimators", "max_iter",
}  # fmt: skip
#: What the last line of a model's text begins with.
_UNITS = "response_mean_and_deviation="


class Units(NamedTuple):
    """What LightGBM's scores are put back by."""

    mean: float = 0.0
    deviation: float = 1.0

    @classmethod
    def of(cls, response: np.ndarray, weight: np.ndarray | None) -> Units:
        """Return weighted mean and deviation of a response (n,); of a constant the deviation 1."""
        mean = float(np.average(response, weights=weight))
        differences = response - mean
        largest = float(np.abs(differences).max())
        if largest == 0.0:
            return cls(mean)
        squares = (differences / largest) ** 2  # which do not overflow
        return cls(mean, largest * float(np.sqrt(np.average(squares, weights=weight))))

    def taken_off(self, response: np.ndarray) -> np.ndarray:
        """Return a response in these units."""
        return (response - self.mean) / self.deviation


def lightgbm() -> Any:
    """Return the package, which takes a second to load."""
    import lightgbm as package

    return package


def fitted(
    inputs: np.ndarray,
    response: np.ndarray,
    parameters: Mapping[str, Any],
    fold: np.ndarray,
    *,
    weight: np.ndarray | None = None,
    **data: Any,
) -> str:
    """Return the text of a model of rows, of as many trees as are best for one fold of them.

    Parameters
    ----------
    inputs : ndarray of shape (n, S)
        NaN where missing.
    response : ndarray of shape (n,)
    parameters : mapping
        Of LightGBM. One that sets the number of trees is kept to.
    fold : ndarray of shape (n,)
        Which rows are held out together while the number of trees is chosen.
    weight : ndarray of shape (n,), optional
    **data
        What else LightGBM's Dataset takes.
    """
    units, rows, parameters = _prepared(inputs, response, parameters, weight, data)
    if not parameters.keys() & _N_TREES:
        held_out = fold == fold.min()
        parameters["num_iterations"] = QUICK  # of rows that all belong together
        if not held_out.all():
            stopped = _stopped(rows, parameters, held_out)
            parameters["num_iterations"] = int(stopped.best_iteration)
    text: str = lightgbm().train(parameters, rows).model_to_string()
    return f"{text}\n{_UNITS}{units.mean!r},{units.deviation!r}\n"


def scores(text: str, inputs: np.ndarray) -> np.ndarray:
    """Return what a model makes of rows (n, S), before a link: shape (n,) or (n, classes)."""
    model, units = _loaded(text)
    if not len(inputs):
        return np.zeros((0, model.num_model_per_iteration()))
    values: np.ndarray = model.predict(inputs, raw_score=True, num_threads=1)
    return units.mean + units.deviation * values


def inputs_of(values: np.ndarray, rows: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Return what LightGBM takes (n, S): numbers, and codes of categories, NaN where missing.

    `values` (u, n); `rows` (D,) say which of them is a row of a batch, −1 for none; `spans` (S, 3)
    are first row, last row + 1 and number of levels of each feature.
    """
    inputs = np.full((values.shape[1], len(spans)), np.nan, order="F")
    for column, (start, _, n_levels) in enumerate(spans):
        places = rows[start : start + max(n_levels, 1)]
        levels = np.flatnonzero(places >= 0)
        of_column = values[places[levels]]
        if n_levels:
            has_level = (of_column > 0).any(axis=0)
            inputs[has_level, column] = levels[of_column[:, has_level].argmax(axis=0)]
        elif len(of_column):
            inputs[:, column] = of_column[0]
    return inputs


def gains_by_feature(text: str) -> np.ndarray:
    """Return what a model gains by each feature, in squares of the response, shape (S,)."""
    model, units = _loaded(text)
    values: np.ndarray = model.feature_importance("gain")
    return values * units.deviation**2


def feature_names(text: str) -> list[str]:
    """Return the names of a model's features."""
    names: list[str] = _loaded(text)[0].feature_name()
    return names


@lru_cache(maxsize=512)
def _loaded(text: str) -> tuple[Any, Units]:
    _, _, last = text.rstrip().rpartition("\n")
    mean, deviation = last.removeprefix(_UNITS).split(",")
    return lightgbm().Booster(model_str=text), Units(float(mean), float(deviation))


def _prepared(
    inputs: np.ndarray,
    response: np.ndarray,
    parameters: Mapping[str, Any],
    weight: np.ndarray | None,
    data: Mapping[str, Any],
) -> tuple[Units, Any, dict[str, Any]]:
    """Return the units of a response, and the data and parameters that LightGBM is given."""
    parameters = {**DEFAULTS, **parameters}
    is_number = parameters["objective"] == "regression"
    units = Units.of(response, weight) if is_number else Units()
    label = units.taken_off(response)
    rows = lightgbm().Dataset(inputs, label=label, weight=weight, params=parameters, **data)
    return units, rows, parameters


def _stopped(data: Any, parameters: Mapping[str, Any], held_out: np.ndarray) -> Any:
    """Return a model of some rows that has the number of trees of the least loss on others."""
    package = lightgbm()
    train = data.subset(np.flatnonzero(~held_out))
    test = data.subset(np.flatnonzero(held_out))
    return package.train(
        {**parameters, "metric": ""},
        train,
        _MOST_TREES,
        valid_sets=[test],
        callbacks=[package.early_stopping(_PATIENCE, verbose=False)],
    )
