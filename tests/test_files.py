"""Files are written whole: what a full disk, a kill, a link or a device leaves."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest

from tonnage.errors import InputError, TonnageError
from tonnage.files import (
    PRIVATE,
    SHARED,
    make_database_file,
    make_private_folder,
    move_whole,
    save_for_user,
    write_whole,
)


@pytest.fixture
def usual_umask() -> Iterator[None]:
    """022, whatever the shell of the tests has."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def _full(*_: object) -> NoReturn:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("step", ["fsync", "replace", "open"])
def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Whichever step fails, the old file is whole, nothing is left beside it, and the caller learns why."""
    path = tmp_path / "one.json"
    path.write_text("old")
    monkeypatch.setattr(os, step, _full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "new")
    with pytest.raises(InputError, match=r"one\.json cannot be written: No space left on device"):
        save_for_user(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.heavy
def test_a_kill_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after the new content is written and before it is in place, the old file is there."""
    path = tmp_path / "one.json"
    path.write_text("old")
    child = os.fork()
    if child == 0:
        monkeypatch.setattr(os, "fsync", lambda _: os.kill(os.getpid(), signal.SIGKILL))
        write_whole(path, "new")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert path.read_text() == "old"
    write_whole(path, "newer")  # the draft that was left is in nobody's way
    assert path.read_text() == "newer"


@pytest.mark.usefixtures("usual_umask")
@pytest.mark.parametrize(("mode", "found"), [(PRIVATE, 0o600), (SHARED, 0o644)])
def test_modes(tmp_path: Path, mode: int, found: int) -> None:
    """A file is for the user alone unless it is shared; then the umask decides."""
    path = tmp_path / "one"
    write_whole(path, b"\x00\xff", mode=mode, durable=False)
    assert path.read_bytes() == b"\x00\xff"
    assert stat.S_IMODE(path.stat().st_mode) == found


def test_a_durable_file_is_synced_with_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content and then the name reach the disk; without `durable` neither is forced there."""
    synced: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda one: synced.append(stat.S_ISDIR(os.fstat(one).st_mode)))
    write_whole(tmp_path / "one", "a", durable=False)
    assert synced == []
    write_whole(tmp_path / "one", "b")
    assert synced == [False, True]
    move_whole(tmp_path / "one", tmp_path / "two")
    assert synced == [False, True, True]


def test_a_users_link_and_device_stay(tmp_path: Path) -> None:
    """Through a link its target is written; a device or a pipe is written to and never replaced."""
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    target.write_text("old")
    link.symlink_to(target)
    save_for_user(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    save_for_user(pipe, "through")
    assert os.read(reader, 100) == b"through"
    assert pipe.is_fifo()
    os.close(reader)


def test_folders_of_a_users_file(tmp_path: Path) -> None:
    """Folders above are made where that is asked for; else their absence is the fault, of the kind the caller names."""
    with pytest.raises(TonnageError) as refused:
        save_for_user(tmp_path / "a" / "b", "x", fault=TonnageError, hint="check the folder")
    assert (type(refused.value), refused.value.hint) == (TonnageError, "check the folder")
    save_for_user(tmp_path / "a" / "b", "x", parents=True)
    assert (tmp_path / "a" / "b").read_text() == "x"


def test_private_folders(tmp_path: Path) -> None:
    """All folders that are made are the user's alone; one that is there keeps its mode."""
    tmp_path.chmod(0o755)
    make_private_folder(tmp_path / "a" / "b")
    modes = [stat.S_IMODE(one.stat().st_mode) for one in (tmp_path, tmp_path / "a", tmp_path / "a" / "b")]
    assert modes == [0o755, 0o700, 0o700]


@pytest.mark.heavy
def test_a_database_that_another_thread_made_meanwhile_keeps_its_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening it to make it, and closing it, would end the locks of the thread that is in a transaction."""
    path = tmp_path / "book.db"
    make_database_file(path)
    assert stat.S_IMODE(path.stat().st_mode) == PRIVATE
    other = (
        f"import sqlite3; sqlite3.connect({str(path)!r}, timeout=0, isolation_level=None).execute('BEGIN IMMEDIATE')"
    )
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with monkeypatch.context() as raced:
            raised = FileNotFoundError(str(path))
            raced.setattr(Path, "exists", lambda _: False)  # as they were before the other thread made it
            raced.setattr(os, "utime", lambda *_, **__: (_ for _ in ()).throw(raised))
            make_database_file(path)
        tried = subprocess.run([sys.executable, "-c", other], capture_output=True, text=True, check=False)
    assert "database is locked" in tried.stderr
    assert sorted(one.name for one in tmp_path.iterdir()) == ["book.db"]


def test_a_database_is_made_where_there_are_no_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a disk of a camera or a share of Windows."""

    def refused(*_: object) -> NoReturn:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    make_database_file(tmp_path / "book.db")
    make_database_file(tmp_path / "book.db")
    assert [(one.name, stat.S_IMODE(one.stat().st_mode)) for one in tmp_path.iterdir()] == [("book.db", PRIVATE)]
