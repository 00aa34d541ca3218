"""The job of feature-group sequencing, for squared loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np

from distfms.data.batches import ColumnPlan
from distfms.data.dataset import ParquetDataset
from distfms.errors import SpecError
from distfms.methods.contract import Content, Context, FoldAnswers, Inputs
from distfms.methods.row_job import RowJob
from distfms.methods.row_predictor import sources_of
from distfms.methods.rows import RowCounts, RowSource
from distfms.methods.sequence.anytime import AnytimePredictor
from distfms.methods.sequence.options import SequenceOptions, resolve_costs, resolve_groups
from distfms.methods.sequence.problem import FeatureGroups, SequencePath
from distfms.methods.sequence.procedure import Rule, SequenceProcedure, parse_rule
from distfms.methods.sequence.read import NarrowedSource, ScoreReader, Scorers, share_correct
from distfms.methods.sequence.timeliness import MAX_POINTS, Curve, compared, thinned, timeliness
from distfms.methods.statistics_job import Solved
from distfms.stats.base import Folded
from distfms.stats.bundle import Bundle
from distfms.stats.fold_means import over_folds

#: Names in a note; ``constant`` in ``selection.json`` has them all.
_NAMES_SAID = 12


class SequenceJob(RowJob):
    """Feature-group sequencing (Hu, Grubb, Bagnell, Hebert) as a job, for squared loss."""

    name: ClassVar[str] = "sequence"
    nested: ClassVar[str | None] = "max_groups"
    options: SequenceOptions
    #: Where the job is done, if that is worth saying before it starts.
    advice: str | None = None
    #: All columns, where a row counts by more of them (`missing: drop`) than are read.
    everything: ColumnPlan | None = None

    def __init__(self, options: SequenceOptions, inputs: Inputs, seed: int) -> None:
        super().__init__(options, inputs, seed)
        self.groups = resolve_groups(
            self.roles.features,
            {name: list(patterns) for name, patterns in options.groups.items()},
            prefix_separator=options.prefix_separator,
        )
        self.costs = resolve_costs(self.groups.names, options.costs, shared=options.shared())
        self.rule = Rule(options.criterion, options.cost_aware, options.doubling)
        wanted = dict.fromkeys(parse_rule(name) for name in options.wanted_baselines)
        self.no_solver = Rule("sparse") in wanted and not _has_celer()
        if self.no_solver:
            del wanted[Rule("sparse")]
        #: Baselines, each once and without the chosen rule itself.
        self.baselines = tuple(rule for rule in wanted if rule != self.rule)

    @property
    def compared(self) -> tuple[Rule, ...]:
        """Rules whose sequences are compared, the chosen one first."""
        return (self.rule, *(rule for rule in self.baselines if rule.criterion != "oracle"))

    # --- what the driver asks ---

    def describe(self) -> Mapping[str, str]:
        """Return what the job will do: label → text."""
        low, high = self.costs.alone.min(), self.costs.alone.max()
        price = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        shared = f", {len(self.costs.shared)} costs shared" if self.costs.shared else ""
        n_categories = len(self.categorical)
        kinds = f", {n_categories} of them categorical" if n_categories else ""
        return {
            "method": f"feature-group sequencing, {self.rule.name}",
            "target": ", ".join(self.roles.target),
            "columns": f"{len(self.roles.features)}{kinds}",
            "groups": f"{len(self.groups)} ({price} each{shared})",
            "baselines": ", ".join(rule.name for rule in self.baselines) or "none",
            **({"search": self.advice} if self.advice else {}),
        }

    def check_tried(self, name: str) -> None:
        """Refuse an end of the sequence that no sequence reaches: all such are the same point."""
        end = self.options.max_groups
        if name == "max_groups" and end is not None and end > len(self.groups):
            raise SpecError(
                f"`sequence.max_groups` is {end}, and there are {len(self.groups)} groups: every "
                "value beyond that is the same point. Leave it out, or write `null` for all groups."
            )

    # --- statistics, selection and model ---

    def source(self, plan: ColumnPlan, dataset: ParquetDataset, held_out: bool) -> RowSource:
        """Return all that is needed to read a partition of a dataset."""
        source = super().source(plan, dataset, held_out)
        if self.everything is None:
            return source
        return NarrowedSource(**vars(source), everything=self.everything)

    def check(self, context: Context, statistics: Bundle) -> None:
        """Refuse what cannot be learned from; say what is left out."""
        super().check(context, statistics)
        if self.no_solver:
            context.note(
                "The baseline `sparse` was left out: the package celer is not installed "
                "(pip install 'distfms[sparse]')."
            )

    def procedure(self, context: Context) -> SequenceProcedure:
        """Return the pure part; CS-G-OMP is among the rules, as its curve cuts α-timeliness."""
        plan, options = self.plan(context), self.options
        return SequenceProcedure(
            rules=tuple(dict.fromkeys((*self.compared, Rule("omp")))),
            feature_names=plan.feature_names,
            target_names=self.roles.target,
            groups=_groups_of_rows(self.groups, plan),
            costs=self.costs,
            ridge=options.ridge,
            max_groups=options.max_groups,
            seed=self.seed,
        )

    def selection(self, context: Context, solved: Solved) -> dict[str, Any]:
        """Return the content of ``selection.json``."""
        path: SequencePath = solved.path
        context.count(n_candidates=path.n_candidates)
        return {
            **self.described(path.scaling.dropped),
            "doubling": self.rule.doubling,
            "sequence": _steps(self.plan(context), path),
            "timeliness": timeliness(path.curve_cost, path.curve_value),
            "doubling_capable": path.doubling_capable,
            "n_candidates": path.n_candidates,
            "notes": _sentences(path.notes),
        }

    def described(self, constant: Sequence[str]) -> dict[str, Any]:
        """Return what ``selection.json`` says besides the sequence."""
        options = self.options
        return {
            "method": self.name,
            "criterion": self.rule.criterion,
            "cost_aware": self.rule.cost_aware,
            "ridge": options.ridge,
            "family": options.family,
            "rule": self.rule.name,
            "targets": list(self.roles.target),
            "constant": list(constant),
            "costs": dict(zip(self.groups.names, self.costs.alone.tolist(), strict=True)),
            "shared_costs": options.shared(),
        }

    def model(self, context: Context, solved: Solved) -> Mapping[str, Content]:
        """Return the predictor of all prefixes."""
        return self.model_files(context, AnytimePredictor.from_path(solved.path))

    def model_files(
        self, context: Context, predictor: AnytimePredictor, **more: Any
    ) -> Mapping[str, Content]:
        """Return ``model.json`` and ``weights.npz``."""
        sources = sources_of(self.plan(context))
        names = {"method": self.name, "id": self.roles.id, "sources": sources}
        return {
            "model.json": {**names, **more, **predictor.to_dict()},
            "weights.npz": predictor.to_arrays(),
        }

    # --- evaluation ---

    def on_folds(self, context: Context, solved: Solved) -> SequenceProcedure:
        """Return the procedure without what is only a measuring rod."""
        return replace(solved.procedure, rules=self.compared)

    def metrics(
        self, context: Context, solved: Solved, validated: FoldAnswers | None
    ) -> dict[str, Any]:
        """Return the content of ``metrics.json``."""
        procedure, paths = solved.procedure, solved.paths
        scores = self._scores(context, solved)
        curves = {
            rule.name: _curve(
                paths[rule.name],
                None if solved.test is None else solved.test["moments"],
                scores if rule == self.rule else {},
                None if validated is None else _mean(validated, number),
            )
            for number, rule in enumerate(self.compared)
        }
        parts: dict[str, Any] = {"train": solved.train, "test": solved.test}
        for part, members in parts.items():
            if members is not None:
                end = solved.path.curve_cost[-1:]
                found = procedure.score(solved.problem, solved.path, members, end)
                parts[part] = {measure: float(values[0]) for measure, values in found.items()}
                parts[part]["n_rows"] = procedure.size(members)[0]
        if parts["test"] is not None:
            parts["test"] |= {name: float(values[-1]) for name, values in scores.items()}
        omp = paths["omp"]
        reference = Curve(omp.groups, omp.curve_cost, omp.curve_value)
        with_oracle = Rule("oracle") in self.baselines
        return {
            **parts,
            "folds": [] if validated is None else _fold_entries(validated),
            **compared(curves, reference, self.options.alpha, with_oracle),
        }

    def _scores(self, context: Context, solved: Solved) -> dict[str, np.ndarray]:
        """Accuracy and NDCG of prefixes, NaN for others, by a pass over the held-out rows."""
        counts: Folded[RowCounts] = solved.statistics["counts"]
        threshold = _threshold(counts.train().merge(counts.test))
        ranks = self.roles.query is not None and len(self.roles.target) == 1
        if not counts.test.n_rows or (threshold is None and not ranks):
            return {}
        models, plan = solved.path.models(), self.plan(context)
        prefixes = thinned(len(models.intercept), MAX_POINTS)
        scorers = Scorers(
            models.coefficients[prefixes], models.intercept[prefixes], solved.path.scaling.mean
        )
        result = context.reduce(
            lambda dataset, held_out: ScoreReader(
                self.source(plan, dataset, held_out), scorers, threshold, ranks
            )
        )
        found = {}
        if threshold is not None:
            found["accuracy"] = share_correct(result["accuracy"].test)
        if ranks:
            found["ndcg@5"] = result["ranking"].test.mean
        scores = {name: np.full(len(models.intercept), np.nan) for name in found}
        for name, values in found.items():
            scores[name][prefixes] = values
        return scores


# --- small parts --------------------------------------------------------------------------------


def _has_celer() -> bool:
    return find_spec("celer") is not None


def _groups_of_rows(groups: FeatureGroups, plan: ColumnPlan) -> FeatureGroups:
    """Write groups of source columns as groups of the rows of a batch."""
    rows = list(plan.column_groups.values())
    return FeatureGroups(
        groups.names,
        tuple(tuple(sorted(r for c in columns for r in rows[c])) for columns in groups.columns),
    )


def _steps(plan: ColumnPlan, path: SequencePath) -> list[dict[str, Any]]:
    """Entries of ``selection.json`` for the steps of a path."""
    source = {name: column.name for column in plan.columns for name in column.value_names}
    ranks = np.diff(path.ranks, prepend=0)
    return [
        {
            "group": path.groups[k],
            "columns": list(dict.fromkeys(source[name] for name in path.columns[k])),
            "n_independent": int(ranks[k]),
            "cost": float(path.cost[k]),
            "spent": float(path.spent[k]),
            "explained_variance": float(path.explained_variance[k]),
            "gain": float(path.gain[k]),
        }
        for k in range(len(path))
    ]


def _curve(
    path: SequencePath,
    test: Any,
    scores: Mapping[str, np.ndarray],
    validation: np.ndarray | None,
) -> Curve:
    """Write a path and its errors on the held-out rows by prefix."""
    share, more = None, dict(scores)
    if test is not None:
        errors = path.held_out(test)
        share, more["test_mse"] = errors.explained_variance, errors.mse.mean(axis=1)
    return Curve(path.groups, path.curve_cost, path.curve_value, share, more, validation)


def _mean(validated: FoldAnswers, number: int) -> np.ndarray:
    """Mean over folds of a rule's explained variance, weighted by their rows."""
    values = [answer["explained_variance"] for answer in validated.answers[number]]
    return over_folds(np.stack(values, axis=-1), validated.weight).mean


def _fold_entries(validated: FoldAnswers) -> list[dict[str, Any]]:
    """Return for each fold the measures of the whole sequence of the chosen rule."""
    sizes = zip(validated.folds, validated.n_rows, validated.weight, strict=True)
    return [
        {
            "fold": fold,
            **{m: float(answer[f"whole/{m}"]) for m in ("r2", "mse", "explained_variance")},
            "n_rows": n_rows,
            "weight": weight,
        }
        for (fold, n_rows, weight), answer in zip(sizes, validated.answers[0], strict=True)
    ]


def _threshold(counts: RowCounts) -> float | None:
    """Middle of the two values of binary targets; None if one target is not binary."""
    if counts.zero_one.all():
        return 0.5
    return 0.0 if counts.plus_minus.all() else None


def _sentences(notes: Sequence[str]) -> list[str]:
    """Write the notes of a path for readers: long lists cut, the same list not said twice."""
    by_list = {note.partition(": ")[2] or note: note for note in reversed(notes)}
    return [_sentence(note) for note in notes if note in by_list.values()]


def _sentence(note: str) -> str:
    what, colon, listed = note.partition(": ")
    items = listed.split(", ")
    if len(items) > _NAMES_SAID:
        more = f" and {len(items) - _NAMES_SAID} more"
        note = f"{len(items)} {what}{colon}{', '.join(items[:_NAMES_SAID])}{more}"
    return note[:1].upper() + note[1:] + ("" if note.endswith(".") else ".")
