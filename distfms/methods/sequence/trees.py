"""Boosted trees of LightGBM on the prefixes of a sequence, kept as LightGBM's own text."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np

from distfms.errors import SpecError
from distfms.methods.sequence.problem import Path, PrefixModels
from distfms.methods.sequence.sample import TreeRows, TreeSource
from distfms.solve.losses import FAMILIES
from distfms.solve.trees import FIXED, feature_names, fitted, inputs_of, scores
from distfms.stats.base import Fields

OBJECTIVES = {
    "gaussian": "regression",
    "logistic": "binary",
    "softmax": "multiclass",
    "poisson": "poisson",
}


def require_trees(parameters: Mapping[str, Any], n_targets: int) -> None:
    """Raise SpecError where LightGBM cannot do what is asked."""
    decided = sorted(parameters.keys() & {*FIXED, "objective", "num_class", "seed"})
    if decided:
        raise SpecError(
            f"`sequence.lightgbm` gives `{decided[0]}`, which the job decides. Leave it out."
        )
    if n_targets > 1:
        raise SpecError(
            f"LightGBM takes one target; `data.target` names {n_targets}. Run a job for each, or "
            "leave it out of `sequence.model` and `sequence.baselines`."
        )


@dataclass(frozen=True, eq=False)
class TreeModels(Fields):
    """Models of LightGBM.

    Attributes
    ----------
    null : numpy.ndarray of shape (P,)
        Scores by the model of no group.
    spans : numpy.ndarray of shape (S, 3)
        See `read.spans_of`; the models name their features by their positions here.
    text : numpy.ndarray of uint8
        One model after the other, without that of no group.
    ends : numpy.ndarray of shape (M,)
        Where they end in it, from 0.
    """

    kind: ClassVar[str] = "lightgbm"
    gaps: ClassVar[str] = "taken by LightGBM as missing"
    null: np.ndarray
    spans: np.ndarray
    text: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, texts: Sequence[str], null: np.ndarray, spans: np.ndarray) -> TreeModels:
        """Return models of their texts; that of no group has an empty one."""
        payloads = [text.encode() for text in texts]
        text = np.frombuffer(b"".join(payloads), dtype=np.uint8)
        return cls(null, spans, text, np.cumsum([len(payload) for payload in payloads]))

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def n_outputs(self) -> int:
        """Number of scores of a row."""
        return len(self.null)

    @property
    def texts(self) -> list[str]:
        """The text of each model."""
        starts = np.append(0, self.ends[:-1])
        pairs = zip(starts, self.ends, strict=True)
        return [self.text[start:end].tobytes().decode() for start, end in pairs]

    def scores(self, features: np.ndarray) -> np.ndarray:
        """Return the scores (n, M, P) of rows, from their features (D, n)."""
        rows = np.arange(len(features))
        return np.stack([self._scores(text, rows, features) for text in self.texts], axis=1)

    def score(self, number: int, columns: Sequence[int], values: np.ndarray) -> np.ndarray:
        """Return the scores (n, P) by one model, from values (n, u) of the columns it reads."""
        rows = np.full(self.spans[:, 1].max(), -1)
        rows[list(columns)] = np.arange(len(columns))
        return self._scores(self.texts[number], rows, values.T)

    def _scores(self, text: str, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        n_rows = values.shape[1]
        if not text or not n_rows:
            return np.tile(self.null, (n_rows, 1))
        spans = self.spans[[int(name) for name in feature_names(text)]]
        return scores(text, inputs_of(values, rows, spans)).reshape(n_rows, -1)

    def only(self, numbers: Sequence[int] | np.ndarray) -> TreeModels:
        """Return some of the models."""
        texts = self.texts
        return TreeModels.of([texts[number] for number in numbers], self.null, self.spans)

    def joined(self, others: Sequence[TreeModels]) -> TreeModels:
        """Return these models and then those of others of the same data."""
        texts = [text for models in (self, *others) for text in models.texts]
        return TreeModels.of(texts, self.null, self.spans)


@dataclass(frozen=True, eq=False, kw_only=True)
class TreePath(Path):
    """A path whose prefixes at `refit_at` (M - 1,) have models of LightGBM.

    `share` (M,) is what these and the model of no group explain.
    """

    share: np.ndarray
    models: TreeModels

    @property
    def curve_value(self) -> np.ndarray:
        """Share explained on the training rows by the prefixes 0..K; NaN where it was not asked."""
        return self.of_prefixes(self.fitted, self.share)

    def prefix_models(self) -> PrefixModels:
        """Return the models of the `fitted` prefixes."""
        return self.models

    def step_details(self) -> dict[str, np.ndarray]:
        """Return what each step adds."""
        return {"gain": np.diff(self.curve_value)}


def tree_path(
    path: Path, prefixes: Sequence[int], texts: Sequence[str], spans: np.ndarray
) -> TreePath:
    """Return a path of linear models with trees in their place at some prefixes, by their texts."""
    null = path.prefix_models().only([0]).score(0, (), np.empty((1, 0)))[0]
    of_path: dict[str, Any] = {member.name: getattr(path, member.name) for member in fields(Path)}
    of_path["refit_at"] = np.array(prefixes, dtype=np.intp)
    share = np.full(len(prefixes) + 1, np.nan)
    models = TreeModels.of(["", *texts], null, spans)
    return TreePath(share=share, models=models, **of_path)


def features_of(path: Path, n_groups: int, spans: np.ndarray) -> tuple[int, ...]:
    """Return the source features of the first groups of a path, ascending."""
    groups = path.outline.groups.columns
    kept = path.scaling.kept
    rows = [kept[c] for g in path.order[:n_groups] for c in groups[g]]
    return tuple(np.unique(np.searchsorted(spans[:, 1], rows, side="right")).tolist())


class Grown(NamedTuple):
    """A model of LightGBM as its own text.

    It was fitted to `n_rows`, whose mean response is that of the scores `null` (P,).
    """

    text: str
    n_rows: int
    null: np.ndarray

    def beside_null(self, spans: np.ndarray) -> TreeModels:
        """Return the model of no group and this one."""
        return TreeModels.of(["", self.text], self.null, spans)

    @property
    def n_trees(self) -> int:
        """Number of trees of each score."""
        return self.text.count("\nTree=") // len(self.null)


@dataclass(frozen=True, eq=False)
class TreeFit:
    """Picklable function that fits a model to rows, on one thread.

    `is_category` (S,) says which features are categories.
    """

    rows: TreeRows | TreeSource
    is_category: np.ndarray
    family: str
    parameters: Mapping[str, Any]
    seed: int
    n_classes: int = 0

    def __call__(self, task: tuple[tuple[int, ...], int]) -> Grown:
        """Fit trees to some features of the rows but those of a fold."""
        features, left_out = task
        rows = self.rows.of(features, left_out)
        text = fitted(
            rows.inputs,
            rows.response,
            self._parameters(features, left_out),
            rows.fold,
            weight=rows.weight,
            feature_name=[str(feature) for feature in features],
            categorical_feature=np.flatnonzero(self.is_category[list(features)]).tolist(),
        )
        return Grown(text, len(rows.response), self._null(rows))

    def _parameters(self, features: Sequence[int], left_out: int) -> dict[str, Any]:
        key = hashlib.sha256(f"{self.seed}/{left_out}/{features}".encode()).digest()
        fixed: dict[str, Any] = {**FIXED, "seed": int.from_bytes(key[:4], "big") >> 1}
        fixed["objective"] = OBJECTIVES[self.family]
        if self.family == "softmax":
            fixed["num_class"] = self.n_classes
        return {**self.parameters, **fixed}

    def _null(self, rows: TreeRows) -> np.ndarray:
        if self.family == "gaussian":
            return np.array([np.average(rows.response, weights=rows.weight)])
        family = FAMILIES[self.family]
        shares = family.responses(rows.response[np.newaxis], self.n_classes)
        return family.link(np.average(shares, axis=1, weights=rows.weight))
