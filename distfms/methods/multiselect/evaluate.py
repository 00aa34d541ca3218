"""Numbers of the evaluation: entries of ``selection.json`` and ``metrics.json``, and remarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from distfms.errors import first_of
from distfms.methods.frame.choose import is_better
from distfms.methods.frame.curves import points_of
from distfms.methods.frame.judge import squared_errors
from distfms.methods.frame.moments import Solved
from distfms.methods.frame.tuning import losses_without_choice
from distfms.methods.multiselect.choices import rule_of
from distfms.methods.multiselect.model import LinearModel, PathModels, path_models, path_objective
from distfms.methods.multiselect.procedure import SelectionProcedure
from distfms.solve.buying import OBJECTIVES, BuyFrom, Problem, SelectionPath, full_objective
from distfms.stats.base import Folded, FoldMeans, Members, number_or_none, over_folds
from distfms.stats.comoments import CoMoments
from distfms.stats.folds import FoldAnswers
from distfms.stats.judgments import JudgmentEstimates, JudgmentStatistics

#: Level of confidence intervals.
_LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Evaluation:
    """All that the evaluation of a selection rests on; averages only if they were read.

    `comparison` is of what was chosen on the folds, if anything was.
    """

    solved: Solved
    validated: FoldAnswers | None
    averages: Folded[CoMoments] | None
    model: LinearModel
    comparison: Mapping[str, Any] | None = None

    def metrics(self) -> dict[str, Any]:
        """Return the content of ``metrics.json``.

        What is bought in the end stands under ``chosen``, the last point of the first curve.
        """
        solved = self.solved
        train, test = (self.averages.train(), self.averages.test) if self.averages else (None, None)
        budgets = solved.procedure.grid(solved.path)
        curves = {
            name: self._points(
                budgets,
                path_models(solved.problem.problem, path, path.steps_at(budgets)),
                self._on_folds(number),
            )
            for number, (name, path) in enumerate(solved.paths.items())
        }
        chosen = next(iter(solved.paths))
        return {
            "train": self._scores(solved.train, train),
            "test": solved.test and self._scores(solved.test, test),
            "folds": [] if self.validated is None else self.validated.entries(),
            "folds_of_choice": self._folds_of_choice(),
            "chosen": {**curves[chosen][-1], **self._without_choice()},
            "better": self._better(),
            "baselines": {
                name: {"repeats": named_repeats(path), **curves[name][-1]}
                for name, path in solved.paths.items()
                if name != chosen
            },
            "curves": [{"name": name, "points": points} for name, points in curves.items()],
        }

    def _losses_of_choice(self) -> np.ndarray:
        """Return the loss on each fold of what was chosen without it."""
        assert self.validated is not None
        if self.comparison is not None:
            folds = [fold["fold"] for fold in self.comparison["folds"]]
            if folds == list(self.validated.folds):
                return losses_without_choice(self.comparison, self.validated.weight, rule_of)
        losses: np.ndarray = self.validated.values(0, "projected_loss")[-1]
        return losses

    def _folds_of_choice(self) -> list[dict[str, Any]]:
        """Return for each fold the losses of what the others choose, and of the mean label."""
        if self.validated is None:
            return []
        losses = self._losses_of_choice()
        of_mean = self.validated.values(0, "loss_of_mean")[-1]
        return [
            {
                "fold": fold,
                "projected_loss": number_or_none(losses[place]),
                "loss_of_mean": number_or_none(of_mean[place]),
                "weight": self.validated.weight[place],
            }
            for place, fold in enumerate(self.validated.folds)
        ]

    def _without_choice(self) -> dict[str, Any]:
        """Return the cross-validated loss of the whole choice, which no fold made for itself."""
        if self.validated is None:
            return {}
        interval = _interval(over_folds(self._losses_of_choice(), self.validated.weight))
        return {"validation": {name: number_or_none(value) for name, value in interval.items()}}

    def _better(self) -> dict[str, Any] | None:
        """Name the baseline of the least cross-validated loss, where that beats the selection's.

        It does by more than one standard error of the difference over the folds.
        """
        if self.validated is None:
            return None
        weight = self.validated.weight
        numbers = range(len(self.solved.paths))
        losses = [self.validated.values(number, "projected_loss")[-1] for number in numbers]
        chosen = losses[0]
        means = over_folds(np.array(losses), weight).mean
        least = int(np.argmin(np.nan_to_num(means, nan=np.inf)))
        if not is_better(losses[least], chosen, weight):
            return None
        gain = over_folds(chosen - losses[least], weight)
        return {
            "name": list(self.solved.paths)[least],
            "gain": float(gain.mean),
            "standard_error": float(gain.standard_error),
        }

    def _on_folds(self, rule: int) -> FoldMeans | None:
        """Average the losses of a rule over the folds."""
        if self.validated is None:
            return None
        return self.validated.means(rule, "projected_loss")

    def _points(
        self, budgets: Sequence[float] | np.ndarray, models: PathModels, validated: FoldMeans | None
    ) -> list[dict[str, Any]]:
        """Projected, held-out and cross-validated losses of the models that budgets pay for."""
        of_nothing = self.solved.problem.problem.label_variance
        scores = {"train": {"projected_loss": of_nothing - models.objective}}
        if validated is not None:
            scores["validation"] = _interval(validated)
        held_out = self.solved.test
        if held_out is not None:
            scores["test"] = {"projected_loss": self._losses(models, held_out)}
        return points_of({"budget": budgets, "spent": models.spent}, scores)

    def _losses(self, models: LinearModel | PathModels, held_out: Members) -> np.ndarray:
        return self.solved.procedure.losses(self.solved.problem, models, held_out)

    def _scores(self, members: Members, averages: CoMoments | None) -> dict[str, Any]:
        """Scores on some objects of the fitted model, whose weights a refit may have changed."""
        judgments: JudgmentStatistics = members["judgments"]
        variance = float(judgments.means.variance()[-1])
        loss = float(self._losses(self.model, members)[0])
        return {
            "projected_loss": loss,
            "r2": min(1.0 - loss / variance, 1.0) if variance > 0 else None,
            "mse": averages and self._mse(averages),
            "n_objects": int(judgments.n_objects),
            "n_objects_with_all_judgments": averages and averages.n_samples,
            "label_variance": variance,
            "raters": self._raters(members, loss),
        }

    def _mse(self, averages: CoMoments) -> float | None:
        """Return the mean squared error on averages as they are bought; None if there are none."""
        if not averages.n_samples:
            return None
        weights = self.model.weights[self.model.repeats > 0]
        return float(squared_errors(averages, weights[np.newaxis], self.model.intercept)[0])

    def _raters(self, members: Members, loss: float) -> dict[str, Any]:
        """Losses by whom the judgments are bought from, and what raters' judgments share."""
        procedure = self.solved.procedure
        judgments = members["judgments"]
        entry: dict[str, Any] = {
            "known": judgments.raters is not None,
            "buy_from": procedure.buy_from,
            "loss_independent": loss,
            "loss_same": None,
            "noise_correlation": None,
        }
        if judgments.raters is None:
            return entry
        for whose in get_args(BuyFrom):
            losses = procedure.losses(self.solved.problem, self.model, members, whose)
            entry[f"loss_{whose}"] = float(losses[0])
        support = np.flatnonzero(self.model.repeats)
        names = [procedure.names[a] for a in support.tolist()]
        entry["noise_correlation"] = noise_correlations(judgments.take(support), names)
        return entry


def _interval(over: FoldMeans) -> dict[str, np.ndarray]:
    """Return a mean loss over folds and the bounds of its confidence interval."""
    half = over.half_width(_LEVEL)
    return {"projected_loss": over.mean, "lower": over.mean - half, "upper": over.mean + half}


def noise_correlations(
    statistics: JudgmentStatistics, names: Sequence[str]
) -> dict[str, dict[str, float | None]]:
    """Correlations of the noise of one rater's judgments, by names of attributes.

    They are None where no rater judged both of an object, or an attribute's raters never disagree.
    """
    raters = statistics.raters
    assert raters is not None
    variance = statistics.internal_variance()
    unit = np.sqrt(np.outer(variance, variance))
    is_known = raters.together & raters.apart & (unit > 0)
    correlations = np.full_like(unit, np.nan)
    np.divide(raters.noise_covariance(variance), unit, out=correlations, where=is_known)
    entry: dict[str, dict[str, float | None]] = {}
    for name, row in zip(names, correlations, strict=True):
        pairs = zip(names, map(number_or_none, row), strict=True)
        entry[name] = {partner: value for partner, value in pairs if partner != name}
    return entry


# --- selection.json -----------------------------------------------------------------------------


def path_content(
    procedure: SelectionProcedure, problem: Problem, path: SelectionPath
) -> dict[str, Any]:
    """Return ``selection.json`` but for its entries of single attributes."""
    names = problem.names
    repeats = path.final_repeats
    rule = procedure.rules[0]
    return {
        "method": "multiselect",
        "algorithm": rule.name,
        "ridge": procedure.ridge,
        "criterion": path.criterion,
        "budget": procedure.budget,
        "spent": float(repeats @ problem.costs),
        "label_variance": problem.label_variance,
        "objective": OBJECTIVES[rule.objective](problem, repeats),
        "projected_loss": problem.label_variance - full_objective(problem, repeats),
        "status": path.status,
        "n_candidates": path.n_candidates,
        "repeats": named_repeats(path),
        "path": path_entries(problem, path),
        "constant": [names[int(a)] for a in np.flatnonzero(~problem.candidates)],
    }


def named_repeats(path: SelectionPath) -> dict[str, int]:
    """Return judgments by attribute, in the order of first purchase."""
    repeats = path.final_repeats.tolist()
    bought = dict.fromkeys(path.attributes.tolist())
    return {path.names[attribute]: repeats[attribute] for attribute in bought}


def path_entries(problem: Problem, path: SelectionPath) -> list[dict[str, Any]]:
    """Entries of ``selection.json`` for a path: one for each run of steps with one attribute.

    The projected loss is that of the best weights, whatever the algorithm maximises.
    """
    last = np.flatnonzero(np.diff(path.attributes, append=-1))
    counts = np.diff(np.cumsum(path.counts)[last], prepend=0)
    bought = path.attributes[last]
    columns = {
        "repeats": path.repeats[last],
        "count": counts,
        "cost": path.costs[bought] * counts,
        "spent": path.spent[last],
        "objective": path.objective[last],
        "projected_loss": problem.label_variance - path_objective(problem, path, last + 1),
    }
    return entries({"attribute": np.array(path.names, dtype=object)[bought], **columns})


def attribute_entries(
    names: Sequence[str], costs: np.ndarray, estimates: JudgmentEstimates
) -> list[dict[str, Any]]:
    """Entries of ``selection.json`` for the attributes."""
    columns = {
        "name": np.array(names, dtype=object),
        "b": estimates.b,
        "v": estimates.v,
        "sigma": estimates.sigma,
        "cost": costs,
        "mean": estimates.means,
        "n_judgments": estimates.n_judgments,
        "n_missing": estimates.n_missing,
        "mean_judgments": estimates.mean_judgments,
    }
    return entries(columns)


def entries(columns: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Return the rows of a table as JSON has them."""
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


# --- what a user should know of the data --------------------------------------------------------


def selection_remarks(train: JudgmentStatistics, loss: float) -> list[str]:
    """Return what the user should know before trusting a selection of this projected loss."""
    remarks = []
    missing = train.n_objects - train.n_judged
    if missing.any():
        lacking = _counted(int(np.count_nonzero(missing)), "attribute")
        cells = _counted(int(missing.sum()), "cell")
        remarks.append(
            f"Some training objects have no judgment of {lacking} ({cells} in all); each "
            "covariance is computed from the objects that have both attributes."
        )
    weight = train.means.pair_weight
    pairs = len(missing) * (len(missing) - 1) // 2
    together = pairs if weight is None else int(np.count_nonzero(np.triu(weight[:-1, :-1], 1)))
    if together < pairs:
        remarks.append(
            f"{_counted(pairs - together, 'pair')} of attributes (of {pairs:,}) have no object "
            "with both; their covariance is set to 0."
        )
    if loss < 0:
        remarks.append(
            "The projected loss is negative: there are too few objects for this many attributes, "
            "and the selection fits noise. Trust the held-out losses, and try a "
            "`multiselect.ridge`, fewer attributes or more objects."
        )
    return remarks


def evaluation_remarks(
    procedure: SelectionProcedure, judgments: Folded[JudgmentStatistics], folds: Sequence[int]
) -> list[str]:
    """Return which attributes cannot be followed into every fold and the held-out objects."""
    unknown = np.isnan(procedure.internal_variance)
    train = judgments.train()
    test = judgments.test
    lost, unjudged = np.zeros((2, len(procedure.names)), dtype=bool)
    for fold in (judgments.folds[f] for f in folds):
        lost |= train.n_judged == fold.n_judged
        lost |= (train.n_repeated == fold.n_repeated) & unknown
        unjudged |= fold.n_judged == 0
    marked = {
        "Without one of the folds, {} cannot be estimated; the cross-validation then selects among "
        "the others.": lost,
        "Some folds have no judgment of {}; the losses of models that use it are averaged over the "
        "other folds.": unjudged,
        "No held-out object has a judgment of {}; models that use it have no held-out loss.": (
            (test.n_judged == 0) & (test.n_objects > 1)
        ),
    }
    remarks = []
    for text, is_marked in marked.items():
        names = [repr(procedure.names[a]) for a in np.flatnonzero(is_marked)]
        if names:
            remarks.append(text.format(first_of(names)))
    return remarks


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
