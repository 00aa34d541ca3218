"""Errors that a user can act on.

Each message is one paragraph that says what is wrong, where (file, column, row group, attribute)
and what to do about it. The command line prints it without a traceback and exits with
``exit_code``.
"""


class DistfmsError(Exception):
    """Base of every error that distfms raises on purpose."""

    exit_code = 1


class SpecError(DistfmsError):
    """The job spec, or the use of a command, is wrong."""

    exit_code = 2


class DataError(DistfmsError):
    """The data cannot be used as the spec asks."""

    exit_code = 2


class NumericalError(DistfmsError):
    """A computation cannot be carried out on otherwise well-formed numbers."""


class EngineError(DistfmsError):
    """Workers, clusters or storage failed while a job was running."""
