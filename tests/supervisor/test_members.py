"""Several machines that meet in a bucket: who is the first, what each learns of the others, and how all end."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tonnage.places.bucket.layout import Keys
from tonnage.places.bucket.objects import FolderObjects
from tonnage.supervisor import members
from tonnage.supervisor.members import Beside, Gathering, Member, join, meeting_env, told_by_the_cloud

KEYS = Keys(base="home/run", number=1)


@pytest.fixture
def store(tmp_path: Path) -> FolderObjects:
    found = FolderObjects(tmp_path / "bucket")
    found.write(KEYS.lease, b'{"token": "t", "number": 1}')
    return found


def beside(store: FolderObjects, member: Member) -> Beside:
    return Beside(store, KEYS, member, every_s=0.0, token="t")


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
    assert told_by_the_cloud({}, file) == (9, "algo-10")
    assert told_by_the_cloud({}, tmp_path / "none") is None
    monkeypatch.setenv("SM_HOSTS", json.dumps(hosts))
    monkeypatch.setenv("SM_CURRENT_HOST", "algo-1")
    found = join(FolderObjects(tmp_path), KEYS, 10)
    assert found is not None
    assert (found.number, found.address) == (0, "algo-1")
    assert list(tmp_path.rglob("machines")) == []


def test_the_others_learn_where_the_first_is(store: FolderObjects) -> None:
    """The first has rank 0: it alone saves."""
    first, second, _ = three(store)
    gathering = Gathering(store, KEYS, first, every_s=0.1)
    gathering.look(1)
    endpoint = beside(store, second).meet()
    assert endpoint == gathering.endpoint
    told = [meeting_env(endpoint, one) for one in (first, second)]
    assert [one["PET_NODE_RANK"] for one in told] == ["0", "1"]
    assert {f"{one['PET_MASTER_ADDR']}:{one['PET_MASTER_PORT']}" for one in told} == {endpoint}


def test_workers_start_anew_with_the_firsts_next_start(store: FolderObjects) -> None:
    """Not before it: those of an older start meet nobody."""
    first, second, _ = three(store)
    gathering, other = Gathering(store, KEYS, first, every_s=0.1), beside(store, second)
    gathering.look(1)
    other.meet()
    later = threading.Timer(1.0, gathering.look, (2,))
    later.start()
    began = time.monotonic()
    assert other.meet() == gathering.endpoint
    assert time.monotonic() - began > 0.9


def test_all_end_with_the_first(store: FolderObjects) -> None:
    first, second, _ = three(store)
    gathering, other = Gathering(store, KEYS, first, every_s=0.1), beside(store, second)
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
    Gathering(store, KEYS, first, every_s=0.1).look(1)
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
    monkeypatch.setattr(members.os, "kill", lambda _, number: signals.append(number))
    first, second, third = three(store)
    gathering = Gathering(store, KEYS, first, every_s=0.1)
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
    other = Beside(store, keys, member, every_s=0.0, token="t")
    other.flush(waiting=True)
    assert other.code is None
    store.write(KEYS.lease, b'{"token": "t", "number": 1, "epoch": 3}')
    other.flush(waiting=True)
    assert other.code == 75
