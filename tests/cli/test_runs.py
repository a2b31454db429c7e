"""`tonnage show` and `tonnage runs`, on folders of runs that were written by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tonnage.runs import RunFolder
from tonnage.testing import write_run

Run = Callable[..., CompletedProcess[str]]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("bert", "bert-lora"):
        write_run(tmp_path / "home" / "runs" / name, step_s=0.2)
    return tmp_path / "home"


@pytest.mark.usefixtures("home")
def test_a_run_is_shown(inside: Run) -> None:
    """In words and as JSON."""
    assert "Run bert: succeeded" in inside("show", "bert").stdout
    document = json.loads(inside("show", "bert", "-o", "json").stdout)
    assert (document["schema"], document["name"]) == ("tonnage/run-report@1", "bert")


@pytest.mark.usefixtures("home")
def test_an_unknown_run_is_told_the_nearest(inside: Run) -> None:
    """Exit 2."""
    answer = inside("show", "bertt")
    assert answer.returncode == 2
    assert "'bert'" in answer.stderr


def test_each_machine_of_a_run_has_its_log(inside: Run, home: Path) -> None:
    """The first has the run's own. One that is not there, and what only the first's log can do, are refused: exit 2."""
    folder = RunFolder(home / "runs" / "bert")
    folder.log_file.write_text("of the first\n")
    (folder.path / "log-machine-2.txt").write_text("one\ntwo\n")
    assert inside("logs", "bert", "--machine", "1").stdout == inside("logs", "bert").stdout == "of the first\n"
    assert inside("logs", "bert", "--machine", "2", "--tail", "1").stdout == "two\n"
    missing = inside("logs", "bert", "--machine", "3")
    assert (missing.returncode, "no log of machine 3" in missing.stderr) == (2, True)
    assert "--machine 1, 2" in missing.stderr
    timed = inside("logs", "bert", "--machine", "2", "-t")
    assert (timed.returncode, "first machine's log alone" in timed.stderr) == (2, True)
    assert inside("logs", "bert-lora", "--machine", "2").returncode == 2


def test_the_logs_of_all_machines_are_followed(inside: Run, home: Path) -> None:
    """Lines of further machines have their number before; of one alone none has. A letter of two bytes stays one."""
    folder = RunFolder(home / "runs" / "bert")
    folder.log_file.write_text("of the first\n")
    for number, text in ((2, "one\ntwo\n"), (10, "ten\n")):
        (folder.path / f"log-machine-{number}.txt").write_text(text)
    assert inside("logs", "bert", "-f").stdout == "of the first\n[2] one\n[2] two\n[10] ten\n"
    assert inside("logs", "bert", "-f", "--tail", "1").stdout == "of the first\n[2] two\n[10] ten\n"
    assert inside("logs", "bert", "-f", "--machine", "2").stdout == "one\ntwo\n"
    folder.log_file.write_text("x" + "ä" * 40_000 + "\n")
    assert inside("logs", "bert").stdout == "x" + "ä" * 40_000 + "\n"


def test_a_broken_folder_is_named(inside: Run, home: Path) -> None:
    """Which file of it, and where: exit 2."""
    with (home / "runs" / "bert" / "metrics.jsonl").open("a") as file:
        file.write("nonsense\n")
    answer = inside("show", "bert")
    assert answer.returncode == 2
    assert "metrics.jsonl, byte" in answer.stderr


@pytest.mark.usefixtures("home")
def test_runs_are_compared(inside: Run) -> None:
    """Two or more; one is refused."""
    assert json.loads(inside("runs", "compare", "bert", "bert-lora", "-o", "json").stdout)["runs"] == [
        "bert",
        "bert-lora",
    ]
    assert inside("runs", "compare", "bert").returncode == 2


def test_the_index_is_built_anew_from_the_folders(inside: Run, home: Path) -> None:
    """Deleted or damaged, the database comes back with runs and measurements; a broken folder is left out by name."""
    assert json.loads(inside("runs", "list", "-o", "json").stdout)["runs"] == []
    assert inside("runs", "reindex").returncode == 0
    first = inside("runs", "export", "-", "-q").stdout
    (home / "tonnage.db").write_bytes(b"\x07" * 8192)
    broken = inside("runs", "list")
    assert broken.returncode == 1
    assert "tonnage runs reindex" in broken.stderr
    for path in home.glob("tonnage.db*"):
        path.unlink()
    (home / "runs" / "bert" / "spec.json").write_text("{}")
    partly = inside("runs", "reindex")
    assert partly.returncode == 1
    assert "left out: bert: " in partly.stderr
    names = [run["name"] for run in json.loads(inside("runs", "list", "-o", "json").stdout)["runs"]]
    assert names == ["bert-lora"]
    again = inside("runs", "export", "-", "-q").stdout
    assert set(again.splitlines()) <= set(first.splitlines())
    assert len(again.splitlines()) == 1 + (len(first.splitlines()) - 1) // 2


def test_measurements_go_out_and_in_byte_by_byte(inside: Run, home: Path, tmp_path: Path) -> None:
    """Exported, imported into an empty database and exported again, the file is the same; rows are kept once."""
    inside("runs", "reindex")
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    inside("runs", "export", str(first))
    assert "0 of 8 rows were new" in inside("runs", "import", str(first)).stderr
    for path in home.glob("tonnage.db*"):
        path.unlink()
    assert "8 of 8 rows were new" in inside("runs", "import", str(first)).stderr
    inside("runs", "export", str(second))
    assert first.read_bytes() == second.read_bytes()
    assert len(inside("runs", "export", "-", "--run", "bert", "-q").stdout.splitlines()) == 5
    assert inside("validate", "training", str(first), "-o", "json").returncode == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "is empty"), ("id,metric,value,colour\n", "column 'colour'"), ("id,id,metric,value\n", "'id' stands twice"),
     ("id,metric,value,micro_batch_per_gpu\n1,x\n", "line 2: 2 cells"), ("id,gpu\n", "'metric' and 'value'"),
     ('id,metric,value\n"1,2\n', "not readable as CSV")],
)  # fmt: skip
def test_files_that_are_no_facts_are_refused(inside: Run, tmp_path: Path, text: str, message: str) -> None:
    """Exit 2 with file, line and column; nothing is taken in."""
    path = tmp_path / "rows.csv"
    path.write_text(text)
    answer = inside("runs", "import", str(path))
    assert answer.returncode == 2
    assert message in answer.stderr
    assert inside("runs", "export", "-", "-q").stdout.count("\n") == 1


@pytest.mark.parametrize("arguments", [("list", "--state", "done"), ("export", "-", "--table", "trainin")])
def test_words_that_are_none_are_refused(inside: Run, arguments: tuple[str, ...]) -> None:
    """Exit 2."""
    assert inside("runs", *arguments).returncode == 2


def test_a_server_that_is_down_stops_a_sync(inside: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 1, said in one line; the folder is not touched."""
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    before = RunFolder(home / "runs" / "bert").journal_file.read_bytes()
    answer = inside("runs", "sync", "bert")
    assert answer.returncode == 1
    assert "MLflow at http://127.0.0.1:1" in answer.stderr
    assert RunFolder(home / "runs" / "bert").journal_file.read_bytes() == before
