"""Feature-group sequencing as scikit-learn estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.multiclass import check_classification_targets

from distfms.errors import DataError, SpecError
from distfms.methods.estimator_input import in_memory, kind_of, read_columns
from distfms.methods.estimator_rows import Rows
from distfms.methods.sequence.estimator_base import GroupSequenceBase
from distfms.stats.comoments import CoMoments


class GroupSequencer(RegressorMixin, GroupSequenceBase):
    """Linear regression by groups of features that have costs, ready at any budget.

    Parameters
    ----------
    groups : mapping, array-like of shape (n_features,), or None
        For each group the names, globs or positions of its columns, every other column being a
        group of its own; or for each column the id of its group; or None for groups of one
        column. A category is always in a group as a whole.
    costs : mapping or array-like of shape (n_groups,), optional
        By name or glob of the group, with ``default`` for the rest; or in the order of
        ``groups_``. Default: 1 each.
    shared_costs : mapping, optional
        Costs that several groups share and that are paid once, by a name of their own:
        ``{"blood sample": {"groups": ["glucose", "iron"], "cost": 2.1}}``.
    criterion : {"fr", "omp", "omp-single", "omp-no-whiten"}
        What a step maximises; see :func:`distfms.methods.sequence.criteria.make_criterion`.
        Models that are not gaussian use ``omp`` for ``fr`` (``criterion_`` says so) and know
        beside it ``omp-no-whiten``: the squared norm of the gradient as it is, not whitened
        within the group.
    cost_aware : bool
        Maximise it per cost.
    doubling : bool
        Choose only among groups that cost at most what was spent so far.
    ridge : float
        λ ≥ 0, in units of the standardised columns.
    family : {"auto", "gaussian", "poisson"}
        ``auto``: gaussian.
    budget : float, optional
        What a prediction may cost. Default: all groups. It may be changed after `fit`, but for
        ``coef_`` and ``intercept_``.
    max_refits : int, optional
        Poisson: refit at most so often along the sequence.
    missing : {"error", "mean"}
        Refuse missing features, or take the training mean for them.
    max_iter, tol : int, float
        Poisson: of each refit.

    Attributes
    ----------
    sequence_ : list of str
        Groups in the order in which to compute them; those of constant columns are left out.
    groups_ : dict of str to tuple of str
        Columns of each group, after categories became indicators ``column=level``.
    costs_ : dict of str to float
        Cost of each group when it is the first.
    path_ : SequencePath or GlmSequence
        What the selection returned.
    predictor_ : AnytimePredictor
        Models of all prefixes.
    explained_variance_ : ndarray of shape (K + 1,)
        Of the prefixes 0..K on the training rows; share of the deviance if not gaussian.
    coef_path_ : ndarray of shape (K + 1, D) or (K + 1, P, D)
        In original units; D indicator and number columns, ``columns_.encoded``.
    intercept_path_ : ndarray of shape (K + 1,) or (K + 1, P)
    coef_, intercept_ : ndarray
        Of the prefix that `budget` affords.
    timeliness_ : float
        Area under explained variance against cost, as a share of the whole.
    n_iter_ : int
        Passes over the rows.
    criterion_, family_ : str
        What was used.
    columns_ : Columns
        Columns of the data and what they became.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Where the data have names.

    References
    ----------
    Hu, Grubb, Bagnell, Hebert, "Efficient Feature Group Sequencing for Anytime Linear
    Prediction", Algorithms 1 to 3.

    Examples
    --------
    >>> import numpy as np
    >>> from distfms import GroupSequencer
    >>> X = np.random.default_rng(0).normal(size=(200, 4))
    >>> model = GroupSequencer(groups=[0, 0, 1, 1], costs=[1.0, 5.0]).fit(X, X @ [1, 0, 0, 2])
    >>> model.sequence_
    ['0', '1']
    >>> model.get_support(budget=1.0)
    array([ True,  True, False, False])
    """

    def _response(self, rows: Rows) -> tuple[str, int, np.ndarray | None]:
        if self.family not in ("auto", "gaussian", "poisson"):
            raise SpecError(
                f"family {self.family!r} is none of 'auto', 'gaussian', 'poisson'; for classes use "
                f"GroupSequenceClassifier."
            )
        family = "gaussian" if self.family == "auto" else self.family
        return family, len(rows.target_names), None

    def predict(self, X: Any, budget: float | None = None) -> Any:
        """Predictions of the longest affordable prefix.

        Parameters
        ----------
        X : array-like, pandas.DataFrame, Dask array or DataFrame, or path of Parquet files
            A frame or file needs the columns of the prefix only, and no others are read. A category
            that was in no training row counts as the column's mean: it says nothing.
        budget : float, optional
            Default: the parameter `budget`.

        Returns
        -------
        ndarray (of a Dask collection: dask.array.Array, not computed) of shape (n,) or (n, P)
        """
        return self._means(X, budget)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Coefficient of determination R² of the predictions.

        Parameters
        ----------
        X : see `predict`
        y : array-like or Dask collection; with a path, names of columns
            With a path it may be left out: the names are those of `fit`.
        sample_weight : array-like of shape (n,), optional
        """
        truth = _truth(self, X, y)
        return r2_score(truth, in_memory(self.predict(X)), sample_weight=in_memory(sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.positive_only = self.family == "poisson"
        return tags


class GroupSequenceClassifier(ClassifierMixin, GroupSequenceBase):
    """Logistic regression by groups of features that have costs, ready at any budget.

    Parameters
    ----------
    groups, costs, shared_costs, criterion, cost_aware, ridge, budget, max_refits, missing
    max_iter, tol
        See :class:`GroupSequencer`. Each step of each refit is a pass over the data, so with many
        groups and data out of memory a `max_refits` pays.
    doubling : bool
        Must be False.
    family : {"auto", "logistic", "softmax"}
        ``auto``: logistic for two classes, softmax for more.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_path_ : ndarray of shape (K + 1, 1 or n_classes, D)
    intercept_path_ : ndarray of shape (K + 1, 1 or n_classes)
    explained_variance_ : ndarray of shape (K + 1,)
        Share of the deviance of the training rows that the prefixes 0..K explain.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Where the data have names.
    sequence_, groups_, costs_, path_, predictor_, coef_, intercept_, timeliness_, columns_, n_iter_
        See :class:`GroupSequencer`.

    References
    ----------
    Hu, Grubb, Bagnell, Hebert, "Efficient Feature Group Sequencing for Anytime Linear
    Prediction", Appendix B.
    """

    @property
    def _numeric_target(self) -> bool:
        return False

    @property
    def _flat_coefficients(self) -> bool:
        return False

    def _response(self, rows: Rows) -> tuple[str, int, np.ndarray | None]:
        if self.family not in ("auto", "logistic", "softmax"):
            raise SpecError(f"family {self.family!r} is none of 'auto', 'logistic', 'softmax'.")
        classes = np.unique(np.concatenate(rows.targets(np.unique)))
        check_classification_targets(classes)
        if len(classes) < 2:
            raise DataError(f"The target holds 1 class, {classes[0]!r}; at least 2 are needed.")
        if self.family == "logistic" and len(classes) > 2:
            raise DataError(
                f"Only binary classification is supported by family 'logistic'. The target holds "
                f"{len(classes)} classes; use 'auto' or 'softmax'."
            )
        self.classes_ = classes
        binary = len(classes) == 2 and self.family != "softmax"
        return ("logistic", 1, classes) if binary else ("softmax", len(classes), classes)

    def _check_moments(self, moments: CoMoments, n_features: int) -> None:
        super()._check_moments(moments, n_features)
        if moments.constant_columns()[n_features]:
            raise DataError("Only one class has rows of positive weight; 2 classes are needed.")

    def predict_proba(self, X: Any, budget: float | None = None) -> Any:
        """Probabilities of the classes by the longest affordable prefix.

        Parameters
        ----------
        X : array-like, pandas.DataFrame, Dask array or DataFrame, or path of Parquet files
        budget : float, optional
            Default: the parameter `budget`.

        Returns
        -------
        ndarray (of a Dask collection: dask.array.Array, not computed) of shape (n, n_classes)
        """
        means = self._means(X, budget)
        if self.family_ == "softmax":
            return means
        if kind_of(means) == "dask-array":
            return means.map_blocks(_both, new_axis=1, chunks=(*means.chunks, 2), dtype=float)
        return _both(means)

    def predict(self, X: Any, budget: float | None = None) -> Any:
        """Return the most probable classes by the longest affordable prefix.

        Parameters
        ----------
        X : see `predict_proba`
        budget : float, optional
            Default: the parameter `budget`.

        Returns
        -------
        ndarray (of a Dask collection: dask.array.Array, not computed) of shape (n,)
        """
        shares = self.predict_proba(X, budget)
        if kind_of(shares) == "dask-array":
            return shares.argmax(axis=1).map_blocks(self.classes_.take, dtype=self.classes_.dtype)
        return self.classes_[shares.argmax(axis=1)]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Share of rows whose class is predicted.

        Parameters
        ----------
        X : see `predict_proba`
        y : array-like or Dask collection; with a path, the name of a column
            With a path it may be left out: the name is that of `fit`.
        sample_weight : array-like of shape (n,), optional
        """
        truth = _truth(self, X, y)
        weight = in_memory(sample_weight)
        return accuracy_score(truth, in_memory(self.predict(X)), sample_weight=weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self.family != "logistic"
        return tags


def _both(share: np.ndarray) -> np.ndarray:
    """Probabilities of two classes from that of the second, shape (n, 2)."""
    return np.stack([1.0 - share, share], axis=1)


def _truth(estimator: GroupSequenceBase, X: Any, y: Any) -> np.ndarray:
    """Targets to score against, in memory."""
    if kind_of(X) != "parquet":
        return in_memory(y)
    names = estimator.predictor_.target_names if y is None else y
    return read_columns(X, names)
