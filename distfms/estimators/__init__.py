"""Jobs as scikit-learn estimators.

Importing scikit-learn's base classes takes a second, nearly all of it for other libraries that few
of its functions use. Here these wait until they are used.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

import numpy  # noqa: F401  (parent of what stands below)


class _Later(ModuleType):
    """Stands for a module that is imported when something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


@contextmanager
def _standing_for(*modules: ModuleType) -> Iterator[None]:
    """Let imports find these in place of modules that nobody has imported before."""
    ours = [module for module in modules if module.__name__ not in sys.modules]
    for module in ours:
        sys.modules[module.__name__] = module
        package, _, name = module.__name__.rpartition(".")
        if package in sys.modules:
            setattr(sys.modules[package], name, module)
    try:
        yield
    finally:
        for module in ours:
            if sys.modules.get(module.__name__) is module:
                del sys.modules[module.__name__]
            package, _, name = module.__name__.rpartition(".")
            if package:
                vars(import_module(package)).setdefault(name, module)


_UNUSED = ("numpy.f2py", "numpy.testing", "pandas", "scipy.stats")
with _standing_for(*map(_Later, _UNUSED)):
    import sklearn.base

# The package imports all selectors, and with them metrics and models.
if (_spec := find_spec("sklearn.feature_selection")) is not None:
    with _standing_for(module_from_spec(_spec)):
        import sklearn.feature_selection._base  # noqa: F401
