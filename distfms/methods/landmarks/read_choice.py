"""What folds choose of what rows may be compared by: the sample that they judge, and the maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distfms.data.rows.folds import hash_keys, mix
from distfms.methods.frame.classes import Classes
from distfms.methods.frame.contract import Run
from distfms.methods.landmarks.candidates import (
    Comparison,
    FoldAnswer,
    Form,
    Judging,
    SampledRows,
    comparison,
    forms_of,
)
from distfms.methods.landmarks.form import LandmarkForm
from distfms.methods.landmarks.similarity import LandmarkMap
from distfms.methods.landmarks.squared import coded, of_fold
from distfms.stats.base import Folded
from distfms.stats.sample import RowSample

#: Ridge of a ranking, where folds do not choose another.
_FIRST_RIDGE = 1e-2
#: Parts of rows that are judged in turn where there are no folds.
_PARTS = 4


@dataclass(frozen=True, eq=False)
class Choice:
    """What the folds chose among candidates.

    Attributes
    ----------
    comparison : Comparison
        Of the sample of the training rows; by parts of it where there are no folds.
    labels : tuple of str
        Of the similarities that models have, the best first.
    candidates : mapping of str to int
        The best candidate of each similarity that was compared.
    maps : mapping of str to LandmarkMap
        By label, and without each fold (see `of_fold`) where a metric was learned.
    is_by_parts : bool
        Whether there were no folds.
    n_rows : int
        Of the data, that were compared.
    """

    comparison: Comparison
    labels: tuple[str, ...]
    candidates: Mapping[str, int]
    maps: Mapping[str, LandmarkMap]
    is_by_parts: bool
    n_rows: int

    def form(self, label: str) -> Form:
        """Return the form of a similarity."""
        form, _ = self.comparison.candidates[self.candidates[label]]
        return form

    def listed(self) -> list[dict[str, Any]]:
        """Return what the results say of candidates."""
        is_constant = self.comparison.is_constant
        return self.comparison.listed(0 if is_constant else self.candidates[self.labels[0]])


def read_choice(
    run: Run,
    form: LandmarkForm,
    classes: Classes | None,
    sample: Folded[RowSample],
    plain: Mapping[str, LandmarkMap],
) -> Choice | None:
    """Compare candidates on a sample of the training rows; step ``candidates``.

    None for a ranking, whose queries are not whole in a sample.
    """
    if form.options.task == "ranking":
        return None
    given = {s.label: dict(s.parameters).get("sigma") for s in form.similarities}

    def candidates() -> Choice:
        rows = sampled_rows(form, classes, sample, len(next(iter(plain.values())).scale))
        forms = forms_of(plain, form.metric_kinds, given)
        options = form.options
        judging = Judging(
            rows,
            plain,
            forms,
            has_classes=options.task == "classification",
            has_levels=options.task == "ordinal",
            intercept=options.intercept,
        )
        folds = range(-1, int(rows.fold.max()) + 1)
        answers = run.map(judging, folds, "Comparing candidates")
        choice = choice_of(form, judging, answers)
        chosen = next(entry["similarity"] for entry in choice.listed() if entry["chosen"])
        run.note(f"Of the similarities, {chosen} is the best in cross-validation.")
        return choice

    return run.step("candidates", candidates)


def choice_of(form: LandmarkForm, judging: Judging, answers: Sequence[FoldAnswer]) -> Choice:
    """Choose among candidates by what was answered of all training rows, then of each fold."""
    of_all, *of_folds = answers
    compared = comparison(judging, of_folds)
    best = {label: compared.best_of(label) for label in judging.maps}
    labels = sorted(best, key=lambda label: compared.mean_loss(best[label]))
    if form.options.is_auto:
        labels = labels[:1]
    has_folds = form.inputs.section.folds > 1
    maps = dict[str, LandmarkMap]()
    for label, candidate in best.items():
        chosen, ridge = compared.candidates[candidate]
        maps[label] = judging.mapping(chosen, of_all.transforms, ridge)
        if chosen.metric == "none" or not has_folds:
            continue
        for fold, answer in enumerate(of_folds):
            maps[of_fold(label, fold)] = judging.mapping(chosen, answer.transforms, ridge)
    return Choice(compared, tuple(labels), best, maps, not has_folds, judging.rows.n_merged)


def sampled_rows(
    form: LandmarkForm, classes: Classes | None, sample: Folded[RowSample], n_features: int
) -> SampledRows:
    """Return the first sampled training rows; without folds, in parts that hold objects together.

    Rows of one object with the same features and target are one row of their weight.
    """
    parts = [merged_twins(part, n_features) for part in sample.folds]
    hashes = np.concatenate([part.hashes for part in parts])
    order = np.argsort(hashes, kind="stable")[: form.compared_rows]
    n_rows = len(order)
    if n_rows == len(hashes):
        n_rows = sample.train().n_rows
    values = np.concatenate([part.values for part in parts], axis=1)[:, order]
    features, target, weight = np.split(values, [n_features, n_features + 1])
    if classes is not None:
        target = coded(classes.values, target)
        if form.options.task == "classification":
            target = memberships(target, len(classes.values))
    return SampledRows(features, target, weight[0], folds_of(parts)[order], n_rows)


def folds_of(parts: Sequence[RowSample]) -> np.ndarray:
    """Return the fold of each row; of a single part, other parts that hold objects together."""
    if len(parts) > 1:
        return np.repeat(np.arange(len(parts)), [part.n_rows for part in parts])
    ids = parts[0].ids
    return parts_of_objects(parts[0].hashes if ids is None else hash_keys(ids))


def memberships(numbers: np.ndarray, n_classes: int) -> np.ndarray:
    """Return whether rows are of each class (P, n); of two classes only of the second."""
    first = 1 if n_classes == 2 else 0
    return (numbers == np.arange(first, n_classes)[:, np.newaxis]) * 1.0


def parts_of_objects(keys: np.ndarray) -> np.ndarray:
    """Return numbers of parts, in each of which are some objects; of rows if there is but one."""
    part = (mix(mix(keys)) % np.uint64(_PARTS)).astype(np.intp)
    numbers, part = np.unique(part, return_inverse=True)
    return part if len(numbers) > 1 else np.arange(len(keys)) % 2


def merged_twins(sample: RowSample, n_features: int) -> RowSample:
    """Return the rows that differ in id, features or target, with the weight of all alike."""
    rows = sample.taken(np.lexsort((sample.values[n_features], sample.hashes)))
    is_other_row = np.diff(rows.hashes) != 0
    is_other_target = np.diff(rows.values[n_features]) != 0
    is_new = np.append(True, is_other_row | is_other_target)[: rows.n_rows]
    starts = np.flatnonzero(is_new)
    merged = rows.taken(starts)
    if len(starts):
        merged.values[-1] = np.add.reduceat(rows.values[-1], starts)
    return merged


def all_maps(plain: Mapping[str, LandmarkMap], choice: Choice | None) -> dict[str, LandmarkMap]:
    """Return the maps of all training rows, and of those without each fold."""
    if choice is None:
        return {label: replace(mapping, ridge=_FIRST_RIDGE) for label, mapping in plain.items()}
    names = [name for name in choice.maps if name.partition("@")[0] in choice.labels]
    return {name: choice.maps[name] for name in names}
