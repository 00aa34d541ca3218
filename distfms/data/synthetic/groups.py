"""Correlated columns in groups with costs and a linear target, for group sequencing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from distfms.data.catalog import require
from distfms.data.synthetic.base import Recipe, column_names

if TYPE_CHECKING:
    import pyarrow as pa


def correlated_groups(
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
    """Correlated columns in groups with costs, some of which make the target.

    A column is a mixture of its group's factor, of factors common to all, and of its own noise,
    in its own unit and around its own mean.

    Parameters
    ----------
    rng : numpy.random.Generator
    n_groups, n_features : int
        Group sizes vary and add up to ``n_features``.
    n_factors : int
        Factors common to all groups.
    within, between : float
        Shares of a column's variance from its group's factor and from the common ones; their sum
        is at most 1.
    n_relevant : int
        Groups the target is made of.
    noise : float
        Standard deviation of the target around its linear part, in units of that part's.
    max_cost : int
        Costs are whole numbers from 1 to this.

    Returns
    -------
    Recipe
        With ``_costs.csv`` (group, cost); columns of group ``g07`` are named ``g07_*``.

    References
    ----------
    .. [1] Hu, Grubb, Bagnell, Hebert, Efficient Feature Group Sequencing for Anytime Linear
       Prediction, UAI 2016.
    """
    import pyarrow as pa

    require(1 <= n_groups <= n_features, "n_groups has to be from 1 to n_features")
    require(1 <= n_relevant <= n_groups, "n_relevant has to be from 1 to n_groups")
    require(n_factors >= 1 and max_cost >= 1, "n_factors and max_cost have to be at least 1")
    require(min(within, between, noise) >= 0, "within, between and noise may not be negative")
    require(within + between <= 1, "within and between add up to more than 1")
    groups = column_names("g", n_groups)
    sizes = 1 + rng.multinomial(n_features - n_groups, rng.dirichlet(np.full(n_groups, 2.0)))
    mixture = _Mixture.draw(rng, np.repeat(np.arange(n_groups), sizes), n_factors, within, between)
    costs = rng.integers(1, max_cost, size=n_groups, endpoint=True)
    scale, means = rng.lognormal(0.0, 1.0, n_features), rng.normal(0.0, 3.0, n_features)
    relevant = np.sort(rng.permutation(n_groups)[:n_relevant])
    weights = rng.normal(size=n_features) * np.isin(mixture.group_of, relevant)
    weights /= np.sqrt(np.einsum("i,ij,j->", weights, mixture.correlation(), weights))

    def rows(rng: np.random.Generator, first_row: int, n: int) -> list[pa.Array]:
        target = noise * rng.standard_normal(n)
        columns = []
        for j, x in enumerate(mixture.columns(rng, n)):
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
        numbers_per_row=n_features + n_groups + n_factors + 1,
        truth={
            "groups": members,
            "costs": dict(zip(groups, costs.tolist(), strict=True)),
            "relevant_groups": [groups[g] for g in relevant],
            "coefficients": (weights / scale).tolist(),
            "target_variance": 1.0 + noise**2,
        },
        files={"_costs.csv": ("group,cost\n" + "".join(lines)).encode()},
    )


@dataclass(frozen=True)
class _Mixture:
    """Columns of unit variance from a group factor, common factors and noise of their own."""

    group_of: np.ndarray
    common: np.ndarray
    by_group: np.ndarray
    own: float

    @classmethod
    def draw(
        cls,
        rng: np.random.Generator,
        group_of: np.ndarray,
        n_factors: int,
        within: float,
        between: float,
    ) -> _Mixture:
        d = len(group_of)
        common = rng.normal(size=(d, n_factors))
        common *= np.sqrt(between / np.sum(common**2, axis=1))[:, None]
        by_group = rng.choice([-1.0, 1.0], d) * np.sqrt(within)
        return cls(group_of, common, by_group, float(np.sqrt(max(0.0, 1.0 - within - between))))

    def correlation(self) -> np.ndarray:
        """Correlation of the columns in the population, (d, d)."""
        same_group = self.group_of[:, None] == self.group_of
        correlation = np.einsum("if,jf->ij", self.common, self.common)
        correlation += same_group * np.outer(self.by_group, self.by_group)
        return correlation + self.own**2 * np.eye(len(self.group_of))

    def columns(self, rng: np.random.Generator, n: int) -> Iterator[np.ndarray]:
        """Draw the columns one by one, each (n,)."""
        factors = rng.standard_normal((self.common.shape[1], n))
        group_factors = rng.standard_normal((self.group_of[-1] + 1, n))
        for group, common, by_group in zip(self.group_of, self.common, self.by_group, strict=True):
            x = self.own * rng.standard_normal(n) + by_group * group_factors[group]
            x += np.einsum("f,fn->n", common, factors)
            yield x
