"""distfms decides what is worth measuring, in which order and how often.

The public names are loaded when first used, so that importing the package loads neither Ray nor
Dask.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from typing import Any

if sys.platform == "win32":
    raise ImportError(
        "distfms needs the file locks and signals of Linux or macOS. On Windows, use WSL."
    )

__version__ = "0.2.0"

_PUBLIC = {
    "FeatureMultiSelector": "distfms.estimators.multiselect",
    "GroupSequencer": "distfms.estimators.sequence",
    "GroupSequenceClassifier": "distfms.estimators.sequence",
    "LandmarkRegressor": "distfms.estimators.landmarks",
    "LandmarkClassifier": "distfms.estimators.landmarks",
    "LandmarkOrdinalRegressor": "distfms.estimators.landmarks",
    "LandmarkRanker": "distfms.estimators.landmarks",
    "AttributeEfficientRidge": "distfms.estimators.attribute_efficient",
    "AttributeEfficientLasso": "distfms.estimators.attribute_efficient",
    "computing_on": "distfms.engine",
    "load": "distfms.runs.serve",
    "load_estimator": "distfms.estimators.load",
    "DistfmsError": "distfms.errors",
    "SpecError": "distfms.errors",
    "DataError": "distfms.errors",
    "NumericalError": "distfms.errors",
    "EngineError": "distfms.errors",
}

__all__ = [*_PUBLIC, "__version__"]


def __getattr__(name: str) -> Any:
    """Load a public name (PEP 562)."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'distfms' has no attribute {name!r}")
    # Imports make many objects that stay: to look through them again and again takes 0.3 s.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return getattr(import_module(_PUBLIC[name]), name)
    finally:
        if collecting:
            gc.enable()


def __dir__() -> list[str]:
    return sorted(__all__)
