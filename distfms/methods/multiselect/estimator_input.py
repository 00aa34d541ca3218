"""Input of the estimator: whatever judgments, labels, names and variances are given as."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.validation import validate_data

from distfms.engine.blas import single_threaded_blas
from distfms.errors import DataError, SpecError
from distfms.methods.estimator_columns import checked_weight
from distfms.methods.estimator_input import kind_of
from distfms.methods.multiselect.estimator_frames import FrameReader
from distfms.methods.multiselect.estimator_sources import (
    MemorySource,
    ParquetSource,
    Source,
    dask_source,
    parquet_source,
    parquet_source_of,
    read_array,
)
from distfms.methods.multiselect.objects import (
    ObjectBlock,
    check_finite,
    from_array,
    from_nested,
    from_ragged,
    is_nested,
)
from distfms.methods.multiselect.read_columns import TrainedColumns
from distfms.stats.ragged import Ragged

F = TypeVar("F", bound=Callable[..., Any])


def as_job(method: F) -> F:
    """Run an estimator's method as a job runs: with one BLAS thread, so that it has the same bits.

    Parameters
    ----------
    method : callable
    """

    @wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with single_threaded_blas():
            return method(*args, **kwargs)

    return wrapped  # type: ignore[return-value]


@dataclass(frozen=True)
class FittedInput:
    """What a fitted estimator expects of its input.

    Attributes
    ----------
    names : tuple of str, or None
        Of the attributes, where the training data named them.
    n_attributes : int
    support : ndarray of int
        Positions of the selected attributes.
    roles : tuple of str
        Columns that were label and weight of the training data.
    columns : TrainedColumns
        Columns of the selected attributes, where the training data were files.
    """

    names: tuple[str, ...] | None
    n_attributes: int
    support: np.ndarray
    roles: tuple[str, ...]
    columns: TrainedColumns


@dataclass(frozen=True)
class Opener:
    """Makes a source of what an estimator is given.

    Attributes
    ----------
    estimator : object
        Whose number and names of attributes are set or checked, by scikit-learn.
    exclude : tuple of str
    n_jobs : int or None
    fitted : FittedInput, or None
        None while the estimator is being fitted.
    """

    estimator: Any
    exclude: tuple[str, ...]
    n_jobs: int | None
    fitted: FittedInput | None = None

    def open(self, X: Any, y: Any = None, weight: Any = None, id: str | None = None) -> Source:
        """Make the source.

        Parameters
        ----------
        X : array, lists, frame, Dask collection or path
        y, weight : array-like of shape (n,), or str, optional
        id : str, optional
            Column of identifiers.

        Raises
        ------
        DataError, SpecError, ValueError
        """
        kind = kind_of(X)
        if kind == "parquet":
            return self._parquet(X, y, weight, id)
        if "frame" in kind:
            reader = self._frame_reader(X, y, weight, id)
            y, weight = (None if isinstance(v, str) else v for v in (y, weight))
            if kind == "dask-frame":
                return dask_source(X, replace(reader, with_index=False), y, weight)
            return MemorySource(_labelled(self._matched(reader(X)), y, weight))
        if any(isinstance(v, str) for v in (y, weight, id)):
            raise DataError("y, sample_weight or ids name a column, but X has no named columns.")
        if kind == "dask-array":
            if self.fitted is not None:
                match_names(self.estimator, None, X.shape[1], reset=False)
            return dask_source(X, read_array, y, weight)
        return MemorySource(_labelled(self._array(X), y, weight))

    def _matched(self, block: ObjectBlock) -> ObjectBlock:
        """Check number and names of the attributes, but for fitting."""
        if self.fitted is not None:
            match_names(self.estimator, block.names, len(block.attributes), reset=False)
        return block

    def _array(self, X: Any) -> ObjectBlock:
        """Read arrays, nested lists, or sequences of Ragged."""
        if isinstance(X, (list, tuple)) and X and all(isinstance(a, Ragged) for a in X):
            return self._matched(check_finite(from_ragged(X)))
        if is_nested(X):
            return self._matched(check_finite(from_nested(X)))
        values = validate_data(
            self.estimator,
            X,
            reset=self.fitted is None,
            dtype=np.float64,
            allow_nd=True,
            ensure_all_finite="allow-nan",
        )
        return from_array(values)

    def _frame_reader(self, X: Any, y: Any, weight: Any, id: str | None) -> FrameReader:
        """Say how frames are read: what is excluded and which columns have roles."""
        label, weight = (v if isinstance(v, str) else None for v in (y, weight))
        reader = FrameReader(self.exclude, label, weight, id)
        if self.fitted is None:
            reader.check_exclude(list(X.columns))
            return reader
        reader = replace(reader, ignored=self.fitted.roles)
        if kind_of(X) == "frame":  # scikit-learn checks the names
            return reader
        return replace(reader, names=self.fitted.names, n_attributes=self.fitted.n_attributes)

    def _parquet(self, X: Any, y: Any, weight: Any, id: str | None) -> ParquetSource:
        """Objects of files, of all attributes for fitting and of the selected ones after."""
        roles = {"label": y, "weight": weight, "id": id}
        fitted = self.fitted
        if fitted is not None and fitted.names is not None:
            names = [fitted.names[a] for a in fitted.support]
            return parquet_source_of(
                X, names, fitted.support, fitted.columns, n_jobs=self.n_jobs, **roles
            )
        source = parquet_source(X, exclude=self.exclude, n_jobs=self.n_jobs, **roles)
        if fitted is not None:
            match_names(self.estimator, source.layout.names, source.positions.size, reset=False)
        return source


def match_names(estimator: Any, names: Sequence[str] | None, d: int, *, reset: bool) -> None:
    """Set or check number and names of an estimator's attributes, as scikit-learn does.

    Parameters
    ----------
    estimator : BaseEstimator
    names : sequence of str, length d, or None
    d : int
    reset : bool
        Set rather than check.

    Raises
    ------
    ValueError
        In scikit-learn's words.
    """
    head: Any = np.empty((0, d))
    if names is not None:
        import pandas as pd

        head = pd.DataFrame(columns=list(names), dtype=float)
    validate_data(estimator, head, reset=reset, skip_check_array=True)


def _labelled(block: ObjectBlock, y: Any, weight: Any) -> ObjectBlock:
    """Block with labels and weights given beside it."""
    if y is not None:
        label = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        label = column_or_1d(label, warn=True)
        check_consistent_length(np.empty(block.n_objects), label)
        block = replace(block, label=label)
    if weight is not None:
        block = replace(block, weight=checked_weight(weight, block.n_objects))
    return block


def known_variance(given: Any, names: Sequence[str]) -> np.ndarray | None:
    """Give every attribute its known internal variance.

    Parameters
    ----------
    given : float, array-like of shape (d,), mapping, or None
    names : sequence of str, length d

    Returns
    -------
    ndarray of shape (d,), or None
        NaN where it is to be estimated; None if it is everywhere.

    Raises
    ------
    SpecError
        A name is unknown, or the number of values is not d.
    """
    if given is None:
        return None
    if isinstance(given, Mapping):
        unknown = [name for name in given if name not in names]
        if unknown:
            raise SpecError(
                f"internal_variance names {unknown[0]!r}, which is no attribute of the data: "
                f"{', '.join(names[:12])}."
            )
        return np.array([given.get(name, np.nan) for name in names], dtype=float)
    values = np.asarray(given, dtype=float)
    if values.ndim == 0:
        return np.full(len(names), float(values))
    if values.shape != (len(names),):
        raise SpecError(f"There are {len(names)} attributes but {values.size} internal variances.")
    return values.copy()
