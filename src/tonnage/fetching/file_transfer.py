"""One wanted file: from the cache or the network, verified, into every target."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from tonnage.errors import FetchError
from tonnage.fetching.cache import Cache, key_of
from tonnage.fetching.checksums import digests, first_mismatch
from tonnage.fetching.hub import HubLibrary
from tonnage.fetching.listing import Wanted
from tonnage.fetching.partial import Partial
from tonnage.fetching.remote import Checksum, RemoteFile
from tonnage.fetching.results import FetchRequest
from tonnage.fetching.targets import FolderTarget, Manifest, ManifestEntry
from tonnage.fetching.transfer import Means, transfer_latest
from tonnage.http.downloaded import FetchedFile, Outcome
from tonnage.http.retries import TemporaryError
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True)
class _Have:
    """The bytes of a file, wherever it is on this machine."""

    path: Path
    file: RemoteFile
    sha256: str
    verified_by: str
    outcome: Outcome


class Transfer:
    """Carries files one at a time; several threads share it."""

    def __init__(self, request: FetchRequest, cache: Cache, manifests: Sequence[Manifest], means: Means) -> None:
        self._request, self._cache, self._manifests, self._means = request, cache, manifests, means

    def standing(self, wanted: Wanted) -> FetchedFile | None:
        """The result for a file that every target has already; None: something is to be done."""
        file, sha256 = wanted.file, wanted.sha256
        entries = [one.current(file.name, file.identity, file.version, sha256) for one in self._manifests]
        there = [one for one in entries if one is not None]
        if not there or len(there) < len(entries):
            return None
        return FetchedFile(
            name=file.name,
            source=file.identity,
            outcome="already there",
            size_bytes=there[0].size_bytes,
            version=there[0].version,
            sha256=there[0].sha256,
            verified_by=there[0].verified_by,
            places=tuple(_place(one, file.name) for one in self._manifests),
        )

    def cached(self, wanted: Wanted) -> bool:
        """Whether no byte of it needs to come over the network."""
        if isinstance(wanted.source, HubLibrary):
            return wanted.source.cached(wanted.file) is not None
        return self._in_cache(wanted) is not None

    def carry(self, wanted: Wanted) -> FetchedFile:
        """Bring a file to every target. FetchError when it cannot be had, or is not what was stated."""
        have = self._from_hub(wanted) if isinstance(wanted.source, HubLibrary) else self._from_backend(wanted)
        places = [self._deliver(have, manifest) for manifest in self._manifests]
        return FetchedFile(
            name=have.file.name,
            source=have.file.identity,
            outcome=have.outcome,
            size_bytes=have.path.stat().st_size,
            version=have.file.version,
            sha256=have.sha256,
            verified_by=have.verified_by,
            places=tuple(places) or (str(have.path),),
        )

    def _in_cache(self, wanted: Wanted) -> _Have | None:
        known = self._cache.known(wanted.file)
        stated = wanted.sha256
        sha256 = known[0] if known else stated
        path = None if sha256 is None else self._cache.blob(sha256)
        if sha256 is None or path is None:
            return None
        if stated is not None and stated != sha256:
            return None  # fetched again, and found out
        by = _said(wanted.stated) or (known[1] if known else _said(wanted.file.checksums))
        return _Have(path, wanted.file, sha256, by, "from cache")

    def _from_backend(self, wanted: Wanted) -> _Have:
        key = key_of(wanted.file.identity)
        waiting = f"{wanted.file.name}: another process is fetching it, waiting"
        with self._cache.lock(key, self._means.stop, lambda: self._means.say(waiting)):
            have = self._in_cache(wanted)
            if have is not None:
                self._means.advance(have.path.stat().st_size)
                return have
            if self._request.offline and not wanted.file.identity.startswith("file:"):
                raise FetchError(f"{wanted.file.identity} is not in the cache, and --offline forbids the network")
            return self._download(wanted)

    def _download(self, wanted: Wanted) -> _Have:
        source = wanted.source
        assert not isinstance(source, HubLibrary)
        folder = self._cache.partial_folder(wanted.file)
        file, partial = transfer_latest(source, wanted.file, lambda one: Partial(folder, one), self._means)
        stated = (*wanted.stated, *file.checksums)
        found = digests(partial.data, {one.algorithm for one in stated})
        if wrong := first_mismatch(found, file.checksums):
            partial.remove()
            raise _mismatch(file, wrong)
        if wrong := first_mismatch(found, wanted.stated):
            # it may be the statement that is wrong: the bytes stay under the name of what they are
            self._cache.keep(partial.data, found["sha256"])
            partial.remove()
            raise _mismatch(file, wrong)
        path = self._cache.keep(partial.data, found["sha256"])
        by = _said(stated) or _unstated(file)
        self._cache.remember(file, found["sha256"], by)
        partial.remove()
        return _Have(path, file, found["sha256"], by, "fetched")

    def _from_hub(self, wanted: Wanted) -> _Have:
        library, file = wanted.source, wanted.file
        assert isinstance(library, HubLibrary)
        path = library.cached(file)
        if path is not None:
            try:
                have = self._checked(library, wanted, path, "from cache")
                self._means.advance(path.stat().st_size)
                return have
            except _Damaged:
                self._means.say(f"{file.name}: the copy in the Hub's cache is damaged, fetching it again")
        if self._request.offline:
            raise FetchError(f"{file.identity} is not in the cache, and --offline forbids the network")
        path = self._patient_download(library, file)
        try:
            return self._checked(library, wanted, path, "fetched")
        except _Damaged as error:
            raise error.error from None

    def _patient_download(self, library: HubLibrary, file: RemoteFile) -> Path:
        retries, came = self._means.retries(), 0

        def advance(count: int) -> None:
            nonlocal came
            self._means.check()
            retries.progressed()
            came += count
            self._means.advance(count)

        while True:
            self._means.check()
            try:
                return library.download(file, advance)
            except TemporaryError as error:
                self._means.advance(-came)  # the library tells of what it resumes from once more
                came = 0
                retries.failed(error, file.identity)

    def _checked(self, library: HubLibrary, wanted: Wanted, path: Path, outcome: Outcome) -> _Have:
        file, stated = wanted.file, (*wanted.stated, *wanted.file.checksums)
        real = path.resolve()
        known = self._cache.known(file)
        sealed = self._cache.sealed(real)
        if known is None or sealed != known[0]:
            found = digests(real, {one.algorithm for one in stated})
            if wrong := first_mismatch(found, file.checksums):
                library.discard(file)
                raise _Damaged(_mismatch(file, wrong))
            sealed = found["sha256"]
            self._cache.seal(real, sealed)
            self._cache.remember(file, sealed, _said(file.checksums) or _unstated(file))
        if wrong := first_mismatch({"sha256": sealed}, wanted.stated):
            raise _mismatch(file, wrong)
        library.remember_revision(file)
        return _Have(path, file, sealed, _said(stated) or _unstated(file), outcome)

    def _deliver(self, have: _Have, manifest: Manifest) -> str:
        target, name = manifest.target, have.file.name
        entry, state = manifest.entries.get(name), target.state(name)
        ours = entry is not None and entry.state == state
        if state is not None and not ours:
            same = _sha256_in(manifest, name) == have.sha256
            if not same and not self._request.force:
                raise FetchError(
                    f"{_place(manifest, name)} is there already with other bytes, not put there by a fetch or changed",
                    hint="--force replaces it",
                )
        else:
            same = entry is not None and entry.sha256 == have.sha256
        if state is None or not same:
            self._means.insist(lambda: target.put(have.path, name), _place(manifest, name))
        now = target.state(name)
        if now is None:
            raise FetchError(f"{_place(manifest, name)} is gone as soon as it was written")
        manifest.add(
            name,
            ManifestEntry(
                source=have.file.identity,
                version=have.file.version,
                size_bytes=have.path.stat().st_size,
                sha256=have.sha256,
                verified_by=have.verified_by,
                fetched_at=self._request.now.isoformat(timespec="seconds"),
                state=now,
            ),
        )
        return _place(manifest, name)


class _Damaged(Exception):
    """A copy that is not what the Hub states; `report` is the error that the user sees."""

    def __init__(self, error: FetchError) -> None:
        super().__init__(str(error))
        self.error = error


def _sha256_in(manifest: Manifest, name: str) -> str:
    maker = hashlib.sha256()
    for block in manifest.target.blocks(name):
        maker.update(block)
    return maker.hexdigest()


def _place(manifest: Manifest, name: str) -> str:
    target = manifest.target
    return str(target.root / name) if isinstance(target, FolderTarget) else f"{target.shown.rstrip('/')}/{name}"


def _said(stated: Sequence[Checksum]) -> str:
    return ", ".join(dict.fromkeys(f"{one.algorithm} of the {one.stated_by}" for one in stated))


def _unstated(file: RemoteFile) -> str:
    return "size only" if file.size_bytes is not None else "nothing: the server states neither size nor digest"


def _mismatch(file: RemoteFile, wrong: object) -> FetchError:
    return FetchError(
        f"{file.identity} is not what it should be: {wrong}",
        hint="nothing was put into a target; check the digest, then fetch again",
    )
