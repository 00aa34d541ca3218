"""Synthetic datasets in the manner of the papers, of any length, written with bounded memory.

The rows depend on (name, options, seed) only: the first thousand rows of a dataset are the same
whatever its length, its shards and the number of threads that made it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from distfms.data.catalog import CatalogEntry, by_name
from distfms.data.synthetic import groups, judged
from distfms.data.synthetic.base import Recipe, generate
from distfms.errors import SpecError, nearest

#: Every generator by name.
GENERATORS: dict[str, CatalogEntry] = by_name(
    CatalogEntry(
        "judgments",
        "objects with correlated latent attributes, a linear label and noisy judgments; the true "
        "covariances are written next to the data",
        target="label",
        id="object",
        make=judged.judgments,
    ),
    CatalogEntry(
        "correlated-groups",
        "groups of correlated columns with costs (_costs.csv), some of which make the target",
        target="target",
        id=None,
        make=groups.correlated_groups,
    ),
)


def make(name: str, out: str | os.PathLike[str], rows: int, **options: Any) -> Path:
    """Write a synthetic dataset by the generator's name; see :func:`generate`.

    Raises
    ------
    SpecError
        If the generator or an option is unknown or wrong.
    DataError
        If the folder is taken or cannot be written.
    """
    if name not in GENERATORS:
        raise SpecError(f"no generator {name!r}.{nearest(name, list(GENERATORS))}")
    return generate(GENERATORS[name], out, rows, **options)


__all__ = ["GENERATORS", "Recipe", "generate", "make"]
