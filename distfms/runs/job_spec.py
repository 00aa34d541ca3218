"""The whole job spec: the common sections and the method's own."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, field_validator

from distfms.errors import SpecError, nearest
from distfms.methods import METHODS, method_job
from distfms.spec import (
    DataSection,
    EngineSection,
    Section,
    parse_section,
    read_yaml,
    set_dotted,
)


def is_url(path: str) -> bool:
    """Whether a path names a place on remote storage, such as ``s3://bucket/runs``."""
    # Also as pathlib writes it, with one slash.
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", path) is not None


class _Top(Section):
    """The keys at the top of a spec, without the sections."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
    method: str
    seed: Annotated[int, Field(ge=0, lt=2**63, strict=True)] = 0
    output: str = "runs"

    @field_validator("output")
    @classmethod
    def _on_a_file_system(cls, value: str) -> str:
        if is_url(value):
            raise ValueError(
                "a run is written to a folder, not to object storage, which has no renames that a "
                "resumed run could trust; name a folder, for a cluster one on a shared file system "
                "(the data may be anywhere)"
            )
        return value


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
        Folder of all runs.
    """

    name: str
    method: str
    data: DataSection
    options: Section
    engine: EngineSection
    seed: int
    output: str

    def to_mapping(self) -> dict[str, Any]:
        """Return the resolved spec, every default written out."""
        return {
            "name": self.name,
            "method": self.method,
            "data": self.data.model_dump(mode="json"),
            self.method: self.options.model_dump(mode="json"),
            "engine": self.engine.model_dump(mode="json"),
            "seed": self.seed,
            "output": self.output,
        }

    def to_yaml(self) -> str:
        """Return the resolved spec as YAML that :func:`load_spec` reads back."""
        return yaml.safe_dump(self.to_mapping(), sort_keys=False, allow_unicode=True)

    def identity(self, inputs: Sequence[str]) -> str:
        """Hash of all that the result depends on.

        The engine and the place of the output are left out: they never change a result.

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
        content["inputs"] = list(inputs)
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


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
    if method not in METHODS:
        found = "is missing" if method is None else f"is {method!r}, which is no known method"
        raise SpecError(f"In the job spec, `method` {found}.{nearest(str(method), list(METHODS))}")
    sections = {"data", "engine", method}
    known = [*_Top.model_fields, *sections]
    for key in content:
        if key not in known:
            raise SpecError(f"Unknown key `{key}` in the job spec.{_hint(str(key), known, method)}")
    top = parse_section(_Top, {k: v for k, v in content.items() if k not in sections}, "")
    return JobSpec(
        name=top.name,
        method=top.method,
        data=parse_section(DataSection, content.get("data"), "data"),
        options=parse_section(method_job(method).Options, content.get(method), method),
        engine=parse_section(EngineSection, content.get("engine"), "engine"),
        seed=top.seed,
        output=top.output,
    )


def _hint(key: str, known: Sequence[str], method: str) -> str:
    if key in METHODS:
        return f" This job's method is `{method}`, so its section is `{method}:`."
    return nearest(key, known)
