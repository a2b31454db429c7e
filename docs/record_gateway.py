"""Write docs/recordings/gateway-overflow-budget-kill-restart.txt: a gateway before two engines, pressed and hurt.

Run: `python docs/record_gateway.py` (needs the extras `gateway`, `load`, `llama` and the package `gguf`; about two
minutes). The commands are real, and so is what they print. Both engines are llama.cpp's own server with a random model
of 220 KB; the second stands for an API that sells tokens. Only the folders are shown as `~`.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

from record_run import Recorder

from tonnage.testing.tiny_gguf import write_tiny_gguf

TARGET = Path(__file__).parent / "recordings" / "gateway-overflow-budget-kill-restart.txt"
FILE = """\
listen: {{port: {door}, workers: 2}}
deployments:
  own:                        # an engine of one's own: two requests at a time
    url: http://127.0.0.1:{own}/v1
    model: tiny
    own: {{usd_per_hour: 2, input_tokens_per_s: 4000, output_tokens_per_s: 800}}
    at_once: 2
  bought:                     # tokens
    url: http://127.0.0.1:{bought}/v1
    model: tiny
    price: {{input_usd_per_million: 0.5, output_usd_per_million: 1.5, source: a price list}}
routes:
  chat: {{deployments: [own, bought], policy: own-first, max_tokens: 64}}
  trial: {{deployments: [bought], max_tokens: 64}}
  help: {{deployments: [own], max_tokens: 64, rules: [{{languages: [de, fr], deployments: [bought]}}]}}
budgets:
  - {{of: "route:trial", usd: 0.0005, per: day}}
"""
ASK = """\
import sys, threading, collections, httpx
url, clients, tokens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
met = collections.Counter()
def ask(number):
    body = {"model": "chat", "max_tokens": tokens, "messages": [{"role": "user", "content": f"question {number}"}],
            "ignore_eos": True}
    answer = httpx.post(url + "/v1/chat/completions", json=body, timeout=60)
    met[answer.status_code, answer.headers.get("x-tonnage-deployment", "none")] += 1
threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
[one.start() for one in threads]; [one.join() for one in threads]
for (status, where), count in sorted(met.items()): print(f"{count:4} answers {status} by {where}")
"""
HELP = (
    '{"model": "help", "max_tokens": 16, "ignore_eos": true, '
    '"messages": [{"role": "user", "content": "Wie bezahle ich meine Rechnung?"}]}'
)
CHAT = (
    '{"model": "%s", "max_tokens": %d, "stream": %s, "ignore_eos": true, '
    '"messages": [{"role": "user", "content": "tell me all"}]}'
)


class GatewayRecorder(Recorder):
    """Records commands before a gateway that runs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, command: str, name: str, *, shown: bool = True) -> subprocess.Popen[bytes]:
        if shown:
            self.lines += [f"$ {command} > {name} &", ""]
        words = f"{sys.executable} -m {command}".split()
        with (self.folder / name).open("wb") as out:
            made = subprocess.Popen(words, cwd=self.folder, env=self.env, stdout=out, stderr=out)
        self.started.append(made)
        return made

    def engine(self, name: str, port: int) -> subprocess.Popen[bytes]:
        made = self.start(
            f"tonnage.serving.engines.llama_server --model tiny.gguf --alias tiny --port {port} --parallel 4 "
            "--ctx-size 16384 --threads 1 --threads-batch 1", f"{name}.log", shown=False,
        )  # fmt: skip
        until_ready(f"http://127.0.0.1:{port}/health")
        return made


def until_ready(url: str, timeout_s: float = 60.0) -> None:
    until = time.monotonic() + timeout_s
    while True:
        try:
            with urlopen(url, timeout=2):
                return
        except OSError:
            if time.monotonic() > until:
                sys.exit(f"{url} does not answer within {timeout_s:.0f} s")
            time.sleep(0.1)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def record(recorder: GatewayRecorder) -> None:
    own_port, bought_port, port = free_ports(3)
    url = f"http://127.0.0.1:{port}"
    write_tiny_gguf(recorder.folder / "tiny.gguf")
    texts = {"gateway.yaml": FILE.format(door=port, own=own_port, bought=bought_port), "ask.py": ASK,
             "chat.json": CHAT % ("chat", 64, "false"), "trial.json": CHAT % ("trial", 64, "false"),
             "stream.json": CHAT % ("chat", 3500, "true"), "help.json": HELP}  # fmt: skip
    for name, text in texts.items():
        (recorder.folder / name).write_text(text, encoding="utf-8")
    own = recorder.engine("own", own_port)
    recorder.engine("bought", bought_port)
    recorder.run("cat gateway.yaml")
    recorder.run("tonnage gateway explain gateway.yaml chat.json")
    recorder.note("a rule of the route: other languages go elsewhere")
    recorder.run("tonnage gateway explain gateway.yaml help.json")
    gateway = recorder.start("tonnage gateway gateway.yaml", "gateway.log")
    until_ready(f"{url}/ready")
    python = sys.executable
    post = f"curl -s {url}/v1/chat/completions -H 'content-type: application/json' -d"
    recorder.run(f"{post} @help.json -o help.out -D - | grep x-tonnage")
    recorder.note("the own engine holds two requests: what is over goes to tokens")
    said(recorder, f"{python} ask.py {url} 12 400", f"python ask.py {url} 12 400")
    time.sleep(1.0)
    recorder.run("tonnage gateway spend gateway.yaml --by deployment")
    recorder.note("the budget of a route at its end: refused before anything is sent, with which and until when")
    recorder.run(
        f"for one in 1 2 3 4 5 6; do {post} @trial.json -o last.json -w '%{{http_code}} '; done; echo; cat last.json"
    )
    recorder.note("the own engine is killed in the middle of a stream: its client is told, the next requests go on")
    stream = subprocess.Popen(f"{post} @stream.json > stream.txt", shell=True, cwd=recorder.folder, env=recorder.env)
    time.sleep(0.6)
    recorder.lines += [f"$ curl -sN {url}/v1/chat/completions -d @stream.json > stream.txt &", ""]
    recorder.kill("the own engine", own.pid)
    stream.wait(60)
    recorder.run("grep -c . stream.txt; tail -n 3 stream.txt | cut -c1-220")
    said(recorder, f"{python} ask.py {url} 4 16", f"python ask.py {url} 4 16")
    recorder.engine("own", own_port)
    recorder.note("all workers are replaced under load, as for a new version: no request fails")
    load = subprocess.Popen(
        f"for one in 1 2 3 4 5 6; do {python} ask.py {url} 8 32; done > load.txt", shell=True, cwd=recorder.folder,
        env=recorder.env,
    )  # fmt: skip
    time.sleep(0.5)
    os.kill(gateway.pid, signal.SIGUSR2)
    recorder.lines += [f"$ for one in 1 2 3 4 5 6; do python ask.py {url} 8 32; done > load.txt &",
                       f"$ kill -USR2 {gateway.pid}    # the gateway", ""]  # fmt: skip
    load.wait(120)
    recorder.run("awk '{count[$3] += $1} END {for (one in count) print count[one], \"answers\", one}' load.txt")
    time.sleep(3.0)
    recorder.run("tonnage gateway spend gateway.yaml --by route")
    recorder.note("the same requests under another policy")
    recorder.run("tonnage gateway simulate gateway.yaml --policy cheapest")
    gateway.terminate()
    gateway.wait(30)
    recorder.run("cat gateway.log")


def said(recorder: GatewayRecorder, command: str, shown: str) -> None:
    """A command of which another spelling is shown."""
    recorder.run(command)
    recorder.lines = [line.replace(f"$ {command}", f"$ {shown}") for line in recorder.lines]


def main() -> None:
    with TemporaryDirectory() as folder:
        recorder = GatewayRecorder(Path(folder))
        try:
            record(recorder)
        finally:
            for one in recorder.started:
                one.terminate()
    TARGET.write_text("\n".join(recorder.lines).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
