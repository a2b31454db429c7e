"""The code of gs:// and az:// over fsspec's file system in memory: no account, the same calls."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from tonnage.errors import FetchError
from tonnage.fetching import Fetched, fetching, listing, verify
from tonnage.fetching.addresses import Address, parse_address
from tonnage.fetching.filesystems import FilesystemBackend, FilesystemTarget

Run = Callable[..., Fetched]


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A storage service in memory, in the place of gs:// and az://."""
    memory = pytest.importorskip("fsspec.implementations.memory", reason="the extra 'fetch' is not installed")
    fs = memory.MemoryFileSystem(skip_instance_cache=True)
    fs.store, fs.pseudo_dirs = {}, [""]
    monkeypatch.setattr("tonnage.fetching.filesystems.open_filesystem", lambda _scheme: fs)
    return fs


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_a_folder_of_a_storage_service(
    storage: Any, content: bytes, fetch_here: Run, tmp_path: Any, scheme: str
) -> None:
    """Files below a folder arrive under their names; one file by its own; what is missing is said."""
    storage.pipe({"/box/m/a.bin": content, "/box/m/sub/b.bin": b"b", "/box/other": b"no"})
    done = fetch_here(f"{scheme}://box/m")
    assert [(one.name, one.source) for one in done.files] == [
        ("a.bin", f"{scheme}://box/m/a.bin"), ("sub/b.bin", f"{scheme}://box/m/sub/b.bin"),
    ]  # fmt: skip
    assert (tmp_path / "out" / "a.bin").read_bytes() == content
    assert fetch_here(f"{scheme}://box/m/a.bin", to="one").files[0].outcome == "from cache"
    with pytest.raises(FetchError, match="no such file"):
        fetch_here(f"{scheme}://box/nothing")


def test_a_storage_service_as_target(storage: Any, shop: Any, content: bytes, fetch_here: Run) -> None:
    """A file is put there with a manifest, left alone the second time, checked, and missed when it is gone."""
    url = shop.put("/a.bin", content)
    fetch_here(url, to="gs://box/models")
    assert storage.cat("/box/models/a.bin") == content
    assert fetch_here(url, to="gs://box/models").files[0].outcome == "already there"
    assert [one.state for one in verify(["gs://box/models"])] == ["ok"]
    storage.pipe("/box/models/a.bin", b"spoiled")
    assert [one.state for one in verify(["gs://box/models"])] == ["changed"]
    storage.rm("/box/models/a.bin")
    assert [one.state for one in verify(["gs://box/models"])] == ["missing"]


@pytest.mark.parametrize("form", ["google", "azure", "azure-bytes"])
def test_the_services_md5_is_held_against_the_bytes(
    storage: Any, content: bytes, fetch_here: Run, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """The MD5 of either service's listing is used, and a wrong one fails the file."""
    storage.pipe({"/box/a.bin": content, "/box/b.bin": content + b"!"})
    raw = hashlib.md5(content).digest()
    text = base64.b64encode(raw).decode()
    stated: dict[str, Any] = {
        "google": {"md5Hash": text}, "azure": {"content_settings": {"content_md5": text}},
        "azure-bytes": {"content_settings": {"content_md5": bytearray(raw)}},
    }[form]  # fmt: skip
    plain = storage.info
    monkeypatch.setattr(storage, "info", lambda path: plain(path) | stated)
    assert fetch_here("gs://box/a.bin").files[0].verified_by == "md5 of the storage service"
    assert "storage service says" in fetch_here("gs://box/b.bin").failures[0].problem


def test_the_adapters_are_those_of_the_schemes(storage: Any) -> None:
    """gs:// and az:// are read and written by what is tried here."""
    address: Address = parse_address("az://box/x")
    assert isinstance(listing.open_source(address, jobs=1), FilesystemBackend)
    assert isinstance(fetching.open_target(address, copy=False, jobs=1), FilesystemTarget)
    assert storage.store == {}
