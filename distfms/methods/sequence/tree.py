"""A tree of sequences: groups that are bought first, then for each leaf a sequence of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distfms.methods.frame.contract import FinishedRun, RowStop
from distfms.methods.frame.leaves import Router
from distfms.methods.sequence.anytime import AnytimePredictor, AnytimeSession, arrays_below
from distfms.methods.sequence.evaluate import advised, steps_of
from distfms.methods.sequence.problem import longest_affordable
from distfms.methods.sequence.stopping import RowRule


@dataclass(frozen=True, eq=False)
class SequenceTree:
    """Predictor of a tree of sequences.

    Attributes
    ----------
    one : AnytimePredictor
        The one sequence for all rows.
    root : sequence of str
        Groups to buy first.
    cost : float
        What they cost.
    router : Router
    leaves : sequence of AnytimePredictor
        Their costs are those after the root.
    stops : sequence of int
        Which model of each leaf predictions use by default.
    budgets : sequence of float
        Ascending, and by ``better`` whether leaves predict from each on.
    better : sequence of bool
    by_default : bool
        Whether leaves predict where no budget is given.
    """

    one: AnytimePredictor
    root: Sequence[str]
    cost: float
    router: Router
    leaves: Sequence[AnytimePredictor]
    stops: Sequence[int]
    budgets: Sequence[float]
    better: Sequence[bool]
    by_default: bool

    @classmethod
    def of(cls, run: FinishedRun) -> SequenceTree | None:
        """Return the tree of a finished run, None for one without."""
        found = run.model.get("contexts")
        if found is None:
            return None

        named = {name: found[name] for name in ("root", "cost", "budgets", "better", "by_default")}
        leaves = found["leaves"]
        return cls(
            AnytimePredictor.from_arrays(run.weights, run.model),
            router=Router.from_arrays(arrays_below("router/", run.weights)),
            leaves=[
                AnytimePredictor.from_arrays(arrays_below(f"leaf {number}/", run.weights), own)
                for number, own in enumerate(leaves, 1)
            ],
            stops=[advised(own) for own in leaves],
            **named,
        )

    def content(self) -> dict[str, Any]:
        """Return what ``model.json`` has of the tree, but for its leaves."""
        names = ("root", "cost", "budgets", "better", "by_default")
        return {name: getattr(self, name) for name in names}

    def applies(self, budget: float | None, stop: RowStop | None = None) -> bool:
        """Return whether the leaves predict, not the one sequence."""
        if stop is not None:
            if any(leaf.stopping is None for leaf in self.leaves):
                return False
            limits = [own for own in (budget, stop.mean_budget) if own is not None]
            budget = min(limits, default=None)
        if budget is None:
            return self.by_default
        place = longest_affordable(self.budgets, budget)
        return place > 0 and self.better[place - 1]

    def leads(self, budget: float | None, stop: RowStop | None) -> bool:
        """Return whether a session follows the leaves: without `stop` until it is told a budget."""
        return stop is None or self.applies(budget, stop)

    def numbers(self, budget: float | None, stop: RowStop | None = None) -> list[int]:
        """Return the number of each leaf's model that a budget buys, or that a row may need."""
        if stop is not None:
            return [rule.stopping.stages[rule.last] for rule in self.rules(budget, stop)]
        if budget is None:
            return list(self.stops)
        return [leaf.best(budget - self.cost) for leaf in self.leaves]

    def rules(self, budget: float | None, stop: RowStop) -> list[RowRule]:
        """Return where rows stop in each leaf, each within a mean budget."""
        most, mean = (None if b is None else b - self.cost for b in (budget, stop.mean_budget))
        return [leaf.row_rule(most, RowStop(mean, stop.confidence)) for leaf in self.leaves]

    def predict(
        self,
        budget: float | None,
        stop: RowStop | None,
        values: Mapping[str, np.ndarray],
        n_rows: int,
    ) -> np.ndarray:
        """Return predictions (n_rows, P) from the values of at least the columns they need.

        Of rows that stop, numbers of groups and costs follow.
        """
        how: Sequence[Any] = self.numbers(budget) if stop is None else self.rules(budget, stop)
        leaf, found = self.router.leaf_of(values), None
        for number, (own, chosen) in enumerate(zip(self.leaves, how, strict=True)):
            rows = np.flatnonzero(leaf == number)
            taken = {name: column[rows] for name, column in values.items()}
            if stop is None:
                part = own.predict(chosen, taken, len(rows))
            else:
                part = own.predict_rows(chosen, taken, len(rows))
                bought = [len({*self.root, *own.groups[:k]}) for k in range(len(own.groups) + 1)]
                part[:, -2] = np.array(bought)[part[:, -2].astype(int)]
                part[:, -1] += self.cost
            found = np.empty((n_rows, part.shape[1])) if found is None else found
            found[rows] = part
        assert found is not None
        return found

    def spending(
        self, selection: Mapping[str, Any], budget: float | None, stop: RowStop | None
    ) -> str:
        """Return what the predictions cost, for the user."""
        leaves, numbers = selection["contexts"]["leaves"], self.numbers(budget, stop)
        steps = [steps_of(own, n) for own, n in zip(leaves, numbers, strict=True)]
        spent = [self.cost + (own[-1]["spent"] if own else 0.0) for own in steps]
        low, high = min(spent), max(spent)
        cost = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        given = "" if budget is None else f" of the budget {budget:g}"
        what = f"a row: {', '.join(self.root)}, then the sequence of its leaf, of {len(spent)}"
        if stop is not None:
            return f"Stops row by row, at {high:g} at most {what}"
        return f"Spends {cost}{given} {what}"


def columns_needed(
    run: FinishedRun, budget: float | None, stop: RowStop | None = None
) -> list[str]:
    """Return the columns that predictions read."""
    tree, selection = SequenceTree.of(run), run.selection
    if tree is None or not tree.applies(budget, stop):
        one = AnytimePredictor.from_arrays(run.weights, run.model) if tree is None else tree.one
        number = advised(run.model) if budget is None else one.best(budget)
        if stop is not None:
            rule = one.row_rule(budget, stop)
            number = rule.stopping.stages[rule.last]
        return [name for step in steps_of(selection, number) for name in step["columns"]]
    found, own = list(selection["contexts"]["columns"]), selection["contexts"]["leaves"]
    for leaf, number in zip(own, tree.numbers(budget, stop), strict=True):
        found += [name for step in steps_of(leaf, number) for name in step["columns"]]
    return list(dict.fromkeys(found))


class TreeSession(AnytimeSession):
    """A session of one row, whose next group depends on what it was told of the root.

    Until the groups of the root are there the one sequence predicts from what it has.
    """

    def __init__(
        self,
        tree: SequenceTree,
        budget: float | None = None,
        stop: RowStop | None = None,
        deadline_s: float | None = None,
        sources: Mapping[str, Any] | None = None,
    ) -> None:
        self._tree: SequenceTree | None = tree
        self._rules = None if stop is None else tree.rules(budget, stop)
        self.leaf: int | None = None
        """The leaf of the row, as soon as the root is known."""
        super().__init__(tree.one, 1, deadline_s, sources=sources)

    @property
    def spent(self) -> float:
        """Cost of the groups behind the present prediction."""
        before = 0.0 if self.leaf is None or self._tree is None else self._tree.cost
        return before + super().spent

    def next_group(self) -> str | None:
        """Return the group that the prediction waits for."""
        if self._tree is not None and self.leaf is None:
            return next(group for group in self._tree.root if group not in self._arrived)
        return super().next_group()

    def _affords(self, budget: float) -> bool:
        tree = self._tree
        if tree is not None and self.leaf is None:
            if budget == np.inf or tree.applies(budget):
                return True
            self._tree = tree = None  # leaves are no better within the budget
        return super()._affords(budget - (0.0 if tree is None else tree.cost))

    def _update(self) -> None:
        tree = self._tree
        if tree is not None and self.leaf is None and self._arrived.issuperset(tree.root):
            self.leaf = int(tree.router.leaf_of(self._values)[0])
            self._predictor, self.n_groups = tree.leaves[self.leaf], 0
            self._rule = None if self._rules is None else self._rules[self.leaf]
        super()._update()
