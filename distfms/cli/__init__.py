"""The command line: commands, those of models, what they print, and the entry of a cluster.

Nothing is imported before a command is run, so that :mod:`distfms.cli.entry` can say what a cluster
lacks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; see :func:`distfms.cli.commands.main`."""
    from distfms.cli.commands import main as command

    command(arguments)
