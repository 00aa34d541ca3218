"""The index page of a folder of runs: jobs, their answers, and a measure over their runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distfms.engine.storage import Location, locate, read_each
from distfms.errors import DistfmsError, SpecError
from distfms.methods.frame.contract import FinishedRun, Method
from distfms.report.formatting import as_number, measure_title
from distfms.report.page import Block, Figure, Link, Page, PageSection, Table
from distfms.report.plots import Line, line_chart
from distfms.report.sections import refusal
from distfms.runs.finished import Run, find_run, read_run, redraw
from distfms.runs.folder import LATEST, MANIFEST, parse_manifest, write_atomic
from distfms.spec import expanded

INDEX = "index.html"


@dataclass(frozen=True)
class _Entry:
    """A finished run as the index shows it; `value` is that of its main measure."""

    when: str
    answer: str
    href: str
    measure: str = ""
    value: float | None = None
    refused: bool = False
    #: Method and targets: measures of different ones are not compared.
    question: str = ""


def draw(run: Run, storage_options: Mapping[str, Any] | None = None) -> Location:
    """Draw a run's report again, or the index of a folder of jobs; return its place.

    Raises
    ------
    SpecError
        If this is neither.
    """
    path = find_run(run, storage_options)
    base = locate(run, expanded(storage_options or {}))
    if (path / MANIFEST).exists() or not (jobs := _jobs(base)):
        return redraw(run, storage_options)
    target: Location = base / INDEX
    write_atomic(target, _page(base.name, jobs).render().encode())
    return target


def _jobs(base: Location) -> dict[str, list[_Entry]]:
    """Return the finished runs of each job below a folder, the first one first."""
    try:
        folders = sorted((path for path in base.iterdir()), key=lambda path: path.name)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    found: dict[str, list[_Entry]] = {}
    for folder in (own for own in folders if not own.name.startswith(".")):
        entries = _runs(folder)
        questions = {entry.question for entry in entries}
        for entry in entries:
            name = f"{folder.name} ({entry.question})" if len(questions) > 1 else folder.name
            found.setdefault(name, []).append(entry)
    return found


def _runs(job: Location) -> list[_Entry]:
    found = []
    for folder, payload in read_each(job, MANIFEST):
        try:
            manifest = parse_manifest(folder, payload)
            if folder.name == LATEST or manifest.status != "done":
                continue
            when, href = manifest.created.replace("T", " "), f"{job.name}/{folder.name}/report.html"
            found.append(_entry(when, href, *read_run(folder).open()))
        except SpecError as error:
            text = f"Cannot be read: {error}"
            found.append(_Entry(folder.name, text, "", question="damaged"))
        except DistfmsError:
            continue
    return found[::-1]


def _entry(when: str, href: str, method: Method, run: FinishedRun) -> _Entry:
    own = run.metrics["test"] or {}
    named = (run.metrics.get("measure"), *method.measures)
    measure = next((n for n in named if as_number(own.get(n)) is not None), "")
    refused = refusal(run.retraining) is not None
    value = as_number(own.get(measure))
    question = ", ".join(dict.fromkeys([method.name, *_targets(run)]))
    return _Entry(when, method.headline(run), href, measure or "", value, refused, question)


def _targets(run: FinishedRun) -> list[str]:
    """Return what a model predicts."""
    targets = run.model.get("target_names") or run.model.get("target") or ()
    return [targets] if isinstance(targets, str) else list(targets)


def _page(name: str, jobs: Mapping[str, list[_Entry]]) -> Page:
    rows = [
        {
            "Job": job,
            "Runs": len(own),
            "Last run": own[-1].when,
            "Answer of the last run": _link(own[-1]),
            "Refused": sum(entry.refused for entry in own) or None,
        }
        for job, own in jobs.items()
    ]
    overview = Table(rows, "Jobs of this folder, with the answer of each job's last finished run.")
    sections = [PageSection(job, _blocks(entries)) for job, entries in jobs.items()]
    title = f"{len(jobs)} job{'s' * (len(jobs) != 1)}"
    return Page(name, "Runs", title, [PageSection("", [overview]), *sections])


def _blocks(entries: list[_Entry]) -> list[Block]:
    """Return the table of a job's runs, and their measure as a line where there are several."""
    measure = entries[-1].measure
    title, blocks = measure_title(measure or "measure", True), list[Block]()
    known = [
        (n, entry.value, entry.refused)
        for n, entry in enumerate(entries, 1)
        if entry.measure == measure and entry.value is not None
    ]
    if measure and len(known) > 1:
        x, y, _ = zip(*known, strict=True)
        refused = [(n, value) for n, value, is_refused in known if is_refused]
        line = Line(title, x, y, marks=refused, bold=True)
        chart = line_chart([line], title=f"{title} by run", xlabel="run", ylabel=title.lower())
        caption = f"{title} on held-out rows, by run, oldest first. Rings: refused models."
        blocks.append(Figure(chart, caption))
    rows = [
        {
            "Run": entry.when,
            "Model": "refused" if entry.refused else None,
            title: entry.value,
            "Answer": _link(entry),
        }
        for entry in reversed(entries)
    ]
    return [*blocks, Table(rows, "Finished runs, newest first.", {title: "measure"})]


def _link(entry: _Entry) -> str | Link:
    return Link(entry.answer, entry.href) if entry.href else entry.answer
