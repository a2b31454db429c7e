"""`tonnage batch --on ray` on a Ray of this machine: the same output as one process, whoever is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

pytest.importorskip("ray.data", reason="the extra 'ray' is not installed")
pytest.importorskip("httptools")

import tonnage
from tonnage import BatchOptions
from tonnage.errors import PlanRefused
from tonnage.testing.upstream import PretendedUpstream

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def write_rows(folder: Path, count: int) -> Path:
    file = folder / "in.jsonl"
    file.write_text("".join(json.dumps({"id": f"r{at}", "text": f"text {at}"}) + "\n" for at in range(count)) + "{\n")
    return file


def ids(out: Path) -> Counter[str]:
    return Counter(json.loads(line)["custom_id"] for line in out.read_text().splitlines())


def kill_a_worker(parent: psutil.Process, after: int, upstream: PretendedUpstream, killed: list[int]) -> None:
    while len(upstream.answered) < after:
        time.sleep(0.05)
    for child in parent.children(recursive=True):
        if "MapWorker" in " ".join(child.cmdline()):
            child.kill()
            killed.append(child.pid)
            return


def test_a_killed_worker_costs_requests_and_no_row(tmp_path: Path) -> None:
    """Its part is asked again; bad rows stand apart; the same command finds nothing left to do."""
    source, out, killed = write_rows(tmp_path, 6000), tmp_path / "out.jsonl", list[int]()
    with PretendedUpstream(delay_s=0.02) as upstream:
        threading.Thread(target=kill_a_worker, args=(psutil.Process(), 1500, upstream, killed), daemon=True).start()
        asked = BatchOptions(url=upstream.url, model="tiny", on="ray", workers=2, concurrency=8)
        found = tonnage.batch(source, out, asked).found
        assert killed
        assert (found.progress.answered, found.progress.failed, found.ending) == (6000, 1, "done")
        assert upstream.seen.total() > 6000
        assert tonnage.batch(source, out, asked).found.progress.answered == 0
    assert ids(out) == {f"r{at}": 1 for at in range(6000)}


def test_a_killed_driver_goes_on(tmp_path: Path) -> None:
    """SIGKILL once rows are recorded, then the same command."""
    source, out = write_rows(tmp_path, 5000), tmp_path / "out.jsonl"
    with PretendedUpstream(delay_s=0.02) as upstream:
        words = [sys.executable, "-m", "tonnage", "batch", str(source), str(out), "--url", upstream.url, "--model", "t"]
        words += ["--on", "ray", "--workers", "2", "--concurrency", "8", "-q"]
        driver = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not out.exists() or not out.stat().st_size:
            assert driver.poll() is None
            time.sleep(0.05)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        before = len(out.read_text().splitlines())
        assert 0 < before < 5000
        assert subprocess.run(words, stdout=subprocess.DEVNULL, check=False).returncode == 1  # the bad row
    assert ids(out) == {f"r{at}": 1 for at in range(5000)}


def test_a_budget_holds_over_all_workers(tmp_path: Path) -> None:
    """11 tokens a row: 2,000 of 3,000 rows can be paid."""
    source, out = write_rows(tmp_path, 3000), tmp_path / "out.jsonl"
    with PretendedUpstream() as upstream:
        asked = BatchOptions(
            url=upstream.url, model="tiny", on="ray", workers=2, most_usd=2000 * 11e-6, usd_per_million_input=1.0,
            usd_per_million_output=1.0,
        )  # fmt: skip
        answer = tonnage.batch(source, out, asked)
        assert isinstance(answer.fault, PlanRefused)
        assert 1900 <= answer.found.progress.answered <= 2000
        assert answer.found.progress.usd is not None
        assert answer.found.progress.usd <= 0.022 + 1e-9
