"""The keys in which two workload files differ, and the states between them, one key at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tonnage.values import dataclass

KeyPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyChange:
    """One key: its value before and after; None where a file does not have it."""

    path: KeyPath
    before: Any
    after: Any

    @property
    def key(self) -> str:
        """The key as people write it: `data.epochs`."""
        return ".".join(self.path)


def changed_keys(before: Mapping[str, Any], after: Mapping[str, Any], above: KeyPath = ()) -> tuple[KeyChange, ...]:
    """Every key that differs, in the order of `after`, then those that are gone. Lists count as one value.

    >>> [one.key for one in changed_keys({"data": {"epochs": 1, "samples": 9}}, {"data": {"epochs": 2, "samples": 9}})]
    ['data.epochs']
    """
    found: list[KeyChange] = []
    for name in dict.fromkeys([*after, *before]):
        old, new = before.get(name), after.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += changed_keys(old, new, (*above, name))
        elif old != new:
            found.append(KeyChange((*above, name), old, new))
    return tuple(found)


def states_between(
    before: Mapping[str, Any], changes: tuple[KeyChange, ...]
) -> Iterator[tuple[KeyChange, dict[str, Any]]]:
    """The file after each change in turn, those before it kept; the last one is the file after all."""
    state = _copied(before)
    for change in changes:
        _put(state, change)
        yield change, _copied(state)


def _put(state: dict[str, Any], change: KeyChange) -> None:
    *sections, name = change.path
    for section in sections:
        inner = state.setdefault(section, {})
        state = inner
    if change.after is None:
        state.pop(name, None)
    else:
        state[name] = change.after


def _copied(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _copied(entry) if isinstance(entry, Mapping) else entry for name, entry in value.items()}
