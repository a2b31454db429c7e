"""The executor against an API server that throttles, fails, forgets, breaks off, and refuses."""

from __future__ import annotations

import importlib.util
import json
import resource
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tonnage.errors import InputError, TonnageError, UnknownName
from tonnage.places.contract import Submission
from tonnage.places.kubernetes.client import ApiError, KubernetesClient, Unreachable
from tonnage.places.kubernetes.executor import Kubernetes
from tonnage.places.kubernetes.kubeconfig import Cluster, credentials, read_cluster
from tonnage.places.kubernetes.manifest import read_manifest
from tonnage.places.kubernetes.mirror import append, lines_of, merge_whole, read_mirror
from tonnage.places.kubernetes.paths import group_path, plural
from tonnage.places.kubernetes.place import KubernetesPlace
from tonnage.places.record import read_record, write_record
from tonnage.places.states import PlaceStatus
from tonnage.runs import RunFolder, log_parts
from tonnage.runs.job import Job
from tonnage.runs.journal import EventKind
from tonnage.runs.liveness import has_supervisor, read_heartbeat
from tonnage.runs.spec import DataSource, DataSpec, RunSpec
from tonnage.testing.kubernetes.server import TOKEN, FakeCluster, fake_cluster
from tonnage.testing.kubernetes.store import FakeServerRefusal

_SPEC = importlib.util.spec_from_file_location("kubernetes_verdicts", Path(__file__).with_name("verdicts.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
facts = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(facts)

JOBS, PODS = "/apis/batch/v1/namespaces/ml/jobs", "/api/v1/namespaces/ml/pods"
CLAIMS = "/api/v1/namespaces/ml/persistentvolumeclaims"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    """No node has room: nothing is started."""
    with fake_cluster(tmp_path / "cluster") as found:
        found.controller.held = True
        found.lay(CLAIMS, "ml", {"metadata": {"name": "runs"}, "spec": {"accessModes": ["ReadWriteMany"]},
                                 "status": {"phase": "Bound"}})  # fmt: skip
        found.lay("/api/v1/nodes", "", {"metadata": {"name": "node-a", "labels": {"nvidia.com/gpu.product": "h100"}},
                  "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8"}}})  # fmt: skip
        yield found


def place(server: FakeCluster, **given: Any) -> KubernetesPlace:
    terms: dict[str, Any] = {
        "kind": "kubernetes", "context": "fake", "kubeconfig": str(server.kubeconfig), "namespace": "ml",
        "image": "registry.example/tonnage@sha256:" + "0" * 64, "cores": 1, "memory_gib": 1, "time_limit_minutes": 5,
        "volume": "runs", "python": sys.executable,
    }  # fmt: skip
    return KubernetesPlace(**(terms | given))


def client_of(cluster: FakeCluster, waits: list[float] | None = None) -> KubernetesClient:
    seen = [] if waits is None else waits
    return KubernetesClient(read_cluster("fake", (cluster.kubeconfig,)), sleep=seen.append, chance=lambda: 1.0)


def executor(server: FakeCluster, **given: Any) -> Kubernetes:
    return Kubernetes(name="train", place=place(server, **given), owner="me", client=client_of(server))


def written(tmp_path: Path, name: str = "a") -> RunFolder:
    folder = RunFolder(tmp_path / "home" / "runs" / name)
    data = DataSpec(train=DataSource(location="s3://b/rows.csv", format="csv"))
    folder.create(RunSpec(name=name, task="mlp", data=data))
    folder.record(EventKind.SUBMITTED, who="cli", name=name, place="train")
    return folder


def submission(run: Kubernetes, folder: RunFolder, number: int = 1) -> Submission:
    return run.render(folder.spec(), Job(runner="local", argv=("python", "-m", "work")), folder, number=number)


@pytest.mark.skipif(facts.FACTS is None, reason="TONNAGE_FACTS names no folder of fact tables")
def test_the_pretended_server_answers_as_the_real_one(tmp_path: Path) -> None:
    """Every recorded create, over HTTP: the same code, and the same fields where the answer has causes."""
    rows = [
        one for one in facts.rows() if not {"first", "raw_body"} & one.keys() and "webhooks" not in one["admission"]
    ]
    wrong = []
    with fake_cluster(tmp_path / "held", facts.server_of(rows[0])) as held, httpx.Client() as http:
        held.controller.held = True
        for row in rows:
            one, namespace = row["object"], row.get("request_namespace") or "default"
            path = f"{group_path(one['apiVersion'])}/namespaces/{namespace}/{plural(one['kind'])}"
            signed = {"Authorization": f"Bearer {TOKEN}"}
            answer = http.post(held.url + path, params={"dryRun": "All"}, json=one, headers=signed)
            fields = facts.fields_of(row) if row["code"] == 422 else None
            causes = answer.json().get("details", {}).get("causes", ())
            named = {"" if cause["field"] == "<nil>" else cause["field"] for cause in causes}
            if answer.status_code != row["code"] or (fields is not None and named != fields):
                wrong.append(f"{row['id']}: {answer.status_code} {named}, not {row['code']} {fields}")
    assert wrong == []
    assert len(rows) > 380


@pytest.mark.skipif(facts.FACTS is None, reason="TONNAGE_FACTS names no folder of fact tables")
def test_the_pretended_server_changes_what_the_real_one_changes(tmp_path: Path) -> None:
    """Every recorded pair of server-side applies, each over an object of its own."""
    wrong, asked = [], 0
    for hooks in ("", "webhooks"):
        rows = [one for one in facts.rows() if "first" in one and ("webhooks" in one["admission"]) == bool(hooks)]
        with fake_cluster(tmp_path / f"held{hooks}", facts.server_of(rows[0])) as held, httpx.Client() as http:
            held.controller.held = True
            for row in rows:
                asked += 1
                first, second = row["first"], row["second"]
                path = f"{group_path(first['apiVersion'])}/namespaces/default/{plural(first['kind'])}"
                path += f"/{first['metadata']['name']}"
                held.store.remove(path)
                codes = [
                    http.patch(held.url + path, json=body, headers={"Authorization": f"Bearer {TOKEN}"}, params={
                        "fieldManager": answer["fieldManager"], "force": str(row["method"].endswith("force")).lower()
                    }).status_code
                    for body, answer in ((first, row["first_verdict"]), (second, row["verdict"]))
                ]  # fmt: skip
                expected = [row["first_verdict"]["code"], row["verdict"]["code"]]
                if [code // 100 * 100 if code < 300 else code for code in codes] != [
                    code // 100 * 100 if code < 300 else code for code in expected
                ]:  # fmt: skip
                    wrong.append(f"{row['id']}: {codes}, not {expected}")
    assert wrong == []
    assert asked >= 52


def but_pods(cluster: FakeCluster) -> int:
    """How many objects there are beside pods: those come and go when their controller gets to it."""
    with cluster.store.lock:
        return cluster.store.count() - sum(1 for _ in cluster.store.of_kind("pods"))


def test_a_submission_is_one_however_often_it_is_sent(cluster: FakeCluster, tmp_path: Path) -> None:
    """The client dies after each request in turn; the next one finishes what it began, and there is one Job."""
    run, folder = executor(cluster), written(tmp_path)
    sent, before = submission(run, folder), but_pods(cluster)

    class Died(Exception):
        pass

    def die(_: float) -> None:
        raise Died

    for number in range(len(sent.commands)):
        cluster.after[:] = [lambda method, _: 500 if method == "POST" else None]  # done, and the answer is lost
        dying = executor(cluster)
        dying.api._sleep = die
        with pytest.raises(Died):
            dying.submit(sent, folder)
        assert but_pods(cluster) == before + number + 1
    cluster.after.clear()
    assert run.submit(sent, folder) == run.submit(sent, folder)
    assert len(cluster.store.find(JOBS)) == 1
    record = read_record(folder)
    assert record is not None
    assert record.job_id == cluster.store.find(JOBS)[0]["metadata"]["name"]


def test_a_newer_submission_takes_the_older_ones_place(cluster: FakeCluster, tmp_path: Path) -> None:
    """Never two Jobs of one run; what was beside the older one goes with it, its storage stays."""
    run, folder = executor(cluster, volume=None, storage_gib=10), written(tmp_path)
    run.submit(submission(run, folder), folder)
    before = but_pods(cluster)
    run.submit(submission(run, folder, number=2), folder)
    [job] = cluster.store.find(JOBS)
    assert job["metadata"]["labels"]["tonnage.dev/token"] == submission(run, folder, number=2).token
    assert but_pods(cluster) == before
    assert len([one for one in cluster.store.find(CLAIMS) if one["metadata"]["name"] != "runs"]) == 1


def test_a_name_that_another_has(cluster: FakeCluster, tmp_path: Path) -> None:
    """Refused, and left alone."""
    run, folder = executor(cluster), written(tmp_path)
    sent = submission(run, folder)
    name = read_manifest(sent.script)[-1]["metadata"]["name"]
    cluster.lay(JOBS, "ml", {"metadata": {"name": name, "labels": {}}, "spec": {"completions": 0}})
    with pytest.raises(TonnageError, match="is not this run's") as refused:
        run.submit(sent, folder)
    assert "kubectl -n ml delete job" in (refused.value.hint or "")


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


def test_a_job_that_vanishes(cluster: FakeCluster, tmp_path: Path) -> None:
    """Somebody deleted it: lost, and can go on; nothing of it is an orphan's."""
    run, folder = executor(cluster), written(tmp_path)
    name = run.submit(submission(run, folder), folder)
    assert run.status(folder).status is PlaceStatus.QUEUED
    cluster.controller.delete(f"{JOBS}/{name}", grace_s=None)
    assert run.status(folder).status is PlaceStatus.LOST


def test_found_without_its_name(cluster: FakeCluster, tmp_path: Path) -> None:
    """The client died before it had written the name down: the label tells which Job it is."""
    run, folder = executor(cluster), written(tmp_path)
    run.submit(submission(run, folder), folder)
    record = read_record(folder)
    assert record is not None
    write_record(folder, replace(record, job_id=None))
    cluster.wait_for_pod(PODS)
    found = run.status(folder)
    assert (found.status, found.view.word) == (PlaceStatus.QUEUED, "Pending")
    assert "Insufficient nvidia.com/gpu" in found.message


def test_a_queued_run_is_taken_out(cluster: FakeCluster, tmp_path: Path) -> None:
    """Stopped before it began: nothing of it is left, and its journal says so."""
    run, folder = executor(cluster), written(tmp_path)
    run.submit(submission(run, folder), folder)
    run.stop(folder, by="me", reason="")
    assert cluster.store.find(JOBS) == []
    assert folder.state().state.value == "stopped"
    assert run.orphans(folder.path.parent, end=False) == ()


@pytest.mark.parametrize(
    ("given", "lay", "said", "mended"),
    [
        ({"volume": "nope"}, None, "no claim 'nope'", "volume"),
        ({"queue": "research"}, None, "no LocalQueue 'research'", "kubectl get localqueues"),
        ({"secret": "keys"}, None, "no secret 'keys'", "create secret generic keys"),
        ({"priority_class": "high"}, None, "no priority class 'high'", "priority_class"),
        ({"form": "jobset", "namespace": "ml"}, "no jobset", "has no jobsets", "jobset.sigs.k8s.io"),
        ({"gpus": 1, "gpu": "a100", "gpu_memory_gib": 40}, None, "gpu.product=a100", "nodes have h100"),
        ({"gpus": 16, "gpu": "h100", "gpu_memory_gib": 80}, None, "0 nodes have", "kubectl get nodes"),
        ({}, "quota", "has 0.5 of requests.cpu left", "describe quota"),
        ({}, "rights", "may not create pods/exec", "create role"),
        ({}, "two nodes", "cannot share", "ReadWriteMany"),
        ({"namespace": "elsewhere"}, None, "no namespace 'elsewhere'", "create namespace"),
    ],
)  # fmt: skip
def test_check_refuses(
    given: dict[str, Any], lay: str | None, said: str, mended: str, cluster: FakeCluster, tmp_path: Path
) -> None:
    """What a Job would wait for without a word is refused before, with what mends it; nothing is created."""
    if lay == "no jobset":
        del cluster.groups["jobset.x-k8s.io/v1alpha2"]
    if lay == "quota":
        cluster.lay("/api/v1/namespaces/ml/resourcequotas", "ml", {"metadata": {"name": "q"}, "spec": {},
                    "status": {"hard": {"requests.cpu": "500m"}, "used": {}}})  # fmt: skip
    if lay == "rights":
        cluster.denied.add(("create", "pods/exec"))
    if lay == "two nodes":
        given = {"volume": "one", "nodes": 2}
        cluster.lay(CLAIMS, "ml", {"metadata": {"name": "one"}, "spec": {"accessModes": ["ReadWriteOnce"]},
                                   "status": {"phase": "Bound"}})  # fmt: skip
    before = cluster.store.count()
    found = [one for one in executor(cluster, **given).check(written(tmp_path)) if one.kind == "refused"]
    assert any(said in one.message and mended in one.hint for one in found), found
    assert cluster.store.count() == before


@pytest.mark.parametrize(
    ("label", "cuda", "kind", "said"),
    [
        ("570.26", "13.0", "refused", "CUDA 13.0 on driver 570.26"), ("580.95.05", "13.0", None, ""),
        (None, "13.0", "unchecked", "not known which driver they have"),
        ("580.95.05", None, "unchecked", "not known which CUDA"),
    ],
)  # fmt: skip
def test_nodes_say_their_driver_by_a_label(
    label: str | None, cuda: str | None, kind: str | None, said: str, cluster: FakeCluster, tmp_path: Path
) -> None:
    """Of NVIDIA's feature discovery, the oldest of the nodes that fit; without it that is said."""
    more = {} if label is None else {"nvidia.com/cuda.driver-version.full": label}
    for name, labels in (("node-a", more), ("node-b", more | ({"nvidia.com/cuda.driver-version.full": "610.43.02"}
                                                              if label else {}))):  # fmt: skip
        cluster.lay("/api/v1/nodes", "", {
            "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": "h100", **labels}},
            "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8"}}})  # fmt: skip
    run = executor(cluster, gpus=1, gpu="h100", gpu_memory_gib=80, cuda=cuda)
    found = [one for one in run.check(written(tmp_path)) if "CUDA" in one.message]
    assert [one.kind for one in found] == ([] if kind is None else [kind])
    assert all(said in one.message for one in found)


def test_what_may_not_be_asked_is_unchecked(cluster: FakeCluster, tmp_path: Path) -> None:
    """A user who may not list nodes is told that they were not looked at."""
    cluster.denied.add(("list", "nodes"))
    found = executor(cluster).check(written(tmp_path))
    assert [(one.kind, one.message.split(":")[0]) for one in found] == [("unchecked", "nodes")]
    grows = executor(cluster, gpus=1, gpu="a100", gpu_memory_gib=40, cluster="karpenter")
    cluster.denied.clear()
    assert [one.kind for one in grows.check(written(tmp_path, "b"))] == ["doubtful"]


THERE = Path("/mnt/runs/a")


def told(folder: RunFolder, *lines: str, now: datetime | None = None, token: str = "t", pod: str = "0") -> None:
    """These lines are a pod's log."""
    append(folder, token, [f"{line}\n".encode() for line in lines], now=now, where=THERE, pod=pod)


def test_lines_that_come_again_are_taken_once(tmp_path: Path) -> None:
    """A log read again from before, by a client that was cut: journal, figures and log have each line once."""
    folder = written(tmp_path)
    event = json.dumps({"at": "2026-01-01T00:00:00+00:00", "who": "supervisor", "kind": "started", "attempt": 1})
    lines = [f"journal.jsonl@0 {event}", 'metrics.jsonl@0 {"step": 1}', "log.txt@0 one", "not ours", "log.txt~4 tw"]
    before = folder.journal_file.read_text()
    told(folder, *lines)
    folder.record(EventKind.STOPPING, who="cli", reason="UserStopped")  # the client's own, in between
    folder.log_file.write_text(folder.log_file.read_text() + "written and not noted")
    told(folder, *lines, "log.txt@6 o", "log.txt@8 three", now=datetime(2026, 1, 1, tzinfo=UTC))
    assert folder.log_file.read_text() == "one\ntwo\nthree\n"
    assert folder.metrics_file.read_text() == '{"step": 1}\n'
    assert folder.journal_file.read_text().startswith(before + event + "\n")
    assert folder.journal_file.read_text().count(event) == 1
    assert read_mirror(folder, "t").read_until == {"0": "2026-01-01T00:00:00+00:00"}
    told(folder, "log.txt@14 four", token="next")  # the next submission goes on in the same files
    assert folder.log_file.read_text().endswith("three\nfour\n")
    told(folder, "log.txt@10 ree", "log.txt@14 four", "log.txt@19 five", token="next")  # cut elsewhere
    assert folder.log_file.read_text().endswith("three\nfour\nfive\n")


def test_lines_that_a_node_no_longer_has(tmp_path: Path) -> None:
    """A log says how many bytes are missing and where they lie; the journal waits for its lines, which come again."""
    folder = written(tmp_path)
    before = folder.journal_file.read_text()
    told(folder, "log.txt@0 one", 'journal.jsonl@0 {"a": 1}', "log.txt@2048 far", 'journal.jsonl@18 {"c": 3}')
    assert folder.log_file.read_text() == (f"one\ntonnage: 2,044 bytes of the log stay there: {THERE}/log.txt\nfar\n")
    assert folder.journal_file.read_text() == before + '{"a": 1}\n'
    told(folder, *(f'journal.jsonl@{at} {{"{key}": {value}}}' for at, key, value in [(0, "a", 1), (9, "b", 2)]),
         'journal.jsonl@18 {"c": 3}')  # fmt: skip
    assert folder.journal_file.read_text() == before + '{"a": 1}\n{"b": 2}\n{"c": 3}\n'


def test_what_a_pod_packs_closes_gaps(tmp_path: Path) -> None:
    """Journal and figures whole, each line once and in its order; those of the client stay."""
    folder = written(tmp_path)
    told(folder, 'metrics.jsonl@0 {"step": 1}', 'metrics.jsonl@24 {"step": 3}')
    with folder.metrics_file.open("a") as file:
        file.write('{"eval": 0.5}\n')
    apart = folder.path / ".whole"
    apart.mkdir()
    (apart / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"st')
    (apart / "journal.jsonl").write_text('{"a": 1}\n')
    merge_whole(folder, "t", THERE)
    assert folder.metrics_file.read_text().splitlines() == [
        '{"step": 1}',
        '{"step": 2}',
        '{"step": 3}',
        '{"eval": 0.5}',
    ]
    assert folder.journal_file.read_text().splitlines()[-1] == '{"a": 1}'
    told(folder, 'journal.jsonl@0 {"a": 1}', 'metrics.jsonl@24 {"step": 3}', 'metrics.jsonl@36 {"step": 4}')
    assert folder.metrics_file.read_text().splitlines()[-2:] == ['{"eval": 0.5}', '{"step": 4}']
    assert folder.journal_file.read_text().count('{"a": 1}') == 1


@pytest.mark.parametrize("ahead_s", [7200.0, -7200.0, 20.0])
def test_a_pods_clock_may_be_wrong(tmp_path: Path, ahead_s: float) -> None:
    """Heartbeats that are seen to come tell how far it is off: it lives while they come, and not long after."""
    folder, server = written(tmp_path), datetime(2020, 1, 1, tzinfo=UTC)
    for second in range(0, 60, 10):
        now = server + timedelta(seconds=second)
        told(folder, beat_line(now + timedelta(seconds=ahead_s)), now=now)
    assert has_supervisor(folder)
    beat = read_heartbeat(folder)
    assert beat is not None
    assert abs((datetime.now(UTC) - beat.at).total_seconds()) < 45
    told(folder, beat_line(server + timedelta(seconds=50 + ahead_s)), now=server + timedelta(seconds=50 + 90))
    assert not has_supervisor(folder)


def running_pod(cluster: FakeCluster, folder: RunFolder, run: Kubernetes, **more: Any) -> dict[str, Any]:
    """A pod of the run's newest submission that says what a test lets it say."""
    record = read_record(folder)
    assert record is not None
    index = more.get("index", 0)
    labels = {"tonnage.dev/token": record.token, "batch.kubernetes.io/job-completion-index": str(index)}
    head = {"name": f"pod-{index}", "labels": labels}
    container = {"name": "run", "command": ["sleep"]}
    return cluster.lay(f"{PODS}", run.place.namespace, {
        "metadata": head, "spec": {"containers": [container]}, "status": {"phase": "Running"}})  # fmt: skip


def log_of(size: int, *, first: bytes, last: bytes) -> Iterator[bytes]:
    """A pod's log with so many bytes of the run's log in lines of a KiB, in blocks; the journal around it."""
    yield first
    offset, text = 0, b"x" * 1012
    while offset < size:
        block = bytearray()
        for _ in range(256):
            block += b"log.txt@%d %010d %s\n" % (offset, offset, text)
            offset += 1024
        yield bytes(block)
    yield last


def peak_of_small(act: Callable[[], object]) -> int:
    """Bytes of Python's own objects, which take several times as long to count."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def peak_of_process(act: Callable[[], object]) -> int:
    """By how many bytes the most that this process ever had has grown."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    act()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


@pytest.mark.parametrize("size", [8 << 20, pytest.param(2 << 30, marks=pytest.mark.slow)])
def test_a_log_of_gigabytes_takes_no_memory(
    cluster: FakeCluster, tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its beginning and its end come, what stays there is said, and the journal behind it comes whole."""
    if size < 2 << 30:
        monkeypatch.setattr("tonnage.runs.log_parts.MOST_LOG_BYTES", 2 << 20)
    most = log_parts.MOST_LOG_BYTES
    run, folder = executor(cluster), written(tmp_path)
    run.submit(submission(run, folder), folder)
    cluster.controller.close()
    pod = running_pod(cluster, folder, run)
    cluster.said[pod["metadata"]["name"]] = lambda: log_of(
        size, first=b'journal.jsonl@0 {"a": 1}\n', last=b'journal.jsonl@9 {"b": 2}\n'
    )
    peak_bytes = peak_of_small if size < 2 << 30 else peak_of_process
    assert peak_bytes(lambda: run.logs(folder)) < min(size // 2, 64 << 20)
    kept = 1 << 20
    left = size - most - kept
    note = f"tonnage: {left:,} bytes of the log stay there: {run.folder_there(folder).path}/log.txt\n".encode()
    assert folder.log_file.stat().st_size == most + len(note) + kept
    with folder.log_file.open("rb") as file:
        file.seek(most)
        assert file.read(len(note)) == note
        assert file.readline().startswith(b"%010d " % (size - kept))
    assert folder.journal_file.read_text().splitlines()[-2:] == ['{"a": 1}', '{"b": 2}']
    run.logs(folder)  # nothing new
    assert folder.log_file.stat().st_size == most + len(note) + kept


def test_a_line_without_an_end_is_not_kept() -> None:
    """Whatever else a container prints."""
    blocks = [b"one\ntw", b"o\n", *([b"y" * (1 << 16)] * 64), b"yy\nthree\n", b"four"]
    assert list(lines_of(blocks)) == [b"one", b"two", b"three", b"four"]


def test_logs_of_further_pods_come(cluster: FakeCluster, tmp_path: Path) -> None:
    """Each in a file of its own; what comes again is taken once."""
    run, folder = executor(cluster), written(tmp_path)
    run.submit(submission(run, folder), folder)
    cluster.controller.close()
    for index, line in enumerate([b"log.txt@0 first\n", b"log-machine-2.txt@0 second\n"]):
        pod = running_pod(cluster, folder, run, index=index)
        cluster.said[pod["metadata"]["name"]] = lambda line=line: [line]
    for _ in range(2):
        run.logs(folder)
    assert folder.log_file.read_text() == "first\n"
    assert (folder.path / "log-machine-2.txt").read_text() == "second\n"
    assert set(read_mirror(folder, read_record(folder).token).read_until) == {"0", "1"}  # type: ignore[union-attr]


def test_a_further_pods_node_that_is_lost_hides_nothing(cluster: FakeCluster, tmp_path: Path) -> None:
    """No kubelet answers for its log: what the first pod says comes all the same; the first one's own is an error."""
    run, folder = executor(cluster), written(tmp_path)
    run.submit(submission(run, folder), folder)
    cluster.controller.close()
    pods = [running_pod(cluster, folder, run, index=index) for index in range(2)]
    cluster.said[pods[0]["metadata"]["name"]] = lambda: [b"log.txt@0 first\n"]
    cluster.controller.lost.add(pods[1]["metadata"]["uid"])
    run.logs(folder)
    assert folder.log_file.read_text() == "first\n"
    cluster.controller.lost.add(pods[0]["metadata"]["uid"])
    with pytest.raises(ApiError, match="no route to host"):
        run.logs(folder)


def test_a_run_that_was_elsewhere_keeps_its_log(tmp_path: Path) -> None:
    """What a cluster's pods print comes behind what is here, once, though a client dies in its first reading."""
    folder = written(tmp_path)
    folder.log_file.write_text("before\n")

    def cut() -> Iterator[bytes]:
        yield b"log.txt@0 one\n"
        yield b"log.txt@4 %s\n" % (b"x" * (1 << 20))  # enough to be written
        raise ConnectionError

    with pytest.raises(ConnectionError):
        append(folder, "t", cut(), now=None, where=THERE)
    with folder.log_file.open("a") as file:
        file.write("written and not noted")
    told(folder, "log.txt@0 one", "log.txt@4 " + "x" * (1 << 20))
    assert folder.log_file.read_text() == "before\none\n" + "x" * (1 << 20) + "\n"


@pytest.mark.parametrize("until", [None, "2026-01-01T00:00:00+00:00"])
def test_a_copy_of_an_older_version_goes_on(tmp_path: Path, until: str | None) -> None:
    """It knew of one pod's log alone."""
    folder = written(tmp_path)
    folder.log_file.write_text("one\nnot noted")
    older = {"token": "t", "there": {"log.txt": 4}, "log_bytes": 4, "read_until": until}
    folder.mirror_file.write_text(json.dumps(older))
    assert read_mirror(folder, "t").read_until == ({} if until is None else {"0": until})
    told(folder, "log.txt@0 one", "log.txt@4 two")
    assert folder.log_file.read_text() == "one\ntwo\n"


def test_a_heartbeat_of_another_place_is_no_clock(tmp_path: Path) -> None:
    """A pod repeats the one that was sent with the run until its supervisor has begun: it is old, its clock right."""
    folder, server = written(tmp_path), datetime(2020, 1, 1, tzinfo=UTC)
    told(folder, beat_line(server - timedelta(hours=9)), now=server - timedelta(hours=9))
    told(folder, now=server, token="next")
    told(folder, beat_line(server - timedelta(hours=2)), now=server + timedelta(seconds=5), token="next")
    assert read_mirror(folder, "next").ahead_s == 0.0
    assert not has_supervisor(folder)


def beat_line(at: datetime, *, supervised: bool = True) -> str:
    beat = {"at": at.isoformat(), "pid": 7, "host": "pod", "held_s": 40.0, "spent_usd": 0.04}
    return "beat " + json.dumps({"at": beat["at"], "beat": beat, "progress": "", "supervised": supervised})


def test_a_heartbeat_is_as_old_as_the_cluster_says(tmp_path: Path) -> None:
    """By the clock of the cluster, which is years off here; one of a pod that has ended is a dead one's."""
    folder = written(tmp_path)
    there = datetime(2020, 1, 1, tzinfo=UTC)
    told(folder, beat_line(there), "beat {cut", beat_line(there), now=there + timedelta(seconds=20))
    beat = read_heartbeat(folder)
    assert beat is not None
    assert (beat.held_s, beat.spent_usd, has_supervisor(folder)) == (40.0, 0.04, True)
    assert 19.0 < (datetime.now(UTC) - beat.at).total_seconds() < 80.0
    told(folder, now=there + timedelta(seconds=90))  # nothing new: it is not younger than it was
    assert read_heartbeat(folder) == beat
    told(folder, beat_line(there), now=there + timedelta(seconds=90))
    assert not has_supervisor(folder)
    told(folder, beat_line(there), beat_line(there, supervised=False), now=there)
    assert not has_supervisor(folder)
