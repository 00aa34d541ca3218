"""Codes of notes, which stay the same while texts change, and what notes mean."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from importlib.resources import files


@cache
def table() -> Mapping[str, Mapping[str, str]]:
    """Return the ``pattern`` and the meaning (``means``) of each note by its code."""
    from distfms.spec import parse_yaml

    text = (files(__package__) / "notes.yaml").read_text(encoding="utf-8")
    return parse_yaml(text, "notes.yaml")


def code_of(text: str) -> str:
    """Return the code of a note; empty for one that has none."""
    for code, note in table().items():
        if re.search(note["pattern"], text):
            return code
    return ""


def coded(text: str) -> str:
    """Return a note with its code at the end."""
    code = code_of(text)
    return f"{text} ({code})" if code else text


def unmuted(texts: Iterable[str], muted: Collection[str]) -> list[str]:
    """Return each note once, without those whose codes are muted."""
    return [text for text in dict.fromkeys(texts) if not muted or code_of(text) not in muted]
