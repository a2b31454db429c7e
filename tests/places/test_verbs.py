"""The verbs of `tonnage places` about one run, of a run of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage import api
from tonnage.api.launching import prepare
from tonnage.errors import InputError, TonnageError, UnknownName
from tonnage.places.contract import DeclaredGap, GapError, must_have
from tonnage.runs.spec import DataSource, DataSpec, RunSpec, dump_spec
from tonnage.settings import current_settings
from tonnage.testing.runs import write_run

PLACES = """[places.cluster]
kind = "slurm"
cores = 1
memory_gib = 2
time_limit_minutes = 10

[places.bad]
kind = "slurm"
cors = 1
memory_gib = 2
time_limit_minutes = 10
"""


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


@pytest.mark.parametrize("on", [None, "cluster"])
def test_a_dry_run_where_the_name_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: str | None) -> None:
    """It shows what the next free name starts and says so; nothing it prints names the folder that is there."""
    write_run(tmp_path / "runs" / "one")
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "places.toml").write_text(PLACES)
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    data = DataSpec(train=DataSource(location=str(tmp_path / "rows.csv"), format="csv"))
    file = tmp_path / "spec.json"
    file.write_text(dump_spec(RunSpec(name="one", task="mlp", data=data)))
    launch = prepare(current_settings(), str(file), {"on": on}, dry_run=True)
    assert "`--name one-2`" in launch.doubts[0].message
    assert (launch.spec.name, launch.folder.path.name) == ("one-2", "one-2")
    assert on is None or (launch.submission is not None and "runs/one/" not in launch.submission.script)
    with pytest.raises(InputError, match="a run named 'one' is there already"):
        prepare(current_settings(), str(file), {"on": on})


def test_a_place_whose_table_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is listed with its reason, named when it is asked for, and keeps no other from being used."""
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "places.toml").write_text(PLACES)
    bad, cluster = api.places().found
    assert (bad.place, cluster.fault) == (None, "")
    assert "did you mean 'cores'" in bad.fault
    assert "bad cannot be used" in str(api.places())
    with pytest.raises(InputError, match=r"places\.bad\.cors"):
        api.check_place("bad")
    monkeypatch.setenv("PATH", str(tmp_path))  # without Slurm: the other place is asked
    with pytest.raises(TonnageError, match="sinfo is not here"):
        api.check_place("cluster")


def test_orphans_of_the_other_places_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong table is the answer's fault, after every other place was asked."""
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "places.toml").write_text(PLACES[PLACES.index("[places.bad]") :])
    found = api.orphans()
    assert found.found == ()
    assert found.fault is not None
    assert "places.bad.cors" in found.fault.message
    (tmp_path / "places.toml").write_text(PLACES)
    monkeypatch.setenv("PATH", str(tmp_path))  # without Slurm
    found = api.orphans()
    assert found.fault is not None
    assert "places.bad.cors" in found.fault.message
    assert found.remarks == ("cluster was not asked: squeue is not here",)
