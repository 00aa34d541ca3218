"""Base of all estimators: each runs its job in memory."""

from __future__ import annotations

import fnmatch
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from html import escape
from inspect import Parameter, Signature
from pathlib import Path
from textwrap import indent
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted, validate_data

from distfms.data.files.frames import AS_THEY_ARE
from distfms.data.files.partition import NAME, Dataset, as_table, collected
from distfms.data.rows.batches import ColumnPlan, RowBatch, read_rows
from distfms.data.rows.roles import index_columns
from distfms.engine.blas import single_threaded_blas
from distfms.errors import DataError, SpecError
from distfms.estimators.inputs import (
    Given,
    are_named,
    array_names,
    column_names,
    free_name,
    in_memory,
    kind_of,
    named_columns,
    of_dask,
    of_files,
    of_memory,
    predictions_of,
    renamed,
    weights_of,
    without,
)
from distfms.estimators.parameters import (
    check_columns,
    checked_target,
    described,
    in_words_of_python,
    plain,
    said,
    seed_of,
    signature_of,
    target_names,
    tell_classes,
)
from distfms.estimators.report import Page
from distfms.methods.frame.contract import FinishedRun, Inputs, Job
from distfms.methods.frame.row_predictor import plan_of_model, set_missing
from distfms.spec import Section


class JobEstimator(BaseEstimator):
    """Base of estimators.

    A subclass names the method and its options model, and overrides what differs.

    Attributes
    ----------
    model_ : distfms.runs.serve.Model
        The finished run and its predictor.
    curves_ : dict of str to list of dict
        Points of each curve of ``metrics.json``, the chosen rule first.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Where the data have names.
    """

    #: All estimators that are loaded.
    loaded: ClassVar[list[type[JobEstimator]]] = []
    #: Name of the method, and the model of its section.
    _method: ClassVar[str]
    _Options: ClassVar[type[Section]]
    #: Options given by position; defaults that differ, and parameters of the estimator alone;
    #: what these mean; options that the class decides; options that are no parameters.
    _first: ClassVar[Sequence[str]] = ()
    _defaults: ClassVar[Mapping[str, Any]] = {}
    _meanings: ClassVar[Mapping[str, str]] = {}
    _fixed: ClassVar[Mapping[str, Any]] = {}
    _left_out: ClassVar[Sequence[str]] = ()
    #: Values of options by which jobs of this estimator are told from others.
    _takes: ClassVar[Mapping[str, Sequence[str]]] = {}
    #: Names and globs of columns that a model was made without, where it was not fitted here.
    _excluded: Sequence[str] = ()

    missing: str
    exclude: Any
    random_state: Any
    model_: Any
    classes_: np.ndarray
    n_features_in_: int
    feature_names_in_: np.ndarray

    def __init_subclass__(cls, **options: Any) -> None:
        """Make the constructor, and the section of its parameters in the docstring."""
        super().__init_subclass__(**options)
        if not hasattr(cls, "_Options"):
            return
        JobEstimator.loaded.append(cls)
        left_out = (*cls._left_out, *(n for n in cls._fixed if n not in cls._defaults))
        signature = signature_of(cls._Options, cls._first, cls._defaults, left_out)

        def __init__(self: Any, *args: Any, **named: Any) -> None:  # noqa: N807
            try:
                bound = signature.bind(*args, **named)
            except TypeError as error:
                raise TypeError(f"{type(self).__name__}: {error}") from error
            bound.apply_defaults()
            vars(self).update(bound.arguments)

        me = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
        with_self = Signature([me, *signature.parameters.values()])
        __init__.__signature__ = with_self  # type: ignore[attr-defined]
        cls.__init__ = __init__  # type: ignore[method-assign]
        marker = "    Attributes\n    ----------"
        text = indent(described(signature, cls._Options, cls._meanings), "    ")
        cls.__doc__ = (cls.__doc__ or "").replace(marker, f"{text}\n\n{marker}", 1)

    # --- fitting ---

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Run the job on rows.

        Parameters
        ----------
        X : array-like, frame (pandas, polars, Arrow), Dask array or frame, or path, of n rows
            Strings and categories of a frame are categories. A path names Parquet files, as in a
            job. Dask collections are computed where Dask is told to, see `distfms.computing_on`.
        y : array-like of shape (n,) or (n, P), Dask collection, or str or list of str
            Target, chunked like `X` if both are Dask collections; or names of columns of a frame or
            of files, whose other columns are the features.
        sample_weight : array-like of shape (n,), Dask collection, or str, optional
            Weights ≥ 0, or the name of their column.
        groups : array-like of shape (n,), Dask collection, or str, optional
            What each row is of, such as a person, or the name of its column: rows of one stay in
            one fold, as those of one ``data.id`` of a job.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If data or parameters cannot be used. The message names the column or parameter.
        """
        return self._fit(X, y, roles={"weight": sample_weight, "id": groups})

    def _fit(
        self, X: Any, y: Any, roles: Any = (), beside: Any = (), unlabelled: Any = None
    ) -> Self:
        """Run the job in memory.

        Parameters
        ----------
        X, y : rows and targets
        roles : mapping
            Values of ``weight``, ``query`` and ``id``, or names of their columns.
        beside : mapping
            More columns, by the names the job reads them by.
        unlabelled : rows, optional
            Of ``data.unlabelled_path``.
        """
        with in_words_of_python(self._method), single_threaded_blas():
            opened, named = self._given(X, y, dict(roles), dict(beside))
            if unlabelled is not None:
                unlabelled = self._with_names(unlabelled, True)
                unlabelled = self._opened(unlabelled, {}, reset=True).dataset
            files, functions = self._run(opened, named, unlabelled)
        self._target = list(named["target"])
        if get_tags(self).estimator_type == "classifier":
            kind = opened.schema.field(self._target[0]).type
            kind = kind.value_type if pat.is_dictionary(kind) else kind
            self._class_type = kind.to_pandas_dtype()
        roles_of = (v for k, v in named.items() if k != "target")
        self._taken = [*self._target, *roles_of, *index_columns(opened.schema)]
        self._take(files, functions)
        return self

    def _run(self, opened: Given, named: Mapping[str, Any], unlabelled: Dataset | None) -> Any:
        from distfms.runs.driver import run_in_memory
        from distfms.runs.events import silent
        from distfms.runs.inputs import Origin
        from distfms.runs.job_spec import build_spec
        from distfms.runs.prepare import prepare

        no_features = (*named["target"], *named.values(), *index_columns(opened.schema))
        names = [name for name in opened.schema.names if name not in no_features]
        options = self._options(names, opened, named["target"])
        data = {name: plain(getattr(self, name)) for name in ("missing", "folds", "exclude")}
        n_jobs = plain(getattr(self, "n_jobs", None))  # −1 and None: as many as there are cores
        content: dict[str, Any] = {
            "name": type(self).__name__,
            "method": self._method,
            "seed": seed_of(self.random_state),
            "data": {"path": opened.path or NAME, **data, **named},
            self._method: options,
            "engine": {"workers": n_jobs if n_jobs and n_jobs > 0 else None, "cache": False},
            "output": f"memory://distfms-{uuid.uuid4().hex}",
        }
        if (tune := plain(getattr(self, "tune", None))) is not None:
            content["tune"] = tune if "grid" in tune else {"grid": tune}
        spec = build_spec(content)
        inputs = Inputs(opened.within(spec.partition_rows), None, spec.data, unlabelled)
        if inputs.train.n_rows < 2:
            raise DataError("At least 2 rows are needed; there are n_samples = 1.")
        prepared = prepare(spec, opened=(inputs, Origin((inputs.train.fingerprint,))))
        check_columns(self, self._names_seen(names, prepared.job), opened.named, reset=True)
        say = print if getattr(self, "verbose", False) else silent
        return run_in_memory(prepared, say), spec.options.functions

    def _options(
        self, names: Sequence[str], opened: Given, target: Sequence[str]
    ) -> dict[str, Any]:
        """Return the section of the method for data whose columns have these `names`."""
        return self._section()

    def _names_seen(self, names: Sequence[str], job: Job) -> Sequence[str]:
        """Return the columns of X that a fit has seen, also those that `exclude` leaves out."""
        return names

    def _section(self) -> dict[str, Any]:
        """Return the section of the method as the parameters have it."""
        section: dict[str, Any] = {}
        for name, option in self._Options.model_fields.items():
            if name in self._left_out or not hasattr(self, name):
                continue
            value = plain(getattr(self, name))
            if value is not None or option.default is None:
                section[name] = value
        return {**section, **self._fixed}

    def _given(
        self, X: Any, y: Any, roles: Any, beside: Any, reset: bool = True
    ) -> tuple[Given, dict[str, Any]]:
        """Open rows to learn from; return them, and the names of columns by role."""
        if y is None:
            raise DataError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y "
                "is None: give values, or the name of their column."
            )
        X = collected(X)
        has_names = are_named(X)
        X = self._with_names(X, reset)
        named: dict[str, Any] = {}
        values: dict[Any, Any] = {}
        is_class = get_tags(self).estimator_type == "classifier"
        taken_names = set() if kind_of(X).endswith("array") else set(column_names(X))
        for role, value in {"target": y, **roles}.items():
            if value is None:
                continue
            names = named_columns(X, value)
            if not names:
                if kind_of(X) == "parquet":
                    raise DataError(
                        "With a path of Parquet files, y, weights, queries and groups must be "
                        "names of columns."
                    )
                names = target_names(value) if role == "target" else [_ROLES[role]]
                names = [free_name(name, taken_names) for name in names]
                values[tuple(names)] = value
                if role == "weight" and kind_of(value) == "array":
                    values[tuple(names)] = weights_of(value, X)
            elif role == "target" and kind_of(X) == "frame" and not is_class and len(names) == 1:
                tell_classes(self, in_memory(X, names[0]))
            taken_names |= set(names)
            named[role] = names if role == "target" else names[0]
        values |= {(name,): value for name, value in beside.items()}
        opened = self._opened(X, values, tuple(named["target"]), reset=reset)
        return replace(opened, named=has_names), named

    def _with_names(self, X: Any, reset: bool = False) -> Any:
        """Return a frame whose columns have names, by position as in scikit-learn.

        Labels that are no texts are no names, and a model of columns without names has those of an
        array.
        """
        if "frame" not in kind_of(X):
            return X
        if reset:
            return X if are_named(X) else renamed(X, array_names((0, len(column_names(X)))))
        if hasattr(self, "feature_names_in_") and are_named(X):
            return X
        check_columns(self, column_names(X), are_named(X))
        return renamed(X, self._input_names)

    @property
    def _input_names(self) -> Sequence[str]:
        """Return the names of the columns of X, in their order; ``x0``, … where they have none."""
        return array_names((0, self.n_features_in_), getattr(self, "feature_names_in_", None))

    def _opened(
        self, X: Any, beside: dict[Any, Any], target: tuple[str, ...] = (), reset: bool = False
    ) -> Given:
        """Open rows and what stands beside them, after scikit-learn's checks."""
        kind = kind_of(X)
        tags = get_tags(self)
        if kind == "parquet":
            return of_files(X)
        if kind == "frame" and not hasattr(X, "iloc"):
            X = as_table(X)
        names = None
        if kind.endswith("array"):
            if kind == "array":
                X = validate_data(
                    self,
                    X,
                    reset=reset,
                    dtype=np.float64,
                    allow_nd=tags.input_tags.three_d_array,
                    ensure_all_finite="allow-nan" if tags.input_tags.allow_nan else True,
                )
            # As in scikit-learn, which warns: columns without names are those of the fit, in order.
            names_of_fit = None if reset else getattr(self, "feature_names_in_", None)
            names = array_names(X.shape, names_of_fit)
        if target in beside and not kind_of(beside[target]).startswith("dask"):
            n_rows = len(X) if not kind.startswith("dask") else len(beside[target])
            beside[target] = checked_target(self, beside[target], n_rows)
        model = None if reset else getattr(self, "model_", None)
        forms = AS_THEY_ARE if model is None else model.frame_forms
        if kind.startswith("dask"):
            empty = pa.list_(pa.float64()) if tags.input_tags.three_d_array else pa.string()
            return of_dask(X, names, beside, empty, forms)
        return of_memory(X, names, beside, forms.kinds, forms)

    @property
    def _levels(self) -> Mapping[str, Any]:
        """Return the levels of the columns that a model knows, None for numbers."""
        levels: Mapping[str, Any] = self.model_.run.model.get("sources", {})
        return levels

    # --- the finished run ---

    @classmethod
    def fits(cls, options: Mapping[str, Any]) -> bool:
        """Return whether a job with these options is that of this estimator."""
        takes = all(options[name] in values for name, values in cls._takes.items())
        return takes and cls._fixed.items() <= options.items()

    def _take(self, files: Any, functions: Iterable[str] = ()) -> None:
        """Take a finished run, whose model may call some functions, for what was learned."""
        from distfms.runs.serve import Model

        self.model_ = Model(files, None, functions)
        self.curves_ = {c["name"]: c["points"] for c in self.model_.run.metrics["curves"]}
        self._read(self.model_.run)

    def _known_columns(self) -> list[str]:
        """Return the columns of X, as far as the model knows them."""
        return list(self._levels)

    def _read(self, run: FinishedRun) -> None:
        """Set the attributes with a trailing underscore."""

    def _name_columns(self, columns: Sequence[str]) -> None:
        """Take names for those of the columns of a fit; ``x0``, … are those of an array."""
        self.n_features_in_ = len(columns)
        if list(columns) != array_names((0, len(columns))):
            self.feature_names_in_ = np.array(columns, dtype=object)

    def report(self) -> Page:
        """Return the report of the run, the HTML page that a job writes; notebooks show it."""
        check_is_fitted(self)
        return Page(self.model_.page())

    def plot(self) -> Any:
        """Draw the first figure of the report with matplotlib (``distfms[plot]``).

        Returns
        -------
        matplotlib.axes.Axes
        """
        check_is_fitted(self)
        return self.model_.plot()

    def _html_repr(self) -> str:
        """Return what notebooks show: parameters as of any estimator, and the result of a fit."""
        shown: str = super()._html_repr()
        model = getattr(self, "model_", None)
        return shown if model is None else f"{shown}<p>{escape(model.headline())}</p>"

    def summary(self) -> str:
        """Return the result in words."""
        check_is_fitted(self)
        text: str = self.model_.headline()
        notes = self.model_.run.manifest.get("notes", [])
        return said("\n".join([text, *(f"- {note}" for note in notes)]), self._method)

    def save(self, folder: Any) -> Path:
        """Write the run as a folder that `distfms predict`, a registry and `load` take.

        Parameters
        ----------
        folder : path
            New or empty.

        Returns
        -------
        Path
        """
        check_is_fitted(self)
        place = Path(folder)
        if place.exists() and any(place.iterdir()):
            raise SpecError(f"The folder {place} is not empty: choose another.")
        for name, payload in self.model_.files.files.items():
            target = place / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(payload)
        return place

    # --- prediction ---

    def _predicted(
        self, X: Any, prefix: str, budget: float | None, tail: tuple[int, ...] = (),
        dtype: Any = float, **stop: Any,
    ) -> Any:  # fmt: skip
        """Apply the run's predictor; return the columns of predictions with a prefix."""
        check_is_fitted(self)
        with in_words_of_python(self._method), single_threaded_blas():
            opened = self._apply(X, self._needed(budget, **stop))
            predict = self.model_.predictor(opened.head, budget, **stop)
            return opened.stack(partial(predictions_of, predict, prefix, dtype), tail, dtype)

    def _from_batches(
        self, X: Any, needed: Sequence[str], function: Callable[[RowBatch], Any],
        tail: tuple[int, ...] = (),
    ) -> Any:  # fmt: skip
        """Apply a picklable function to batches of rows, of columns as the model reads them."""
        opened = self._apply(X, needed=needed)
        plan = plan_of_model(opened.head, needed, self._levels, None)
        return opened.stack(partial(_of_batch, opened.head.reader, plan, function), tail)

    def _apply(
        self, X: Any, needed: Sequence[str], beside: Mapping[str, Any] | None = None
    ) -> Given:
        """Open rows to predict; frames may lack columns that are not needed."""
        X = collected(X)
        kind = kind_of(X)
        if kind == "dask-array":
            check_columns(self, array_names(X.shape[:2]), False)
        if "frame" in kind:
            has_names = are_named(X) and hasattr(self, "feature_names_in_")
            X = self._with_names(X)
            if has_names:
                self._check_names(without(X, self._taken), needed)
        return self._opened(X, {(name,): value for name, value in (beside or {}).items()})

    def _check_names(self, X: Any, needed: Sequence[str]) -> None:
        """Check the names of a frame, which may lack columns that are not needed."""
        names = self._names_of(X)
        names_of_fit = set(self.feature_names_in_)
        if set(needed) <= set(names) and not names_of_fit <= set(names):
            return
        excluded = set[str]()
        for pattern in self._excluded:
            excluded.update(fnmatch.filter(names, pattern))
        excluded -= names_of_fit
        check_columns(self, [name for name in names if name not in excluded], True)

    def _names_of(self, X: Any) -> Sequence[str]:
        """Return the features that a frame has."""
        return column_names(X)

    def _needed(self, budget: float | None, **stop: Any) -> Sequence[str]:
        """Return the columns that a prediction needs."""
        return list(self._levels)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing != "error"
        return tags


_ROLES = {"weight": "sample_weight", "query": "query", "id": "groups"}


def _of_batch(reader: Any, plan: ColumnPlan, function: Any, partition: Any) -> np.ndarray:
    """Apply a function to a batch, in which unknown categories are missing values."""
    batch = read_rows(reader, partition, plan, missing="mean")
    for column in plan.columns:
        if column.levels is not None:
            set_missing(batch.values, column)
    result: np.ndarray = function(batch)
    return result
