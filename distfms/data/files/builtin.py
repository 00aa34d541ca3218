"""Real datasets that need no download: those bundled with scikit-learn, as rows in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, Field

from distfms.data.files.frames import FrameForms
from distfms.data.files.partition import MAX_ROWS, Dataset, Rows, digest, memory_dataset
from distfms.data.rows.columns import as_arrow
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


def _bundled(file: str, delimiter: str | None = ",", n_skipped: int = 0) -> np.ndarray:
    """Return the numbers of a file that scikit-learn brings, without the second of its import."""
    package: Any = find_spec("sklearn")
    place = Path(package.origin).parent / "datasets" / "data" / file
    return np.loadtxt(place, delimiter=delimiter, skiprows=n_skipped)


def _digits(judgments: int, only: Sequence[int]) -> pa.Table:
    """8×8 images as patches of 2×2 pixels; a judgment is a pixel of its patch, with replacement.

    Of all digits, or `only` of some.
    """
    rows = _bundled("digits.csv.gz")
    digits = rows[:, -1].astype(np.int64)
    n_images = len(rows)
    pixels = rows[:, :-1].reshape(n_images, 4, 2, 4, 2)
    patches = pixels.transpose(0, 1, 3, 2, 4).reshape(n_images, 16, 4)
    # Judgment after judgment, so that asking for more leaves the first ones as they were.
    drawn = np.random.default_rng(0).integers(4, size=(judgments, n_images, 16))
    values = np.take_along_axis(patches, drawn.transpose(1, 2, 0), axis=2)
    offsets = as_arrow(np.arange(0, n_images * judgments + 1, judgments, dtype=np.int32))
    columns = {"image": as_arrow(np.arange(n_images)), "digit": as_arrow(digits)}
    for patch in range(16):
        name = f"patch_{patch // 4}_{patch % 4}"
        columns[name] = pa.ListArray.from_arrays(offsets, as_arrow(values[:, patch].ravel()))
    table = pa.table(columns)
    return table.filter(np.isin(digits, only)) if only else table


#: Names of the pixels of digits.
_PIXELS = [f"pixel_{number // 8}_{number % 8}" for number in range(64)]


def _digits_pixels() -> pa.Table:
    return _plain(_PIXELS, _bundled("digits.csv.gz"), "digit", "image")


def _digits_3v5() -> pa.Table:
    """8×8 images of threes (−1) and fives (1), one column a pixel."""
    rows = _bundled("digits.csv.gz")
    rows = rows[np.isin(rows[:, -1], (3, 5))]
    rows[:, -1] -= 4.0
    return _plain(_PIXELS, rows, "five", "image", np.float64)


def _breast_cancer() -> pa.Table:
    """Ten measures of cell nuclei × mean, error, worst."""
    names = []
    for measure in _MEASURES.split():
        names += [f"{measure}_{form}" for form in ("mean", "error", "worst")]
    rows = _bundled("breast_cancer.csv", n_skipped=1)
    rows[:, :-1] = rows[:, :-1].reshape(-1, 3, 10).transpose(0, 2, 1).reshape(-1, 30)
    rows[:, -1] = 1 - rows[:, -1]  # it is 1 for benign
    return _plain(names, rows, "malignant")


def _diabetes() -> pa.Table:
    names = ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")
    features = _bundled("diabetes_data_raw.csv.gz", None)
    rows = np.column_stack([features, _bundled("diabetes_target.csv.gz")])
    return _plain(names, rows, "progression", kind=np.float64)


def _wine() -> pa.Table:
    return _plain(_CHEMICALS.split(), _bundled("wine_data.csv", n_skipped=1), "cultivar")


_MEASURES = (
    "radius texture perimeter area smoothness compactness concavity concave_points symmetry "
    "fractal_dimension"
)
_CHEMICALS = (
    "alcohol malic_acid ash alcalinity_of_ash magnesium total_phenols flavanoids "
    "nonflavanoid_phenols proanthocyanins color_intensity hue od280_od315_of_diluted_wines proline"
)


def _plain(
    names: Sequence[str],
    rows: np.ndarray,
    target: str,
    id: str = "sample",
    kind: type[np.number] = np.int64,
) -> pa.Table:
    """Return a table of rows that end with the target."""
    columns = {id: as_arrow(np.arange(len(rows))), target: as_arrow(rows[:, -1].astype(kind))}
    for name, column in zip(names, rows.T, strict=False):
        columns[name] = as_arrow(column)
    return pa.table(columns)


_ENTRIES = (
    # 1797 images of digits; attributes are patches of neighbouring pixels, a judgment is a random
    # pixel of the patch.
    CatalogEntry("digits", "digit", "image", _digits, _DigitsOptions),
    # 365 images of threes (−1) and fives (1): the 64 pixels of each.
    CatalogEntry("digits-3v5", "five", "image", _digits_3v5),
    # 1797 images of digits: the 64 pixels of each.
    CatalogEntry("digits-pixels", "digit", "image", _digits_pixels),
    # 569 tumours: ten measures of cell nuclei × mean, error, worst; malignant or not.
    CatalogEntry("breast-cancer", "malignant", "sample", _breast_cancer),
    # 442 patients: ten baseline measurements; disease progression after a year.
    CatalogEntry("diabetes", "progression", "sample", _diabetes),
    # 178 wines: thirteen chemical measurements; cultivar 0, 1 or 2.
    CatalogEntry("wine", "cultivar", "sample", _wine),
)

#: Every embedded dataset by name; each is made as one table.
BUILTIN = {entry.name: entry for entry in _ENTRIES}
