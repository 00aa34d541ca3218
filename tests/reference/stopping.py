"""Stopping row by row, literally: every policy is tried, and rows walk through it one by one."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np


def walked(goes: Any, bins: np.ndarray, row: int) -> int:
    """Return the stage at which a row stops."""
    stage = 0
    while stage < len(goes) and goes[stage][bins[stage, row]]:
        stage += 1
    return stage


def objective(
    goes: Any, bins: np.ndarray, losses: np.ndarray, weight: np.ndarray, steps: Any, price: float
) -> float:
    """Return the mean loss and price times the mean cost of a policy."""
    total = 0.0
    for row, own in enumerate(weight):
        stage = walked(goes, bins, row)
        total += own * (losses[stage, row] + price * sum(steps[:stage]))
    return float(total / weight.sum())


def best_objective(
    bins: np.ndarray, losses: np.ndarray, weight: np.ndarray, steps: Any, price: float
) -> float:
    """Return the least objective of all policies."""
    sizes = [int(own.max()) + 1 for own in bins]
    stages = [list(product((False, True), repeat=size)) for size in sizes]
    tried = product(*stages)
    return min(objective(goes, bins, losses, weight, steps, price) for goes in tried)
