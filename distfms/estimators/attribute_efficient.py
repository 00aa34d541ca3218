"""Attribute-efficient regression as scikit-learn estimators, with ask and tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data

from distfms.data.rows.batches import RowBatch
from distfms.engine.blas import single_threaded_blas
from distfms.errors import DataError, SpecError
from distfms.estimators.base import JobEstimator
from distfms.estimators.inputs import array_names
from distfms.estimators.parameters import checked_target, in_words_of_python, plain
from distfms.estimators.predicting import JobRegressor
from distfms.methods.attribute_efficient.draws import FIRST_PHASE, Draws, drawing_weights
from distfms.methods.attribute_efficient.learner import Chain
from distfms.methods.attribute_efficient.lessons import design_with, stream
from distfms.methods.attribute_efficient.options import AttributeEfficientOptions
from distfms.methods.attribute_efficient.predictors import Predictor
from distfms.methods.attribute_efficient.session import PairsLearner, Questions, Session
from distfms.methods.frame.contract import FinishedRun
from distfms.spec import parse_section
from distfms.stats.codec import decode, encode
from distfms.store.places import locate, open_binary, write_whole


class AttributeEfficientBase(JobRegressor, JobEstimator):
    """Base of ridge and lasso; see :class:`distfms.AttributeEfficientRidge`."""

    _method = "attribute_efficient"
    _Options = AttributeEfficientOptions
    _first = ("attributes_per_example",)
    _defaults: ClassVar[Mapping[str, Any]] = {
        "attributes_per_example": None,
        "repeats": 0,
        "second_moments": None,
        "n_examples": None,
    }
    _meanings: ClassVar[Mapping[str, str]] = {
        "attributes_per_example": "Attributes to draw of each row: k + 1 of the paper. Default: 5, "
        "or all of fewer; with `missing='pairs'`, all that a row has.",
        "second_moments": "E[x²] of the attributes, shape (d,), for a session.",
        "n_examples": "Planned number of examples; the online step and two phases depend on it.",
    }
    attributes_per_example: int | None
    second_moments: Any
    n_examples: int | None
    bound: float | None

    # --- learning from rows ---

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:  # type: ignore[override]
        """Learn from available rows, using only the attributes that are drawn.

        Parameters
        ----------
        X : array-like, frame, Dask collection or path, of n rows
        y : array-like of shape (n,), Dask collection, or str
            Target, or the name of its column.
        groups : array-like of shape (n,), Dask collection, or str, optional
            What each row is of, such as a person, or the name of its column: rows of one stay in
            one fold.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If data or parameters cannot be used.
        """
        self.__dict__.pop("session_", None)
        return self._fit(X, y, roles={"id": groups})

    def partial_fit(self, X: Any, y: Any) -> Self:
        """Learn from more rows, in their order; the first call starts a session.

        Uses only the attributes that are drawn of each row.

        Parameters
        ----------
        X : array-like or frame in memory, of n rows
        y : array-like of shape (n,)

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If examples that were asked for have not been told, or a parameter is missing; see
            `start`.
        """
        begun = hasattr(self, "session_")
        with in_words_of_python(self._method):
            rows = validate_data(
                self, X, reset=not begun, dtype=np.float64, ensure_all_finite=False
            )
            target = np.asarray(checked_target(self, y, len(rows)), dtype=np.float64)
            if not begun:
                names = getattr(self, "feature_names_in_", array_names(rows.shape))
                self._begin(list(names))
            if self.session_.n_open:
                raise SpecError(
                    f"{self.session_.n_open} examples were asked for but not told: tell them "
                    "before `partial_fit`."
                )
            self.session_.learn(rows, target)
        return self

    # --- learning from answers ---

    def start(self, features: int | Sequence[str], n_examples: int | None = None) -> Self:
        """Start a session that learns from examples to come.

        The solver `pairs` needs `second_moments` or `n_examples` only if draws depend on them;
        `online` needs `bound` and `n_examples`.

        Parameters
        ----------
        features : int or sequence of str
            Number or names of the attributes.
        n_examples : int, optional
            Planned number of examples; default: the parameter.

        Returns
        -------
        self

        Raises
        ------
        SpecError
            If a parameter that is needed is missing.
        """
        names = array_names((0, features)) if isinstance(features, int) else list(features)
        with in_words_of_python(self._method):
            self._begin(names, n_examples)
        return self

    def _begin(self, names: Sequence[str], n_examples: int | None = None) -> None:
        n_examples = self.n_examples if n_examples is None else n_examples
        self.session_ = Session(self._new_learner(len(names), n_examples))
        self._planned = n_examples
        self._taken = []
        self._name_columns(names)

    def ask(self, n: int = 1) -> Questions:
        """Return which attributes to acquire of `n` new examples."""
        return self._started().ask(n)

    def tell(self, values: Any, y: Any, examples: Any = None) -> Self:
        """Learn from acquired attributes; see :meth:`Session.tell`."""
        self._started().tell(values, y, examples)
        return self

    def merge(self, other: AttributeEfficientBase) -> Self:
        """Merge another session into this one, such as that of another clinic.

        The result is that of one session that was told all their examples. Examples that the other
        session asked for but was not told stay there.

        Parameters
        ----------
        other : estimator with a session
            With the same parameters and attributes, but another `random_state`.

        Returns
        -------
        self

        Raises
        ------
        SpecError
            If parameters or attributes differ, both sessions asked for the same attributes, or the
            solver is not ``pairs``.
        """
        session = self._started()
        with in_words_of_python(self._method):
            self._require_spec(other._spec(), "The other session", but="random_state")
            if list(self._levels) != list(other._levels):
                raise SpecError(
                    "The two sessions have different attributes: merge sessions of the same ones."
                )
            ours = session.learner
            theirs = other._started().learner
            if not (isinstance(ours, PairsLearner) and isinstance(theirs, PairsLearner)):
                raise SpecError(
                    "The online learner cannot merge sessions, as each step builds on the last: "
                    "set `solver: pairs`."
                )
            ours.merge(theirs)
        return self

    def save(self, path: Any) -> Any:
        """Write the state of a session to a file , or after `fit` the run to a folder.

        Pairs of d attributes take 120 d² bytes: 30 MB for 500 attributes.
        """
        if not hasattr(self, "session_"):
            return super().save(path)
        meta = {"spec": self._spec(), "names": [*self._levels], "n_examples": self._planned}
        write_whole(locate(path), encode({**meta, "session": self.session_.content()}))
        return path

    def resume(self, path: Any = None) -> Self:
        """Resume a session from a file that `save` wrote.

        Raises
        ------
        SpecError
            If the state is of an estimator with other parameters.
        DataError
            If the file holds no session.
        """
        try:
            with open_binary(locate(path)) as file:
                saved = decode(file.read())
            spec = saved["spec"]
            names = saved["names"]
            n_examples = saved["n_examples"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} holds no session: name a file that `save` wrote.") from error
        self._require_spec(spec, f"The state in {path}")
        with in_words_of_python(self._method):
            self._begin(names, n_examples)
        self.session_.restore(saved["session"])
        return self

    def _require_spec(self, spec: Mapping[str, Any], what: str, but: str = "") -> None:
        for name, value in self._spec().items():
            if spec.get(name) != value and name != but:
                raise SpecError(
                    f"{what} has {name} = {spec.get(name)!r}, but this estimator has {value!r}: "
                    "give both the same parameters."
                )

    def _spec(self) -> dict[str, Any]:
        return plain({**self.get_params(), **self._fixed})

    # --- what was learned ---

    def _read(self, run: FinishedRun) -> None:
        selection = run.selection
        self._of_run = SimpleNamespace(
            weights=run.weights["weights"],
            intercept=run.model["intercept"],
            n_seen=selection["attributes_seen"],
            n_examples=selection["examples"],
            improvement_ratio=selection["improvement_ratio"],
        )

    @property
    def _learned(self) -> Any:
        """Return what a session has learned, or what the run says of it."""
        if hasattr(self, "session_"):
            return self.session_.learner
        check_is_fitted(self)
        return self._of_run

    @property
    def coef_(self) -> np.ndarray:
        """Weights of the unscaled attributes, shape (d,)."""
        with single_threaded_blas():
            weights: np.ndarray = self._learned.weights
        return weights

    @property
    def intercept_(self) -> float:
        """Prediction when all attributes are 0."""
        with single_threaded_blas():
            return float(self._learned.intercept)

    @property
    def attributes_seen_(self) -> int:
        """Attributes that were observed."""
        return int(self._learned.n_seen)

    @property
    def n_examples_seen_(self) -> int:
        """Examples learned from."""
        return int(self._learned.n_examples)

    @property
    def improvement_ratio_(self) -> float:
        """ρ: drawing by second moments can save a factor of up to 1/ρ; NaN while none are known."""
        return float(self._learned.improvement_ratio)

    def predict(self, X: Any, budget: float | None = None, **stop: Any) -> Any:
        """Predict targets from all attributes; takes no `budget`."""
        check_is_fitted(self)
        if not hasattr(self, "session_"):
            return super().predict(X, budget, **stop)
        predict = partial(_predicted, self.session_.learner.predictor)
        return self._from_batches(X, list(self._levels), predict)

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

    # --- a session without data ---

    def _started(self) -> Session:
        if not hasattr(self, "session_"):
            raise NotFittedError(
                f"This {type(self).__name__} has no session: call `partial_fit`, `start` or "
                "`resume` first."
            )
        return self.session_

    def _new_learner(self, n_attributes: int, n_examples: int | None) -> Chain | PairsLearner:
        """Return a learner by the parameters alone."""
        options = parse_section(AttributeEfficientOptions, self._section(), self._method)
        options = options.of_attributes(n_attributes, self.missing == "pairs")
        by_pairs = options.solves_pairs(n_attributes)
        if by_pairs:
            options = options.model_copy(update={"solver": "pairs"})
        elif options.norm == "largest":
            raise SpecError(
                "Before any example is seen, the largest norm is unknown: set `norm` to a number."
            )
        moments = self._moments(n_attributes)
        sampling = options.sampling
        lacking = {
            "bound": self.bound is None and not by_pairs,
            "n_examples": n_examples is None and (not by_pairs or sampling == "two_phase"),
            "second_moments": moments is None and sampling == "moments",
        }
        for name, is_lacking in lacking.items():
            if not is_lacking:
                continue
            by_moments = name == "second_moments" and not by_pairs
            instead = " or `draws: two_phase`" if by_moments else ""
            raise SpecError(f"Before any example is seen, `{name}` must be given{instead}.")
        seed = stream(int(self.random_state or 0), 0)
        if by_pairs:
            weights = drawing_weights(moments) if sampling == "moments" else None
            n_first = max(1, (n_examples or 0) // FIRST_PHASE) if sampling == "two_phase" else 0
            draws = Draws(options.attributes_per_example, seed, weights)
            takes_gaps = self.missing == "pairs"
            return PairsLearner(
                n_attributes, draws, options.penalty, takes_gaps, n_first, options.units
            )
        planned = int(n_examples or 1)
        design = design_with(
            options,
            planned,
            planned,
            bound=float(self.bound or 1.0),
            norm=float(options.norm or 1.0),
            moments=moments,
            n_attributes=n_attributes,
        )
        return Chain(design, seed)

    def _moments(self, n_attributes: int) -> Any:
        if self.second_moments is None:
            return None
        moments = np.asarray(self.second_moments, dtype=np.float64)
        bad = moments.shape != (n_attributes,) or not np.isfinite(moments).all()
        if bad or (moments < 0).any() or not moments.any():
            raise SpecError(
                f"second_moments must hold {n_attributes} numbers, one per attribute, at least 0 "
                "and not all 0."
            )
        return moments


def _predicted(predictor: Predictor, batch: RowBatch) -> np.ndarray:
    return predictor(batch.values)[0]


class AttributeEfficientRidge(AttributeEfficientBase):
    """Ridge regression from few attributes of each example.

    By default, solves once for the weights, from the moments of pairs of attributes observed
    together; with an option of the online learner, takes a step for each example under ‖w‖₂ ≤
    `bound`. After `fit` with `solver="auto"`, a mean of LightGBM and a normal model of all that was
    observed predicts (of LightGBM and pairs, where rows are many), with the share that is best on
    the folds; `coef_` are those of the linear model. `fit` learns from
    available rows, as the job does. For examples to come, `start` or `partial_fit` starts a
    session, `ask` says which attributes to acquire, `tell` learns from them, and `merge` adds
    another session.

    Attributes
    ----------
    coef_ : ndarray of shape (d,)
        Weights of the unscaled attributes.
    intercept_ : float
        Prediction when all attributes are 0.
    attributes_seen_, n_examples_seen_ : int
    improvement_ratio_ : float
    model_ : distfms.runs.serve.Model
        The finished run, after `fit`.
    session_ : Session
        After `start`, `partial_fit` or `resume`.

    References
    ----------
    Online: Kukliansky and Shamir, "Attribute Efficient Linear Regression with
    Distribution-Dependent Sampling" (ICML 2015), Algorithms 1 and 2. Pairs: Loh and Wainwright,
    "High-dimensional regression with noisy and missing data", Annals of Statistics 40 (2012).

    Examples
    --------
    >>> from distfms import AttributeEfficientRidge
    >>> model = AttributeEfficientRidge(attributes_per_example=2).start(["age", "pulse", "hdl"])
    >>> questions = model.ask(2)
    >>> questions.attributes.shape
    (2, 2)
    >>> model.tell([[0.4, 0.1], [0.2, 0.3]], y=[1.0, -1.0]).n_examples_seen_
    2
    """

    _fixed: ClassVar[Mapping[str, Any]] = {"penalty": "ridge"}


class AttributeEfficientLasso(AttributeEfficientBase):
    """Lasso regression from few attributes of each example.

    Like :class:`AttributeEfficientRidge`, but the online learner keeps ‖w‖₁ ≤ `bound`; its
    algorithms are DDAELR, two-phase DDAELR and AELR.

    Attributes
    ----------
    coef_, intercept_, attributes_seen_, n_examples_seen_, improvement_ratio_, model_, session_
        See :class:`AttributeEfficientRidge`.

    References
    ----------
    See :class:`AttributeEfficientRidge`; online Algorithms 3 and 4.
    """

    _fixed: ClassVar[Mapping[str, Any]] = {"penalty": "lasso"}
