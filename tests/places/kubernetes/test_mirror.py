"""Logs, journals and heartbeats of pods as copies here: cut, repeated, with gaps, by clocks that are wrong."""

from __future__ import annotations

import json
import resource
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.places.kubernetes.pretended import PODS, executor, submission, written

from tonnage.places.kubernetes.client import ApiError
from tonnage.places.kubernetes.executor import Kubernetes
from tonnage.places.kubernetes.mirror import append, lines_of, merge_whole, read_mirror
from tonnage.places.record import read_record
from tonnage.runs import RunFolder, log_parts
from tonnage.runs.journal import EventKind
from tonnage.runs.liveness import has_supervisor, read_heartbeat
from tonnage.testing.kubernetes.server import FakeCluster

THERE = Path("/mnt/runs/a")


def told(folder: RunFolder, *lines: str, now: datetime | None = None, token: str = "t", pod: str = "0") -> None:
    """These lines are a pod's log."""
    append(folder, token, [f"{line}\n".encode() for line in lines], now=now, where=THERE, pod=pod)


def beat_line(at: datetime, *, supervised: bool = True) -> str:
    beat = {"at": at.isoformat(), "pid": 7, "host": "pod", "held_s": 40.0, "spent_usd": 0.04}
    return "beat " + json.dumps({"at": beat["at"], "beat": beat, "progress": "", "supervised": supervised})


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


@pytest.mark.heavy
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
