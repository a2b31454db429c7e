"""What pages of money show: budgets that runs have spent, a gateway at work, a price that moved."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tonnage.budgets.book import FILE_NAME, ReservationBook, ReservationRequest
from tonnage.budgets.file import Budget
from tonnage.budgets.standing import SettledCost
from tonnage.catalog.loading import snapshot_folders
from tonnage.gateway.top.keeping import SCHEMA
from tonnage.runs.spec import ChargeSpec
from tonnage.serving.running.meter import CostMeter, ServiceCounts
from tonnage.serving.running.record import PlannedCost, RunningService, this_process, write_costs, write_record

BUDGETS = '[budgets.ranking]\nusd = 10\nperiod = "lifetime"\nteam = "ranking"\n'
RANKING = ChargeSpec(project="search", team="ranking")


def spend(home: Path) -> None:
    """Two runs of the team, one of them settled, and one of another team."""
    home.mkdir(exist_ok=True)
    (home / "budgets.toml").write_text(BUDGETS, encoding="utf-8")
    book, now = ReservationBook(home / FILE_NAME), datetime.now(UTC)
    for name, charge in (("first", RANKING), ("second", RANKING), ("other", ChargeSpec(team="ads"))):
        asked = ReservationRequest(run=name, folder=home / "runs" / name, charge=charge, bound_micro_usd=3_000_000)
        number = book.reserve(asked, (Budget(name="ranking", usd=Decimal(10), period="lifetime", team="ranking"),))
        if name == "first":
            book.settle(number, SettledCost(micro_usd=1_250_000, started_at=now, ended_at=now))


def service(home: Path) -> None:
    """A service that streams tokens, in this process, with its plan and its last minute."""
    pid, began = this_process()
    planned = PlannedCost(
        rank=1, provider="gcp", instance_type="g2-standard-4", machines=2, usd_per_month=1000.0,
        low_usd_per_month=500.0, high_usd_per_month=2000.0, requests_per_month=4e6, predicted_p95_s=(2.5, 1.9, 3.4),
        predicted_ttft_p95_s=(0.21, 0.14, 0.33), predicted_tpot_p95_s=(0.019, 0.015, 0.025),
    )  # fmt: skip
    folder = home / "services" / "chat"
    write_record(folder, RunningService(
        name="chat", engine="vllm", url="http://127.0.0.1:8000", pid=pid, process_started_at=began,
        started_at=datetime.now(UTC), replicas=(1, 3), usd_per_machine_hour=0.7, price_from="--usd-per-hour",
        planned=planned,
    ))  # fmt: skip
    meter = CostMeter(usd_per_machine_hour=0.7)
    for at_s, requests in ((0.0, 0), (60.0, 90)):
        counts = ServiceCounts(requests=requests, input_tokens=1155 * requests, output_tokens=211 * requests)
        meter.tick(at_s, replicas=2, counts=counts)
    write_costs(folder, {**meter.document(), "p95_s": 2.41, "ttft_p95_s": 0.263, "tpot_p95_s": 0.0172})


def status(at_s: float, requests: float) -> dict[str, Any]:
    """The status page of a gateway with one worker, one deployment, one key."""
    counts = [
        ["tonnage_gateway_requests_total", [["deployment", "small"]], requests],
        ["tonnage_gateway_key_usd_total", [["key", "web"]], requests / 1000],
    ]
    return {
        "schema": SCHEMA, "at_s": at_s, "workers": 1, "waiting": 2, "counts": counts, "times": [],
        "deployments": {"small": {"under_way": 3, "resting_workers": 1}}, "routes": ["chat"], "keys": ["web"],
        "in_flight": {"routes": {"chat": 3}, "keys": {"web": 3}}, "allowances": [], "accounts": None,
    }  # fmt: skip


@contextmanager
def running(pages: Iterator[dict[str, Any]]) -> Iterator[int]:
    """A server that shows the next page at each look; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(next(pages)).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made.server_address[1]
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


def gateway_file(folder: Path, port: int) -> Path:
    price = "price: {input_usd_per_million: 1, output_usd_per_million: 2}"
    path = folder / "chat.gateway.yaml"
    path.write_text(
        f"listen: {{port: {port}}}\ndeployments:\n  small: {{url: 'http://127.0.0.1:1/v1', model: m, {price}}}\n"
        "routes:\n  chat: {deployments: [small]}\n",
        encoding="utf-8",
    )
    return path


def dearer(home: Path) -> None:
    """A snapshot at home a day after the built-in one, with one machine at twice its price."""
    folder = home / "snapshots" / "2026-11-21-twice"
    shutil.copytree(snapshot_folders()[-1], folder)
    meta = folder / "snapshot.toml"
    meta.write_text(meta.read_text(encoding="utf-8").replace("2026-11-20", "2026-11-21"), encoding="utf-8")
    rows = (folder / "offers.csv").read_text(encoding="utf-8").splitlines()
    place = rows[0].split(",").index("usd_per_instance_hour")
    for number, row in enumerate(rows):
        cells = row.split(",")
        if cells[:4] == ["aws", "p5.48xlarge", "us-west-2", "spot"]:
            cells[place] = str(2 * Decimal(cells[place]))
            rows[number] = ",".join(cells)
    (folder / "offers.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
