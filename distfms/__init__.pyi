# Made from the options of the methods by `python -m tests.architecture.stubs`.
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from distfms.estimators.multiselect import FeatureMultiSelector as _FeatureMultiSelector
from distfms.estimators.sequence import GroupSequencer as _GroupSequencer
from distfms.estimators.sequence import GroupSequenceClassifier as _GroupSequenceClassifier
from distfms.estimators.landmarks import LandmarkRegressor as _LandmarkRegressor
from distfms.estimators.landmarks import LandmarkClassifier as _LandmarkClassifier
from distfms.estimators.landmarks import LandmarkOrdinalRegressor as _LandmarkOrdinalRegressor
from distfms.estimators.landmarks import LandmarkRanker as _LandmarkRanker
from distfms.estimators.attribute_efficient import AttributeEfficientRidge as _AttributeEfficientRidge
from distfms.estimators.attribute_efficient import AttributeEfficientLasso as _AttributeEfficientLasso
from distfms.engine import computing_on as computing_on
from distfms.runs.serve import load as load
from distfms.estimators.load import load_estimator as load_estimator
from distfms.errors import DistfmsError as DistfmsError
from distfms.errors import SpecError as SpecError
from distfms.errors import DataError as DataError
from distfms.errors import NumericalError as NumericalError
from distfms.errors import EngineError as EngineError

__version__: str

class FeatureMultiSelector(_FeatureMultiSelector):
    def __init__(
        self,
        budget: float,
        *,
        algorithm: Literal['auto', 'full', 'scoring', 'lasso', 'nothing'] = ...,
        criterion: Literal['best', 'gain_per_cost', 'gain'] = ...,
        costs: Mapping[str, float] | Sequence[float] | None = ...,
        internal_variance: Mapping[str, float] | None = ...,
        robust: bool = ...,
        buy_from: Literal['independent', 'same'] = ...,
        ridge: float | Sequence[float] | Literal['auto'] = ...,
        psd: Literal['nearest', 'data_units', 'none'] = ...,
        model: Literal['projected', 'refit'] = ...,
        baselines: Sequence[str] = ...,
        exclude: Sequence[str] = ...,
        missing: Literal['error', 'drop', 'mean', 'pairs'] = ...,
        folds: int | Literal['auto'] = ...,
        tune: Mapping[str, Any] | None = ...,
        random_state: int = ...,
        n_jobs: int | None = ...,
        verbose: bool = ...,
    ) -> None: ...

class GroupSequencer(_GroupSequencer):
    def __init__(
        self,
        groups: Mapping[str, Sequence[Any] | str] | Sequence[Any] | None = ...,
        costs: Mapping[str, float] | Sequence[float] | None = ...,
        shared_costs: Mapping[str, Mapping[str, Any]] | None = ...,
        *,
        requires: Mapping[str, Sequence[str]] | None = ...,
        expand: Mapping[str, Any] | Literal['auto'] | None = ...,
        criterion: Literal['fr', 'omp', 'omp-single', 'omp-no-whiten', 'gain'] | None = ...,
        cost_aware: bool = ...,
        doubling: bool = ...,
        ridge: float | Literal['auto'] = ...,
        family: Literal['auto', 'gaussian', 'logistic', 'softmax', 'poisson'] = ...,
        model: Literal['linear', 'lightgbm', 'auto'] = ...,
        lightgbm: Mapping[str, bool | int | float | str] | None = ...,
        threshold: float | Literal['f1', 'balanced'] | Mapping[str, Sequence[float]] = ...,
        baselines: Sequence[str] | None = ...,
        budgets: Sequence[float] | Literal['auto'] = ...,
        budget: float | None = ...,
        max_groups: int | None = ...,
        exclude: Sequence[str] = ...,
        missing: Literal['error', 'drop', 'mean', 'pairs'] = ...,
        folds: int | Literal['auto'] = ...,
        tune: Mapping[str, Any] | None = ...,
        random_state: int = ...,
        n_jobs: int | None = ...,
        verbose: bool = ...,
    ) -> None: ...

class GroupSequenceClassifier(_GroupSequenceClassifier):
    def __init__(
        self,
        groups: Mapping[str, Sequence[Any] | str] | Sequence[Any] | None = ...,
        costs: Mapping[str, float] | Sequence[float] | None = ...,
        shared_costs: Mapping[str, Mapping[str, Any]] | None = ...,
        *,
        requires: Mapping[str, Sequence[str]] | None = ...,
        expand: Mapping[str, Any] | Literal['auto'] | None = ...,
        criterion: Literal['fr', 'omp', 'omp-single', 'omp-no-whiten', 'gain'] | None = ...,
        cost_aware: bool = ...,
        doubling: bool = ...,
        ridge: float | Literal['auto'] = ...,
        family: Literal['auto', 'gaussian', 'logistic', 'softmax', 'poisson'] = ...,
        model: Literal['linear', 'lightgbm', 'auto'] = ...,
        lightgbm: Mapping[str, bool | int | float | str] | None = ...,
        class_weights: Mapping[str, float] | Literal['balanced'] | None = ...,
        threshold: float | Literal['f1', 'balanced'] | Mapping[str, Sequence[float]] = ...,
        baselines: Sequence[str] | None = ...,
        budgets: Sequence[float] | Literal['auto'] = ...,
        budget: float | None = ...,
        max_groups: int | None = ...,
        exclude: Sequence[str] = ...,
        missing: Literal['error', 'drop', 'mean', 'pairs'] = ...,
        folds: int | Literal['auto'] = ...,
        tune: Mapping[str, Any] | None = ...,
        random_state: int = ...,
        n_jobs: int | None = ...,
        verbose: bool = ...,
    ) -> None: ...

class LandmarkRegressor(_LandmarkRegressor):
    def __init__(
        self,
        similarity: Sequence[Mapping[str, Any]] | None = ...,
        *,
        task: Literal['auto', 'regression', 'sparse', 'ordinal', 'classification', 'ranking'] = ...,
        loss: Literal['squared', 'epsilon_insensitive', 'margin', 'all_margins', 'hinge', 'logistic'] | None = ...,
        epsilon: float | None = ...,
        smoothing: float = ...,
        landmarks: int | Literal['auto'] = ...,
        keep: int | None = ...,
        ridge: float | None = ...,
        metric: Literal['auto', 'none', 'diagonal', 'full'] = ...,
        bound: float | None = ...,
        intercept: bool = ...,
        selection: Literal['gain', 'gradient', 'steps'] = ...,
        clip: bool = ...,
        scaling: Literal['standard', 'unit', 'none'] = ...,
        baselines: Sequence[Literal['columns', 'kernel_regression', 'lightgbm']] = ...,
        exclude: Sequence[str] = ...,
        missing: Literal['error', 'drop', 'mean', 'pairs'] = ...,
        folds: int | Literal['auto'] = ...,
        tune: Mapping[str, Any] | None = ...,
        random_state: int = ...,
        n_jobs: int | None = ...,
        verbose: bool = ...,
    ) -> None: ...

class LandmarkClassifier(_LandmarkClassifier):
    def __init__(
        self,
        similarity: Sequence[Mapping[str, Any]] | None = ...,
        *,
        loss: Literal['squared', 'epsilon_insensitive', 'margin', 'all_margins', 'hinge', 'logistic'] | None = ...,
        smoothing: float = ...,
        landmarks: int | Literal['auto'] = ...,
        keep: int | None = ...,
        ridge: float | None = ...,
        metric: Literal['auto', 'none', 'diagonal', 'full'] = ...,
        bound: float | None = ...,
        intercept: bool = ...,
        scaling: Literal['standard', 'unit', 'none'] = ...,
        baselines: Sequence[Literal['columns', 'kernel_regression', 'lightgbm']] = ...,
        exclude: Sequence[str] = ...,
        missing: Literal['error', 'drop', 'mean', 'pairs'] = ...,
        folds: int | Literal['auto'] = ...,
        tune: Mapping[str, Any] | None = ...,
        random_state: int = ...,
        n_jobs: int | None = ...,
        verbose: bool = ...,
    ) -> None: ...

class LandmarkOrdinalRegressor(_LandmarkOrdinalRegressor):
    def __init__(
        self,
        similarity: Sequence[Mapping[str, Any]] | None = ...,
        *,
        loss: Literal['squared', 'epsilon_insensitive', 'margin', 'all_margins', 'hinge', 'logistic'] | None = ...,
        gamma: float = ...,
        spacing: float | None = ...,
        smoothing: float = ...,
        landmarks: int | Literal['auto'] = ...,
        keep: int | None = ...,
        ridge: float | None = ...,
        metric: Literal['auto', 'none', 'diagonal', 'full'] = ...,
        bound: float | None = ...,
        intercept: bool = ...,
        scaling: Literal['standard', 'unit', 'none'] = ...,
        baselines: Sequence[Literal['columns', 'kernel_regression', 'lightgbm']] = ...,
        exclude: Sequence[str] = ...,
        missing: Literal['error', 'drop', 'mean', 'pairs'] = ...,
        folds: int | Literal['auto'] = ...,
        tune: Mapping[str, Any] | None = ...,
        random_state: int = ...,
        n_jobs: int | None = ...,
        verbose: bool = ...,
    ) -> None: ...

class LandmarkRanker(_LandmarkRanker):
    def __init__(
        self,
        similarity: Sequence[Mapping[str, Any]] | None = ...,
        *,
        loss: Literal['squared', 'epsilon_insensitive', 'margin', 'all_margins', 'hinge', 'logistic'] | None = ...,
        smoothing: float = ...,
        landmarks: int | Literal['auto'] = ...,
        keep: int | None = ...,
        ridge: float | None = ...,
        metric: Literal['auto', 'none', 'diagonal', 'full'] = ...,
        bound: float | None = ...,
        intercept: bool = ...,
        scaling: Literal['standard', 'unit', 'none'] = ...,
        baselines: Sequence[Literal['columns', 'kernel_regression', 'lightgbm']] = ...,
        exclude: Sequence[str] = ...,
        missing: Literal['error', 'drop', 'mean', 'pairs'] = ...,
        folds: int | Literal['auto'] = ...,
        tune: Mapping[str, Any] | None = ...,
        random_state: int = ...,
        n_jobs: int | None = ...,
        verbose: bool = ...,
    ) -> None: ...

class AttributeEfficientRidge(_AttributeEfficientRidge):
    def __init__(
        self,
        attributes_per_example: int | None = ...,
        *,
        solver: Literal['auto', 'pairs', 'online'] = ...,
        algorithm: Literal['ddaerr', 'two_phase_ddaerr', 'aerr', 'ddaelr', 'two_phase_ddaelr', 'aelr'] | None = ...,
        draws: Literal['uniform', 'moments', 'two_phase'] | None = ...,
        units: Literal['deviations', 'raw'] = ...,
        bound: float | None = ...,
        step_factor: float = ...,
        first_step_factor: float = ...,
        first_examples: int | None = ...,
        inner_product: Literal['improved', 'base'] = ...,
        confidence: float = ...,
        norm: float | Literal['largest'] | None = ...,
        positive: float | None = ...,
        repeats: int = ...,
        exclude: Sequence[str] = ...,
        missing: Literal['error', 'drop', 'mean', 'pairs'] = ...,
        folds: int | Literal['auto'] = ...,
        tune: Mapping[str, Any] | None = ...,
        random_state: int = ...,
        n_jobs: int | None = ...,
        verbose: bool = ...,
        second_moments: Any = ...,
        n_examples: Any = ...,
    ) -> None: ...

class AttributeEfficientLasso(_AttributeEfficientLasso):
    def __init__(
        self,
        attributes_per_example: int | None = ...,
        *,
        solver: Literal['auto', 'pairs', 'online'] = ...,
        algorithm: Literal['ddaerr', 'two_phase_ddaerr', 'aerr', 'ddaelr', 'two_phase_ddaelr', 'aelr'] | None = ...,
        draws: Literal['uniform', 'moments', 'two_phase'] | None = ...,
        units: Literal['deviations', 'raw'] = ...,
        bound: float | None = ...,
        step_factor: float = ...,
        first_step_factor: float = ...,
        first_examples: int | None = ...,
        inner_product: Literal['improved', 'base'] = ...,
        confidence: float = ...,
        norm: float | Literal['largest'] | None = ...,
        positive: float | None = ...,
        repeats: int = ...,
        exclude: Sequence[str] = ...,
        missing: Literal['error', 'drop', 'mean', 'pairs'] = ...,
        folds: int | Literal['auto'] = ...,
        tune: Mapping[str, Any] | None = ...,
        random_state: int = ...,
        n_jobs: int | None = ...,
        verbose: bool = ...,
        second_moments: Any = ...,
        n_examples: Any = ...,
    ) -> None: ...
