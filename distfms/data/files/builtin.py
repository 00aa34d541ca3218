"""Real datasets that need no download: those bundled with scikit-learn, as rows in memory."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, Field

from distfms.data.files.frames import FrameForms
from distfms.data.files.partition import MAX_ROWS, Dataset, Rows, digest, memory_dataset
from distfms.data.rows.roles import require_columns
from distfms.errors import SpecError, nearest
from distfms.spec import DataSection, Listed, parse_section

_N_PARTITIONS = 4


class _NoOptions(BaseModel, extra="forbid", strict=True):
    """What a dataset without options takes."""


@dataclass(frozen=True)
class CatalogEntry:
    """A dataset that can be made.

    `target` is the column to predict, `id` that which names the rows; all others are features.
    `make` takes what `Options` has.
    """

    name: str
    target: str
    id: str
    make: Callable[..., pa.Table]
    Options: type[BaseModel] = _NoOptions


def builtin_entry(name: str) -> CatalogEntry:
    """Return what is known of an embedded dataset; a SpecError says that there is none."""
    if name not in BUILTIN:
        raise SpecError(f"There is no embedded dataset `{name}`.{nearest(name, BUILTIN)}")
    return BUILTIN[name]


def builtin_table(name: str, options: Mapping[str, Any] | None = None) -> pa.Table:
    """Return an embedded dataset; a SpecError says that the name or an option is unknown."""
    entry = builtin_entry(name)
    resolved = parse_section(entry.Options, options, "data.options")
    return entry.make(**resolved.model_dump())


def builtin_dataset(section: DataSection, max_rows: int = MAX_ROWS) -> Dataset:
    """Return the embedded dataset that a job's section names, in four partitions or more."""
    name = section.builtin or ""
    table = builtin_table(name, section.options)
    require_columns(table.schema, section.text, "one of `text`")
    table = FrameForms(texts=frozenset(section.text))(table, name)
    max_rows = min(max_rows, -(-table.num_rows // _N_PARTITIONS))
    dataset = memory_dataset(Rows(table), table.schema, max_rows)
    content = pa.BufferOutputStream()
    with pa.ipc.new_stream(content, table.schema) as stream:
        stream.write_table(table)
    version = hashlib.sha256(content.getvalue()).hexdigest()
    partitions = []
    for partition in dataset.partitions:
        fingerprint = digest(version, str(partition.row_offset))
        partitions.append(replace(partition, path=name, name=name, fingerprint=fingerprint))
    return replace(dataset, partitions=tuple(partitions))


class _DigitsOptions(_NoOptions):
    judgments: Annotated[int, Field(ge=1)] = 2
    only: Listed[Annotated[int, Field(ge=0, le=9)]] = ()


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
