"""Hold rows out of the training data: the same ones each time, whatever the order of the rows, and no row twice."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from hashlib import blake2b

from tonnage.errors import DataError


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
