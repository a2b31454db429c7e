"""The rows a task learns from, watches and is tested on, as its specification asks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from tonnage.errors import DataError
from tonnage.recipes.data.reading import read_rows
from tonnage.recipes.data.rows import DatasetRows
from tonnage.runs.spec import DataSource, DataSpec
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Splits:
    """Rows by use."""

    train: DatasetRows
    validation: DatasetRows
    test: DatasetRows | None

    def __iter__(self) -> Iterator[DatasetRows]:
        yield from (rows for rows in (self.train, self.validation, self.test) if rows is not None)


def load_splits(
    data: DataSpec,
    *,
    roles: Sequence[str] | None,
    same: Sequence[str],
    stratify: str | None = None,
    are_classes: Callable[[DatasetRows], bool] = lambda _: True,
) -> Splits:
    """Read all sources; where no validation is given, hold rows out of train.

    `roles` are the columns read (None: all there are); `same` the roles whose values make two rows the same one (such
    rows stay together, unless `group` names a column that says it); `stratify` is the role of the label,
    where `are_classes`.
    """
    names = dict(data.columns)
    wanted = None if roles is None else frozenset([names[role] for role in roles if role in names])
    if wanted is not None and data.group is not None:
        wanted |= {data.group}
    train = read_split(data.train, "`run.data.train`", names, wanted)
    test = None if data.test is None else read_split(data.test, "`run.data.test`", names, wanted)
    if data.validation is not None:
        validation = read_split(data.validation, "`run.data.validation`", names, wanted)
        return Splits(train=train, validation=validation, test=test)
    label = names.get(stratify) if stratify is not None and are_classes(train) else None
    kept, out = _positions(train, data, [names[role] for role in same if role in names], label)
    return Splits(train=train.part(kept, "train"), validation=train.part(out, "validation"), test=test)


def read_split(source: DataSource, name: str, names: Mapping[str, str], wanted: frozenset[str] | None) -> DatasetRows:
    """The rows of one source. DataError where a column that plays a role is not there."""
    rows = read_rows(source, name=name, wanted=wanted)
    for role, column in names.items():
        if wanted is None or column in wanted:
            rows.column(column, role)
    return rows


def _positions(
    rows: DatasetRows, data: DataSpec, same: Sequence[str], label: str | None
) -> tuple[list[int], list[int]]:
    if len(rows) < 2:
        raise DataError(f"{rows.name} has one row: none can be held out", hint="give more rows, or `validation:`")
    groups: Sequence[Hashable]
    if data.group is not None:
        values = rows.column(data.group, "group")
        groups = [("row", at) if value is None else _hashable(value) for at, value in enumerate(values)]
    elif same:
        groups = [_hashable(values) for values in zip(*(rows.columns[name] for name in same), strict=True)]
    else:
        groups = range(len(rows))
    classes = [_hashable(value) for value in rows.columns[label]] if label is not None else None
    return held_out(groups, classes, fraction=data.validation_fraction, seed=data.seed)


def _hashable(value: Any) -> Hashable:
    if isinstance(value, (list, tuple)):
        return tuple(_hashable(one) for one in value)
    return repr(sorted(value.items())) if isinstance(value, dict) else value


def held_out(
    groups: Sequence[Hashable], classes: Sequence[Hashable] | None, *, fraction: float, seed: int
) -> tuple[list[int], list[int]]:
    """Positions (kept, held out), each in their order in the data.

    Rows with one value in `groups` stay together. With `classes`, the same share of each class is held out as far as
    groups allow. Which groups are taken follows from their values and the seed alone: a hash orders them.

    >>> held_out(["a", "b", "a", "c", "d"], None, fraction=0.4, seed=0)
    ([0, 2, 4], [1, 3])
    """
    members: dict[Hashable, list[int]] = defaultdict(list)
    for position, group in enumerate(groups):
        members[group].append(position)
    if len(members) < 2:
        raise DataError(
            "one group holds all rows: none can be held out", hint="name another `group`, or a `validation`"
        )
    taken: set[Hashable] = set()
    owed = 0.0  # what classes before this one could not give in whole groups
    for _, part in sorted(_by_class(members, classes).items(), key=lambda item: repr(item[0])):
        if len(part) < 2 and classes is not None:
            continue  # the only group of its class is learned from
        ordered = sorted(part, key=lambda group: _rank(group, seed))
        wanted = owed + fraction * sum(len(members[group]) for group in ordered)
        chosen = _first_groups(ordered, members, wanted)
        taken.update(chosen)
        owed = wanted - sum(len(members[group]) for group in chosen)
    if not taken or len(taken) == len(members):
        taken = {min(members, key=lambda group: _rank(group, seed))}
    kept = [position for position, group in enumerate(groups) if group not in taken]
    return kept, [position for position, group in enumerate(groups) if group in taken]


def _by_class(members: dict[Hashable, list[int]], classes: Sequence[Hashable] | None) -> dict[Hashable, list[Hashable]]:
    """Groups by the class most of their rows have (the first of the commonest)."""
    parts: dict[Hashable, list[Hashable]] = defaultdict(list)
    for group, positions in members.items():
        kind = None if classes is None else Counter(classes[at] for at in positions).most_common(1)[0][0]
        parts[kind].append(group)
    return parts


def _first_groups(ordered: list[Hashable], members: dict[Hashable, list[int]], wanted: float) -> list[Hashable]:
    """As many groups, in this order, as come nearest to `wanted` rows; one too large is passed over."""
    taken, rows = [], 0
    for group in ordered:
        size = len(members[group])
        if abs(rows + size - wanted) <= abs(rows - wanted) and rows < wanted:
            taken.append(group)
            rows += size
    return taken if len(taken) < len(ordered) else taken[:-1]


def _rank(group: Hashable, seed: int) -> bytes:
    return blake2b(f"{seed}|{group!r}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
