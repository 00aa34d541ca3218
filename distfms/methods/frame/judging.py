"""Judgments by functions of batches, for methods that do not ask the judge (`judge`) yet."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from distfms.data.files.partition import Dataset
from distfms.methods.frame.contract import Run
from distfms.methods.frame.judge import Question, judged_by_pass
from distfms.methods.frame.rows import FoldedSource
from distfms.stats.base import Folded

Key = TypeVar("Key", bound=Hashable)

#: Which parts of a batch are judged together: all folds, or the held-out rows; see `one_part`.
TRAIN = slice(0, -1)
HELD_OUT = slice(-1, None)

#: Picklable: from a batch and some of its parts to statistics of their rows, by name.
Judge = Callable[[Any, slice], Mapping[str, Any]]
#: A judge, and the parts that it is asked about, one run of them after the other.
Asked = tuple[Judge, Sequence[slice]]


def one_part(number: int) -> slice:
    """Return a part by its number: a fold, or −1 for the held-out rows."""
    return slice(number, number + 1 or None)


@dataclass(frozen=True, eq=False)
class Verdict:
    """Statistics by name of rows that were judged, none of others; a mergeable statistic."""

    members: Mapping[str, Any]

    def merge(self, later: Verdict) -> Verdict:
        """Merge member by member; one that a side lacks counts as nothing there."""
        merged = {**self.members}
        for name, statistic in later.members.items():
            merged[name] = merged[name].merge(statistic) if name in merged else statistic
        return Verdict(merged)

    def scaled(self, factor: float) -> Verdict:
        """Multiply the weight of every row by `factor`."""
        scaled = Folded(tuple(self.members.values())).scaled(factor).parts
        return Verdict(dict(zip(self.members, scaled, strict=True)))


@dataclass(frozen=True, eq=False)
class _Asked(Question):
    """A judge of batches as a question."""

    nothing: ClassVar[Any] = Verdict({})

    def of_part(self, batch: Any, part: int) -> Verdict:
        judge: Any = self.judge
        return Verdict(judge(batch, slice(part, part + 1)))


def judged(
    run: Run, source: Callable[[Dataset, bool], FoldedSource], questions: Mapping[Key, Asked]
) -> dict[Key, Mapping[str, Any]]:
    """Judge models by one pass over all rows; return what the judges add up over these rows."""
    asked = dict[Key, Question]()
    for key, (judge, runs) in questions.items():
        parts = None if TRAIN in runs else [own.start for own in runs]
        asked[key] = _Asked(None, judge, parts)  # type: ignore[arg-type]
    found = judged_by_pass(run, source, asked)
    judgments = {}
    for key, (_, runs) in questions.items():
        merged = found[key].test if HELD_OUT in runs else found[key].train()
        judgments[key] = merged.members
    return judgments
