"""Models judged by one pass: which rows are read, in which runs, and how judgments merge."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

from distfms.data.rows.folds import part_slices
from distfms.methods.frame.judging import HELD_OUT, TRAIN, Verdict, by_statistics, judged, one_part
from distfms.methods.frame.passes import Sums
from distfms.stats.base import Bundle, Folded, merge_tree

N_FOLDS = 3


@dataclass
class Source:
    """Rows with a fold each, as sources give them; of a partition its number is kept."""

    held_out: bool
    test: float
    read_of: list = field(default_factory=list)

    n_parts = N_FOLDS + 1

    @property
    def section(self):
        return SimpleNamespace(test=self.test)

    def read(self, partition):
        self.read_of.append(partition)
        part = np.full(8, N_FOLDS) if self.held_out else np.sort(np.arange(8) % 4)
        rows = part_slices(part, self.n_parts)
        return SimpleNamespace(part_slices=rows, values=10.0 * partition + part)


@dataclass
class Rows:
    """A run with two partitions, and one more of held-out rows."""

    sources: dict
    inputs: object = None

    def reduce(self, reader, *, cache=True):
        assert not cache
        found = [reader("train", False)(number) for number in (1, 2)]
        return merge_tree([*found, reader("test", True)(3)])


def total(batch, parts):
    """Sums of the rows of each run of parts."""
    own = batch.part_slices[parts]
    values = batch.values[own[0].start : own[-1].stop]
    return {"sums": Sums({"total": np.array(values.sum()), "n": np.array(values.size)})}


def ask(asked, test=0.25):
    sources = {"train": Source(False, test), "test": Source(True, test)}
    found = judged(Rows(sources), lambda dataset, _: sources[dataset], asked)
    read = {name: source.read_of for name, source in sources.items()}
    return {key: own["sums"].arrays for key, own in found.items()}, read


def test_every_set_of_rows_is_judged_by_one_pass():
    asked = {
        "train": (total, [TRAIN]),
        "fold by fold": (total, [one_part(fold) for fold in range(N_FOLDS)]),
        ("fold", 1): (total, [one_part(1)]),
        "test": (total, [one_part(-1)]),
    }
    found, read = ask(asked)
    assert read == {"train": [1, 2], "test": [3]}
    # Two rows of each part in partitions 1 and 2, whose values are 10 and 20 and the part.
    assert found["train"] == found["fold by fold"] == {"total": 6 * 30 + 2 * 2 * 3, "n": 12}
    assert found["fold", 1] == {"total": 2 * 30 + 4, "n": 4}
    assert found["test"] == {"total": 2 * 30 + 4 * 3 + 8 * 33, "n": 12}


@pytest.mark.parametrize(
    ("parts", "test", "read"),
    [
        (HELD_OUT, 0.0, {"train": [], "test": [3]}),
        (HELD_OUT, 0.25, {"train": [1, 2], "test": [3]}),
        (one_part(2), 0.25, {"train": [1, 2], "test": []}),
    ],
)
def test_data_without_a_row_that_is_asked_for_are_not_read(parts, test, read):
    assert ask({"own": (total, [parts])}, test)[1] == read


def test_what_one_side_lacks_counts_as_nothing():
    one, other = Sums({"a": np.array(1.0)}), Sums({"a": np.array(2.0)})
    whole = Verdict({"x": one}).merge(Verdict({})).merge(Verdict({"x": other, "y": one}))
    assert whole.members["x"].arrays == {"a": 3.0}
    assert whole.members["y"].arrays == {"a": 1.0}
    assert whole.scaled(0.5).members["x"].arrays == {"a": 1.5}


def test_models_of_finished_runs_are_scored_on_the_data_of_the_run():
    def bundle(value):
        return Bundle({"n": Folded((1, value))})

    inputs = object()
    judge = by_statistics(
        inputs, bundle(5), None, lambda own: (own["n"], 1.0), lambda model, own: {model: own["n"]}
    )
    assert judge(SimpleNamespace(inputs=inputs), ["a", "b"]) == (5, [{"a": 5}, {"b": 5}])
    other = SimpleNamespace(inputs=object(), reduce=lambda reader: bundle(7))
    assert judge(other, ["a"]) == (7, [{"a": 7}])
    none = SimpleNamespace(inputs=object(), reduce=lambda reader: bundle(0))
    assert judge(none, ["a"]) == (0, [])
