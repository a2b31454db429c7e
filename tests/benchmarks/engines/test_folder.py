"""What the folder of a bench remembers of its beginning: the machine, its settings, the corrections of then."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tonnage.benchmarks.engines.folder import BenchFolder
from tonnage.benchmarks.engines.surroundings import read_surroundings
from tonnage.calibration.tabular_file import save_tabular, tabular_file
from tonnage.calibration.tabular_fit import TabularFit
from tonnage.errors import InputError, TonnageError
from tonnage.side_by_side.cells import BenchCell
from tonnage.side_by_side.reading import read_bench

HERE = {"processor": "Intel", "threads": "2", "nice value": "0"}
DONE = BenchCell(data="d", engine="xgboost", turn=0, prepare_s=0.0, train_s=1.0)
FIT = TabularFit(made_on="2026-11-27", rows_sha256="0" * 64, engines=(), devices=())
LATER = TabularFit(made_on="2026-11-28", rows_sha256="1" * 64, engines=(), devices=())


def test_rows_of_a_bench_do_not_correct_its_own_prediction(tmp_path: Path) -> None:
    """What was known when it began predicts, also after `calibrate --tabular` has read its rows and it goes on."""
    folder = BenchFolder(tmp_path / "bench")
    save_tabular(FIT, tabular_file(tmp_path))
    folder.enter(HERE, tmp_path)
    folder.append(DONE)
    save_tabular(LATER, tabular_file(tmp_path))
    folder.enter(HERE, tmp_path)
    assert folder.corrections(tmp_path) == FIT


def test_a_bench_that_began_without_corrections_keeps_none(tmp_path: Path) -> None:
    """A calibration that came afterwards is not what was said before; one that came before the first cell is."""
    folder = BenchFolder(tmp_path / "bench")
    assert folder.corrections(tmp_path) is None
    folder.enter(HERE, tmp_path)
    save_tabular(LATER, tabular_file(tmp_path))
    assert folder.corrections(tmp_path) is None
    folder.enter(HERE, tmp_path)
    assert folder.corrections(tmp_path) == LATER


def test_cells_of_two_machines_are_not_mixed(tmp_path: Path) -> None:
    """Another processor, or another number of its threads; settings may differ, and are kept of each session."""
    folder = BenchFolder(tmp_path / "bench")
    folder.enter(HERE, tmp_path)
    folder.enter(HERE | {"processor": "AMD"}, tmp_path)  # nothing is measured yet
    folder.append(DONE)
    with pytest.raises(InputError, match="another than the bench began on: processor Intel, before AMD"):
        folder.enter(HERE, tmp_path)
    folder.enter(HERE | {"processor": "AMD", "nice value": "10"}, tmp_path)
    assert [one["nice value"] for one in folder.sessions()] == ["0", "0", "10"]


def test_tables_that_cannot_be_removed_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of an older file that stay would be taken for those of the new one."""
    text = "bench: {{name: t, data: [{{name: d, packaged: {}}}], engines: [{{engine: xgboost}}]}}"
    folder = BenchFolder(tmp_path / "bench")
    folder.begin(read_bench(text.format("wine")), resume=True)
    (folder.path / "data").mkdir()

    def refuse(path: Path, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with pytest.raises(TonnageError, match="old tables cannot be removed: Permission denied") as caught:
        folder.begin(read_bench(text.format("iris")), resume=True)
    assert str(folder.path / "data") in (caught.value.hint or "")
    assert (folder.path / "bench.json").is_file()


@pytest.mark.heavy
def test_settings_of_the_machine_are_read(tmp_path: Path) -> None:
    """Governor, turbo, whether it is a guest, and what the environment sets for threads; unknown ones are left out."""
    now = datetime(2026, 11, 27, 20, 0, tzinfo=UTC)
    bare = read_surroundings(now, system=tmp_path / "no", cpuinfo=tmp_path / "no", environment={"HOME": "/x"})
    assert bare["measured"] == "2026-11-27 20:00 UTC"
    assert not {"clock governor", "turbo", "virtual machine", "settings in the environment"} & set(bare)
    for place, text in (("cpu0/cpufreq/scaling_governor", "powersave\n"), ("intel_pstate/no_turbo", "1\n"),
                        ("cpuinfo", "flags : fpu hypervisor\n")):  # fmt: skip
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text)
    environment = {"OMP_WAIT_POLICY": "passive", "HOME": "/x"}
    found = read_surroundings(now, system=tmp_path, cpuinfo=tmp_path / "cpuinfo", environment=environment)
    assert (found["clock governor"], found["turbo"]) == ("powersave", "off")
    assert found["settings in the environment"] == "OMP_WAIT_POLICY=passive"
    assert "virtual machine" in found


def test_the_phase_in_which_a_worker_was_ended_is_said(tmp_path: Path) -> None:
    """Of one out of time and one that a signal ended; one that ended itself says why by its last words."""
    from tonnage.benchmarks.engines.worker_process import failure_of

    result = tmp_path / "result.json"
    (tmp_path / "log").write_text("first\nlast words\n")
    assert failure_of(None, False, 300.0, tmp_path, result) == "not done after 300 s"
    (tmp_path / "phase").write_text("training")
    assert failure_of(None, False, 300.0, tmp_path, result) == "not done after 300 s, while training"
    assert failure_of(-9, True, 300.0, tmp_path, result) == "ended by SIGKILL, while training | last words"
    assert failure_of(1, True, 300.0, tmp_path, result) == "ended with exit code 1 | last words"
