"""What must hold of every page, whatever is on it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html.parser import HTMLParser
from typing import Any

from distfms.report.page import Section, Table

_NAMESPACES = ("http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink")
_VOID = {"meta", "link", "br", "path", "use", "rect", "input"}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.sources: list[str] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._attributes(tag, dict(attrs))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._attributes(tag, dict(attrs))

    def _attributes(self, tag: str, attrs: dict[str, str | None]) -> None:
        self.tags.append(tag)
        if attrs.get("id"):
            self.ids.append(attrs["id"] or "")
        for name in ("href", "xlink:href", "src"):
            if attrs.get(name):
                self.sources.append(attrs[name] or "")
        self.targets += (attrs.get("aria-labelledby") or "").split()
        for value in attrs.values():
            self.targets += re.findall(r"url\(#([^)]+)\)", value or "")

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style",):
            self.text.append(data)


def check_page(html: str) -> str:
    """Check the page and return its text."""
    reader = _Reader()
    reader.feed(html)
    assert reader.open == [], "a tag is left open"
    assert len(reader.ids) == len(set(reader.ids)), "an id stands twice"
    local = [s[1:] for s in reader.sources if s.startswith("#")]
    assert set(local) | set(reader.targets) <= set(reader.ids), "a reference leads nowhere"
    assert all(s.startswith(("#", "data:")) for s in reader.sources), "asks for another file"
    bare = html
    for namespace in _NAMESPACES:
        bare = bare.replace(f'"{namespace}"', '""')
    assert not re.search(r"https?://|url\((?!#)|@import", bare), "asks the network"
    assert "script" not in reader.tags
    return " ".join(" ".join(reader.text).replace("\u00a0", " ").replace("\u202f", " ").split())


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


def tables(sections: Iterable[Section]) -> dict[str, Table]:
    """Tables by the first letters of their captions."""
    blocks = (block for section in sections for block in section.blocks)
    return {block.caption[:10]: block for block in blocks if isinstance(block, Table)}
