"""The client against an API server that throttles, fails and breaks off; contexts and credentials of a kubeconfig."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from tests.places.kubernetes.pretended import JOBS, client_of

from tonnage.errors import InputError, TonnageError, UnknownName
from tonnage.places.kubernetes.client import ApiError, KubernetesClient, Unreachable
from tonnage.places.kubernetes.kubeconfig import Cluster, credentials, read_cluster
from tonnage.testing.kubernetes.server import FakeCluster
from tonnage.testing.kubernetes.store import FakeServerRefusal


def test_throttled_and_failing_servers_are_asked_again(cluster: FakeCluster) -> None:
    """429 as long as it says; 500 and broken connections with longer and longer waits; then it is said."""
    waits: list[float] = []
    answers = [429, 500, -1, 503]
    cluster.faults.append(lambda *_: answers.pop(0) if answers else None)
    assert client_of(cluster, waits).ask("GET", "/version")["minor"] == "36"
    assert waits == [1.0, 1.0, 2.0, 4.0]
    cluster.faults[:] = [lambda *_: 503]
    with pytest.raises(Unreachable, match="503"):
        client_of(cluster).ask("GET", "/version")


def test_a_list_that_expires_is_read_anew(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """410 in the middle of its pages; every object once."""
    monkeypatch.setattr("tonnage.places.kubernetes.client.PAGE", 2)
    for number in range(5):
        cluster.lay(JOBS, "ml", {"metadata": {"name": f"j{number}"}, "spec": {"suspend": True}})
    gone = iter([None, FakeServerRefusal(410, "too old")])
    cluster.faults.append(lambda _, path: next(gone, None) if path == JOBS else None)
    found = client_of(cluster).list(JOBS)
    assert [one["metadata"]["name"] for one in found] == [f"j{number}" for number in range(5)]


@pytest.mark.heavy
def test_credentials_that_expire_are_made_anew(cluster: FakeCluster, tmp_path: Path) -> None:
    """A plugin is asked again after a 401, and before its token's end."""
    count = tmp_path / "count"
    plugin = tmp_path / "plugin"
    soon = (datetime.now(UTC) + timedelta(seconds=5)).isoformat()
    plugin.write_text(
        f"#!{sys.executable}\nimport json, os, pathlib\npath = pathlib.Path({str(count)!r})\n"
        "n = int(path.read_text()) + 1 if path.exists() else 1\npath.write_text(str(n))\n"
        "assert json.loads(os.environ['KUBERNETES_EXEC_INFO'])['spec']['interactive'] is False\n"
        f"print(json.dumps({{'status': {{'token': f'token-{{n}}', 'expirationTimestamp': {soon!r}}}}}))\n"
    )
    plugin.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    client = KubernetesClient(replace(read_cluster("fake", (cluster.kubeconfig,)), user=user), sleep=lambda _: None)
    cluster.tokens = {"token-2", "token-3"}
    assert client.ask("GET", "/version")  # token-1 is refused, token-2 is not
    assert client.ask("GET", "/version")  # token-2 ends within its margin
    assert int(count.read_text()) == 3
    cluster.tokens = set()
    with pytest.raises(ApiError, match="Unauthorized"):
        client.ask("GET", "/version")


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("script", "said"),
    [("exit 3", "exit code 3"), ("echo nonsense", "has not answered"), ("echo sign in >&2; exit 1", "sign in")],
)
def test_a_plugin_that_gives_nothing(script: str, said: str, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!/bin/sh\n{script}\n")
    plugin.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    cluster = Cluster(
        context="c", server="http://x", ca=None, verified=True, server_name=None, folder=tmp_path, user=user
    )
    with pytest.raises(TonnageError, match=said):
        credentials(cluster)


def test_a_context_is_never_guessed(tmp_path: Path) -> None:
    """One that is not there is refused with those that are, the current one among them; files are merged."""
    first, second = tmp_path / "a", tmp_path / "b"
    made = {"clusters": [{"name": "c", "cluster": {"server": "https://one"}}], "current-context": "prod",
            "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": "t"}}]}  # fmt: skip
    first.write_text(yaml.safe_dump(made))
    second.write_text(yaml.safe_dump({"contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}]}))
    assert read_cluster("test", (first, second)).server == "https://one"
    with pytest.raises(UnknownName, match="'prd'") as refused:
        read_cluster("prd", (first, second))
    assert "prod" in (refused.value.hint or "")
    first.write_text("clusters: 5")
    with pytest.raises(InputError, match="is not a kubeconfig"):
        read_cluster("prod", (first,))
