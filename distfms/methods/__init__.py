"""The methods, one folder each; see :mod:`distfms.methods.contract` for what a folder offers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distfms.methods.contract import Job

#: Method name → where its job class lives.
METHODS = {
    "multiselect": "distfms.methods.multiselect.job:MultiselectJob",
    "sequence": "distfms.methods.sequence.job:SequenceJob",
}


def method_job(name: str) -> type[Job]:
    """Job class of a method.

    Parameters
    ----------
    name : str
        A key of ``METHODS``.
    """
    module, _, attribute = METHODS[name].partition(":")
    return getattr(import_module(module), attribute)
