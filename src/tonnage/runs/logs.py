"""Logs of a run: when which part was written (the times are beside the workers' words), and those of each machine."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tonnage.errors import InputError
from tonnage.runs.folder import RunFolder, append_values
from tonnage.runs.log_parts import LOG, end_of, left_out, newest_begins, read_at
from tonnage.runs.tail import Tail, offset_of_last_lines

NOTE_EVERY_S: Final = 1.0
PIECE_BYTES: Final = 1 << 20
MACHINE_LOG: Final = re.compile(r"log-machine-\d+\.txt")  # of what the workers of a further machine print


def machine_log(number: int) -> str:
    """The log's name of a machine of a run; the first is 1, and has the run's own.

    >>> machine_log(2)
    'log-machine-2.txt'
    """
    return f"log-machine-{number}.txt"


def machine_logs(folder: RunFolder) -> list[str]:
    """Those of further machines that are in a run's folder."""
    found = (one.name for one in folder.path.glob("log-machine-*.txt") if MACHINE_LOG.fullmatch(one.name))
    return sorted(found, key=machine_of)


def log_of_machine(folder: RunFolder, number: int) -> Path:
    """The log of a machine, the first is 1. InputError where there is none."""
    found = folder.log_file if number == 1 else folder.path / machine_log(number)
    if found.exists():
        return found
    has = ", ".join(re.sub(r"\D", "", name) for name in machine_logs(folder))
    hint = f"--machine 1, {has}" if has else "places whose machines meet in a bucket have one for each further machine"
    raise InputError(f"the run has no log of machine {number}", hint=hint)


class LogTail:
    """Where reading has come to in a log, whose newest part may have been begun since."""

    def __init__(self, log: Path, position: int = 0) -> None:
        self._log, self._position = log, position

    def lines(self) -> list[str]:
        """Whole lines since the last call, PIECE_BYTES at most; a line that is longer comes in pieces.

        What has gone with the oldest part is reported in a line.
        """
        begin, block = read_at(str(self._log), self._position, PIECE_BYTES)
        if not block and end_of(str(self._log)) < self._position:  # a new log in its place
            begin, block = read_at(str(self._log), 0, PIECE_BYTES)
            self._position = begin
        gone = begin - self._position
        whole = block if len(block) == PIECE_BYTES and b"\n" not in block else block[: block.rfind(b"\n") + 1]
        self._position = begin + len(whole)
        said = [left_out(gone, str(self._log), gone=gone).rstrip()] if gone else []
        return said + whole.decode("utf-8", errors="replace").removesuffix("\n").split("\n") if whole else said


class RunLogs:
    """The logs of all machines of a run, or of one, as they grow. Lines of further machines have its number before.

    `offsets`: the position in each where reading begins (`log_parts`); 0 where there is none.
    """

    def __init__(self, folder: RunFolder, *, offsets: Mapping[str, int], machine: int | None = None) -> None:
        self._folder, self._offsets, self._machine = folder, offsets, machine
        self._tails: dict[str, LogTail] = {}

    def lines(self) -> Iterator[str]:
        """Whole lines since the last call, a few MiB of them in memory."""
        for name in self._names():
            offset = self._offsets.get(name, 0)
            tail = self._tails.setdefault(name, LogTail(self._folder.path / name, offset))
            before = "" if name == LOG or self._machine is not None else f"[{machine_of(name)}] "
            while found := tail.lines():
                for line in found:
                    yield before + line

    def _names(self) -> list[str]:
        if self._machine is None:
            return [LOG, *machine_logs(self._folder)]
        return [LOG if self._machine == 1 else machine_log(self._machine)]


def machine_of(log: str) -> int:
    """The number of the machine whose log has this name.

    >>> machine_of("log.txt"), machine_of("log-machine-12.txt")
    (1, 12)
    """
    return 1 if log == LOG else int(re.sub(r"\D", "", log))


def lengths(folder: RunFolder) -> dict[str, int]:
    """Of the logs that are there, in bytes with all that was ever written: where a newer start's words begin."""
    found = (folder.path / name for name in (LOG, *machine_logs(folder)))
    return {path.name: end_of(str(path)) for path in found if path.exists()}


def position_of_last_lines(log: Path, count: int) -> int:
    """Where the last `count` whole lines of the newest part begin, from the first byte that was ever written."""
    return newest_begins(str(log)) + offset_of_last_lines(log, count)


def bytes_from(log: Path, position: int) -> Iterator[bytes]:
    """The log from a position on, in blocks, over all parts that are still there."""
    while True:
        begin, block = read_at(str(log), position, PIECE_BYTES)
        if not block:
            return
        yield block
        position = begin + len(block)


def index_file(log: Path) -> Path:
    return log.with_name(log.name + ".index")


class LogIndex:
    """Notes at most once a second how long the log was."""

    def __init__(self, log: Path) -> None:
        self._path = index_file(log)
        self._next = 0.0

    def note(self, position: int) -> None:
        """What comes from this position on is written now."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + NOTE_EVERY_S
        append_values(self._path, {"at": datetime.now(UTC).isoformat(), "offset": position})


def timed_lines(log: Path, position: int = 0) -> Iterator[str]:
    """Lines of a log from a position on, each with the time (UTC) its part was written, to the second."""
    notes = [(int(one["offset"]), str(one["at"])) for one in Tail(index_file(log)).values()]
    offset, _ = read_at(str(log), position, 1)
    for raw in _lines_of(bytes_from(log, offset)):
        while len(notes) > 1 and notes[1][0] <= offset:
            notes.pop(0)
        at = notes[0][1][:19].replace("T", " ") if notes else "?"
        yield f"{at}  {raw.decode('utf-8', errors='replace')}"
        offset += len(raw)


def _lines_of(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines with their ends, wherever blocks are cut."""
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        yield from (line + b"\n" for line in whole)
    if rest:
        yield rest


def position_since(log: Path, since: datetime) -> int:
    """Where in a log the lines written at `since` or later begin, to the second; its end where there are none."""
    for noted in Tail(index_file(log)).values():
        if datetime.fromisoformat(noted["at"]) >= since:
            return int(noted["offset"])
    return end_of(str(log))
