"""Files of web servers whose addresses end in a query, such as a signature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsspec.implementations.http import HTTPFileSystem


class SignedFileSystem(HTTPFileSystem):
    """Files by their addresses without a query, which is added to requests only.

    Parameters
    ----------
    queries : mapping of str to str
        Query of each address that has one.
    """

    def __init__(self, queries: Mapping[str, str], **options: Any) -> None:
        super().__init__(**options)
        self.queries = dict(queries)

    def encode_url(self, url: str) -> Any:
        """Return the address that is asked for."""
        query = self.queries.get(url)
        return super().encode_url(url if query is None else f"{url}?{query}")
