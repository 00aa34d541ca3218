"""Numbers that are written as text, among words for values that are missing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from distfms.errors import DataError

#: What stands where a value is missing, in lower case and without blanks around it.
GAPS = (
    "", "-", "--", ".", "..", "...", "?", "n/a", "na", "#n/a", "nan", "nil", "none", "null",
    "missing", "not available", "not known", "unknown",
)  # fmt: skip
#: A bound in place of a value, such as <5, is no value either.
_BOUND = r"^[<>≤≥]=?\s*[\d.,]+$"
_THOUSANDS = r"^[+-]?\d{1,3}(,\d{3})+(\.\d+)?$"
_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


def read_numbers(texts: Any) -> tuple[pa.Array, pa.Array]:
    """Read texts as numbers; return float64, null where there is none, and which have neither form.

    Commas between thousands are left out; `GAPS` and bounds such as ``<5`` are missing values.
    """
    plain = pc.utf8_trim_whitespace(texts.cast(pa.string()))
    grouped = pc.match_substring_regex(plain, _THOUSANDS)
    plain = pc.if_else(grouped, pc.replace_substring(plain, ",", ""), plain)
    is_number = pc.match_substring_regex(plain, _NUMBER)
    is_gap = pc.is_in(pc.utf8_lower(plain), pa.array(GAPS))
    is_gap = pc.or_(is_gap, pc.match_substring_regex(plain, _BOUND))
    numbers = pc.if_else(is_number, plain, None).cast(pa.float64())
    return numbers, pc.invert(pc.or_(is_number, is_gap)).fill_null(False)


def as_numbers(column: pa.ChunkedArray, name: str, path: str) -> pa.Array:
    """Return a column of text as numbers.

    Raises
    ------
    DataError
        If a text is neither a number nor a word for a missing value.
    """
    texts = column.combine_chunks()
    numbers, wrong = read_numbers(texts)
    if wrong.true_count:
        text = texts.filter(wrong)[0].as_py()
        raise DataError(
            f"The column {name!r} of {path} has {text!r}, which is neither a number nor a word for "
            f"a missing value: correct it, or take the column out of `data.numbers`."
        )
    return numbers
