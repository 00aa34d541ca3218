"""Leaves of a tree of sequences: jobs on their rows, and whether they are better than one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distfms.methods.frame.contract import FoldAnswers, Job, Run
from distfms.methods.frame.leaves import Leaf
from distfms.methods.frame.rows import moment_reader
from distfms.methods.sequence.anytime import AnytimePredictor
from distfms.methods.sequence.data import SequenceData
from distfms.methods.sequence.evaluate import advised, point_of
from distfms.methods.sequence.learners import Learner, tree_fit
from distfms.methods.sequence.options import GAIN, TREES
from distfms.methods.sequence.problem import Path, longest_affordable
from distfms.methods.sequence.read_contexts import Context, budgets_of, find_context, is_better
from distfms.methods.sequence.read_trees import spans_of
from distfms.methods.sequence.rules import Rules
from distfms.methods.sequence.tree import SequenceTree
from distfms.methods.sequence.trees import features_of
from distfms.stats.base import over_folds

#: Costs at which trees of leaves are tried.
_TRIED = 2
#: From a run, a job and its data to the sequence of its rows.
Learn = Callable[[Run, Job, SequenceData], "Sequenced"]


@dataclass(frozen=True, eq=False)
class Sequenced:
    """A sequence of some rows: its path, its predictor, what folds say, and what is written.

    `content` has the selection, the model, its weights and the metrics.
    """

    learner: Learner
    path: Path
    predictor: AnytimePredictor
    folds: FoldAnswers | None
    content: Mapping[str, Any]

    @property
    def metrics(self) -> Mapping[str, Any]:
        """Content of ``metrics.json``."""
        found: Mapping[str, Any] = self.content["metrics"]
        return found

    def best(self, budget: float | None) -> int:
        """Return the number of the model that a budget buys, or that predictions use."""
        return advised(self.metrics) if budget is None else self.predictor.best(budget)

    def measured(self, rows: str, number: int, measure: str) -> Any:
        """Return what a model measures on each of the folds, or on held-out rows (``test``)."""
        if rows != "folds":
            value = point_of(self.metrics, number).get(rows, {}).get(measure)
            return np.nan if value is None else float(value)
        assert self.folds is not None
        if (place := number - len(self.path)) > 0:  # a set
            item = len(self.learner.rules.compared) + place - 1
            return self.folds.values(item, measure)[-1]
        grid = self.learner.procedure.grid(self.path)
        at = longest_affordable(grid, self.path.curve_cost[number]) - 1
        return self.folds.values(0, measure)[at]

    @property
    def fold_weights(self) -> tuple[float, ...]:
        """Weight of the rows of each fold."""
        assert self.folds is not None
        return self.folds.weight

    @property
    def test_weight(self) -> float:
        """Weight of the held-out rows."""
        return float(self.learner.data.statistics["moments"].test.weight)


def grown(
    run: Run, job: Job, data: SequenceData, one: Sequenced, learn: Learn
) -> Mapping[str, Any]:
    """Return what is written: of a tree of sequences where that is better, or of the one.

    `learn` finds the sequence of a job.
    """

    def find() -> list[Context]:
        found = find_context(run, job, data, one.path)
        return [found[0]] if found and worth_fitting(run, job, data, one, found) else []

    found = run.step("contexts", find)
    if not found:
        return one.content
    (context,) = found
    leaves = list[Sequenced]()
    for number in range(len(context.router)):
        part = run.part(f"leaf {number + 1}")
        leaves.append(learn(part, *leaf_job(part, job, data, context, number)))
    asked = budgets_of(job, data, one.path)

    def compare() -> dict[str, Any]:
        found = beside_one(one, leaves, context, asked)
        if found["better"]:
            root = ", ".join(data.form.groups.names[g] for g in context.root)
            run.note(
                f"A tree of sequences: {root} first, then one of {len(leaves)} sequences. In "
                f"cross-validation it explains {100 * found['gain']:+.1f} ± "
                f"{100 * found['standard_error']:.1f} percentage points more than one sequence "
                "for all rows, on average over budgets (`sequence.contexts`)."
            )
        return found

    compared = run.step("tree", compare)
    return with_leaves(one, leaves, context, compared) if compared["better"] else one.content


def worth_fitting(run: Run, job: Job, data: SequenceData, one: Sequenced, found: Any) -> bool:
    """Return whether trees may explain more by leaves, as the linear models do that found these.

    Bins bend linear models and let columns interact, which trees do anyway. So a few of them are
    compared on one fold, at few costs: of leaves as `find_context` returns them with those of
    the one.
    """
    context, paths, weights = found
    if job.options.model != TREES or isinstance(data.form.options.contexts, Mapping):
        return True
    root, (fold, *_) = data.form.costs.total(context.root), one.learner.folds()
    budgets = [own for own in budgets_of(job, data, one.path)[0] if own >= root]
    third = len(budgets) // 3
    budgets, spans = budgets[third :: max(third, 1)][:_TRIED], spans_of(data.plan)

    def losses(data: SequenceData, path: Path, paid: float) -> list[float]:
        at = [max(path.affordable(budget - paid), 1) for budget in budgets]
        tasks = [(features_of(path, n, spans), fold.number) for n in at]
        return run.map(tree_fit(run, data).loss_on, tasks)

    leaves = [losses(in_leaf(data, context, n), path, root) for n, path in enumerate(paths)]
    theirs = np.average(leaves, axis=0, weights=weights[:, fold.number])
    return bool(np.mean(losses(data, one.path, 0.0)) > np.mean(theirs))


def in_leaf(data: SequenceData, context: Context, number: int) -> SequenceData:
    """Return data of the rows of a leaf, without statistics of their own."""
    leaf, everything = Leaf(context.router, number), data.form.everything or data.plan
    return replace(data, form=replace(data.form, leaf=leaf, everything=everything), fitted={})


def leaf_job(run: Run, job: Job, data: SequenceData, context: Context, number: int) -> Any:
    """Return the job of a leaf, whose root is paid, and its data; step ``statistics`` of the leaf.

    Levels, knots, classes, the ridge and the kind of models are those of all rows.
    """
    data = in_leaf(data, context, number)
    form, inputs = data.form, data.form.inputs
    cost = form.costs.total(context.root)
    budgets = [float(rule.budget or 0.0) for rule in Rules.of(job.options, form.costs).of_budgets]
    budget = job.options.budget
    options = job.options.model_copy(
        update={
            "budgets": tuple(own - cost for own in budgets if own >= cost),
            "budget": None if budget is None else max(budget - cost, 0.0),
            "baselines": (),
            "criterion": "fr" if job.options.criterion == GAIN else job.options.criterion,
            "threshold": 0.5,
            "stopping": "rows" if form.stops_rows else "prefix",
        }
    )
    form = replace(form, inputs=inputs, options=options, costs=form.costs.paid(context.root))
    job = replace(job, inputs=inputs, options=options, form=form, tune=None)

    def statistics() -> Any:
        return run.reduce(lambda *of: moment_reader(form.source(data.plan, *of)))

    found = run.step("statistics", statistics)
    return job, replace(data, form=form, statistics=found, step="statistics")


def beside_one(
    one: Sequenced, leaves: Sequence[Sequenced], context: Context, asked: tuple[list[float], bool]
) -> dict[str, Any]:
    """Compare the leaves' models with those of one sequence: at budgets, and by default.

    ``gain`` is what the tree explains more in cross-validation, by budget and on average.
    """
    form, share, folds = one.learner.data.form, one.learner.procedure.share, one.fold_weights
    cost, is_named = form.costs.total(context.root), isinstance(form.options.contexts, Mapping)
    loss = "mse" if share == "explained_variance" else "deviance"
    weights = {"folds": np.array([leaf.fold_weights for leaf in leaves])}
    weights["test"] = np.array([leaf.test_weight for leaf in leaves])

    def measured(budget: float | None, rows: str, measure: str) -> tuple[Any, Any]:
        """Return a measure of the one sequence and of the tree."""
        left = None if budget is None else budget - cost
        of_leaves = [leaf.measured(rows, leaf.best(left), measure) for leaf in leaves]
        theirs = np.average(of_leaves, axis=0, weights=np.maximum(weights[rows], 1e-300))
        return one.measured(rows, one.best(budget), measure), theirs

    null = {rows: one.measured(rows, 0, loss) for rows in weights}

    def compare(budget: float | None) -> tuple[np.ndarray, dict[str, Any]]:
        ours, theirs = measured(budget, "folds", loss)
        gains = (ours - theirs) / null["folds"]
        gain = over_folds(gains, folds)
        entry: dict[str, Any] = {"budget": budget, "gain": float(gain.mean)}
        entry |= {"standard_error": float(gain.standard_error)}
        entry["better"] = is_named or bool(gain.mean > gain.standard_error)
        tests, right = measured(budget, "test", loss), measured(budget, "test", "accuracy")
        for n, (name, own) in enumerate((("one", ours), ("tree", theirs))):
            test = {share: 1 - tests[n] / null["test"], "accuracy": right[n]}
            explained = 1 - own / null["folds"]
            numbered = zip((f["fold"] for f in one.metrics["folds"]), explained, strict=True)
            entry[name] = {
                "validation": {share: float(over_folds(explained, folds).mean)},
                "folds": [{"fold": fold, share: float(value)} for fold, value in numbered],
                "test": {name: float(v) for name, v in test.items() if np.isfinite(v)},
            }
        return gains, entry

    budgets, is_asked = asked
    found = [compare(budget) for budget in budgets if budget >= cost]
    gains, (at_best, default) = np.mean([own for own, _ in found], axis=0), compare(None)
    better = is_better(gains, gains if is_asked else at_best, folds)
    entries, whole = [entry for _, entry in found], over_folds(gains, folds)
    return {
        "gain": float(whole.mean),
        "standard_error": float(whole.standard_error),
        "better": is_named or (better and any(entry["better"] for entry in entries)),
        "default": default,
        "budgets": entries,
    }


def with_leaves(
    one: Sequenced, leaves: Sequence[Sequenced], context: Context, compared: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what is written of one sequence and of the tree."""
    form, found = one.learner.data.form, dict(one.content)
    root = [form.groups.names[g] for g in context.root]
    columns = [form.roles.features[c] for g in context.root for c in form.groups.columns[g]]
    tree = SequenceTree(
        one.predictor, root, form.costs.total(context.root), context.router,
        [leaf.predictor for leaf in leaves], [advised(leaf.metrics) for leaf in leaves],
        [entry["budget"] for entry in compared["budgets"]],
        [entry["better"] for entry in compared["budgets"]], compared["default"]["better"],
    )  # fmt: skip
    weight = np.array([leaf.learner.whole.train["moments"].weight for leaf in leaves])
    shares = (weight / weight.sum()).tolist()
    named = list(zip(context.names, shares, leaves, strict=True))
    selections = [{"name": n, "share": s, **own.content["selection"]} for n, s, own in named]
    models = [leaf.content["model"] for leaf in leaves]
    metrics = [{"name": n, "share": s, **own.metrics} for n, s, own in named]
    found["selection"] = one.content["selection"] | {
        "contexts": {"root": root, "columns": columns, "cost": tree.cost, "leaves": selections}
    }
    found["model"] = one.content["model"] | {"contexts": tree.content() | {"leaves": models}}
    found["metrics"] = {**one.metrics, "contexts": {**compared, "leaves": metrics}}
    parts = {"router": context.router.to_arrays()}
    parts |= {f"leaf {n}": leaf.content["weights"] for n, leaf in enumerate(leaves, 1)}
    own = {f"{part}/{n}": a for part, arrays in parts.items() for n, a in arrays.items()}
    found["weights"] = {**one.content["weights"], **own}
    return found
