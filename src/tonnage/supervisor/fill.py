"""`python -m tonnage.supervisor.fill`: fetch a disk's content on a machine that nobody connects to.

It fetches what the request in the bucket names into a folder, on which the disk is mounted; reads each file again and
holds it against its SHA-256; and says in the bucket how far it is. What has arrived before goes on; a file without any
digest is refused. `--unmounted`: the disk is whole and no longer mounted, which is reported too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tonnage.errors import FetchError, InputError, TonnageError
from tonnage.fetching import FetchedFile, FetchRequest, ProgressWatcher, fetch, verify
from tonnage.fetching.checksums import parse_sums
from tonnage.files import write_whole
from tonnage.places.bucket.filled import (
    FILLED,
    WORKING,
    FillRequest,
    FillState,
    content_digest,
    read_request,
    read_state,
    request_key,
    state_key,
)
from tonnage.places.bucket.objects import Objects, open_objects
from tonnage.runs.secrets import mask_values, masked
from tonnage.secret_references import fill_environment
from tonnage.supervisor.bucket import LAST_WORDS_S, insisted

SAY_EVERY_S: Final = 10.0
JOBS: Final = 16


def main(arguments: Sequence[str]) -> int:
    """0 where the disk is whole."""
    parser = argparse.ArgumentParser(prog="python -m tonnage.supervisor.fill")
    parser.add_argument("--store", required=True, help="the place's bucket")
    parser.add_argument("--disk", required=True, help="the disk's id")
    parser.add_argument("--folder", type=Path, required=True, help="where the disk is mounted")
    parser.add_argument("--secret", help="of variables that the sources need, by reference")
    parser.add_argument("--region")
    parser.add_argument("--unmounted", action="store_true", help="say that the disk is filled")
    parser.add_argument("--every-s", type=float, default=SAY_EVERY_S, help="how often it says how far it is")
    asked = parser.parse_args(arguments)
    objects = open_objects(asked.store, region=asked.region)
    filling = DiskWriter(objects, asked.disk, asked.folder, every_s=asked.every_s)
    if asked.unmounted:
        return filling.say_filled()
    if asked.secret:
        names = fill_environment(asked.secret, os.environ, "the place's `secret`", region=asked.region)
        mask_values(os.environ, names)
    signal.signal(signal.SIGTERM, _end)
    return filling.carry_out()


def _say_here(text: str) -> None:
    sys.stdout.write(masked(f"tonnage: {text}\n"))


def _end(*_: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)


class DiskWriter:
    """One disk on this machine."""

    def __init__(self, objects: Objects, disk_id: str, folder: Path, *, every_s: float) -> None:
        self._objects, self._disk_id, self._folder, self._every_s = objects, disk_id, folder, every_s
        self._state = FillState(stage="fetching")
        self._lock = threading.Lock()

    def carry_out(self) -> int:
        """Fetch and verify; why it failed is in the bucket too."""
        stop = threading.Event()
        teller = threading.Thread(target=self._tell_often, args=(stop,), daemon=True)
        teller.start()
        try:
            files = self._fetch(self._request())
            state = self._whole(files)
        except TonnageError as error:
            reason = masked(f"{error.message}; {error.hint}" if error.hint else error.message)
            state = replace(self._state, stage="failed", reason=reason)
            sys.stderr.write(f"tonnage: {reason}\n")
        finally:
            stop.set()
            teller.join()
        self._say(state)
        return 0 if state.stage == "verified" else 1

    def say_filled(self) -> int:
        """After the disk was unmounted: all of it has reached it."""
        key = state_key(self._disk_id)
        found = insisted(lambda: self._objects.read(key), LAST_WORDS_S)
        state = FillState(stage="fetching") if found is None else read_state(found.content, key)
        if state.stage != "verified":
            raise TonnageError(f"{key} says {state.stage}: the disk is not whole", hint="fill it again")
        self._say(replace(state, stage="filled"))
        return 0

    def _request(self) -> FillRequest:
        key = request_key(self._disk_id)
        found = insisted(lambda: self._objects.read(key), LAST_WORDS_S)
        if found is None:
            raise TonnageError(f"{self._objects.url}/{key} is not there", hint="`tonnage places fill` once more")
        return read_request(found.content)

    def _fetch(self, request: FillRequest) -> dict[str, str]:
        """SHA-256 by name of what the folder holds."""
        working = self._folder / WORKING
        working.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("HF_HOME", str(working / "huggingface"))
        sums = working / "SHA256SUMS"
        if request.sums.strip():
            write_whole(sums, request.sums.strip() + "\n")
        asked = FetchRequest(
            sources=request.sources, targets=(str(self._folder),), include=request.include, exclude=request.exclude,
            sums=(str(sums),) if request.sums.strip() else (), jobs=JOBS, cache=working / "cache",
            now=datetime.now(UTC), force=True,
        )  # fmt: skip
        found = fetch(asked, ProgressWatcher(advance=self._advance, say=_say_here))
        if found.failures:
            first = found.failures[0]
            raise FetchError(f"{len(found.failures)} of {len(found.files)} files did not come; {first.name}: "
                             f"{first.problem}")  # fmt: skip
        _refuse_loose(found.files, parse_sums(request.sums, "sums"))
        return {one.name: one.sha256 or "" for one in found.files}

    def _whole(self, files: dict[str, str]) -> FillState:
        """Every file is read again from the disk; then the disk says what it holds."""
        bad = [one for one in verify([str(self._folder)], jobs=JOBS) if one.state != "ok"]
        if bad:
            raise FetchError(f"{len(bad)} files of the disk are not what was fetched, such as {bad[0].name}",
                             hint="remove the disk, and fill it again")  # fmt: skip
        size = sum((self._folder / name).stat().st_size for name in files)
        state = FillState(
            stage="verified", digest=content_digest(files), files=len(files), size_bytes=size,
            arrived_bytes=self._state.arrived_bytes,
        )  # fmt: skip
        note = {"schema": "tonnage/filled-disk@1", "key": self._request().key, "digest": state.digest, "files": files}
        shutil.rmtree(self._folder / WORKING)  # links into it stay whole in the folder
        write_whole(self._folder / FILLED, json.dumps(note, indent=1, sort_keys=True) + "\n", mode=0o644)
        os.sync()
        return state

    def _advance(self, count: int) -> None:
        with self._lock:
            self._state = replace(self._state, arrived_bytes=self._state.arrived_bytes + count)

    def _tell_often(self, stop: threading.Event) -> None:
        while True:
            try:
                self._objects.write(state_key(self._disk_id), self._state.content())
            except TonnageError as error:
                sys.stderr.write(masked(f"tonnage: {error.message}; it is tried again\n"))
            if stop.wait(self._every_s):
                return

    def _say(self, state: FillState) -> None:
        insisted(lambda: self._objects.write(state_key(self._disk_id), state.content()), LAST_WORDS_S)


def _refuse_loose(files: Sequence[FetchedFile], sums: Mapping[str, str]) -> None:
    """InputError for files whose bytes nothing in the request states: neither a commit of the Hub nor a sum."""
    loose = [one.name for one in files if not one.sha256 or not (one.source.startswith("hf://") or one.name in sums)]
    if loose:
        raise InputError(f"no digest is stated of {len(loose)} files, such as {loose[0]}",
                         hint="`sums` in places.toml: what `sha256sum FILE...` prints")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
