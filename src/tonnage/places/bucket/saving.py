"""What a run has made goes into its bucket whole, and comes from there verified."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from tonnage.errors import TonnageError
from tonnage.files import PRIVATE, make_private_folder, move_whole
from tonnage.places.bucket.layout import STEP, Keys, Thing, files_of, thing_of, things_in
from tonnage.places.bucket.objects import Objects
from tonnage.runs.folder import RunFolder

INCOMING: Final = ".incoming"
Print = tuple[tuple[str, int, int], ...]  # path, size, time of change of each file


class Saver:
    """Brings what a run's folder has to the bucket, each thing once; and takes away what the run has dropped."""

    def __init__(self, objects: Objects, keys: Keys, folder: RunFolder) -> None:
        self._objects, self._keys, self._folder = objects, keys, folder
        self._saved: dict[str, Print] = {}
        self._digests: dict[str, set[str]] = {}

    def save(self, *, steps_only: bool, ours: Callable[[], bool]) -> None:
        """`steps_only`: checkpoints, which are whole as soon as they have their name; else everything there is.

        `ours`: whether the submission is still the run's newest; asked before each thing.
        """
        there = things_in(self._folder)
        for thing in there:
            if steps_only and not STEP.fullmatch(thing):
                continue
            try:
                shown = _print_of(self._folder.path, thing)
                if self._saved.get(thing) == shown:
                    continue
                if not ours():
                    return
                self.send(thing)
            except FileNotFoundError:  # the run has dropped it meanwhile
                continue
            self._saved[thing] = shown
        self._drop([thing for thing in self._saved if thing not in there])

    def send(self, thing: str) -> None:
        """The files first, and then the word that they are whole."""
        files: dict[str, tuple[int, str]] = {}
        for path in files_of(self._folder.path, thing):
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            self._objects.put(self._keys.data(digest), path)
            files[str(path.relative_to(self._folder.path))] = (path.stat().st_size, digest)
        self._objects.write(self._keys.made(thing), json.dumps({"files": files}).encode())
        self._digests[thing] = {digest for _, digest in files.values()}

    def _drop(self, things: Iterable[str]) -> None:
        for thing in things:
            gone = self._digests.pop(thing, set())
            kept = {digest for others in self._digests.values() for digest in others}
            del self._saved[thing]
            self._objects.remove([self._keys.made(thing), *(self._keys.data(one) for one in sorted(gone - kept))])


def made_things(objects: Objects, base: str) -> list[Thing]:
    """All that submissions of a run have saved, the newest submission's last."""
    keys = [key for key in objects.sizes(f"{base}/") if "/made/" in key]
    found = []
    for key in keys:
        content = objects.read(key)
        if content is not None:
            found.append(thing_of(key, json.loads(content.content)))
    return sorted(found, key=lambda one: (*one.writer, one.step or 0))


def newest_of_each(things: Iterable[Thing]) -> dict[str, Thing]:
    """Of things with one name that of the newest start; of checkpoints those of the newest one that has any."""
    found: dict[str, Thing] = {}
    steps: list[Thing] = []
    for one in things:
        if one.step is None:
            found[one.name] = one
        else:
            steps.append(one)
    last = max((one.writer for one in steps), default=(0, 0))
    return found | {one.name: one for one in steps if one.writer == last}


def newest_checkpoint(things: Iterable[Thing], *, number: int) -> Thing | None:
    """Where submission `number` goes on: the furthest checkpoint of the newest start up to it that has one."""
    steps = [one for one in things if one.step is not None and one.number <= number]
    return max(steps, key=lambda one: (*one.writer, one.step or 0), default=None)


def bring(objects: Objects, base: str, thing: Thing, folder: RunFolder) -> None:
    """Every file of a thing, verified, then all at once in their place. TonnageError where one is not what it was."""
    if is_here(folder, thing):
        return
    incoming = folder.path / INCOMING
    shutil.rmtree(incoming, ignore_errors=True)
    keys = Keys(base=base, number=thing.number, epoch=thing.epoch)
    for inside, (size, digest) in thing.files.items():
        path = incoming / inside
        make_private_folder(path.parent)
        objects.get(keys.data(digest), path)
        path.chmod(PRIVATE)
        if path.stat().st_size != size or _digest(path) != digest:
            raise TonnageError(
                f"{objects.url}/{keys.data(digest)} is not what was saved", hint="the same command tries it again"
            )
    goal = folder.path / thing.name
    make_private_folder(goal.parent)
    if goal.is_dir():
        shutil.rmtree(goal)
    move_whole(incoming / thing.name, goal)
    shutil.rmtree(incoming, ignore_errors=True)


def is_here(folder: RunFolder, thing: Thing) -> bool:
    """Whether the folder has all of it, byte by byte."""

    def same(inside: str, size: int, digest: str) -> bool:
        path = folder.path / inside
        return path.is_file() and path.stat().st_size == size and _digest(path) == digest

    return all(same(inside, size, digest) for inside, (size, digest) in thing.files.items())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _print_of(folder: Path, thing: str) -> Print:
    found: list[Any] = []
    for path in files_of(folder, thing):
        told = path.stat()
        found.append((str(path.relative_to(folder)), told.st_size, told.st_mtime_ns))
    return tuple(found)
