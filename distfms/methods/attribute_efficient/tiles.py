"""Pairs of more attributes than one process can hold: matrices in tiles of rows, on actors.

An actor reads all rows and adds up its own rows of the matrices. The solve then asks for products
with vectors only, of which every tile answers its part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from distfms.data.partition import Dataset, Partition
from distfms.engine.base import ActorPool
from distfms.engine.memory import format_bytes
from distfms.errors import SpecError
from distfms.methods.attribute_efficient.draws import Draws
from distfms.methods.attribute_efficient.evaluation import LearningProcedure
from distfms.methods.attribute_efficient.from_pairs import FoldPairs, PairMoments, solve
from distfms.methods.attribute_efficient.job import AttributeEfficientJob
from distfms.methods.attribute_efficient.lessons import Learned, learned_of
from distfms.methods.attribute_efficient.options import LARGEST_PAIRS, AttributeEfficientOptions
from distfms.methods.attribute_efficient.pairs import INNER_FOLDS, RunningPairs
from distfms.methods.attribute_efficient.pairs_job import PairsJob
from distfms.methods.attribute_efficient.read import LabelledSource, observe, observed_reader
from distfms.methods.contract import Context, Inputs
from distfms.methods.cross_validation import Members
from distfms.methods.rows import SummaryReader
from distfms.methods.slabs import SLAB_COLUMNS, slab_starts

#: Matrices of a tile that an actor holds at most: sums of the folds, and what is made of them.
TILE_MATRICES = 4 * INNER_FOLDS + 12


@dataclass
class Tile:
    """Rows of the moments of folds, and those without a fold and of it that are asked about."""

    folds: FoldPairs
    now: tuple[PairMoments, PairMoments | None] | None = None


def tiles(n_attributes: int) -> list[slice]:
    """Divide the rows of a matrix, always in the same way."""
    starts = slab_starts([1] * n_attributes)
    return [slice(*bounds) for bounds in pairwise(starts)]


def read_tile(
    source: LabelledSource, partitions: Sequence[Partition], draws: Draws, rows: slice
) -> Tile:
    """Add up some rows of the matrices over all partitions."""
    sums = RunningPairs(source.plan.n_columns, rows)
    for partition in partitions:
        for own_source, piece in source.pieces(partition):
            batch = own_source.read(piece)
            sums.learn(*observe(batch, draws, source.train_rows(batch)))
    return Tile(FoldPairs([*sums.pairs().folds.values()]))


class TiledPairsJob(PairsJob):
    """Ridge from pairs of more attributes than one process can hold."""

    def __init__(self, options: AttributeEfficientOptions, inputs: Inputs, seed: int) -> None:
        super().__init__(options.model_copy(update={"repeats": 0}), inputs, seed)
        if options.penalty == "lasso":
            raise SpecError(
                f"`penalty: lasso` is solved from pairs of at most {LARGEST_PAIRS:,} attributes, "
                f"and the data have {self._plan.n_features:,}. Set `solver: online`, or "
                "`penalty: ridge`."
            )
        section = inputs.section.model_copy(update={"folds": 0})
        self.inputs = replace(inputs, section=section)

    def statistics_bytes(self) -> int:
        """Return the size of one partial statistic in memory."""
        return AttributeEfficientJob.statistics_bytes(self)

    def tile_bytes(self) -> int:
        """Return what an actor holds of one tile."""
        n_columns = self._plan.n_columns
        return 8 * TILE_MATRICES * min(SLAB_COLUMNS, n_columns) * n_columns

    def describe(self) -> Mapping[str, str]:
        """Return what the job will do: label → text."""
        n_tiles = len(tiles(self._plan.n_features))
        return {
            **super().describe(),
            "moments of pairs": f"on actors, {n_tiles} tiles of up to {SLAB_COLUMNS:,} rows, up to "
            f"{format_bytes(self.tile_bytes())} each, in as many passes over the data",
        }

    def reader(self, context: Context, dataset: Dataset, held_out: bool) -> SummaryReader:
        """Return the reader of moments, norms and counts."""
        return observed_reader(self.source(self._plan, dataset, held_out), self.draws(context))

    def summary_reader(self, context: Context, dataset: Dataset, held_out: bool) -> None:
        """Return nothing: the products of all attributes are too many."""

    def search(
        self, context: Context, procedure: LearningProcedure, problem: Members
    ) -> Sequence[Learned]:
        """Add the pairs up on actors, and solve there."""
        train, shards = self.inputs.train, tiles(self._plan.n_features)
        source = self.source(self._plan, train, False)
        build = partial(read_tile, source, tuple(train.partitions), self.draws(context))
        with context.pool(len(shards), self.tile_bytes()) as pool:
            pool.start(build, shards)
            found = solve(TiledFolds(pool))
        context.note(
            f"The pairs of {self._plan.n_features:,} attributes were solved in {len(shards)} tiles "
            "on actors. There are no cross-validation and no curves."
        )
        observed = problem["observed"]
        return [learned_of(found, problem["counts"].n_rows, observed.n_observed[:-1])]


class TiledFolds:
    """Moments of folds whose tiles actors hold; see `from_pairs.Folds`.

    Parameters
    ----------
    pool : ActorPool
        With a `Tile` for each of the `tiles`, in their order.
    """

    def __init__(self, pool: ActorPool) -> None:
        self.pool = pool
        answers = pool.step(_varies)
        self.n_folds = answers[0][0]
        self.varies = np.concatenate([varies for _, varies in answers])

    def without(self, fold: int | None) -> tuple[TiledMoments, TiledMoments | None, np.ndarray]:
        """Return moments without a fold, those of the fold about the same means, and these."""
        answers = self.pool.step(_without, (self.varies, fold))
        of_parts = [
            TiledMoments(self.pool, part, *(np.concatenate(a) for a in zip(*own, strict=True)))
            for part, own in enumerate(zip(*(parts for parts, _ in answers), strict=True))
        ]
        return of_parts[0], of_parts[1] if len(of_parts) > 1 else None, answers[0][1]


@dataclass(frozen=True, eq=False)
class TiledMoments:
    """Moments whose matrices are on actors; see `from_pairs.Moments`."""

    pool: ActorPool
    part: int
    cross: np.ndarray
    variance: np.ndarray

    @property
    def gram(self) -> None:
        """Return nothing: no process holds it."""

    def gram_times(self, x: np.ndarray) -> np.ndarray:
        """Return A x."""
        return np.concatenate(self.pool.step(_gram_times, (self.part, x)))

    def noise_times(self, x: np.ndarray) -> np.ndarray:
        """Return V x."""
        return np.concatenate(self.pool.step(_noise_times, (self.part, x, self.variance)))


# --- on actors ----------------------------------------------------------------------------------


def _varies(tile: Tile, message: None) -> tuple[None, tuple[int, np.ndarray]]:
    return None, (tile.folds.n_folds, tile.folds.varies)


def _without(tile: Tile, message: tuple[np.ndarray, int | None]) -> tuple[Tile, Any]:
    tile.now = None  # room for what comes
    tile.folds.varies, fold = message
    train, held_out, mean = tile.folds.without(fold)
    tile.now = train, held_out
    told = [(own.cross, own.variance) for own in tile.now if own is not None]
    return tile, (told, mean)


def _moments(tile: Tile, part: int) -> PairMoments:
    moments = (tile.now or ())[part]
    assert moments is not None
    return moments


def _gram_times(tile: Tile, message: tuple[int, np.ndarray]) -> tuple[None, np.ndarray]:
    part, x = message
    return None, _moments(tile, part).gram_times(x)


def _noise_times(
    tile: Tile, message: tuple[int, np.ndarray, np.ndarray]
) -> tuple[None, np.ndarray]:
    part, x, variance = message
    return None, _moments(tile, part).noise_times(x, variance)
