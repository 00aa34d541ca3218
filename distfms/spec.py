"""The sections that every job spec has, and the reading of spec files.

A method's own section is a model in its folder (``options.py``); :mod:`distfms.runs` puts the two
together. Everything is checked before any data is read, and a message names the key, what was
found there and what is expected.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    field_validator,
    model_validator,
)

from distfms.credentials import holds_credentials, secrets_of
from distfms.errors import SpecError
from distfms.validation import explained

S = TypeVar("S", bound=BaseModel)
T = TypeVar("T")

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
# YAML has no tuples, but lists.
Listed = Annotated[tuple[T, ...], Strict(False)]


def _as_span(value: Any) -> Any:
    length = re.fullmatch(r"([0-9]+(\.[0-9]+)?) (days?|partitions?)", str(value))
    if length is None or not float(length[1]):
        raise ValueError("write it as `30 days` or `12 partitions`, above 0")
    return value


# An age.
Span = Annotated[str, BeforeValidator(_as_span)]
if TYPE_CHECKING:
    Folds = int  # as jobs see it: `distfms.runs.auto_folds` has replaced `auto` by then
else:
    # Part numbers are stored in one byte.
    Folds = Annotated[int, Field(ge=0, le=200)] | Literal["auto"]
# Bytes, also given as `512MiB` or `4 GB`.
Size = Annotated[ByteSize, Field(gt=0)]


class Section(BaseModel):
    """Base of all spec sections: frozen; refuses unknown keys and converts nothing silently.

    `budget: "10"`, `workers: true` and `processes: yes` are slips.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    @property
    def functions(self) -> frozenset[str]:
        """Functions that it names, as ``module:function``."""
        return frozenset()

    def changed(self, **values: Any) -> Self:
        """Return the section with some options changed, and checked."""
        return type(self).model_validate({**self.model_dump(), **values})


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


class LongForm(Section):
    """Columns of judgments in long form: one row per (object, attribute, rater)."""

    object: str
    """Column with the object."""
    attribute: str
    """Column with the attribute."""
    value: str
    """Column with the judgment."""
    label: str
    """Name of the label: a column of `labels`, or an attribute."""
    worker: str | None = None
    """Column with the rater. With it, the errors that a rater's judgments share are separated from
    the attributes, and a second judgment of an attribute of an object by the same rater is an
    error.
    """
    labels: str | None = None
    """Path of a table with one row per object that holds the label. Without it, the label is the
    mean judgment of the attribute `label`.
    """
    label_from: str = "mean"
    """Without `labels`: `mean` of the attribute's judgments (the attribute cannot then be bought),
    `column` if `label` is a column of the long table, or the name of a column that holds the label
    in rows of the attribute `label`.
    """
    duplicates: Literal["error", "keep", "first"] = "error"
    """What to do with a rater's second judgment of the same attribute and object."""
    max_judgments: Annotated[int, Field(ge=1)] | None = None
    """Most judgments of an attribute to keep for each object, drawn at random with the job's
    seed.
    """

    @property
    def target(self) -> str:
        """Name of the column of labels once the judgments are converted."""
        if self.labels is not None or self.label_from in ("mean", "column"):
            return self.label
        return f"{self.label}_{self.label_from}"


class DataSection(Section):
    """Where the data are and what their columns mean."""

    path: str | Listed[str] | None = None
    """Folder, file, glob, list of these, or fsspec URL. `${NAME}` is replaced by an environment
    variable. Relative paths start at the current directory. CSV (`.csv`, `.tsv`), JSON lines
    (`.jsonl`, `.ndjson`), Arrow (`.arrow`, `.feather`) and workbooks (`.xlsx`, `.ods`, …; with the
    extra `distfms[excel]`; `book.xlsx#2024` is one sheet), also gzipped, are converted to Parquet
    once. Of a folder only files of one format are read: Parquet, or else the first of these that it
    has. Folders named `key=value`, as in `year=2024/region=n`, become columns.
    """
    builtin: str | None = None
    """Embedded dataset to try things out with, instead of a path: `breast-cancer`, `diabetes`,
    `digits`, `digits-3v5`, `digits-pixels` or `wine`.
    """
    options: dict[str, Any] = Field(default_factory=dict)
    """Of the embedded dataset `digits`: `judgments` of each patch of an image, by default 2, and
    `only` these digits.
    """
    long: LongForm | None = None
    """Columns of judgments in long form, one judgment a row; they are converted once."""
    target: Listed[str] = ()
    """Column(s) to predict. Leave it out with `long` or `builtin` data."""
    id: str | None = None
    """Column with the id of a row's object; rows with the same id stay in one fold."""
    weight: str | None = None
    """Column with the weights of rows."""
    query: str | None = None
    """Column with the query of a row; rows of one query stay in one fold."""
    time: str | None = None
    """Column with the time of a row, for retraining."""
    features: Listed[str] = ("*",)
    """Names or globs of the columns to use, in this order; by default all without another role.
    Globs skip the index of a pandas frame; to use it, name it.
    """
    exclude: Listed[str] = ()
    """Names or globs of columns to leave out."""
    numbers: Listed[str] = ()
    """Columns of text to read as numbers. Thousands separators, and a unit that all values have
    (`$`, `%`), are ignored; words such as `unknown`, `n/a`, `?` count as missing, `<5` and `>5` as
    5.
    """
    text: Listed[str] = ()
    """Columns to read as text: columns of CSV files, or whole numbers that are codes."""
    missing: Literal["error", "drop", "mean", "pairs"] = "error"
    """What to do with missing values: refuse them, drop their rows, replace them with the column's
    mean, or learn from observed pairs of values (`attribute_efficient` with `solver: pairs`).
    """
    folds: Folds = Field(default="auto", validate_default=True)
    """Cross-validation folds, 0 for none. `auto` is 5 where there are 20 rows or more to learn from
    and the statistics of the folds take up to 256 MiB, otherwise 0. Landmarks, boosted trees and
    families other than `gaussian` learn again without each fold; the work is then about six times
    that of 0. Without `id` and `query` folds depend on a row's number in its file, and on the
    file's path below the folder that `path` names.
    """
    test: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.0
    """Share of rows to hold out, by hash, in [0, 1)."""
    test_path: str | Listed[str] | None = None
    """Path of held-out rows; excludes `test` and `long`."""
    unlabelled_path: str | Listed[str] | None = None
    """Path of rows to take landmarks from; they need no target."""
    storage_options: dict[str, Any] = Field(default_factory=dict)
    """Passed to fsspec. `${NAME}` is replaced by an environment variable."""
    max_partition_rows: Annotated[int, Field(ge=1)] = 131_072
    """Most rows of a partition, fewer where a method does much with each row. It decides the order
    of sums, so changing it changes the last bits of the result.
    """
    max_partition_bytes: Annotated[int, Field(ge=1)] | None = None
    """Most decoded bytes of a partition, by default 64 MiB, or up to 128 MiB for tables with
    thousands of columns; changing it changes the last bits of the result too.
    """

    @field_validator("target", "features", "exclude", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return _as_tuple(value)

    @property
    def policy(self) -> Literal["error", "drop", "mean"]:
        """What to do with missing values while rows are read; `mean` leaves gaps."""
        return "mean" if self.missing == "pairs" else self.missing

    @model_validator(mode="after")
    def _one_source(self) -> DataSection:
        if (self.path is None) == (self.builtin is None):
            raise ValueError("give exactly one of `path` and `builtin`")
        if self.folds == 1:
            raise ValueError("`folds: 1` leaves nothing to train on; set 0 or at least 2")
        if self.test_path is not None and self.test > 0:
            raise ValueError("`test` and `test_path` exclude each other")
        if self.path is not None and self.long is None and not self.target:
            raise ValueError("`target` is missing: name the column to predict")
        if "" in self.places():
            raise ValueError("a path is empty; write `.` for the current folder")
        refuse_secrets(self.storage_options, (("path", place) for place in self.places()))
        if self.options and self.builtin is None:
            raise ValueError("`options` are for embedded data (`builtin`) only")
        if self.test_path is not None and self.path is None:
            raise ValueError("`test_path` needs `path`; hold rows out with `test`")
        if self.long is not None:
            self._require_long_alone(self.long)
        return self

    @property
    def auto_folds(self) -> bool:
        """Whether the number of folds is still to be found."""
        return not isinstance(self.folds, int)

    def places(self) -> list[str]:
        """Return all paths and URLs of data."""
        labels = self.long and self.long.labels
        named = (self.path, self.test_path, self.unlabelled_path, labels)
        return [place for places in named for place in _as_tuple(places) or ()]

    def _require_long_alone(self, long: LongForm) -> None:
        if self.path is None:
            raise ValueError("`long` describes the files of `path`; set `path`")
        if self.test_path is not None:
            raise ValueError("with `long` leave `test_path` out; hold objects out with `test`")
        if self.target not in ((), (long.target,)):
            raise ValueError("with `long` the label is `long.label`; leave `target` out")
        if self.id not in (None, long.object):
            raise ValueError("with `long` the id is `long.object`; leave `id` out")


class EngineSection(Section):
    """Where the work runs. Never changes a result."""

    kind: Literal["local", "dask", "ray"] = "local"
    """`local` needs no cluster; `dask` connects to the scheduler at `address`; `ray` connects to
    the cluster at `address`, or starts one on this machine.
    """
    workers: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Tasks to run in parallel; by default the number of usable cores (`dask`: all workers)."""
    address: str | None = None
    """Of the Dask scheduler, such as `tcp://host:8786`, or of the Ray cluster, such as `host:6379`,
    `ray://host:10001` or `auto`.
    """
    processes: bool = False
    """Run local tasks in processes instead of threads."""
    actors: Literal["auto", "always", "never"] = "auto"
    """Which work is given to actors, which keep their data in memory: evaluations on folds, chains,
    fits by passes, candidates of a search, co-moments of similarities. `auto` uses them where one
    process is too small, or slower although actors take seconds to start, and on Ray for
    co-moments of similarities; `always` for all such work, `never` for none. The event `pool` says
    what was decided for each, and why.
    """
    retries: Annotated[int, Field(ge=0, le=100)] = 2
    """How often to retry a task after a transient error."""
    cache: bool = True
    """Keep partial statistics on disk, so that later jobs read only new partitions. Where they
    would take more than 64 MiB and more than the files, only sums over 32 partitions are kept.
    """
    memory: Size | None = None
    """Memory the job may use, such as `4GiB`; by default all of the machine's."""

    @model_validator(mode="after")
    def _address_where_needed(self) -> EngineSection:
        if self.kind == "local":
            if self.address:
                raise ValueError("`kind: local` takes no `address`; for a cluster, set `kind`")
        elif self.address:
            check_address(self.kind, self.address)
        elif self.kind == "dask":
            raise ValueError("`kind: dask` needs the `address` of the scheduler: tcp://host:8786")
        return self


#: What addresses of clusters look like, as a pattern and in words.
_ADDRESSES = {
    "dask": (
        r"(tcp|tls|ws|wss|ucx)://\[?[^\s/]+?\]?:\d+/?",
        "a Dask scheduler, which has the form tcp://host:8786 (http:// is its dashboard)",
    ),
    "ray": (
        r"auto|local|(ray://)?[^\s/:]+:\d+",
        "a Ray cluster, which has the form host:6379, ray://host:10001 or auto (http:// is its "
        "dashboard, for `distfms submit`)",
    ),
}


def check_address(kind: str, address: str) -> None:
    """Raise ValueError unless the address may be that of a cluster of a kind."""
    form, description = _ADDRESSES[kind]
    if "@" in address:
        raise ValueError(
            "the address holds a user name or password, which others could read; leave it out"
        )
    if not re.fullmatch(form, address):
        raise ValueError(f"{address!r} is not the address of {description}")


#: Option sets to choose from: every combination of the values of these options.
Grid = Mapping[str, Sequence[Any]]


class TuneSection(Section):
    """Options of the method to try by cross-validation, before the selection."""

    grid: Annotated[dict[str, Annotated[Listed[Any], Field(min_length=1)]], Field(min_length=1)]
    """Values to try for each option of the method's section; every combination is a point of the
    grid.
    """
    rule: Literal["best", "one_standard_error"] = "best"
    """Take the point with the best mean over the folds, or the simplest point that is behind the
    best by at most one standard error of their differences, paired by fold. List the values of each
    option from the simplest; of two points, the one that is simpler in the first option where they
    differ is simpler.
    """
    measure: str | None = None
    """Measure to compare by; by default the method's first."""


class Forgetting(Section):
    """Which partitions count, and how much; `all` in place of this section: all of them, equally.

    The age of a partition is counted back from the newest one: in partitions, in the order of the
    data, or in days, by `data.time` or else by the date in the file's name.
    """

    window: Span | None = None
    """Use only the newest data, such as `30 days` or `12 partitions`."""
    half_life: Span | None = None
    """Age at which rows have half the weight, such as `90 days`; for squared losses."""


class GateSection(Section):
    """Conditions for promoting a new model."""

    metric: str | None = None
    """Measure to compare with the current model, on rows that neither model learned from; by
    default `mse`, or the method's own loss.
    """
    on: Literal["held_out", "newest"] = "held_out"
    """Rows that must show the gain: all held-out rows, or those of new partitions."""
    min_gain: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Least gain there: the share by which a loss must fall, or the amount by which a score of at
    most 1 must rise.
    """
    max_regression: NonNegative = 0.02
    """Largest loss allowed, in the same units, on all held-out rows and on new ones."""
    max_drift: Positive | None = None
    """Largest drift allowed between a new or changed file (with `data.time`, one day of it) and the
    data behind the current model: in a column's mean (in standard deviations), standard deviation
    (as a logarithm) or correlation with the target. By chance alone, the mean of n rows differs
    by about 1/√n: for small files, set a larger bound or `data.time`.
    """
    min_rows: Annotated[int, Field(ge=0)] = 1
    """Fewest rows required in new and changed partitions."""
    max_lost: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Largest share of the rows behind the current model that may be gone."""


class RetrainSection(Section):
    """How `distfms retrain` forgets old data, and when it promotes a new model."""

    forget: Forgetting = Field(default_factory=Forgetting)
    """`all` to use all data equally, or a section that limits their age."""
    gate: GateSection = Field(default_factory=GateSection)
    """Conditions for promotion."""

    @field_validator("forget", mode="before")
    @classmethod
    def _all_in_words(cls, value: Any) -> Any:
        if isinstance(value, str) and value != "all":
            raise ValueError("it must be `all` or a section")
        return {} if value == "all" else value


# --- reading ------------------------------------------------------------------------------------


#: Values that a spec may have, far above what a job needs: aliases of aliases multiply.
_MOST_VALUES = 10**6


def _yaml() -> Any:
    """Return a reader and writer of YAML 1.2's core schema (and of merge keys)."""
    from ruamel.yaml import YAML
    from ruamel.yaml.constructor import SafeConstructor

    class Constructor(SafeConstructor):
        """Dates stay texts."""

    Constructor.add_constructor("tag:yaml.org,2002:timestamp", lambda _, node: node.value)
    yaml: Any = YAML(typ="safe", pure=True)
    yaml.Constructor = Constructor
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False
    return yaml


def _refuse_endless(content: Any) -> None:
    """Refuse what refers to itself or multiplies, and texts that could not be written down."""
    values = [content]
    n_values = 0
    while values:
        value = values.pop()
        n_values += 1
        if n_values > _MOST_VALUES:
            raise ValueError(f"aliases make more than {_MOST_VALUES:,} values of it")
        if isinstance(value, dict):
            values += [*value, *value.values()]
        elif isinstance(value, list):
            values += value
        elif isinstance(value, str):
            value.encode()  # half of a surrogate pair


def write_yaml(content: Mapping[str, Any]) -> str:
    """Return YAML that :func:`parse_yaml` reads back."""
    stream = StringIO()
    _yaml().dump(dict(content), stream)
    return stream.getvalue()


def _parse(text: str, source: str) -> Any:
    from ruamel.yaml.error import YAMLError

    try:
        content = _yaml().load(text)
        _refuse_endless(content)
    except RecursionError as error:
        raise SpecError(f"{source}: not valid YAML: it is nested too deep.") from error
    except (YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = str(getattr(error, "problem", None) or error).removesuffix(".")
        raise SpecError(f"{source}{place}: not valid YAML: {problem}.") from error
    return content


def parse_yaml(text: str, source: str) -> dict[str, Any]:
    """Parse the text of a spec, YAML or JSON, which messages call `source`.

    What nests or multiplies beyond what a job needs is refused.
    """
    content = _parse(text, source)
    if not isinstance(content, dict):
        kind = "nothing" if content is None else type(content).__name__
        raise SpecError(f"{source}: a job spec must be a mapping of keys to values; found {kind}.")
    return content


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read a spec file; see :func:`parse_yaml`."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise SpecError(f"There is no spec file {path}. Check the path.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"The spec file {path} cannot be read: {error}.") from error
    return parse_yaml(text, str(path))


def set_dotted(content: Mapping[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Return a spec with assignments of the form ``section.key=value`` applied, values in YAML."""
    result = dict(content)
    for assignment in assignments:
        dotted, equals, text = assignment.partition("=")
        keys = [key.strip() for key in dotted.split(".")]
        if not equals or not all(keys):
            # Without its text, which may be a secret.
            raise SpecError(
                "--set takes section.key=value, and --storage takes key=value; one of them has "
                "another form."
            )
        value = _parse(text, f"--set {dotted}")
        result = _assigned(result, keys, value, dotted)
    return result


def _assigned(section: Any, keys: Sequence[str], value: Any, dotted: str) -> dict[str, Any]:
    if section is not None and not isinstance(section, Mapping):
        raise SpecError(f"--set {dotted}: what holds `{keys[0]}` is not a section with keys.")
    result = dict(section or {})
    first, *inner = keys
    if inner:
        value = _assigned(result.get(first), inner, value, dotted)
    result[first] = value
    return result


def parse_section(model: type[S], content: Any, section: str) -> S:
    """Check one section of a spec, naming the first wrong key; nothing counts as an empty one."""
    if content is None:
        content = {}
    if not isinstance(content, Mapping):
        raise SpecError(f"`{section}` must be a section with keys; found {content!r}.")
    try:
        return model.model_validate(dict(content))
    except ValidationError as error:
        raise SpecError(explained(error.errors(), content, model, section)) from error


def refuse_secrets(options: Mapping[str, Any], urls: Iterable[tuple[str, str]]) -> None:
    """Raise ValueError for storage options and named URLs that hold a secret in clear text."""
    names = [f"storage_options.{name}" for name, _ in secrets_of(options)]
    names += [name for name, url in urls if holds_credentials(url)]
    if names:
        raise ValueError(
            f"`{names[0]}` may hold a secret in clear text, and specs are written down with their "
            "runs; put it in an environment variable and write ${NAME}, or leave it out and use "
            "the provider's own configuration"
        )


def expand_variables(path: str) -> str:
    """Replace ``${NAME}`` in a path by the environment variable."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in os.environ:
            raise SpecError(
                f"{path} names the environment variable {name}, which is not set. Set it (export "
                f"{name}=…) or write the value itself."
            )
        return os.environ[name]

    return re.sub(r"\$\{(\w+)\}", value, path)


def expanded(value: Any) -> Any:
    """Return storage options, or paths, with the values of the environment variables they name.

    Nothing else is to be done before they are used.
    """
    if isinstance(value, Mapping):
        return {name: expanded(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [expanded(part) for part in value]
    return expand_variables(value) if isinstance(value, str) else value
