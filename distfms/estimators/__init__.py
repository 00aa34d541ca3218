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

import numpy


class _Later(ModuleType):
    """Stands for a module that is imported when something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


@contextmanager
def _standing_for(*modules: ModuleType) -> Iterator[None]:
    """Let imports find these in place of modules that nobody has imported before."""
    ours = {m.__name__: m for m in modules if m.__name__ not in sys.modules}
    sys.modules.update(ours)
    try:
        yield
    finally:
        for name in [name for name, m in ours.items() if sys.modules.get(name) is m]:
            del sys.modules[name]


# scipy imports all that numpy has.
vars(numpy).setdefault("f2py", _Later("numpy.f2py"))
vars(numpy).setdefault("testing", _Later("numpy.testing"))
with _standing_for(_Later("pandas"), _Later("scipy.stats")):
    import sklearn.base
# The package imports all selectors, and with them metrics and models.
with _standing_for(module_from_spec(find_spec("sklearn.feature_selection"))):  # type: ignore[arg-type]
    import sklearn.feature_selection._base  # noqa: F401
