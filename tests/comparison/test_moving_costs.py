"""What a move takes depends on where from, where to, what is used today, how much data and how many pipelines."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.migration import Migration
from tonnage.errors import WorkloadError


@pytest.fixture
def move(compared: Callable[..., Comparison], standard: str) -> Callable[..., Migration]:
    """The plan of a move between two profiles, with more keys."""

    def make(origin: str, target: str, more: str = "") -> Migration:
        names = "".join(f"  - {name}\n" for name in dict.fromkeys([origin, target]))
        text = standard.split("compare:\n")[0] + "compare:\n" + names + "workloads:" + standard.split("workloads:")[1]
        text = text.split("migration:")[0] + f"migration: {{from: {origin}, to: {target}, people: 2{more}}}\n"
        found = compared(text).migration
        assert found is not None
        return found

    return make


def test_the_way_there_is_not_the_way_back(move: Callable[..., Migration]) -> None:
    """A platform with a workspace takes other work than machines of one's own."""
    there, back = move("self-managed-aws", "databricks"), move("databricks", "self-managed-aws")
    assert there.hours.likely != back.hours.likely


def test_the_origin_counts(move: Callable[..., Migration]) -> None:
    """Machines to machines keep program, images, tracking and dashboards; from a managed service they are made."""
    near, far = move("self-managed-aws", "skypilot"), move("databricks", "skypilot")
    assert near.hours.likely < 0.75 * far.hours.likely
    names = {task.id.split(":")[0] for task in near.tasks}
    assert names >= {"convert-script", "machine-images-again", "monitoring-again", "reach-data"}
    assert not names & {"convert-train", "machine-images", "tracking", "copy-data"}


def test_another_cloud_costs_more(move: Callable[..., Migration]) -> None:
    """Within AWS accounts stand and data stays; to Google Cloud both move."""
    within, across = move("self-managed-aws", "sagemaker"), move("self-managed-gcp", "sagemaker")
    assert within.hours.likely < across.hours.likely
    assert "copy-data" in {task.id for task in across.tasks}
    assert "copy-data" not in {task.id for task in within.tasks}
    room = move("on-premise", "databricks")
    assert "copy-data" in {task.id for task in room.tasks}, "no cloud reaches the disks of one's own room"


def test_data_and_pipelines_count(move: Callable[..., Migration]) -> None:
    """Ten terabytes take ten times the batches of one; each pipeline its hours; nothing where not stated."""
    plain = move("self-managed-gcp", "sagemaker")
    small, large = (move("self-managed-gcp", "sagemaker", f", data_tb: {size}") for size in (1, 10))
    gains = [one.hours.likely - plain.hours.likely for one in (small, large)]
    assert gains[1] == pytest.approx(10 * gains[0])
    assert gains[0] > 0
    many = move("self-managed-gcp", "sagemaker", ", pipelines: 12")
    assert many.hours.likely - plain.hours.likely == pytest.approx(12 * 8)
    assert many.working_days() > plain.working_days()
    assert move("self-managed-aws", "sagemaker", ", data_tb: 10").hours == move("self-managed-aws", "sagemaker").hours


def test_what_is_not_used_is_not_moved(move: Callable[..., Migration]) -> None:
    """Without tracking, tables, dashboards and runbooks today there are none to move."""
    everything = move("self-managed-gcp", "databricks")
    bare = move("self-managed-gcp", "databricks", ", uses: []")
    gone = {task.id for task in everything.tasks} - {task.id for task in bare.tasks}
    assert gone == {"tables", "tracking", "monitoring", "runbooks"}
    some = move("self-managed-gcp", "databricks", ", uses: [tracking]")
    assert "tracking" in {task.id for task in some.tasks}


@pytest.mark.parametrize("wrong", ["uses: [trackin]", "data_tb: -1", "pipelines: 2.5"])
def test_bad_input(move: Callable[..., Migration], wrong: str) -> None:
    """Unknown uses, negative volumes and halves of pipelines are refused with the key."""
    with pytest.raises(WorkloadError, match=r"migration"):
        move("self-managed-gcp", "databricks", f", {wrong}")
