"""A watch over a folder of runs for tests: its clock, its rounds made by hand, and a page that takes posts."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tonnage.monitoring.actions import ActionRunner, Hands
from tonnage.monitoring.alerts.reading import read_rules
from tonnage.monitoring.audit import AuditFile, LateAudit
from tonnage.monitoring.collecting import Collector
from tonnage.monitoring.history import MetricHistory
from tonnage.monitoring.page import WatchPage
from tonnage.monitoring.watcher import SteadyClock, Watcher, WatchParts
from tonnage.runs import RunFolder

NOW = 1_800_000_000.0


class Clock:
    """A wall clock and a steady one, set by hand."""

    def __init__(self) -> None:
        self.wall, self.steady = NOW, 100.0

    def pass_s(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds

    def made(self) -> SteadyClock:
        return SteadyClock(lambda: self.wall, lambda: self.steady)


class Site(ThreadingHTTPServer):
    """A page of figures to read, and a place that takes posts."""

    page, posted, status = "load 1\n", list[dict[str, Any]](), 200
    slow_s = 0.0  # of the first post

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.posted = []
        self.hold = threading.Event()  # posts are answered while it is set
        self.hold.set()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        self._answer(self.server.page.encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        seconds, self.server.slow_s = self.server.slow_s, 0.0
        time.sleep(seconds)
        self.server.hold.wait(60.0)
        self.server.posted.append(body)
        self._answer(b"{}")

    def _answer(self, content: bytes) -> None:
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


class Home:
    """A watch over a folder of runs, its rounds made by hand."""

    def __init__(
        self, path: Path, text: str, clock: Clock,
        runs: tuple[RunFolder, ...] | Callable[[], tuple[RunFolder, ...]] = (),
    ) -> None:  # fmt: skip
        self.said: list[str] = []
        self.stopped: list[str | None] = []
        self.audit = AuditFile(path / "audit.jsonl")
        late = LateAudit(self.audit, self.said.append)
        rules, found = read_rules(text, file=None), runs if callable(runs) else lambda: runs
        self.actions = ActionRunner(
            channels=rules.channels, audit=late, say=self.said.append,
            hands=Hands(
                stop=self._stop, plan=lambda run: f"planned {run}", stop_budget=lambda name: f"stopped {name}",
                smaller_batch=lambda run: f"halved {run}", scale=lambda service, do: f"{do} {service}",
            ),
        )  # fmt: skip
        self.page = WatchPage()
        self.history = MetricHistory(path / "history.db", keep_s=rules.keep_s)
        self.watcher = Watcher(
            WatchParts(
                rules=rules, collector=Collector(runs=found, targets=rules.targets), history=self.history,
                actions=self.actions, audit=late, page=self.page, state_file=path / "state.json",
                say=self.said.append,
            ),
            clock.made(),
        )  # fmt: skip

    def _stop(self, run: str | None) -> str:
        self.stopped.append(run)
        return f"stopped {run}"

    def close(self) -> None:
        self.actions.close()
        self.history.close()
