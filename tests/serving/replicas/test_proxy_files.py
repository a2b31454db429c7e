"""Files of existing balancers: taken by nginx itself, and by Envoy's own message types."""

from __future__ import annotations

import asyncio
import importlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tonnage.errors import InputError
from tonnage.serving.replicas.proxy_files import (
    ProxiedService,
    envoy_document,
    render_envoy,
    render_nginx,
    split_backend,
)
from tonnage.serving.replicas.replica import free_port

SERVER = Path(__file__).with_name("echo_server.py")
SERVICE = ProxiedService(
    name="chat", backends=("127.0.0.1:9001", "replicas.default.svc:9002"), slots=16, health="/health", port=9000,
    most_waiting=100,
)  # fmt: skip
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


def test_every_field_is_one_of_envoys() -> None:
    """The bootstrap and what it carries parse into Envoy's messages, which refuse a field that they do not have."""
    json_format = pytest.importorskip("google.protobuf.json_format")
    bootstrap = pytest.importorskip("envoy.config.bootstrap.v3.bootstrap_pb2")
    for module in (
        "filters.network.http_connection_manager.v3.http_connection_manager_pb2", "filters.http.buffer.v3.buffer_pb2",
        "filters.http.router.v3.router_pb2", "retry.host.previous_hosts.v3.previous_hosts_pb2",
    ):  # fmt: skip
        importlib.import_module(f"envoy.extensions.{module}")
    found = json_format.ParseDict(envoy_document(SERVICE), bootstrap.Bootstrap())
    cluster = found.static_resources.clusters[0]
    limits = cluster.circuit_breakers.thresholds[0]
    assert (limits.max_connections.value, limits.max_pending_requests.value) == (32, 100)
    assert cluster.outlier_detection.consecutive_local_origin_failure.value == 3
    assert len(cluster.load_assignment.endpoints[0].lb_endpoints) == 2
    with pytest.raises(json_format.ParseError):
        json_format.ParseDict({**envoy_document(SERVICE), "listeners": []}, bootstrap.Bootstrap())
    assert render_envoy(SERVICE).startswith("static_resources:\n")


def _until_it_listens(port: int) -> None:
    until = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return
        except ConnectionRefusedError:
            assert time.monotonic() < until
            time.sleep(0.01)


@pytest.mark.parametrize("backend", ["chat", "chat:", ":80", "chat:0", "chat:99999", "a;b:80", "a b:80"])
def test_an_address_that_is_none_is_refused(backend: str) -> None:
    """It would become a line of its own in a file."""
    with pytest.raises(InputError, match="not an address of a replica"):
        split_backend(backend)


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
def test_nginx_takes_its_file(tmp_path: Path) -> None:
    """`nginx -t`, IPv6 too; as many inside as work and wait."""
    assert NGINX is not None
    service = ProxiedService(name="c", backends=("[::1]:9001", "127.0.0.1:9002"), slots=4, health="/", host="::1")
    text = render_nginx(service)
    (tmp_path / "nginx.conf").write_text(text)
    tried = subprocess.run([NGINX, "-t", "-p", tmp_path, "-c", "nginx.conf"], capture_output=True, text=True)
    assert tried.returncode == 0, tried.stderr
    assert "limit_conn inside 1008;" in text


@pytest.mark.slow
@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
def test_nginx_loses_no_request_when_a_replica_is_killed(tmp_path: Path) -> None:
    """Two replicas under load, one of them killed: all answers come, from the other one."""
    assert NGINX is not None
    ports = [free_port("127.0.0.1") for _ in range(3)]
    backends = tuple(f"127.0.0.1:{port}" for port in ports[1:])
    service = ProxiedService(name="chat", backends=backends, slots=16, health="/health", port=ports[0])
    (tmp_path / "nginx.conf").write_text(render_nginx(service))
    replicas = [subprocess.Popen([sys.executable, SERVER, str(port)]) for port in ports[1:]]
    for port in ports[1:]:  # nginx leaves one out for a while that does not listen yet
        _until_it_listens(port)
    nginx = subprocess.Popen([NGINX, "-p", tmp_path, "-c", "nginx.conf", "-g", "daemon off;"])

    async def ask() -> list[int]:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{ports[0]}", timeout=30) as client:
            for _ in range(200):
                try:
                    if (await client.post("/work")).status_code == 200:
                        break
                except httpx.ConnectError:
                    pass
                await asyncio.sleep(0.05)

            async def one(number: int) -> int:
                await asyncio.sleep(number * 0.01)
                return (await client.post("/work?s=0.1", content=b"x" * 100)).status_code

            asked = [asyncio.ensure_future(one(number)) for number in range(100)]
            await asyncio.sleep(0.4)
            os.kill(replicas[0].pid, signal.SIGKILL)
            return list(await asyncio.gather(*asked))

    try:
        assert asyncio.run(ask()) == [200] * 100
    finally:
        for one in (nginx, *replicas):
            one.terminate()
            one.wait(10)
