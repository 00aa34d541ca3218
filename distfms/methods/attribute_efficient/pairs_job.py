"""Regression from pairs of attributes as a job, in one process or in tiles on actors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from distfms.data.partition import Dataset, Partition
from distfms.engine.base import ActorPool
from distfms.engine.memory import format_bytes
from distfms.errors import SpecError
from distfms.methods.attribute_efficient.draws import Draws, drawing_weights
from distfms.methods.attribute_efficient.from_pairs import (
    FoldPairs,
    Learned,
    PairMoments,
    solve,
)
from distfms.methods.attribute_efficient.job import AttributeEfficientJob
from distfms.methods.attribute_efficient.learner import improvement_ratio
from distfms.methods.attribute_efficient.lessons import (
    LearningProcedure,
    stream,
    weights_after,
)
from distfms.methods.attribute_efficient.options import (
    LARGEST_PAIRS,
    MOST_CURVES,
    AttributeEfficientOptions,
)
from distfms.methods.attribute_efficient.pairs import (
    INNER_FOLDS,
    LEAST_FOLDS,
    PAIR_BYTES,
    RunningPairs,
)
from distfms.methods.attribute_efficient.read import (
    LabelledSource,
    first_phase_reader,
    observe,
    statistics_reader,
)
from distfms.methods.contract import Content, Context, Inputs, Stage
from distfms.methods.cross_validation import Members
from distfms.methods.rows import SummaryReader
from distfms.methods.slabs import SLAB_COLUMNS, slab_starts
from distfms.methods.statistics_job import Solved, TrainMembers
from distfms.report.formatting import count
from distfms.stats.base import Bundle

#: Weights of the draws.
DRAWS = "statistics/draws.npz"


class PairsJob(AttributeEfficientJob):
    """Ridge or lasso from pairs of observed attributes, applied to one spec."""

    compared_by = "pairs"
    advice = "use more rows, or more attributes of each"
    missing_said = "Missing values count as not observed, and as missing at random"

    def __init__(self, options: AttributeEfficientOptions, inputs: Inputs, seed: int) -> None:
        super().__init__(options.model_copy(update={"solver": "pairs"}), inputs, seed)
        if self.takes_gaps and options.baselines:
            raise SpecError(
                "With `data.missing: pairs`, the job compares with a ridge on imputed means alone: "
                "leave `attribute_efficient.baselines` out."
            )
        if self._plan.n_features > MOST_CURVES and "repeats" not in options.model_fields_set:
            self.options = self.options.model_copy(update={"repeats": 0})

    def statistics_bytes(self) -> int:
        """Return the size of one partial statistic in memory."""
        folds = self.inputs.section.folds
        n_parts = folds if folds >= LEAST_FOLDS else INNER_FOLDS * max(folds, 1)
        return PAIR_BYTES * (self._plan.n_features + 1) ** 2 * n_parts + super().statistics_bytes()

    def describe(self) -> Mapping[str, str]:
        """Return what the job will do: label → text, from one partition of the data."""
        said = dict(super().describe())
        del said["chains"]
        d, drawn = self._plan.n_features, self.options.attributes_per_example
        what = f"{drawn} of {d} attributes" if drawn else "all that is there"
        said["method"] = f"{self.options.penalty} from pairs of attributes, of {what} in each row"
        if drawn is None:
            del said["attributes"]
        said["moments of pairs"] = f"{format_bytes(self.statistics_bytes())} in memory"
        return said

    # --- statistics ---

    def first_stages(self) -> Sequence[Stage]:
        """Return the stage that finds which attributes are drawn more often."""
        return [Stage("draws", self._draws)] if self.options.draws != "uniform" else []

    def _draws(self, context: Context) -> Mapping[str, Content]:
        if self.options.draws == "moments":
            bundle = context.reduce(partial(AttributeEfficientJob.reader, self, context))
            moments = bundle["moments"].train().second_moment[:-1]
            return {DRAWS: {"weights": drawing_weights(moments)}}
        alike = Draws(self.options.attributes_per_example, stream(self.seed, 0), phases=True)
        bundle = context.reduce(lambda *of: first_phase_reader(self.source(self._plan, *of), alike))
        return {DRAWS: {"weights": weights_after(bundle["observed"].train())}}

    def draws(self, context: Context) -> Draws:
        """Return which attributes are drawn of rows."""
        weights = None
        if self.options.draws != "uniform":
            weights = context.read_arrays(DRAWS)["weights"]
        phases, drawn = self.options.draws == "two_phase", self.options.attributes_per_example
        return Draws(drawn, stream(self.seed, 0), weights, phases)

    def reader(self, context: Context, dataset: Dataset, held_out: bool) -> SummaryReader:
        """Return the reader of moments, norms, counts and pairs."""
        source = self.source(self._plan, dataset, held_out)
        return statistics_reader(source, self.draws(context), with_pairs=True)

    def summary_reader(
        self, context: Context, dataset: Dataset, held_out: bool
    ) -> SummaryReader | None:
        """Return the reader of the statistics: what was observed is what partitions differ in."""
        return self.reader(context, dataset, held_out)

    def check(self, context: Context, statistics: Bundle) -> None:
        """Refuse what nothing can be learned from; say what was not observed."""
        train = TrainMembers(statistics)
        self._check_values(train, statistics["counts"].test.n_rows)
        self.tell_counts(context, self._plan, statistics["counts"])
        unseen = int((train["observed"].weight[:-1] == 0).sum())
        if unseen:
            context.note(
                f"{count(unseen, 'attribute was', 'attributes were')} not observed in any row, and "
                "the weights are 0."
            )

    # --- learning ---

    def selection(self, context: Context, solved: Solved) -> dict[str, Any]:
        """Return the content of ``selection.json``."""
        found = super().selection(context, solved)
        for name in ("chains", "bound", "norm", "step"):
            del found[name]
        moments = solved.train["observed"].second_moment[:-1]
        names = self._plan.feature_names
        return {
            **found,
            "draws": self.options.draws,
            "noise_level": solved.path.noise_level,
            "second_moments": dict(zip(names, moments.tolist(), strict=True)),
            "improvement_ratio": improvement_ratio(self.options.penalty, moments),
        }


#: Matrices of a tile that an actor holds at most: sums of the folds, and what is made of them.
TILE_MATRICES = 4 * INNER_FOLDS + 12


@dataclass
class Tile:
    """Rows of the moments of folds, and those without a fold and of it that are asked about."""

    folds: FoldPairs
    now: list[PairMoments] = field(default_factory=list)

    def begin(self) -> tuple[int, int, np.ndarray, np.ndarray]:
        """Return numbers of folds and rows, counts, and which of its attributes vary."""
        return self.folds.n_folds, self.folds.n_rows, self.folds.counts, self.folds.varies

    def turn(self, varies: np.ndarray, fold: int | None) -> tuple[Any, np.ndarray]:
        """Turn to the moments without a fold; return what there is of them but matrices."""
        self.now = []  # room for what comes
        self.folds.varies = varies
        train, held_out, mean = self.folds.without(fold)
        self.now = [train] if held_out is None else [train, held_out]
        return [(own.cross, own.variance) for own in self.now], mean

    def gram_times(self, part: int, x: np.ndarray) -> np.ndarray:
        """Return these rows of A x."""
        return self.now[part].gram_times(x)

    def noise_times(self, part: int, x: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Return these rows of V x."""
        return self.now[part].noise_times(x, variance)


def tiles(n_attributes: int) -> list[slice]:
    """Divide the rows of a matrix, always in the same way."""
    starts = slab_starts([1] * n_attributes)
    return [slice(*bounds) for bounds in pairwise(starts)]


def read_tile(
    source: LabelledSource, partitions: Sequence[Partition], draws: Draws, rows: slice
) -> Tile:
    """Add up some rows of the matrices over all partitions."""
    sums = RunningPairs(source.plan.n_columns, rows)

    def observe_piece(own: LabelledSource, piece: Partition) -> tuple[Any, ...]:
        batch = own.read(piece)
        return observe(batch, draws, own.train_rows(batch))

    for partition in partitions:
        for observed in source.each_batch(partition, observe_piece):
            sums.learn(*observed)
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
        self.takes_gaps = False  # no process holds the moments
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
        return statistics_reader(self.source(self._plan, dataset, held_out), self.draws(context))

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
            folds = TiledFolds(pool, float(problem["observed"].variance[-1]))
            found = solve(folds, units=self.options.units)
        context.note(
            f"The pairs of {self._plan.n_features:,} attributes were solved in {len(shards)} tiles "
            "on actors, without cross-validation and curves."
        )
        return [found]


class TiledFolds:
    """Moments of folds whose tiles actors hold; see `from_pairs.Folds`.

    Parameters
    ----------
    pool : ActorPool
        With a `Tile` for each of the `tiles`, in their order.
    target_variance : float
    """

    def __init__(self, pool: ActorPool, target_variance: float) -> None:
        self.pool, self.target_variance = pool, target_variance
        answers = pool.step(_asked, ("begin",))
        self.n_folds, self.n_rows, self.counts, _ = answers[0]
        self.varies = np.concatenate([varies for *_, varies in answers])

    def without(self, fold: int | None) -> tuple[TiledMoments, TiledMoments | None, np.ndarray]:
        """Return moments without a fold, those of the fold about the same means, and these."""
        answers = self.pool.step(_asked, ("turn", self.varies, fold))
        found: list[TiledMoments | None] = [None, None]
        for part, own in enumerate(zip(*(parts for parts, _ in answers), strict=True)):
            cross, variance = (np.concatenate(pieces) for pieces in zip(*own, strict=True))
            found[part] = TiledMoments(self.pool, part, cross, variance)
        assert found[0] is not None
        return found[0], found[1], answers[0][1]


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
        return np.concatenate(self.pool.step(_asked, ("gram_times", self.part, x)))

    def noise_times(self, x: np.ndarray) -> np.ndarray:
        """Return V x."""
        message = ("noise_times", self.part, x, self.variance)
        return np.concatenate(self.pool.step(_asked, message))


def _asked(tile: Tile, message: tuple[Any, ...]) -> tuple[Tile | None, Any]:
    """Have a tile answer; only a turn to other folds changes it."""
    name, *values = message
    return tile if name == "turn" else None, getattr(tile, name)(*values)
