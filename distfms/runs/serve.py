"""A finished run's model in the memory of a service."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from importlib import import_module
from os import PathLike, fspath
from typing import Any

import numpy as np
import pyarrow as pa

from distfms.data.files.frames import FrameForms
from distfms.data.files.partition import Dataset, RowsReader, frame_rows, memory_dataset
from distfms.errors import DataError, checked_budget
from distfms.methods.frame.contract import Predictor
from distfms.methods.frame.row_predictor import RowPredictor
from distfms.report.plotting import draw_first
from distfms.runs.finished import Run, RunFiles, checked_stop, read_run, well_formed


def load(
    model: Run,
    *,
    budget: float | None = None,
    allow: Iterable[str] = (),
    registry: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Model:
    """Load a model to predict rows in memory.

    Parameters
    ----------
    model : str or path
        ``registry:NAME`` for the current version, ``registry:NAME@3`` for the third, or the
        folder or URL of a finished run.
    budget : float, optional
        Cost a row, for models with prefixes: the longest one that it pays for predicts.
    allow : iterable of str, optional
        Functions, as ``module:function``, that the model may call: similarities that are not
        built in. A model that calls any other is refused, and nothing is imported.
    registry : str, optional
        Folder or URL of the registry; by default what the environment variable
        ``DISTFMS_REGISTRY`` names, else ``runs/registry``.
    storage_options : mapping, optional
        Passed to fsspec for URLs.

    Returns
    -------
    Model

    Raises
    ------
    SpecError
        If there is no such model, it is damaged, or `predict` would call a function that is not
        allowed.
    EngineError
        If remote storage does not answer.

    Examples
    --------
    >>> model = distfms.load("registry:patients")  # doctest: +SKIP
    >>> model.predict({"hdl": [48.0], "ldl": [131.0]})["predicted_risk"]  # doctest: +SKIP
    """
    return Model(read_run(model, storage_options, registry), budget, allow)


class Model:
    """A model that :func:`distfms.load` has loaded; it does not change, and threads may share it.

    Attributes
    ----------
    name : str
        Of the run's folder, or ``registry:NAME@version``.
    method : str
        That made it.
    run : FinishedRun
    files : RunFiles
    """

    def __init__(self, files: RunFiles, budget: float | None, allow: Iterable[str]) -> None:
        self.name = files.called
        self.method = files.manifest.method
        self.files = files
        self._method, self.run = files.open(allow)
        self._budget = checked_budget(budget, "budget")
        self._last: tuple[pa.Schema, tuple[Any, ...], Predictor] | None = None

    @cached_property
    def frame_forms(self) -> FrameForms:
        """How columns of frames are read."""
        with well_formed(self.name):
            return self.files.frame_forms()

    def __repr__(self) -> str:
        return f"<Model {self.name}, {self.method}>"

    def predict(self, rows: Any, *, budget: float | None = None, **stop: Any) -> Any:
        """Predict rows, as ``distfms predict`` predicts those of a file.

        Parameters
        ----------
        rows : pyarrow.Table, frame, array, or mapping of str to array-like of shape (n_rows,)
            Columns by name, of which those that the model needs are used. A cell with several
            judgments is a list. An array has all columns of the training data, in their order. Also
            the path of a file or folder in any format that jobs read.
        budget : float, optional
            Cost a row, of which only the columns that it pays for are needed. Default: that of
            :func:`load`.
        stop : {"prefix", "rows"}, optional
            ``rows``, for sequences of classes: a row stops at the prefix after which
            more is not worth its cost. Only columns that some row may need are read. Default:
            ``prefix``.
        mean_budget : float, optional
            Of rows that stop, the most that they may cost on average, on the folds. Default: the
            least for which the loss is within one standard error of that of the recommended prefix.
        confidence : float, optional
            Let rows stop once one has this probability instead.

        Returns
        -------
        pyarrow.Table of n_rows rows, or a frame of pandas (with its index) or polars
            The id where the rows have it, else the row number; the predictions; of rows that stop
            ``n_groups`` and ``cost``; and how many values each row lacked. Of an array the
            predictions alone, an array of shape (n_rows,), or (n_rows, P) of P targets.

        Raises
        ------
        DataError
            If a column is missing or of another kind than in training, or there are no rows.
        SpecError
            If the model cannot predict within the budget.
        """
        budget = self._within(budget)
        if hasattr(rows, "iloc") and rows.ndim == 1:
            raise DataError("One row is a frame of one row: give `row.to_frame().T`.")
        named: Any = self._named(rows) if isinstance(rows, np.ndarray | list) else rows
        dataset, predict = self._as_last(named, budget, stop) or self._opened(named, budget, stop)
        with well_formed(self.name):
            predicted = pa.concat_tables([predict(partition) for partition in dataset.partitions])
        if named is not rows:
            names = [name for name in predicted.column_names if name.startswith("predicted_")]
            arrays = [predicted.column(name).to_numpy() for name in names]
            return arrays[0] if len(arrays) == 1 else np.stack(arrays, axis=1)
        if type(rows).__module__.startswith("polars"):
            import polars

            return polars.from_arrow(predicted)
        if not hasattr(rows, "iloc"):
            return predicted
        frame = predicted.to_pandas()
        frame.index = rows.index
        return frame

    def _named(self, rows: Any) -> dict[str, np.ndarray]:
        """Return the columns of an array by the names of those of the training data."""
        names = list(self.run.model.get("sources", ()))
        values = np.asarray(rows)
        if not names:
            raise DataError("An array has no names of attributes: give a frame or a table.")
        if values.ndim != 2 or values.shape[1] != len(names):
            raise DataError(
                f"The array has the shape {values.shape}; the model was made with {len(names)} "
                f"columns: {', '.join(names[:20])}."
            )
        return {name: values[:, number] for number, name in enumerate(names)}

    def _opened(
        self, rows: Any, budget: float | None, stop: Mapping[str, Any]
    ) -> tuple[Dataset, Predictor]:
        if isinstance(rows, str | PathLike):
            from distfms.runs.predict import open_rows

            dataset = open_rows(fspath(rows), None, self.files)
        else:
            held = frame_rows(rows, self.frame_forms.kinds, forms=self.frame_forms)
            if not len(held):
                raise DataError("There are no rows to predict.")
            dataset = memory_dataset(held, held.schema)
        return dataset, self.predictor(dataset, budget, **stop)

    def _as_last(
        self, rows: Any, budget: float | None, stop: Mapping[str, Any]
    ) -> tuple[Dataset, Predictor] | None:
        """Return a mapping's numbers, and the last predictor, if that reads nothing else."""
        if self._last is None or type(rows) is not dict:
            return None
        schema, request, predict = self._last
        if request != (budget, checked_stop(**stop), RowsReader()):
            return None
        if not isinstance(predict, RowPredictor):
            return None
        held = predict.rows_of(rows, self.run.model.get("id"))
        return None if held is None else (memory_dataset(held, schema), predict)

    def row_costs(self, rows: Any, *, budget: float | None = None, **stop: Any) -> Any:
        """Return costs (n_rows,) of predictions that stop row by row; see `predict`."""
        return np.asarray(self.predict(rows, budget=budget, **{"stop": "rows", **stop})["cost"])

    def anytime(
        self, *, budget: float | None = None, stop: str | None = None,
        mean_budget: float | None = None, confidence: float | None = None, **options: Any,
    ) -> Any:  # fmt: skip
        """Start a prediction whose groups arrive one by one, for models with prefixes.

        Parameters
        ----------
        budget, stop, mean_budget, confidence : see `predict`
            With ``stop="rows"``, `next_group` returns None when it does not pay to go on.
        **options
            Of :class:`distfms.AnytimeSession`.
        """
        rows = checked_stop(stop, mean_budget, confidence)
        make = self._method.require_session()
        budget = self._within(budget) if rows else checked_budget(budget, "budget")
        with well_formed(self.name):
            return make(self.run, budget, rows, **options)

    def headline(self) -> str:
        """Return the result of the run in one sentence."""
        with well_formed(self.name):
            return self._method.headline(self.run)

    def plot(self) -> Any:
        """Draw the first figure of the report; return its axes. Needs ``distfms[plot]``."""
        return draw_first(import_module(self._method.figures).sections(self.run))

    def page(self) -> str:
        """Return the report of the run, one self-contained HTML page."""
        with well_formed(self.name):
            return self._method.page(self.run)

    def _within(self, budget: float | None) -> float | None:
        return self._budget if budget is None else checked_budget(budget, "budget")

    def predictor(self, dataset: Dataset, budget: float | None = None, **stop: Any) -> Predictor:
        """Return what predicts the partitions of a dataset; kept for the next one like it."""
        budget = checked_budget(budget, "budget")
        last = self._last
        alike = last is not None and (last[0] is dataset.schema or last[0].equals(dataset.schema))
        rows = checked_stop(**stop)
        request = (budget, rows, dataset.reader)
        if last is None or not alike or last[1] != request:
            with well_formed(self.name):
                predict = self._method.applied(self.run, dataset, budget, rows)
            self._last = last = (dataset.schema, request, predict)
        return last[2]
