"""What may be a secret in URLs and storage options.

A spec names secrets by environment variables, ``${NAME}``, which are looked up where storage is
opened; so nothing that is written down holds one. Messages of other libraries may still quote URLs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

#: Names of storage options whose values give nothing away.
_HARMLESS = re.compile(
    "access|account_host|account_name|addressing_style|anon|block_size|cache_regions|consistency|"
    "connect_timeout|default_block_size|default_cache_type|default_fill_cache|endpoint|"
    "endpoint_url|host|hosts|location|max_attempts|max_concurrency|max_pool_connections|mode|port|"
    "profile|project|protocol|read_timeout|region|region_name|replication|requester_pays|"
    "signature_version|timeout|total_max_attempts|use_listings_cache|use_ssl|verify|version_aware"
)

#: Words that gcsfs takes for a token and that give nothing away.
_WORDS = ("anon", "cache", "cloud", "browser", "google_default")

_VARIABLE = re.compile(r"((Bearer|Basic|Token) +)?\$\{\w+\}", re.IGNORECASE)

#: Parameters of a URL that give nothing away.
_PARAMETER = re.compile(r"(alt|dl|download|export|format|raw|version|versionId)=[\w.-]*")

_USER = re.compile(
    r"\b([\w+.-]+:/+)[^\s/'\"@:]*:[^\s/'\"@]+@|\b(https?:/+)[^\s/'\"@]+@", re.IGNORECASE
)
_QUERY_END = r"[^\s'\"]*[^\s'\".,:;)]"
# A question mark may also stand in a glob of other URLs.
_QUERY = re.compile(
    rf"\b(https?:/+[^\s'\"?#;]+)[?#;]{_QUERY_END}"
    rf"|\b([\w+.-]+:/+[^\s'\"?#;]+)[?#;](?!versionId=)[^\s'\"/=]+={_QUERY_END}",
    re.IGNORECASE,
)


def without_credentials(text: str) -> str:
    """Return a text without the passwords, tokens and queries of the URLs in it."""
    for pattern in (_USER, _QUERY):
        text = pattern.sub(lambda match: match[1] or match[2], text)
    return text


def holds_credentials(url: str) -> bool:
    """Whether a URL, as a spec has it, may hold a secret that no variable stands for."""
    url = re.sub(r"\$\{\w+\}", "", url)
    parameters = re.split(r"[&;#]", url.partition("?")[2])
    harmless = all(
        not parameter or parameter.endswith("=") or _PARAMETER.fullmatch(parameter)
        for parameter in parameters
    )
    if harmless:
        url = url.partition("?")[0]
    return without_credentials(url) != url


def secrets_of(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the dotted name and the text of each storage option that may be a secret."""
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}.{below}", text) for below, text in secrets_of(value))
            continue
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, Mapping):
                yield from secrets_of({key: item})
            elif _may_be_secret(str(key), item):
                yield str(key), str(item)


def _may_be_secret(key: str, value: Any) -> bool:
    text = str(value)
    if value is None or isinstance(value, bool) or _VARIABLE.fullmatch(text):
        return False
    if key == "token" and text in _WORDS:
        return False
    if not _HARMLESS.fullmatch(key) or holds_credentials(text):
        return True
    return "@" in text and "//" not in text
