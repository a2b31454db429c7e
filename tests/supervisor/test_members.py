"""Several machines that meet in a bucket: who is the first, what each learns of the others, and how all end."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tonnage.errors import TonnageError
from tonnage.places.bucket.layout import Keys
from tonnage.places.bucket.objects import FolderObjects, StoredObject
from tonnage.supervisor import meeting
from tonnage.supervisor.meeting import (
    JOIN_S,
    Beside,
    Gathering,
    Member,
    join,
    meeting_env,
    membership_from_cloud,
    own_address,
)

KEYS = Keys(base="home/run", number=1)


@pytest.fixture
def store(tmp_path: Path) -> FolderObjects:
    found = FolderObjects(tmp_path / "bucket")
    found.write(KEYS.lease, b'{"token": "t", "number": 1}')
    return found


def beside(store: FolderObjects, member: Member) -> Beside:
    return Beside(store, KEYS, member, every_s=0.0, silent_s=30.0, token="t", notice_s=20.0)


def aged(tmp_path: Path, key: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(tmp_path / "bucket" / key, (then, then))


def three(store: FolderObjects) -> tuple[Member, Member, Member]:
    found = [join(store, KEYS, 3) for _ in range(3)]
    assert all(one is not None for one in found)
    first, second, third = (one for one in found if one is not None)
    return first, second, third


def test_each_machine_has_a_number_of_its_own_and_one_too_many_has_none(store: FolderObjects) -> None:
    assert [one.number for one in three(store)] == [0, 1, 2]
    assert join(store, KEYS, 3) is None


def test_a_number_that_the_cloud_says_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """SageMaker's file too, which an image without its toolkit has; algo-10 is the tenth, not the second."""
    file = tmp_path / "resourceconfig.json"
    hosts = [f"algo-{number}" for number in range(10, 0, -1)]
    file.write_text(json.dumps({"current_host": "algo-10", "hosts": hosts}))
    assert membership_from_cloud({}, file) == (9, "algo-10")
    assert membership_from_cloud({}, tmp_path / "none") is None
    monkeypatch.setenv("SM_HOSTS", json.dumps(hosts))
    monkeypatch.setenv("SM_CURRENT_HOST", "algo-1")
    found = join(FolderObjects(tmp_path), KEYS, 10)
    assert found is not None
    assert (found.number, found.address) == (0, "algo-1")
    assert list(tmp_path.rglob("machines")) == []


def test_azure_ml_and_batch_number_their_nodes() -> None:
    """By variables of theirs; a rank that somebody else has set is none of Azure ML's."""
    assert membership_from_cloud({"AZUREML_RUN_ID": "t-a", "NODE_RANK": "3"}) == (3, own_address())
    assert membership_from_cloud({"NODE_RANK": "3"}) is None
    assert membership_from_cloud({"AWS_BATCH_JOB_NODE_INDEX": "2"}) == (2, own_address())


def test_the_others_learn_where_the_first_is(store: FolderObjects) -> None:
    """The first has rank 0: it alone saves."""
    first, second, _ = three(store)
    gathering = Gathering(store, KEYS, first, silent_s=30.0)
    gathering.look(1)
    endpoint = beside(store, second).meet()
    assert endpoint == gathering.endpoint
    told = [meeting_env(endpoint, one) for one in (first, second)]
    assert [one["PET_NODE_RANK"] for one in told] == ["0", "1"]
    assert {f"{one['PET_MASTER_ADDR']}:{one['PET_MASTER_PORT']}" for one in told} == {endpoint}


def test_workers_start_anew_with_the_firsts_next_start(store: FolderObjects) -> None:
    """Not before it: those of an older start meet nobody."""
    first, second, _ = three(store)
    gathering, other = Gathering(store, KEYS, first, silent_s=30.0), beside(store, second)
    gathering.look(1)
    other.meet()
    later = threading.Timer(1.0, gathering.look, (2,))
    later.start()
    began = time.monotonic()
    assert other.meet() == gathering.endpoint
    assert time.monotonic() - began > 0.9


def test_all_end_with_the_first(store: FolderObjects) -> None:
    first, second, _ = three(store)
    gathering, other = Gathering(store, KEYS, first, silent_s=30.0), beside(store, second)
    gathering.look(1)
    other.meet()
    other.flush()
    assert other.code is None
    gathering.over(7)
    other.flush()
    assert other.code == 7


def test_a_first_machine_that_is_silent_is_lost(
    store: FolderObjects, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second, _ = three(store)
    other = beside(store, second)
    Gathering(store, KEYS, first, silent_s=30.0).look(1)
    other.meet()
    aged(tmp_path, KEYS.meeting, 60)
    other.flush()
    assert other.code == 75
    assert "the first machine is lost" in capfd.readouterr().err


@pytest.mark.parametrize(("loss", "said"), [("leaves", "machine 2 of 3 is taken away"), ("silent", "silent for 60 s")])
def test_one_machine_that_is_lost_ends_the_attempt(
    store: FolderObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str, said: str
) -> None:
    """By the signal that a machine taken away gets: the run is saved where it can be, and ends. Once."""
    signals: list[int] = []
    monkeypatch.setattr(meeting.os, "kill", lambda _, number: signals.append(number))
    first, second, third = three(store)
    gathering = Gathering(store, KEYS, first, silent_s=30.0)
    others = [beside(store, second), beside(store, third)]
    gathering.look(1)
    for one in others:
        one.flush(waiting=True)
    gathering.look(1)
    assert (gathering.lost, signals) == ("", [])
    if loss == "leaves":
        others[0].leave()
        others[0].flush(waiting=True)
    else:
        aged(tmp_path, KEYS.member(1), 60)
    gathering.look(1)
    gathering.look(1)
    assert said in gathering.lost
    assert len(signals) == 1


def test_a_machine_that_never_comes_ends_the_attempt_by_name(
    store: FolderObjects, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Before torchrun gives up, which names none; with the addresses of those that have come. Not a moment sooner."""
    signals: list[int] = []
    monkeypatch.setattr(meeting.os, "kill", lambda _, number: signals.append(number))
    first, second = (join(store, KEYS, 3) for _ in range(2))
    assert first is not None
    assert second is not None
    now = [0.0]
    gathering = Gathering(store, KEYS, replace(first, address="10.0.0.1"), silent_s=30.0, clock=lambda: now[0])
    beside(store, replace(second, address="10.0.0.2")).flush(waiting=True)
    now[0] = JOIN_S - 1
    gathering.look(1)
    assert (gathering.lost, signals) == ("", [])
    now[0] = JOIN_S + 1
    gathering.look(1)
    said = "machine 3 of 3 has not come in 9 minutes (those that have: 10.0.0.1, 10.0.0.2)"
    assert said in gathering.lost
    assert said in capfd.readouterr().err
    assert len(signals) == 1


class Unreachable(FolderObjects):
    """A bucket that no machine reaches any more."""

    def read(self, key: str, *, start: int = 0) -> StoredObject | None:
        raise TonnageError(f"{key}: no answer from byte {start}", hint="")

    def write(self, key: str, content: bytes) -> None:
        raise TonnageError(f"{key}: no answer to {len(content)} bytes", hint="")


def test_a_machine_that_is_taken_away_ends_where_the_bucket_is_out_of_reach(
    store: FolderObjects, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """After its notice and two exchanges, in which the first might have ended the run; never while it only waits."""
    _, second, _ = three(store)
    now = [0.0]
    gone = Unreachable(tmp_path / "bucket")
    other = Beside(gone, KEYS, second, every_s=5.0, silent_s=30.0, token="t", notice_s=20.0, clock=lambda: now[0])
    for now[0] in (0.0, 600.0):
        other.flush(waiting=True)
        assert other.code is None
    other.leave()
    for now[0] in (600.0, 629.0):
        other.flush()
        assert other.code is None
    now[0] = 630.0
    other.flush()
    assert other.code == 75
    assert "the first has not ended the run in time" in capfd.readouterr().err


def test_a_bucket_that_fails_while_a_machine_looks_for_the_first_is_asked_again(
    store: FolderObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, _ = three(store)
    gathering, other = Gathering(store, KEYS, first, silent_s=30.0), beside(store, second)
    gathering.look(1)
    answers = iter([Unreachable(tmp_path / "bucket").read, *[store.read] * 20])
    monkeypatch.setattr(store, "read", lambda key, **more: next(answers)(key, **more))
    assert other.meet() == gathering.endpoint


def test_a_machine_of_an_older_submission_ends(store: FolderObjects) -> None:
    _, second, _ = three(store)
    other = beside(store, second)
    store.write(KEYS.lease, b'{"token": "newer", "number": 2}')
    assert other.meet() == ""
    assert other.code == 75


def test_a_start_of_a_newer_epoch_ends_the_older_ones_machines(store: FolderObjects) -> None:
    """The fence of a place that starts a submission again; one whose first has not taken its epoch yet waits on."""
    keys = replace(KEYS, epoch=2)
    member = Member(number=1, machines=2, address="10.0.0.2", identity="b")
    other = Beside(store, keys, member, every_s=0.0, silent_s=30.0, token="t", notice_s=20.0)
    other.flush(waiting=True)
    assert other.code is None
    store.write(KEYS.lease, b'{"token": "t", "number": 1, "epoch": 3}')
    other.flush(waiting=True)
    assert other.code == 75
