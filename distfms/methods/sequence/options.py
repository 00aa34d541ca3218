"""The ``sequence`` section of a job spec."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from distfms.errors import SpecError
from distfms.methods.sequence.groups import cost_table, cost_table_from_csv
from distfms.methods.sequence.rules import DEFAULT_BASELINES, parse_rule
from distfms.spec import NonNegative, Section, expand_variables

Family = Literal["gaussian", "logistic", "softmax", "poisson"]


class SharedCostSection(Section):
    """A cost that the first computed group of a set pays for all of the set."""

    groups: Annotated[tuple[str, ...], Field(min_length=1)]
    """Names or globs of groups."""
    cost: NonNegative
    """Paid once, beside the groups' own costs."""


class SequenceOptions(Section):
    """Which groups there are, what they cost, and by which rule they are put in order."""

    groups: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """For each group the names or globs of its columns. Every other column is its own group."""
    prefix_separator: Annotated[str, Field(min_length=1)] | None = None
    """Put the other columns together by the part of their name before it instead."""
    costs: dict[str, NonNegative] = Field(default_factory=dict)
    """Cost by group name or glob; `default` for the rest (1). What costs nothing comes
    first.
    """
    cost_file: str | None = None
    """CSV or Parquet with the columns `group` and `cost`. Its content is taken into `costs`, whose
    own entries go before those of the file, so that the resolved spec says all that the result
    depends on.
    """
    shared_costs: dict[str, SharedCostSection] = Field(default_factory=dict)
    """Costs by a name of their own that several groups share: `{groups: [...], cost: 5}`."""
    criterion: Literal["fr", "omp", "omp-single", "omp-no-whiten"] = "fr"
    """What a step maximises: with `fr` the gain in explained variance, with the others a function
    of the gradient at the present model, which is faster: whitened within the group (`omp`), its
    largest entry (`omp-single`) or its length (`omp-no-whiten`).
    """
    cost_aware: bool = True
    """Maximise the criterion per cost."""
    doubling: bool = False
    """Choose only among groups that cost at most what was spent so far."""
    ridge: NonNegative = 1e-5
    """λ, in units of the standardised columns."""
    family: Family = "gaussian"
    """Kind of label: a number, one of two classes, one of several, or a count."""
    max_refits: Annotated[int, Field(ge=1)] | None = None
    """Generalised linear models only: refit at most so often along the sequence."""
    baselines: tuple[str, ...] | None = None
    """A criterion with the endings `-blind` (costs play no part) and `-doubling`, or `oracle`,
    `sparse`, `random`. Left out: `omp, fr-blind, oracle, sparse`. Without the package celer,
    `sparse` is left out of the comparison, and a note says so.
    """
    alpha: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the final objective where α-timeliness is cut. Left out: by the plateau rule."""
    max_groups: Annotated[int, Field(ge=1)] | None = None
    """End the sequence after so many groups."""
    blocks: Literal["auto", "never", "always"] = "auto"
    """Whether the Gram matrix is computed, kept and searched in blocks of groups, on actors, so
    that no process holds all of it. Only for the family `gaussian` and a sequence that ends
    (`max_groups`) where its columns still fit one process, as the model and its evaluation need all
    of their products. `auto` does so where one process would take more than 4 GiB (whatever this
    machine has, as it decides about the result: there is then no cross-validation and no baseline
    `sparse`).
    """

    @model_validator(mode="before")
    @classmethod
    def _with_cost_file(cls, content: Any) -> Any:
        path = content.get("cost_file") if isinstance(content, dict) else None
        if not isinstance(path, str):
            return content
        own = content.get("costs") or {}
        if not isinstance(own, dict):
            return content
        return {**content, "cost_file": None, "costs": {**read_cost_file(path), **own}}

    @field_validator("groups", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: (v,) if isinstance(v, str) else v for name, v in value.items()}

    @field_validator("baselines")
    @classmethod
    def _known_baselines(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in value or ():
            parse_rule(name)
        return value

    @property
    def wanted_baselines(self) -> tuple[str, ...]:
        """Names of the baselines, by default or as asked for."""
        return DEFAULT_BASELINES if self.baselines is None else self.baselines

    def shared(self) -> dict[str, dict[str, object]]:
        """Shared costs as `resolve_costs` takes them."""
        return {
            name: {"groups": list(item.groups), "cost": item.cost}
            for name, item in self.shared_costs.items()
        }


def read_cost_file(path: str) -> dict[str, float]:
    """Read a table of costs.

    Parameters
    ----------
    path : str
        CSV or Parquet file with the columns ``group`` and ``cost``; ``${NAME}`` stands for an
        environment variable.

    Returns
    -------
    dict of str to float

    Raises
    ------
    SpecError
        If the file cannot be read, lacks a column, names a group twice or holds a cost that is no
        positive number.
    """
    file = Path(expand_variables(path))
    try:
        if file.suffix.lower() in (".parquet", ".pq"):
            return cost_table(_parquet_rows(file))
        with file.open(encoding="utf-8-sig", newline="") as lines:
            return cost_table_from_csv(lines)
    except FileNotFoundError as error:
        raise SpecError(f"There is no cost file {file}. Check `sequence.cost_file`.") from error
    except SpecError as error:
        raise SpecError(f"In the cost file {file}: {error}") from error
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise SpecError(f"The cost file {file} cannot be read: {error}.") from error


def _parquet_rows(file: Path) -> list[tuple[str, float]]:
    """Rows (group, cost) of a Parquet file."""
    import pyarrow.parquet as pq

    table = pq.read_table(file)
    for name in ("group", "cost"):
        if name not in table.column_names:
            raise SpecError(
                f"A cost table needs the columns 'group' and 'cost'; it has {table.column_names}."
            )
    groups = [str(group) for group in table.column("group").to_pylist()]
    return list(zip(groups, table.column("cost").to_pylist(), strict=True))
