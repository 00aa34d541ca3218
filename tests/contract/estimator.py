"""The third method as a scikit-learn estimator."""

from distfms.estimators.predicting import JobRegressor
from tests.contract.correlation import CorrelationOptions


class CorrelationRegressor(JobRegressor):
    """The columns most correlated with the target, as an estimator."""

    _method, _Options, _first = "correlation", CorrelationOptions, ("budget",)
