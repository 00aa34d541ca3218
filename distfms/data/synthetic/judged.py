"""Objects with judged attributes, for feature multi-selection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from distfms.data.synthetic.base import Recipe, column_names, list_column, require

if TYPE_CHECKING:
    import pyarrow as pa


def judgments(
    rng: np.random.Generator,
    *,
    n_attributes: int,
    n_factors: int,
    judgments: int,
    min_judgments: int,
    noise: float,
    label_noise: float,
) -> Recipe:
    """Latent attributes from a factor model, a linear label, and noisy judgments of them.

    Parameters
    ----------
    rng : numpy.random.Generator
    n_attributes, n_factors : int
    judgments : int
        k of every object and attribute.
    min_judgments : int
        If not negative, k is uniform on {min_judgments, …, judgments} for each pair.
    noise : float
        Median ratio of internal to external variance.
    label_noise : float
        Standard deviation of the label around its linear part, in units of that part's.

    Returns
    -------
    Recipe
        Its truth holds ``external`` (Σ), ``internal_variance`` (v), ``label_covariance`` (b) and
        what they come from, all of the population.

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
        lists = []
        for a in range(d):
            values = np.repeat(latent[a] + means[a], counts[a])
            values += np.sqrt(internal[a]) * rng.standard_normal(len(values))
            lists.append(list_column(values, counts[a]))
        return [pa.array(np.arange(first_row, first_row + n)), pa.array(label), *lists]

    return Recipe(
        schema=_schema("object", "label", pa.float64(), names),
        rows=rows,
        numbers_per_row=d * (judgments + 2) + n_factors,
        truth={
            "attributes": names,
            "means": means.tolist(),
            "external": external.tolist(),
            "internal_variance": internal.tolist(),
            "label_covariance": covariance.tolist(),
            "label_variance": explained + float(label_std) ** 2,
            "coefficients": coefficients.tolist(),
        },
    )


def slices(
    rng: np.random.Generator,
    *,
    n_bins: int,
    bins_per_attribute: int,
    judgments: int,
    n_bumps: int,
) -> Recipe:
    """Smooth histograms of slices along an axis, judged by random bins.

    The protocol of the paper's experiment on CT slices: adjacent bins form one attribute, and a
    judgment is one of its bins drawn at random, with replacement. The histograms are made up:
    bumps along the bins whose heights wave with the position to be predicted, plus variation.

    Parameters
    ----------
    rng : numpy.random.Generator
    n_bins : int
        A multiple of ``bins_per_attribute``.
    bins_per_attribute : int
    judgments : int
        k of every object and attribute.
    n_bumps : int

    Returns
    -------
    Recipe

    References
    ----------
    .. [1] Sabato & Kalai, Feature Multi-Selection among Subjective Features, ICML 2013, section 4.
    """
    import pyarrow as pa

    require(bins_per_attribute >= 1 and n_bumps >= 1, "counts have to be at least 1")
    require(judgments >= 1, f"judgments is {judgments}, not at least 1")
    require(
        n_bins >= 1 and n_bins % bins_per_attribute == 0,
        f"n_bins is {n_bins}, not a multiple of bins_per_attribute ({bins_per_attribute})",
    )
    d = n_bins // bins_per_attribute
    names = column_names("bins", d)
    centres = rng.uniform(0, n_bins, n_bumps)
    widths = rng.uniform(0.5, 2.0, n_bumps) * max(bins_per_attribute, 2)
    profile = np.exp(-0.5 * ((np.arange(n_bins) - centres[:, None]) / widths[:, None]) ** 2)
    frequency, phase = rng.uniform(0.2, 2.0, n_bumps), rng.uniform(0.0, 1.0, n_bumps)
    offset = bins_per_attribute * np.arange(d)[:, None]

    def rows(rng: np.random.Generator, first_row: int, n: int) -> list[pa.Array]:
        position = rng.uniform(0.0, 100.0, n)
        waves = np.sin(2 * np.pi * (position[:, None] / 100.0 * frequency + phase))
        heights = np.maximum(0.5 + 0.5 * waves + 0.2 * rng.standard_normal((n, n_bumps)), 0.0)
        histogram = np.einsum("nm,mj->nj", heights, profile)
        bins = offset[:, :, None] + rng.integers(bins_per_attribute, size=(d, n, judgments))
        drawn = histogram[np.arange(n)[:, None], bins]
        counts = np.full(n, judgments)
        lists = [list_column(drawn[a].ravel(), counts) for a in range(d)]
        return [pa.array(np.arange(first_row, first_row + n)), pa.array(position), *lists]

    return Recipe(
        schema=_schema("slice", "position", pa.float64(), names),
        rows=rows,
        numbers_per_row=n_bins + d * judgments + n_bumps,
        truth={"attributes": names, "bins_per_attribute": bins_per_attribute},
    )


def _schema(id_name: str, target: str, kind: pa.DataType, attributes: list[str]) -> pa.Schema:
    import pyarrow as pa

    lists = [(name, pa.list_(pa.float64())) for name in attributes]
    return pa.schema([(id_name, pa.int64()), (target, kind), *lists])
