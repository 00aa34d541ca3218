"""A finished run's model in the memory of a service."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from typing import Any

import pyarrow as pa

from distfms.data.files.partition import Dataset, RowsReader, frame_rows, memory_dataset
from distfms.errors import DataError
from distfms.methods.frame.contract import Predictor
from distfms.methods.frame.row_predictor import RowPredictor
from distfms.runs.finished import Run, RunFiles, checked_budget, read_run


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
        self.name, self.method = files.called, files.manifest.method
        self.files = files
        self._method, self.run = files.open(allow)
        self._budget = checked_budget(budget, "budget")
        self._last: tuple[pa.Schema, float | None, Any, Predictor] | None = None

    def __repr__(self) -> str:
        return f"<Model {self.name}, {self.method}>"

    def predict(self, rows: Any, *, budget: float | None = None) -> Any:
        """Predict rows, as ``distfms predict`` predicts those of a file.

        Parameters
        ----------
        rows : pyarrow.Table, frame, or mapping of str to array-like of shape (n_rows,)
            Columns by name, of which those that the model needs are used. A cell with several
            judgments is a list. Also the path of a file or folder in any format that jobs read.
        budget : float, optional
            Cost a row, of which only the columns that it pays for are needed. Default: that of
            :func:`load`.

        Returns
        -------
        pyarrow.Table of n_rows rows, or pandas.DataFrame with the index of a pandas frame
            The id where the rows have it, else the row number; the predictions; and how many
            values each row lacked.

        Raises
        ------
        DataError
            If a column is missing or of another kind than in training, or there are no rows.
        SpecError
            If the model cannot predict within the budget.
        """
        budget = self._budget if budget is None else checked_budget(budget, "budget")
        dataset, predict = self._as_last(rows, budget) or self._opened(rows, budget)
        found = pa.concat_tables([predict(partition) for partition in dataset.partitions])
        if not hasattr(rows, "iloc"):
            return found
        frame = found.to_pandas()
        frame.index = rows.index
        return frame

    def _opened(self, rows: Any, budget: float | None) -> tuple[Dataset, Predictor]:
        if isinstance(rows, str | PathLike):
            from distfms.runs.predict import open_rows

            dataset = open_rows(fspath(rows), None, self.files.spec())
        else:
            held = frame_rows(rows)
            if not len(held):
                raise DataError("There are no rows to predict.")
            dataset = memory_dataset(held, held.schema)
        return dataset, self.predictor(dataset, budget)

    def _as_last(self, rows: Any, budget: float | None) -> tuple[Dataset, Predictor] | None:
        """Return a mapping's numbers, and the last predictor, if that reads nothing else."""
        if self._last is None or type(rows) is not dict:
            return None
        schema, *how, predict = self._last
        if how != [budget, RowsReader()] or not isinstance(predict, RowPredictor):
            return None
        held = predict.rows_of(rows, self.run.model.get("id"))
        return None if held is None else (memory_dataset(held, schema), predict)

    def headline(self) -> str:
        """Return the result of the run in one sentence."""
        return self._method.headline(self.run)

    def page(self) -> str:
        """Return the report of the run, one self-contained HTML page."""
        return self._method.page(self.run)

    def predictor(self, dataset: Dataset, budget: float | None = None) -> Predictor:
        """Return what predicts the partitions of a dataset; kept for the next one like it."""
        last = self._last
        alike = last is not None and (last[0] is dataset.schema or last[0].equals(dataset.schema))
        if last is None or not alike or last[1:3] != (budget, dataset.reader):
            made = self._method.predictor(self.run, dataset, budget)
            self._last = last = (dataset.schema, budget, dataset.reader, made)
        return last[3]
