"""Storage options of a spec: what travels, what is written down, and what is never shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from distfms.errors import SpecError
from distfms.spec import expand_variables

#: What stands in a written spec for a secret that was given in clear.
HIDDEN = "(not written down)"

_SECRET = re.compile(r"key|secret|token|passw|passphrase|credential|sas|connection_?string", re.I)

# As in http://name:password@host; the name of a variable may stand there.
_PASSWORD_IN_URL = re.compile(r"//[^/@\s]*:(?!\$\{\w+\}@)[^/@\s]+@")

#: Words that gcsfs takes for a token and that give nothing away.
_WORDS = ("anon", "cache", "cloud", "browser", "google_default")


def hidden(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return storage options as they may be written down.

    Parameters
    ----------
    options : mapping

    Returns
    -------
    dict
        With :data:`HIDDEN` for whatever looks like a secret given in clear. Names of environment
        variables, ``${NAME}``, stay.
    """
    return _map_texts(options, lambda key, text: HIDDEN if _is_secret(key, text) else text)


def expanded(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return storage options with the values of the environment variables they name.

    Raises
    ------
    SpecError
        If a variable is not set, or a secret was not written down.
    """

    def value(key: str, text: str) -> str:
        if text == HIDDEN:
            raise SpecError(
                f"The storage option `{key}` was not written down with the spec, as it was given "
                "in clear. Put it in an environment variable and write ${NAME}, or leave it out "
                "and use the provider's own configuration."
            )
        return expand_variables(text)

    return _map_texts(options, value)


def refuse_clear_secrets(options: Mapping[str, Any], where: str) -> None:
    """Refuse options that would hand a secret to whoever reads the cluster's job records.

    Raises
    ------
    SpecError
    """
    found: list[str] = []

    def look(key: str, text: str) -> str:
        if _is_secret(key, text):
            found.append(key)
        return text

    _map_texts(options, look)
    if found:
        raise SpecError(
            f"`{where}.{found[0]}` holds a secret in clear, and a submitted spec can be read on "
            "the cluster. Set an environment variable on the cluster and write ${NAME}, or leave "
            "the option out and use the provider's own configuration there."
        )


def _is_secret(key: str, text: str) -> bool:
    if _PASSWORD_IN_URL.search(text):
        return True
    plain = text in _WORDS or re.fullmatch(r"\$\{\w+\}", text) is not None
    return _SECRET.search(key) is not None and not plain


def _map_texts(
    options: Mapping[str, Any], change: Callable[[str, str], str], above: str = ""
) -> dict[str, Any]:
    """Change every text in nested options; told the keys that lead to it, joined by dots."""

    def changed(key: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return _map_texts(value, change, f"{key}.")
        if isinstance(value, list | tuple):
            return [changed(key, item) for item in value]
        return change(key, value) if isinstance(value, str) else value

    return {key: changed(f"{above}{key}", value) for key, value in options.items()}
