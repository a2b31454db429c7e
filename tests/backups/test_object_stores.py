"""Backups in an object store, as moto keeps it: read back from there, pruned, restored on an empty home."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.places.conftest import aws, moto_url

import tonnage
from tonnage import BackupOptions
from tonnage.api.backups import read_backup_note
from tonnage.errors import DataError, InputError, TonnageError
from tonnage.places.bucket.objects import open_objects
from tonnage.settings import Settings, load_settings

__all__ = ["aws", "moto_url"]
pytestmark = pytest.mark.heavy
pytest.importorskip("cryptography")


def at(home: Path) -> Settings:
    return load_settings({}, {"TONNAGE_HOME": str(home)}, home.parent)


@pytest.mark.usefixtures("aws")
def test_a_backup_in_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sealed, put, verified from there, the older one removed, restored whole; a changed one is refused."""
    monkeypatch.setenv("SEAL", "a long secret of many letters")
    home = tmp_path / "home"
    (home / "runs" / "one").mkdir(parents=True)
    (home / "runs" / "one" / "spec.json").write_text('{"a": 1}')
    objects = open_objects("s3://runs/backups")
    objects.write("tonnage-20200101T000000Z.tar.gz.sealed", b"old")
    objects.write("something-else", b"not ours")
    made = tonnage.backup("s3://runs/backups", BackupOptions(key="env:SEAL", keep=1), settings=at(home)).found
    assert set(objects.sizes("")) == {made.file.rpartition("/")[2], "something-else"}
    assert read_backup_note(home).target == made.file
    assert tonnage.verify_backup(made.file, key="env:SEAL").found.file == made.file
    tonnage.restore(made.file, key="env:SEAL", settings=at(tmp_path / "empty"))
    assert (tmp_path / "empty" / "runs" / "one" / "spec.json").read_text() == '{"a": 1}'
    name = made.file.rpartition("/")[2]
    found = objects.read(name)
    assert found is not None
    objects.write(name, found.content[:-40] + b"\0" * 40)
    with pytest.raises(DataError):
        tonnage.verify_backup(made.file, key="env:SEAL")


@pytest.mark.usefixtures("aws")
def test_what_fails_is_noted_and_said(tmp_path: Path) -> None:
    """A bucket that is not there, an object that is not there."""
    home = tmp_path / "home"
    (home / "runs").mkdir(parents=True)
    (home / "runs" / "x").write_text("x")
    with pytest.raises(TonnageError):
        tonnage.backup("s3://nowhere/backups", settings=at(home))
    assert read_backup_note(home).fails
    with pytest.raises(InputError, match="is not there"):
        tonnage.restore("s3://runs/none.tar.gz", settings=at(tmp_path / "empty"))
    tonnage.backup(tmp_path / "disk", settings=at(home))
    assert not read_backup_note(home).fails
