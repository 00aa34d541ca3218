"""Storage options and URLs of a spec, as they are used: with the variables that they name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from distfms.errors import SpecError
from distfms.hidden import HIDDEN, hidden_in_urls, secrets_of
from distfms.spec import expand_variables


def expanded(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return storage options with the values of the environment variables they name."""
    return {key: _expanded(str(key), value) for key, value in options.items()}


def _expanded(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {inner: _expanded(f"{key}.{inner}", item) for inner, item in value.items()}
    if isinstance(value, list | tuple):
        return [_expanded(key, item) for item in value]
    if isinstance(value, str) and HIDDEN in value:
        raise SpecError(
            f"The storage option `{key}` was left out of the saved spec because it was given in "
            "clear text. Put it in an environment variable and write ${NAME}, or leave it out "
            "and use the provider's own configuration."
        )
    return expand_variables(value) if isinstance(value, str) else value


def refuse_clear_secrets(options: Mapping[str, Any], urls: Iterable[str], where: str) -> None:
    """Refuse what would hand a secret to whoever reads the cluster's job records.

    ``where`` is the section that holds the options and URLs.
    """
    found = [f"storage_options.{key}" for key, _ in secrets_of(options)]
    found += ["path" for url in urls if hidden_in_urls(url) != url]
    if found:
        raise SpecError(
            f"`{where}.{found[0]}` may hold a secret in clear text, and a submitted spec can be "
            "read on the cluster. Set an environment variable on the cluster and write "
            "${NAME}, or leave the option out and use the provider's own configuration there."
        )
