"""What a judgment of each attribute costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import numpy as np

from distfms.errors import SpecError, nearest

Costs = float | Sequence[float] | np.ndarray | Mapping[str, float]


def resolve_costs(costs: Costs, names: Sequence[str]) -> np.ndarray:
    """Give every attribute its cost of one judgment.

    Parameters
    ----------
    costs : float, sequence of length d, or mapping
        One cost for all; one per attribute; or name → cost. A key may be a glob (``"bp_*"``); an
        exact name goes first, then the first glob that matches, then ``default`` (1 if absent).
    names : sequence of str, length d

    Returns
    -------
    ndarray of shape (d,)

    Raises
    ------
    SpecError
        A cost is not a positive finite number, names an unknown attribute, or the number of
        costs is not d.
    """
    if isinstance(costs, Mapping):
        values = _named_costs(costs, names)
    else:
        values = np.asarray(costs, dtype=float)
        values = np.full(len(names), float(values)) if values.ndim == 0 else values.copy()
    if values.shape != (len(names),):
        raise SpecError(f"There are {len(names)} attributes but {values.size} costs.")
    bad = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
    if bad.size:
        raise SpecError(
            f"The cost of attribute {names[bad[0]]!r} is {values[bad[0]]}; costs must be positive "
            f"finite numbers."
        )
    return values


def _named_costs(costs: Mapping[str, float], names: Sequence[str]) -> np.ndarray:
    patterns = [key for key in costs if key != "default"]
    for pattern in patterns:
        if not any(pattern == name or fnmatchcase(name, pattern) for name in names):
            raise SpecError(
                f"`costs` names {pattern!r}, which no attribute of the data matches."
                f"{nearest(pattern, names)}"
            )
    values = np.full(len(names), costs.get("default", 1.0), dtype=float)
    for i, name in enumerate(names):
        matching = [p for p in patterns if fnmatchcase(name, p)]
        if matching or name in costs:
            values[i] = costs[name] if name in costs else costs[matching[0]]
    return values
