"""The command line: commands, those of models, and what they print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; see :func:`distfms.cli.commands.main`."""
    from distfms.cli.commands import main as command

    command(arguments)
