"""Commands: parse, call, print. No logic."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from distfms.cli import models, start, terminal
from distfms.cli.output import lasting_output, require_printed
from distfms.cli.terminal import AsJson, Registry, Storage, complain, say, storage_options
from distfms.errors import DistfmsError

if TYPE_CHECKING:
    from distfms.runs.job_spec import JobSpec

app = typer.Typer(
    name="distfms",
    help="Decide what is worth measuring, in which order and how often.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # which shows flags with a type
)
app.add_typer(models.app, name="models")
for command in (start.init, start.options, start.explain):
    app.command()(command)
app.command("help")(start.help_)

Spec = Annotated[Path, typer.Argument(help="Job spec (YAML or JSON).")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a key, such as `multiselect.budget=20`."),
]
Run = Annotated[
    str, typer.Argument(help="Folder or URL of a finished run, or of a job (its last run).")
]
Engine = Annotated[str | None, typer.Option(help="Where to run: local, dask or ray.")]
Address = Annotated[str | None, typer.Option(help="Address of the cluster.")]
Log = Annotated[
    str,
    typer.Option(envvar="DISTFMS_LOG", help="Output format: text, or json (one event per line)."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result and errors.")]


_debug = False


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from distfms import __version__

        say(f"distfms {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Decide what is worth measuring, in which order and how often."""
    global _debug
    _debug = debug


@contextmanager
def _started(
    spec: Path, sets: list[str] | None, engine: str | None, address: str | None, **log: Any
) -> Iterator[tuple[Callable[[str], None], JobSpec, dict[str, Any]]]:
    """Yield what prints results, a spec, and whom to tell what while it runs until it is stopped.

    `log` is what `open_log` takes.
    """
    from distfms.runs.events import open_log
    from distfms.runs.interrupts import end_at_once, orderly_end
    from distfms.runs.job_spec import load_spec

    settings = {"engine.kind": engine, "engine.address": address}
    options = [f'{key}="{value}"' for key, value in settings.items() if value]
    with orderly_end(complain), open_log(say=say, **log) as (tell, say_more, progress):
        listeners = {"say": say_more, "progress": progress, "on_silence": end_at_once}
        yield tell, load_spec(spec, [*options, *(sets or ())]), listeners


@app.command()
def check(spec: Spec, as_json: AsJson = False, set_: Sets = None) -> None:
    """Check a spec against its data and show what a run would do.

    Reads file footers and the first rows only. Files of other formats and judgments in long form
    are converted to Parquet first, once.
    """
    from distfms.report.notes import coded, unmuted
    from distfms.runs.job_spec import load_spec
    from distfms.runs.prepare import prepare
    from distfms.runs.projection import project_job

    prepared = prepare(load_spec(spec, set_ or ()), complain if as_json else say)
    job = prepared.describe()
    functions = sorted(prepared.spec.options.functions)
    unseen = [
        f"The function `{name}` is not imported here; a run imports it." for name in functions
    ]
    notes = [*prepared.origin.notes, *unseen]
    projection = project_job(prepared.spec.engine, prepared.job)
    place = prepared.root / prepared.spec.name
    if as_json:
        content = {"job": job, "notes": notes, "runs": str(place), **asdict(projection)}
        say(json.dumps(content, indent=1, ensure_ascii=False))
    else:
        for label, text in job.items():
            say(f"{label}: {text}")
        for note in unmuted(notes, prepared.spec.output.mute):
            say(f"Note: {coded(note)}")
        for line in projection.lines(place):
            say(line)
    projection.require()
    if not as_json:
        say("The spec is valid.")


@app.command()
def run(
    spec: Spec,
    out: Annotated[str | None, typer.Option(help="Folder or URL of this run.")] = None,
    engine: Engine = None,
    address: Address = None,
    log: Log = "text",
    quiet: Quiet = False,
    set_: Sets = None,
) -> None:
    """Run a job, or resume it after a stop."""
    from distfms.runs.driver import run_job
    from distfms.runs.finished import headline

    started = _started(spec, set_, engine, address, kind=log, quiet=quiet)
    with started as (tell, loaded, listeners):
        result = run_job(loaded, out=out, **listeners)
    tell(headline(result.folder))
    tell(f"Report: {result.folder / 'report.html'}")


@app.command()
def retrain(
    spec: Spec,
    anew: Annotated[
        bool, typer.Option("--anew", help="Promote the new model without a comparison.")
    ] = False,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Accept a file despite its drift, or the loss of a file; may be repeated.",
        ),
    ] = None,
    registry: Registry = None,
    engine: Engine = None,
    address: Address = None,
    log: Log = "text",
    quiet: Quiet = False,
    set_: Sets = None,
) -> None:
    """Retrain on new data, and promote the model if it passes.

    Exits with code 3 if the gate of the job refuses the model.
    """
    from distfms.retrain.job import retrain

    started = _started(spec, set_, engine, address, kind=log, quiet=quiet)
    with started as (tell, loaded, listeners):
        models = loaded.registry(registry)
        outcome = retrain(loaded, models, anew=anew, accept=accept or (), **listeners)
    if outcome.folder is not None:
        tell(f"Report: {outcome.folder / 'report.html'}")
    if outcome.reasons:
        if quiet:  # else it was said when it was decided
            tell(f"Refused: {'; '.join(outcome.reasons)}")
        raise typer.Exit(3)


@app.command()
def schedule(
    specs: Annotated[list[Path], typer.Argument(metavar="SPEC…", help="Job specs to retrain.")],
    cron: Annotated[
        str,
        typer.Option(
            help="Minute, hour, day of month, month, day of week: `0 3 * * *` is 3:00 every night."
        ),
    ],
    zone: Annotated[str, typer.Option(help="Time zone, such as Europe/Berlin.")] = "UTC",
    health: Annotated[
        Path | None, typer.Option(help="JSON file to write the status and the last start to.")
    ] = None,
    registry: Registry = None,
    set_: Sets = None,
) -> None:
    """Retrain jobs on a schedule, until SIGTERM."""
    from distfms.retrain.schedule import Scheduler, parse_times, retrain_commands
    from distfms.runs.job_spec import load_spec

    for spec in specs:
        load_spec(spec, set_ or ())
    options = []
    for setting in set_ or ():
        options += ["--set", setting]
    if registry:
        options += ["--registry", registry]
    Scheduler(
        parse_times(cron, zone), retrain_commands(specs, options), health=health, say=say
    ).run()


@app.command()
def predict(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="Folder or URL of a finished run, or of a job (its last run); or registry:NAME, "
            "registry:NAME@3.",
        ),
    ],
    data: Annotated[str, typer.Argument(metavar="DATA", help="Folder, file, glob or URL of rows.")],
    *,
    out: Annotated[
        str,
        typer.Option(
            help="Parquet or CSV file or URL to write. With a trailing slash, a folder with a file "
            "for each partition; keeps finished files."
        ),
    ],
    registry: Registry = None,
    budget: Annotated[
        float | None,
        typer.Option(help="Maximum cost of a row; reads only the groups or judgments it pays for."),
    ] = None,
    stop: terminal.Stop = "prefix",
    mean_budget: terminal.MeanBudget = None,
    confidence: terminal.Confidence = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Allow the model to import and call this function, and no other.",
        ),
    ] = None,
    with_folds: Annotated[
        bool, typer.Option("--with-folds", help="Add each row's fold and whether it was held out.")
    ] = False,
    engine: Engine = None,
    address: Address = None,
    storage: Storage = None,
) -> None:
    """Predict the rows of a dataset."""
    from distfms.runs.predict import predict_file
    from distfms.spec import EngineSection, parse_section

    chosen = {"kind": engine or "local", "address": address}
    say(
        predict_file(
            run,
            data,
            out,
            budget=budget,
            stop=stop,
            mean_budget=mean_budget,
            confidence=confidence,
            allow=allow or (),
            with_folds=with_folds,
            engine=parse_section(EngineSection, chosen, "engine"),
            storage_options=storage_options(storage),
            registry=registry,
        )
    )


@app.command()
def report(run: Run, storage: Storage = None) -> None:
    """Redraw the report of a run."""
    from distfms.runs.finished import redraw

    say(f"Report: {redraw(run, storage_options(storage))}")


@app.command()
def submit(
    spec: Spec,
    address: Annotated[
        str,
        typer.Option(
            envvar="RAY_API_SERVER_ADDRESS",
            help="Dashboard of the Ray head, such as http://head:8265.",
        ),
    ],
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow the job's output and exit with its code.")
    ] = False,
    retrain: Annotated[
        bool, typer.Option("--retrain", help="Submit `distfms retrain` instead of `distfms run`.")
    ] = False,
    set_: Sets = None,
) -> None:
    """Submit a job to a Ray cluster, or resume it."""
    from distfms.runs.job_spec import load_spec
    from distfms.runs.submit import connect, follow, submit

    loaded = load_spec(spec, set_ or ())
    client = connect(address)
    id = submit(client, address, loaded, say=say, retrain=retrain)
    if wait:
        follow(client, address, id, partial(print, end="", flush=True), say)


#: Commands whose result is not what they print.
_LEAVES_FILES = frozenset({"init", "run", "retrain", "schedule", "predict", "report", "submit"})


# --- entry --------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code.

    Exit codes: 0 done, 1 failed while running or kept out by another process, 2 bad spec, data or
    use, 3 a new model was refused by its gate; 128 and the number of the
    signal for a run that was stopped by one; the same command resumes it.
    """
    global _debug
    _debug = False
    # What starts here stays, and plugins of models would be looked for in every installed package.
    gc.set_threshold(50_000)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # What Ray prints of nodes that are lost, errors say here; it is read when Ray is imported.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    os.umask(os.umask(0o022) | 0o002)  # not everybody may write to what a command leaves
    words = list(sys.argv[1:] if arguments is None else arguments)
    with lasting_output() as output:
        try:
            code = _exit_code(words)
            if not code and _LEAVES_FILES.isdisjoint(words[:1]):
                require_printed(output)
        except DistfmsError as error:
            if _debug:
                raise
            complain(f"Error: {error}")
            code = error.exit_code
    sys.exit(code)


def _exit_code(words: list[str]) -> Any:
    """Run a command and return its exit code."""
    try:
        app(words, prog_name="distfms")
    except SystemExit as end:
        return end.code
    return 0
