"""Rules that find the paths of a job."""

from __future__ import annotations

from dataclasses import dataclass

from distfms.methods.sequence.evaluate import budget_ladder
from distfms.methods.sequence.options import ORACLE, TREES, OrderRule, SequenceOptions, parse_rule
from distfms.solve.costs import GroupCosts


@dataclass(frozen=True)
class Rules:
    """Rules that find paths.

    `baselines` are each there once, without the chosen rule itself; `of_budgets` find the sets of
    the budgets, ascending.
    """

    chosen: OrderRule
    baselines: tuple[OrderRule, ...]
    of_budgets: tuple[OrderRule, ...]

    @classmethod
    def of(cls, options: SequenceOptions, costs: GroupCosts) -> Rules:
        """Return the rules that options ask for."""
        chosen = OrderRule(options.criterion or "fr", options.cost_aware, options.doubling)
        names = options.baselines
        if names is None:
            names = ("omp", "fr-blind", "oracle") if options.by_statistics else ("oracle",)
            if not costs.differ:
                names = tuple(name for name in names if name != "fr-blind")
        rules = [parse_rule(name) for name in names if name != TREES]
        of_oracles = [rule.oracle_of for rule in rules if rule.oracle_of is not None]
        baselines = dict.fromkeys([*rules, *of_oracles])
        baselines.pop(chosen, None)
        budgets = set(budget_ladder(costs) if options.budgets == "auto" else options.budgets)
        if options.budget is not None:
            budgets.add(options.budget)
        of_budgets = [OrderRule("fr", budget=budget) for budget in sorted(budgets)]
        return cls(chosen, tuple(baselines), tuple(of_budgets))

    @property
    def compared(self) -> tuple[OrderRule, ...]:
        """Rules whose sequences are compared, the chosen one first."""
        return (self.chosen, *(rule for rule in self.baselines if rule.criterion != ORACLE))

    @property
    def oracles(self) -> dict[str, str]:
        """Names of oracles, each with the rule it is of."""
        oracles = [rule for rule in self.baselines if rule.criterion == ORACLE]
        return {rule.name: (rule.oracle_of or self.chosen).name for rule in oracles}

    @property
    def has_lasso(self) -> bool:
        """Whether the group lasso is among them."""
        return OrderRule("sparse") in self.baselines

    @property
    def searched(self) -> tuple[OrderRule, ...]:
        """Rules that find paths: those that are compared, then those of budgets."""
        return (*self.compared, *self.of_budgets)
