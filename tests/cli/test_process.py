"""The command as a process: streams, pipes, signals, colour, no network."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BERT = str(ROOT / "examples" / "bert-finetune.tonnage.yaml")
SMALL = str(ROOT / "tests" / "data" / "catalog" / "small")
DAY = ("--as-of", "2026-11-20")
FEW = (*DAY, "--catalog", SMALL)  # where what is planned makes no difference
Run = Callable[..., subprocess.CompletedProcess[str]]


def test_same_inputs_same_bytes(tonnage: Run) -> None:
    """Two processes, with other hash seeds, print byte-identical JSON; nothing on stderr."""
    first = tonnage("plan", BERT, *DAY, "-o", "json", env={"PYTHONHASHSEED": "1"})
    second = tonnage("plan", BERT, *DAY, "-o", "json", env={"PYTHONHASHSEED": "2"})
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout == second.stdout
    assert json.loads(first.stdout)["options"][0]["rank"] == 1


def test_without_a_clock_the_day_is_the_clock(tonnage: Run) -> None:
    """Without --as-of the document is dated by the day alone, so that it repeats."""
    document = json.loads(tonnage("plan", BERT, "-o", "json").stdout)
    assert len(document["as_of"]) == len("2026-11-20")


def test_plans_without_a_network(tonnage: Run, inside: Run, tmp_path: Path, environment: dict[str, str]) -> None:
    """With every socket forbidden a plan is the same."""
    block = "import socket\ndef no(*a, **k): raise OSError('the network is blocked')\nsocket.socket = no\n"
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "sitecustomize.py").write_text(block + "socket.create_connection = no\n")
    path = os.pathsep.join([str(tmp_path / "blocked"), environment["PYTHONPATH"]])
    proof = subprocess.run(
        [sys.executable, "-c", "import socket; socket.socket()"], env=environment | {"PYTHONPATH": path},
        capture_output=True, check=False,
    )  # fmt: skip
    assert proof.returncode != 0  # the block does block
    blocked = tonnage("plan", BERT, *DAY, "-o", "json", env={"PYTHONPATH": path})
    assert blocked.returncode == 0
    assert blocked.stdout == inside("plan", BERT, *DAY, "-o", "json").stdout


@pytest.mark.skipif(os.name == "nt", reason="no shell pipes")
@pytest.mark.parametrize("verb", [f"plan {BERT} -o json", "catalog offers -o csv"])
def test_a_reader_may_stop_reading(verb: str, tmp_path: Path, environment: dict[str, str]) -> None:
    """`| head -1` ends quietly: exit code 0 of the command itself, nothing on stderr."""
    line = f"set -o pipefail; {sys.executable} -m tonnage {verb} | head -c 20"
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout) == 20


def test_nothing_is_written(tonnage: Run, tmp_path: Path) -> None:
    """Planning leaves no file, not even a home folder."""
    assert tonnage("plan", BERT, *FEW).returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_colour(tonnage: Run) -> None:
    """No colour into a pipe; colour where the setting says always; NO_COLOR switches it off."""
    assert "\x1b" not in tonnage("plan", BERT, *FEW).stdout
    assert "\x1b[" in tonnage("plan", BERT, *FEW, env={"TONNAGE_COLOR": "always"}).stdout
    assert "\x1b" not in tonnage("plan", BERT, *FEW, env={"NO_COLOR": "1"}).stdout


@pytest.mark.skipif(os.name == "nt", reason="no pseudo-terminals")
@pytest.mark.parametrize(("no_color", "colored"), [("", True), ("1", False)])
def test_on_a_terminal(tmp_path: Path, environment: dict[str, str], no_color: str, colored: bool) -> None:
    """A terminal gets colour unless NO_COLOR is set, and a progress line that is wiped."""
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tonnage", "plan", BERT, *FEW, "--top", "1"]
    env = environment | {"TERM": "xterm", "NO_COLOR": no_color, "COLUMNS": "100"}
    process = subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, cwd=tmp_path, env=env)
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        seen += part
    assert process.stderr is not None
    messages = process.stderr.read()
    process.stderr.close()
    os.close(ours)
    assert process.wait() == 0
    assert (b"\x1b[1;32m" in seen) is colored
    assert messages == b""  # stderr is no terminal: no progress


def test_ascii_terminal(tonnage: Run) -> None:
    """An encoding that lacks a character gets a «?», not a traceback."""
    done = tonnage("plan", BERT, *DAY, env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert done.returncode == 0
    assert done.stdout.isascii()


@pytest.mark.skipif(os.name == "nt", reason="signals differ")
def test_interrupt(tmp_path: Path, environment: dict[str, str]) -> None:
    """Ctrl-C while planning: exit code 130, one line, no traceback."""
    code = (
        "import os, signal, sys\n"
        "import tonnage.planning.planner as planner\n"
        "planner.admit_offers = lambda *a: os.kill(os.getpid(), signal.SIGINT)\n"
        "from tonnage.cli import main\n"
        f"sys.argv = ['tonnage', 'plan', {BERT!r}]\n"
        "main()\n"
    )
    signal_name = signal.SIGINT.name
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert signal_name == "SIGINT"
    assert done.returncode == 130
    assert done.stderr == "error: interrupted\n"
    assert done.stdout == ""


def test_a_bug_is_told_as_one(tmp_path: Path, environment: dict[str, str]) -> None:
    """An exception of ours that nobody expected: one line and exit 1; the traceback under TONNAGE_DEBUG=1."""
    code = (
        "import sys\nimport tonnage.planning.planner as planner\n"
        "def broken(*a): raise KeyError('oops')\nplanner.admit_offers = broken\n"
        f"from tonnage.cli import main\nsys.argv = ['tonnage', 'plan', {BERT!r}]\nmain()\n"
    )
    for debug, traced in (("", False), ("1", True)):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False,
            env=environment | {"TONNAGE_DEBUG": debug},
        )  # fmt: skip
        assert done.returncode == 1
        assert done.stderr.startswith("error: internal error: KeyError: 'oops'\nhint: this is a bug")
        assert ("Traceback" in done.stderr) is traced
        assert done.stdout == ""


def test_completion_script(tonnage: Run) -> None:
    """`--show-completion` prints a script for the shell; a name completes from the catalog."""
    script = tonnage("--show-completion", "bash", env={"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"})
    assert script.returncode == 0
    assert "_TONNAGE_COMPLETE" in script.stdout
    asked = {
        "_TONNAGE_COMPLETE": "complete_bash",
        "COMP_WORDS": "tonnage catalog show p5.4",
        "COMP_CWORD": "3",
    }
    assert tonnage(env=asked).stdout.split() == ["p5.48xlarge", "p5.4xlarge"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_full_disk(tmp_path: Path, environment: dict[str, str]) -> None:
    """An output that cannot be written: exit 1 and one line that says so."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tonnage", "catalog", "models"], stdout=full, stderr=subprocess.PIPE, text=True,
            cwd=tmp_path, env=environment, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "error: the output cannot be written: No space left on device\n"


@pytest.mark.skipif(os.name == "nt", reason="no shell redirection of this kind")
def test_closed_stdout(tmp_path: Path, environment: dict[str, str]) -> None:
    """`>&-` is no bug: the text goes nowhere, exit 0."""
    line = f"{sys.executable} -m tonnage catalog models >&-"
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
