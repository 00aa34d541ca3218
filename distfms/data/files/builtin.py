"""Real datasets that need no download: those bundled with scikit-learn, as sharded Parquet.

They are kept from their first use on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, Field, Strict

from distfms.data.files.storage import cache_folder
from distfms.data.files.write import write_table
from distfms.errors import SpecError, nearest
from distfms.spec import parse_section
from distfms.store.kept import kept_files
from distfms.store.places import Location, writing

_N_SHARDS = 4


class _NoOptions(BaseModel, extra="forbid"):
    """What a dataset without options takes."""


@dataclass(frozen=True)
class CatalogEntry:
    """A dataset that can be made.

    `target` is the column to predict, `id` that which names the rows; all others are features.
    `make` takes what `Options` has. `version` is raised whenever the rows change.
    """

    name: str
    target: str
    id: str
    make: Callable[..., Any]
    Options: type[BaseModel] = _NoOptions
    version: int = 1


def builtin_dataset(
    name: str, cache: str | os.PathLike[str] | None = None, options: Mapping[str, Any] | None = None
) -> Location:
    """Return the folder of an embedded dataset; it is written when it is not there yet.

    `cache` is by default the environment's ``DISTFMS_CACHE``, else ``~/.cache/distfms``. A
    SpecError says that the name or an option is unknown; it, or an EngineError, that nothing can be
    written.
    """
    if name not in BUILTIN:
        raise SpecError(f"There is no embedded dataset `{name}`.{nearest(name, BUILTIN)}")
    entry = BUILTIN[name]
    resolved = parse_section(entry.Options, options, "data.options").model_dump()

    def make(folder: Path) -> None:
        table = entry.make(**resolved)
        n_rows = -(-table.num_rows // _N_SHARDS)
        for shard in range(_N_SHARDS):
            rows = table.slice(shard * n_rows, n_rows)
            write_table(folder / name / f"part-{shard:05d}.parquet", rows)

    root = Path(cache or cache_folder())
    with writing(root):
        return kept_files(root, "builtin", [name, entry.version, resolved], make) / name


class _DigitsOptions(_NoOptions):
    judgments: Annotated[int, Strict(), Field(ge=1)] = 2
    only: tuple[Annotated[int, Strict(), Field(ge=0, le=9)], ...] = ()


def _digits(judgments: int, only: Sequence[int]) -> pa.Table:
    """8×8 images as patches of 2×2 pixels; a judgment is a pixel of its patch, with replacement.

    Of all digits, or `only` of some.
    """
    from sklearn.datasets import load_digits

    bundled = load_digits()
    n_images = len(bundled.target)
    pixels = bundled.images.reshape(n_images, 4, 2, 4, 2)
    patches = pixels.transpose(0, 1, 3, 2, 4).reshape(n_images, 16, 4)
    # Judgment after judgment, so that asking for more leaves the first ones as they were.
    drawn = np.random.default_rng(0).integers(4, size=(judgments, n_images, 16))
    values = np.take_along_axis(patches, drawn.transpose(1, 2, 0), axis=2)
    offsets = pa.array(np.arange(0, n_images * judgments + 1, judgments, dtype=np.int32))
    columns: dict[str, pa.Array] = {
        "image": pa.array(np.arange(n_images)),
        "digit": pa.array(bundled.target.astype(np.int64)),
    }
    for patch in range(16):
        items = np.ascontiguousarray(values[:, patch]).ravel()
        name = f"patch_{patch // 4}_{patch % 4}"
        columns[name] = pa.ListArray.from_arrays(offsets, pa.array(items))
    table = pa.table(columns)
    return table.filter(np.isin(bundled.target, only)) if only else table


def _digits_3v5() -> pa.Table:
    """8×8 images of threes (−1) and fives (1), one column a pixel."""
    from sklearn.datasets import load_digits

    bundled = load_digits()
    rows = np.flatnonzero(np.isin(bundled.target, (3, 5)))
    target = np.where(bundled.target[rows] == 5, 1.0, -1.0)
    return _plain(bundled.feature_names, bundled.data[rows], "five", target, id="image")


def _breast_cancer() -> pa.Table:
    """Ten measures of cell nuclei × mean, error, worst."""
    from sklearn.datasets import load_breast_cancer

    bundled = load_breast_cancer()
    # `mean concave points` and `concave points error` with the form at the end.
    moved = (re.sub(r"^(mean|worst) (.*)", r"\2 \1", name) for name in bundled.feature_names)
    names = [name.replace(" ", "_") for name in moved]
    measures = [name.removesuffix("_mean") for name in names if name.endswith("_mean")]
    order = [names.index(f"{m}_{form}") for m in measures for form in ("mean", "error", "worst")]
    # The bundled target is 1 for benign.
    return _plain(
        [names[j] for j in order], bundled.data[:, order], "malignant", 1 - bundled.target
    )


def _diabetes() -> pa.Table:
    return _bundled("diabetes", "progression", scaled=False)


def _bundled(name: str, target: str, id: str = "sample", **options: Any) -> pa.Table:
    """Return a table as it is bundled, its columns named without spaces and slashes."""
    from sklearn import datasets

    bundled = getattr(datasets, f"load_{name}")(**options)
    names = [re.sub(r"[ /]", "_", name) for name in bundled.feature_names]
    return _plain(names, bundled.data, target, bundled.target, id)


def _plain(
    names: Sequence[str], data: np.ndarray, target: str, labels: np.ndarray, id: str = "sample"
) -> pa.Table:
    kind = np.int64 if labels.dtype.kind == "i" else np.float64
    columns = {id: pa.array(np.arange(len(data))), target: pa.array(labels.astype(kind))}
    for name, column in zip(names, data.T, strict=True):
        columns[name] = pa.array(np.ascontiguousarray(column, dtype=np.float64))
    return pa.table(columns)


_ENTRIES = (
    # 1797 images of digits; attributes are patches of neighbouring pixels, a judgment is a random
    # pixel of the patch.
    CatalogEntry("digits", "digit", "image", _digits, _DigitsOptions),
    # 365 images of threes (−1) and fives (1): the 64 pixels of each.
    CatalogEntry("digits-3v5", "five", "image", _digits_3v5),
    # 1797 images of digits: the 64 pixels of each.
    CatalogEntry("digits-pixels", "digit", "image", lambda: _bundled("digits", "digit", "image")),
    # 569 tumours: ten measures of cell nuclei × mean, error, worst; malignant or not.
    CatalogEntry("breast-cancer", "malignant", "sample", _breast_cancer),
    # 442 patients: ten baseline measurements; disease progression after a year.
    CatalogEntry("diabetes", "progression", "sample", _diabetes),
    # 178 wines: thirteen chemical measurements; cultivar 0, 1 or 2.
    CatalogEntry("wine", "cultivar", "sample", lambda: _bundled("wine", "cultivar")),
)

#: Every embedded dataset by name; each is made as one table.
BUILTIN = {entry.name: entry for entry in _ENTRIES}
