"""What differs between two places and between what is sent to them. Pure."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tonnage.relocation.relocation import TermChange
from tonnage.values import dataclass

CONTEXT_LINES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTerms:
    """The table of a place in places.toml."""

    kind: str
    values: Mapping[str, Any]  # by key, defaults included; None: not written down
    written: frozenset[str]  # keys that the file names


def term_changes(before: WrittenTerms, after: WrittenTerms, *, apart: frozenset[str]) -> Iterator[TermChange]:
    """Every written key whose value differs, and every one that the other kind does not have. `apart`: keys left out.

    >>> slurm = WrittenTerms(kind="slurm", values={"grace_s": 60, "qos": "high"}, written=frozenset({"qos"}))
    >>> ssh = WrittenTerms(kind="ssh", values={"grace_s": 30, "user": None}, written=frozenset({"grace_s"}))
    >>> [(one.name, one.before, one.after) for one in term_changes(slurm, ssh, apart=frozenset())]
    [('grace_s', '60', '30'), ('qos', 'high', None)]
    """
    for key in dict.fromkeys((*before.values, *after.values)):
        if key in apart:
            continue
        was, now = before.values.get(key), after.values.get(key)
        if key in before.values and key in after.values:
            if was != now and key in before.written | after.written:
                yield TermChange(name=key, before=shown(was), after=shown(now))
        elif key in before.written and was is not None:
            note = f"a place of kind {after.kind} has no such key"
            yield TermChange(name=key, before=shown(was), after=None, note=note)
        elif key in after.written and now is not None:
            note = f"a place of kind {before.kind} has no such key"
            yield TermChange(name=key, before=None, after=shown(now), note=note)


def shown(value: Any) -> str | None:
    """A value of TOML as a cell shows it.

    >>> shown(["a", "b"]), shown("gpu"), shown(True), shown(None)
    ('["a", "b"]', 'gpu', 'true', None)
    """
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def body_diff(before: str, after: str, *, names: tuple[str, str]) -> tuple[str, ...]:
    """What is sent to the one place and to the other, as a unified diff; empty where it is the same.

    >>> body_diff("a\\nb\\n", "a\\nc\\n", names=("one", "other"))
    ('--- one', '+++ other', '@@ -1,2 +1,2 @@', ' a', '-b', '+c')
    """
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), fromfile=names[0], tofile=names[1], lineterm="", n=CONTEXT_LINES
    )
    return tuple(lines)
