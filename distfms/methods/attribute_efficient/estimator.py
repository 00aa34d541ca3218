"""Attribute-efficient regression as scikit-learn estimators, with ask and tell."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal, Self
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
from sklearn.exceptions import NotFittedError

from distfms.data.batches import ColumnPlan, RowBatch
from distfms.data.folds import mix
from distfms.data.roles import Roles
from distfms.engine.blas import single_threaded_blas
from distfms.engine.storage import locate, open_binary, write_whole
from distfms.errors import DataError, SpecError
from distfms.methods.attribute_efficient.evaluation import design_of, design_with, root_mean_squares
from distfms.methods.attribute_efficient.learner import Chain, Design, Questions, Session
from distfms.methods.attribute_efficient.lessons import stream
from distfms.methods.attribute_efficient.options import ALGORITHMS, AttributeEfficientOptions
from distfms.methods.attribute_efficient.read import Norms
from distfms.methods.row_estimator import RowRegressor
from distfms.methods.rows import RowCounts
from distfms.stats.base import from_bytes, to_bytes
from distfms.stats.moments import Moments

_META = "meta.json"
#: What of a design is saved as arrays.
_ARRAYS = ("moments", "norm")


@dataclass(eq=False, repr=False)
class AttributeEfficientBase(RowRegressor):
    """What ridge and lasso share; see :class:`distfms.AttributeEfficientRidge`."""

    _penalty: ClassVar[Literal["ridge", "lasso"]]

    attributes_per_example: int = 5
    _: KW_ONLY
    algorithm: str | None = None
    bound: float | None = None
    norm: float | None = None
    second_moments: Any = None
    n_examples: int | None = None
    step: float | None = None
    step_factor: float = 1.0
    first_step_factor: float = 1.0
    split: str = "even"
    inner_product: str = "improved"
    confidence: float = 0.0
    standardize: bool = False
    intercept: bool = False
    random_state: int = 0

    # --- learning from rows ---

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows at hand, of which only the attributes that are drawn are looked at.

        Moments, norm and bound that are not given are those of all rows, as in a job.

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
        with single_threaded_blas():
            rows, target = self._rows(X, y, reset=True)
            if len(rows) < 2:
                raise DataError(f"At least 2 rows are needed; there are n_samples = {len(rows)}.")
            self._begin(self._design(rows, target))
            keys = mix(
                np.uint64(stream(self.random_state, 1)) ^ np.arange(len(rows), dtype=np.uint64)
            )
            self.session_.chain.learn(rows, target, np.argsort(keys))
        self.session_.n_asked = len(rows)
        return self

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
        rows, target = self._rows(X, y, reset=not begun)
        if not begun:
            self._begin(self._known_design(rows.shape[1]))
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

    def _rows(self, X: Any, y: Any, *, reset: bool) -> tuple[np.ndarray, np.ndarray]:
        """Read all rows and their targets into memory."""
        source, rows = self._open(X, y, reset=reset)
        texts = [column.name for column in rows.plan.columns if column.levels is not None]
        if texts:
            raise DataError(f"The column {texts[0]!r} holds text; attributes are numbers here.")
        block = np.concatenate(source.map(rows.then(_copied)), axis=1)
        return np.ascontiguousarray(block[:-1].T), block[-1]

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
        design = self._known_design(d, n_examples)
        self._name_columns(names, d)
        self._begin(design)
        return self

    def _name_columns(self, names: Sequence[str] | None, n_attributes: int) -> None:
        self.n_features_in_ = n_attributes
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        known = [f"x{i}" for i in range(n_attributes)] if names is None else names
        schema = pa.schema([(name, pa.float64()) for name in known])
        self.columns_ = ColumnPlan.from_schema(schema, Roles((), tuple(known)))

    def ask(self, n: int = 1) -> Questions:
        """Return which attributes to acquire of `n` new examples."""
        return self._started().ask(n)

    def tell(self, values: Any, y: Any, examples: Any = None) -> Self:
        """Learn from attributes that were acquired; see :meth:`Session.tell`."""
        self._started().tell(values, y, examples)
        return self

    def save(self, path: Any) -> None:
        """Write the state to a file (npz, with the parameters as JSON in it)."""
        session = self._started()
        names = getattr(self, "feature_names_in_", None)
        design = {k: v for k, v in vars(session.chain.design).items() if k not in _ARRAYS}
        meta = {"names": None if names is None else list(names), "spec": self._spec(), **design}
        arrays = {**session.to_arrays(), _META: _as_bytes(meta)}
        for name in _ARRAYS:
            if (value := getattr(session.chain.design, name)) is not None:
                arrays[name] = np.asarray(value)
        write_whole(locate(path), to_bytes(arrays))

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
        moments = self.second_moments
        own = {**self.get_params(), "penalty": self._penalty}
        own["second_moments"] = None if moments is None else np.asarray(moments, float).tolist()
        return own

    # --- what was learned ---

    @property
    def coef_(self) -> np.ndarray:
        """Weights of the attributes as they come, shape (d,)."""
        return self._started().chain.weights

    @property
    def intercept_(self) -> float:
        """What predictions are for attributes of 0."""
        return self._started().chain.design.offset

    @property
    def attributes_seen_(self) -> int:
        """Attributes that were observed."""
        return self._started().chain.n_seen

    @property
    def n_examples_seen_(self) -> int:
        """Examples learned from."""
        return self._started().chain.n_examples

    @property
    def improvement_ratio_(self) -> float:
        """ρ: drawing by second moments can save a factor of up to 1/ρ; NaN while none are known."""
        chain = self._started().chain
        design = chain.design
        if design.moments is None and chain.n_examples:
            design = replace(design, moments=chain.estimated_moments)
        return design.improvement_ratio

    def predict(self, X: Any) -> Any:
        """Predict targets from all attributes.

        Parameters
        ----------
        X : array-like, frame, Dask collection or path

        Returns
        -------
        ndarray of shape (n,)
            A lazy Dask array for Dask collections.
        """
        model = self.coef_, self.intercept_
        source, rows = self._opened(X)
        return source.stack(rows.then(_predicted, *model))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "session_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # of the few rows of a check
        return tags

    # --- parameters ---

    def _started(self) -> Session:
        if not hasattr(self, "session_"):
            raise NotFittedError(
                f"This {type(self).__name__} has not begun: call `fit`, `partial_fit`, `start` or "
                "`resume` first."
            )
        return self.session_

    def _begin(self, design: Design) -> None:
        self.session_ = Session(Chain(design, stream(int(self.random_state), 0)))

    def _options(self, n_attributes: int) -> AttributeEfficientOptions:
        options = self._checked(AttributeEfficientOptions, penalty=self._penalty)
        if self.attributes_per_example > n_attributes:
            raise SpecError(
                f"attributes_per_example is {self.attributes_per_example}, but the data have only "
                f"n_features = {n_attributes}."
            )
        return options

    def _moments(self, n_attributes: int) -> np.ndarray | None:
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

    def _design(self, rows: np.ndarray, target: np.ndarray) -> Design:
        """Return the design by the parameters, and where they say nothing by all rows."""
        d = rows.shape[1]
        options, moments = self._options(d), self._moments(d)
        block = np.vstack((rows.T, target))
        members: Mapping[str, Any] = {
            "moments": Moments.from_block(block),
            "norms": Norms(float((rows**2).sum(axis=1).max())),
            "counts": replace(RowCounts.empty(d, 1), n_rows=len(rows)),
        }
        design = design_of(options, members, self.n_examples)
        if not rows.any():
            raise DataError("All attributes are 0 in all rows: there is nothing to learn.")
        moments = design.moments if moments is None else moments
        design = replace(
            design,
            bound=design.bound or 1.0,
            norm=design.norm if self.norm is None else self._norm(moments),
            moments=moments,
            fixed_step=self.step,
        )
        design.require_within(rows, target)
        return design

    def _norm(self, moments: Any) -> Any:
        """Return what attributes are divided by, where all rows do not decide."""
        norm = 1.0 if self.norm is None else float(self.norm)
        return norm * root_mean_squares(moments) if self.standardize else norm

    def _known_design(self, n_attributes: int, n_examples: int | None = None) -> Design:
        """Return the design by the parameters alone."""
        options, moments = self._options(n_attributes), self._moments(n_attributes)
        if options.intercept:
            raise SpecError(
                "Before any example is seen, the mean of the target is not known: leave "
                "`intercept` out, and centre the targets if you can."
            )
        sampling = ALGORITHMS[self._penalty][options.chosen]
        n_examples = self.n_examples if n_examples is None else n_examples
        needed: dict[str, Any] = {"bound": self.bound, "n_examples": n_examples}
        if sampling == "moments" or self.standardize:
            needed["second_moments"] = moments
        for name, value in needed.items():
            if value is None:
                by_moments = name == "second_moments" and not self.standardize
                other = " or an algorithm of two phases" if by_moments else ""
                raise SpecError(f"Before any example is seen, `{name}` has to be given{other}.")
        return design_with(
            options,
            int(n_examples or 1),
            bound=float(self.bound or 1.0),
            norm=self._norm(moments),
            moments=moments,
            n_attributes=n_attributes,
            fixed_step=self.step,
        )


class AttributeEfficientRidge(AttributeEfficientBase):
    """Linear regression with ‖w‖₂ ≤ B from few attributes of each example.

    Parameters
    ----------
    attributes_per_example : int, default=5
        Attributes drawn of each example (k + 1), at least 2.
    algorithm : {"ddaerr", "two_phase_ddaerr", "aerr"}, optional
        Draw attributes by their second moments (the default), by those that a first tenth of the
        examples estimates, or all alike.
    bound : float, optional
        B, for scaled attributes; no target may be larger. `fit` takes the largest target.
    norm : float, optional
        What attributes are divided by, so that no row is longer than 1. `fit` takes the longest
        row (the root of the mean square with `standardize`), `start` 1.
    second_moments : array-like of shape (d,), optional
        E[x²] of the attributes as they come. `fit` takes those of all rows.
    n_examples : int, optional
        Examples the step is for. `fit` takes the number of rows.
    step : float, optional
        Length of a step; by default that of the theory.
    step_factor, first_step_factor : float, default=1
        Multiply the step of the theory; the second that of the first of two phases.
    split : {"even", "one"}
        Half of the draws, or one, estimate the inner product with the weights.
    inner_product : {"improved", "base"}
        Draw for it by weight and second moment, or by the weights alone.
    confidence : float, default=0
        Of upper bounds on estimated moments, in [0, 1); 0 takes the estimates.
    standardize : bool, default=False
        Divide attributes by the roots of their second moments first, so that those of any unit are
        learned alike; all are then drawn alike, too.
    intercept : bool, default=False
        Learn the target less its mean; for `fit`, which knows the mean.
    random_state : int, default=0

    Attributes
    ----------
    coef_ : ndarray of shape (d,)
        For attributes as they come.
    intercept_ : float
        Mean of the target, or 0.
    attributes_seen_, n_examples_seen_ : int
    improvement_ratio_ : float

    References
    ----------
    Kukliansky and Shamir, "Attribute Efficient Linear Regression with Distribution-Dependent
    Sampling" (ICML 2015), Algorithms 1 and 2.

    Examples
    --------
    >>> model = AttributeEfficientRidge(
    ...     attributes_per_example=2, algorithm="two_phase_ddaerr", bound=1.0, n_examples=100
    ... ).start(["age", "pulse", "hdl"])
    >>> questions = model.ask(2)
    >>> questions.attributes.shape
    (2, 2)
    >>> model.tell([[0.4, 0.1], [0.2, 0.3]], y=[1.0, -1.0]).n_examples_seen_
    2
    """

    _penalty = "ridge"


class AttributeEfficientLasso(AttributeEfficientBase):
    """Linear regression with ‖w‖₁ ≤ B from few attributes of each example.

    The parameters are those of :class:`AttributeEfficientRidge`, with the algorithms ``ddaelr``,
    ``two_phase_ddaelr`` and ``aelr``, and `norm` the largest absolute value of an attribute.

    References
    ----------
    As :class:`AttributeEfficientRidge`, Algorithms 3 and 4.
    """

    _penalty = "lasso"


def _copied(batch: RowBatch) -> np.ndarray:
    return batch.values.copy()


def _predicted(weights: np.ndarray, intercept: float, batch: RowBatch) -> np.ndarray:
    return weights @ batch.values + intercept


def _as_bytes(content: Mapping[str, Any]) -> np.ndarray:
    return np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)
