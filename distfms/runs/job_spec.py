"""The whole job spec: the common sections and the method's own."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from distfms.errors import SpecError, nearest, plain_name
from distfms.methods import METHODS, load_method
from distfms.methods.frame.tuning import AUTO_FOLDS, checked_grid, options_to_tune
from distfms.report.notes import table
from distfms.runs.folder import LATEST
from distfms.spec import (
    DataSection,
    EngineSection,
    Listed,
    RetrainSection,
    Section,
    Size,
    TuneSection,
    expand_variables,
    expanded,
    parse_section,
    read_yaml,
    refuse_secrets,
    set_dotted,
    write_yaml,
)
from distfms.store.places import Location, locate
from distfms.store.remote import RemotePath, is_url, local_part

if TYPE_CHECKING:
    from distfms.registry import Registry


class OutputSection(Section):
    """Where to keep runs; a string is the path."""

    path: Annotated[str, Field(min_length=1)] = "runs"
    """Folder or fsspec URL of all runs. `${NAME}` is replaced by an environment variable."""
    registry: Annotated[str, Field(min_length=1)] | None = None
    """Folder or URL of the registry of models; by default `registry` below `path`. The environment
    variable DISTFMS_REGISTRY overrides it.
    """
    storage_options: dict[str, Any] = Field(default_factory=dict)
    """Passed to fsspec, for URLs. `${NAME}` is replaced by an environment variable; secrets must be
    written so.
    """
    cache_bytes: Size = Field(default="10GiB", validate_default=True)
    """Largest size of all that is kept for later runs: partial statistics (`engine.cache`) and
    converted files. At the end of a run, the least recently used are deleted.
    """
    keep_runs: Annotated[int, Field(ge=1)] | None = None
    """Number of runs of the job to keep; by default all. At the end of a run, older ones are
    deleted, except those of the current model and the one before it.
    """
    tracking: Literal["mlflow"] | None = None
    """Log each finished run to MLflow: options, metrics, and files except statistics."""
    mute: Listed[str] = ()
    """Codes of notes that are not shown, such as `[N014]`; `distfms explain` lists them."""

    @field_validator("path", "registry")
    @classmethod
    def _one_place(cls, value: str | None) -> str | None:
        if value is not None and is_url(value) and local_part(value) is None:
            RemotePath(value)
        return value

    @field_validator("mute")
    @classmethod
    def _known_notes(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for code in value:
            if code not in table():
                raise ValueError(f"there is no note {code}; `distfms explain` lists all")
        return value

    @model_validator(mode="after")
    def _options_for_urls(self) -> OutputSection:
        places = {"path": self.path, "registry": self.registry or ""}
        if self.storage_options and not any(is_url(p) or "${" in p for p in places.values()):
            raise ValueError(f"`storage_options` are for URLs; `path` is the folder {self.path}")
        refuse_secrets(self.storage_options, places.items())
        return self


class TopKeys(Section):
    """The keys at the top of a spec, without the sections."""

    name: Annotated[str, Field(max_length=100)]
    """Names the folder of the runs: letters, digits, `.`, `_` and `-`; not `latest` or `registry`,
    which are reserved.
    """
    method: str
    """Method: `multiselect`, `sequence`, `landmarks` or `attribute_efficient`. Its section has the
    same name.
    """
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of all random streams of the job."""

    preset: Literal["paper"] | None = None
    """`paper` sets what the spec leaves out as in the experiments of the method's paper: options of
    the method, folds and a grid. `distfms check` lists them.
    """

    @field_validator("name")
    @classmethod
    def _free(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", value):
            raise ValueError(plain_name(value))
        if value.lower() in (LATEST, "registry"):
            raise ValueError("this name is reserved for a folder of the runs; choose another")
        return value


@dataclass(frozen=True)
class JobSpec:
    """A checked job spec: its keys and sections, `options` being the method's own."""

    name: str
    method: str
    seed: int
    data: DataSection
    options: Section
    engine: EngineSection
    output: OutputSection
    tune: TuneSection | None = None
    retrain: RetrainSection | None = None
    #: What the preset has set, by section.
    preset: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def partition_rows(self) -> int:
        """Most rows of a partition; fewer where a row costs the method much."""
        limit = load_method(self.method).partition_rows
        most = self.data.max_partition_rows
        return most if limit is None else min(most, limit(self.options))

    def place(self, out: str | Path | None = None) -> Location:
        """Return the place of all runs, or of one that is named; storage is not asked."""
        text = expand_variables(self.output.path) if out is None else str(out)
        options = expanded(self.output.storage_options) if is_url(text) else None
        return locate(text, options)

    def registry(self, named: str | None = None) -> Registry:
        """Return the registry that is named, or else the environment's, or the spec's."""
        from distfms.registry import open_registry

        beside = f"{self.output.path.rstrip('/')}/registry"
        return open_registry(named, self.output.storage_options, self.output.registry or beside)

    def to_mapping(self) -> dict[str, Any]:
        """Return the resolved spec, every default written out."""
        sections = {
            "data": self.data,
            self.method: self.options,
            "tune": self.tune,
            "retrain": self.retrain,
            "engine": self.engine,
            "output": self.output,
        }
        return {
            "name": self.name,
            "method": self.method,
            "seed": self.seed,
            **{key: one.model_dump(mode="json") for key, one in sections.items() if one},
        }

    def to_yaml(self) -> str:
        """Return the resolved spec as YAML that :func:`load_spec` reads back."""
        return write_yaml(self.to_mapping())

    def identity(self, inputs: Sequence[str]) -> str:
        """Return the sha256 of all that the result depends on, given fingerprints of the data.

        The engine, the place of the output and the ways to storage are left out: they never
        change a result.
        """
        content = self.to_mapping()
        for key in ("engine", "output", "name"):
            del content[key]
        forgets = content.pop("retrain", {}).get("forget", {})
        if any(forgets.values()):
            content["forget"] = forgets
        content["data"]["storage_options"] = {}
        content["inputs"] = list(inputs)
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def load_spec(path: str | Path, assignments: Sequence[str] = ()) -> JobSpec:
    """Read and check a spec file, overridden by ``section.key=value`` assignments."""
    return build_spec(set_dotted(read_yaml(path), assignments))


def build_spec(content: Mapping[str, Any]) -> JobSpec:
    """Check the content of a spec; see :func:`load_spec`."""
    method = content.get("method")
    if not isinstance(method, str) or method not in METHODS:
        problem = "is missing" if method is None else f"is {method!r}, which is not a known method"
        raise SpecError(
            f"In the job spec, `method` {problem}.{nearest(str(method), list(METHODS))}"
        )
    sections = {"data", "engine", "output", "tune", "retrain", method}
    keys = [*TopKeys.model_fields, *sections]
    for key in content:
        if key not in keys:
            raise SpecError(f"Unknown key `{key}` in the job spec.{_hint(str(key), keys, method)}")
    output = content.get("output", {})
    if not isinstance(output, str | Mapping):
        raise SpecError(f"`output` must be the folder or URL of all runs; found {output!r}.")
    top = parse_section(TopKeys, {k: v for k, v in content.items() if k not in sections}, "")
    preset = _preset(top, content)
    content = {
        **content,
        **{name: {**values, **(content.get(name) or {})} for name, values in preset.items()},
    }
    data = parse_section(DataSection, content.get("data"), "data")
    chosen = load_method(method)
    tune = None
    if "tune" in content:
        tune = parse_section(TuneSection, content["tune"], "tune")
        options = options_to_tune(chosen, content.get(method), tune)
        n_folds = AUTO_FOLDS if data.auto_folds else data.folds
        tune = checked_grid(chosen, options, tune, n_folds)
    else:
        options = parse_section(chosen.Options, content.get(method), method)
    retrain = None
    if "retrain" in content:
        retrain = parse_section(RetrainSection, content["retrain"], "retrain")
    output = {"path": output} if isinstance(output, str) else output
    return JobSpec(
        **{**top.model_dump(), "preset": preset},
        data=data,
        options=options,
        engine=parse_section(EngineSection, content.get("engine"), "engine"),
        output=parse_section(OutputSection, output, "output"),
        tune=tune,
        retrain=retrain,
    )


def _preset(top: TopKeys, content: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what the preset sets, by section: what the spec leaves out."""
    sections = {name: content.get(name) or {} for name in (top.method, "data", "tune")}
    if top.preset is None or not all(isinstance(section, Mapping) for section in sections.values()):
        return {}
    paper = load_method(top.method).paper(sections[top.method], sections["data"])
    preset = {}
    for section, values in paper.items():
        left_out = values.keys() - sections[section].keys()
        preset[section] = {key: value for key, value in values.items() if key in left_out}
    return preset


def _hint(key: str, keys: Sequence[str], method: str) -> str:
    if key in METHODS:
        return f" This job's method is `{method}`, so its section is `{method}:`."
    return f"{nearest(key, keys)} `distfms options` lists the keys and sections."
