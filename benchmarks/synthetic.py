"""Synthetic datasets in the manner of the papers, of any length, written with bounded memory.

The rows depend on (name, options, seed) only: the first thousand rows of a dataset are the same
whatever its length. No BLAS is used, whose last bits depend on the number of threads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distfms.data.files.write import GroupedFile
from distfms.errors import SpecError, nearest
from distfms.stats.ragged import Ragged, offsets_of

if TYPE_CHECKING:
    import pyarrow as pa

#: Random numbers of one chunk (32 MiB as float64), and the most rows it has.
_CHUNK_NUMBERS = 2**22
_CHUNK_ROWS = 2**14

#: First word of the spawn key: what holds for the whole dataset, or one chunk of rows.
_WHOLE, _CHUNK = 0, 1


@dataclass(frozen=True)
class Recipe:
    """A generator with its options filled in and all that rows share drawn.

    ``rows(rng, first_row, n_rows)`` draws the columns of a chunk, `numbers_per_row` tells about
    how many random numbers a row takes, `truth` is what the rows were drawn from and goes to
    ``_metadata.json``, and `files` are put next to the shards.
    """

    schema: pa.Schema
    rows: Callable[[np.random.Generator, int, int], list[pa.Array]]
    numbers_per_row: int
    truth: dict[str, Any]
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Generator:
    """What makes a recipe of a random stream; its keyword-only parameters are the options."""

    name: str
    target: str
    id: str | None
    make: Callable[..., Recipe]


def require(holds: bool, message: str) -> None:
    """Refuse options that make no dataset; the message goes without a full stop."""
    if not holds:
        raise SpecError(message + ".")


def make(name: str, out: str | os.PathLike[str], rows: int, **options: Any) -> Path:
    """Write a synthetic dataset by the generator's name; see :func:`generate`."""
    if name not in GENERATORS:
        raise SpecError(f"no generator {name!r}.{nearest(name, list(GENERATORS))}")
    return generate(GENERATORS[name], out, rows, **options)


def generate(
    generator: Generator,
    out: str | os.PathLike[str],
    rows: int,
    *,
    seed: int = 0,
    rows_per_shard: int = 1_000_000,
    **options: Any,
) -> Path:
    """Write ``part-*.parquet``, ``_metadata.json`` and the recipe's files to a new folder.

    Raises
    ------
    SpecError
        On a wrong option.
    OSError
        If the folder cannot be written.
    """
    import pyarrow as pa

    for name, number, least in (("rows", rows, 1), ("seed", seed, 0)):
        require(number >= least, f"{name} is too small: {number}")
    bound = signature(generator.make).bind(_stream(seed, _WHOLE), **options)
    bound.apply_defaults()
    recipe, resolved = generator.make(*bound.args, **bound.kwargs), bound.kwargs
    metadata = {
        "generator": generator.name,
        "parameters": resolved,
        "seed": seed,
        "rows": rows,
        "target": generator.target,
        "id": generator.id,
        "truth": recipe.truth,
    }
    chunk_rows = max(1, min(_CHUNK_ROWS, _CHUNK_NUMBERS // recipe.numbers_per_row))
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    for shard, first in enumerate(range(0, rows, rows_per_shard)):
        last = min(first + rows_per_shard, rows)
        with GroupedFile(out / f"part-{shard:05d}.parquet") as file:
            for number in range(first // chunk_rows, -(-last // chunk_rows)):
                # Always drawn in full, so that a longer dataset begins with a shorter one's rows.
                start = number * chunk_rows
                columns = recipe.rows(_stream(seed, _CHUNK, number), start, chunk_rows)
                chunk = pa.Table.from_arrays(columns, schema=recipe.schema).slice(0, last - start)
                file.write(chunk.slice(max(first - start, 0)))
    metadata_file = {"_metadata.json": (json.dumps(metadata, indent=1) + "\n").encode()}
    for name, content in (metadata_file | dict(recipe.files)).items():
        (out / name).write_bytes(content)
    return out


def _stream(seed: int, *key: int) -> np.random.Generator:
    """Return random numbers of one purpose; streams of different keys are independent."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


def ragged_of(matrix: np.ndarray) -> Ragged:
    """Return the judgments of an attribute, from (objects, k) with NaN where there is none."""
    present = ~np.isnan(matrix)
    return Ragged(np.asarray(matrix, dtype=float)[present], offsets_of(present.sum(axis=1)))


def list_column(values: np.ndarray, counts: np.ndarray) -> pa.Array:
    """Return the judgments of one attribute as Arrow lists, `counts` of them for each object."""
    import pyarrow as pa

    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))


def column_names(prefix: str, n: int) -> list[str]:
    """Return names that sort in column order: ``x00`` … with as many digits as needed."""
    digits = max(2, len(str(n - 1)))
    return [f"{prefix}{j:0{digits}d}" for j in range(n)]


def judged_schema(id_name: str, target: str, attributes: list[str]) -> pa.Schema:
    """Return the schema of objects with a numeric target and lists of judgments."""
    import pyarrow as pa

    lists = [(name, pa.list_(pa.float64())) for name in attributes]
    return pa.schema([(id_name, pa.int64()), (target, pa.float64()), *lists])


# --- generators ---------------------------------------------------------------------------------


def _judgments(
    rng: np.random.Generator,
    *,
    n_attributes: int = 20,
    n_factors: int = 4,
    judgments: int = 2,
    min_judgments: int = -1,
    noise: float = 1.0,
    noise_correlation: float = 0.0,
    label_noise: float = 0.3,
) -> Recipe:
    """Latent attributes from a factor model, a linear label, and noisy judgments of them.

    Every object has `judgments` of each attribute, or from `min_judgments` on if that is not
    negative; `noise` is the median ratio of internal to external variance; the j-th judgments of
    all attributes of an object are one rater's, whose errors have the `noise_correlation`. The
    truth holds the paper's Σ (``external``), v (``internal_variance``) and b
    (``label_covariance``).

    References
    ----------
    .. [1] Sabato & Kalai, Feature Multi-Selection among Subjective Features, ICML 2013, section 2.
    """
    import pyarrow as pa

    d = n_attributes
    require(d >= 1 and n_factors >= 1, "n_attributes and n_factors have to be at least 1")
    require(judgments >= 1, f"judgments is {judgments}, not at least 1")
    require(min_judgments <= judgments, "min_judgments is greater than judgments")
    require(noise >= 0 and label_noise >= 0, "noise and label_noise may not be negative")
    require(0 <= noise_correlation <= 1, "noise_correlation is not from 0 to 1")
    names = column_names("a", d)
    means, scale = rng.normal(0.0, 5.0, d), rng.lognormal(0.0, 0.5, d)
    loadings = rng.normal(size=(d, n_factors))
    loadings *= (scale * np.sqrt(0.6 / np.sum(loadings**2, axis=1)))[:, None]
    own = scale * np.sqrt(0.4)
    internal = noise * scale**2 * rng.lognormal(0.0, 1.0, d)
    # Half of the attributes say something about the label on their own account.
    coefficients = rng.normal(size=d) * (rng.permutation(d) < -(-d // 2)) / scale
    external = np.einsum("if,jf->ij", loadings, loadings) + np.diag(own**2)
    covariance = np.einsum("ij,j->i", external, coefficients)
    explained = float(np.einsum("i,i->", covariance, coefficients))
    label_std = label_noise * np.sqrt(explained)

    def rows(rng: np.random.Generator, first_row: int, n: int) -> list[pa.Array]:
        latent = np.einsum("nf,jf->jn", rng.standard_normal((n, n_factors)), loadings)
        latent += own[:, None] * rng.standard_normal((d, n))
        label = np.einsum("jn,j->n", latent, coefficients) + label_std * rng.standard_normal(n)
        low = judgments if min_judgments < 0 else min_judgments
        counts = rng.integers(low, judgments, size=(d, n), endpoint=True)
        # Drawn last, so that data without it are the same as before there was such an option.
        alone = np.sqrt(1.0 - noise_correlation)
        errors = [alone * rng.standard_normal(int(counts[a].sum())) for a in range(d)]
        moods = np.sqrt(noise_correlation) * rng.standard_normal((n, judgments))
        made = np.arange(judgments) < counts[:, :, None]
        lists = []
        for a in range(d):
            values = np.repeat(latent[a] + means[a], counts[a])
            values += np.sqrt(internal[a]) * (errors[a] + moods[made[a]])
            lists.append(list_column(values, counts[a]))
        return [pa.array(np.arange(first_row, first_row + n)), pa.array(label), *lists]

    return Recipe(
        schema=judged_schema("object", "label", names),
        rows=rows,
        numbers_per_row=d * (judgments + 2) + n_factors,
        truth={
            "attributes": names,
            "means": means.tolist(),
            "external": external.tolist(),
            "internal_variance": internal.tolist(),
            "noise_correlation": noise_correlation,
            "label_covariance": covariance.tolist(),
            "label_variance": explained + float(label_std) ** 2,
            "coefficients": coefficients.tolist(),
        },
    )


def _correlated_groups(
    rng: np.random.Generator,
    *,
    n_groups: int = 57,
    n_features: int = 328,
    n_factors: int = 5,
    within: float = 0.5,
    between: float = 0.3,
    n_relevant: int = 20,
    noise: float = 1.0,
    max_cost: int = 10,
) -> Recipe:
    """Correlated columns in groups with costs, `n_relevant` of which make the target.

    A column is a mixture of its group's factor (share `within` of its variance), of `n_factors`
    common to all (share `between`), and of its own noise, in its own unit and around its own mean.

    References
    ----------
    .. [1] Hu, Grubb, Bagnell, Hebert, Efficient Feature Group Sequencing for Anytime Linear
       Prediction, UAI 2016.
    """
    import pyarrow as pa

    d = n_features
    require(1 <= n_groups <= d, "n_groups has to be from 1 to n_features")
    require(1 <= n_relevant <= n_groups, "n_relevant has to be from 1 to n_groups")
    require(n_factors >= 1 and max_cost >= 1, "n_factors and max_cost have to be at least 1")
    require(min(within, between, noise) >= 0, "within, between and noise may not be negative")
    require(within + between <= 1, "within and between add up to more than 1")
    groups = column_names("g", n_groups)
    sizes = 1 + rng.multinomial(d - n_groups, rng.dirichlet(np.full(n_groups, 2.0)))
    group_of = np.repeat(np.arange(n_groups), sizes)
    common = rng.normal(size=(d, n_factors))
    common *= np.sqrt(between / np.sum(common**2, axis=1))[:, None]
    by_group = rng.choice([-1.0, 1.0], d) * np.sqrt(within)
    own = float(np.sqrt(max(0.0, 1.0 - within - between)))
    costs = rng.integers(1, max_cost, size=n_groups, endpoint=True)
    scale, means = rng.lognormal(0.0, 1.0, d), rng.normal(0.0, 3.0, d)
    relevant = np.sort(rng.permutation(n_groups)[:n_relevant])
    weights = rng.normal(size=d) * np.isin(group_of, relevant)
    correlation = np.einsum("if,jf->ij", common, common) + own**2 * np.eye(d)
    correlation += (group_of[:, None] == group_of) * np.outer(by_group, by_group)
    weights /= np.sqrt(np.einsum("i,ij,j->", weights, correlation, weights))

    def rows(rng: np.random.Generator, first_row: int, n: int) -> list[pa.Array]:
        target = noise * rng.standard_normal(n)
        factors = rng.standard_normal((n_factors, n))
        group_factors = rng.standard_normal((n_groups, n))
        columns = []
        for j in range(d):
            x = own * rng.standard_normal(n) + by_group[j] * group_factors[group_of[j]]
            x += np.einsum("f,fn->n", common[j], factors)
            target += weights[j] * x
            columns.append(pa.array(means[j] + scale[j] * x))
        return [*columns, pa.array(target)]

    pairs = list(zip(groups, sizes, strict=True))
    members = {group: [f"{group}_{j:02d}" for j in range(size)] for group, size in pairs}
    names = [name for group in groups for name in members[group]]
    lines = [f"{group},{cost}\n" for group, cost in zip(groups, costs, strict=True)]
    return Recipe(
        schema=pa.schema([(name, pa.float64()) for name in [*names, "target"]]),
        rows=rows,
        numbers_per_row=d + n_groups + n_factors + 1,
        truth={
            "groups": members,
            "costs": dict(zip(groups, costs.tolist(), strict=True)),
            "relevant_groups": [groups[g] for g in relevant],
            "coefficients": (weights / scale).tolist(),
            "target_variance": 1.0 + noise**2,
        },
        files={"_costs.csv": ("group,cost\n" + "".join(lines)).encode()},
    )


#: Every generator by name.
_ENTRIES = (
    Generator("judgments", target="label", id="object", make=_judgments),
    Generator("correlated-groups", target="target", id=None, make=_correlated_groups),
)
GENERATORS = {entry.name: entry for entry in _ENTRIES}
