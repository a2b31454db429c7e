"""Fetching over http from a server on this machine that cuts, lies, changes its mind and refuses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import FetchError, InputError
from tonnage.fetching import Fetched, ProgressWatcher

Run = Callable[..., Fetched]
PART_BYTES = 64 * 1024


def sha(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def test_ranges_side_by_side_make_the_file(shop: Any, content: bytes, fetch_here: Run, tmp_path: Path) -> None:
    """A large file comes in ranges, each once, and is the file."""
    done = fetch_here(shop.put("/a.bin", content))
    assert (tmp_path / "out" / "a.bin").read_bytes() == content
    assert done.files[0].outcome == "fetched"
    assert done.files[0].sha256 == sha(content)
    asked = [one for _, one in shop.ranges if one != "bytes=0-0"]
    assert len(asked) == len(set(asked)) == 11


def test_cut_connections_go_on_where_they_were(shop: Any, content: bytes, fetch_here: Run, tmp_path: Path) -> None:
    """Connections shut midway cost only what had not arrived: no byte that came is asked for again."""
    url = shop.put("/a.bin", content, cuts=[1000, 30_000, 0, 65_535, 20_000, 5])
    fetch_here(url, jobs=3)
    assert (tmp_path / "out" / "a.bin").read_bytes() == content
    assert shop.sent_bytes <= len(content) + 8  # probes send a byte each


def test_patience_ends(shop: Any, content: bytes, fetch_here: Run, tmp_path: Path) -> None:
    """A server that only ever cuts is given up after the attempts asked for; the target stays empty."""
    done = fetch_here(shop.put("/a.bin", content, cuts=[0] * 1000), attempts=3)
    assert "after 3 attempts" in done.files[0].problem
    assert not (tmp_path / "out" / "a.bin").exists()


def test_the_next_run_goes_on(shop: Any, content: bytes, fetch_here: Run, tmp_path: Path) -> None:
    """What arrived before a run failed is not fetched again by the next one."""
    url = shop.put("/a.bin", content, cuts=[PART_BYTES] * 4 + [0] * 1000)
    assert fetch_here(url, jobs=1, attempts=2).failures
    shop.files["/a.bin"].cuts = []
    before = shop.sent_bytes
    fetch_here(url, jobs=1)
    assert (tmp_path / "out" / "a.bin").read_bytes() == content
    assert shop.sent_bytes - before <= len(content) - 4 * PART_BYTES + 8


@pytest.mark.parametrize("honours_if_range", [True, False])
def test_a_file_that_changes_midway_is_never_mixed(
    shop: Any, content: bytes, fetch_here: Run, tmp_path: Path, honours_if_range: bool
) -> None:
    """Changed between two ranges, a file starts over and is the new one, whether or not If-Range is honoured."""
    new = bytes(reversed(content))
    url = shop.put("/a.bin", content, honours_if_range=honours_if_range)
    served = shop.files["/a.bin"]

    def change(number: int) -> None:
        if number == 5:
            served.body, served.etag = new, '"second"'

    served.on_body = change
    said: list[str] = []
    done = fetch_here(url, jobs=2, watcher=ProgressWatcher(say=said.append))
    assert (tmp_path / "out" / "a.bin").read_bytes() == new
    assert done.files[0].sha256 == sha(new)
    assert "changed on the way" in said[0]


def test_a_file_changed_between_runs_starts_over(shop: Any, content: bytes, fetch_here: Run, tmp_path: Path) -> None:
    """Ranges of an earlier version, left by a failed run, are not used for the new one of the same size."""
    url = shop.put("/a.bin", content, cuts=[PART_BYTES] * 4 + [0] * 1000)
    assert fetch_here(url, jobs=1, attempts=2).failures
    new = bytes(reversed(content))
    shop.put("/a.bin", new)
    fetch_here(url)
    assert (tmp_path / "out" / "a.bin").read_bytes() == new


def test_without_ranges_it_comes_in_one_go(shop: Any, content: bytes, fetch_here: Run, tmp_path: Path) -> None:
    """A server without ranges is read from the start again after a cut."""
    url = shop.put("/a.bin", content, ranges=False, cuts=[100_000, 200_000])
    fetch_here(url)
    assert (tmp_path / "out" / "a.bin").read_bytes() == content
    assert shop.asked["/a.bin"] == 5  # probe, three bodies, a last look


def test_without_a_validator_ranges_are_not_joined(shop: Any, content: bytes, fetch_here: Run) -> None:
    """Where nothing tells two versions apart, the file comes in one answer, ranges or not."""
    fetch_here(shop.put("/a.bin", content, etag=""))
    assert {one for _, one in shop.ranges} == {"bytes=0-0"}


def test_a_weak_etag_does_not_join_ranges(shop: Any, content: bytes, fetch_here: Run) -> None:
    """A weak ETag may stay while bytes change: no ranges."""
    fetch_here(shop.put("/a.bin", content, etag='W/"1"'))
    assert {one for _, one in shop.ranges} == {"bytes=0-0"}


@pytest.mark.parametrize("lie", [-5000, 5000])
def test_a_false_length_is_no_file(shop: Any, content: bytes, fetch_here: Run, tmp_path: Path, lie: int) -> None:
    """A body shorter than announced is not taken for the file; of a longer one only a stated digest can tell."""
    url = shop.put("/a.bin", content, ranges=False, length=len(content) + lie)
    done = fetch_here(url, attempts=2, sha256=sha(content))
    assert done.failures
    assert not (tmp_path / "out" / "a.bin").exists()


def test_an_unannounced_length_is_said(shop: Any, content: bytes, fetch_here: Run) -> None:
    """Without length and digest nothing is verified, and the result says so."""
    done = fetch_here(shop.put("/a.bin", content, ranges=False, announces_length=False))
    assert done.files[0].verified_by.startswith("nothing")
    assert done.files[0].size_bytes == len(content)


def test_an_empty_file(shop: Any, fetch_here: Run, tmp_path: Path) -> None:
    """A file of no bytes arrives."""
    fetch_here(shop.put("/empty", b""))
    assert (tmp_path / "out" / "empty").read_bytes() == b""


def test_refusals_are_waited_out(shop: Any, content: bytes, fetch_here: Run, tmp_path: Path) -> None:
    """429 with Retry-After and 503 are asked again, not before the time named."""
    import time

    url = shop.put("/a.bin", content, refusals=[(429, {"Retry-After": "1"}), (503, {}), (502, {})])
    begun = time.monotonic()
    fetch_here(url)
    assert (tmp_path / "out" / "a.bin").read_bytes() == content
    assert time.monotonic() - begun >= 1.0  # what the server asked for, not a figure of speed


@pytest.mark.parametrize(("status", "said"), [(404, "no such file"), (403, "access refused"), (418, "HTTP 418")])
def test_final_refusals_are_not_asked_again(shop: Any, fetch_here: Run, status: int, said: str) -> None:
    """A missing or forbidden file is asked for once."""
    with pytest.raises(FetchError, match=said):
        fetch_here(shop.put("/a.bin", b"x", refusals=[(status, {})] * 9))
    assert shop.asked["/a.bin"] == 1


def test_a_wrong_digest_exits_and_keeps_what_was_there(
    shop: Any, content: bytes, fetch_here: Run, tmp_path: Path
) -> None:
    """With another SHA-256 than stated the target keeps what it had; the right one then needs no download."""
    old = shop.put("/a.bin", b"the old one")
    fetch_here(old)
    shop.put("/a.bin", content)
    done = fetch_here(old, sha256="0" * 64)
    assert "the --sha256 says 000" in done.files[0].problem
    assert (tmp_path / "out" / "a.bin").read_bytes() == b"the old one"
    bodies = shop.files["/a.bin"].bodies
    again = fetch_here(old, sha256=sha(content))
    assert (tmp_path / "out" / "a.bin").read_bytes() == content
    assert again.files[0].outcome == "from cache"
    assert shop.files["/a.bin"].bodies == bodies


def test_a_digest_in_the_headers_is_held_against_the_bytes(shop: Any, content: bytes, fetch_here: Run) -> None:
    """Repr-Digest is used; a server whose bytes do not have it is refused."""
    import base64

    right = base64.b64encode(hashlib.sha256(content).digest()).decode()
    done = fetch_here(shop.put("/a.bin", content, headers={"Repr-Digest": f"sha-256=:{right}:"}))
    assert done.files[0].verified_by == "sha256 of the Repr-Digest header"
    wrong = base64.b64encode(hashlib.sha256(b"").digest()).decode()
    done = fetch_here(shop.put("/b.bin", content, headers={"Repr-Digest": f"sha-256=:{wrong}:"}))
    assert "Repr-Digest" in done.failures[0].problem


def test_sums_of_a_url(shop: Any, content: bytes, fetch_here: Run) -> None:
    """--sums takes a URL; a list that does not name the file is an error, not silence."""
    sums = shop.put("/SHA256SUMS", f"{sha(content)}  a.bin\n{'0' * 64}  b.bin\n".encode())
    a, b, c = (shop.put(f"/{name}.bin", content) for name in "abc")
    assert fetch_here(a, sums=(sums,)).files[0].verified_by == "sha256 of the SHA256SUMS"
    assert "SHA256SUMS says 000" in fetch_here(b, sums=(sums,)).failures[0].problem
    with pytest.raises(InputError, match="names none of the files"):
        fetch_here(c, sums=(sums,))


def test_secrets_are_neither_kept_nor_said(shop: Any, content: bytes, fetch_here: Run, tmp_path: Path) -> None:
    """Password and signature of a URL reach the server and no file of ours."""
    url = shop.put("/a.bin", content).replace("http://", "http://me:hush@") + "?X-Amz-Signature=hushhush&part=1"
    done = fetch_here(url)
    assert any("Authorization" in one for one in shop.seen_headers)
    assert "hush" not in repr(done)
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size < 5000]
    assert kept
    assert not [path for path in kept if b"hush" in path.read_bytes()]


def test_a_second_fetch_does_nothing(shop: Any, content: bytes, fetch_here: Run, tmp_path: Path) -> None:
    """With the manifest's version still the server's, no body is asked for; the manifest says where it came from."""
    url = shop.put("/a.bin", content)
    fetch_here(url)
    bodies = shop.files["/a.bin"].bodies
    assert fetch_here(url).files[0].outcome == "already there"
    assert shop.files["/a.bin"].bodies == bodies
    manifest = json.loads((tmp_path / "out" / ".tonnage-fetch.json").read_text())
    assert manifest["files"]["a.bin"] | {"state": ""} == {
        "source": url, "version": f"etag {shop.files['/a.bin'].etag}", "size_bytes": len(content),
        "sha256": sha(content), "verified_by": "size only", "fetched_at": "2026-12-01T00:00:00+00:00", "state": "",
    }  # fmt: skip


def test_a_new_version_replaces_the_old(shop: Any, content: bytes, fetch_here: Run, tmp_path: Path) -> None:
    """Changed at the source, the file in the target follows; the cache's first copy is untouched."""
    url = shop.put("/a.bin", b"first")
    first = fetch_here(url).files[0].sha256
    shop.put("/a.bin", content)
    fetch_here(url)
    assert (tmp_path / "out" / "a.bin").read_bytes() == content
    assert first is not None
    assert (tmp_path / "cache" / "blobs" / first[:2] / first).read_bytes() == b"first"


def test_progress_adds_up(shop: Any, content: bytes, fetch_here: Run) -> None:
    """The bytes told of are those of the file, cuts and resumes or not."""
    for number, manners in enumerate([{}, {"cuts": [1000, 2000]}, {"ranges": False, "cuts": [70_000]}]):
        came: list[int] = []
        expected: list[int] = []
        url = shop.put(f"/{number}.bin", content, **manners)
        fetch_here(url, watcher=ProgressWatcher(expect=expected.append, advance=came.append))
        assert expected == [len(content)]
        assert sum(came) == len(content)
