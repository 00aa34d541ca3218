"""The method as the driver knows it: its job, and prediction with a finished run's model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distfms.data.files.partition import Dataset
from distfms.errors import SpecError
from distfms.methods.frame.contract import Chosen, FinishedRun, Method
from distfms.methods.frame.row_predictor import RowPredictor, label_array
from distfms.methods.landmarks.flow import landmarks
from distfms.methods.landmarks.form import check_tried, make_job
from distfms.methods.landmarks.options import LandmarksOptions, paper
from distfms.methods.landmarks.similarity import PARAMETERS, PRECOMPUTED, LandmarkMap, Similarity
from distfms.methods.landmarks.squared import MEASURES
from distfms.solve.losses import probabilities


@dataclass(frozen=True, eq=False)
class LandmarkModel:
    """Picklable function from values by name to predictions.

    Attributes
    ----------
    names : tuple of str
        Rows of a batch that are compared, in order.
    mapping : LandmarkMap
    weights : ndarray of shape (k, P)
    intercept : ndarray of shape (P,)
    classes : ndarray of shape (r,), or None
        Classes or levels of the target, ascending.
    thresholds : ndarray of shape (r - 1,), or None
        Between levels.
    gives_probabilities : bool
        Of the classes, rather than these.
    range : sequence of float, or None
        Least and greatest prediction.
    """

    names: tuple[str, ...]
    mapping: LandmarkMap
    weights: np.ndarray
    intercept: np.ndarray
    classes: np.ndarray | None = None
    thresholds: np.ndarray | None = None
    gives_probabilities: bool = False
    range: Sequence[float] | None = None

    @classmethod
    def of(cls, model: Mapping[str, Any], arrays: Mapping[str, np.ndarray], budget: Any) -> Any:
        """Read a model from ``model.json`` and ``weights.npz``, of so many landmarks at most.

        Raises
        ------
        SpecError
            If no model is so small.
        """
        sizes = arrays["sizes"]
        place = len(sizes) - 1
        if budget is not None:
            place = int(np.searchsorted(sizes, budget, "right")) - 1
        if place < 0:
            raise SpecError(
                f"--budget is {budget:g}, in landmarks; the smallest model of this run has "
                f"{sizes[0]}."
            )
        similarity = Similarity(model["similarity"], tuple(model["parameters"].items()))
        whole = LandmarkMap.of(similarity, arrays)
        size = int(sizes[place])
        names = tuple(model["features"])
        return cls(
            names[:size] if similarity.name == PRECOMPUTED else names,
            whole.restricted(np.arange(size)),
            arrays["weights"][place, :size],
            arrays["intercept"][place],
            None if model.get("classes") is None else label_array(model["classes"]),
            np.array(model["thresholds"][place]) if "thresholds" in model else None,
            model.get("probabilities", False),
            model.get("range"),
        )

    @property
    def n_landmarks(self) -> int:
        """Number of landmarks that rows are compared with."""
        return len(self.weights)

    def __call__(self, values: Mapping[str, np.ndarray], n_rows: int) -> np.ndarray:
        """Return predictions (n_rows, 1), or probabilities (n_rows, r)."""
        features = np.stack([values[name] for name in self.names])
        scores = self.mapping.scores(features, self.weights, self.intercept)
        if self.classes is None:
            least, most = self.range or (-np.inf, np.inf)
            return np.clip(scores, least, most)
        if self.gives_probabilities:
            return probabilities(scores)
        return self.classes[self._class_numbers(scores)]

    def _class_numbers(self, scores: np.ndarray) -> np.ndarray:
        if self.thresholds is not None:
            return np.searchsorted(self.thresholds, scores[:, 0], side="right")
        if scores.shape[1] > 1:
            return np.asarray(scores.argmax(axis=1))
        return (scores[:, 0] > 0).astype(np.intp)


def make_predictor(run: FinishedRun, dataset: Dataset, budget: float | None) -> RowPredictor:
    """Find the columns of a model in a dataset."""
    if run.model["similarity"] not in PARAMETERS:
        run.require_allowed(run.model["similarity"])
    model = LandmarkModel.of(run.model, run.weights, budget)
    is_precomputed = model.mapping.similarity.name == PRECOMPUTED
    return RowPredictor.of(
        run,
        dataset,
        list(model.names if is_precomputed else run.model["sources"]),
        (f"predicted_{run.model['target']}",),
        model,
        spending=f"Compares each row with {model.n_landmarks} landmarks",
        classes=run.model["classes"] if model.gives_probabilities else (),
    )


def chosen(run: FinishedRun) -> dict[str, Chosen]:
    """Return the places of landmarks; see :class:`distfms.methods.frame.contract.Method`."""
    return {str(name): Chosen(n) for n, name in enumerate(run.selection["landmarks"], 1)}


def _partition_rows(options: LandmarksOptions) -> int:
    """Return how many rows have co-moments of about 10¹⁰ multiplications.

    No fewer than 32 for each landmark: co-moments, which are kept, are then small beside the work.
    """
    n = options.most_landmarks(0, 0)
    return max(2**33 // n**2, 32 * n)


METHOD = Method(
    name="landmarks",
    Options=LandmarksOptions,
    make_job=make_job,
    paper=paper,
    learn=landmarks,
    predictor=make_predictor,
    chosen=chosen,
    figures="distfms.methods.landmarks.figures",
    starter={"task": "regression", "landmarks": "auto"},
    takes_unlabelled=True,
    tunable=(
        *("landmarks", "keep", "ridge", "bound", "selection"),
        *("intercept", "epsilon", "gamma", "spacing", "smoothing"),
    ),
    measures=MEASURES,
    check_tried=check_tried,
    partition_rows=_partition_rows,
    question=("task",),
)
