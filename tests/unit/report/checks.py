"""What must hold of every page, whatever is on it."""

from __future__ import annotations

import base64
import hashlib
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from distfms.report.page import PageSection, Table

_NAMESPACE = "http://www.w3.org/2000/svg"


def check_page(html: str) -> str:
    """Check the page and return its text."""
    # The page's own script is the one there is, and the only one that a browser would run.
    own = (files("distfms.report") / "page.js").read_text().rstrip()
    html, n_scripts = html.replace(f"<script>{own}</script>", ""), html.count("<script")
    assert n_scripts == 1
    digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html
    # All tags are closed, but those that HTML leaves open.
    page = re.sub(r"<((?:meta|link)[^>]*)>", r"<\1/>", html.removeprefix("<!DOCTYPE html>"))
    root = ElementTree.fromstring(page)
    found: dict[str, list[str]] = {}
    for element in root.iter():
        for name, value in element.attrib.items():
            found.setdefault(name, []).append(value)
    ids = found["id"]
    sources = [*found.get("href", ()), *found.get("src", ())]
    assert len(ids) == len(set(ids)), "an id stands twice"
    local = [source[1:] for source in sources if source.startswith("#")]
    targets = [name for value in found.get("aria-labelledby", ()) for name in value.split()]
    assert {*local, *targets} <= {*ids}, "a reference leads nowhere"
    assert all(s.startswith(("#", "data:")) for s in sources), "asks for another file"
    bare = html.replace(f'"{_NAMESPACE}"', '""')
    assert not re.search(r"https?://|url\((?!#)|@import", bare), "asks the network"
    assert "<script" not in html
    for style in root.iter("style"):
        style.text = ""
    return plain(" ".join(" ".join(root.itertext()).split()))


def manifest() -> dict[str, Any]:
    """Content of a manifest.json."""
    return {
        "distfms": "0.1.0",
        "created": "2026-01-02T03:04:05Z",
        "spec_name": "demo",
        "inputs": [
            {"path": f"part-{i}.parquet", "n_rows": 500, "n_bytes": 2**20, "fingerprint": "ab" * 32}
            for i in range(3)
        ],
        "n_partitions": 6,
        "n_rows": 1500,
        "n_bytes": 3 * 2**20,
        "seed": 7,
        "method": "demo",
        "identity": "cd" * 32,
        "packages": {"scipy": "1.2.3", "numpy": "2.0.1"},
        "stages": [
            {"name": "statistics", "seconds": 2.5, "n_read": 4, "n_cached": 2, "files": {"s": "x"}},
            {"name": "selection", "seconds": 0.25, "n_read": 1, "files": {"selection.json": "y"}},
        ],
        "objects": {"train": 1200, "test": 300},
        "judgments": {"total": 1_090_422, "used": {"calm": 3, "kind": 4}},
        "dropped": {"rows_without_label": 3},
        "notes": ["One thing.", "One thing."],
    }


def plain(text: str) -> str:
    """Return the text with usual spaces."""
    return text.replace("\u00a0", " ").replace("\u202f", " ")


def tables(sections: Iterable[PageSection]) -> dict[str, Table]:
    """Tables by the first letters of their captions."""
    blocks = (block for section in sections for block in section.blocks)
    return {block.caption[:10]: block for block in blocks if isinstance(block, Table)}
