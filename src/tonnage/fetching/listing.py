"""What is to be fetched: the files of every source, filtered, safely named, with the digests stated for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from tonnage.errors import FetchError, InputError
from tonnage.fetching.addresses import Address, is_wanted, parse_address, safe_name
from tonnage.fetching.cache import Cache
from tonnage.fetching.checksums import LARGEST_SUMS_BYTES, is_sums_name, parse_sums, read_sha256, stated_in_sums
from tonnage.fetching.hub import HubLibrary
from tonnage.fetching.remote import Backend, Checksum, RemoteFile
from tonnage.fetching.results import FetchRequest
from tonnage.fetching.transfer import Means
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A file to fetch. `stated` are the digests the user vouches for, beside those of the server in `file`."""

    source: Backend | HubLibrary
    file: RemoteFile
    stated: tuple[Checksum, ...] = ()

    @property
    def sha256(self) -> str | None:
        """The SHA-256 it must have, if anyone states it."""
        found = (one.hex for one in (*self.stated, *self.file.checksums) if one.algorithm == "sha256")
        return next(found, None)


def open_source(address: Address, *, jobs: int) -> Backend | HubLibrary:
    """What reads an address."""
    if address.scheme == "hf":
        return HubLibrary(address)
    if address.scheme in ("http", "https"):
        from tonnage.fetching.web import WebBackend

        return WebBackend(address, jobs=jobs)
    if address.scheme == "s3":
        from tonnage.fetching.s3 import S3Backend

        return S3Backend(address, jobs=jobs)
    from tonnage.fetching.filesystems import FilesystemBackend

    return FilesystemBackend(address)


def list_wanted(
    request: FetchRequest, cache: Cache, means: Means, opened: Callable[[Backend | HubLibrary], None]
) -> list[Wanted]:
    """Every file of every source that the patterns take. `opened` is called with each source that may be aborted."""
    found: list[Wanted] = []
    for text in request.sources:
        address = parse_address(text)
        source = open_source(address, jobs=request.jobs)
        opened(source)
        if request.offline and address.scheme != "file":
            listed = _offline(address, source, cache)
        else:
            listed = means.insist(source.list_files, address.identity)
            if not request.dry_run:
                cache.keep_list(address.identity, [_kept(address, one) for one in listed])
        files = [one for one in listed if is_wanted(one.name, request.include, request.exclude)]
        if not files:
            raise InputError(
                f"{address.identity}: none of its {len(listed):,} files is taken by --include and --exclude",
                hint=f"its first: {', '.join(one.name for one in listed[:5])}",
            )
        sums = {} if request.offline or isinstance(source, HubLibrary) else _own_sums(source, listed, files, means)
        for one in files:
            safe_name(one.name, address.identity)
            found.append(Wanted(source=source, file=one, stated=tuple(stated_in_sums(one.name, sums))))
    _check_names(found)
    return _with_stated(request, found, means, opened)


def _kept(address: Address, one: RemoteFile) -> dict[str, Any]:
    """A file as it is listed offline; of a URL what opens it is not kept, it may hold secrets."""
    return asdict(replace(one, place="") if address.scheme in ("http", "https") else one)


def _offline(address: Address, source: Backend | HubLibrary, cache: Cache) -> list[RemoteFile]:
    kept = cache.kept_list(address.identity)
    if kept is not None:
        return [
            RemoteFile(**{**one, "checksums": tuple(Checksum(**stated) for stated in one["checksums"])}) for one in kept
        ]
    listed = source.list_cached() if isinstance(source, HubLibrary) else None
    if not listed:
        raise FetchError(
            f"{address.identity} is not in the cache, and --offline forbids the network", hint="fetch it online once"
        )
    return listed


def _own_sums(
    source: Backend, listed: list[RemoteFile], files: list[RemoteFile], means: Means
) -> dict[str, dict[str, str]]:
    """The sums files of a source that speak of the files wanted."""
    names = {one.name for one in files}
    of_others = [one for one in listed if is_sums_name(one.name) and len(listed) > 1]
    used = [one for one in of_others if not one.name.endswith(".sha256") or one.name.removesuffix(".sha256") in names]
    return {one.name: parse_sums(_text(source, one, means), one.name) for one in used}


def _text(source: Backend, file: RemoteFile, means: Means) -> str:
    if (file.size_bytes or 0) > LARGEST_SUMS_BYTES:
        raise InputError(f"{file.identity} has {file.size_bytes:,} bytes", hint="a list of digests is smaller")
    raw = means.insist(lambda: b"".join(source.read(file, 0, file.size_bytes)), file.identity)
    return raw.decode("utf-8", errors="replace")


def _check_names(found: list[Wanted]) -> None:
    seen: dict[str, str] = {}
    for one in found:
        other = seen.setdefault(one.file.name, one.file.identity)
        if other != one.file.identity:
            raise InputError(
                f"two files would be named {one.file.name}: {other} and {one.file.identity}",
                hint="fetch them one at a time, each with a --to of its own",
            )


def _with_stated(
    request: FetchRequest, found: list[Wanted], means: Means, opened: Callable[[Backend | HubLibrary], None]
) -> list[Wanted]:
    """The digests of `--sha256` and `--sums`."""
    if request.sha256 is not None:
        if len(found) != 1:
            raise InputError(f"--sha256 states one digest, there are {len(found):,} files", hint="use --sums FILE")
        stated = Checksum(algorithm="sha256", hex=read_sha256(request.sha256, "--sha256"), stated_by="--sha256")
        found = [replace(found[0], stated=(stated, *found[0].stated))]
    for text in request.sums:
        address = parse_address(text)
        if request.offline and address.scheme != "file":
            raise InputError(f"--sums {address.identity} asks the network, and --offline forbids the network")
        source = open_source(address, jobs=1)
        opened(source)
        if isinstance(source, HubLibrary):
            raise InputError("--sums is not read from hf://", hint="the Hub states digests of its own")
        (file, *_) = means.insist(source.list_files, address.identity)
        sums = {file.name: parse_sums(_text(source, file, means), address.identity)}
        taken = [tuple(stated_in_sums(one.file.name, sums)) for one in found]
        if not any(taken):
            raise InputError(f"{address.identity} names none of the files", hint=f"such as {found[0].file.name}")
        found = [replace(one, stated=(*more, *one.stated)) for one, more in zip(found, taken, strict=True)]
    return found
