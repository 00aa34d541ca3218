"""Load a finished run as an estimator."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

from distfms.errors import SpecError
from distfms.estimators.base import JobEstimator
from distfms.methods import METHODS
from distfms.runs.finished import Run, read_run


def load_estimator(
    run: Run,
    *,
    allow: Iterable[str] = (),
    registry: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """Load a finished run as the fitted estimator of its job.

    Parameters
    ----------
    run : str or path
        Folder of a finished run, of an estimator's `save` or of `distfms run`; or
        ``registry:NAME`` or ``registry:NAME@version``.
    allow : iterable of str, optional
        Functions, as ``module:function``, that the model may call.
    registry, storage_options : optional
        See :func:`distfms.load`.

    Returns
    -------
    An estimator, such as GroupSequencer

    Raises
    ------
    SpecError
        If there is no such run, or its method has no estimator.
    """
    files = read_run(run, storage_options, registry)
    spec = files.spec()
    method = spec["method"]
    options = dict(spec[spec["method"]])
    selection = json.loads(files.files["selection.json"])
    open_options = [name for name in ("family", "task") if options.get(name) == "auto"]
    options |= {name: selection[name] for name in open_options}
    if method in METHODS:
        with suppress(ModuleNotFoundError):
            import_module(f"distfms.estimators.{method}")
    # Classes that have subclasses are their bases.
    kinds = [k for k in JobEstimator.loaded if k._method == method and not k.__subclasses__()]
    kind = next((kind for kind in kinds if kind.fits(options)), None)
    if kind is None:
        raise SpecError(f"{run} is a run of `{method}`, which has no estimator with these options.")
    parameters = {**spec["data"], **options, "random_state": spec["seed"], "tune": spec.get("tune")}
    names = kind._get_param_names()
    estimator = kind(
        **{name: parameters[name] for name in names if parameters.get(name) is not None}
    )
    target = spec["data"]["target"]
    estimator._target = target
    estimator._class_type = None
    estimator._taken = [*target, *(spec["data"].get(k) for k in ("weight", "query", "id"))]
    estimator._excluded = spec["data"]["exclude"]
    estimator._take(files, allow)
    estimator._name_columns(estimator._known_columns())
    return estimator
