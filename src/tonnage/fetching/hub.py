"""The Hugging Face Hub through huggingface_hub: its downloads, its resuming, its cache; we add the checking."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tonnage.errors import FetchError
from tonnage.fetching.addresses import Address
from tonnage.fetching.remote import Checksum, RemoteFile, need, not_found
from tonnage.http.retries import TemporaryError, is_temporary, retry_after_s


class HubLibrary:
    """A repository, a folder of it or one file, at the commit its revision names now."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._hub = need("huggingface_hub", "hf://")
        self._errors = need("huggingface_hub.errors", "hf://")
        self._endpoint = os.environ.get("HF_ENDPOINT") or None
        self.folder = Path(os.environ.get("HF_HUB_CACHE") or self._hub.constants.HF_HUB_CACHE)

    def list_files(self) -> list[RemoteFile]:
        """The files as of one commit, with the digests the Hub states: SHA-256 of large ones, git's of the others."""
        one = self._address
        api = self._hub.HfApi(endpoint=self._endpoint)
        with self._translated(one.identity):
            info = api.repo_info(
                one.container, repo_type=one.repo_kind, revision=one.revision, files_metadata=True, timeout=30
            )
        folder = f"{one.path.rstrip('/')}/" if one.path else ""
        found = [self._file(info.sha, each, folder) for each in info.siblings or () if _inside(each.rfilename, folder)]
        if not found:
            raise not_found(one.identity)
        return found

    def _file(self, commit: str, sibling: Any, folder: str) -> RemoteFile:
        path = str(sibling.rfilename)
        name = path.removeprefix(folder) if path.startswith(folder) else path.rpartition("/")[2]
        if sibling.lfs is not None:
            stated: tuple[Checksum, ...] = (
                Checksum(algorithm="sha256", hex=str(sibling.lfs.sha256), stated_by="Hub (LFS)"),
            )
        elif sibling.blob_id:
            stated = (Checksum(algorithm="git-blob", hex=str(sibling.blob_id), stated_by="Hub (git)"),)
        else:
            stated = ()
        prefix = "" if self._address.repo_kind == "model" else f"{self._address.repo_kind}s/"
        return RemoteFile(
            name=name,
            identity=f"hf://{prefix}{self._address.container}@{commit}/{path}",
            place=f"{commit}/{path}",
            size_bytes=sibling.size,
            version=f"commit {commit}",
            ranged=True,
            checksums=stated,
        )

    def list_cached(self) -> list[RemoteFile] | None:
        """What the Hub's own cache has of the revision; None: nothing."""
        one = self._address
        try:
            folder = Path(
                self._hub.snapshot_download(
                    one.container,
                    repo_type=one.repo_kind,
                    revision=one.revision,
                    cache_dir=self.folder,
                    local_files_only=True,
                )
            )
        except self._errors.LocalEntryNotFoundError:
            return None
        inside = f"{one.path.rstrip('/')}/" if one.path else ""
        paths = sorted(each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file())
        sizes = {path: (folder / path).stat().st_size for path in paths if _inside(path, inside)}
        plain = self._hub.hf_api.RepoSibling
        return [self._file(folder.name, plain(path, size), inside) for path, size in sizes.items()]

    def cached(self, file: RemoteFile) -> Path | None:
        """The file in the Hub's own cache, which other tools share."""
        commit, _, path = file.place.partition("/")
        found = self._hub.try_to_load_from_cache(
            self._address.container, path, cache_dir=self.folder, revision=commit, repo_type=self._address.repo_kind
        )
        return Path(found) if isinstance(found, str) and Path(found).is_file() else None

    def download(self, file: RemoteFile, advance: Any) -> Path:
        """Fetch one file of the commit into the Hub's cache."""
        commit, _, path = file.place.partition("/")
        with self._translated(file.identity):
            return Path(
                self._hub.hf_hub_download(
                    self._address.container,
                    path,
                    repo_type=self._address.repo_kind,
                    revision=commit,
                    cache_dir=self.folder,
                    endpoint=self._endpoint,
                    tqdm_class=_bar_that_tells(advance),
                )
            )

    def remember_revision(self, file: RemoteFile) -> None:
        """Note the commit of a branch or tag in the Hub's cache, as its own downloads of that name do."""
        commit = file.place.partition("/")[0]
        name = self._hub.file_download.repo_folder_name(
            repo_id=self._address.container, repo_type=self._address.repo_kind
        )
        revision = self._address.revision or "main"
        path = self.folder / name / "refs" / revision
        if revision != commit and path.resolve().is_relative_to(self.folder.resolve()):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(commit, encoding="utf-8")

    def discard(self, file: RemoteFile) -> None:
        """Drop a damaged file from the Hub's cache: the link of the commit and the bytes behind it."""
        link = self.cached(file)
        if link is not None:
            link.resolve().unlink(missing_ok=True)
            link.unlink(missing_ok=True)

    def close(self) -> None:
        """The connections are the library's own."""

    @contextmanager
    def _translated(self, identity: str) -> Iterator[None]:
        import httpx

        errors = self._errors
        try:
            yield
        except errors.GatedRepoError as error:
            raise FetchError(
                f"{identity}: access is gated", hint="accept its terms on the Hub, set HF_TOKEN"
            ) from error
        except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
            raise FetchError(
                f"{identity}: no such repository or revision, or a private one",
                hint="check the spelling; for a private one set HF_TOKEN",
            ) from error
        except errors.RemoteEntryNotFoundError as error:
            raise not_found(identity) from error
        except errors.HfHubHTTPError as error:
            raise _judged(error, identity) from error
        except (httpx.TransportError, errors.LocalEntryNotFoundError) as error:
            cause = error.__cause__ or error
            raise TemporaryError(f"{type(cause).__name__}: {cause}") from error
        except OSError as error:
            if "Consistency check failed" not in str(error):
                raise FetchError(f"{identity}: {error}") from error
            raise TemporaryError("fewer bytes came than were announced") from error


def _judged(error: Any, identity: str) -> Exception:
    code = error.response.status_code
    if is_temporary(code):
        return TemporaryError(f"HTTP {code}", retry_after_s=retry_after_s(error.response.headers.get("Retry-After")))
    if code in (401, 403):
        return FetchError(f"{identity}: HTTP {code}, access refused", hint="set HF_TOKEN to a token that may read it")
    return FetchError(f"{identity}: HTTP {code}")


def _inside(path: str, folder: str) -> bool:
    return path.startswith(folder) or path == folder.rstrip("/")


def _bar_that_tells(advance: Any) -> Any:
    """A progress bar class for huggingface_hub that prints nothing and tells `advance` of the bytes."""

    class Bar:
        def __init__(self, *_: Any, initial: float = 0, **__: Any) -> None:
            self.total: float | None = None
            self.n = initial
            if initial:
                advance(int(initial))

        def update(self, count: float | None = 1) -> None:
            self.n += count or 0
            advance(int(count or 0))

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None:
            return None

        def refresh(self, *_: Any, **__: Any) -> None:
            return None

        set_description = set_postfix_str = reset = refresh

        def close(self) -> None:
            return None

    return Bar
