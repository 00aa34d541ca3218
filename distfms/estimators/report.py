"""The report of an estimator as an object."""

from __future__ import annotations

import re
from html import escape, unescape
from pathlib import Path
from typing import Any


class Page(str):
    """An HTML page, which notebooks show as a page."""

    __slots__ = ()

    @property
    def text(self) -> str:
        """What the page says, without markup."""
        bare = re.sub(r"(?s)<(style|script).*?</\1>|<[^>]+>", " ", self)
        return " ".join(unescape(bare).split())

    def save(self, path: Any) -> None:
        """Write the page as a file."""
        Path(path).write_text(self, "utf-8")

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self)}" width="100%" height="640"></iframe>'
