"""The verbs of `tonnage places` about one run, of a run of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage import api
from tonnage.errors import InputError, UnknownName
from tonnage.places.contract import DeclaredGap, GapError, must_have
from tonnage.testing.runs import write_run


def test_a_command_in_the_folder_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs in the folder, its exit code is handed on, a run that is not there is named."""
    folder = write_run(tmp_path / "runs" / "one")
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    assert api.exec_in_run("one", ["sh", "-c", "touch seen; exit 3"]) == 3
    assert (folder.path / "seen").exists()
    with pytest.raises(UnknownName):
        api.exec_in_run("two", ["true"])


def test_only_an_ended_run_is_removed_at_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has not ended is not torn down behind its back."""
    write_run(tmp_path / "runs" / "one", finished=False)
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    assert api.collect_run("one").found.path.name == "one"
    with pytest.raises(InputError, match="has not ended"):
        api.collect_run("one", teardown=True)


def test_a_gap_is_told_with_its_reason() -> None:
    """A place that leaves a verb out says why, before anything is asked of it."""
    from tonnage.api.local_place import LocalExecutor
    from tonnage.places.file import LocalPlace

    class Mute(LocalExecutor):
        gaps = (DeclaredGap(verb="exec", reason="nothing there runs a command", whole=True),)

    executor = Mute(place=LocalPlace(kind="local", cores=1, memory_gib=1))
    with pytest.raises(GapError, match="nothing there runs"):
        must_have(executor, "exec")
    must_have(executor, "stop")
