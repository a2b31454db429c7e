"""The audit: a line that was changed, taken out or put in is found."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tonnage.errors import DataError
from tonnage.monitoring.audit import AuditFile

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def audit(tmp_path: Path) -> AuditFile:
    made = AuditFile(tmp_path / "audit.jsonl")
    for number in range(5):
        made.append(at=AT, who="watch", what="done", rule=f"r{number}", words="Größe ≥ 5")
    return made


def test_lines_follow_from_one_another(audit: AuditFile) -> None:
    """Numbers from 1; what was written is read."""
    found = list(audit.lines())
    assert [one.number for one in found] == [1, 2, 3, 4, 5]
    assert found[2].fields == {"rule": "r2", "words": "Größe ≥ 5"}


@pytest.mark.parametrize(
    ("forge", "line"),
    [
        (lambda lines: [*lines[:2], lines[2].replace("r2", "r9"), *lines[3:]], 3),
        (lambda lines: [*lines[:2], *lines[3:]], 3),
        (lambda lines: [lines[1], lines[0], *lines[2:]], 1),
        (lambda lines: [*lines[:4], lines[3], lines[4]], 5),
        (lambda lines: [*lines[:4], "{}\n", lines[4]], 5),
        (lambda lines: [*lines[:4], "[1]\n", lines[4]], 5),
    ],
)
def test_a_forged_line_is_found(audit: AuditFile, forge: Callable[[list[str]], list[str]], line: int) -> None:
    """Changed, taken out, moved, repeated, put in: the first line that does not follow is named."""
    lines = audit.path.read_text("utf-8").splitlines(keepends=True)
    audit.path.write_text("".join(forge(lines)), "utf-8")
    with pytest.raises(DataError, match=rf"audit\.jsonl:{line}: "):
        list(audit.lines())


def test_a_line_that_a_kill_cut_is_passed_over(audit: AuditFile) -> None:
    """Nobody was told that it stands; the next line follows from the one before it."""
    with audit.path.open("a", encoding="utf-8") as file:
        file.write('{"number": 6, "who": "wat')
    audit.append(at=AT, who="watch", what="done", rule="after")
    assert [one.fields["rule"] for one in audit.lines()][-2:] == ["r4", "after"]


def test_writers_take_turns(audit: AuditFile) -> None:
    """Forty lines of eight threads: each has its own number, and all follow."""
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: audit.append(at=AT, who="t", what="done", rule=str(number)), range(40)))
    assert [one.number for one in audit.lines()] == list(range(1, 46))
