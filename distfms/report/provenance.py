"""Sections that every report ends with: what was read, how to make it again.

They are made from the manifest of the run alone and take whatever keys it has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from distfms.report.content import as_entries, as_mapping, as_number
from distfms.report.formatting import count, integer, n_bytes
from distfms.report.page import Block, Code, Column, KeyValues, Page, Section, Table, Text

_FILES_SHOWN = 200
_FINGERPRINT = 16


def build_page(
    headline: str, sections: Sequence[Section], manifest: Mapping[str, Any], subtitle: str = ""
) -> Page:
    """Put a method's sections and the common ones on a page.

    Parameters
    ----------
    headline : str
        The answer in one sentence.
    sections : sequence of Section
        What the method's ``figures.sections`` returned, provenance included.
    manifest : mapping
        Content of ``manifest.json``.
    subtitle : str, default=""
        The method in words; the date of the run is added where the manifest has it.

    Returns
    -------
    Page
    """
    created = str(manifest.get("created") or "")
    when = f"run of {created.replace('T', ' ').removesuffix('Z')} UTC" if created else ""
    version = manifest.get("distfms")
    made = f"Made by distfms {version}" if version else "Made by distfms"
    return Page(
        str(manifest.get("spec_name") or "report"),
        " · ".join(part for part in (subtitle, when) if part),
        headline=headline,
        sections=sections,
        footer=f"{made} from the JSON files of the run folder, which hold all numbers unrounded.",
    )


def notes(manifest: Mapping[str, Any], others: Sequence[str] = ()) -> list[Text]:
    """Return what the run has to say to its reader, set off from the text.

    Parameters
    ----------
    manifest : mapping
    others : sequence of str
        Notes from elsewhere; those said twice are said once.
    """
    said = dict.fromkeys(str(n) for n in [*(manifest.get("notes") or ()), *others] if n)
    return [Text("\n\n".join(said), tone="note")] if said else []


def provenance_sections(manifest: Mapping[str, Any]) -> list[Section]:
    """Return the sections "What was read" and "How to reproduce".

    Parameters
    ----------
    manifest : mapping
        Content of ``manifest.json``. Keys that are not there leave out their line.

    Returns
    -------
    list of Section
    """
    return [_read_section(manifest), _reproduce_section(manifest)]


def _read_section(manifest: Mapping[str, Any]) -> Section:
    inputs = as_entries(manifest.get("inputs"))
    facts = {
        "Files": integer(len(inputs)) if inputs else None,
        "Rows": _whole(manifest.get("n_rows")),
        "Size": _size(manifest, inputs),
        "Partitions": _whole(manifest.get("n_partitions")),
        "Partial statistics": _computed(manifest),
        **_described("Objects", manifest.get("objects")),
        **_described("Judgments", manifest.get("judgments")),
        **_described("Left out", manifest.get("dropped")),
    }
    blocks: list[Block] = [KeyValues({k: v for k, v in facts.items() if v is not None})]
    if inputs:
        blocks.append(_input_table(inputs))
    return Section("What was read", blocks)


def _input_table(inputs: Sequence[Mapping[str, Any]]) -> Table:
    shown = inputs[:_FILES_SHOWN]
    more = f" The first {_FILES_SHOWN} of {integer(len(inputs))}; all are in manifest.json."
    return Table(
        [Column("File", "text"), "Rows", Column("Size", "bytes"), Column("Fingerprint", "text")],
        [
            [
                str(entry.get("path", "")),
                as_number(entry.get("n_rows")),
                entry.get("n_bytes"),
                str(entry.get("fingerprint", ""))[:_FINGERPRINT],
            ]
            for entry in shown
        ],
        "Input files. The fingerprint changes when a file does; a later run with the same "
        "fingerprints reads nothing twice." + (more if len(inputs) > len(shown) else ""),
    )


def _reproduce_section(manifest: Mapping[str, Any]) -> Section:
    facts = {
        "Job": manifest.get("spec_name"),
        "Method": manifest.get("method"),
        "Seed": _whole(manifest.get("seed")),
        "Run": manifest.get("created"),
        "Identity": manifest.get("identity"),
    }
    blocks: list[Block] = [
        Text(
            "The run folder holds the resolved job spec. The same spec on the same data gives the "
            "same numbers, on any engine and with any number of workers; relative paths in it "
            "start at the folder the command is called in."
        ),
        Code(
            "distfms run RUN_FOLDER/spec.yaml\ndistfms report RUN_FOLDER      # redraws this page"
        ),
        KeyValues({k: str(v) for k, v in facts.items() if v is not None}),
    ]
    versions = _versions(manifest)
    if versions:
        blocks.append(
            Table([Column("Package", "text"), Column("Version", "text")], versions, "Versions.")
        )
    stages = as_entries(manifest.get("stages"))
    if stages:
        blocks.append(_stage_table(stages))
    return Section("How to reproduce", blocks)


def _versions(manifest: Mapping[str, Any]) -> list[list[str]]:
    packages = as_mapping(manifest.get("packages"))
    own = [["distfms", str(manifest["distfms"])]] if manifest.get("distfms") else []
    return own + [[str(k), str(packages[k])] for k in sorted(packages) if k != "distfms"]


def _stage_table(stages: Sequence[Mapping[str, Any]]) -> Table:
    return Table(
        [Column("Stage", "text"), Column("Time", "seconds"), Column("Wrote", "text")],
        [
            [
                str(entry.get("name", "")),
                entry.get("seconds"),
                ", ".join(str(name) for name in entry.get("files") or ()),
            ]
            for entry in stages
        ],
        "Stages of the run and the files they wrote, in order.",
    )


def _whole(value: Any) -> str | None:
    found = as_number(value)
    return None if found is None else integer(found)


def _size(manifest: Mapping[str, Any], inputs: Sequence[Mapping[str, Any]]) -> str | None:
    sizes = [as_number(entry.get("n_bytes")) for entry in inputs]
    total = as_number(manifest.get("n_bytes"))
    if total is None and any(size is not None for size in sizes):
        total = sum(size for size in sizes if size is not None)
    return None if total is None else n_bytes(total)


def _computed(manifest: Mapping[str, Any]) -> str | None:
    """Say how many partials were computed, and how many taken from the cache."""
    counts = {name: _total(manifest, name) for name in ("n_read", "n_cached")}
    if counts["n_read"] is None and counts["n_cached"] is None:
        return None
    read, cached = counts["n_read"] or 0, counts["n_cached"] or 0
    return f"{integer(read)} computed from the data, {integer(cached)} taken from the cache"


def _total(manifest: Mapping[str, Any], name: str) -> float | None:
    """Look a count up in the manifest, or add it up over the stages."""
    whole = as_number(manifest.get(name))
    if whole is not None:
        return whole
    stages = as_entries(manifest.get("stages"))
    found = [value for s in stages if (value := as_number(s.get(name))) is not None]
    return sum(found) if found else None


def _described(label: str, value: Any) -> dict[str, str | None]:
    """Facts of an entry that is a count, a mapping of counts, or something else."""
    if value is None or value == {} or value == []:
        return {}
    if not isinstance(value, Mapping):
        return {label: _whole(value) or str(value)}
    facts: dict[str, str | None] = {}
    for key, entry in value.items():
        words = str(key).replace("_", " ")
        name = label if key == "total" else f"{label}, {words}"
        facts[name] = _whole(entry) or _summed(entry)
    return facts


def _summed(entry: Any) -> str:
    """Add up the counts of a nested entry; what holds none is written as JSON."""
    counts = [n for value in as_mapping(entry).values() if (n := as_number(value)) is not None]
    if counts:
        return f"{integer(sum(counts))} in {count(len(counts), 'entry', 'entries')}"
    is_nested = isinstance(entry, Mapping | list)
    return json.dumps(entry, sort_keys=True) if is_nested else str(entry)
