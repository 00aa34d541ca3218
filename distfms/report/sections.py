"""What every report has: its page, what was read, how to make it again, how it was retrained."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping, Sequence
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
    when = manifest["created"].replace("T", " ").removesuffix("Z")
    return Page(
        manifest["spec_name"],
        f"{subtitle} · run of {when} UTC",
        headline=headline,
        sections=[
            *(section for section in [*sections, _explained(sections)] if section.blocks),
            _read_section(manifest),
            _reproduce_section(manifest),
        ],
        footer=f"Made by distfms {manifest['distfms']} from the JSON files of the run folder, "
        "which hold all numbers unrounded.",
    )


def notes(manifest: Mapping[str, Any], others: Sequence[str] = ()) -> list[Text]:
    """Return what the run has to say to its reader, set off from the text, each note once."""
    said = unmuted([*manifest["notes"], *others], manifest.get("muted", ()))
    codes = [code_of(text) for text in said]
    marked = [f"{text} `{code}`" if code else text for text, code in zip(said, codes, strict=True)]
    return [Text("\n\n".join(marked), tone="note", codes=codes)] if said else []


def _explained(sections: Sequence[PageSection]) -> PageSection:
    """Return what the notes mean that stand on a page."""
    texts = [block for own in sections for block in own.blocks if isinstance(block, Text)]
    codes = sorted({code for text in texts for code in text.codes if code})
    means = {code: table()[code]["means"] for code in codes}
    return PageSection("What the notes mean", [KeyValues(means, anchors=True)] if codes else [])


def usage(called: str, manifest: Mapping[str, Any], columns: Sequence[str]) -> list[Block]:
    """Return commands and Python that predict, as they stand, with the columns a model needs.

    `called` is the place of the run, or the name of its version; empty where it is kept nowhere.
    """
    if not called:
        return []
    data = manifest["inputs"][0]["path"]
    model = f"--model {called}" if called.startswith("registry:") else shlex.quote(called)
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


def _read_section(manifest: Mapping[str, Any]) -> PageSection:
    counts = {
        name: sum(stage.get(name, 0) for stage in manifest["stages"])
        for name in ("n_read", "n_cached")
    }
    facts = {
        "Files": integer(len(manifest["inputs"])),
        "Rows": integer(manifest["n_rows"]),
        "Size": n_bytes(manifest["n_bytes"]),
        "Partitions": integer(manifest["n_partitions"]),
        "Partial statistics": f"{integer(counts['n_read'])} computed, "
        f"{integer(counts['n_cached'])} from the cache",
    }
    for key, label in _ACCOUNTS.items():
        facts |= _accounted(label, manifest.get(key, {}))
    return PageSection("What was read", [KeyValues(facts), _input_table(manifest["inputs"])])


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


def _input_table(inputs: Sequence[Mapping[str, Any]]) -> Table:
    shown = inputs[:_FILES_SHOWN]
    more = f" The first {_FILES_SHOWN} of {integer(len(inputs))}; all are in inputs.json."
    return Table(
        [
            {
                "File": entry["path"],
                "Rows": entry["n_rows"],
                "Size": entry["n_bytes"],
                "Fingerprint": entry["fingerprint"][:_FINGERPRINT],
            }
            for entry in shown
        ],
        "Input files. A file's fingerprint changes when the file changes; later runs do not read "
        "files with known fingerprints again." + (more if len(inputs) > len(shown) else ""),
        {"Size": "bytes"},
    )


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
                {"Stage": s["name"], "Time": s["seconds"], "Wrote": ", ".join(s["files"])}
                for s in manifest["stages"]
            ],
            "Stages of the run, in order, and the files they wrote.",
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
    failed = [c["found"] for c in (content or {}).get("conditions", ()) if not c["holds"]]
    return f"Refused: {'; '.join(failed)}" if failed else None


def retraining_sections(content: Mapping[str, Any] | None) -> list[PageSection]:
    """Return the sections of a run that was a retraining; none of another."""
    if content is None:
        return []
    found = [_decision(content)]
    if content["drift"]:
        found.append(_drift(content["drift"]))
    if content["selection"]:
        found.append(_selection(content))
    return found


def _decision(content: Mapping[str, Any]) -> PageSection:
    before = content["in_place"]
    if before is None:
        text = "This model is the first."
    elif content["anew"]:
        text = f"Promoted with --anew, without a comparison with version {before}."
    elif content.get("made") is not None:
        text = (
            f"The data are again those of version {content['made']}: its model replaces version "
            f"{before} without a comparison."
        )
    elif content["promote"]:
        text = f"Promoted: all conditions hold. This model replaces version {before}."
    else:
        text = f"{refusal(content)}. Version {before} stays the current model."
    data = content["data"]
    facts = {
        "Files, new": _listed(data["new"]),
        "Files, changed": _listed(data["changed"]),
        "Files, vanished": _listed(data["vanished"]),
        "Partitions": f"{integer(data['n_read'])} read, {integer(data['n_cached'])} from the cache",
    }
    blocks: list[Block] = [Text(text, tone="note"), KeyValues(facts)]
    if content["conditions"]:
        rows = [
            {"Condition": c["text"], "Found": c["found"], "Holds": c["holds"]}
            for c in content["conditions"]
        ]
        blocks.append(Table(rows, "Conditions for promotion."))
    if content["compared"]:
        version = f"Version {before}"
        rows = [
            {
                "Rows": _ROWS[c["rows"]],
                "Number": c["n_rows"],
                "Measure": measure_title(c["metric"], True),
                version: c["in_place"],
                "This model": c["new"],
                "Gain": c["gain"],
            }
            for c in content["compared"]
        ]
        caption = "Both models, on rows that neither learned from."
        kinds = {version: "measure", "This model": "measure", "Gain": "percent"}
        blocks.append(Table(rows, caption, kinds))
    return PageSection("Retraining", blocks)


def _listed(names: Sequence[str]) -> str:
    some = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    return f"{integer(len(names))}: {some}" if names else "none"


def _drift(drift: Mapping[str, Any]) -> PageSection:
    known = [q for q in _QUANTITIES if any(c[q]["shift"] is not None for c in drift["columns"])]
    rows = [
        {"Column": c["name"], **{_QUANTITIES[q]: _shift(c[q]) for q in known}}
        for c in drift["columns"]
    ]
    which = "the new partitions are"  # of a run by a distfms that pooled them
    if "sets" in drift:
        many = count(len(drift["sets"]), "new file or day", "new files or days")
        which = f"{drift['name']} is (the furthest of {many})"
    table = Table(
        rows,
        f"How far {which} from the data behind the current model, ± the {percent(drift['level'])} "
        "interval of chance. Mean: in standard deviations. Spread, and disagreement of raters: "
        "logarithm of the ratio of standard deviations. Correlation with the target: difference. "
        f"The {count(len(rows), 'column')} of {integer(drift['n_columns'])} with the largest "
        "drift.",
    )
    return PageSection("Drift by column", [table, _history(drift["history"])])


def _history(history: Mapping[str, Any]) -> Figure:
    lines = []
    for name, means in history["lines"].items():
        points = list(enumerate(means, 1))
        new = [p for p, is_new in zip(points, history["is_new"], strict=True) if is_new]
        x, y = zip(*points, strict=True)
        lines.append(Line(name, x, y, marks=[p for p in new if p[1] is not None]))
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
    keys = ("name", "change", "before", "now", "gain")
    titles = ("", "Change", f"Version {content['in_place']}", "This model", "Gain")
    rows = [
        {title: entry[key] for title, key in zip(titles, keys, strict=True)}
        for entry in content["selection"]
    ]
    caption = (
        "Differences between the current model and this one: what each selected, and the gain in "
        "the objective there; for dropped entries, the gain in the current model."
    )
    return PageSection("Changes in the selection", [Table(rows, caption, {"Gain": "measure"})])
