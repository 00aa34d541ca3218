"""What a sample of rows says about the columns of a file that nobody has described."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from distfms.data.files.formats.base import Forms
from distfms.data.files.partition import Dataset
from distfms.data.files.texts import NumberTexts, nearly_numbers, read_numbers
from distfms.data.rows.judgments import loosely_numbered
from distfms.data.rows.roles import is_categorical, is_number, is_number_list
from distfms.errors import SpecError, nearest
from distfms.runs.guess import Column, by_likelihood, words_of

#: Most rows and values that are looked at.
_ROWS = 20_000
_CELLS = 4_000_000
#: Fewest rows from which order and distinct values mean something.
_MANY = 20
#: Most levels of a target that is read as classes.
_LEVELS = 12
_QUERY = re.compile(
    r"(session|query|qid|search|srch|request|impression)s?([_ ]?id)?", re.IGNORECASE
)
#: Words in names of what rows are ranked by.
_GRADES = words_of(
    "relevance grade label click clicked purchase purchased booking booked rating score target "
    "rank position"
)
#: Fewest levels of counts or ratings.
_FEWEST_OF_SCALE = 5
#: Answers of a questionnaire: most levels, fewest questions.
_MOST_ANSWERS = 11
_FEWEST_QUESTIONS = 5
#: Names of columns that have a role.
_ID = re.compile(r"(?i:(.*[_ ])?id)|.*[a-z]I[Dd]")
_OBJECT = re.compile(
    r"(.*[_ ])?(id|object|objekt|item|subject|image|document|product|stimulus)", re.IGNORECASE
)
_ATTRIBUTE = re.compile(
    r"(.*[_ ])?(attribute|feature|question|criterion|measure|aspect|variable|rubric|trait|dimension"
    r"|merkmal|eigenschaft|frage|kriterium)s?",
    re.IGNORECASE,
)
_VALUE = re.compile(
    r"(.*[_ ])?(value|rating|score|judge?ment|answer|response|wert|bewertung|urteil|note)s?",
    re.IGNORECASE,
)
_RATERS = "rater|worker|annotator|judge|coder|reviewer|labell?er|user"
_RATER = re.compile(rf"({_RATERS})s?([_ ]?(id|name))?", re.IGNORECASE)
#: Names of raters where each row is one judgment.
_JUDGE = re.compile(
    rf"(.*[_ ])?({_RATERS}|evaluator|grader|participant|respondent|model|bewerter)s?"
    r"([_ ]?(id|name))?",
    re.IGNORECASE,
)
#: Roles of columns of judgments, in the order in which they are written.
_ROLES = ("object", "attribute", "value", "worker")
#: Share of the numbers from which those with numbered names are judgments.
_NUMBERED = 0.7
#: What the part before a separator must leave: groups of several columns.
_SEPARATORS = ("__", ".", ":", "/", "_")


@dataclass(frozen=True)
class Look:
    """The columns of a file, and the roles that they seem to have.

    `targets` are what may be predicted, the likeliest first, where it `is_guessed`; `long` are the
    roles of columns of judgments in long form, `labels` what may be their label, and `label_column`
    the one column that says the same of all judgments of an object, `has_repeats` that raters judge
    again; `judged` are columns of numbered judgments by attribute; `query` is what rows are ranked
    within.
    """

    columns: dict[str, Column] = field(default_factory=dict)
    n_rows: int = 0
    id: str | None = None
    rater: str | None = None
    targets: tuple[Column, ...] = ()
    long: dict[str, str] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    label_column: str | None = None
    has_repeats: bool = False
    judged: dict[str, list[str]] = field(default_factory=dict)
    query: str | None = None
    n_looked_at: int = 0
    is_guessed: bool = True

    @property
    def target(self) -> Column | None:
        """The likeliest target."""
        return next(iter(self.targets), None)

    @property
    def label(self) -> str:
        """The label of judgments in long form: an attribute called so, or a column, or the last."""
        called = [name for name in self.labels if name.lower() in ("label", "target", "overall")]
        return called[0] if called else self.label_column or self.labels[-1]

    def with_target(self, name: str) -> Look:
        """Return the same with a target that the user has named."""
        if name not in self.columns:
            raise SpecError(f"The data have no column {name!r}.{nearest(name, self.columns)}")
        runners_up = tuple(column for column in self.targets if column.name != name)
        column = replace(self.columns[name], excluded="")
        columns = {**self.columns, name: column}
        return replace(self, columns=columns, targets=(column, *runners_up), is_guessed=False)

    @property
    def features(self) -> list[Column]:
        """Columns to learn from."""
        roles = {self.id, self.rater, self.query, self.target and self.target.name}
        return [c for c in self.columns.values() if c.name not in roles and not c.excluded]

    @property
    def separator(self) -> str | None:
        """What separates the common beginnings of names of most features."""
        for separator in _SEPARATORS:
            parts = Counter(c.name.partition(separator)[0] for c in self.features)
            together = sum(n for n in parts.values() if n > 1)
            if len(parts) > 1 and together > len(self.features) / 2:
                return separator
        return None


def look_at(dataset: Dataset) -> Look:
    """Look at the first rows of a dataset."""
    schema = dataset.schema
    partition = dataset.partitions[0]
    most = max(_MANY, min(_ROWS, _CELLS // max(1, len(schema))))
    table = dataset.reader.read(partition, schema.names).slice(0, most)
    columns = {name: _column(name, table.column(name).combine_chunks()) for name in schema.names}
    if long := _long_form(table, columns):
        labels = tuple(map(str, table.column(long["attribute"]).unique().to_pylist()))
        constant = _constant_by_object(table, columns, long["object"])
        label = next(iter(constant), None)
        repeats = _has_repeats(table, long)
        return Look(
            columns,
            dataset.n_rows,
            long=long,
            labels=labels,
            label_column=label,
            has_repeats=repeats,
        )
    forms = (dataset.forms or Forms()).numbers
    for name, form in forms.items():
        if name in columns:
            columns[name] = replace(columns[name], unit=form.unit)
    queries = [name for name, column in columns.items() if _is_query(column, table.num_rows)]
    raters = [name for name in columns if _RATER.fullmatch(name)]
    ids = [name for name, column in columns.items() if _is_id(column) and name not in queries]
    id, rater, query = (next(iter(names), None) for names in (ids, raters, queries))
    judged = _numbered(table, columns)
    taken = {id, rater, query}.union(*judged.values())
    candidates = []
    for name, column in columns.items():
        if name not in taken and column.kind in ("number", "text") and not column.excluded:
            candidates.append(column)
    if query is not None:
        grades = [column for column in candidates if words_of(column.name) & _GRADES]
        candidates = grades or candidates
    return Look(
        columns,
        dataset.n_rows,
        id,
        rater,
        tuple(by_likelihood(candidates)),
        judged=judged,
        query=query,
        n_looked_at=table.num_rows,
    )


def _is_id(column: Column) -> bool:
    """Return whether a column is called as ids are."""
    return bool(_ID.fullmatch(column.name)) and column.kind != "judgments"


def _is_query(column: Column, n_rows: int) -> bool:
    """Return whether a column tells which rows are ranked together."""
    is_repeated = column.n_levels < n_rows / 2
    return bool(_QUERY.fullmatch(column.name)) and column.kind in ("number", "text") and is_repeated


def _numbered(table: pa.Table, columns: dict[str, Column]) -> dict[str, list[str]]:
    """Return columns of judgments by attribute, where they are numbered and alike."""
    names = [name for name, column in columns.items() if column.kind == "number"]
    by_attribute: dict[str, list[str]] = {}
    for name in names:
        attribute, _, number = name.rpartition("__")
        if attribute and number.isdigit():
            by_attribute.setdefault(attribute, []).append(name)
    several = {
        attribute: judgments for attribute, judgments in by_attribute.items() if len(judgments) > 1
    }
    if several:
        return several
    numbered = [name for name in names if re.search(r"[0-9]\)?$", name)]
    if len(numbered) <= _NUMBERED * len(names):
        return {}
    judged = loosely_numbered(numbered)
    are_alike = all(_are_alike(table.select(judgments)) for judgments in judged.values())
    return judged if are_alike else {}


def _are_alike(table: pa.Table) -> bool:
    """Return whether columns have about the same mean and deviation, as judgments of one thing."""
    values = [np.asarray(column.drop_null().cast(pa.float64())) for column in table.columns]
    if any(len(column) < 2 for column in values):
        return False
    means = np.array([column.mean() for column in values])
    deviations = np.array([column.std() for column in values])
    is_close = np.ptp(means) <= 0.5 * deviations.mean()
    return bool(is_close and deviations.max() <= 2 * deviations.min())


def answers_on_one_scale(look: Look) -> list[Column]:
    """Return columns that seem to be answers to questions, such as 1 to 5; none if they are few."""
    by_scale: dict[tuple[Any, Any], list[Column]] = {}
    for column in look.features:
        is_scale = column.whole and 3 <= column.n_levels <= _MOST_ANSWERS and column.levels
        if column.kind == "number" and is_scale:
            by_scale.setdefault((column.levels[0], column.levels[-1]), []).append(column)
    most = max(by_scale.values(), key=len, default=[])
    return most if len(most) >= _FEWEST_QUESTIONS else []


def _column(name: str, values: pa.Array) -> Column:
    n = len(values)
    if is_number_list(values.type):
        return Column(name, "judgments", n, values.null_count)
    if pt.is_temporal(values.type):
        return Column(name, "time", n, values.null_count, excluded="holds dates or times")
    if not (is_number(values.type) or is_categorical(values.type) or pt.is_null(values.type)):
        return Column(name, "other", n, values.null_count, excluded=f"holds {values.type}")
    column = Column(name, "number", 0, 0)
    if is_categorical(values.type):
        values = values.cast(pa.string())
        texts = NumberTexts.of(values)
        are_numbers = texts.decimals and not texts.n_odd and not texts.has_codes
        if are_numbers and 2 * (texts.n_numbers - texts.n_bounds) > n:
            values, _ = read_numbers(values)
            column = replace(column, as_numbers=True, unit=texts.unit)
        else:
            column = replace(column, kind="text", nearly=nearly_numbers(name, values))
    observed = values.drop_null()
    distinct = observed.unique()
    levels = sorted(distinct.to_pylist()) if len(distinct) <= _LEVELS else []
    column = replace(
        column, n_levels=len(distinct), n_missing=values.null_count, levels=tuple(levels)
    )
    return _doubts(column, observed, n)


def _doubts(column: Column, observed: pa.Array, n: int) -> Column:
    """Return a column with what speaks against using it."""
    if not column.n_levels:
        return replace(column, excluded="has no value")
    if column.n_levels == 1:
        return replace(column, excluded="has the same value in every row")
    if column.kind == "text":
        differ = column.n_levels > max(_MANY, n / 2)
        why = f"holds text that differs in {column.n_levels:,} of {n:,} rows"
        return replace(column, excluded=why) if differ else column
    numbers = np.asarray(observed.cast(pa.float64(), safe=False))
    whole = bool((numbers == np.round(numbers)).all())
    column = replace(column, whole=whole, is_scale=whole and _is_scale(numbers))
    if n < _MANY or column.n_missing:
        return column
    steps = np.diff(numbers)
    if (steps > 0).all() or (steps < 0).all():
        direction = "rises" if steps[0] > 0 else "falls"
        return replace(column, excluded=f"{direction} with every row, like a row number or a time")
    if whole and column.n_levels == n:
        return replace(column, suspect="holds whole numbers that all differ, like an id")
    return column


def _is_scale(numbers: np.ndarray) -> bool:
    """Return whether whole numbers look like counts or ratings rather than codes of classes.

    They have one peak, but for what chance does, and an end that is rare.
    """
    levels, counts = np.unique(numbers, return_counts=True)
    if not _FEWEST_OF_SCALE <= levels.size <= _LEVELS or np.ptp(levels) > 2 * levels.size:
        return False
    peak = counts.argmax()
    steps = np.diff(counts)
    steps[peak:] *= -1  # from there on they fall
    is_one_peak = (steps >= -2.0 * np.sqrt(counts[1:])).all()
    return bool(is_one_peak and 2 * min(counts[0], counts[-1]) < counts[peak])


def _long_form(table: pa.Table, columns: dict[str, Column]) -> dict[str, str]:
    """Return the roles of columns where each row is one judgment; nothing where it is not."""
    roles: dict[str, str] = {}
    free = dict(columns)

    def take(role: str, name: str | None) -> None:
        if name is not None:
            roles[role] = name
            del free[name]

    for role, pattern in (("attribute", _ATTRIBUTE), ("worker", _JUDGE), ("object", _OBJECT)):
        take(role, next(filter(pattern.fullmatch, free), None))
    if "attribute" not in roles:
        return {}
    if "object" not in roles:
        others = [column for column in free.values() if not column.excluded]
        named = [column for column in others if column.kind == "text" or column.whole]
        most = max(named, key=lambda column: column.n_levels, default=others[0])
        take("object", most.name)
    constant = _constant_by_object(table, columns, roles["object"])
    judgments = (
        name
        for name, column in free.items()
        if column.kind == "number" and name not in constant and _VALUE.fullmatch(name)
    )
    take("value", next(judgments, None))
    n_objects = columns[roles["object"]].n_levels
    n_attributes = columns[roles["attribute"]].n_levels
    are_repeated = n_objects < table.num_rows and n_attributes < table.num_rows / 2
    if not are_repeated or "value" not in roles:
        return {}
    return {role: roles[role] for role in _ROLES if role in roles}


def _has_repeats(table: pa.Table, roles: Mapping[str, str]) -> bool:
    """Return whether a rater judges an attribute of an object again, as a sampled LLM does."""
    if "worker" not in roles:
        return False
    cells = table.select([roles["object"], roles["attribute"], roles["worker"]])
    n_cells = cells.group_by(cells.column_names).aggregate([]).num_rows
    return n_cells < table.num_rows


def _constant_by_object(table: pa.Table, columns: dict[str, Column], name: str) -> list[str]:
    """Return the numbers that have one value for each object, the likeliest label first."""
    constant = []
    for column in columns.values():
        if column.kind != "number" or column.name == name or column.excluded:
            continue
        objects = table.select([name, column.name]).group_by(name)
        counts = objects.aggregate([(column.name, "count_distinct")])
        if pc.max(counts.column(f"{column.name}_count_distinct")).as_py() == 1:
            constant.append(column)
    return [column.name for column in by_likelihood(constant)]


def reasons(columns: Sequence[Column]) -> list[str]:
    """Return why columns are excluded, a line for those of one reason."""
    by_reason: dict[str, list[str]] = {}
    for column in columns:
        if column.excluded:
            by_reason.setdefault(column.excluded, []).append(column.name)
    return [f"{', '.join(names)}: {why}" for why, names in by_reason.items()]
