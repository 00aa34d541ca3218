"""Feature groups: which columns are computed together, from names, globs and categoricals."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

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
