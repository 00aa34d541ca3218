"""Numbers and names as a reader wants them: ``1,000``, ``40%``, ``65 ± 2%``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

#: Stands for a value that is not there.
MISSING = "–"
_NO_BREAK = "\u00a0"


def as_number(value: Any) -> float | None:
    """Return a finite number, None for anything else; booleans are no numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def integer(value: float) -> str:
    """Write a whole number with grouped digits: ``1,090,000``."""
    return f"{round(value):,}".replace("-", "−")


def fixed(value: float, decimals: int) -> str:
    """Write a number with a fixed number of decimals, digits grouped."""
    text = f"{value:,.{decimals}f}"
    if float(text.replace(",", "")) == 0:
        text = text.removeprefix("-")
    return text.replace("-", "−")


def number(value: Any, digits: int = 4) -> str:
    """Write a number with about `digits` significant digits; what is none gives :data:`MISSING`.

    Whole numbers whole, others without trailing zeros; powers of ten below 1e-4 and from 1e9 on,
    where digits alone are hard to read.
    """
    exact = as_number(value)
    if exact is None:
        return MISSING
    if exact == 0:
        return "0"
    if not 1e-4 <= abs(exact) < 1e9:
        return _power_of_ten(exact, digits)
    if exact == round(exact):
        return integer(exact)
    magnitude = math.floor(math.log10(abs(exact)))
    decimals = max(0, digits - 1 - magnitude)
    return _without_trailing_zeros(fixed(exact, decimals))


def _power_of_ten(value: float, digits: int) -> str:
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    text = f"{_without_trailing_zeros(mantissa)}e{int(exponent)}"
    return text.replace("-", "−")


def _without_trailing_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: Any, decimals: int | None = None) -> str:
    """Write a share as a percentage: 0.713 is ``71%``.

    By default without decimals, but with one for shares within 10% of 0 or 1 where that digit
    tells something (97% stays 97%).
    """
    exact = as_number(share)
    if exact is None:
        return MISSING
    if decimals is None:
        is_near_end = 0 < abs(exact) < 0.1 or 0.9 < exact < 1
        is_whole = abs(100 * exact - round(100 * exact)) < 0.05
        decimals = 1 if is_near_end and not is_whole else 0
    return f"{fixed(100 * exact, decimals)}%"


def interval(share: Any, error: Any) -> str:
    """Write a share with its standard error, if it has one: ``65 ± 2%``.

    Both have the decimals that the error's first digit needs, at most two.
    """
    exact = as_number(share)
    spread = as_number(error)
    if exact is None or not spread or spread < 5e-5:
        return percent(share)
    magnitude = math.floor(math.log10(1.05 * spread))
    decimals = min(max(0, -2 - magnitude), 2)
    middle = fixed(100 * exact, decimals)
    half_width = fixed(100 * spread, decimals)
    return f"{middle}{_NO_BREAK}±{_NO_BREAK}{half_width}%"


def n_bytes(value: float) -> str:
    """Write a size: ``1.21 GiB``."""
    from dask.utils import format_bytes

    return str(format_bytes(value))


def seconds(value: float) -> str:
    """Write a duration: ``420.00 ms``, ``3m 20s``, ``2hr 5m``."""
    from dask.utils import format_time

    return str(format_time(value))


def count(value: Any, noun: str, plural: str | None = None) -> str:
    """Write a counted noun: ``1 file``, ``32 files``."""
    n = as_number(value)
    if n is None:
        return MISSING
    nouns = noun if n == 1 else plural or f"{noun}s"
    return f"{number(n)}{_NO_BREAK}{nouns}"


def shorten(name: str, width: int = 32) -> str:
    """Cut a long name in its middle: beginnings and ends tell names apart; line breaks go."""
    name = " ".join(name.split())
    if len(name) <= width:
        return name
    tail = (width - 1) // 3
    return f"{name[: width - 1 - tail]}…{name[len(name) - tail :]}"


#: Measures whose names are abbreviations.
_MEASURES = {
    "mse": "mean squared error",
    "mae": "mean absolute error",
    "r2": "R²",
    "error": "share of wrong classes",
    "auroc": "AUROC",
    "auprc": "AUPRC",
    "macro_f1": "macro F1",
    "ndcg": "NDCG of whole lists",
}


def measure_title(name: str, capital: bool = False) -> str:
    """Return what readers call a measure of ``metrics.json``."""
    title = name.removeprefix("n_").replace("_", " ").replace("ndcg@", "NDCG@")
    title = _MEASURES.get(name, title)
    return title[0].upper() + title[1:] if capital else title


def options_text(point: Mapping[str, Any]) -> str:
    """Write options with their values as ``ridge 0.1, criterion omp``."""
    return ", ".join(f"{name} {option_text(value)}" for name, value in point.items())


def option_text(value: Any) -> str:
    """Write the value of an option."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)
