"""`fetch`: list, look at the disks, carry every file, say what became of it. `verify`: read targets again."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from dataclasses import field, replace
from pathlib import Path
from threading import Event
from typing import Any

from tonnage.errors import FetchError, InputError
from tonnage.fetching.addresses import MANIFEST_NAME, parse_address
from tonnage.fetching.cache import Cache
from tonnage.fetching.file_transfer import Transfer
from tonnage.fetching.hub import HubLibrary
from tonnage.fetching.listing import Wanted, list_wanted
from tonnage.fetching.partial import arrived_before
from tonnage.fetching.remote import Backend, FetchStopped
from tonnage.fetching.results import Fetched, FetchRequest
from tonnage.fetching.targets import FolderTarget, Manifest, nearest_folder, open_target
from tonnage.fetching.transfer import Means, Pool
from tonnage.http.downloaded import FetchedFile, VerifiedFile
from tonnage.http.retries import TemporaryError
from tonnage.units import to_gib
from tonnage.values import dataclass

FreeBytes = Callable[[Path], int]


def free_bytes(path: Path) -> int:
    """Bytes free for us on the disk that holds `path`."""
    return shutil.disk_usage(nearest_folder(path)).free


def check_space(needs: Iterable[tuple[Path, int]], *, free: FreeBytes = free_bytes) -> None:
    """Raise FetchError when the disks of some folders have less room than all that is to come there."""
    by_disk: dict[int, tuple[Path, int]] = {}
    for folder, size in needs:
        disk = os.stat(nearest_folder(folder)).st_dev
        first, sum_bytes = by_disk.get(disk, (folder, 0))
        by_disk[disk] = (first, sum_bytes + size)
    for folder, sum_bytes in by_disk.values():
        have = free(folder)
        if sum_bytes > have:
            raise FetchError(
                f"the disk of {folder} has too little room: {_size(sum_bytes)} needed, {_size(have)} free",
                hint="free some, set TONNAGE_HOME (or HF_HOME) to a larger disk, or take less with --include",
            )


def _size(count: int) -> str:
    return f"{to_gib(count):,.2f} GiB ({count:,} bytes)"


SAVE_EVERY_S = 2.0
GRACE_S = 2.0  # for threads to see the sign; what a silent server holds up is left behind


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressWatcher:
    """Receives progress: the bytes to come, bytes that came (or were lost again), and remarks."""

    expect: Callable[[int], None] = field(default=lambda _bytes: None)
    advance: Callable[[int], None] = field(default=lambda _bytes: None)
    say: Callable[[str], None] = field(default=lambda _text: None)


def fetch(request: FetchRequest, watcher: ProgressWatcher | None = None, *, free: FreeBytes = free_bytes) -> Fetched:
    """Bring every file of the sources to every target; what failed is in the result beside what came.

    Raises InputError on bad usage, FetchError when a source cannot be listed or a disk is too small.
    """
    begun, watcher = time.monotonic(), watcher or ProgressWatcher()
    cache = Cache(request.cache)
    opened: list[Backend | HubLibrary] = []
    means = Means(
        pool=Pool(request.jobs, "range"),
        stop=Event(),
        attempts=request.attempts,
        first_wait_s=request.first_wait_s,
        advance=watcher.advance,
        say=watcher.say,
    )
    try:
        if not request.dry_run:
            _make_folder(request.cache)
        wanted = list_wanted(request, cache, means, opened.append)
        targets = [open_target(parse_address(one), copy=request.copy, jobs=request.jobs) for one in request.targets]
        manifests = [Manifest(target) for target in targets]
        transfer = Transfer(request, cache, manifests, means)
        standing = [transfer.standing(one) for one in wanted]
        if request.dry_run:
            files = [done or _foreseen(transfer, one) for one, done in zip(wanted, standing, strict=True)]
        else:
            to_do = [one for one, done in zip(wanted, standing, strict=True) if done is None]
            check_space(_needs(request, transfer, to_do, manifests), free=free)
            watcher.expect(sum(one.file.size_bytes or 0 for one in to_do))
            carried = iter(_carry_all(request, transfer, to_do, manifests, means))
            files = [done or next(carried) for done in standing]
    except BaseException:
        means.stop.set()
        raise
    finally:
        means.pool.close()
        for one in opened:
            one.close()
    return Fetched(
        files=tuple(files), seconds=time.monotonic() - begun, dry_run=request.dry_run, offline=request.offline
    )


def _make_folder(cache: Path) -> None:
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FetchError(
            f"the cache {cache} cannot be made: {error.strerror}", hint="set TONNAGE_HOME to a folder you may write to"
        ) from error


def _foreseen(transfer: Transfer, wanted: Wanted) -> FetchedFile:
    file = wanted.file
    return FetchedFile(
        name=file.name,
        source=file.identity,
        outcome="from cache" if transfer.cached(wanted) else "to fetch",
        size_bytes=file.size_bytes,
        version=file.version,
        sha256=wanted.sha256,
    )


def _needs(
    request: FetchRequest, transfer: Transfer, to_do: Sequence[Wanted], manifests: Sequence[Manifest]
) -> list[tuple[Path, int]]:
    """(folder, bytes) that will be taken there."""
    cache, needs = Cache(request.cache), []
    folders = [one.target for one in manifests if isinstance(one.target, FolderTarget)]
    for one in to_do:
        size = one.file.size_bytes or 0
        home = one.source.folder if isinstance(one.source, HubLibrary) else request.cache
        if not transfer.cached(one):
            arrived = 0 if isinstance(one.source, HubLibrary) else arrived_before(cache.partial_folder(one.file))
            needs.append((home, max(0, size - arrived)))
        needs += [(target.root, size) for target in folders if not target.links_from(home)]
    return needs


def _carry_all(
    request: FetchRequest, transfer: Transfer, to_do: Sequence[Wanted], manifests: Sequence[Manifest], means: Means
) -> list[FetchedFile]:
    pool = Pool(max(1, min(request.jobs, len(to_do))), "file")
    futures = [pool.submit(lambda one=one: _carried(transfer, one, means)) for one in to_do]  # type: ignore[misc]
    pool.close()
    try:
        _wait_for(futures, manifests)
    except BaseException:
        means.stop.set()
        for future in futures:
            future.cancel()
        wait(futures, timeout=GRACE_S)
        raise
    finally:
        for manifest in manifests:
            manifest.save()
    return [future.result() for future in futures]


def _wait_for(futures: Sequence[Future[Any]], manifests: Sequence[Manifest]) -> None:
    pending, saved_at = set(futures), time.monotonic()
    while pending:
        _, pending = wait(pending, timeout=0.2)  # short, so that Ctrl-C is seen
        if time.monotonic() - saved_at > SAVE_EVERY_S:
            for manifest in manifests:
                manifest.save()
            saved_at = time.monotonic()


def _carried(transfer: Transfer, wanted: Wanted, means: Means) -> FetchedFile:
    """What became of a file; one that fails does not stop the others."""
    problem = "interrupted"
    try:
        means.check()
        return transfer.carry(wanted)
    except FetchError as error:
        problem = f"{error}; {error.hint}" if error.hint else str(error)
    except TemporaryError as error:
        problem = str(error)
    except OSError as error:
        problem = f"{error.filename or wanted.file.identity}: {error.strerror or error}"
    except FetchStopped:
        pass
    return FetchedFile(
        name=wanted.file.name,
        source=wanted.file.identity,
        outcome="failed",
        size_bytes=wanted.file.size_bytes,
        version=wanted.file.version,
        problem=problem,
    )


def verify(texts: Sequence[str], *, jobs: int = 8) -> list[VerifiedFile]:
    """Read every file of the manifests of some targets again and hold it against its SHA-256."""
    checks: list[Callable[[], VerifiedFile]] = []
    for text in texts:
        target = open_target(parse_address(text), copy=False, jobs=jobs)
        manifest = Manifest(target)
        if not manifest.entries:
            raise InputError(f"{target.shown} has no {MANIFEST_NAME}", hint="`tonnage fetch ... --to` writes one")
        checks += [lambda name=name, manifest=manifest: _check(manifest, name) for name in sorted(manifest.entries)]  # type: ignore[misc]
    pool = Pool(jobs, "verify")
    futures = [pool.submit(check) for check in checks]
    pool.close()
    _wait_for(futures, ())
    return [future.result() for future in futures]


def _check(manifest: Manifest, name: str) -> VerifiedFile:
    entry, target = manifest.entries[name], manifest.target
    stated = VerifiedFile(
        name=name, target=target.shown, state="missing", size_bytes=entry.size_bytes, sha256=entry.sha256
    )
    if target.state(name) is None:
        return stated
    maker = hashlib.sha256()
    for block in target.blocks(name):
        maker.update(block)
    found = maker.hexdigest()
    return replace(stated, state="ok" if found == entry.sha256 else "changed", found_sha256=found)
