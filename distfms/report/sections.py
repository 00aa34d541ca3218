"""What every report has: its page, what was read, how to make it again, how it was retrained."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

from distfms.report.formatting import count, integer, measure_title, n_bytes, number, percent
from distfms.report.notes import code_of, table, unmuted
from distfms.report.page import Block, Code, Figure, KeyValues, Page, PageSection, Table, Text
from distfms.report.plots import Line, line_chart

_FILES_SHOWN = 200
_FINGERPRINT = 16
_COLUMNS_NAMED = 24
#: What a run accounts for in its manifest, as the page calls it.
_ACCOUNTS = {"objects": "Objects", "judgments": "Judgments", "dropped": "Left out"}


def build_page(
    headline: str, sections: Sequence[PageSection], manifest: Mapping[str, Any], subtitle: str
) -> Page:
    """Put a method's sections, but those without blocks, and the common ones on a page."""
    created = manifest["created"].replace("T", " ").removesuffix("Z")
    of_method = [section for section in [*sections, _explained(sections)] if section.blocks]
    return Page(
        manifest["spec_name"],
        f"{subtitle} · run of {created} UTC",
        headline=headline,
        sections=[*of_method, _read_section(manifest), _reproduce_section(manifest)],
        footer=f"Made by distfms {manifest['distfms']} from the JSON files of the run folder, "
        "which hold all numbers unrounded.",
    )


def notes(manifest: Mapping[str, Any], remarks: Sequence[str] = ()) -> list[Text]:
    """Return what the run has to say to its reader, set off from the text, each note once."""
    texts = unmuted([*manifest["notes"], *remarks], manifest.get("muted", ()))
    if not texts:
        return []
    codes = [code_of(text) for text in texts]
    marked = []
    for text, code in zip(texts, codes, strict=True):
        marked.append(f"{text} `{code}`" if code else text)
    return [Text("\n\n".join(marked), tone="note", codes=codes)]


def _explained(sections: Sequence[PageSection]) -> PageSection:
    """Return what the notes mean that stand on a page."""
    codes = set[str]()
    for section in sections:
        for block in section.blocks:
            if isinstance(block, Text):
                codes.update(block.codes)
    meanings = {code: table()[code]["means"] for code in sorted(codes) if code}
    blocks = [KeyValues(meanings, anchors=True)] if meanings else []
    return PageSection("What the notes mean", blocks)


def usage(called: str, manifest: Mapping[str, Any], columns: Sequence[str]) -> list[Block]:
    """Return commands and Python that predict, as they stand, with the columns a model needs.

    `called` is the place of the run, or the name of its version; empty where it is kept nowhere.
    """
    if not called:
        return []
    data = _named_file(manifest)
    model = shlex.quote(called)
    named = ", ".join(columns[:_COLUMNS_NAMED])
    if len(columns) > _COLUMNS_NAMED:
        named += f" and {len(columns) - _COLUMNS_NAMED} more"
    lines = textwrap.wrap(f"Or a frame or mapping with {named}.", 96, break_on_hyphens=False)
    python = [
        "import distfms",
        "",
        f"model = distfms.load({called!r})",
        f"model.predict({data!r})",
        *(f"# {line}" for line in lines),
    ]
    command = f"distfms predict {model} \\\n  {shlex.quote(data)} \\\n  --out predictions.parquet"
    return [Code(command, "Use this model"), Code("\n".join(python))]


def _named_file(manifest: Mapping[str, Any]) -> str:
    """Return the user's first file; a name to replace where the data are embedded."""
    source: str | None = manifest.get("source")
    return manifest["inputs"][0]["path"] if source is None else source or "new_rows.parquet"


def _read_section(manifest: Mapping[str, Any]) -> PageSection:
    stages = manifest["stages"]
    n_read = sum(stage.get("n_read", 0) for stage in stages)
    n_cached = sum(stage.get("n_cached", 0) for stage in stages)
    facts = {
        "Files": integer(len(manifest["inputs"])),
        "Rows": integer(manifest["n_rows"]),
        "Size": n_bytes(manifest["n_bytes"]),
        "Partitions": integer(manifest["n_partitions"]),
        "Partial statistics": f"{integer(n_read)} computed, {integer(n_cached)} from the cache",
    }
    for key, label in _ACCOUNTS.items():
        facts |= _accounted(label, manifest.get(key, {}))
    return PageSection("What was read", [KeyValues(facts), _input_table(manifest)])


def _accounted(label: str, entry: Mapping[str, Any]) -> dict[str, str]:
    """Return facts of counts by name; a count by column is added up."""
    facts = {}
    for key, value in entry.items():
        name = label if key == "total" else f"{label}, {key.replace('_', ' ')}"
        if isinstance(value, Mapping):
            n_entries = count(len(value), "entry", "entries")
            facts[name] = f"{integer(sum(value.values()))} in {n_entries}"
        else:
            facts[name] = integer(value)
    return facts


def _input_table(manifest: Mapping[str, Any]) -> Table:
    inputs = manifest["inputs"]
    is_made = manifest.get("source") is not None
    rows = [
        {
            "File": entry["path"].rpartition("/")[2] if is_made else entry["path"],
            "Rows": entry["n_rows"],
            "Size": entry["n_bytes"],
            "Fingerprint": entry["fingerprint"][:_FINGERPRINT],
        }
        for entry in inputs[:_FILES_SHOWN]
    ]
    caption = (
        "Input files. A file's fingerprint changes when the file changes; later runs do not read "
        "files with known fingerprints again."
    )
    if len(inputs) > _FILES_SHOWN:
        caption += f" The first {_FILES_SHOWN} of {integer(len(inputs))}; all are in inputs.json."
    return Table(rows, caption, {"Size": "bytes"})


def _reproduce_section(manifest: Mapping[str, Any]) -> PageSection:
    facts = {
        "Job": manifest["spec_name"],
        "Method": manifest["method"],
        "Seed": integer(manifest["seed"]),
        "Run": manifest["created"],
        "Identity": manifest["identity"],
    }
    packages = manifest["packages"]
    versions = {"distfms": manifest["distfms"], **dict(sorted(packages.items()))}
    blocks: list[Block] = [
        Text(
            "The run folder holds the resolved job spec. The same spec and data give the same "
            "numbers on any engine and any number of workers. Relative paths in the spec start at "
            "the folder in which the command is run."
        ),
        Code(
            "distfms run RUN_FOLDER/spec.yaml\ndistfms report RUN_FOLDER      # redraws this page"
        ),
        KeyValues(facts),
        Table([{"Package": k, "Version": v} for k, v in versions.items()], "Versions."),
        Table(
            [
                {"Step": s["name"], "Time": s["seconds"], "Wrote": ", ".join(s["files"])}
                for s in manifest["stages"]
            ],
            "Steps of the run, in order, and the files they wrote.",
            {"Time": "seconds"},
        ),
    ]
    return PageSection("How to reproduce", blocks)


# --- retraining -----------------------------------------------------------------------------------

_ROWS = {"held_out": "All held-out rows", "newest": "Held-out rows of new files"}
_QUANTITIES = {
    "mean": "Mean",
    "spread": "Spread",
    "correlation": "Correlation",
    "disagreement": "Disagreement",
}


def refusal(content: Mapping[str, Any] | None) -> str | None:
    """Return why a model was refused, in one sentence; None of a run that was not."""
    conditions = (content or {}).get("conditions", ())
    failed = [condition["found"] for condition in conditions if not condition["holds"]]
    return f"Refused: {'; '.join(failed)}" if failed else None


def retraining_sections(content: Mapping[str, Any] | None) -> list[PageSection]:
    """Return the sections of a run that was a retraining; none of another."""
    if content is None:
        return []
    sections = [_decision(content)]
    if content["drift"]:
        sections.append(_drift(content["drift"]))
    if content["selection"]:
        sections.append(_selection(content))
    return sections


def _decision(content: Mapping[str, Any]) -> PageSection:
    data = content["data"]
    facts = {
        "Files, new": _listed(data["new"]),
        "Files, changed": _listed(data["changed"]),
        "Files, vanished": _listed(data["vanished"]),
        "Partitions": f"{integer(data['n_read'])} read, {integer(data['n_cached'])} from the cache",
    }
    blocks: list[Block] = [Text(_decision_text(content), tone="note"), KeyValues(facts)]
    if content["conditions"]:
        rows = [
            {"Condition": c["text"], "Found": c["found"], "Holds": c["holds"]}
            for c in content["conditions"]
        ]
        blocks.append(Table(rows, "Conditions for promotion."))
    if content["compared"]:
        blocks.append(_comparison(content["compared"], f"Version {content['in_place']}"))
    return PageSection("Retraining", blocks)


def _decision_text(content: Mapping[str, Any]) -> str:
    before = content["in_place"]
    if before is None:
        return "This model is the first."
    if content["anew"]:
        return f"Promoted with --anew, without a comparison with version {before}."
    if content.get("made") is not None:
        return (
            f"The data are again those of version {content['made']}: its model replaces version "
            f"{before} without a comparison."
        )
    if content["promote"]:
        return f"Promoted: all conditions hold. This model replaces version {before}."
    return f"{refusal(content)}. Version {before} stays the current model."


def _comparison(compared: Sequence[Mapping[str, Any]], current: str) -> Table:
    rows = [
        {
            "Rows": _ROWS[entry["rows"]],
            "Number": entry["n_rows"],
            "Measure": measure_title(entry["metric"], True),
            current: entry["in_place"],
            "This model": entry["new"],
            "Gain": entry["gain"],
        }
        for entry in compared
    ]
    caption = "Both models, on rows that neither learned from."
    return Table(rows, caption, {"Gain": "percent"})


def _listed(names: Sequence[str]) -> str:
    if not names:
        return "none"
    dots = ", …" if len(names) > 5 else ""
    return f"{integer(len(names))}: {', '.join(names[:5])}{dots}"


def _drift(drift: Mapping[str, Any]) -> PageSection:
    columns = drift["columns"]
    rows = [{"Column": column["name"]} for column in columns]
    for quantity, title in _QUANTITIES.items():
        entries = [column[quantity] for column in columns]
        if any(entry["shift"] is not None for entry in entries):
            for row, entry in zip(rows, entries, strict=True):
                row[title] = _shift(entry)
    n_sets = count(len(drift["sets"]), "new file or day", "new files or days")
    table = Table(
        rows,
        f"How far {drift['name']} is (the furthest of {n_sets}) from the data behind the current "
        f"model, ± the {percent(drift['level'])} interval of chance. Mean: in standard "
        "deviations. Spread, and disagreement of raters: logarithm of the ratio of standard "
        "deviations. Correlation with the target: difference. "
        f"The {count(len(rows), 'column')} of {integer(drift['n_columns'])} with the largest "
        "drift.",
    )
    return PageSection("Drift by column", [table, _history(drift["history"])])


def _history(history: Mapping[str, Any]) -> Figure:
    lines = []
    for name, means in history["lines"].items():
        points = list(enumerate(means, 1))
        new = compress(points, history["is_new"])
        marks = [(place, mean) for place, mean in new if mean is not None]
        lines.append(Line(name, range(1, len(means) + 1), means, marks=marks))
    svg = line_chart(
        lines,
        title="Means of the columns with the largest drift, by partition",
        xlabel="partition, in the order of the data",
        ylabel="mean, in standard deviations",
    )
    caption = (
        "Means of the columns with the largest drift, in standard deviations from the mean of the "
        "partitions behind the current model. Rings: new partitions."
    )
    return Figure(svg, caption)


def _shift(entry: Mapping[str, Any]) -> str:
    if entry["shift"] is None:
        return number(None)
    half = "" if entry["half_width"] is None else f" ± {number(entry['half_width'], 2)}"
    return f"{number(entry['shift'], 3)}{half}"


def _selection(content: Mapping[str, Any]) -> PageSection:
    current = f"Version {content['in_place']}"
    rows = [
        {
            "": entry["name"],
            "Change": entry["change"],
            current: entry["before"],
            "This model": entry["now"],
            "Gain": entry["gain"],
        }
        for entry in content["selection"]
    ]
    caption = (
        "Differences between the current model and this one: what each selected, and the gain in "
        "the objective there; for dropped entries, the gain in the current model."
    )
    return PageSection("Changes in the selection", [Table(rows, caption)])
