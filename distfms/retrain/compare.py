"""Two models on the same rows, which neither has learned from."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from distfms.data.partition import Dataset
from distfms.errors import SpecError
from distfms.methods.contract import Context, FinishedRun, Inputs, Job
from distfms.retrain.gate import Comparison
from distfms.spec import GateSection


def compare(
    job: Job,
    context: Context,
    models: Sequence[FinishedRun],
    newest: Sequence[str],
    gate: GateSection,
) -> list[Comparison]:
    """Compare the current model with a new one, on all held-out rows and on the newest.

    Parameters
    ----------
    job : Job
    context : Context
    models : sequence of FinishedRun
        The current one, then the new one.
    newest : sequence of str
        Names of new and changed files.
    gate : GateSection

    Returns
    -------
    list of Comparison
        Without sets of rows in which no row is held out.
    """
    found = []
    for rows, inputs in (("held_out", job.inputs), ("newest", _only(job.inputs, newest))):
        if inputs is None:
            continue
        n_rows, scores = job.judge(context.on(inputs), models)
        if n_rows:
            metric = gate.metric or next(iter(scores[0]))
            require_metric(gate, tuple(scores[0]))
            before, now = (own[metric] for own in scores)
            rises = job.judged_by[metric]
            found.append(Comparison(rows, n_rows, metric, before, now, rises))
    return found


def require_metric(gate: GateSection, known: Collection[str]) -> None:
    """Refuse a metric of the gate that a job's models are not compared by."""
    if gate.metric is not None and gate.metric not in known:
        raise SpecError(
            f"`retrain.gate.metric` is {gate.metric!r}; models of this job are compared by "
            f"{' or '.join(known)}."
        )


def _only(inputs: Inputs, names: Sequence[str]) -> Inputs | None:
    """Return the data of some files; None where that is nothing, or all there is."""
    train, *test = (_files_of(dataset, names) for dataset in inputs.datasets)
    if train is None or train.n_rows == inputs.train.n_rows:
        return None
    return replace(inputs, train=train, test=test[0] if test else None)


def _files_of(dataset: Dataset, names: Sequence[str]) -> Dataset | None:
    partitions = [part for part in dataset.partitions if part.name in names]
    return dataset.restricted(partitions) if partitions else None
