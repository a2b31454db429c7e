"""What every store of runs does: one suite for folders, S3, Google Cloud Storage, Azure Blob Storage, Unity Catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tonnage.errors import InputError, TonnageError
from tonnage.places.bucket import blobs
from tonnage.places.bucket.objects import Objects, open_objects
from tonnage.testing.azure.azurite import ACCOUNT, azurite, azurite_program
from tonnage.testing.azure.cloud import FakeAzure
from tonnage.testing.http_service import HTTPAnswer, times

pytestmark = pytest.mark.heavy
NEEDS_AZURITE = pytest.mark.skipif(azurite_program() is None, reason="npm install -g azurite, or TONNAGE_AZURITE")
STORES = (
    "file", "mounted", "s3", "gs", "az", "volume", pytest.param("azurite", marks=[pytest.mark.slow, NEEDS_AZURITE])
)  # fmt: skip


@pytest.fixture
def blob_emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Azurite; its account."""
    with azurite(tmp_path / "azurite") as environ:
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        yield ACCOUNT


@pytest.fixture(params=STORES)
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    """An empty one, as its address opens it."""

    def s3() -> str:
        pytest.importorskip("moto")
        request.getfixturevalue("aws")
        return "s3://runs/deep/tonnage"

    def volume() -> str:
        pytest.importorskip("databricks.sdk")
        request.getfixturevalue("workspace")
        return "/Volumes/main/ml/runs/tonnage"

    def gs() -> str:
        request.getfixturevalue("google")
        return "gs://runs/deep/tonnage"

    def az() -> str:
        request.getfixturevalue("azure")
        return "az://runs@account.blob.core.windows.net/deep/tonnage"

    def emulator() -> str:
        return f"az://runs@{request.getfixturevalue('blob_emulator')}.blob.core.windows.net/deep/tonnage"

    addresses: dict[str, Callable[[], str]] = {
        "file": lambda: f"file://{tmp_path}/store", "mounted": lambda: f"volume://{tmp_path}/store",
        "s3": s3, "gs": gs, "az": az, "azurite": emulator, "volume": volume,
    }  # fmt: skip
    return open_objects(addresses[request.param]())


def test_what_is_written_is_read_and_listed(objects: Objects, tmp_path: Path) -> None:
    """From any byte on; files of any size go in and come out; names with blanks and signs stay as they are."""
    assert objects.sizes("") == {}
    objects.write("run/1/a b+c.json", b"0123456789")
    found = objects.read("run/1/a b+c.json")
    assert found is not None
    assert (found.content, found.age_s < 120) == (b"0123456789", True)
    assert [one and one.content for one in (objects.read("run/1/a b+c.json", start=4),)] == [b"456789"]
    assert objects.read("run/1/a b+c.json", start=10) is None
    assert objects.read("run/1/none") is None
    file = tmp_path / "file"
    file.write_bytes(b"x" * 3_000_000)
    objects.put("run/2/file", file)
    assert objects.sizes("run/") == {"run/1/a b+c.json": 10, "run/2/file": 3_000_000}
    assert objects.sizes("run/2/f") == {"run/2/file": 3_000_000}
    assert objects.sizes("run/9/") == {}
    objects.get("run/2/file", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == file.read_bytes()
    with pytest.raises(FileNotFoundError):
        objects.get("run/2/none", tmp_path / "none")


def test_a_lease_is_taken_once_and_replaced_by_who_has_read_it(objects: Objects) -> None:
    """The second that makes it, and the one that has read an older version, are refused."""
    assert objects.write_if("run/lease", b"1", None)
    assert not objects.write_if("run/lease", b"2", None)
    first = objects.read("run/lease")
    assert first is not None
    assert objects.write_if("run/lease", b"2", first.version)
    assert not objects.write_if("run/lease", b"3", first.version)
    newest = objects.read("run/lease")
    assert newest is not None
    assert newest.content == b"2"


def test_what_is_removed_is_gone_and_what_is_not_there_can_be_removed(objects: Objects) -> None:
    for key in ("run/1/a", "run/1/deep/b", "run/2/c"):
        objects.write(key, b"x")
    objects.remove(["run/1/a", "run/1/deep/b", "run/1/none"])
    assert objects.sizes("run/") == {"run/2/c": 1}
    objects.write("run/1/a", b"y")  # its folder is made again
    assert objects.sizes("run/1/") == {"run/1/a": 1}


def test_a_store_that_is_not_there_is_said_with_the_command_that_makes_it(request: pytest.FixtureRequest) -> None:
    for fixture, address, command in (
        ("aws", "s3://nothing/here", "aws s3 mb s3://nothing"),
        ("google", "gs://nothing/here", "gcloud storage buckets create gs://nothing"),
        ("azure", "az://nothing@account.blob.core.windows.net/here",
         "az storage container create --name nothing --account-name account"),
        ("workspace", "/Volumes/main/ml/none/tonnage", "databricks volumes create main ml none MANAGED"),
    ):  # fmt: skip
        request.getfixturevalue(fixture)
        with pytest.raises(InputError, match="there is no") as raised:
            open_objects(address).sizes("run/")
        assert command in (raised.value.hint or "")
    with pytest.raises(TonnageError, match="no place for runs"):
        open_objects("ftp://nothing/here")


@pytest.mark.parametrize("store", ["azure", pytest.param("blob_emulator", marks=[pytest.mark.slow, NEEDS_AZURITE])])
def test_large_blobs_go_in_blocks(
    store: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of blocks makes the object; listing goes page by page."""
    found = request.getfixturevalue(store)
    monkeypatch.setattr(blobs, "BLOCK_BYTES", 300_000)
    objects = open_objects("az://runs@account.blob.core.windows.net/x")
    (tmp_path / "file").write_bytes(bytes(range(256)) * 4000)
    objects.put("big", tmp_path / "file")
    objects.get("big", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == (tmp_path / "file").read_bytes()
    for number in range(5):
        objects.write(f"many/{number}", b"x")
    if store == "azure":
        found.blobs.page = 2
        assert sum(asked.query.get("comp") == "block" for asked in found.asked) == 4
    assert objects.sizes("many/") == {f"many/{number}": 1 for number in range(5)}


def test_a_container_without_rights_or_an_address_without_account_is_said(azure: FakeAzure) -> None:
    azure.before.append(times(1, HTTPAnswer(status=403, headers={"x-ms-error-code": "AuthorizationPermissionMismatch"}),
                              "GET", "/account/"))  # fmt: skip
    with pytest.raises(InputError, match=r"access refused \(AuthorizationPermissionMismatch") as raised:
        open_objects("az://runs@account.blob.core.windows.net/x").sizes("")
    assert "Storage Blob Data Contributor" in (raised.value.hint or "")
    with pytest.raises(InputError, match="names no container") as raised:
        open_objects("az://runs/x")
    assert "CONTAINER@ACCOUNT" in (raised.value.hint or "")
