"""Attribute-efficient regression as scikit-learn estimators, with ask and tell."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self
from zipfile import BadZipFile

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data

from distfms.data.batches import ColumnPlan, RowBatch, read_rows
from distfms.data.roles import resolve_roles
from distfms.engine.blas import single_threaded_blas
from distfms.engine.storage import locate, open_binary, write_whole
from distfms.errors import DataError, SpecError
from distfms.estimators.base import JobEstimator
from distfms.estimators.checks import checked_target
from distfms.estimators.inputs import Given, array_names, kind_of, of_memory
from distfms.estimators.kinds import JobRegressor
from distfms.estimators.parameters import in_words_of_python
from distfms.methods.attribute_efficient.evaluation import design_with, root_mean_squares
from distfms.methods.attribute_efficient.learner import Chain, Design, Questions, Session
from distfms.methods.attribute_efficient.lessons import stream
from distfms.methods.attribute_efficient.options import ALGORITHMS, AttributeEfficientOptions
from distfms.methods.contract import FinishedRun
from distfms.spec import parse_section
from distfms.stats.base import from_bytes, to_bytes

_META = "meta.json"
#: What of a design is saved as arrays.
_ARRAYS = ("moments", "norm")


class AttributeEfficientBase(JobRegressor, JobEstimator):
    """What ridge and lasso share; see :class:`distfms.AttributeEfficientRidge`."""

    _method = "attribute_efficient"
    _Options = AttributeEfficientOptions
    _first = ("attributes_per_example",)
    _left_out = ("image",)
    _defaults: ClassVar[Mapping[str, Any]] = {
        "attributes_per_example": 5,
        "baselines": (),
        "repeats": 0,
        "norm": None,
        "second_moments": None,
        "n_examples": None,
    }
    _meanings: ClassVar[Mapping[str, str]] = {
        "norm": "What attributes are divided by where examples come later, by default 1.",
        "second_moments": "E[x²] of the attributes, shape (d,), where examples come later.",
        "n_examples": "How many examples will come, which the step depends on.",
    }
    attributes_per_example: int
    norm: float | None
    second_moments: Any
    n_examples: int | None
    bound: float | None
    step: float | None
    standardize: bool

    # --- learning from rows ---

    def fit(self, X: Any, y: Any) -> Self:  # type: ignore[override]
        """Learn from rows at hand, of which only the attributes that are drawn are looked at.

        Parameters
        ----------
        X : array-like, frame, Dask collection or path, of n rows
        y : array-like of shape (n,), Dask collection, or str
            Target, or the name of its column.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If data or parameters cannot be used.
        """
        if hasattr(self, "session_"):
            del self.session_
        return self._fit(X, y)

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Learn from more rows, in their order; the first call is a `start`.

        Parameters
        ----------
        X, y : as for `fit`

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If examples are open that were asked for, or a parameter is missing; see `start`.
        """
        begun = hasattr(self, "session_")
        with in_words_of_python(self._method), single_threaded_blas():
            rows, target, names = self._rows(X, y, reset=not begun)
            if not begun:
                self._begin(names, self._known_design(rows.shape[1]))
            session = self.session_
            if session.n_open:
                raise SpecError(
                    f"{session.n_open} examples were asked for and not told: tell them before "
                    "`partial_fit`."
                )
            session.chain.design.require_within(rows, target)
            session.chain.learn(rows, target)
            session.n_asked = session.chain.n_examples
        return self

    def _rows(self, X: Any, y: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray, Any]:
        """Read all rows and their targets into memory; return also the names of the columns."""
        if kind_of(X) == kind_of(y) == "array":
            X = validate_data(self, X, reset=reset, dtype=np.float64)
            return X, np.asarray(checked_target(self, y, len(X)), dtype=np.float64), None
        given, named = self._given(X, y, {}, {}, reset=reset)
        roles = resolve_roles(given.schema, target=named["target"])
        names = roles.features
        plan = ColumnPlan.from_schema(given.schema, roles, {})
        reader, partitions = given.dataset.reader, given.dataset.partitions
        blocks = [read_rows(reader, partition, plan).values.copy() for partition in partitions]
        block = np.concatenate(blocks, axis=1)
        return np.ascontiguousarray(block[:-1].T), block[-1], names if given.named else None

    # --- learning from answers ---

    def start(self, features: int | Sequence[str], n_examples: int | None = None) -> Self:
        """Begin to learn from examples that come later.

        Parameters
        ----------
        features : int or sequence of str
            Number or names of the attributes.
        n_examples : int, optional
            How many examples are planned, which the step depends on; default: the parameter.

        Returns
        -------
        self

        Raises
        ------
        SpecError
            If the bound, the number of examples or, where attributes are drawn by them, the second
            moments are not known.
        """
        names = None if isinstance(features, int) else list(features)
        d = features if isinstance(features, int) else len(features)
        with in_words_of_python(self._method):
            self._begin(names, self._known_design(d, n_examples))
        return self

    def _begin(self, names: Sequence[str] | None, design: Design) -> None:
        self._name_columns(names, design.n_attributes)
        self.session_ = Session(Chain(design, stream(int(self.random_state or 0), 0)))

    def _name_columns(self, names: Sequence[str] | None, n_attributes: int) -> None:
        self.n_features_in_, self._taken, self._array = n_attributes, [], None
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        else:
            known = array_names((0, n_attributes))
            self._array = of_memory(np.zeros((1, n_attributes)), known, {}).without_rows()

    def ask(self, n: int = 1) -> Questions:
        """Return which attributes to acquire of `n` new examples."""
        return self._started().ask(n)

    def tell(self, values: Any, y: Any, examples: Any = None) -> Self:
        """Learn from attributes that were acquired; see :meth:`Session.tell`."""
        self._started().tell(values, y, examples)
        return self

    def save(self, path: Any) -> Any:
        """Write the state of a session to a file (npz), or after `fit` the run to a folder."""
        if not hasattr(self, "session_"):
            return super().save(path)
        session = self.session_
        names = getattr(self, "feature_names_in_", None)
        design = {k: v for k, v in vars(session.chain.design).items() if k not in _ARRAYS}
        meta = {"names": None if names is None else list(names), "spec": self._spec(), **design}
        content = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
        arrays = {**session.to_arrays(), _META: content}
        for name in _ARRAYS:
            if (value := getattr(session.chain.design, name)) is not None:
                arrays[name] = np.asarray(value)
        write_whole(locate(path), to_bytes(arrays))
        return path

    def resume(self, path: Any = None) -> Self:
        """Go on from a file that `save` wrote.

        Raises
        ------
        SpecError
            If it is the state of an estimator with other parameters.
        DataError
            If it is no such file.
        """
        if not isinstance(self, AttributeEfficientBase):
            raise SpecError(
                "`resume` needs an estimator with the parameters that the state was saved with: "
                "call it on one, not on the class."
            )
        try:
            with open_binary(locate(path)) as file:
                arrays = from_bytes(file.read())
            meta = json.loads(arrays.pop(_META).tobytes())
            spec, names = meta.pop("spec"), meta.pop("names")
            kept: Any = {name: arrays.pop(name, None) for name in _ARRAYS}
            design = Design(**meta, **kept)
        except (OSError, ValueError, KeyError, TypeError, BadZipFile) as error:
            raise DataError(f"{path} holds no state of attribute-efficient learning.") from error
        for name, value in self._spec().items():
            if spec.get(name) != value:
                raise SpecError(
                    f"The state in {path} was saved with {name} = {spec.get(name)!r}, and this "
                    f"estimator has {value!r}: resume it with the parameters it began with."
                )
        self._name_columns(names, design.n_attributes)
        self.session_ = Session.from_arrays(design, arrays)
        return self

    def _spec(self) -> dict[str, Any]:
        moments = None if self.second_moments is None else np.asarray(self.second_moments, float)
        own = {**self.get_params(), **self._fixed}
        own["second_moments"] = None if moments is None else moments.tolist()
        return {name: list(v) if isinstance(v, tuple) else v for name, v in own.items()}

    # --- what was learned ---

    def _read(self, run: FinishedRun) -> None:
        self._learned = {
            "coef": run.weights["weights"],
            "intercept": run.model["intercept"],
            "seen": run.selection["attributes_seen"],
            "examples": run.selection["examples"],
            "ratio": run.selection["improvement_ratio"],
        }

    def _of(self, name: str, chain: Any) -> Any:
        """Return what a session's chain has learned, or what the run says of it."""
        if hasattr(self, "session_"):
            return chain(self.session_.chain)
        check_is_fitted(self)
        return self._learned[name]

    @property
    def coef_(self) -> np.ndarray:
        """Weights of the attributes as they come, shape (d,)."""
        weights: np.ndarray = self._of("coef", lambda chain: chain.weights)
        return weights

    @property
    def intercept_(self) -> float:
        """What predictions are for attributes of 0."""
        return float(self._of("intercept", lambda chain: chain.design.offset))

    @property
    def attributes_seen_(self) -> int:
        """Attributes that were observed."""
        return int(self._of("seen", lambda chain: chain.n_seen))

    @property
    def n_examples_seen_(self) -> int:
        """Examples learned from."""
        return int(self._of("examples", lambda chain: chain.n_examples))

    @property
    def improvement_ratio_(self) -> float:
        """ρ: drawing by second moments can save a factor of up to 1/ρ; NaN while none are known."""
        return float(self._of("ratio", _ratio))

    def predict(self, X: Any, budget: float | None = None) -> Any:
        """Predict targets from all attributes; there is no `budget` for that."""
        check_is_fitted(self)
        if not hasattr(self, "session_"):
            return super().predict(X, budget)
        products = partial(_products, self.coef_, self.intercept_)
        return self._from_batches(X, list(self._levels), products)

    @property
    def _levels(self) -> Mapping[str, Any]:
        if not hasattr(self, "session_"):
            return super()._levels
        names = getattr(self, "feature_names_in_", array_names((0, self.n_features_in_)))
        return dict.fromkeys(names)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "session_") or super().__sklearn_is_fitted__()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # of the few rows of a check
        return tags

    # --- a design without data ---

    def _started(self) -> Session:
        if not hasattr(self, "session_"):
            raise NotFittedError(
                f"This {type(self).__name__} has not begun: call `partial_fit`, `start` or "
                "`resume` first."
            )
        return self.session_

    def _known_design(self, n_attributes: int, n_examples: int | None = None) -> Design:
        """Return the design by the parameters alone."""
        options = parse_section(AttributeEfficientOptions, self._section(), self._method)
        self._require_attributes(n_attributes)
        if options.solver == "pairs":
            raise SpecError(
                "A session learns from one example after the other: leave `solver` out, or set it "
                "to 'online'."
            )
        if options.intercept:
            raise SpecError(
                "Before any example is seen, the mean of the target is not known: leave "
                "`intercept` out, and centre the targets if you can."
            )
        moments = self._moments(n_attributes)
        sampling = ALGORITHMS[options.penalty][options.chosen]
        n_examples = self.n_examples if n_examples is None else n_examples
        needed: dict[str, Any] = {"bound": self.bound, "n_examples": n_examples}
        if sampling == "moments" or self.standardize:
            needed["second_moments"] = moments
        for name, value in needed.items():
            if value is None:
                by_moments = name == "second_moments" and not self.standardize
                other = " or an algorithm of two phases" if by_moments else ""
                raise SpecError(f"Before any example is seen, `{name}` has to be given{other}.")
        norm: Any = 1.0 if self.norm is None else float(self.norm)
        return design_with(
            options,
            int(n_examples or 1),
            bound=float(self.bound or 1.0),
            norm=norm * root_mean_squares(moments) if self.standardize else norm,
            moments=moments,
            n_attributes=n_attributes,
            fixed_step=self.step,
        )

    def _require_attributes(self, n_attributes: int) -> None:
        if (self.attributes_per_example or 0) > n_attributes:
            raise SpecError(
                f"attributes_per_example is {self.attributes_per_example}, but the data have only "
                f"n_features = {n_attributes}."
            )

    def _options(self, names: Sequence[str], given: Given, target: Sequence[str]) -> dict[str, Any]:
        self._require_attributes(len(names))
        return super()._options(names, given, target)

    def _moments(self, n_attributes: int) -> Any:
        if self.second_moments is None:
            return None
        moments = np.asarray(self.second_moments, dtype=np.float64)
        bad = moments.shape != (n_attributes,) or not np.isfinite(moments).all()
        if bad or (moments < 0).any() or not moments.any():
            raise SpecError(
                f"second_moments has to hold {n_attributes} numbers, one for each attribute, at "
                "least 0 and not all 0."
            )
        return moments


def _ratio(chain: Chain) -> float:
    design = chain.design
    if design.moments is None and chain.n_examples:
        design = replace(design, moments=chain.estimated_moments)
    return design.improvement_ratio


def _products(weights: np.ndarray, intercept: float, batch: RowBatch) -> np.ndarray:
    return weights @ batch.values + intercept


class AttributeEfficientRidge(AttributeEfficientBase):
    """Linear regression with ‖w‖₂ ≤ B from few attributes of each example.

    `fit` learns from rows at hand, as the job does. Where examples come later, `start` or
    `partial_fit` begin a session, `ask` says which attributes to acquire, `tell` learns from them.

    Attributes
    ----------
    coef_ : ndarray of shape (d,)
        For attributes as they come.
    intercept_ : float
        What is predicted for attributes of 0.
    attributes_seen_, n_examples_seen_ : int
    improvement_ratio_ : float
    model_ : distfms.runs.serve.Model
        The finished run, after `fit`.
    session_ : Session
        After `start`, `partial_fit` or `resume`.

    References
    ----------
    Kukliansky and Shamir, "Attribute Efficient Linear Regression with Distribution-Dependent
    Sampling" (ICML 2015), Algorithms 1 and 2.

    Examples
    --------
    >>> from distfms import AttributeEfficientRidge
    >>> model = AttributeEfficientRidge(
    ...     attributes_per_example=2, algorithm="two_phase_ddaerr", bound=1.0, n_examples=100
    ... ).start(["age", "pulse", "hdl"])
    >>> questions = model.ask(2)
    >>> questions.attributes.shape
    (2, 2)
    >>> model.tell([[0.4, 0.1], [0.2, 0.3]], y=[1.0, -1.0]).n_examples_seen_
    2
    """

    _fixed: ClassVar[Mapping[str, Any]] = {"penalty": "ridge"}


class AttributeEfficientLasso(AttributeEfficientBase):
    """Linear regression with ‖w‖₁ ≤ B from few attributes of each example.

    The algorithms are ``ddaelr``, ``two_phase_ddaelr`` and ``aelr``.

    Attributes
    ----------
    coef_, intercept_, attributes_seen_, n_examples_seen_, improvement_ratio_, model_, session_
        See :class:`AttributeEfficientRidge`.

    References
    ----------
    As :class:`AttributeEfficientRidge`, Algorithms 3 and 4.
    """

    _fixed: ClassVar[Mapping[str, Any]] = {"penalty": "lasso"}
