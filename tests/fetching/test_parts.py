"""Addresses, names, digests, journals: the pure and the small."""

from __future__ import annotations

import hashlib
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tonnage.errors import FetchError, InputError
from tonnage.fetching.addresses import parse_address, safe_name
from tonnage.fetching.checksums import digests, parse_sums
from tonnage.fetching.partial import Partial
from tonnage.fetching.remote import RemoteFile


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hf://org/name", ("hf", "org/name", "", None, "model")),
        ("hf://org/name@v1/a/b.bin", ("hf", "org/name", "a/b.bin", "v1", "model")),
        ("hf://datasets/org/name@refs/pr/3/x", ("hf", "org/name", "x", "refs/pr/3", "dataset")),
        ("s3://bucket/a/b", ("s3", "bucket", "a/b", None, "model")),
        ("gcs://bucket/a", ("gs", "bucket", "a", None, "model")),
        ("abfs://box/a", ("az", "box", "a", None, "model")),
        ("file:///x%20y", ("file", "", "/x y", None, "model")),
    ],
)
def test_addresses(text: str, expected: tuple[str, ...]) -> None:
    """Every form of docs/fetch.md is read."""
    one = parse_address(text)
    assert (one.scheme, one.container, one.path, one.revision, one.repo_kind) == expected


@pytest.mark.parametrize(
    "text", ["", "hf://", "hf://gpt2", "ftp://host/x", "s3://", "http://", "https:///x", "hg://a/b"]
)
def test_bad_addresses(text: str) -> None:
    """Bad input is said with a hint."""
    with pytest.raises(InputError) as caught:
        parse_address(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    "name",
    ["../x", "a/../../x", "/etc/passwd", "a//b", "", ".", "a/./b", "C:\\x", "c:x", "a\\b", "a\0b", "a\nb",
     ".tonnage-fetch.json", "sub/.tonnage-fetch.json"],
)  # fmt: skip
def test_names_that_lead_out_are_refused(name: str) -> None:
    """No name of a source is written outside a target, or over its manifest."""
    with pytest.raises(FetchError, match="refused"):
        safe_name(name, "s3://bucket")


@pytest.mark.parametrize("name", ["a", "a/b.c", "..a/b", ".hidden", "a b/ü.bin", "x..y"])
def test_ordinary_names_are_taken(name: str) -> None:
    """Dots, spaces and letters of other languages are no danger."""
    assert safe_name(name, "s3://bucket") == name


def test_sums_of_the_usual_tools(tmp_path: Path) -> None:
    """GNU text and binary lines, BSD lines, and a lone digest in FILE.sha256 are read; other lines are bad input."""
    (tmp_path / "a b").write_bytes(b"x")
    digest = hashlib.sha256(b"x").hexdigest()
    gnu = subprocess.run(["sha256sum", "a b"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert parse_sums(gnu, "SHA256SUMS") == {"a b": digest}
    assert parse_sums(f"{digest} *c.bin\nSHA256 (d.bin) = {digest}\n", "s") == {"c.bin": digest, "d.bin": digest}
    assert parse_sums(digest, "x/model.bin.sha256") == {"model.bin": digest}
    with pytest.raises(InputError, match="s:2: found 'not a digest'"):
        parse_sums(f"{digest}  a\nnot a digest\n", "s")


def test_gits_name_of_a_file(tmp_path: Path) -> None:
    """The git digest is that of `git hash-object` ("hello\\n" is ce013625...)."""
    (tmp_path / "a").write_text("hello\n")
    assert digests(tmp_path / "a", ["git-blob", "md5"]) == {
        "git-blob": "ce013625030ba8dba906f756967f9e9ca394464a",
        "md5": "b1946ac92492d2347c6235b4d2611184",
        "sha256": "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03",
    }


@pytest.fixture
def file() -> RemoteFile:
    """A file of three ranges of 10 bytes, the last of 5."""
    return RemoteFile(name="a", identity="s3://b/a", place="a", size_bytes=25, version="etag 1", ranged=True)


def arrive(partial: Partial, part: int, byte: bytes) -> None:
    import zlib

    start, end = partial.bounds(part)
    partial.write(byte * (end - start), start)
    partial.done(part, zlib.crc32(byte * (end - start)))


def test_a_journal_outlives_its_process(file: RemoteFile, tmp_path: Path) -> None:
    """What was entered counts after opening again; what was not, does not."""
    first = Partial(tmp_path, file, part_bytes=10)
    arrive(first, 0, b"x")
    arrive(first, 2, b"z")
    first.write(b"half", 10)
    first.close(flush=False)
    again = Partial(tmp_path, file, part_bytes=10)
    assert (again.missing(), again.arrived_bytes) == ([1], 15)
    again.close(flush=False)


@pytest.mark.parametrize("spoil", ["bytes", "line", "data", "head"])
def test_what_a_journal_says_is_not_believed(file: RemoteFile, tmp_path: Path, spoil: str) -> None:
    """Bytes changed on disk, a line cut midway, data or the head gone: those ranges come again."""
    first = Partial(tmp_path, file, part_bytes=10)
    arrive(first, 0, b"x")
    arrive(first, 1, b"y")
    first.close(flush=False)
    data, journal = tmp_path / "data", tmp_path / "journal"
    if spoil == "bytes":
        data.write_bytes(b"x" * 10 + b"yyyyYyyyyy" + b"\0" * 5)
    elif spoil == "line":
        journal.write_text(journal.read_text()[:-8])
    elif spoil == "data":
        data.unlink()
    else:
        journal.write_text("")
    again = Partial(tmp_path, file, part_bytes=10)
    assert again.missing() == {"bytes": [1, 2], "line": [1, 2], "data": [0, 1, 2], "head": [0, 1, 2]}[spoil]
    again.close(flush=False)


@pytest.mark.parametrize("change", [{"version": "etag 2"}, {"size_bytes": 24}, {"ranged": False}])
def test_ranges_of_another_version_do_not_count(file: RemoteFile, tmp_path: Path, change: dict[str, object]) -> None:
    """Another ETag or size: everything comes again."""
    first = Partial(tmp_path, file, part_bytes=10)
    arrive(first, 0, b"x")
    first.close(flush=False)
    again = Partial(tmp_path, replace(file, **change), part_bytes=10)  # type: ignore[arg-type]
    assert again.arrived_bytes == 0
    again.close(flush=False)
