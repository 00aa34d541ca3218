"""Similarities K(x, l) of rows x to landmarks l, and the map of a row to its similarities.

Rows come as a batch has them, one column of the data per row of an array: features are (d, n), and
similarities (L, n).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from distfms.errors import DataError, SpecError
from distfms.stats.comoments import Moments
from distfms.stats.sample import RowSample

PRECOMPUTED, LINEAR = "precomputed", "linear"
#: Numbers of a block of similarities that is worked on at a time, and the bounds of its rows.
_BLOCK_VALUES = 2**21
_LEAST_ROWS, _MOST_ROWS = 1024, 8192

#: Parameters by similarity; None stands for a value that the data decide.
PARAMETERS: Mapping[str, Mapping[str, float | None]] = {
    "sigmoid": {"a": None, "r": -1.0},
    "manhattan": {},
    "gaussian": {"sigma": None},
    "laplace": {"sigma": None},
    "euclidean": {},
    "linear": {},
    PRECOMPUTED: {},
}


@dataclass(frozen=True)
class Similarity:
    """A similarity with its parameters.

    Attributes
    ----------
    name : str
        ``sigmoid`` tanh(a⟨x, l⟩ + r), ``manhattan`` −‖x − l‖₁, ``gaussian`` exp(−‖x − l‖²/2σ²),
        ``laplace`` exp(−‖x − l‖/σ), ``euclidean`` −‖x − l‖₂², ``linear`` ⟨x, l⟩,
        ``precomputed`` (the columns of the data are similarities), or ``module:function``,
        called with rows (n, d) and landmarks (L, d) for an array (n, L).
    parameters : tuple of (str, float)
    """

    name: str
    parameters: tuple[tuple[str, float], ...] = ()

    @property
    def label(self) -> str:
        """Name with the parameters that were given, unlike that of any other."""
        given = ", ".join(f"{name} {value:g}" for name, value in self.parameters)
        return f"{self.name}({given})" if given else self.name

    def resolved(self, n_columns: int, sigma: Callable[[], float]) -> Similarity:
        """Return the similarity with all its parameters.

        Parameters
        ----------
        n_columns : int
            That rows are compared in: a is 1/n_columns by default.
        sigma : callable
            Returns the mean distance between two rows.
        """
        parameters: dict[str, float] = {}
        chosen = dict(self.parameters)
        for name, default in PARAMETERS.get(self.name, {}).items():
            value = chosen.get(name, default)
            if value is None:
                value = sigma() if name == "sigma" else 1.0 / max(n_columns, 1)
            parameters[name] = value
        return replace(self, parameters=tuple(parameters.items()))

    def fill(self, landmarks: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        """Compute similarities.

        Parameters
        ----------
        landmarks : ndarray of shape (L, d)
        rows : ndarray of shape (d, n)
        out : ndarray of shape (L, n)
            Overwritten.

        Raises
        ------
        DataError
            If a function of the user's raises, or returns something else than L finite numbers
            for each row.
        """
        if self.name in KERNELS:
            _euclidean(landmarks, rows, out)
            KERNELS[self.name](out, **dict(self.parameters))
        elif self.name in _FORMULAS:
            _FORMULAS[self.name](landmarks, rows, out, **dict(self.parameters))
        else:
            out[:] = _by_function(self.name, rows.T, landmarks).T


def _sigmoid(landmarks: Any, rows: Any, out: Any, a: float, r: float) -> None:
    np.matmul(a * landmarks, rows, out=out)
    np.tanh(np.add(out, r, out=out), out=out)


def _linear(landmarks: Any, rows: Any, out: Any) -> None:
    np.matmul(landmarks, rows, out=out)


def _manhattan(landmarks: Any, rows: Any, out: Any) -> None:
    from scipy.spatial.distance import cdist

    np.negative(cdist(landmarks, rows.T, "cityblock"), out=out)


def _euclidean(landmarks: Any, rows: Any, out: Any) -> None:
    # −‖x − l‖² = 2⟨x, l⟩ − ‖l‖² − ‖x‖² as one product: nothing is left to be added afterwards.
    n_landmarks, n_rows = out.shape
    squares = np.einsum("ij,ij->i", landmarks, landmarks)[:, np.newaxis]
    ones = np.ones((max(n_landmarks, n_rows), 1))
    left = np.hstack((2 * landmarks, -squares, -ones[:n_landmarks]))
    right = np.vstack((rows, ones[:n_rows].T, np.einsum("ij,ij->j", rows, rows)))
    np.matmul(left, right, out=out)
    np.minimum(out, 0.0, out=out)  # rounding may leave more between rows that are the same


_TINY = float(np.finfo(float).tiny)


def _bell(out: Any, sigma: float) -> None:
    sigma = max(sigma, _TINY)
    with np.errstate(over="ignore"):  # divided twice, as the square of sigma may be 0
        np.divide(out, 2.0 * sigma, out=out)
        np.divide(out, sigma, out=out)
    np.exp(out, out=out)


def _peak(out: Any, sigma: float) -> None:
    np.sqrt(np.negative(out, out=out), out=out)
    with np.errstate(over="ignore"):
        np.divide(out, -max(sigma, _TINY), out=out)
    np.exp(out, out=out)


#: What makes of −r² the similarities of a width, in place: those that are kernels of a metric.
KERNELS: dict[str, Callable[..., None]] = {"gaussian": _bell, "laplace": _peak}


def _precomputed(landmarks: Any, rows: Any, out: Any) -> None:
    out[:] = rows


_FORMULAS: dict[str, Callable[..., None]] = {
    "sigmoid": _sigmoid,
    "manhattan": _manhattan,
    "euclidean": _euclidean,
    "linear": _linear,
    PRECOMPUTED: _precomputed,
}


# --- functions of the user's --------------------------------------------------------------------


@cache
def user_function(name: str) -> Callable[[np.ndarray, np.ndarray], Any]:
    """Import ``module:function``.

    Raises
    ------
    SpecError
        If there is no such module or function.
    """
    module, _, attribute = name.partition(":")
    try:
        function = getattr(import_module(module), attribute)
    except Exception as error:
        raise SpecError(
            f"The similarity `{name}` cannot be imported: {type(error).__name__}: {error}. Write "
            "`module:function`, and make the module importable (PYTHONPATH) wherever workers run."
        ) from error
    if not callable(function):
        raise SpecError(f"The similarity `{name}` is not a function: {attribute} cannot be called.")
    return function


def _by_function(name: str, rows: np.ndarray, landmarks: np.ndarray) -> np.ndarray:
    """Call a function of the user's and check what it returns."""
    function = user_function(name)
    shape = (len(rows), len(landmarks))
    try:
        similarities = np.asarray(function(rows, landmarks), dtype=rows.dtype)
    except Exception as error:
        raise DataError(
            f"The similarity `{name}` failed: {type(error).__name__}: {error}"
        ) from error
    if similarities.shape != shape:
        raise DataError(
            f"The similarity `{name}` returned an array of shape {similarities.shape} for "
            f"{shape[0]} rows and {shape[1]} landmarks; it must return one of shape {shape}."
        )
    if not np.isfinite(similarities).all():
        row, landmark = np.argwhere(~np.isfinite(similarities))[0]
        raise DataError(
            f"The similarity `{name}` returned {similarities[row, landmark]} for row {row} of a "
            f"block and landmark {landmark}; similarities must be finite numbers."
        )
    return similarities


#: Arrays of a map.
MAP_ARRAYS = ("shift", "scale", "fill", "landmarks", "transform")


# --- the map ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LandmarkMap:
    """From a row's features to its similarities to landmarks.

    Attributes
    ----------
    similarity : Similarity
        With all its parameters.
    shift, scale : ndarray of shape (d,)
        Features are compared as (x − shift)/scale; those of scale 0 do not count.
    fill : ndarray of shape (d,)
        What a missing value is taken for, in original units.
    landmarks : ndarray of shape (L, d)
        In original units.
    transform : ndarray of shape (0,), (c,) or (c, c)
        Applied to the c scaled columns that count, of which it is the diagonal or the whole; empty
        for none.
    ridge : float
        That was chosen with it.
    """

    similarity: Similarity
    shift: np.ndarray
    scale: np.ndarray
    fill: np.ndarray
    landmarks: np.ndarray
    transform: np.ndarray = field(default_factory=lambda: np.zeros(0))
    ridge: float = 0.0

    @classmethod
    def of(cls, similarity: Similarity, arrays: Mapping[str, Any]) -> LandmarkMap:
        """Make a map of the arrays that :attr:`arrays` returned."""
        return cls(similarity, **{name: arrays[name] for name in MAP_ARRAYS if name in arrays})

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All but the similarity, by name."""
        return {name: np.asarray(getattr(self, name)) for name in MAP_ARRAYS}

    @property
    def n_landmarks(self) -> int:
        """Number of similarities of a row."""
        return len(self.landmarks)

    def scaled(self, features: np.ndarray) -> np.ndarray:
        """Scale and transform features (d, n); the columns that do not count are left out."""
        used = self.scale > 0
        values = features if used.all() else features[used]
        missing = np.isnan(values)
        if missing.any():
            values = np.where(missing, self.fill[used, np.newaxis], values)
        scaled = (values - self.shift[used, np.newaxis]) / self.scale[used, np.newaxis]
        return transformed(self.transform, scaled) if self.transform.size else scaled

    def penalty(self) -> np.ndarray | None:
        """Return A (L, L), such that uᵀAu is the squared norm of Σ u_l K(·, l); None if no norm."""
        if self.similarity.name not in (*KERNELS, LINEAR):
            return None
        gram = self(self.landmarks.T)
        return (gram + gram.T) / 2

    def blocks(self, features: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield some rows at a time, and their similarities with a free row below: (L + 1, m).

        The memory is used again.
        """
        n_rows = features.shape[1]
        height = self.n_landmarks + 1
        step = min(max(_BLOCK_VALUES // height, _LEAST_ROWS), _MOST_ROWS)
        landmarks = np.ascontiguousarray(self.scaled(self.landmarks.T).T)
        memory = np.empty(height * min(step, n_rows))
        for start in range(0, n_rows, step):
            end = min(start + step, n_rows)
            size = height * (end - start)
            block = memory[:size].reshape(height, -1)
            scaled = self.scaled(features[:, start:end])
            self.similarity.fill(landmarks, np.ascontiguousarray(scaled), block[:-1])
            yield slice(start, end), block

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Return similarities (L, n) of features (d, n)."""
        similarities = np.empty((self.n_landmarks, features.shape[1]))
        for rows, block in self.blocks(features):
            similarities[:, rows] = block[:-1]
        return similarities

    def scores(
        self, features: np.ndarray, weights: np.ndarray, intercept: np.ndarray
    ) -> np.ndarray:
        """Return linear scores (n, P) of similarities, with weights (L, P)."""
        scores = np.empty((features.shape[1], weights.shape[1]))
        for rows, block in self.blocks(features):
            scores[rows] = block[:-1].T @ weights + intercept
        return scores

    def restricted(self, landmarks: Sequence[int] | np.ndarray) -> LandmarkMap:
        """Return the map to some landmarks, in the order given."""
        chosen = np.asarray(landmarks, dtype=np.intp)
        if self.similarity.name == PRECOMPUTED:
            vectors = {name: getattr(self, name)[chosen] for name in ("shift", "scale", "fill")}
            return replace(self, landmarks=np.eye(len(chosen)), **vectors)
        return replace(self, landmarks=self.landmarks[chosen])


# --- maps from a sample of rows -----------------------------------------------------------------

#: Similarities that stay the same when all rows are moved.
_OF_DISTANCES = ("manhattan", "gaussian", "laplace", "euclidean")
#: Rows that the mean distance between rows is taken of.
_SIGMA_ROWS = 500


def landmark_arrays(
    pool: RowSample, moments: Moments, n_features: int, options: Any, n_landmarks: int
) -> dict[str, np.ndarray]:
    """Return the arrays of a map to the first of some sampled rows, which are its landmarks.

    Parameters
    ----------
    pool : RowSample
    moments : Moments
        Of the training rows, features first.
    n_features : int
    options : LandmarksOptions
    n_landmarks : int
        Most landmarks.

    Raises
    ------
    DataError
        If no feature varies.
    """
    shift, scale = scales(moments, n_features, options.used_scaling)
    if not scale.any():
        raise DataError("All features are constant: all rows are the same.")
    arrays = {"shift": shift, "scale": scale, "fill": moments.mean[:n_features]}
    if options.is_precomputed:
        return {**arrays, "landmarks": np.eye(n_features)}
    return {**arrays, "landmarks": pool.values[:n_features, :n_landmarks].T}


def scales(moments: Moments, n: int, scaling: str) -> tuple[np.ndarray, np.ndarray]:
    """Return shift and scale of the first n columns; 0 for those that do not vary."""
    if scaling in (PRECOMPUTED, "none"):
        return np.zeros(n), np.ones(n)
    varies = ~moments.constant_columns()[:n]
    if scaling == "unit":
        shift, scale = moments.minimum[:n], moments.maximum[:n] - moments.minimum[:n]
    else:
        shift, scale = moments.mean[:n], np.sqrt(moments.variance[:n])
    return np.where(varies, shift, 0.0), np.where(varies, scale, 0.0)


def landmark_maps(
    similarities: Sequence[Similarity], arrays: Mapping[str, np.ndarray], sample: RowSample
) -> dict[str, LandmarkMap]:
    """Return maps by the label of the similarity, with all parameters.

    Parameters
    ----------
    similarities : sequence of Similarity
    arrays : mapping of str to ndarray
        As `landmark_arrays` returned them.
    sample : RowSample
        Of training rows: the mean distance between the first of them is the default of sigma.
    """
    from scipy.spatial.distance import pdist

    plain = LandmarkMap.of(Similarity("linear"), arrays)
    # Less their training means: distances then keep their digits.
    centred = replace(plain, shift=plain.fill)

    def sigma() -> float:
        rows = sample.first(_SIGMA_ROWS).values[: len(plain.scale)]
        return float(pdist(centred.scaled(rows).T).mean()) or 1.0

    n_columns = int(np.count_nonzero(plain.scale))
    maps = dict[str, LandmarkMap]()
    for similarity in similarities:
        scaled = centred if similarity.name in _OF_DISTANCES else plain
        resolved = similarity.resolved(n_columns, sigma)
        maps[similarity.label] = replace(scaled, similarity=resolved)
    return maps


def transformed(transform: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Apply a transform, or the diagonal of one, to rows (d, n)."""
    return transform[:, np.newaxis] * rows if transform.ndim == 1 else transform @ rows
