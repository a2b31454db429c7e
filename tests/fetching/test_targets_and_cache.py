"""Targets, their manifests, and the cache between them: nothing of the user's lost, nothing fetched twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import FetchError, InputError
from tonnage.fetching import Fetched, verify

Run = Callable[..., Fetched]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A source of four files in folders, with the digests of two."""
    root = tmp_path / "src"
    for name, text in {"a.txt": "aa", "b/c.bin": "ccc", "b/d.bin": "dddd", "e.md": "e"}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    digest = hashlib.sha256(b"ccc").hexdigest()
    (root / "SHA256SUMS").write_text(f"{digest}  b/c.bin\n")
    return root


def tree(root: Path) -> dict[str, str]:
    found = {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*") if path.is_file()}
    found.pop(".tonnage-fetch.json", None)
    return found


def test_a_folder_arrives_as_it_is(folder: Path, fetch_here: Run, tmp_path: Path) -> None:
    """Every file of a folder stands under its own name; a digest that the folder itself states is used."""
    done = fetch_here(str(folder))
    assert tree(tmp_path / "out") == tree(folder)
    assert {one.name: one.verified_by for one in done.files}["b/c.bin"] == "sha256 of the SHA256SUMS"


def test_patterns_choose(folder: Path, fetch_here: Run, tmp_path: Path) -> None:
    """--include and --exclude take names and folders; taking nothing is an error that shows names."""
    fetch_here(str(folder), include=("*.bin", "*.md"), exclude=("b/d*",))
    assert set(tree(tmp_path / "out")) == {"b/c.bin", "e.md"}
    with pytest.raises(InputError, match="none of its 5 files") as caught:
        fetch_here(str(folder), include=("*.nothing",))
    assert "a.txt" in str(caught.value.hint)


def test_a_digest_of_the_folder_is_held_against_its_file(folder: Path, fetch_here: Run, tmp_path: Path) -> None:
    """One damaged file fails by name; the others arrive."""
    (folder / "b" / "c.bin").write_text("cXc")
    done = fetch_here(str(folder))
    assert [one.name for one in done.failures] == ["b/c.bin"]
    assert "b/c.bin" not in tree(tmp_path / "out")
    assert "b/d.bin" in tree(tmp_path / "out")


def test_several_targets_cost_one_download(shop: Any, content: bytes, fetch_here: Run, tmp_path: Path) -> None:
    """Two folders and a later third are served by one download."""
    url = shop.put("/a.bin", content)
    fetch_here(url, to=("one", "two"))
    fetch_here(url, to="three")
    sent = shop.sent_bytes
    assert sent < len(content) + 100
    assert {(tmp_path / name / "a.bin").read_bytes() for name in ("one", "two", "three")} == {content}


def test_without_a_target_it_stays_in_the_cache(shop: Any, content: bytes, fetch_here: Run) -> None:
    """The place reported is a file with these bytes."""
    done = fetch_here(shop.put("/a.bin", content), to=())
    (place,) = done.files[0].places
    assert Path(place).read_bytes() == content


@pytest.mark.parametrize("copy", [True, False])
def test_links_and_copies(shop: Any, content: bytes, fetch_here: Run, tmp_path: Path, copy: bool) -> None:
    """A folder on the cache's disk gets a read-only hard link, with --copy a file of its own."""
    fetch_here(shop.put("/a.bin", content), copy=copy)
    state = (tmp_path / "out" / "a.bin").stat()
    assert (state.st_nlink, state.st_mode & 0o777) == ((1, 0o644) if copy else (2, 0o444))


def test_a_link_written_into_does_not_spoil_the_next_fetch(
    shop: Any, content: bytes, fetch_here: Run, tmp_path: Path
) -> None:
    """Whoever writes through the hard link changes the cache's copy: it is noticed and fetched again."""
    url = shop.put("/a.bin", content)
    fetch_here(url)
    linked = tmp_path / "out" / "a.bin"
    linked.chmod(0o644)
    with linked.open("r+b") as stream:
        stream.write(b"spoiled")
    assert fetch_here(url, to="other").files[0].outcome == "fetched"
    assert (tmp_path / "other" / "a.bin").read_bytes() == content


def test_files_of_others_are_not_overwritten(shop: Any, content: bytes, fetch_here: Run, tmp_path: Path) -> None:
    """A file that no fetch put there, or that was changed since, is replaced only by --force."""
    url, place = shop.put("/a.bin", content), tmp_path / "out" / "a.bin"
    place.parent.mkdir()
    place.write_text("mine")
    assert "--force replaces it" in fetch_here(url).failures[0].problem
    assert place.read_text() == "mine"
    fetch_here(url, force=True)
    assert place.read_bytes() == content
    place.unlink()
    place.write_text("mine again")
    assert fetch_here(url).failures
    assert place.read_text() == "mine again"


def test_the_same_bytes_are_adopted(shop: Any, content: bytes, fetch_here: Run, tmp_path: Path) -> None:
    """A file already there with the right bytes (a fetch killed before its manifest) is entered, not refused."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.bin").write_bytes(content)
    url = shop.put("/a.bin", content)
    assert not fetch_here(url).failures
    assert fetch_here(url).files[0].outcome == "already there"


def test_verify_finds_what_changed_and_what_is_missing(folder: Path, fetch_here: Run, tmp_path: Path) -> None:
    """Every file of the manifest is read again: ok, changed even at the same size and time, missing."""
    import os

    fetch_here(str(folder), copy=True)
    out = tmp_path / "out"
    before = (out / "a.txt").stat()
    (out / "a.txt").write_text("ab")
    os.utime(out / "a.txt", ns=(before.st_atime_ns, before.st_mtime_ns))
    (out / "e.md").unlink()
    states = {one.name: one.state for one in verify([str(out)])}
    assert states == {
        "a.txt": "changed", "e.md": "missing", "b/c.bin": "ok", "b/d.bin": "ok", "SHA256SUMS": "ok",
    }  # fmt: skip
    with pytest.raises(InputError, match=r"has no \.tonnage-fetch\.json"):
        verify([str(folder)])


def test_a_missing_file_is_put_back_from_the_cache(shop: Any, content: bytes, fetch_here: Run, tmp_path: Path) -> None:
    """Deleted from the target, a file comes back without a download."""
    url = shop.put("/a.bin", content)
    fetch_here(url)
    (tmp_path / "out" / "a.bin").unlink()
    assert fetch_here(url).files[0].outcome == "from cache"
    assert (tmp_path / "out" / "a.bin").read_bytes() == content


def test_a_damaged_manifest_is_an_error(shop: Any, fetch_here: Run, tmp_path: Path) -> None:
    """A manifest that cannot be read is not taken for an empty one."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".tonnage-fetch.json").write_text('{"schema": "other@9"}')
    with pytest.raises(FetchError, match="cannot be read"):
        fetch_here(shop.put("/a.bin", b"x"))


def test_links_out_of_the_target_are_not_followed(folder: Path, fetch_here: Run, tmp_path: Path) -> None:
    """A folder of the target that is a link to elsewhere takes no file; a link in a file's place is replaced."""
    outside, out = tmp_path / "outside", tmp_path / "out"
    outside.mkdir()
    out.mkdir()
    (out / "b").symlink_to(outside)
    (outside / "victim").write_text("keep")
    (out / "a.txt").symlink_to(outside / "victim")
    done = fetch_here(str(folder))
    assert {one.name for one in done.failures} == {"b/c.bin", "b/d.bin"}
    assert {path.name for path in outside.iterdir()} == {"victim"}
    assert (outside / "victim").read_text() == "keep"
    assert (out / "a.txt").read_text() == "aa"


def test_two_files_of_one_name_are_refused(shop: Any, fetch_here: Run) -> None:
    """Two sources that would write the same name are an error before anything is fetched."""
    first, second = shop.put("/x/a.bin", b"1"), shop.put("/y/a.bin", b"2")
    with pytest.raises(InputError, match=r"two files would be named a\.bin"):
        fetch_here(first, second)


def test_room_is_looked_at_before_the_first_byte(shop: Any, content: bytes, fetch_here: Run) -> None:
    """With too little room the error names need, have and where, and no body is asked for."""
    url = shop.put("/a.bin", content)
    with pytest.raises(
        FetchError, match=r"cache has too little room: .*667,705 bytes\) needed, .*667,704 bytes\) free"
    ):
        fetch_here(url, free=lambda _path: len(content) - 1)
    assert shop.files["/a.bin"].bodies == 0
    assert not fetch_here(url, free=lambda _path: len(content)).failures


def test_a_copy_needs_room_twice(shop: Any, content: bytes, fetch_here: Run) -> None:
    """Copies into folders count beside the cache's own."""
    url = shop.put("/a.bin", content)
    with pytest.raises(FetchError, match="too little room"):
        fetch_here(url, copy=True, free=lambda _path: 2 * len(content) - 1)
    assert not fetch_here(url, copy=True, free=lambda _path: 2 * len(content)).failures


def test_a_dry_run_writes_and_fetches_nothing(shop: Any, content: bytes, fetch_here: Run, tmp_path: Path) -> None:
    """Files and bytes are listed; neither target nor a body is touched."""
    done = fetch_here(shop.put("/a.bin", content), dry_run=True)
    assert [(one.outcome, one.size_bytes) for one in done.files] == [("to fetch", len(content))]
    assert shop.files["/a.bin"].bodies == 0
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "cache").exists()


def test_a_full_disk_is_said_and_nothing_lost(
    shop: Any, content: bytes, fetch_here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fills up midway fails that file by its error; with room again the same call goes on."""
    import errno
    import os

    def full(handle: int, block: memoryview, at: int, write: Callable[..., int] = os.pwrite) -> int:
        if at > 200_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(handle, block, at)

    url = shop.put("/a.bin", content)
    with monkeypatch.context() as patch:
        patch.setattr("tonnage.fetching.partial.os.pwrite", full)
        assert "No space left on device" in fetch_here(url, jobs=1).failures[0].problem
    before = shop.sent_bytes
    assert not fetch_here(url).failures
    assert (tmp_path / "out" / "a.bin").read_bytes() == content
    assert shop.sent_bytes - before < len(content) - 100_000


def test_a_cache_that_cannot_be_made(shop: Any, fetch_here: Run, tmp_path: Path) -> None:
    """The error names the folder and TONNAGE_HOME."""
    (tmp_path / "cache").write_text("in the way")
    with pytest.raises(FetchError, match="cannot be made") as caught:
        fetch_here(shop.put("/a.bin", b"x"))
    assert "TONNAGE_HOME" in str(caught.value.hint)


def test_offline_does_not_keep_from_local_files(folder: Path, fetch_here: Run, tmp_path: Path) -> None:
    """A local path asks no server: --offline reads it."""
    assert not fetch_here(str(folder), offline=True).failures
    assert tree(tmp_path / "out") == tree(folder)


def test_offline_answers_from_the_cache_or_says_what_is_missing(
    shop: Any, content: bytes, fetch_here: Run, tmp_path: Path
) -> None:
    """Offline, no request is made: what is cached arrives, what is not is named."""
    url, other = shop.put("/a.bin", content), shop.put("/b.bin", b"b")
    fetch_here(url, to=())
    Path(fetch_here(other, to=()).files[0].places[0]).unlink()
    asked = sum(shop.asked.values())
    assert fetch_here(url, offline=True).files[0].outcome == "from cache"
    assert (tmp_path / "out" / "a.bin").read_bytes() == content
    assert "not in the cache" in fetch_here(other, offline=True).failures[0].problem
    with pytest.raises(FetchError, match=r"c\.bin is not in the cache"):
        fetch_here(f"{shop.url}/c.bin", offline=True)
    assert sum(shop.asked.values()) == asked


def test_manifests_of_two_fetches_are_one(shop: Any, fetch_here: Run, tmp_path: Path) -> None:
    """A second source fetched into the same folder is entered beside the first."""
    fetch_here(shop.put("/a.bin", b"1"))
    fetch_here(shop.put("/b.bin", b"2"))
    assert set(json.loads((tmp_path / "out" / ".tonnage-fetch.json").read_text())["files"]) == {"a.bin", "b.bin"}


def test_a_target_that_is_a_file_is_bad_input(shop: Any, fetch_here: Run, tmp_path: Path) -> None:
    """--to names a folder."""
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError, match="is not a folder"):
        fetch_here(shop.put("/a.bin", b"x"))


def test_nothing_is_written_to_the_web(shop: Any, fetch_here: Run) -> None:
    """A target that cannot be written to is bad input."""
    with pytest.raises(InputError, match="nothing is written to http"):
        fetch_here(shop.put("/a.bin", b"x"), to=(f"{shop.url}/up",))
