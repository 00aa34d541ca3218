"""Secrets in storage options and URLs: what may be shown, and what stands in place of the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

#: What is shown and written down in place of something that may be a secret.
HIDDEN = "(not written down)"

#: Names of storage options whose values give nothing away; those of all others are hidden.
_HARMLESS = re.compile(
    "access|account_host|account_name|addressing_style|anon|block_size|cache_regions|consistency|"
    "connect_timeout|default_block_size|default_cache_type|default_fill_cache|endpoint|"
    "endpoint_url|host|hosts|location|max_attempts|max_concurrency|max_pool_connections|mode|port|"
    "profile|project|protocol|read_timeout|region|region_name|replication|requester_pays|"
    "signature_version|timeout|total_max_attempts|use_listings_cache|use_ssl|verify|version_aware"
)

#: Words that gcsfs takes for a token and that give nothing away.
_WORDS = ("anon", "cache", "cloud", "browser", "google_default")

#: Control characters but for line feed and tab, changes of direction, halves of characters.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

_VARIABLE = r"\$\{\w+\}"
_URL = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]+:/+)([^\s/'\"]*)([^\s'\"]*)")
# A question mark may also stand in a glob.
_QUERY = re.compile(r"[?#](?!versionId=)[^/=]+=.*")
# Not what is hidden already.
_WEB_QUERY = re.compile(r"[?#](?!\(not).+")


def printable(text: str) -> str:
    """Return a text whose control characters are written out, so that no terminal obeys them."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def hidden_in_urls(text: str) -> str:
    """Return a text without the users, passwords and queries of its URLs.

    Names of environment variables, ``${NAME}``, stay.
    """
    return _URL.sub(_hidden_in_url, text)


def _hidden_in_url(found: re.Match[str]) -> str:
    scheme, server, path = found.groups()
    web = scheme.lower().startswith("http")
    user, at, host = server.rpartition("@")
    password = user.partition(":")[2]
    if (password or (web and user)) and not re.fullmatch(_VARIABLE, password or user):
        server = f"{HIDDEN}{at}{host}"
    end = path[len(path.rstrip(".,:;)")) :]  # of the sentence
    path = path.removesuffix(end)
    query = (_WEB_QUERY if web else _QUERY).search(path)
    if query and not re.fullmatch(rf"[?#]([\w-]+=)?{_VARIABLE}", query[0]):
        path = f"{path[: query.start()]}{query[0][0]}{HIDDEN}"
    return f"{scheme}{server}{path}{end}"


def hidden(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return storage options as they may be written down.

    Returns
    -------
    dict
        With :data:`HIDDEN` for every value that is not known to be harmless. Names of environment
        variables, ``${NAME}``, stay.
    """
    return {key: _shown(key, value) for key, value in options.items()}


def _shown(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return hidden(value)
    if isinstance(value, list | tuple):
        return [_shown(key, item) for item in value]
    return HIDDEN if _is_secret(key, value) else value


def _is_secret(key: str, value: Any) -> bool:
    text = str(value)
    if value is None or isinstance(value, bool) or re.fullmatch(_VARIABLE, text):
        return False
    if key == "token" and text in _WORDS:
        return False
    if not _HARMLESS.fullmatch(str(key)) or hidden_in_urls(text) != text:
        return True
    return "@" in text and "//" not in text


def secrets_of(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the names, with the names above them, and texts of the values that `hidden` hides."""
    for key, value in options.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}.{below}", text) for below, text in secrets_of(value))
        else:
            items = value if isinstance(value, list | tuple) else [value]
            yield from ((key, str(item)) for item in items if _is_secret(key, item))
