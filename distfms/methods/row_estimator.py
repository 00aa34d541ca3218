"""What estimators over rows share: how rows are opened, read, predicted and scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from distfms.data.batches import ColumnPlan, RowBatch
from distfms.data.categories import categorical_columns
from distfms.data.dataset import Partition
from distfms.data.roles import resolve_roles
from distfms.errors import DataError, SpecError
from distfms.methods.contract import PartialReader
from distfms.methods.estimator_input import (
    PieceFunction,
    Source,
    check_columns,
    in_memory,
    kind_of,
    open_source,
)
from distfms.methods.row_predictor import plan_of_model, set_missing, sources_of
from distfms.methods.rows import RowSource
from distfms.spec import DataSection, Section, parse_section
from distfms.stats.bundle import Bundle

T = TypeVar("T")
Form = TypeVar("Form", bound=Section)


@dataclass(frozen=True, eq=False)
class PieceSource(RowSource):
    """Pieces of rows, wherever they are, as what the readers of jobs read; picklable.

    `codes` are what stands for the classes in the column of the target, where it has any.
    """

    codes: np.ndarray | None = None

    @classmethod
    def of(cls, plan: ColumnPlan, missing: Any, codes: np.ndarray | None = None) -> PieceSource:
        """Return the source of rows that are all for training."""
        nowhere: Any = None
        return cls(nowhere, DataSection.model_construct(missing=missing), 0, False, plan, codes)

    def read(self, partition: Partition) -> RowBatch:
        """Read a piece; classes become their numbers, and unknown categories missing values."""
        batch = super().read(partition)
        if self.codes is not None:
            batch.target[0] = np.searchsorted(self.codes, batch.target[0])
        if self.plan.unknown == "zero":
            for column in self.plan.columns:
                set_missing(batch.values, column)
        return batch

    def then(self, function: Callable[..., T], *arguments: Any) -> PieceFunction[T]:
        """Return a picklable function of a piece: ``function(*arguments, batch)``."""
        return partial(_of_piece, self, function, arguments)

    def by(self, reader: Callable[..., PartialReader], *arguments: Any) -> PieceFunction[Any]:
        """Return a picklable function of a piece: what a job's reader of a source makes of it."""
        return partial(_by_reader, self, reader, arguments)


def _of_piece(
    rows: PieceSource, function: Any, arguments: Sequence[Any], reader: Any, partition: Partition
) -> Any:
    return function(*arguments, replace(rows, reader=reader).read(partition))


def _by_reader(
    rows: PieceSource, make: Any, arguments: Sequence[Any], reader: Any, partition: Partition
) -> Bundle:
    found: Bundle = make(replace(rows, reader=reader), *arguments)(partition)
    return found


class RowEstimator(BaseEstimator):
    """An estimator whose rows have columns of numbers or categories, in memory, Dask or files.

    Subclasses may be dataclasses, whose fields are the parameters: scikit-learn reads the
    signature that they make.
    """

    missing: Any = "error"
    columns_: ColumnPlan
    classes_: np.ndarray
    _taken: Sequence[str] = ()
    _target: Sequence[str]

    def _checked(self, form: type[Form], **more: Any) -> Form:
        """Check the parameters, which are options of a job, and what replaces some of them."""
        if self.missing not in ("error", "mean"):
            raise SpecError(f"missing is {self.missing!r}; choose 'error' or 'mean'.")
        names = form.model_fields.keys() & self.get_params().keys()
        given = {name: plain(getattr(self, name)) for name in names}
        try:
            return parse_section(form, {**given, **more}, type(self).__name__)
        except SpecError as error:
            raise SpecError(str(error).removeprefix("In the job spec, ")) from error

    def _open(
        self, X: Any, y: Any, sample_weight: Any = None, *, reset: bool = True, query: Any = None
    ) -> tuple[Source, PieceSource]:
        """Open rows to learn from; with `reset` their columns are those of the estimator."""
        known = None if reset else self.columns_
        source = open_source(self, X, y, sample_weight, reset=reset, like=known)
        named = {"target": source.target, "weight": source.weight, "query": query}
        roles = resolve_roles(source.schema, **named)
        levels = source.levels(categorical_columns(source.schema, roles))
        names = roles.features
        check_columns(self, names if source.named else None, len(names), reset=reset)
        if source.classes is not None:
            self._take_classes(source.classes)
        plan = ColumnPlan.from_schema(source.schema, roles, levels)
        if reset:
            self.columns_ = plan.without_target()
            self._taken, self._target = source.taken, list(roles.target)
        return source, PieceSource.of(plan, self.missing, source.codes)

    def _take_classes(self, classes: np.ndarray) -> None:
        check_classification_targets(classes)
        if len(classes) < 2:
            raise DataError(f"The target holds 1 class, {classes[0]!r}; at least 2 are needed.")
        self.classes_ = classes

    def _opened(self, X: Any, needed: Sequence[str] | None = None) -> tuple[Source, PieceSource]:
        """Open rows to predict, of which some columns are needed; by default all."""
        check_is_fitted(self)
        plan = self.columns_
        needed = plan.roles.features if needed is None else needed
        source = open_source(self, X, like=plan, ignored=self._taken)
        if source.kind != "parquet":
            names = source.schema.names
            check_columns(self, names if source.named else None, len(names), needed=needed)
        own = plan_of_model(source, needed, sources_of(plan), None)
        return source, PieceSource.of(own, self.missing)

    def _score(self, measure: Any, X: Any, y: Any, sample_weight: Any) -> float:
        """Compare predictions with the target, for files by default that of `fit`."""
        truth = in_memory(X, self._target if y is None and kind_of(X) == "parquet" else y)
        found = in_memory(X, self.predict(X))
        return float(measure(truth, found, sample_weight=in_memory(X, sample_weight)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "mean"
        return tags


class RowRegressor(RegressorMixin, RowEstimator):
    """An estimator of numbers."""

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Coefficient of determination R² of the predictions.

        Parameters
        ----------
        X : see `predict`
        y : array-like, Dask collection, or names of columns of X
            With a path it may be left out: the names are those of `fit`.
        sample_weight : array-like of shape (n,), optional
        """
        return self._score(r2_score, X, y, sample_weight)


class RowClassifier(ClassifierMixin, RowEstimator):
    """An estimator of classes."""

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Share of rows whose class is predicted.

        Parameters
        ----------
        X : see `predict`
        y : array-like, Dask collection, or name of a column of X
            With a path it may be left out: the name is that of `fit`.
        sample_weight : array-like of shape (n,), optional
        """
        return self._score(accuracy_score, X, y, sample_weight)


def by_chunks(function: Callable[[Any], Any], values: Any, **layout: Any) -> Any:
    """Apply a function to an array, or lazily to the chunks of a Dask array."""
    if kind_of(values) == "dask-array":
        return values.map_blocks(function, **layout)
    return function(values)


def plain(value: Any) -> Any:
    """Return a number of numpy as one of Python, as options have them."""
    return value.item() if isinstance(value, np.generic) else value
