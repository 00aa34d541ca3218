"""What every report has: its page, and at the end what was read and how to make it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distfms.report.formatting import count, integer, n_bytes
from distfms.report.page import Block, Code, KeyValues, Page, Section, Table, Text

_FILES_SHOWN = 200
_FINGERPRINT = 16
#: What a run accounts for in its manifest, as the page calls it.
_ACCOUNTS = {"objects": "Objects", "judgments": "Judgments", "dropped": "Left out"}


def build_page(
    headline: str, sections: Sequence[Section], manifest: Mapping[str, Any], subtitle: str
) -> Page:
    """Put a method's sections, but those without blocks, and the common ones on a page."""
    when = manifest["created"].replace("T", " ").removesuffix("Z")
    return Page(
        manifest["spec_name"],
        f"{subtitle} · run of {when} UTC",
        headline=headline,
        sections=[
            *(section for section in sections if section.blocks),
            _read_section(manifest),
            _reproduce_section(manifest),
        ],
        footer=f"Made by distfms {manifest['distfms']} from the JSON files of the run folder, "
        "which hold all numbers unrounded.",
    )


def notes(manifest: Mapping[str, Any], others: Sequence[str] = ()) -> list[Text]:
    """Return what the run has to say to its reader, set off from the text, each note once."""
    said = dict.fromkeys([*manifest["notes"], *others])
    return [Text("\n\n".join(said), tone="note")] if said else []


def _read_section(manifest: Mapping[str, Any]) -> Section:
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
    return Section("What was read", [KeyValues(facts), _input_table(manifest["inputs"])])


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
    more = f" The first {_FILES_SHOWN} of {integer(len(inputs))}; all are in manifest.json."
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


def _reproduce_section(manifest: Mapping[str, Any]) -> Section:
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
    return Section("How to reproduce", blocks)
