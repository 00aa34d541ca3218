"""What every statistic offers, and how statistics are merged, split by fold and stored."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike


class Statistic(Protocol):
    """A frozen value that sums up some rows and merges with that of other rows.

    Merging is associative and commutative but for rounding, and the statistic of no rows is its
    identity. No method changes the value it is called on.
    """

    def merge(self, later: Self, /) -> Self:
        """Return the statistic of the rows of both."""


class Fields:
    """Base of dataclasses of arrays and numbers that files of models have field by field.

    Fields in `not_stored` are known to those who read a value, and are not written.
    """

    not_stored: ClassVar[Collection[str]] = ()

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Content as named arrays, without what is None."""
        arrays = {}
        for field in fields(cast(Any, self)):
            value = getattr(self, field.name)
            if value is not None and field.name not in self.not_stored:
                arrays[field.name] = np.asarray(value)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], **not_stored: Any) -> Self:
        """Inverse of `to_arrays`."""
        content = dict(not_stored)
        for field in fields(cast(Any, cls)):
            if field.name in arrays:
                array = arrays[field.name]
                content[field.name] = array if array.ndim else array.item()
            elif field.default is MISSING:
                content.setdefault(field.name, None)
        return cls(**content)


S = TypeVar("S", bound=Statistic)
T = TypeVar("T")


def _merged(earlier: Any, later: Any) -> Any:
    return earlier.merge(later)


def merge_tree(items: Iterable[T], merge: Callable[[T, T], T] = _merged) -> T:
    """Merge one item or more along the fixed binary tree aligned at powers of two.

    Node ``(level, j)`` is the merge of leaves ``[j·2^level, (j+1)·2^level)``, as many of them as
    there are. Leaves appended later leave the complete nodes as they were, bit for bit.

    Parameters
    ----------
    items : iterable
        In order. Each is asked for when those before it are merged as far as they can be: of n,
        at most log2(n) + 2 are held.
    merge : callable, optional
        ``(earlier, later) → merged``; by default the earlier one's method of this name.

    Raises
    ------
    ValueError
        If there are no items.
    """
    done: list[T] = []
    for n, item in enumerate(items, 1):
        done.append(item)
        # As a binary counter carries: one merge for each full subtree that n completes.
        for _ in range((n & -n).bit_length() - 1):
            done[-2:] = [merge(*done[-2:])]
    if not done:
        raise ValueError("nothing to merge")
    while len(done) > 1:
        done[-2:] = [merge(*done[-2:])]
    return done[0]


HELD_OUT = -1
"""Number of the part of the held-out rows; folds have theirs from 0 on."""


@dataclass(frozen=True, eq=False)
class Folded(Generic[S]):
    """One statistic for each cross-validation fold and for the held-out test rows.

    Parameters
    ----------
    parts : tuple of Statistic, length max(n_folds, 1) + 1
        The folds in order, then the test rows. A part may be a statistic of no rows.
    """

    parts: tuple[S, ...]

    @property
    def folds(self) -> tuple[S, ...]:
        """The training rows: one per fold, a single one without cross-validation."""
        return self.parts[:-1]

    @property
    def test(self) -> S:
        """The held-out rows."""
        return self.parts[-1]

    @property
    def n_folds(self) -> int:
        """Number of folds, at least 1."""
        return len(self.parts) - 1

    def train(self) -> S:
        """Return the statistic of all training rows."""
        return merge_tree(self.folds)

    def train_without(self, *folds: int) -> S:
        """Return the statistic of all training rows but those of some folds."""
        return merge_tree([part for f, part in enumerate(self.folds) if f not in folds])

    def merge(self, later: Folded[S]) -> Folded[S]:
        """Merge part by part; the numbers of folds are the same."""
        pairs = zip(self.parts, later.parts, strict=True)
        return Folded(tuple(a.merge(b) for a, b in pairs))

    def scaled(self, factor: float) -> Folded[S]:
        """Multiply the weight of every row by `factor` > 0.

        Parts without a method of this name, such as counts and levels of categories, do not depend
        on weights and stay as they are.
        """
        parts = (p.scaled(factor) if hasattr(p, "scaled") else p for p in self.parts)
        return Folded(tuple(parts))


#: Statistics of some rows by name.
Members = Mapping[str, Any]


@dataclass(frozen=True)
class Bundle:
    """Named per-fold statistics of one partition, or of any merge of partitions.

    Bundles merge when they have the same names.
    """

    members: Mapping[str, Folded[Any]]

    def __getitem__(self, name: str) -> Folded[Any]:
        """Statistic with the given name."""
        return self.members[name]

    def merge(self, later: Bundle) -> Bundle:
        """Merge member by member; a ValueError says that these differ."""
        if self.members.keys() != later.members.keys():
            raise ValueError(f"bundles of {sorted(self.members)} and {sorted(later.members)}")
        return Bundle({name: folded.merge(later[name]) for name, folded in self.members.items()})

    def train(self) -> TrainMembers:
        """Return the statistics of all training rows by name, merged when they are asked for."""
        return TrainMembers(self)

    def test(self) -> dict[str, Any]:
        """Return the statistics of the held-out rows by name."""
        return {name: part.test for name, part in self.members.items()}

    def scaled(self, factor: float) -> Bundle:
        """Multiply the weight of every row by `factor` > 0 (decay)."""
        return Bundle({name: folded.scaled(factor) for name, folded in self.members.items()})


# --- means ----------------------------------------------------------------------------------------


def explained(losses: np.ndarray, whole: float | np.ndarray) -> np.ndarray:
    """Return the shares 1 − loss/whole of a whole loss; NaN where that is not positive."""
    whole = np.asarray(whole, dtype=np.float64)
    return np.asarray(1.0 - losses / np.where(whole > 0, whole, np.nan))


def explained_by_fold(losses: np.ndarray, whole: np.ndarray, weights: ArrayLike) -> np.ndarray:
    """Return values of folds whose mean is the share 1 − Σ w l / Σ w l₀, and whose spread is its.

    Parameters
    ----------
    losses : ndarray of shape (…, n_folds)
        l of models.
    whole : ndarray of shape (n_folds,)
        l₀ of the constant on the same rows.
    weights : sequence of float, length n_folds
        w.

    Returns
    -------
    ndarray of shape (…, n_folds)
        1 − R − (l − R l₀) / clip(l₀, l̄₀/2, l̄₀), about their mean, with the ratio R = l̄ / l̄₀ of
        weighted means: a ratio of means to first order (Cochran, "Sampling Techniques", 3rd
        edition, 1977, Section 2.11). How hard a fold is for the constant does not count where the
        model is as much better there. Folds that are easy for it differ as by their own ratios,
        within bounds, as the folds' models share rows and differ less than models of other rows
        (Bengio and Grandvalet, 2004). NaN where there is nothing to explain.
    """
    of_whole = over_folds(whole, weights).mean
    of_losses = over_folds(losses, weights).mean
    share = explained(of_losses, of_whole)[..., np.newaxis]
    scale = np.clip(whole, 0.5 * of_whole, of_whole)
    away = (losses - (1.0 - share) * whole) / scale
    centre = over_folds(away, weights).mean[..., np.newaxis]
    return share - (away - centre)


def number_or_none(value: Any) -> float | None:
    """Return a number as JSON has it: None for one that does not exist."""
    return float(value) if np.isfinite(value) else None


class TrainMembers(Mapping[str, Any]):
    """Statistics of all training rows, each merged from the folds when it is first asked for."""

    def __init__(self, statistics: Bundle) -> None:
        self._parts = statistics.members
        self._merged = dict[str, Any]()

    def __getitem__(self, name: str) -> Any:
        """Return the merged statistic of this name."""
        if name not in self._merged:
            self._merged[name] = self._parts[name].train()
        return self._merged[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._parts)

    def __len__(self) -> int:
        """Return the number of statistics."""
        return len(self._parts)


def ratio(numerator: ArrayLike, denominator: np.ndarray) -> np.ndarray:
    """Divide, 0 where the denominator is not positive.

    Parameters
    ----------
    numerator : array_like of float
    denominator : ndarray of float
        Of shapes that broadcast, to that of the result.
    """
    numerator = np.asarray(numerator, dtype=np.float64)
    shape = np.broadcast_shapes(numerator.shape, denominator.shape)
    return np.divide(numerator, denominator, out=np.zeros(shape), where=denominator > 0)


@dataclass(frozen=True, eq=False)
class FoldMeans:
    """What the folds say together; arrays of one shape.

    `mean` is weighted, over the folds that have a number, and NaN where none has. Its
    `standard_error` is NaN where fewer than two folds have one; `n_known` counts these folds.
    """

    mean: np.ndarray
    standard_error: np.ndarray
    n_known: np.ndarray

    @property
    def deviation(self) -> np.ndarray:
        """Weighted standard deviation √K · SE between K folds; for equal weights that of K − 1."""
        return np.sqrt(self.n_known) * self.standard_error

    def half_width(self, level: float) -> np.ndarray:
        """Half width t · SE of a confidence interval of the mean; NaN for fewer than two folds."""
        degrees = np.maximum(self.n_known - 1, 1)
        return student_t(level, degrees) * self.standard_error


def student_t(level: float, degrees: ArrayLike) -> np.ndarray:
    """Return Student's t of a two-sided interval: the quantile at ½ + level/2.

    Parameters
    ----------
    level : float
        Coverage, between 0 and 1.
    degrees : array_like
        Degrees of freedom, at least 1.
    """
    import scipy.special

    quantile: np.ndarray = scipy.special.stdtrit(degrees, 0.5 + level / 2)
    return quantile


def over_folds(values: np.ndarray, weights: ArrayLike) -> FoldMeans:
    """Take the means over folds; what is NaN is left out.

    Parameters
    ----------
    values : ndarray of shape (…, n_folds)
    weights : sequence of float, length n_folds
        Weight of the rows of each fold; one without weight is left out too.

    Returns
    -------
    FoldMeans
        Arrays of shape (…).

    Notes
    -----
    With shares s of the weight of the K folds that have a number, the mean is m = Σ s x and its
    squared standard error K/(K−1) Σ s² (x − m)² [1]_, which is the variance over K for equal folds.
    The folds' training rows overlap, so this is a guide rather than exact [2]_.

    References
    ----------
    .. [1] D. F. Gatz and L. Smith, "The standard error of a weighted mean concentration",
       Atmospheric Environment 29, 1995 (Cochran's ratio estimate).
    .. [2] Y. Bengio and Y. Grandvalet, "No unbiased estimator of the variance of K-fold
       cross-validation", Journal of Machine Learning Research 5, 2004.
    """
    values = np.asarray(values, dtype=np.float64)
    weights = np.asarray(weights, dtype=np.float64)
    is_known = ~np.isnan(values) & (weights > 0)
    values = np.where(is_known, values, 0.0)
    known_weights = np.where(is_known, weights, 0.0)
    share = ratio(known_weights, known_weights.sum(axis=-1, keepdims=True))
    n_known = is_known.sum(axis=-1)
    mean, standard_error = _mean_and_error(values, share, n_known)
    return FoldMeans(mean, standard_error, n_known)


@np.errstate(invalid="ignore", over="ignore")
def _mean_and_error(
    values: np.ndarray, share: np.ndarray, n_known: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return m = Σ s x and √(K/(K−1) Σ s² (x − m)²) along the last axis; infinities give NaN."""
    # Summed by numpy, not by BLAS: the same bits on every machine.
    mean = np.sum(share * values, axis=-1)
    mean = np.where(n_known > 0, mean, np.nan)
    difference = values - mean[..., None]
    squares = np.sum((share * difference) ** 2, axis=-1)
    n_free = np.maximum(n_known - 1, 1)
    error = np.sqrt(n_known / n_free * squares)
    return mean, np.where(n_known > 1, error, np.nan)


# --- files ----------------------------------------------------------------------------------------


def to_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return arrays (no objects) as an npz file whose bytes depend on the arrays alone.

    Members are stored uncompressed, sorted by name, in C order, with the timestamp that `zipfile`
    gives a name without a file.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(arrays):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                array = np.asarray(arrays[name], order="C")
                np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def from_bytes(content: bytes) -> dict[str, np.ndarray]:
    """Inverse of `to_bytes`; pickled or compressed content is refused with ValueError."""
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        # A few bytes could stand for more than the memory holds.
        if any(member.compress_type != zipfile.ZIP_STORED for member in archive.zip.infolist()):
            raise ValueError("its arrays are compressed")
        return {name: archive[name] for name in archive.files}


def joined(groups: Mapping[Any, Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the arrays of all groups, named ``group/array``; see `below` for the way back."""
    result = {}
    for group, arrays in groups.items():
        for name, array in arrays.items():
            result[f"{group}/{name}"] = array
    return result


def below(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays whose names begin with a prefix, named without it."""
    return {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
