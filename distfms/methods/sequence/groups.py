"""Groups of features, what they cost, and costs that several groups share."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

import numpy as np

from distfms.errors import SpecError, nearest


@dataclass(frozen=True)
class FeatureGroups:
    """A partition of feature columns into named groups.

    Attributes
    ----------
    names : tuple of str
        Names of the J groups, all different. The position of a group here is its index: ties
        in a selection go to the lowest.
    columns : tuple of tuple of int
        Positions of each group's columns, ascending; every column is in exactly one group.
    """

    names: tuple[str, ...]
    columns: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def n_columns(self) -> int:
        """Number of columns over all groups."""
        return sum(len(columns) for columns in self.columns)

    def restrict(self, kept: Sequence[int]) -> tuple[FeatureGroups, tuple[int, ...]]:
        """Keep a subset of the columns, renumbered; groups left empty disappear.

        Parameters
        ----------
        kept : sequence of int
            Column positions that stay, ascending.

        Returns
        -------
        groups : FeatureGroups
            Positions now count within `kept`.
        surviving : tuple of int
            Former indices of the groups that still have a column.
        """
        position = {column: new for new, column in enumerate(kept)}
        columns = [tuple(position[c] for c in group if c in position) for group in self.columns]
        surviving = tuple(index for index, group in enumerate(columns) if group)
        groups = FeatureGroups(
            tuple(self.names[i] for i in surviving), tuple(columns[i] for i in surviving)
        )
        return groups, surviving


def resolve_groups(
    column_names: Sequence[str],
    groups: Mapping[str, str | Sequence[str]] | None = None,
    *,
    sources: Sequence[str] | None = None,
    prefix_separator: str | None = None,
) -> FeatureGroups:
    """Turn the groups of a job spec into a partition of the block's columns.

    Parameters
    ----------
    column_names : sequence of str
        Columns of the block, D of them.
    groups : mapping of str to str or sequence of str, optional
        For each group the names or globs (``bp_*``) of its columns. They are matched against
        `sources`, so a categorical column is in a group as a whole.
    sources : sequence of str, optional
        For each block column the data column it was made from; several block columns with one
        source are the one-hot columns of a categorical. Default: `column_names`.
    prefix_separator : str, optional
        Columns that no group names are put together by the part of their name before the first
        separator. Without it every other data column is its own group.

    Returns
    -------
    FeatureGroups
        The groups of the spec in its order, then the others in order of their first column.

    Raises
    ------
    SpecError
        If a name or glob matches nothing, a column is in two groups or listed twice, a group is
        empty, or two groups would have one name.
    """
    sources = list(column_names if sources is None else sources)
    if len(sources) != len(column_names):
        raise SpecError(f"{len(column_names)} columns but {len(sources)} sources.")
    known = dict.fromkeys(sources)  # in order, and quick to look up where there are many
    owner: dict[str, str] = {}
    members: dict[str, list[str]] = {}
    for group, patterns in (groups or {}).items():
        members[group] = _members_of(group, patterns, known, owner)
    for source in known:
        if source not in owner:
            name = source.split(prefix_separator, 1)[0] if prefix_separator else source
            if name in (groups or {}):
                raise SpecError(
                    f"Column {source!r} is in no group and would make a group named {name!r} of "
                    f"its own, but the spec has a group of that name: rename the group or list "
                    f"the column in one."
                )
            owner[source] = name
            members.setdefault(name, []).append(source)
    columns: dict[str, list[int]] = {name: [] for name in members}
    for position, source in enumerate(sources):
        columns[owner[source]].append(position)
    return FeatureGroups(tuple(columns), tuple(tuple(c) for c in columns.values()))


def _members_of(
    group: str, patterns: str | Sequence[str], known: Collection[str], owner: dict[str, str]
) -> list[str]:
    """Columns of one group; notes in `owner` whose they are and refuses overlaps."""
    listed = [patterns] if isinstance(patterns, str) else list(patterns)
    for pattern in listed:
        if listed.count(pattern) > 1:
            raise SpecError(f"Group {group!r} lists {pattern!r} twice.")
    members = list(dict.fromkeys(c for pattern in listed for c in _matches(group, pattern, known)))
    if not members:
        raise SpecError(f"Group {group!r} has no columns.")
    for column in members:
        if column in owner:
            raise SpecError(
                f"Column {column!r} is in group {owner[column]!r} and in group {group!r}; groups "
                f"must not overlap, because a column is computed, and paid for, once."
            )
        owner[column] = group
    return members


def _matches(group: str, pattern: str, known: Collection[str]) -> list[str]:
    """Columns that one name or glob stands for."""
    if pattern in known:  # first, so that a name with brackets in it is not read as a glob
        return [pattern]
    found = [column for column in known if fnmatchcase(column, pattern)]
    if not found:
        raise SpecError(
            f"{pattern!r} of group {group!r} is no feature column.{nearest(pattern, known)}"
        )
    return found


@dataclass(frozen=True)
class SharedCost:
    """A cost that the first computed group of a set pays for all of the set.

    Attributes
    ----------
    name : str
        What is paid for (``blood sample``).
    groups : tuple of int
        Indices of the groups that need it.
    cost : float
        At least 0, in the unit of the groups' own costs.
    """

    name: str
    groups: tuple[int, ...]
    cost: float


@dataclass(frozen=True)
class GroupCosts:
    """Costs of J groups, given what has been paid already.

    The cost of g at S is own(g) plus every shared cost that g needs and no group of S needed.

    Attributes
    ----------
    own : numpy.ndarray of shape (J,)
        What a group costs by itself, at least 0.
    shared : tuple of SharedCost
        Costs paid once by the first group that needs them.
    """

    own: np.ndarray
    shared: tuple[SharedCost, ...] = ()

    @cached_property
    def _needs(self) -> np.ndarray:
        """Which group (row) needs which shared cost (column), as 0 and 1."""
        needs = np.zeros((len(self.own), len(self.shared)))
        for column, item in enumerate(self.shared):
            needs[list(item.groups), column] = 1.0
        return needs

    @cached_property
    def _shared_costs(self) -> np.ndarray:
        return np.array([item.cost for item in self.shared], dtype=np.float64)

    @property
    def alone(self) -> np.ndarray:
        """Cost of each group when it is the first, shape (J,)."""
        return self.marginal(())

    def marginal(self, chosen: Sequence[int]) -> np.ndarray:
        """Cost of each group once `chosen` are computed, shape (J,)."""
        if not self.shared:
            return self.own
        unpaid = ~self._needs[list(chosen)].any(axis=0)
        return self.own + self._needs @ (self._shared_costs * unpaid)

    def of_order(self, order: Sequence[int]) -> np.ndarray:
        """Cost of each step when groups are computed in this order, shape (len(order),)."""
        steps = [self.marginal(order[:step])[group] for step, group in enumerate(order)]
        return np.array(steps, dtype=np.float64)

    def take(self, groups: Sequence[int]) -> GroupCosts:
        """Costs of some of the groups, renumbered; sets left without a group disappear."""
        position = {group: new for new, group in enumerate(groups)}
        shared = (
            SharedCost(s.name, tuple(position[g] for g in s.groups if g in position), s.cost)
            for s in self.shared
        )
        return GroupCosts(self.own[list(groups)], tuple(s for s in shared if s.groups))


def resolve_costs(
    names: Sequence[str],
    costs: Mapping[str, float] | None = None,
    *,
    shared: Mapping[str, Mapping[str, object]] | None = None,
) -> GroupCosts:
    """Costs of named groups from a job spec.

    Parameters
    ----------
    names : sequence of str
        Names of the groups, in their order.
    costs : mapping of str to float, optional
        Cost by group name or glob; an exact name goes before a glob. ``default`` is the cost of
        the groups not named, 1 if it is left out.
    shared : mapping, optional
        For each shared cost ``{"groups": [names or globs], "cost": number}``.

    Returns
    -------
    GroupCosts

    Raises
    ------
    SpecError
        If a name is unknown, a group is met by two globs, or a cost is not a number of at least 0.
    """
    costs = dict(costs or {})
    if "default" in costs and "default" in names:
        raise SpecError("A group is named 'default', which in costs means every other group.")
    default = _cost("default", costs.pop("default", 1.0))
    own = np.full(len(names), default)
    by_glob: dict[int, str] = {}
    position = {name: group for group, name in enumerate(names)}
    for pattern, value in sorted(costs.items(), key=lambda item: item[0] in position):
        exact = pattern in position
        for group in _groups_of(pattern, position, "costs"):
            if not exact and group in by_glob:
                raise SpecError(
                    f"The cost of group {names[group]!r} is given by {by_glob[group]!r} and by "
                    f"{pattern!r}; give it by its name."
                )
            by_glob[group] = pattern
            own[group] = _cost(pattern, value)
    items = (shared or {}).items()
    return GroupCosts(own, tuple(_shared(name, item, position) for name, item in items))


def _shared(name: str, item: Mapping[str, object], names: Mapping[str, int]) -> SharedCost:
    """One shared cost of the spec."""
    unknown = sorted(set(item) - {"groups", "cost"})
    if unknown or "groups" not in item or "cost" not in item:
        raise SpecError(f"Shared cost {name!r} needs the keys 'groups' and 'cost', no others.")
    listed = item["groups"]
    if isinstance(listed, str) or not isinstance(listed, Sequence):
        raise SpecError(f"'groups' of shared cost {name!r} must be a list of group names.")
    where = f"shared cost {name!r}"
    groups = sorted({g for pattern in listed for g in _groups_of(str(pattern), names, where)})
    return SharedCost(name, tuple(groups), _cost(name, item["cost"]))


def _groups_of(pattern: str, names: Mapping[str, int], where: str) -> list[int]:
    """Find the indices of the groups that a name or glob stands for."""
    if pattern in names:
        return [names[pattern]]
    found = [index for index, name in enumerate(names) if fnmatchcase(name, pattern)]
    if not found:
        raise SpecError(f"{pattern!r} in {where} is no group.{nearest(pattern, names)}")
    return found


def _cost(name: str, value: object) -> float:
    """Check that a cost is finite and at least 0."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise SpecError(f"The cost of {name!r} is {value!r}, which is not a number.") from None
    if not math.isfinite(number) or number < 0:
        raise SpecError(f"The cost of {name!r} is {value!r}; it must be finite and at least 0.")
    return number


def cost_table(rows: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Costs from the rows (group, cost) of a table, for `resolve_costs`.

    Raises
    ------
    SpecError
        If a group is named twice or a cost is not a number of at least 0.
    """
    costs: dict[str, float] = {}
    for group, cost in rows:
        if group in costs:
            raise SpecError(f"The cost table names group {group!r} twice.")
        costs[group] = _cost(group, cost)
    return costs


def cost_table_from_csv(lines: Iterable[str]) -> dict[str, float]:
    """Costs from the lines of a CSV file with the columns ``group`` and ``cost``.

    Raises
    ------
    SpecError
        If a column is missing, a group is named twice, or a cost is not a number of at least 0.
    """
    reader = csv.DictReader(lines)
    fields = reader.fieldnames or []
    if "group" not in fields or "cost" not in fields:
        raise SpecError(f"A cost table needs the columns 'group' and 'cost'; it has {fields}.")
    return cost_table((row["group"], _cost(row["group"], row["cost"])) for row in reader)
