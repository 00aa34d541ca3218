"""What was measured, as tables in Markdown and as one page with charts of paired differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.record import ratio_text
from distfms.report.page import Figure, Page, PageSection, Table, Text
from distfms.report.plots import Bar, bar_chart

_BEHIND = "Behind the best peer by more than a standard error on two tables or more."
#: Splits of a table: way → (loss, processor seconds).
Splits = Sequence[Mapping[str, tuple[float, float]]]


@dataclass(frozen=True)
class Question:
    """What was asked, and what losses are."""

    title: str
    loss: str


@dataclass(frozen=True)
class Line:
    """What was measured on a table: mean losses, and ours less the peer of the least mean."""

    table: str
    losses: Mapping[str, float]
    seconds: Mapping[str, float]
    peer: str
    less: float
    error: float

    @classmethod
    def of(cls, table: str, splits: Splits) -> Line:
        ways = list(splits[0])
        values = {way: np.array([s[way][0] for s in splits]) for way in ways}
        losses = {way: float(v.mean()) for way, v in values.items()}
        peer = min((way for way in ways if way != "ours"), key=lambda way: losses[way])
        less = values["ours"] - values[peer]
        error = float(less.std(ddof=1) / np.sqrt(len(less))) if len(less) > 1 else float("nan")
        seconds = {way: float(np.mean([s[way][1] for s in splits])) for way in ways}
        return cls(table, losses, seconds, peer, float(less.mean()), error)

    @property
    def standing(self) -> str:
        """Whether ours is ahead of, level with or behind the best peer, by a standard error."""
        if not abs(self.less) > self.error:
            return "level"
        return "ahead" if self.less < 0 else "behind"

    @property
    def difference(self) -> str:
        return f"{self.less:+.3f} ± {self.error:.3f}".replace("nan", "–")


def ways_of(lines: Sequence[Line]) -> list[str]:
    return list(dict.fromkeys(way for line in lines for way in line.losses))


def standings(lines: Sequence[Line]) -> str:
    """Return how often ours is ahead, level and behind, and the tables where it is behind."""
    counts = Counter(line.standing for line in lines)
    text = ", ".join(f"{kind} on {counts[kind]}" for kind in ("ahead", "level", "behind"))
    text += f" of {len(lines)} tables"
    return f"{text}; behind on {behind(lines)}" if counts["behind"] else text


def behind(lines: Sequence[Line]) -> str:
    """Return the tables where ours is behind the best peer by more than a standard error."""
    lost = [line for line in lines if line.standing == "behind"]
    return ", ".join(f"{line.table} ({line.difference}, {line.peer})" for line in lost) or "none"


def names_behind(lines: Sequence[Line]) -> str:
    """Return the names of these tables."""
    return "; ".join(n.table for n in lines if n.standing == "behind") or "none"


def summary(answers: Mapping[Question, Sequence[Line]]) -> list[str]:
    """Return a sentence for each question, first for those where ours is behind on two tables."""
    first = []
    then = []
    for question, lines in answers.items():
        if sum(line.standing == "behind" for line in lines) > 1:
            first.append(f"{question.title}: {_BEHIND} {standings(lines)}.")
        else:
            then.append(f"{question.title}: {standings(lines)}.")
    return first + then


def markdown(lines: Sequence[Line]) -> str:
    """Return a table of losses, with the differences and the seconds of ours and the peer."""
    ways = ways_of(lines)
    head = ["data", *ways, "ours less the best peer", "seconds: ours, the peer"]
    rows = [head, ["---"] * len(head)]
    for n in lines:
        losses = [f"{n.losses[w]:.3f}".removeprefix("0") if w in n.losses else "" for w in ways]
        seconds = f"{n.seconds['ours']:.1f}, {n.seconds[n.peer]:.1f}"
        rows.append([n.table, *losses, f"{n.difference} ({n.peer})", seconds])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def beside_peers(tables: Mapping[str, Splits]) -> list[dict[str, Any]]:
    """Return for each peer the ratio of our mean loss to its own, over the tables that have it.

    The mean is geometric; its range is that of 95% by the spread over tables. Ahead and behind are
    tables where the paired difference over splits is more than its standard error.
    """
    ways = dict.fromkeys(way for splits in tables.values() for way in splits[0])
    return [_beside(way, tables) for way in ways if way != "ours"]


def _beside(way: str, tables: Mapping[str, Splits]) -> dict[str, Any]:
    logs = []
    standings = {"ahead": 0, "level": 0, "behind": 0}
    for name, splits in tables.items():
        if way in splits[0]:
            both = [{"ours": split["ours"], way: split[way]} for split in splits]
            line = Line.of(name, both)
            logs.append(np.log(line.losses["ours"] / line.losses[way]))
            standings[line.standing] += 1
    mean = float(np.mean(logs))
    error = float(np.std(logs, ddof=1) / np.sqrt(len(logs))) if len(logs) > 1 else 0.0
    low = mean - 1.96 * error
    high = mean + 1.96 * error
    return {
        "peer": way,
        "tables": len(logs),
        "our loss ÷ its loss": ratio_text(*np.exp([mean, low, high])),
        "ahead, level, behind": ", ".join(str(count) for count in standings.values()),
    }


def section(question: Question, lines: Sequence[Line]) -> PageSection:
    ways = ways_of(lines)
    bars = [Bar(n.table, n.less, f"{n.difference} {n.peer}") for n in lines]
    chart = bar_chart(
        bars,
        title=f"{question.title}: ours less the best peer",
        xlabel=f"{question.loss}, ours less the best peer (left: ours is better)",
        n_bars=len(bars),
    )
    losses = [
        {"Data": n.table, **{w: n.losses.get(w) for w in ways}, "Less the best": n.difference}
        for n in lines
    ]
    seconds = [{"Data": n.table, **{w: n.seconds.get(w) for w in ways}} for n in lines]
    return PageSection(
        question.title,
        [
            Figure(chart, "Mean of paired differences over splits ± their standard error. The best "
                   "peer is chosen for each table, with hindsight."),
            Table(losses, f"{question.loss}, means over splits."),
            Table(seconds, "Processor seconds of a fit, tuning included.",
                  dict.fromkeys(ways, "seconds")),
        ],
    )  # fmt: skip


def page(answers: Mapping[Question, Sequence[Line]], subtitle: str) -> str:
    """Return the page as HTML."""
    sentences = summary(answers)
    sections = [
        PageSection("", [Text("\n\n".join(sentences), tone="note")]),
        *(section(question, lines) for question, lines in answers.items() if lines),
    ]
    return Page("Answers beside others", subtitle, sections=sections).render()
