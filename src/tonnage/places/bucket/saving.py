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
from tonnage.places.bucket.layout import STEP, Keys, SavedArtifact, artifact_names, artifact_of, files_of
from tonnage.places.bucket.objects import Objects
from tonnage.runs.folder import RunFolder

INCOMING: Final = ".incoming"
Print = tuple[tuple[str, int, int], ...]  # path, size, time of change of each file


class Saver:
    """Brings what a run's folder has to the bucket, each artifact once; and takes away what the run has dropped."""

    def __init__(self, objects: Objects, keys: Keys, folder: RunFolder) -> None:
        self._objects, self._keys, self._folder = objects, keys, folder
        self._saved: dict[str, Print] = {}
        self._digests: dict[str, set[str]] = {}

    def save(self, *, steps_only: bool, ours: Callable[[], bool], first: Callable[[], None] = lambda: None) -> None:
        """`steps_only`: checkpoints, which are whole as soon as they have their name; else everything there is.

        `ours`: whether the submission is still the run's newest; asked before each artifact. `first`: called before
        each counts: what the run wrote up to it is in the bucket then.
        """
        there = artifact_names(self._folder)
        for artifact in there:
            if steps_only and not STEP.fullmatch(artifact):
                continue
            try:
                shown = _print_of(self._folder.path, artifact)
                if self._saved.get(artifact) == shown:
                    continue
                if not ours():
                    return
                self.send(artifact, first)
            except FileNotFoundError:  # the run has dropped it meanwhile
                continue
            self._saved[artifact] = shown
        self._drop([artifact for artifact in self._saved if artifact not in there])

    def send(self, artifact: str, first: Callable[[], None] = lambda: None) -> None:
        """The files, what `first` brings, and then the word that they are whole."""
        files: dict[str, tuple[int, str]] = {}
        for path in files_of(self._folder.path, artifact):
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            self._objects.put(self._keys.data(digest), path)
            files[str(path.relative_to(self._folder.path))] = (path.stat().st_size, digest)
        first()
        self._objects.write(self._keys.made(artifact), json.dumps({"files": files}).encode())
        self._digests[artifact] = {digest for _, digest in files.values()}

    def _drop(self, artifacts: Iterable[str]) -> None:
        for artifact in artifacts:
            gone = self._digests.pop(artifact, set())
            kept = {digest for others in self._digests.values() for digest in others}
            del self._saved[artifact]
            self._objects.remove([self._keys.made(artifact), *(self._keys.data(one) for one in sorted(gone - kept))])


def saved_artifacts(objects: Objects, base: str) -> list[SavedArtifact]:
    """All that submissions of a run have saved, the newest submission's last."""
    keys = [key for key in objects.sizes(f"{base}/") if "/made/" in key]
    found = []
    for key in keys:
        content = objects.read(key)
        if content is not None:
            found.append(artifact_of(key, json.loads(content.content)))
    return sorted(found, key=lambda one: (*one.writer, one.step or 0))


def newest_of_each(artifacts: Iterable[SavedArtifact]) -> dict[str, SavedArtifact]:
    """Of artifacts with one name that of the newest start; of checkpoints those of the newest one that has any."""
    found: dict[str, SavedArtifact] = {}
    steps: list[SavedArtifact] = []
    for one in artifacts:
        if one.step is None:
            found[one.name] = one
        else:
            steps.append(one)
    last = max((one.writer for one in steps), default=(0, 0))
    return found | {one.name: one for one in steps if one.writer == last}


def newest_checkpoint(artifacts: Iterable[SavedArtifact], *, number: int) -> SavedArtifact | None:
    """Where submission `number` goes on: the furthest checkpoint of the newest start up to it that has one."""
    steps = [one for one in artifacts if one.step is not None and one.number <= number]
    return max(steps, key=lambda one: (*one.writer, one.step or 0), default=None)


def bring(objects: Objects, base: str, artifact: SavedArtifact, folder: RunFolder) -> None:
    """Verify every file of an artifact, then move all into place at once. TonnageError where one differs."""
    if is_here(folder, artifact):
        return
    incoming = folder.path / INCOMING
    shutil.rmtree(incoming, ignore_errors=True)
    keys = Keys(base=base, number=artifact.number, epoch=artifact.epoch)
    for inside, (size, digest) in artifact.files.items():
        path = incoming / inside
        make_private_folder(path.parent)
        objects.get(keys.data(digest), path)
        path.chmod(PRIVATE)
        if path.stat().st_size != size or _digest(path) != digest:
            raise TonnageError(
                f"{objects.url}/{keys.data(digest)} is not what was saved", hint="the same command tries it again"
            )
    goal = folder.path / artifact.name
    make_private_folder(goal.parent)
    if goal.is_dir():
        shutil.rmtree(goal)
    move_whole(incoming / artifact.name, goal)
    shutil.rmtree(incoming, ignore_errors=True)


def is_here(folder: RunFolder, artifact: SavedArtifact) -> bool:
    """Whether the folder has all of it, byte by byte."""

    def same(inside: str, size: int, digest: str) -> bool:
        path = folder.path / inside
        return path.is_file() and path.stat().st_size == size and _digest(path) == digest

    return all(same(inside, size, digest) for inside, (size, digest) in artifact.files.items())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _print_of(folder: Path, artifact: str) -> Print:
    found: list[Any] = []
    for path in files_of(folder, artifact):
        status = path.stat()
        found.append((str(path.relative_to(folder)), status.st_size, status.st_mtime_ns))
    return tuple(found)
