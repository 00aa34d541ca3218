"""Numbers and times that are written as text, among words for values that are missing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from distfms.errors import DataError

#: What stands where a value is missing, in lower case and without blanks around it.
GAPS = (
    "", "-", "--", ".", "..", "...", "?", "n/a", "na", "#n/a", "nan", "nil", "none", "null",
    "missing", "not available", "not known", "unknown",
)  # fmt: skip
#: What makes a number a bound, such as <5, which stands where a value is beyond what is measured.
_BOUND = r"^([<>≤≥]=?)\s*"
#: Blanks between thousands, or between a number and its unit.
_BLANKS = "[ \u00a0\u2009\u202f]"
_UNIT = r"(?:\p{Sc}|%|‰|[A-Z]{2}\p{Sc}|USD|EUR|GBP|CHF|JPY|CNY|INR|SEK|NOK|DKK|PLN|CZK|HUF|kr\.?)"
#: A number before which and in which there are no marks but that of decimals.
_PLAIN = r"^[+-]?\d*[.,]?\d*([eE][+-]?\d+)?$"
#: Parts of the forms of times.
_TIME_PARTS = {
    "%d": r"(?P<day>\d{1,2})",
    "%m": r"\d{1,2}",
    "%Y": r"\d{4}",
    "%b": r"\pL+",
    "%H": r"\d{1,2}",
    "%M": r"\d{2}",
    "%S": r"\d{2}",
}


@dataclass(frozen=True)
class NumberForm:
    """How the numbers of a column are written: with a decimal mark, and each with one unit.

    A bound such as ``<5`` counts as 5.
    """

    decimal: str = "."
    unit: str = ""


@dataclass(frozen=True)
class NumberTexts:
    """What texts say as numbers.

    `decimals` are the marks with which all those that are numbers can be read, the point first;
    `marks` are the points and commas that occur, `is_plain` is whether there are no others and no
    `unit`; `has_codes` is whether some begin with a zero that a number would lose. Other texts are
    `GAPS`, or odd. `n_bounds` of the numbers are bounds, and `bound` is the first of them.
    """

    decimals: str
    marks: str
    unit: str
    is_plain: bool
    has_codes: bool
    n_numbers: int
    n_gaps: int
    n_odd: int
    n_bounds: int = 0
    bound: str = ""

    @classmethod
    def of(cls, texts: Any) -> NumberTexts:
        """Look at texts."""
        written = trimmed(texts)
        plain = _without_bounds(written)
        parsed = {decimal: _parts(plain, decimal) for decimal in ".,"}
        is_number = pc.or_(*(parts.is_valid() for parts in parsed.values()))
        n_numbers = is_number.true_count
        numbers = plain.filter(is_number)
        units = {decimal: _units(parts) for decimal, parts in parsed.items()}
        fits = [
            decimal
            for decimal, parts in parsed.items()
            if parts.is_valid().true_count == n_numbers and len(units[decimal]) == 1
        ]
        marks = [mark for mark in ".," if pc.any(pc.match_substring(numbers, mark)).as_py()]
        is_plain = pc.all(pc.match_substring_regex(numbers, _PLAIN)).as_py()
        has_codes = pc.any(pc.match_substring_regex(plain, r"^0\d+$")).as_py()
        unit = units[fits[0]][0] if fits else ""
        n_gaps = _is_gap(plain).true_count
        n_odd = len(plain) - plain.null_count - n_numbers - n_gaps
        bounds = written.filter(pc.and_(is_number, pc.match_substring_regex(written, _BOUND)))
        return cls(
            decimals="".join(fits),
            marks="".join(marks),
            unit=unit,
            is_plain=bool(is_plain) and not len(bounds),
            has_codes=bool(has_codes),
            n_numbers=n_numbers,
            n_gaps=n_gaps,
            n_odd=n_odd,
            n_bounds=len(bounds),
            bound=bounds[0].as_py() if len(bounds) else "",
        )

    @property
    def form(self) -> NumberForm:
        """The form of numbers where nothing else tells their decimal mark."""
        return NumberForm(self.decimals[:1] or ".", self.unit)


#: Share of numbers among values that are text by mistake rather than on purpose.
_MOSTLY = 0.9


def nearly_numbers(name: str, texts: pa.Array) -> str:
    """Return what users should know of a column of text whose values are mostly numbers.

    Empty where they are not, or are codes.
    """
    plain = trimmed(texts).drop_null()
    numbers = NumberTexts.of(plain)
    n = len(plain)
    n_values = numbers.n_numbers - numbers.n_bounds
    if not n or numbers.has_codes or n_values < _MOSTLY * n or n_values < 2:
        return ""
    is_number = pc.or_(*(_parts(plain, decimal).is_valid() for decimal in ".,"))
    odd = plain.filter(pc.invert(is_number))
    counted = f"{n_values:,} of {n:,} values of `{name}` are numbers"
    if len(odd):
        counted += f"; `{odd[0]}` is not"
    elif not numbers.decimals:
        counted += ", but not all with one decimal mark and unit"
    n_different = len(pc.unique(plain))
    remedy = f"set `data.numbers: [{name}]` to read them"
    if numbers.n_gaps:
        remedy += ", with such words for missing values"
    if numbers.bound:
        remedy += f", where `{numbers.bound}` counts as its bound"
    if numbers.n_odd or not numbers.decimals:
        remedy = f"correct the others, and {remedy}"
    return (
        f"{counted}. It is read as text with {n_different:,} different values: {remedy}, or "
        f"`data.text: [{name}]` if they are names."
    )


def trimmed(texts: Any) -> pa.Array:
    """Return texts without blanks around them, and with one sign for minus."""
    plain = pc.utf8_trim_whitespace(texts.cast(pa.string()))
    return pc.replace_substring(plain, "−", "-")


def read_numbers(texts: Any, form: NumberForm | None = None) -> tuple[pa.Array, pa.Array]:
    """Read texts as numbers; return float64, null where there is none, and which have neither form.

    Marks between thousands (``1.234,5``, ``1 234``, ``1'234``) are left out, and a unit that goes
    with every number (``$``, ``%``, ``EUR``); `GAPS` are missing values, and bounds such as ``<5``
    count as 5. The default form is the one that the texts have.
    """
    plain = trimmed(texts)
    form = form or NumberTexts.of(plain).form
    numbers = numbers_of(_without_bounds(plain), form)
    is_read = pc.or_(numbers.is_valid(), _is_gap(plain))
    wrong = pc.invert(is_read).fill_null(False)
    return numbers, wrong


def _without_bounds(plain: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(plain, _BOUND, "")


def _is_gap(plain: pa.Array) -> pa.Array:
    return pc.is_in(pc.utf8_lower(plain), pa.array(GAPS))


def numbers_of(plain: pa.Array, form: NumberForm) -> pa.Array:
    """Return trimmed texts of a form as float64, null where they have another."""
    parts = _parts(plain, form.decimal)
    unit = pc.binary_join_element_wise(parts.field("before"), parts.field("after"), "")
    digits = pc.replace_substring_regex(parts.field("number"), rf"[^\d{form.decimal}eE+-]", "")
    digits = pc.replace_substring(digits, form.decimal, ".")
    signs = [parts.field("sign"), parts.field("sign_within")]
    digits = pc.binary_join_element_wise(*signs, digits, "")
    has_form = pc.and_(parts.is_valid(), pc.equal(unit, form.unit))
    return pc.if_else(has_form, digits, None).cast(pa.float64())


def _parts(plain: pa.Array, decimal: str) -> pa.Array:
    """Split numbers with a decimal mark into sign, unit and digits; null for all else."""
    return pc.extract_regex(plain, _number_pattern(decimal))


@cache
def _number_pattern(decimal: str) -> str:
    mark, thousands = (r"\.", ",") if decimal == "." else (",", r"\.")
    groups = "|".join(rf"(?:{between}\d{{3}})+" for between in (thousands, _BLANKS, "['’]"))
    whole = rf"(?:\d+|[1-9]\d{{0,2}}(?:{groups}))"
    number = rf"(?:{whole}(?:{mark}\d*)?|{mark}\d+)(?:[eE][+-]?\d+)?"
    before = rf"(?P<sign>[+-]?)(?P<before>{_UNIT}?){_BLANKS}?(?P<sign_within>[+-]?)"
    return rf"^{before}(?P<number>{number}){_BLANKS}?(?P<after>{_UNIT}?)$"


def _units(parts: pa.Array) -> list[str]:
    """Return the different units of numbers."""
    numbers = parts.filter(parts.is_valid())
    units = pc.binary_join_element_wise(numbers.field("before"), numbers.field("after"), "")
    different: list[str] = pc.unique(units).to_pylist()
    return different


def as_numbers(column: pa.ChunkedArray, name: str, path: str, form: NumberForm) -> pa.Array:
    """Return a column of text as numbers.

    Raises
    ------
    DataError
        If a text is neither a number nor a word for a missing value.
    """
    texts = column.combine_chunks()
    numbers, wrong = read_numbers(texts, form)
    if wrong.true_count:
        text = texts.filter(wrong)[0].as_py()
        of_form = f"with decimal {'commas' if form.decimal == ',' else 'points'}"
        of_form += f" and the unit {form.unit}" if form.unit else ""
        raise DataError(
            f"The column {name!r} of {path} has {text!r}, which is neither a number {of_form}, as "
            "in the rows before, nor a word for a missing value: correct it, or remove the "
            "column from `data.numbers`."
        )
    return numbers


def read_times(texts: Any, form: str) -> pa.Array:
    """Read texts as times of a form, as of ``strptime``; null where they have another."""
    pattern = re.sub("%.", lambda part: _TIME_PARTS[part[0]], re.escape(form).replace(r"\ ", " "))
    parts = pc.extract_regex(texts, f"^{pattern}$")
    times = pc.strptime(texts, format=form, unit="s", error_is_null=True)
    # Arrow takes 30 February for 1 March, and the year 24 for that after Christ.
    day = pc.if_else(parts.is_valid(), parts.field("day"), None).cast(pa.int64())
    return pc.if_else(pc.equal(pc.day(times), day), times, None)
