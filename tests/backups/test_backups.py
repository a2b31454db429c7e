"""Backups: whole or not at all, sealed, read back, restored; what is damaged is named."""

from __future__ import annotations

import io
import json
import random
import re
import sqlite3
import tarfile
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tonnage
from tonnage import BackupOptions
from tonnage.backups.archive import restore_backup, verify_backup, write_backup
from tonnage.encryption.streams import CHUNK_BYTES, SealedReader, SealedWriter
from tonnage.errors import DataError, InputError

pytest.importorskip("cryptography")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a run, a database that is open, a cache and a lock."""
    found = tmp_path / "home"
    for name, text in {
        "runs/one/spec.json": "{}", "runs/one/journal.jsonl": '{"a": 1}\n', "runs/one/checkpoints/5/model": "weights",
        "tonnage.toml": "output = 'json'\n", "cache/fetch/big": "made again", "runs/one/workers.lock": "",
        "snapshots/2026/größe.csv": "ü\n",
    }.items():  # fmt: skip
        (found / name).parent.mkdir(parents=True, exist_ok=True)
        (found / name).write_text(text, encoding="utf-8")
    monkeypatch.setenv("TONNAGE_HOME", str(found))
    monkeypatch.setenv("KEY", "correct horse battery staple")
    return found


@pytest.fixture
def base(home: Path) -> sqlite3.Connection:
    made = sqlite3.connect(home / "tonnage.db")
    made.execute("PRAGMA journal_mode=WAL")
    made.execute("CREATE TABLE t (x)")
    made.execute("INSERT INTO t VALUES (7)")
    made.commit()
    return made


def written(home: Path, secret: str | None = None) -> bytes:
    out = io.BytesIO()
    write_backup(out, home, version="1", secret=secret, checkpoints=True, now=NOW)
    return out.getvalue()


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("key", [None, "env:KEY"])
def test_what_is_backed_up_is_restored(
    base: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    """Every file but caches and locks, with the database as it was, in files for the user alone."""
    made = tonnage.backup(tmp_path / "backups", BackupOptions(key=key)).found
    assert made.files == 6
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path / "again"))
    tonnage.restore(made.file, key=key)
    again = tmp_path / "again"
    assert (again / "runs/one/journal.jsonl").read_text() == '{"a": 1}\n'
    assert (again / "snapshots/2026/größe.csv").read_text("utf-8") == "ü\n"
    assert (again / "runs/one/checkpoints/5/model").exists()
    assert not (again / "cache").exists()
    assert not (again / "runs/one/workers.lock").exists()
    assert sqlite3.connect(again / "tonnage.db").execute("SELECT x FROM t").fetchall() == [(7,)]
    assert (again / "tonnage.toml").stat().st_mode & 0o777 == 0o600
    base.close()


def test_a_sealed_file_tells_nothing_without_its_key(home: Path, tmp_path: Path) -> None:
    """No name and no content in it; another key, and none, are refused."""
    content = written(home, "secret")
    assert b"weights" not in content
    with pytest.raises(InputError, match="is sealed"):
        verify_backup(io.BytesIO(content), what="b", secret=None)
    with pytest.raises(DataError, match="the key is another"):
        restore_backup(io.BytesIO(content), tmp_path / "again", what="b", secret="another")
    assert not (tmp_path / "again").exists()
    with pytest.raises(InputError, match="--key: expected a reference to a secret"):
        tonnage.backup(tmp_path / "backups", BackupOptions(key="secret"))


@settings(max_examples=25, deadline=None)
@given(where=st.floats(0.0, 0.999), cut=st.booleans(), sealed=st.booleans())
def test_a_damaged_file_is_never_restored(
    tmp_path_factory: pytest.TempPathFactory, where: float, cut: bool, sealed: bool
) -> None:
    """Cut anywhere, or with one bit turned: refused, and nothing is left. Unsealed, a turned bit may mean the same to
    gzip (within a run of one letter, a copy from two places back is that from one): then all is as it was written."""
    folder = tmp_path_factory.mktemp("damage")
    (folder / "home").mkdir()
    kept = random.Random(0).randbytes(3000)
    (folder / "home" / "a.bin").write_bytes(kept)
    content = bytearray(written(folder / "home", "k" if sealed else None))
    place = max(int(where * len(content)), 0 if sealed else 10)  # gzip's own head is neither read nor checked
    if cut:
        del content[place:]
    else:
        content[place] ^= 1
    try:
        restore_backup(io.BytesIO(bytes(content)), folder / "again", what="b", secret="k" if sealed else None)
    except (DataError, InputError):
        assert sorted(one.name for one in folder.iterdir()) == ["home"]
    else:
        assert not cut
        assert not sealed
        assert (folder / "again" / "a.bin").read_bytes() == kept


def test_no_turned_bit_is_restored_as_other_content(tmp_path: Path) -> None:
    """Each bit of a file's content in turn, one a byte: what is restored is what was kept, and most are refused."""
    (tmp_path / "home").mkdir()
    kept = random.Random(0).randbytes(300)
    (tmp_path / "home" / "a.bin").write_bytes(kept)
    whole, refused = written(tmp_path / "home", None), 0
    for place in range(10, len(whole)):
        content = bytearray(whole)
        content[place] ^= 1
        again = tmp_path / f"again-{place}"
        try:
            restore_backup(io.BytesIO(bytes(content)), again, what="b", secret=None)
        except DataError:
            refused += 1
        else:
            assert (again / "a.bin").read_bytes() == kept, place
    assert refused > 0.9 * (len(whole) - 10)


def test_a_home_that_is_there_is_not_overwritten(home: Path) -> None:
    """Restoring needs a new folder."""
    with pytest.raises(InputError, match="is not empty"):
        restore_backup(io.BytesIO(written(home)), home, what="b", secret=None)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd"])
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    """A tar of somebody else's writes nothing outside the home."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        info = tarfile.TarInfo(name)
        info.size = 1
        tar.addfile(info, io.BytesIO(b"x"))
    with pytest.raises(DataError, match="has no place in a backup"):
        restore_backup(io.BytesIO(out.getvalue()), tmp_path / "again", what="b", secret=None)


def test_a_damaged_database_is_found(home: Path) -> None:
    """Its hash is as written, and SQLite's own check still says no."""
    base = sqlite3.connect(home / "tonnage.db")
    base.execute("CREATE TABLE t (x)")
    base.executemany("INSERT INTO t VALUES (?)", [("y" * 500,)] * 50)
    base.commit()
    base.close()
    content = bytearray((home / "tonnage.db").read_bytes())
    content[4096:4200] = b"\xff" * 104
    (home / "tonnage.db").write_bytes(content)
    with pytest.raises((DataError, OSError), match=r"tonnage\.db"):
        verify_backup(io.BytesIO(written(home)), what="b", secret=None)


def test_a_file_that_grows_meanwhile_is_whole_to_where_it_was(home: Path) -> None:
    """A journal is appended to while it is read: its lines up to some instant are in, and the file verifies."""
    journal, stop = home / "runs/one/journal.jsonl", threading.Event()

    def grow() -> None:
        with journal.open("a") as file:
            while not stop.is_set():
                file.write('{"b": 2}\n')
                file.flush()

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        found = [verify_backup(io.BytesIO(written(home)), what="b", secret=None) for _ in range(5)]
    finally:
        stop.set()
        thread.join()
    assert all(one["files"]["runs/one/journal.jsonl"]["bytes"] >= 9 for one in found)


def test_a_file_that_is_cut_meanwhile_is_said(home: Path) -> None:
    """A log of two pieces is emptied between them: the backup verifies, and says how much of the log it has not."""
    log = home / "runs/one/worker.log"

    class Cutting(io.BytesIO):
        def write(self, content: Any) -> int:
            if self.tell() > 500:  # random bytes do not compress: the first piece of the log is out
                log.write_bytes(b"")
            return super().write(content)

    log.write_bytes(random.Random(0).randbytes(3_000_000))
    out = Cutting()
    manifest = write_backup(out, home, version="1", secret=None, checkpoints=True, now=NOW)
    (left_out,) = manifest["left_out"]
    assert re.fullmatch(r"the last [\d,]+ bytes of runs/one/worker.log: cut off while the backup was written", left_out)
    assert 0 < int(left_out.split()[2].replace(",", "")) < 3_000_000
    assert verify_backup(io.BytesIO(out.getvalue()), what="b", secret=None)["left_out"] == [left_out]


def test_old_ones_go_only_after_a_new_one_is_whole(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--keep 2` of three; where the new one does not verify, the old ones stay and nothing of it is left."""
    into = tmp_path / "backups"
    into.mkdir()
    for day in (1, 2, 3):
        (into / f"tonnage-2026010{day}T000000Z.tar.gz").write_bytes(b"")
    (into / "notes.txt").write_text("mine")
    monkeypatch.setattr("tonnage.backups.archive.verify_backup", _refuses)
    with pytest.raises(DataError):
        tonnage.backup(into, BackupOptions(keep=2))
    assert len(list(into.iterdir())) == 4
    monkeypatch.undo()
    monkeypatch.setenv("TONNAGE_HOME", str(home))
    made = tonnage.backup(into, BackupOptions(keep=2)).found
    names = sorted(one.name for one in into.iterdir())
    assert names == ["notes.txt", "tonnage-20260103T000000Z.tar.gz", Path(made.file).name]


@pytest.mark.usefixtures("home")
def test_checkpoints_may_stay_out(tmp_path: Path) -> None:
    """And say so by their absence from the list."""
    made = tonnage.backup(tmp_path / "backups", BackupOptions(checkpoints=False))
    assert made.found.files == 4
    assert json.loads(made.to_json())["backups"][0]["sealed"] is False


@settings(max_examples=6, deadline=None)
@given(sizes=st.lists(st.integers(0, 2 * CHUNK_BYTES), max_size=3), reads=st.integers(4096, CHUNK_BYTES))
def test_sealed_streams_give_back_what_they_took(sizes: list[int], reads: int) -> None:
    """Whatever the sizes of writes and reads, at the borders of chunks too."""
    out, whole = io.BytesIO(), b""
    writer = SealedWriter(out, "k")
    for number, size in enumerate(sizes):
        whole += bytes([number]) * size
        writer.write(bytes([number]) * size)
    writer.close()
    reader, found = SealedReader(io.BytesIO(out.getvalue()), "k", what="f"), b""
    while piece := reader.read(reads):
        found += piece
    assert found == whole


def _refuses(*_: object, **__: object) -> None:
    raise DataError("not whole")


@pytest.mark.parametrize("place", ["home/backup.key", "kept/backup.key"])
def test_a_key_that_lies_beside_what_it_seals_is_refused(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """In the home, which the backup holds, or beside the backups: nothing is written."""
    monkeypatch.setenv("TONNAGE_HOME", str(home))
    key = tmp_path / place
    key.parent.mkdir(exist_ok=True)
    key.write_text("a" * 40)
    with pytest.raises(InputError, match="lies beside what it encrypts"):
        tonnage.backup(tmp_path / "kept", BackupOptions(key=f"file:{key}"))
    assert list((tmp_path / "kept").glob("*.gz*")) == []


@pytest.mark.parametrize("secret", ["abc", "nineteen characters"])
@pytest.mark.usefixtures("home")
def test_a_key_that_can_be_guessed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: str) -> None:
    """Before anything is written; the hint makes a good one, and the secret is in no word of it."""
    monkeypatch.setenv("SHORT", secret)
    with pytest.raises(InputError, match=f"holds {len(secret)} characters") as caught:
        tonnage.backup(tmp_path / "kept", BackupOptions(key="env:SHORT"))
    assert "openssl rand -base64 32" in str(caught.value.hint)
    assert secret not in f"{caught.value}{caught.value.hint}"
    assert not (tmp_path / "kept").exists()
