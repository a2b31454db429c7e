"""A batch killed again and again: no row lost, none twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("httptools")
pytest.importorskip("uvloop")

from tonnage.testing.upstream import PretendedUpstream

pytestmark = pytest.mark.heavy


def started(source: Path, out: Path, url: str) -> subprocess.Popen[bytes]:
    words = ["batch", str(source), str(out), "--url", url, "--model", "tiny", "--concurrency", "16", "-q"]
    return subprocess.Popen([sys.executable, "-m", "tonnage", *words], stdout=subprocess.DEVNULL)


def write_rows(source: Path, count: int) -> None:
    with source.open("w") as stream:
        stream.writelines(json.dumps({"id": f"r{at}", "text": f"text {at}"}) + "\n" for at in range(count))


def wait_for_lines(out: Path, more_than_bytes: int) -> None:
    for _ in range(1200):
        if out.exists() and out.stat().st_size > more_than_bytes:
            return
        time.sleep(0.05)
    raise TimeoutError(out)


def ids(out: Path) -> Counter[str]:
    return Counter(json.loads(line)["custom_id"] for line in out.read_text().splitlines())


@pytest.mark.slow
def test_five_kills_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    """SIGKILL after some work, five times: in the end each row stands once, and on the wire only what was in flight
    at a kill (16 at a time) was asked for twice, with the same key."""
    source, out, draw = tmp_path / "in.jsonl", tmp_path / "out.jsonl", random.Random(1)
    write_rows(source, 6000)
    with PretendedUpstream(delay_s=0.02) as upstream:
        for _ in range(5):
            before = out.stat().st_size if out.exists() else 0
            process = started(source, out, upstream.url)
            wait_for_lines(out, before)
            time.sleep(draw.uniform(0.0, 0.4))
            process.kill()
            process.wait(30)
        assert started(source, out, upstream.url).wait(120) == 0
        assert ids(out) == {f"r{at}": 1 for at in range(6000)}
        assert len(upstream.seen) == 6000
        twice = sum(count - 1 for count in upstream.seen.values())
        assert twice <= 5 * (16 + 4096)  # in flight, or answered and not yet on the disk


def test_ctrl_c_records_what_is_on_its_way(tmp_path: Path) -> None:
    """Exit 130; every request that was answered is in the output; the same command finishes."""
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    write_rows(source, 1500)
    with PretendedUpstream(delay_s=0.05) as upstream:
        process = started(source, out, upstream.url)
        wait_for_lines(out, 0)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(60) == 130
        assert 0 < ids(out).total() == upstream.answered.total() < 1500
        upstream.delay_s = 0.0
        assert started(source, out, upstream.url).wait(60) == 0
    assert ids(out) == {f"r{at}": 1 for at in range(1500)}


def test_two_processes_do_not_write_one_output(tmp_path: Path) -> None:
    """The second ends with 2 and says so."""
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    write_rows(source, 3000)
    with PretendedUpstream(delay_s=0.05) as upstream:
        first = started(source, out, upstream.url)
        wait_for_lines(out, 0)
        assert started(source, out, upstream.url).wait(60) == 2
        first.kill()
        first.wait(30)
