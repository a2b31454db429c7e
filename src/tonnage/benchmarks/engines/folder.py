"""The folder of a bench: what it began with, the journal of finished cells, its lock."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tonnage.benchmarks.engines.surroundings import SAME
from tonnage.calibration.tabular_file import load_tabular, tabular_file
from tonnage.calibration.tabular_fit import TabularFit
from tonnage.errors import InputError, TonnageError
from tonnage.files import make_private_folder, write_whole
from tonnage.side_by_side.cells import BenchCell, read_cell
from tonnage.side_by_side.spec import BenchSpec


def remove_tables(place: Path) -> None:
    """Remove a folder of tables or of workers, where there is one. TonnageError where it cannot be removed: what stays
    would be taken for the tables of another file."""
    if not place.exists():
        return
    try:
        shutil.rmtree(place)
    except OSError as error:
        hint = f"remove {place} by hand"
        raise TonnageError(f"old tables cannot be removed: {error.strerror}: {error.filename}", hint=hint) from error


class BenchFolder:
    """`HOME/benches/NAME`. Cells are appended to `journal.jsonl`, each on the disk before the next begins."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = path / "journal.jsonl"
        self.report = path / "report.html"
        self._sessions = path / "sessions.jsonl"
        self._corrections = path / "predicted-with"

    def begin(self, spec: BenchSpec, *, resume: bool) -> None:
        """Make the folder, or go on in it. InputError where one with something measured is there without `resume`, or
        of another file. What was only looked at (a dry run) is begun again, with the tables of its file."""
        stated = self.path / "bench.json"
        if stated.is_file() and not self._measured():
            if json.loads(stated.read_text(encoding="utf-8"))["digest"] != spec.digest:
                remove_tables(self.path / "data")
                (self.path / "rows.json").unlink(missing_ok=True)
            stated.unlink()
        if stated.is_file() and not resume:
            hint = "--resume goes on with it, --fresh begins again, or give the bench another `name`"
            raise InputError(f"a bench '{spec.name}' is there already, in {self.path}", hint=hint)
        if stated.is_file():
            if json.loads(stated.read_text(encoding="utf-8"))["digest"] != spec.digest:
                hint = "--fresh begins again; finished cells of another file cannot be compared with new ones"
                raise InputError(f"the file of bench '{spec.name}' has changed since it began", hint=hint)
            return
        make_private_folder(self.path)
        write_whole(stated, json.dumps({"name": spec.name, "digest": spec.digest}))

    def _measured(self) -> bool:
        return bool(self.cells()) or any((self.path / "search").glob("*"))

    def hold_to(self, digests: Mapping[str, Mapping[str, str]]) -> None:
        """Remember the rows by the digests of their parts. InputError where cells were measured on others: a file or a
        query that gives other rows than when the bench began."""
        stated = self.path / "rows.json"
        known = json.loads(stated.read_text(encoding="utf-8")) if stated.is_file() else {}
        for name, parts in digests.items():
            if name in known and known[name] != dict(parts) and self.cells():
                hint = "--fresh begins again: finished cells cannot be compared with those of other rows"
                raise InputError(f"the rows of data set '{name}' have changed since the bench began", hint=hint)
        make_private_folder(self.path)
        write_whole(stated, json.dumps({name: dict(parts) for name, parts in digests.items()}))

    def enter(self, surroundings: Mapping[str, str], home: Path) -> None:
        """Remember the machine and its settings of this session, and, before the first cell, the corrections at `home`:
        the prediction stays the one that was made before anything was measured.

        InputError where finished cells are of another machine.
        """
        before = self.sessions()
        for key in SAME if self.cells() and before else ():
            if before[-1].get(key) != surroundings.get(key):
                raise InputError(
                    f"this machine is another than the bench began on: {key} {surroundings.get(key)}, "
                    f"before {before[-1].get(key)}",
                    hint="go on there, or --fresh begins again here",
                )
        if not self.cells():
            make_private_folder(self._corrections)
            kept, known = tabular_file(self._corrections), tabular_file(home)
            if known.is_file():
                write_whole(kept, known.read_bytes())
            else:
                kept.unlink(missing_ok=True)
        lines = [*before, dict(surroundings)]
        write_whole(self._sessions, "".join(json.dumps(one) + "\n" for one in lines))

    def sessions(self) -> list[dict[str, str]]:
        """Machine and settings of each time that the bench was begun or went on."""
        if not self._sessions.is_file():
            return []
        return [json.loads(line) for line in self._sessions.read_text(encoding="utf-8").splitlines()]

    def corrections(self, home: Path) -> TabularFit | None:
        """What corrected the prediction when the bench began; of a bench that has not begun, what is at `home`."""
        return load_tabular(self._corrections if self._corrections.is_dir() else home)

    @contextmanager
    def held(self) -> Iterator[None]:
        """The bench is one process's own. InputError where another has it."""
        from filelock import FileLock, Timeout

        make_private_folder(self.path)
        lock = FileLock(self.path / "lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise InputError(f"the bench in {self.path} runs in another process", hint="wait for its end") from None
        try:
            yield
        finally:
            lock.release()

    def cells(self) -> list[BenchCell]:
        """The finished cells; of a cell done twice the later. A last line that was cut off by a kill is left out."""
        if not self.journal.is_file():
            return []
        found: dict[tuple[str, str, int], BenchCell] = {}
        lines = self.journal.read_text(encoding="utf-8").splitlines(keepends=True)
        for number, line in enumerate(lines, start=1):
            if not line.endswith("\n"):
                continue
            try:
                cell = read_cell(json.loads(line))
            except (ValueError, TypeError) as error:
                raise InputError(
                    f"{self.journal}, line {number}: no cell: {error}", hint="--fresh begins again"
                ) from error
            found[cell.key] = cell
        return list(found.values())

    def append(self, cell: BenchCell) -> None:
        """One finished cell, on the disk on return. What a kill cut off before it is ended by a line feed first."""
        line = json.dumps(asdict(cell)) + "\n"
        with open(self.journal, "a+b") as file:
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    self._cut(file)
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    @staticmethod
    def _cut(file: Any) -> None:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.seek(0, os.SEEK_END)
