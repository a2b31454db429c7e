"""`tonnage batch` from and to S3, as moto answers: inside this process, and as a server where processes are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.moto_server import moto_server, reset

pytest.importorskip("boto3")
pytest.importorskip("moto.server")
pytest.importorskip("httptools")
pytest.importorskip("uvloop")

import tonnage
from tonnage import BatchOptions
from tonnage.batches import s3_objects
from tonnage.batches.objects import ObjectChanged
from tonnage.batches.s3_objects import S3BatchObjects
from tonnage.errors import InputError, TonnageError
from tonnage.testing.upstream import PretendedUpstream

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with moto_server() as address:
        yield address


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client, and the empty bucket `bkt`; moto answers inside this process."""
    from moto import mock_aws

    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://s3.us-east-1.amazonaws.com")
    with mock_aws():
        yield from client_of_bucket(monkeypatch)


@pytest.fixture
def served_s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The same on moto's server, for processes of their own."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    reset(endpoint)
    yield from client_of_bucket(monkeypatch)


def client_of_bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    import boto3

    client = boto3.session.Session().client("s3")
    client.create_bucket(Bucket="bkt")
    yield client
    client.close()


def put_rows(s3: Any, count: int, *more: str) -> str:
    lines = [json.dumps({"id": f"r{at}", "text": f"text {at}"}) for at in range(count)]
    s3.put_object(Bucket="bkt", Key="in.jsonl", Body="\n".join([*lines, *more]).encode())
    return "s3://bkt/in.jsonl"


def ids(s3: Any, key: str) -> Counter[str]:
    body = s3.get_object(Bucket="bkt", Key=key)["Body"].read()
    return Counter(json.loads(line)["custom_id"] for line in body.splitlines())


def keys(s3: Any) -> list[str]:
    return [one["Key"] for one in s3.list_objects_v2(Bucket="bkt").get("Contents", ())]


def test_rows_of_an_object_are_answered_into_objects(s3: Any) -> None:
    """As with files: bad rows apart, the same call again sends nothing, failed rows are asked again."""
    source, out = put_rows(s3, 300, "{"), "s3://bkt/x/out.jsonl"
    with PretendedUpstream() as upstream:
        asked = BatchOptions(url=upstream.url, model="tiny")
        found = tonnage.batch(source, out, asked).found
        assert (found.progress.answered, found.progress.failed, found.output) == (300, 1, out)
        assert ids(s3, "x/out.jsonl") == {f"r{at}": 1 for at in range(300)}
        assert ids(s3, "x/out.jsonl.errors.jsonl").total() == 1
        assert tonnage.batch(source, out, asked).checked().progress.done_before == 301
        assert upstream.seen.total() == 300
        put_rows(s3, 300, json.dumps({"id": "r300", "text": "mended"}))
        asked = BatchOptions(url=upstream.url, model="tiny", retry_errors=True)
        assert tonnage.batch(source, out, asked).checked().progress.answered == 1
    assert ids(s3, "x/out.jsonl") == {f"r{at}": 1 for at in range(301)}
    assert [key for key in keys(s3) if "errors" in key] == []


def test_parquet_is_read_by_ranges(s3: Any, tmp_path: Any) -> None:
    """Its footer is at the end."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"id": ["a", "b"], "text": ["x", "y"]}), tmp_path / "in.parquet")
    s3.upload_file(str(tmp_path / "in.parquet"), "bkt", "in.parquet")
    with PretendedUpstream() as upstream:
        tonnage.batch("s3://bkt/in.parquet", "s3://bkt/out", BatchOptions(url=upstream.url, model="tiny")).checked()
    assert ids(s3, "out") == {"a": 1, "b": 1}


def test_what_is_not_there_is_bad_input(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The object, the bucket, the credentials."""
    asked = BatchOptions(url="http://127.0.0.1:9", model="tiny")
    with pytest.raises(InputError, match="is not there"):
        tonnage.batch("s3://bkt/none.jsonl", "s3://bkt/out", asked)
    source = put_rows(s3, 1)
    with pytest.raises(InputError, match="no such bucket"):
        tonnage.batch(source, "s3://none/out", asked)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(InputError, match="credentials"):
        tonnage.batch(source, "s3://bkt/out", asked)


def test_a_large_object_is_replaced_whole_or_not(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In parts, over the version that was read; parts that a kill has left are ended; nothing stays of a failure."""
    monkeypatch.setattr(s3_objects, "PART_BYTES", 5 * 2**20)
    store, mebibyte = S3BatchObjects("bkt"), bytes(2**20)
    s3.create_multipart_upload(Bucket="bkt", Key="a")
    store.replace("a", iter([mebibyte] * 11), None)
    state = store.look("a")
    assert state is not None
    assert state.size_bytes == 11 * 2**20
    with pytest.raises(ObjectChanged):
        store.replace("a", iter([mebibyte] * 12), None)
    store.replace("a", iter([mebibyte] * 12), state.version)
    with pytest.raises(ObjectChanged):
        store.replace("a", iter([mebibyte] * 13), state.version)

    def broken() -> Iterator[bytes]:
        yield from [mebibyte] * 12
        raise TonnageError("the disk is full")

    with pytest.raises(TonnageError, match="disk is full"):
        store.replace("a", broken(), store.look("a").version)  # type: ignore[union-attr]
    assert store.look("a").size_bytes == 12 * 2**20  # type: ignore[union-attr]
    assert "Uploads" not in s3.list_multipart_uploads(Bucket="bkt")


@pytest.mark.slow
def test_kills_lose_and_repeat_nothing(served_s3: Any) -> None:
    """Twelve times SIGKILL, at random moments, the joining among them; then the same command to its end."""
    source, out = put_rows(served_s3, 20_000), "s3://bkt/out.jsonl"
    with PretendedUpstream(delay_s=0.001) as upstream:
        words = [sys.executable, "-m", "tonnage", "batch", source, out, "--url", upstream.url, "--model", "t", "-q"]
        for _ in range(12):
            one = subprocess.Popen(words, stdout=subprocess.DEVNULL, env={**os.environ})
            time.sleep(random.uniform(1.5, 5.0))
            one.send_signal(signal.SIGKILL)
            one.wait()
        assert subprocess.run(words, stdout=subprocess.DEVNULL, check=False).returncode == 0
    assert ids(served_s3, "out.jsonl") == {f"r{at}": 1 for at in range(20_000)}
    assert len(keys(served_s3)) == 3  # in, out, the seal
