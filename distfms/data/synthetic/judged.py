"""Objects with judged attributes, for feature multi-selection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from distfms.data.catalog import require
from distfms.data.synthetic.base import Recipe, column_names, judged_schema, list_column

if TYPE_CHECKING:
    import pyarrow as pa


def judgments(
    rng: np.random.Generator,
    *,
    n_attributes: int = 20,
    n_factors: int = 4,
    judgments: int = 2,
    min_judgments: int = -1,
    noise: float = 1.0,
    label_noise: float = 0.3,
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
        schema=judged_schema("object", "label", names),
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
