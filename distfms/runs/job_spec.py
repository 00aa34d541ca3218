"""The whole job spec: the common sections and the method's own."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from distfms.engine.remote import RemotePath, is_url, local_part
from distfms.engine.storage import Location, locate
from distfms.errors import SpecError, nearest
from distfms.hidden import hidden, hidden_in_urls
from distfms.methods import METHODS, load_method
from distfms.methods.tuning import checked_grid, options_to_tune
from distfms.runs.storage_options import expanded
from distfms.spec import (
    DataSection,
    EngineSection,
    Section,
    TuneSection,
    expand_variables,
    parse_section,
    read_yaml,
    set_dotted,
    write_yaml,
)


class OutputSection(Section):
    """Where runs are kept; a text is its path."""

    path: Annotated[str, Field(min_length=1)] = "runs"
    """Folder or fsspec URL of all runs. `${NAME}` stands for an environment variable."""
    storage_options: dict[str, Any] = Field(default_factory=dict)
    """Passed to fsspec, for a URL. `${NAME}` in a text stands for an environment variable; secrets
    given in clear are not written down.
    """

    @field_validator("path")
    @classmethod
    def _one_place(cls, value: str) -> str:
        if is_url(value) and local_part(value) is None:
            RemotePath(value)
        return value

    @model_validator(mode="after")
    def _options_for_urls(self) -> OutputSection:
        if self.storage_options and not is_url(self.path) and "${" not in self.path:
            raise ValueError(f"`storage_options` are for URLs; `path` is the folder {self.path}")
        return self


class TopKeys(Section):
    """The keys at the top of a spec, without the sections."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
    """Names the folder of the runs: letters, digits, `.`, `_` and `-`."""
    method: str
    """What decides: `multiselect` or `sequence`. The method's section has the same name."""
    seed: Annotated[int, Field(ge=0, lt=2**63, strict=True)] = 0
    """Every random stream of the job derives from it."""


@dataclass(frozen=True)
class JobSpec:
    """A checked job spec.

    Attributes
    ----------
    name : str
        Names the folder of the runs.
    method : str
    data : DataSection
    options : Section
        The method's section.
    engine : EngineSection
    seed : int
        Every random stream of the job derives from it.
    output : str
        Folder or URL of all runs.
    output_options : dict
        Storage options of that URL.
    tune : TuneSection or None
        Options of the method's section to choose by cross-validation.
    """

    name: str
    method: str
    data: DataSection
    options: Section
    engine: EngineSection
    seed: int
    output: str
    output_options: Mapping[str, Any] = field(default_factory=dict)
    tune: TuneSection | None = None

    def place(self, out: str | Path | None = None) -> Location:
        """Return the place of all runs, or of one that is named; storage is not asked.

        Parameters
        ----------
        out : str or path, optional
            Folder or URL of a run.

        Raises
        ------
        SpecError
            If the package for the URL's storage is not installed, or a variable is not set.
        """
        text = expand_variables(self.output) if out is None else str(out)
        options = expanded(self.output_options) if is_url(text) else None
        return locate(text, options)

    def to_mapping(self) -> dict[str, Any]:
        """Return the resolved spec, every default written out."""
        tune = {} if self.tune is None else {"tune": self.tune.model_dump(mode="json")}
        output: Any = self.output
        if self.output_options:
            output = {"path": self.output, "storage_options": dict(self.output_options)}
        return {
            "name": self.name,
            "method": self.method,
            "data": self.data.model_dump(mode="json"),
            self.method: self.options.model_dump(mode="json"),
            **tune,
            "engine": self.engine.model_dump(mode="json"),
            "seed": self.seed,
            "output": output,
        }

    def to_yaml(self) -> str:
        """Return the resolved spec as YAML that :func:`load_spec` reads back.

        What may be a secret in storage options and URLs, and is given in clear, is left out.
        """
        content = self.to_mapping()
        content["data"] = _without_secrets(content["data"])
        content["data"]["storage_options"] = hidden(self.data.storage_options)
        if self.output_options:
            content["output"]["storage_options"] = hidden(self.output_options)
        return write_yaml(content)

    def identity(self, inputs: Sequence[str]) -> str:
        """Hash of all that the result depends on.

        The engine, the place of the output and the ways to storage are left out: they never
        change a result.

        Parameters
        ----------
        inputs : sequence of str
            Fingerprints of the data.

        Returns
        -------
        str
            64 hexadecimal digits.
        """
        content = self.to_mapping()
        for key in ("engine", "output", "name"):
            del content[key]
        # A URL that is signed anew is the same place.
        content["data"] = {**_without_secrets(content["data"]), "storage_options": {}}
        content["inputs"] = list(inputs)
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def _without_secrets(value: Any) -> Any:
    """Return a section without what may be a secret in its URLs."""
    if isinstance(value, Mapping):
        return {key: _without_secrets(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_secrets(item) for item in value]
    return hidden_in_urls(value) if isinstance(value, str) else value


def require_lasting(place: Location | str) -> None:
    """Refuse a place that is gone when this process ends, for commands that end with their work.

    Parameters
    ----------
    place : path, RemotePath or URL

    Raises
    ------
    SpecError
    """
    if re.match("memory:", str(place), re.IGNORECASE):
        raise SpecError(
            f"{place} lives only in the memory of this process: what is written there would be "
            "gone when the command ends. Name a folder or other storage (`output` or --out)."
        )


def load_spec(path: str | Path, assignments: Sequence[str] = ()) -> JobSpec:
    """Read and check a spec file.

    Parameters
    ----------
    path : path
    assignments : sequence of str
        ``section.key=value`` pairs that override the file.

    Raises
    ------
    SpecError
        Naming the key that is wrong and what is expected there.
    """
    return build_spec(set_dotted(read_yaml(path), assignments))


def build_spec(content: Mapping[str, Any]) -> JobSpec:
    """Check the content of a spec; see :func:`load_spec`."""
    method = content.get("method")
    if not isinstance(method, str) or method not in METHODS:
        found = "is missing" if method is None else f"is {method!r}, which is no known method"
        raise SpecError(f"In the job spec, `method` {found}.{nearest(str(method), list(METHODS))}")
    sections = {"data", "engine", "output", "tune", method}
    known = [*TopKeys.model_fields, *sections]
    for key in content:
        if key not in known:
            raise SpecError(f"Unknown key `{key}` in the job spec.{_hint(str(key), known, method)}")
    output = content.get("output", {})
    if not isinstance(output, str | Mapping):
        raise SpecError(f"`output` is the folder or URL of all runs; found {output!r}.")
    kept = parse_section(
        OutputSection, {"path": output} if isinstance(output, str) else output, "output"
    )
    top = parse_section(TopKeys, {k: v for k, v in content.items() if k not in sections}, "")
    known_method, data = (
        load_method(method),
        parse_section(DataSection, content.get("data"), "data"),
    )
    own = content.get(method)
    if "tune" in content:
        tune = parse_section(TuneSection, content["tune"], "tune")
        options = options_to_tune(known_method, own, tune)
        tune = checked_grid(known_method, options, tune, data.folds)
    else:
        tune, options = None, parse_section(known_method.Options, own, method)
    return JobSpec(
        name=top.name,
        method=top.method,
        data=data,
        options=options,
        engine=parse_section(EngineSection, content.get("engine"), "engine"),
        seed=top.seed,
        output=kept.path,
        output_options=kept.storage_options,
        tune=tune,
    )


def _hint(key: str, known: Sequence[str], method: str) -> str:
    if key in METHODS:
        return f" This job's method is `{method}`, so its section is `{method}:`."
    return f"{nearest(key, known)} `distfms options` lists the keys and sections."
