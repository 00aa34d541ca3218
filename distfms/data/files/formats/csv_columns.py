"""Columns of CSV: what the texts of a file can be read as, and what they are in all files.

A column is of the narrowest type that all values of all files have: whole numbers, numbers, times
of one form, true and false, or else text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
from pydantic import TypeAdapter

from distfms.data.files.formats.base import Forms
from distfms.data.files.texts import NumberForm, NumberTexts, read_times

#: Texts that are missing values.
NULLS = pv.ConvertOptions().null_values
#: What may be a missing value, or a name: of a country, or of a region.
NA = "NA"
#: Forms of dates and times that are no numbers, besides those of ISO 8601.
_TIMES = [
    f"{date}{time}"
    for time in ("", " %H:%M", " %H:%M:%S")
    for date in ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%d %b %Y")
]
#: A type that is read by the parser of CSV itself.
_NUMBERS = ("int64", "double")


@dataclass(frozen=True)
class Facts:
    """What the texts of a column can be read as.

    Attributes
    ----------
    kinds : tuple of str
        Types that a parser has found, with decimal points; none without a value.
    decimals, marks, units : str and tuple of str
        See `NumberTexts`.
    has_words, is_text : bool
        Whether values that are no numbers are words for missing ones, or others.
    is_plain, is_code, is_bit : bool
        Whether numbers have no marks between thousands, some are written with a zero before
        others or are whole and too large for 64 bits, and all are 0 or 1.
    times : tuple of str
        Forms of times that fit all values, or those of one file.
    has_na, has_gaps : bool
        Whether there is the text `NA`, and whether other texts of missing values.
    """

    kinds: tuple[str, ...] = ()
    decimals: str = ".,"
    marks: str = ""
    units: tuple[str, ...] = ()
    has_words: bool = False
    is_text: bool = False
    is_plain: bool = True
    is_code: bool = False
    is_bit: bool = True
    times: tuple[str, ...] = ()
    has_na: bool = False
    has_gaps: bool = False

    @classmethod
    def of(cls, kind: pa.DataType, texts: pa.Array) -> Facts:
        """Look at the texts of a column that a parser has found to be of a type."""
        different = pc.unique(texts)
        is_null = pc.is_in(different, pa.array(NULLS))
        has_na = pc.any(pc.equal(different, NA)).as_py() or False
        n_nulls = is_null.true_count
        gaps = {"has_na": has_na, "has_gaps": n_nulls > has_na}
        values = different.filter(pc.invert(is_null))
        if not len(values):
            return cls(**gaps) if pa.types.is_null(kind) else cls((str(kind),), **gaps)
        number_texts = NumberTexts.of(values)
        is_bit = pa.types.is_boolean(kind) or pc.all(pc.is_in(values, pa.array(["0", "1"]))).as_py()
        is_native = str(kind) in _NUMBERS  # also words such as inf
        return cls(
            (str(kind),),
            number_texts.decimals,
            number_texts.marks,
            (number_texts.unit,) if number_texts.n_numbers else (),
            bool(number_texts.n_gaps or number_texts.n_bounds) and not is_native,
            (bool(number_texts.n_odd) or not number_texts.decimals) and not is_native,
            number_texts.is_plain,
            number_texts.has_codes or _are_large(kind, values),
            is_bit,
            time_forms(values, _TIMES) if pa.types.is_string(kind) else (),
            **gaps,
        )

    def __or__(self, other: Facts) -> Facts:
        """Return what holds in two files."""
        has_na = self.has_na or other.has_na
        has_gaps = self.has_gaps or other.has_gaps
        if not (self.kinds and other.kinds):
            only = self if self.kinds else other
            return replace(only, has_na=has_na, has_gaps=has_gaps)
        return Facts(
            tuple(dict.fromkeys(self.kinds + other.kinds)),
            "".join(mark for mark in self.decimals if mark in other.decimals),
            "".join(mark for mark in ".," if mark in self.marks + other.marks),
            tuple(dict.fromkeys(self.units + other.units)),
            self.has_words or other.has_words,
            self.is_text or other.is_text,
            self.is_plain and other.is_plain,
            self.is_code or other.is_code,
            self.is_bit and other.is_bit,
            tuple(form for form in self.times if form in other.times) or self.times or other.times,
            has_na,
            has_gaps,
        )

    @property
    def is_iso(self) -> bool:
        """Whether a file has times that a parser reads."""
        return any(kind.startswith(("timestamp", "date")) for kind in self.kinds)

    @property
    def keeps_na(self) -> bool:
        """Whether `NA` is a text like any other: nothing else is missing."""
        return self.has_na and not self.has_gaps

    def is_number(self, decimal: str) -> bool:
        """Whether all values are numbers with a decimal mark."""
        is_known = {*self.kinds} <= {*_NUMBERS, "string"} and not self.is_code
        is_number = not self.is_text and not self.has_words and len(self.units) == 1
        return is_known and is_number and decimal in self.decimals

    def number_form(self, decimal: str) -> NumberForm:
        """Return the form of numbers, where a decimal mark is that of the file."""
        mark = decimal if decimal in self.decimals else self.decimals[:1]
        return NumberForm(mark or decimal, "".join(self.units[:1]))

    def is_native(self, decimal: str) -> bool:
        """Whether a parser reads numbers with a decimal mark."""
        return self.is_plain and self.units == ("",) and self.marks in ("", decimal)


def _are_large(kind: pa.DataType, values: pa.Array) -> bool:
    """Return whether whole values are read as floats, which would lose digits."""
    is_whole = pc.match_substring_regex(values, r"^[+-]?\d+$")
    return str(kind) == "double" and bool(pc.all(is_whole).as_py())


def time_forms(values: pa.Array, forms: Sequence[str]) -> tuple[str, ...]:
    """Return which forms of times fit all values."""
    first = values.slice(0, 1)
    likely = [form for form in forms if not read_times(first, form).null_count]
    return tuple(form for form in likely if not read_times(values, form).null_count)


@dataclass(frozen=True)
class Columns:
    """How the columns of all files are read.

    `types` are those of text files' columns, `written` are numbers that no parser reads.
    """

    types: Mapping[str, str]
    forms: Forms
    written: Mapping[str, NumberForm] = field(default_factory=dict)

    @classmethod
    def of(cls, files: Sequence[Mapping[str, Facts]], delimiters: str, forms: Forms) -> Columns:
        """Decide how columns are read, where `forms` does not tell.

        `delimiters` are those of all files.
        """
        common = _common(files)
        decimal = forms.decimal or _decimal(list(common.values()), delimiters)
        types: dict[str, str] = {}
        written: dict[str, NumberForm] = {}
        times: dict[str, tuple[str, ...]] = {}
        for name, facts in common.items():
            kind = _kind(facts, decimal)
            known_kind = forms.types.get(name, kind)
            if known_kind not in _NUMBERS or kind != "double":  # as of numbers of another file
                kind = known_kind
            types[name] = kind
            if kind == "double" and name in forms.numbers:
                written[name] = forms.numbers[name]
            elif kind == "double" and facts.is_number(decimal) and not facts.is_native(decimal):
                written[name] = facts.number_form(decimal)
            fit = forms.times.get(name, () if facts.is_iso else facts.times)
            if kind.startswith("timestamp") and fit:
                times[name] = fit
        texts = [name for name, kind in types.items() if kind == "string"]
        numbers = {name: common[name].number_form(decimal) for name in texts}
        unknown = [name for name in texts if name not in forms.types]
        keeps_na = tuple(name for name in unknown if common[name].keeps_na)
        all_forms = Forms(types, decimal, {**numbers, **written}, _alike(times), keeps_na)
        return cls(types, forms.beside(all_forms), written)


def _common(files: Sequence[Mapping[str, Facts]]) -> dict[str, Facts]:
    """Return what the columns of all files can be read as."""
    of_name: dict[str, dict[Facts, None]] = {}
    for facts in files:
        for name, of_file in facts.items():
            of_name.setdefault(name, {})[of_file] = None
    return {name: reduce(Facts.__or__, different) for name, different in of_name.items()}


def _alike(times: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return forms of times; where several fit, those whose dates other columns prove."""
    proven = {forms[0].partition(" ")[0] for forms in times.values() if len(forms) == 1}
    alike: dict[str, tuple[str, ...]] = {}
    for name, forms in times.items():
        alike[name] = tuple(form for form in forms if form.partition(" ")[0] in proven) or forms
    return alike


def _decimal(columns: Sequence[Facts], delimiters: str) -> str:
    """Return the decimal mark of most columns that have one, or may have."""
    numbers = [facts for facts in columns if facts.marks and not facts.is_text]
    commas = sum(facts.decimals == "," for facts in numbers)
    points = sum(facts.decimals == "." for facts in numbers)
    if not commas and not points and "," not in delimiters:
        commas = sum(facts.marks == "," for facts in numbers)
        points = sum(facts.marks == "." for facts in numbers)
    return "," if commas > points else "."


def _kind(facts: Facts, decimal: str) -> str:
    """Return the type that all values have.

    Whole numbers and texts, as of codes, are text. What else only some files have is not: their
    values are refused when they are read.
    """
    kinds = {"string" if kind == "binary" else kind for kind in facts.kinds}
    if not kinds:
        return "double"  # no value
    if facts.is_number(decimal):
        return "int64" if kinds == {"int64"} else "double"
    if "bool" in kinds and kinds <= {"bool", "int64"} and facts.is_bit:
        return "bool"
    if facts.times or facts.is_iso:
        return "date32[day]" if kinds == {"date32[day]"} else "timestamp[ns]"
    has_numbers = not kinds.isdisjoint(_NUMBERS)
    if has_numbers and "string" in kinds and not facts.is_code:
        has_other_form = not facts.is_text and not facts.has_words
        return "double" if "double" in kinds or has_other_form else "string"
    if has_numbers or len(kinds) > 1:
        return "string"
    return kinds.pop()


#: Facts of columns by name, to and from JSON.
FACTS = TypeAdapter(dict[str, Facts])
