"""The methods, one folder each; :mod:`distfms.methods.frame.contract` says what a folder offers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distfms.methods.frame.contract import Method

#: Method name → where its :class:`~distfms.methods.frame.contract.Method` lives.
METHODS = {
    "multiselect": "distfms.methods.multiselect.method:METHOD",
    "sequence": "distfms.methods.sequence.method:METHOD",
    "landmarks": "distfms.methods.landmarks.method:METHOD",
    "attribute_efficient": "distfms.methods.attribute_efficient.method:METHOD",
}


def load_method(name: str) -> Method:
    """Return the method with a name, a key of ``METHODS``."""
    module, _, attribute = METHODS[name].partition(":")
    return getattr(import_module(module), attribute)
