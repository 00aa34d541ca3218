"""A job, ready to run: its spec and data are open and checked against one another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from distfms.engine.memory import n_processors
from distfms.errors import SpecError
from distfms.methods import load_method
from distfms.methods.frame.contract import Finished, FinishedRun, Inputs, Job, Method
from distfms.methods.frame.tuning import (
    candidates_in_words,
    passes_in_words,
    tuned_in_words,
    tuned_job,
)
from distfms.report.formatting import option_text
from distfms.runs.auto_folds import make_job
from distfms.runs.context import RunContext, decide
from distfms.runs.events import Say, silent
from distfms.runs.first_rows import remarks
from distfms.runs.inputs import Origin, open_inputs
from distfms.runs.job_spec import JobSpec
from distfms.store.places import Location


@dataclass(frozen=True)
class Prepared:
    """A job whose spec and data have been checked.

    The data section of the spec is that of the job's inputs, with a number of folds and the roles
    of all columns. `root` is the place of all runs, `identity` a hash of all that the result
    depends on. `after` is called between model and report.
    """

    spec: JobSpec
    root: Location
    origin: Origin
    method: Method
    job: Job
    identity: str
    after: Callable[[RunContext, Finished, FinishedRun], None] | None = None

    def describe(self) -> Mapping[str, str]:
        """Return what the run will do: label → text."""
        job = self.job
        n_folds = self.job.n_folds
        described = dict(job.describe())
        if self.spec.preset:
            sets = self.spec.preset.items()
            settings = [
                f"{s}.{k} {option_text(v)}" for s, values in sets for k, v in values.items()
            ]
            described["preset"] = "paper sets " + ", ".join(settings)
        if job.tune is not None:
            described["tuned"] = tuned_in_words(job)
        cost = f", about {n_folds + 1} times the work of `folds: 0`" * job.folds_cost
        described["cross-validation"] = f"{n_folds} folds{cost}" if n_folds else "none"
        described["candidates"] = candidates_in_words(job)
        described["passes"] = passes_in_words(job)
        described["actors"] = self._said_of_actors()
        return described

    def _said_of_actors(self) -> str:
        """Say what actors do, and why."""
        engine = self.spec.engine
        single = engine.kind == "local" and (engine.workers or n_processors()) == 1
        reasons = []
        for work, n_operations in self.job.for_actors(self.job.n_tried).items():
            yes, why = decide(engine.actors, n_operations, single, engine.kind)
            reasons.append(f"{'' if yes else 'not '}for {work} ({why})")
        return "; ".join(reasons) or "none"


def prepare(
    spec: JobSpec, say: Say = silent, opened: tuple[Inputs, Origin] | None = None
) -> Prepared:
    """Open the data, unless they are open, and check the whole spec against them.

    No rows are read.

    Raises
    ------
    SpecError, DataError
    """
    if spec.output.tracking is not None:
        from distfms.runs.tracking import require_tracker

        require_tracker(spec.output.tracking)
    root = spec.place()
    method = load_method(spec.method)
    if spec.data.unlabelled_path is not None and not method.takes_unlabelled:
        raise SpecError(
            f"`data.unlabelled_path` is for landmarks only; this job's method is `{spec.method}`. "
            "Leave it out."
        )
    if spec.data.missing == "pairs" and not method.takes_gaps:
        raise SpecError(
            f"`data.missing: pairs` is not for the method `{spec.method}`: choose from error, drop "
            "and mean."
        )
    inputs, origin = opened or open_inputs(spec, root, say)
    job, notes = make_job(method, spec, inputs)
    inputs = job.inputs
    spec = replace(spec, data=inputs.section)
    identity = spec.identity(origin.fingerprints)
    if spec.tune is not None:
        job = tuned_job(method, job, spec.tune)
    if spec.retrain is not None and spec.retrain.forget.half_life and not job.weighs_partitions:
        raise SpecError(
            f"`retrain.forget.half_life` weighs statistics by age, but this `{spec.method}` job "
            "learns from the rows themselves. Use `forget: all` or a `window`."
        )
    notes += remarks(inputs, job.columns)
    origin = replace(origin, notes=(*origin.notes, *notes))
    return Prepared(spec, root, origin, method, job, identity)
