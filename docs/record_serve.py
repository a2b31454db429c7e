"""Write docs/recordings/serve-killed-scaled-updated.txt: a service planned, started, loaded, killed and updated.

Run: `python docs/record_serve.py` (needs the extras `serve`, `load`, `llama` and the package `gguf`; about four
minutes). The commands are real, and so is what they print; the model is a random one of 220 KB in llama.cpp's real
server, and only the folders are shown as `~`.
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
from urllib.request import urlopen

from record_run import Recorder

from tonnage.testing.tiny_gguf import write_tiny_gguf

TARGET = Path(__file__).parent / "recordings" / "serve-killed-scaled-updated.txt"
PORT = 8765
URL = f"http://127.0.0.1:{PORT}"
FILE = """\
kind: serve
model: llama-3.1-8b
serve:
  rate_per_s: 10
  input_tokens: {mean: 24, max: 128}
  output_tokens: {mean: 96, max: 128}
  p95_latency: 5s
constraints: {gpus: 24GB.., max_gpus: 4}
"""


class ServiceRecorder(Recorder):
    """Records commands beside a service that runs, and looks at it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, command: str, name: str) -> subprocess.Popen[bytes]:
        """A command that goes on; what it prints is kept apart."""
        self.lines += [f"$ {command} > {name} &", ""]
        words = f"{sys.executable} -m {command}"
        with (self.folder / name).open("wb") as out:
            made = subprocess.Popen(words.split(), cwd=self.folder, env=self.env, stdout=out, stderr=out)
        self.started.append(made)
        return made

    def service(self) -> int:
        """The process that looks after the service, as its record says."""
        record = self.home / "services" / "chat" / "running.json"
        return int(json.loads(record.read_text(encoding="utf-8"))["pid"])

    def replicas(self) -> list[dict[str, object]]:
        with urlopen(f"{URL}/replicas", timeout=5) as answer:
            found: list[dict[str, object]] = json.load(answer)["replicas"]
        return found

    def ready(self) -> int:
        return sum(one["state"] == "ready" for one in self.replicas())

    def until(self, what: str, true: object, timeout_s: float = 120.0) -> None:
        assert callable(true)
        until = time.monotonic() + timeout_s
        while not true():
            if time.monotonic() > until:
                sys.exit(f"not within {timeout_s:.0f} s: {what}")
            time.sleep(0.2)

    def answers(self) -> bool:
        try:
            return self.ready() > 0
        except OSError:
            return False


def record(recorder: ServiceRecorder) -> None:
    write_tiny_gguf(recorder.folder / "tiny.gguf")
    (recorder.folder / "prompts.txt").write_text(
        "\n".join(f"question {number}" for number in range(50)), encoding="utf-8"
    )
    (recorder.folder / "chat.tonnage.yaml").write_text(FILE, encoding="utf-8")
    recorder.run("cat chat.tonnage.yaml")
    recorder.run("tonnage plan chat.tonnage.yaml | sed -n '/^Best/,/^What the best/p' | head -6")
    serve = "serve chat.tonnage.yaml --engine llama.cpp --model tiny.gguf --name chat"
    recorder.run(f"tonnage {serve} --dry-run | tail -3")
    recorder.note("here: replicas of llama.cpp with a random model, behind the balancer, by the control law")
    options = f"--port {PORT} --replicas 1..3 --slots 1 --promise 50ms --start-up 3s"
    service = recorder.start(f"tonnage {serve} {options}", "serve.log")
    recorder.until("the service answers", recorder.answers)
    recorder.note("a random model knows letters alone, so the prompts are short texts of a file")
    bench = f"tonnage bench serve {URL} --data prompts.txt --output-tokens 96 --p95-latency 5s"
    recorder.run(f"{bench} --rate 2 --duration 15s 2>&1 | head -24")
    recorder.note("more than one replica answers: requests wait, and the law starts others")
    load = recorder.start(f"{bench} --rate 8 --duration 45s", "bench.txt")
    recorder.until("two replicas are ready", lambda: recorder.ready() >= 2)
    recorder.run("tonnage ps")
    victim = next(one for one in recorder.replicas() if one["state"] == "ready")
    recorder.note("under load: one replica is killed, then all are replaced (SIGHUP)")
    recorder.kill(f"replica {victim['name']}", int(str(victim["pid"])))
    time.sleep(8.0)
    os.kill(recorder.service(), signal.SIGHUP)
    recorder.lines += [f"$ kill -HUP {recorder.service()}    # the service: a rolling update", ""]
    load.wait()
    recorder.run("cat bench.txt | head -24")
    recorder.run("tonnage show chat")
    recorder.note("nobody asks any more; after bursts like this the law keeps what the next would need")
    time.sleep(30.0)
    recorder.run(f"curl -s {URL}/costs")
    recorder.run("tonnage stop chat")
    service.wait()
    recorder.run("cat serve.log")


def main() -> None:
    with TemporaryDirectory() as folder:
        recorder = ServiceRecorder(Path(folder))
        try:
            record(recorder)
        finally:
            for one in recorder.started:
                one.terminate()
    TARGET.write_text("\n".join(recorder.lines).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
