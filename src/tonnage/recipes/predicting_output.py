"""The file that answers are written to: whole lines beside it, in place by rename, gone on with after a kill."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tonnage.errors import InputError, TonnageError
from tonnage.files import move_whole, sync, write_whole

Identity = Mapping[str, Any]


class Output:
    """`with Output(path, identity) as output`: `done` lines are there already; `finish` puts the file in its place.

    `identity` is what the answers follow from: those of another model, other rows or settings are thrown away.
    The part itself is locked (`fcntl`), so that no lock file stays beside what the user named.
    """

    def __init__(self, path: Path, identity: Identity | None) -> None:
        self.path, self._identity = path, identity
        self._part = path.with_name(f"{path.name}.part")
        self._about = path.with_name(f"{path.name}.part.json")
        self.done = 0
        self.thrown_away = False  # an earlier part that was of something else

    def __enter__(self) -> Self:
        _check(self.path)
        try:
            self._file = open(self._part, "a+b")  # closed on leaving
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._go_on()
        except BlockingIOError as error:
            self._file.close()
            hint = "let it end, or write to another file"
            raise InputError(f"another process writes {self._part}", hint=hint) from error
        except OSError as error:
            raise InputError(f"{self.path} cannot be written: {error.strerror}", hint="name another file") from error
        return self

    def _go_on(self) -> None:
        size = self._file.seek(0, os.SEEK_END)
        same = self._identity is not None and _read(self._about) == dict(self._identity)
        self.thrown_away = size > 0 and not same
        self._file.seek(0)
        whole = 0
        if same:
            for line in self._file:
                if line.endswith(b"\n"):
                    self.done, whole = self.done + 1, whole + len(line)
        self._file.truncate(whole)
        if self._identity is not None and not same:
            write_whole(self._about, json.dumps(dict(self._identity), indent=1) + "\n")

    def write(self, answers: Sequence[Mapping[str, Any]]) -> None:
        """Append some lines in one write."""
        text = "".join(json.dumps(one, ensure_ascii=False, default=str, allow_nan=False) + "\n" for one in answers)
        try:
            self._file.write(text.encode())
            self._file.flush()
        except OSError as error:
            hint = f"make room; what was written stays in {self._part}"
            raise TonnageError(f"{self._part} cannot be written: {error.strerror}", hint=hint) from error
        self.done += len(answers)

    def finish(self) -> None:
        """All lines are written: onto the disk, then into place."""
        sync(self._part)
        move_whole(self._part, self.path)
        self._about.unlink(missing_ok=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if self.done == 0 or self._identity is None:  # nothing that could be gone on with
            self._part.unlink(missing_ok=True)
            self._about.unlink(missing_ok=True)


def _check(path: Path) -> None:
    if path.is_dir():
        raise InputError(f"{path} is a folder", hint="name a file: --out answers.jsonl")
    if not path.parent.is_dir():
        raise InputError(f"the folder {path.parent} is not there", hint="make it first")
    if path.exists() and not os.access(path, os.W_OK):
        raise InputError(f"{path} may not be written", hint="name another file")


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
