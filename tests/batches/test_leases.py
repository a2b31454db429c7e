"""Several workers on one input: leases taken, renewed and taken back; shards merged with each row once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("httptools")
pytest.importorskip("uvloop")

import tonnage
from tonnage import BatchOptions
from tonnage.batches.leases import LeaseBook, merge_shards
from tonnage.batches.records import answer_line, fault_line
from tonnage.errors import InputError
from tonnage.testing.upstream import PretendedUpstream
from tonnage.traffic.batch import BatchRow, row_key


def age(folder: Path, worker: str, seconds: float) -> None:
    """As if that worker had given no sign for so long."""
    then = time.time() - seconds
    os.utime(folder / f"{worker}.beat", (then, then))


def test_a_part_is_held_by_one(tmp_path: Path) -> None:
    """Two workers share three parts; what one has finished nobody gets again."""
    one, two = (LeaseBook(tmp_path, name, 3, 60.0) for name in ("one", "two"))
    assert [one.claim(), two.claim(), one.claim(), two.claim()] == [(0, False), (1, False), (2, False), None]
    one.finish(0)
    assert two.claim() is None
    assert not two.all_done


def test_a_dead_worker_loses_its_parts_and_a_slow_one_notices(tmp_path: Path) -> None:
    """After the time of a lease without a sign; the part is known as begun. Who comes back holds it no more."""
    dead = LeaseBook(tmp_path, "dead", 1, 0.0)
    assert dead.claim() == (0, False)
    other = LeaseBook(tmp_path, "other", 1, 60.0)
    assert other.claim() is None
    age(tmp_path, "dead", 61.0)
    third = LeaseBook(tmp_path, "third", 1, 60.0)
    assert [other.claim(), third.claim()] == [(0, True), None]
    dead.renew()
    assert dead.held == set()


def test_what_is_given_back_is_free_at_once(tmp_path: Path) -> None:
    """Of a worker that was asked to stop."""
    one, two = (LeaseBook(tmp_path, name, 1, 60.0) for name in ("one", "two"))
    one.claim()
    one.release()
    assert two.claim() == (0, True)


def test_one_worker_merges(tmp_path: Path) -> None:
    """Only once all parts are done, and only one; another takes over where it died."""
    one, two = (LeaseBook(tmp_path, name, 1, 60.0) for name in ("one", "two"))
    one.claim()
    one.finish(0)
    assert one.all_done
    assert [one.claim_merge(), two.claim_merge(), two.merged] == [True, False, False]
    age(tmp_path, "one", 61.0)
    assert two.claim_merge()
    two.finish_merge()
    assert one.merged


def test_merging_keeps_one_answer_of_each(tmp_path: Path) -> None:
    """Two answers of one row, an answer beside an error, a torn end."""
    rows = [
        BatchRow(line=at, custom_id=f"r{at}", path="/v1/x", body=b"{}", key=row_key(f"r{at}", "/v1/x", b"{}"))
        for at in range(4)
    ]
    lines = [answer_line(row, 200, b"{}", (0, 0)) for row in rows]
    (tmp_path / "a.answers").write_bytes(lines[0] + lines[1] + lines[3][:-5])
    (tmp_path / "b.answers").write_bytes(lines[1] + lines[2])
    (tmp_path / "a.errors").write_bytes(fault_line(rows[2], "x", "y", 500) + fault_line(rows[3], "x", "y", 500))
    out, errors = tmp_path / "out.jsonl", tmp_path / "errors.jsonl"
    merge_shards([tmp_path / "a.answers", tmp_path / "b.answers"], [tmp_path / "a.errors"], out, errors)
    assert [json.loads(line)["custom_id"] for line in out.read_text().splitlines()] == ["r0", "r1", "r2"]
    assert [json.loads(line)["custom_id"] for line in errors.read_text().splitlines()] == ["r3"]


def write_rows(file: Path, count: int, *bad: str) -> Path:
    rows = [json.dumps({"id": f"r{at}", "text": f"text {at}"}) for at in range(count)]
    file.write_text("\n".join([*rows, *bad]) + "\n")
    return file


def ids(out: Path) -> Counter[str]:
    return Counter(json.loads(line)["custom_id"] for line in out.read_text().splitlines())


def test_one_worker_alone_finishes_and_merges(tmp_path: Path) -> None:
    """The output is that of one process, bad rows apart; the same call again sends nothing."""
    source, out = write_rows(tmp_path / "in.jsonl", 2500, "{"), tmp_path / "out.jsonl"
    with PretendedUpstream() as upstream:
        asked = BatchOptions(url=upstream.url, model="tiny", shared=True)
        found = tonnage.batch(source, out, asked).found
        assert (found.progress.answered, found.progress.failed) == (2500, 1)
        assert ids(out) == {f"r{at}": 1 for at in range(2500)}
        assert len((tmp_path / "out.jsonl.errors.jsonl").read_text().splitlines()) == 1
        assert tonnage.batch(source, out, asked).checked().progress.done_before == 2501
        assert upstream.seen.total() == 2500
        write_rows(source, 30)
        with pytest.raises(InputError, match="of another input: rows 2501"):
            tonnage.batch(source, out, asked)


@pytest.mark.heavy
def test_workers_join_and_die(tmp_path: Path) -> None:
    """Three processes, one killed at work: the others take its parts back, and each row stands once."""
    source, out = write_rows(tmp_path / "in.jsonl", 9000), tmp_path / "out.jsonl"
    with PretendedUpstream(delay_s=0.05) as upstream:
        words = [sys.executable, "-m", "tonnage", "batch", str(source), str(out), "--url", upstream.url, "--model", "t"]
        words += ["--shared", "--lease", "2s", "--concurrency", "32", "-q"]
        workers = [subprocess.Popen(words, stdout=subprocess.DEVNULL) for _ in range(3)]
        folder = tmp_path / "out.jsonl.parts"
        for _ in range(600):
            if len(list(folder.glob("*.lease"))) >= 3 and len(upstream.answered) > 500:
                break
            time.sleep(0.05)
        workers[0].kill()
        upstream.delay_s = 0.0
        assert [one.wait(120) for one in workers] == [-9, 0, 0]
    assert ids(out) == {f"r{at}": 1 for at in range(9000)}
    assert list(folder.glob("*.lost-*"))
