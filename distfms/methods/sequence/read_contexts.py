"""Contexts: values of one group, bought first, that say in which order to compute the others.

Which contexts are worth a look is seen on a sample. With whitened columns q and what the model of
all columns leaves of the targets, r, a leaf l has the covariances b_l of q and r, and
Σ_l n_l/n ‖b_l − b‖² is the variance that a model for each leaf would explain in addition: of one
that holds in all leaves nothing, but for chance, whatever the leaves do to the columns. Which one
is taken, co-moments by leaf decide, on folds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise
from typing import Any

import numpy as np

from distfms.data.rows.batches import ColumnPlan, RowBatch, SourceColumn
from distfms.engine.blas import single_threaded_blas
from distfms.methods.frame.contract import Job, Run
from distfms.methods.frame.cross_validation import Fold
from distfms.methods.frame.leaves import Leaf, Router
from distfms.methods.frame.rows import SummaryReader
from distfms.methods.sequence.data import SequenceData
from distfms.methods.sequence.form import SequenceForm
from distfms.methods.sequence.form_contexts import CANDIDATES, LEAST_ROWS, PASS_BYTES, least_share
from distfms.methods.sequence.options import GAIN
from distfms.methods.sequence.problem import Path
from distfms.methods.sequence.procedure import SequenceProcedure
from distfms.methods.sequence.read import knots_of
from distfms.methods.sequence.rules import Rules
from distfms.stats.base import Bundle, Folded, over_folds
from distfms.stats.comoments import CoMoments
from distfms.stats.sample import RowSample

#: Rows of the sample and numbers in them, at most, and rows of it for each column, at least; rows
#: that clusters are found in.
_ROWS, _VALUES, _PER_COLUMN, _CLUSTERED = 12_000, 1_000_000, 4, 2_048
#: Multiplications that the screening may take, about a second and a half.
_OPERATIONS = 1e10
#: A context is worth a pass if its leaves explain so much more of the variance, by so many standard
#: errors, and by this share of what the best one explains.
_GAIN, _ERRORS, _OF_BEST = 0.01, 4.0, 0.75
#: Most leaves, and how many bins of a number and clusters of several columns are tried: first
#: those that decide whether others are.
_FIRST = 4
_LEAVES, _BINS, _CLUSTERS = 8, (_FIRST, 3, 2), (_FIRST, 5, 6, 7, 8, 3, 2)
#: Costs that contexts are compared at where the job names no budgets.
_COSTS = 12


@dataclass(frozen=True, eq=False)
class Context:
    """Groups to buy first, and the leaves that they send rows to.

    `root` are indices of groups in the order in which to buy them, `names` those of the leaves.
    """

    root: tuple[int, ...]
    router: Router
    names: tuple[str, ...]


# --- candidates -----------------------------------------------------------------------------------


def contexts_of(
    form: SequenceForm, plan: ColumnPlan, sample: np.ndarray
) -> Iterator[Iterator[Context]]:
    """Yield the contexts of each group, or of the column that is named, on sampled rows (D, n)."""
    named, by_name = form.options.contexts, {column.name: column for column in plan.columns}
    least = least_share(form)
    for group, members in enumerate(form.groups.columns):
        names = [form.roles.features[c] for c in members]
        if isinstance(named, Mapping):
            names = [name for name in names if name == named["column"]]
        columns = [by_name[name] for name in names]
        if len(columns) > 1:
            rows = [r for c in columns for r in range(c.start, c.start + len(c.levels or [c]))]
            found = (_clusters(plan, sample, rows, k, form.seed) for k in _CLUSTERS)
        elif columns and columns[0].levels is not None:
            found = (_levels(sample, columns[0], share) for share in (least,))
        else:
            found = (_bins(own.name, sample[own.start], k) for own in columns for k in _BINS)
        root = (*form.costs.requires.get(group, ()), group)
        yield (Context(root, *own) for own in found)


def _bins(name: str, values: np.ndarray, n_bins: int) -> tuple[Router, tuple[str, ...]]:
    """Divide a number at its quantiles, between two values."""
    known = np.unique(values[np.isfinite(values)])
    knots = np.array(knots_of(values, n_bins - 1))
    edges = (
        (knots + known[np.searchsorted(known, knots, side="right")]) / 2 if len(knots) else knots
    )
    centre = float(np.nanmean(values)) if len(known) else 0.0
    offset = -np.append(0.0, np.cumsum(edges - centre))
    router = Router(
        np.array([name]), np.array([centre]), np.arange(len(offset), dtype=float)[:, None], offset
    )
    said = [f"{edge:.4g}" for edge in edges]
    middle = [f"{low} < {name} ≤ {high}" for low, high in pairwise(said)]
    names = (f"{name} ≤ {said[0]}", *middle, f"{name} > {said[-1]}") if said else (name,)
    return router, names


def _levels(
    sample: np.ndarray, column: SourceColumn, least: float
) -> tuple[Router, tuple[str, ...]]:
    """Give each frequent level a leaf, and the others one together."""
    levels = column.levels or ()
    width = len(levels)
    share = np.nan_to_num(np.nanmean(sample[column.start : column.start + width], axis=1))
    order = np.argsort(-share, kind="stable")
    own = [int(i) for i in order[: _LEAVES - 1] if share[i] >= least]
    rest = [i for i in range(width) if i not in own]
    if len(rest) == 1 and len(own) < _LEAVES and share[rest[0]] >= least:
        own, rest = [*own, *rest], []
    weights = np.eye(width)[own]
    names = [f"{column.name} = {levels[i]}" for i in own]
    if rest:
        weights = np.vstack((weights, np.isin(np.arange(width), rest).astype(float)))
        names.append(f"{column.name}: others")
    rows = np.array([f"{column.name}={level}" for level in levels])
    return Router(rows, share, weights, weights @ share), tuple(names)


def _clusters(
    plan: ColumnPlan, sample: np.ndarray, rows: Sequence[int], n: int, seed: int
) -> tuple[Router, tuple[str, ...]]:
    """Divide rows by k-means of standardised columns; of a sample in memory on one thread."""
    from sklearn.cluster import KMeans

    own = sample[list(rows), :_CLUSTERED]
    centre = np.nan_to_num(np.nanmean(own, axis=1))
    excess = np.nan_to_num(own - centre[:, np.newaxis])
    scale = np.sqrt(np.mean(excess**2, axis=1))
    scale[scale == 0] = 1.0
    points = (excess / scale[:, np.newaxis]).T
    with single_threaded_blas():
        found = KMeans(min(n, len(np.unique(points, axis=0))), n_init=1, random_state=seed % 2**32)
        centres = found.fit(points).cluster_centers_
    names = [plan.value_names[r] for r in rows]

    def said(place: np.ndarray) -> str:
        far, values = np.argsort(-np.abs(place), kind="stable")[:2], centre + scale * place
        told = sorted(int(c) for c in far if abs(place[c]) >= 0.5 * abs(place[far[0]]))
        return "near " + ", ".join(f"{names[c]} = {values[c]:.2g}" for c in told)

    router = Router(np.array(names), centre, centres / scale, -(centres**2).sum(axis=1) / 2)
    return router, tuple(said(place) for place in centres)


# --- screening ------------------------------------------------------------------------------------


def between_leaves(columns: np.ndarray, rest: np.ndarray, leaf: np.ndarray) -> float:
    """Return Σ_l n_l/n ‖b_l − b‖² of the covariances of columns (n, d) with what is left (n, P)."""
    n, n_leaves = len(leaf), int(leaf.max()) + 1
    member = np.eye(n_leaves)[leaf]
    counts = np.maximum(member.sum(axis=0), 1.0)
    parts = (member[:, :, np.newaxis] * rest[:, np.newaxis]).reshape(n, -1)
    products = (columns.T @ parts).reshape(columns.shape[1], n_leaves, -1) / counts[:, np.newaxis]
    means = (member.T @ columns).T / counts, member.T @ rest / counts[:, np.newaxis]
    b = products - means[0][:, :, np.newaxis] * means[1]
    away = b - (columns.T @ rest / n)[:, np.newaxis]
    return float((member.sum(axis=0) / n) @ (away**2).sum(axis=(0, 2)))


def _standardised(values: np.ndarray) -> np.ndarray:
    """Return rows of values as standardised columns (n, d), without constant ones."""
    excess = np.nan_to_num(values - np.nanmean(values, axis=1, keepdims=True)).T
    scale = excess.std(axis=0)
    return np.asarray(excess[:, scale > 0] / scale[scale > 0])


@dataclass(frozen=True, eq=False)
class Screen:
    """Whitened columns (n, d) of sampled rows, and what all of them leave of the targets (n, P)."""

    columns: np.ndarray
    rest: np.ndarray

    @classmethod
    def of(cls, features: np.ndarray, targets: np.ndarray) -> Screen:
        """Whiten features (d, n), whose missing values count as the mean, and fit all of them."""
        Z, Y = (_standardised(values) for values in (features, targets))
        values, vectors = np.linalg.eigh(Z.T @ Z / len(Z))
        kept = values > 1e-6 * values[-1]
        Q = Z @ (vectors[:, kept] / np.sqrt(values[kept]))
        return cls(Q, Y - Q @ (Q.T @ Y / len(Y)))

    def gain(self, leaf: np.ndarray) -> tuple[float, float]:
        """Return the share that leaves explain more than chance, and by how many errors."""
        n, n_targets = self.rest.shape
        more = len(np.unique(leaf)) - 1
        chance = more / n * float(((self.columns**2).T @ (self.rest**2) / n).sum())
        spread = ((self.rest.T @ self.rest / n) ** 2).sum()
        error = np.sqrt(2 * more * self.columns.shape[1] * spread) / n
        found = between_leaves(self.columns, self.rest, leaf) - chance
        return found / n_targets, found / error if error > 0 else 0.0


def worth_a_pass(form: SequenceForm, plan: ColumnPlan, rows: np.ndarray, classes: Any) -> list[Any]:
    """Return the contexts that sampled rows (D + P, n) find worth a pass, the best first."""
    features, n_rows = rows[: plan.n_features], rows.shape[1]
    targets = indicators(rows[plan.n_features :], classes)
    if n_rows < _PER_COLUMN * len(features):
        return []
    screen = Screen.of(features, targets)
    values = dict(zip(plan.feature_names, features, strict=True))
    found, is_named = list[tuple[float, Context]](), isinstance(form.options.contexts, Mapping)
    least = least_share(form)
    for contexts in contexts_of(form, plan, features):
        for context in contexts:
            leaf = context.router.leaf_of(values)
            shares = np.bincount(leaf, minlength=len(context.router)) / n_rows
            gain, errors = screen.gain(leaf)
            if not is_named and (gain <= _GAIN or errors <= _ERRORS):
                break  # other numbers of bins and clusters of the group are not looked at
            if len(shares) > 1 and shares.min() >= 0.9 * least:
                found.append((gain, context))
    found.sort(key=lambda own: -own[0])
    best = max((gain for gain, _ in found), default=0.0)
    return [context for gain, context in found if is_named or gain >= _OF_BEST * best][:CANDIDATES]


# --- co-moments by leaf ---------------------------------------------------------------------------


def indicators(target: np.ndarray, classes: Sequence[float] | None) -> np.ndarray:
    """Return targets as numbers (P, n): of more than two classes one for each."""
    if classes is None or len(classes) == 2:
        return target
    return np.equal(np.array(classes)[:, np.newaxis], target).astype(float)


def sampled(size: int, seed: int, batch: RowBatch, part: int) -> dict[str, Any]:
    """Sample all training rows of a batch, as the first part."""
    own = slice(0, 0 if part else batch.part_slices[-1].start)
    hashes, numbers = batch.rows.draws(seed)[own], np.zeros_like(batch.row_ids[own])
    return {"sample": RowSample.from_rows(size, hashes, numbers, batch.values[:, own])}


def by_leaf(
    routers: Sequence[Router], classes: Sequence[float] | None, batch: RowBatch, part: int
) -> dict[str, CoMoments]:
    """Return the co-moments of features and targets by router and leaf, of the rows of a part."""
    rows, found = batch.part_slices[part], dict[str, CoMoments]()
    values = np.vstack((batch.features[:, rows], indicators(batch.target[:, rows], classes)))
    for c, router in enumerate(routers):
        leaf = router.of_batch(batch)[rows]
        for number in range(len(router)):
            own = leaf == number
            weight = None if batch.weight is None else batch.weight[rows][own]
            block = np.ascontiguousarray(values[:, own])
            found[f"{c}/{number}"] = CoMoments.from_block(block, weight, overwrite=True)
    return found


def most_candidates(n_columns: int, form: SequenceForm) -> int:
    """Return how many contexts one pass can look at, within its memory."""
    matrices = 3 if form.inputs.section.missing == "mean" else 1
    n_bytes = 8 * matrices * n_columns**2 * form.inputs.divided().n_parts * _FIRST
    return min(CANDIDATES, PASS_BYTES // n_bytes)


# --- the choice -----------------------------------------------------------------------------------


#: A context, the sequences of its leaves, and what rows weigh by leaf and fold.
Found = tuple[Context, Sequence[Path], np.ndarray]


def find_context(run: Run, job: Job, data: SequenceData, path: Path) -> Found | None:
    """Return the context that folds find worth its cost, if there is one; within a step.

    `path` is the one sequence.
    """
    form, plan, classes = data.form, data.plan, data.class_values
    n_columns = plan.n_features + (1 if classes is None else len(classes))
    n_a_row = 6 * (n_columns - plan.n_features) * plan.n_features**2
    size = min(_ROWS, _VALUES // plan.n_columns, int(_OPERATIONS) // n_a_row)
    summarise = partial(sampled, size, form.seed)
    # Twice as many rows are looked at as are drawn: the least hashes are among them.
    share = 2 * size / sum(part.n_samples for part in data.statistics["moments"].folds)
    source = partial(form.source, plan, share=share)
    found = run.reduce(lambda *of: SummaryReader(source(*of), "rows", summarise, {"size": size}))
    contexts = worth_a_pass(form, plan, found["sample"].train().values, classes)
    contexts = contexts[: most_candidates(n_columns, form)]
    if not contexts:
        return None
    routers = [context.router for context in contexts]
    known = {
        "leaves": [Leaf(router, 0).key() for router in routers],
        "classes": None if classes is None else list(classes),
    }
    summarise = partial(by_leaf, routers, classes)
    moments = run.reduce(
        lambda *of: SummaryReader(form.source(plan, *of), "leaves", summarise, known)
    )
    own = data.procedure(job.options)
    outputs = data.output_names if classes is not None and len(classes) > 2 else own.target_names
    chosen = Rules.of(job.options, form.costs).chosen
    # What trees gain by a group of all rows says nothing of a leaf.
    rules = (replace(chosen, criterion="fr") if chosen.criterion == GAIN else chosen,)
    own = replace(own, family="gaussian", model="linear", target_names=outputs, rules=rules)
    budgets, is_asked = budgets_of(job, data, path)
    judge = partial(gain_on_folds, own, budgets=budgets, form=form, is_asked=is_asked)
    gains = [judge(context, of_context(moments, c)) for c, context in enumerate(contexts)]
    known_gains = [(g, c) for c, g in enumerate(gains) if g is not None]
    if not known_gains:
        return None
    best = max(known_gains, key=lambda own: own[0])[1]
    context, leaves = contexts[best], of_context(moments, best)
    own = replace(own, costs=own.costs.paid(context.root))
    trains = [Fold({"moments": leaf.train()}, {}) for leaf in leaves]
    paths = [own.search(own.problem_on(train), own.rules[0]) for train in trains]
    weights = np.array([[part.weight for part in leaf.folds] for leaf in leaves])
    return context, paths, weights


def budgets_of(job: Job, data: SequenceData, path: Path) -> tuple[list[float], bool]:
    """Return the budgets that sequences are compared at, and whether the job asks for them.

    Otherwise they are costs of prefixes: as many from one group to ten as from ten to a hundred.
    """
    rules = Rules.of(job.options, data.form.costs).of_budgets
    if rules:
        return [float(rule.budget or 0.0) for rule in rules], True
    numbers = np.unique(np.geomspace(1, len(path), _COSTS).round().astype(int))
    return np.unique(path.curve_cost[numbers]).tolist(), False


def of_context(moments: Bundle, number: int) -> list[Folded[CoMoments]]:
    """Return the co-moments of the leaves of a context, by fold."""
    names = (name for name in moments.members if name.startswith(f"{number}/"))
    return [moments[name] for name in names]


def is_better(gains: np.ndarray, at_best: np.ndarray, weights: Sequence[float]) -> bool:
    """Return whether gains of folds, on average over budgets, are more than a standard error.

    `at_best` are those of the model that predictions use; it must not be worse by more than that.
    Bins of a number bend linear models at small budgets, which is no reason for a tree.
    """
    whole, best = over_folds(gains, weights), over_folds(at_best, weights)
    return bool(whole.mean > whole.standard_error and best.mean >= -best.standard_error)


def gain_on_folds(
    procedure: SequenceProcedure,
    context: Context,
    leaves: Sequence[Folded[CoMoments]],
    *,
    form: SequenceForm,
    budgets: Sequence[float],
    is_asked: bool,
) -> float | None:
    """Return what the leaves' sequences explain more than one: a mean over budgets and folds.

    None where that is no better, where a leaf has too few rows of a fold, or nothing to learn
    without it. The best model stands for that of predictions, unless budgets are asked for.
    """
    if min(part.n_samples for leaf in leaves for part in leaf.folds) < LEAST_ROWS:
        return None
    costs = procedure.costs
    paid, spent = costs.paid(context.root), costs.total(context.root)
    whole, in_leaf = reduce(Folded.merge, leaves), replace(procedure, costs=paid)
    losses, weights = np.zeros((whole.n_folds, 2, len(budgets))), [p.weight for p in whole.folds]
    for f in range(whole.n_folds):
        for kind, (own, left, parts) in enumerate(
            ((procedure, 0.0, [whole]), (in_leaf, spent, leaves))
        ):
            for leaf in parts:
                train, held_out = {"moments": leaf.train_without(f)}, leaf.folds[f]
                if not own.learnable(train):
                    return None
                path = own.search(own.problem_on(Fold(train, {}, f)), own.rules[0])
                at = [path.affordable(budget - left) for budget in budgets]
                share = float(held_out.weight / weights[f])
                losses[f, kind] += share * path.held_out(held_out)["mse"][at]
    affordable = np.array(budgets) >= spent
    gains = np.where(affordable, losses[:, 0] - losses[:, 1], 0.0).mean(axis=1)
    best = losses.mean(axis=0).argmin(axis=1)
    at_best = gains if is_asked else losses[:, 0, best[0]] - losses[:, 1, best[1]]
    is_named = isinstance(form.options.contexts, Mapping)
    return float(gains.mean()) if is_named or is_better(gains, at_best, weights) else None
