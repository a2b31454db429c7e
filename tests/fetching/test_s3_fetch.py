"""s3:// against moto's server on this machine: reading, changing under the reader, writing, verifying."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.moto_server import moto_server, reset

from tonnage.errors import FetchError
from tonnage.fetching import Fetched, ProgressWatcher, verify

pytest.importorskip("boto3", reason="the extra 'fetch' is not installed")
pytest.importorskip("moto.server", reason="moto[server] is not installed")

Run = Callable[..., Fetched]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """One moto server for this file."""
    with moto_server() as address:
        yield address


@pytest.fixture
def s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client, an empty bucket `src` and an empty bucket `dst`."""
    for name, value in {
        "AWS_ENDPOINT_URL_S3": endpoint, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    import boto3

    reset(endpoint)
    client = boto3.client("s3")
    client.create_bucket(Bucket="src")
    client.create_bucket(Bucket="dst")
    yield client
    client.close()


def put(s3: Any, key: str, body: bytes, **more: Any) -> None:
    s3.put_object(Bucket="src", Key=key, Body=body, **more)


def test_an_object_and_a_prefix(s3: Any, content: bytes, fetch_here: Run, tmp_path: Path) -> None:
    """A key is one file; a prefix is all below it, without folder markers; ETags that are MD5s are checked."""
    put(s3, "m/a.bin", content)
    put(s3, "m/sub/b.bin", b"b")
    put(s3, "m/", b"")
    put(s3, "more.bin", b"not wanted")
    one = fetch_here("s3://src/m/a.bin", to="one")
    assert (tmp_path / "one" / "a.bin").read_bytes() == content
    assert one.files[0].verified_by == "md5 of the S3 ETag"
    both = fetch_here("s3://src/m", to="both")
    assert [each.name for each in both.files] == ["a.bin", "sub/b.bin"]
    assert (tmp_path / "both" / "sub" / "b.bin").read_bytes() == b"b"
    assert both.files[0].outcome == "from cache"


@pytest.mark.usefixtures("s3")
def test_what_is_not_there(fetch_here: Run) -> None:
    """Missing keys and buckets are said as such."""
    for source in ("s3://src/nothing", "s3://src/nothing/", "s3://no-such-bucket/x"):
        with pytest.raises(FetchError, match="no such file or folder"):
            fetch_here(source)


def test_an_object_that_changes_midway_is_never_mixed(s3: Any, content: bytes, fetch_here: Run, tmp_path: Path) -> None:
    """Overwritten between two ranges, an object starts over and is the new one."""
    put(s3, "a.bin", content)
    new = bytes(reversed(content))
    once = threading.Event()

    def overwrite(_count: int) -> None:
        if not once.is_set():
            once.set()
            put(s3, "a.bin", new)

    said: list[str] = []
    fetch_here("s3://src/a.bin", jobs=1, watcher=ProgressWatcher(advance=overwrite, say=said.append))
    assert (tmp_path / "out" / "a.bin").read_bytes() == new
    assert said == ["s3://src/a.bin changed on the way: starting over"]


def test_an_etag_of_parts_is_no_digest(s3: Any, fetch_here: Run, tmp_path: Path) -> None:
    """The ETag of a multi-part upload is not taken for an MD5."""
    upload = s3.create_multipart_upload(Bucket="src", Key="a.bin")["UploadId"]
    parts = [b"x" * 5 * 2**20, b"y"]
    done = [
        {"PartNumber": number, "ETag": s3.upload_part(
            Bucket="src", Key="a.bin", UploadId=upload, PartNumber=number, Body=body)["ETag"]}
        for number, body in enumerate(parts, 1)
    ]  # fmt: skip
    s3.complete_multipart_upload(Bucket="src", Key="a.bin", UploadId=upload, MultipartUpload={"Parts": done})
    assert fetch_here("s3://src/a.bin").files[0].verified_by == "size only"
    assert (tmp_path / "out" / "a.bin").read_bytes() == b"".join(parts)


def test_sums_in_the_prefix_are_used(s3: Any, content: bytes, fetch_here: Run) -> None:
    """A SHA256SUMS beside the files is read, and a file that does not have its digest fails."""
    import hashlib

    put(s3, "m/a.bin", content)
    put(s3, "m/b.bin", b"b")
    digest = hashlib.sha256(content).hexdigest()
    put(s3, "m/SHA256SUMS", f"{digest}  a.bin\n{digest}  b.bin\n".encode())
    done = fetch_here("s3://src/m")
    assert done.files[1].verified_by == "sha256 of the SHA256SUMS, md5 of the S3 ETag"
    assert [one.name for one in done.failures] == ["b.bin"]


def test_names_that_lead_out(s3: Any, fetch_here: Run, tmp_path: Path) -> None:
    """Keys may hold `..`; targets do not follow."""
    put(s3, "m/../../evil", b"x")
    with pytest.raises(FetchError, match="refused"):
        fetch_here("s3://src/m/")
    assert not list(tmp_path.parent.rglob("evil"))


def test_replicas_in_a_folder_and_in_s3(s3: Any, shop: Any, content: bytes, fetch_here: Run, tmp_path: Path) -> None:
    """One download reaches a folder and a bucket; again it does nothing; --verify reads both; changes are found."""
    url, goals = shop.put("/a.bin", content), ("out", "s3://dst/models")
    done = fetch_here(url, to=goals)
    assert done.files[0].places == (str(tmp_path / "out" / "a.bin"), "s3://dst/models/a.bin")
    assert s3.get_object(Bucket="dst", Key="models/a.bin")["Body"].read() == content
    bodies = shop.files["/a.bin"].bodies
    assert fetch_here(url, to=goals).files[0].outcome == "already there"
    assert shop.files["/a.bin"].bodies == bodies == 11
    assert {one.state for one in verify([str(tmp_path / "out"), "s3://dst/models"])} == {"ok"}
    s3.put_object(Bucket="dst", Key="models/a.bin", Body=b"spoiled")
    assert {one.state for one in verify(["s3://dst/models"])} == {"changed"}
    assert "--force replaces it" in fetch_here(url, to=goals).failures[0].problem
    fetch_here(url, to=goals, force=True)
    s3.delete_object(Bucket="dst", Key="models/a.bin")
    assert fetch_here(url, to=goals).files[0].outcome == "from cache"
    assert {one.state for one in verify(["s3://dst/models"])} == {"ok"}


def test_from_bucket_to_bucket(s3: Any, content: bytes, fetch_here: Run) -> None:
    """S3 to S3 goes through the cache."""
    put(s3, "a.bin", content)
    fetch_here("s3://src/a.bin", to="s3://dst")
    assert s3.get_object(Bucket="dst", Key="a.bin")["Body"].read() == content
