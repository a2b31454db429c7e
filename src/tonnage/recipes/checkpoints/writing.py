"""Write a snapshot so that a reader finds it whole or not at all, beside the training if asked."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tonnage.errors import TonnageError
from tonnage.files import make_private, move_whole, sync
from tonnage.recipes.checkpoints.reading import (
    MANIFEST,
    POSITION,
    TRAINING,
    WEIGHTS,
    CheckpointInvalid,
    files_of,
    folder_name,
    manifest_of,
    newest_first,
    read_checkpoint,
)
from tonnage.recipes.checkpoints.snapshot import Snapshot

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SAID: Final = re.compile(r"os error (\d+)")  # how safetensors reports an errno
_UNFINISHED: Final = ".unfinished-"  # folders so named belong to a write that was cut short


class DiskFull(TonnageError):
    """A checkpoint does not fit on its disk. Those before it are whole."""


class CheckpointWriter:
    """Writes checkpoints of one run, one at a time; a new one waits until the one before has landed.

    `landed` is called for each with its step, path, seconds it took, bytes.
    """

    def __init__(
        self, folder: Path, *, keep: int, asynchronous: bool, landed: Callable[[int, Path, float, int], None]
    ) -> None:
        self._folder, self._keep, self._landed = folder, max(1, keep), landed
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint") if asynchronous else None
        self._flight: Future[None] | None = None
        self._verified: dict[Path, tuple[tuple[str, int, int], ...]] = {}  # as they were when they verified
        self.kept_step: int | None = None  # stays beside the newest ones: that of the best evaluation
        self.newest: int | None = None  # the newest step known to be on the disk
        folder.mkdir(mode=0o700, exist_ok=True)
        for path in folder.glob(_UNFINISHED + "*"):
            shutil.rmtree(path)

    def save(self, snapshot: Snapshot) -> None:
        """Start writing, or write. Raises what went wrong with the one before."""
        self.carry_out(lambda: self._write(snapshot))

    def carry_out(self, write: Callable[[], None]) -> None:
        """The same for a checkpoint that `write` begins and completes."""
        self.wait()
        if self._thread is None:
            write()
        else:
            self._flight = self._thread.submit(write)

    def wait(self) -> None:
        """Until nothing is in flight. DiskFull, or what else went wrong, is raised here."""
        flight, self._flight = self._flight, None
        if flight is not None:
            flight.result()

    def check(self) -> None:
        """Raise what went wrong meanwhile, without waiting."""
        if self._flight is not None and self._flight.done():
            self.wait()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=True)

    def _write(self, snapshot: Snapshot) -> None:
        began = time.monotonic()
        beside = self.begin(snapshot.step, snapshot.tensor_bytes)
        self.complete(beside, snapshot, began)

    def begin(self, step: int, size: int) -> Path:
        """The folder a checkpoint of so many bytes is written in. DiskFull where there is no room for it."""
        beside = self._folder / f"{_UNFINISHED}{step}-{os.getpid()}"
        _check_space(self._folder, step, size)
        with _full_disk(self._folder, step, size, beside):
            beside.mkdir(mode=0o700)
        return beside

    def complete(self, beside: Path, snapshot: Snapshot, began: float) -> None:
        """Write what is not there yet, the manifest last, and move the folder into place. `began`: when it was."""
        path = self._folder / folder_name(snapshot.step)
        with _full_disk(self._folder, snapshot.step, snapshot.tensor_bytes, beside):
            size = _write_files(beside, snapshot)
            _move_over(beside, path)
        self.newest = snapshot.step
        self._verified[path] = _signature(path)  # its hashes are of what is on the disk
        self._landed(snapshot.step, path, time.monotonic() - began, size)
        self._retire(path)

    def _retire(self, written: Path) -> None:
        """Where `keep` checkpoints verify, delete all others: older ones, and ones that do not, whatever their step.

        The one just written always stays. A higher step is no reason to prefer another one: the run went on from
        before it, since it did not verify.
        """
        spared = {written, *([] if self.kept_step is None else [self._folder / folder_name(self.kept_step)])}
        others = [path for path in newest_first(self._folder) if path not in spared]
        whole = [written, *(path for path in others if self._verifies(path))]
        if len(whole) < self._keep:
            return
        for path in others:
            if path not in whole[: self._keep]:
                shutil.rmtree(path)

    def _verifies(self, path: Path) -> bool:
        """Whether a checkpoint is what its manifest says; its files are hashed once as long as they do not change."""
        try:
            signature = _signature(path)
            if self._verified.get(path) != signature:
                read_checkpoint(path)
                self._verified[path] = signature
        except (CheckpointInvalid, OSError):
            return False
        return True


def _signature(path: Path) -> tuple[tuple[str, int, int], ...]:
    """What changes where a file of a folder is written to: names, sizes, times."""
    found = ((str(file.relative_to(path)), file.stat()) for file in sorted(path.rglob("*")))
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in found)


def _write_files(beside: Path, snapshot: Snapshot) -> int:
    """All files and then the manifest, each brought to the disk; bytes written."""
    import torch
    from safetensors.torch import save_file

    if snapshot.weights is not None:
        save_file(dict(snapshot.weights), beside / WEIGHTS)
    with (beside / TRAINING).open("wb") as file:
        torch.save(dict(snapshot.training), file)
    _write_json(beside / POSITION, snapshot.position)
    _write_json(beside / MANIFEST, manifest_of(beside, snapshot.step))
    make_private(beside)
    written = [*files_of(beside), beside / MANIFEST]
    for path in written:
        sync(path)
    sync(beside)
    return sum(path.stat().st_size for path in written)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, allow_nan=False, indent=1) + "\n", encoding="utf-8")


def _move_over(beside: Path, path: Path) -> None:
    """Rename into place; an earlier folder of this step (one that did not verify) goes after the new one is there."""
    earlier = beside.with_name(beside.name + "-earlier")
    if path.exists():
        os.rename(path, earlier)
    move_whole(beside, path)
    if earlier.exists():
        shutil.rmtree(earlier)


def _check_space(folder: Path, step: int, size: int) -> None:
    if shutil.disk_usage(folder).free < size:
        raise _disk_full(folder, step, size)


@contextmanager
def _full_disk(folder: Path, step: int, size: int, beside: Path) -> Iterator[None]:
    """What goes wrong leaves nothing behind; DiskFull where the disk is full."""
    try:
        yield
    except Exception as error:
        shutil.rmtree(beside, ignore_errors=True)
        if is_full(error):
            raise _disk_full(folder, step, size) from error
        raise


def is_full(error: BaseException) -> bool:
    """Whether an error, or one it came from, says that there is no room: torch and safetensors wrap the errno."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    said = _SAID.search(str(error))
    return bool(said and int(said[1]) in _FULL) or (
        isinstance(error.__context__, Exception) and is_full(error.__context__)
    )


def _disk_full(folder: Path, step: int, size: int) -> DiskFull:
    free = shutil.disk_usage(folder).free
    return DiskFull(
        f"the checkpoint of step {step} needs {size} bytes, {folder} can take {free} or a limit is lower",
        hint="make room or lower `keep`, then `tonnage resume`: the checkpoints before it are whole",
    )
