"""Batches in a gateway as its users start it, killed in their middle."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.gateway.test_processes import started
from tests.ports import free_port

from tonnage.gateway.money.shared_accounts import SharedAccounts
from tonnage.testing.upstream import PretendedUpstream

ROWS = 2000


def until(url: str, holds: Any, seconds: float = 60.0) -> dict[str, Any]:
    """What a page says once that holds."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        found: dict[str, Any] = httpx.get(url, timeout=10).json()
        if holds(found):
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds:g} s: {found}")


@pytest.mark.slow
def test_a_kill_asks_no_row_twice(tmp_path: Path) -> None:
    """kill -9 of the parent in the middle of a batch: the next start ends it, each row answered once and paid once."""
    body = {"model": "chat", "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]}
    rows = "".join(
        json.dumps({"custom_id": f"r{index}", "method": "POST", "url": "/v1/chat/completions", "body": body}) + "\n"
        for index in range(ROWS)
    )
    port = free_port()
    base = f"http://127.0.0.1:{port}/v1"
    with PretendedUpstream() as upstream:
        process = started(tmp_path, upstream.url, port, batches={})
        try:
            form = {"files": {"file": ("rows.jsonl", rows.encode())}, "data": {"purpose": "batch"}}
            file = httpx.post(f"{base}/files", **form).json()["id"]
            asked = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
            batch = f"{base}/batches/{httpx.post(f'{base}/batches', json=asked).json()['id']}"
            until(batch, lambda one: 0 < one["request_counts"]["completed"] < ROWS)
            process.kill()
            process.wait()
            time.sleep(1.0)  # its workers end by themselves
            process = started(tmp_path, upstream.url, port, batches={})
            done = until(batch, lambda one: one["status"] == "completed")
            assert done["request_counts"] == {"total": ROWS, "completed": ROWS, "failed": 0}
            lines = httpx.get(f"{base}/files/{done['output_file_id']}/content").text.splitlines()
            assert len({json.loads(line)["custom_id"] for line in lines}) == len(lines) == ROWS
        finally:
            process.terminate()
            process.wait()
    accounts = SharedAccounts(str(tmp_path / "gateway" / "accounts.db"))
    accounts.open()
    attempts = accounts.attempts()
    accounts.close()
    asked_twice = len(attempts) - ROWS  # those that were under way at the kill may be asked again
    assert 0 <= asked_twice <= 16
