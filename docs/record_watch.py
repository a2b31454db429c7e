"""Write docs/recordings/watch-alert-bill-restore.txt: an alert that fires, acts, helps and is undone; a bill beside
measured hours; a home lost and restored.

Run: `python docs/record_watch.py` (needs the extras `serve`, `bills`, `backup`; a minute). The commands are real, and
so is what they print. What stands for others: a program of forty lines for the service that is scaled (its queue falls
where it has two replicas), two runs of a test kit for runs of an hour each, and a bill in FOCUS that the script writes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from record_run import Recorder

from tonnage.testing.runs import write_run

TARGET = Path(__file__).parent / "recordings" / "watch-alert-bill-restore.txt"
SERVICE = """\
import json, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
state = {"replicas": 1, "queue": 0.0}
began = time.monotonic()
def live():
    while True:  # 12 requests a second come for 20 s, then 2; a replica answers 8
        time.sleep(0.1)
        coming = 12 if time.monotonic() - began < 20 else 2
        state["queue"] = max(state["queue"] + 0.1 * (coming - 8 * state["replicas"]), 0.0)
class Door(BaseHTTPRequestHandler):
    def do_GET(self):
        text = f"# TYPE tonnage_requests_waiting gauge\\ntonnage_requests_waiting {state['queue']:.1f}\\n"
        text += f"# TYPE tonnage_replicas_ready gauge\\ntonnage_replicas_ready {state['replicas']}\\n"
        self.answer(text.encode())
    def do_POST(self):
        state.update(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.answer(b"{}")
    def answer(self, body):
        self.send_response(200); self.send_header("content-length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
threading.Thread(target=live, daemon=True).start()
server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
print(server.server_port, flush=True)
server.serve_forever()
"""
RULES = """\
every: 1s
defaults: no
scrape: {{reviews: {{url: "http://127.0.0.1:{port}/metrics"}}}}
rules:
  queue:
    summary: requests wait for reviews
    when: {{metric: tonnage_requests_waiting, take: mean, over: 4s, above: 10, clear: 1}}
    do:
      - post: {{url: "http://127.0.0.1:{port}/scale", body: {{replicas: 2}}, undo: {{replicas: 1}},
               knob: replicas of reviews, direction: up}}
"""
BILL = """\
BilledCost,BillingCurrency,ChargePeriodStart,ChargeCategory,ConsumedQuantity,ConsumedUnit,ResourceId,Tags
3.78,USD,2026-01-02T12:00:00Z,Usage,1.05,Hours,i-0aaa,"{""tonnage"": ""bert-base""}"
7.20,USD,2026-01-02T12:00:00Z,Usage,2.0,Hours,i-0bbb,"{""tonnage"": ""bert-large""}"
0.90,USD,2026-01-02T12:00:00Z,Usage,,,vol-1,"{""tonnage"": ""bert-large""}"
0.40,USD,2026-01-02T12:00:00Z,Tax,,,,"{""tonnage"": ""bert-base""}"
12.24,USD,2026-01-02T15:00:00Z,Usage,1.0,Hours,i-0ccc,
"""


def record(recorder: Recorder, port: int) -> None:
    folder, home = recorder.folder, recorder.home
    (folder / "watch.tonnage.yaml").write_text(RULES.format(port=port), encoding="utf-8")
    (folder / "bill.csv").write_text(BILL, encoding="utf-8")
    for name in ("bert-base", "bert-large"):
        write_run(home / "runs" / name, step_s=36.0)
    recorder.note("1. an alert that fires, acts, helps, and is undone")
    recorder.run("cat watch.tonnage.yaml")
    recorder.run("tonnage watch check watch.tonnage.yaml")
    recorder.note("12 requests a second come, one replica answers 8; after 20 s only 2 come")
    recorder.run("tonnage watch watch.tonnage.yaml --rounds 36")
    recorder.run("tonnage watch audit")
    recorder.note("2. a bill beside measured hours: two runs of an hour at $3.60")
    recorder.run("cat bill.csv")
    recorder.run("tonnage budgets reconcile bill.csv --tag tonnage")
    recorder.note("3. a backup, a home that is lost, a restore on an empty machine")
    recorder.run("openssl rand -base64 32 > backup.key; chmod 600 backup.key")
    recorder.run("tonnage backup kept --key file:backup.key")
    kept = next((folder / "kept").iterdir()).name
    shutil.rmtree(home)
    recorder.lines += ["$ rm -r ~/tonnage", ""]
    recorder.run("tonnage ps --all")
    recorder.run(f"tonnage restore kept/{kept} --key file:backup.key")
    recorder.run("tonnage ps --all")
    recorder.run(f"tonnage audit verify --backup kept/{kept} --key file:backup.key")


def main() -> None:
    with TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder))
        program = [sys.executable, "-c", SERVICE]
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=os.environ) as service:
            try:
                assert service.stdout is not None
                record(recorder, int(service.stdout.readline()))
            finally:
                service.terminate()
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text("\n".join(recorder.lines).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
