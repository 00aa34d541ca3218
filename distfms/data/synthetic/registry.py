"""The generators by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from distfms.data.synthetic import binary, judged, linear
from distfms.data.synthetic.base import Generator, generate
from distfms.errors import SpecError, nearest

_GENERATORS = (
    Generator(
        "judgments",
        "objects with correlated latent attributes, a linear label and noisy judgments; the true "
        "covariances are written next to the data",
        target="label",
        id="object",
        parameters={
            "n_attributes": 20,
            "n_factors": 4,
            "judgments": 2,
            "min_judgments": -1,
            "noise": 1.0,
            "label_noise": 0.3,
        },
        prepare=judged.judgments,
    ),
    Generator(
        "slices",
        "smooth histograms of slices along an axis; a judgment is a random one of 8 adjacent bins",
        target="position",
        id="slice",
        parameters={"n_bins": 384, "bins_per_attribute": 8, "judgments": 2, "n_bumps": 48},
        prepare=judged.slices,
    ),
    Generator(
        "correlated-groups",
        "groups of correlated columns with costs (_costs.csv), some of which make the target",
        target="target",
        id=None,
        parameters={
            "n_groups": 57,
            "n_features": 328,
            "n_factors": 5,
            "within": 0.5,
            "between": 0.3,
            "n_relevant": 20,
            "noise": 1.0,
            "max_cost": 10,
        },
        prepare=linear.correlated_groups,
    ),
    Generator(
        "gram",
        "independent standard normals (float64) with a linear target, for timing",
        target="target",
        id=None,
        parameters={"n_features": 100, "noise": 1.0},
        prepare=linear.gram,
    ),
    Generator(
        "attribute-efficient-ridge",
        "binary attributes with expectations i^alpha in the Euclidean unit ball, target from a "
        "±1 vector",
        target="target",
        id=None,
        parameters={"n_features": 500, "alpha": -1.0},
        prepare=binary.ridge,
    ),
    Generator(
        "attribute-efficient-lasso",
        "binary attributes with expectations i^alpha, target from a sparse {-1, 0, 1} vector",
        target="target",
        id=None,
        parameters={"n_features": 500, "alpha": -1.0},
        prepare=binary.lasso,
    ),
)

#: Every generator by name.
GENERATORS: dict[str, Generator] = {generator.name: generator for generator in _GENERATORS}


def make(
    name: str,
    out: str | os.PathLike[str],
    rows: int,
    *,
    seed: int = 0,
    shards: int | None = None,
    rows_per_shard: int | None = None,
    workers: int = 1,
    overwrite: bool = False,
    **parameters: Any,
) -> Path:
    """Write a synthetic dataset by the generator's name.

    Parameters
    ----------
    name : str
        Of ``GENERATORS``.
    out, rows, seed, shards, rows_per_shard, workers, overwrite
        As for :func:`distfms.data.synthetic.generate`.
    **parameters
        Of the generator.

    Returns
    -------
    Path
        ``out``.

    Raises
    ------
    SpecError
        If the generator or a parameter is unknown or wrong.
    DataError
        If the folder is taken or cannot be written.

    Examples
    --------
    >>> make("gram", "data/gram", 1_000_000, shards=32, n_features=100)  # doctest: +SKIP
    """
    if name not in GENERATORS:
        raise SpecError(f"no generator {name!r}." + nearest(name, list(GENERATORS)))
    return generate(
        GENERATORS[name],
        out,
        rows,
        seed=seed,
        shards=shards,
        rows_per_shard=rows_per_shard,
        workers=workers,
        overwrite=overwrite,
        parameters=parameters,
    )
