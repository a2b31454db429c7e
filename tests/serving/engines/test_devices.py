"""Devices dealt out to replicas: whole groups, none twice, and what the environment leaves."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import InputError, PlanRefused
from tonnage.serving.engines.devices import (
    Device,
    DevicePool,
    amd_devices,
    device_environment,
    device_groups,
    devices_by_nvml,
    parse_listing,
    visible_devices,
)
from tonnage.serving.engines.generation import GenerationService
from tonnage.serving.engines.planned import shared_memory

from ...runs.test_devices import CutUp

H100 = tuple(Device(index=index, uuid=f"GPU-{index}aaa", model="H100") for index in range(8))
LISTING = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f)
  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
  MIG 1g.5gb      Device  1: (UUID: MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-7f57f032-34ab-a064-c37c-7a4f75601cc5)
"""


def names(groups: tuple[tuple[Device, ...], ...]) -> list[str]:
    return [",".join(one.name for one in group) for group in groups]


@pytest.mark.parametrize(
    ("each", "shared_by", "most", "expected"),
    [
        (1, 1, 2, ["0", "1", "2", "3", "4", "5", "6", "7"]),
        (2, 1, 4, ["0,1", "2,3", "4,5", "6,7"]),
        (3, 1, 2, ["0,1,2", "3,4,5"]),  # two are left over
        (4, 2, 3, ["0,1,2,3", "4,5,6,7", "0,1,2,3", "4,5,6,7"]),  # shared: no device has two before each has one
    ],
)
def test_groups_are_whole_and_disjoint(each: int, shared_by: int, most: int, expected: list[str]) -> None:
    """Neighbours together; a device stands in two groups only where sharing was asked for."""
    assert names(device_groups(H100, each=each, shared_by=shared_by, most=most)) == expected


def test_a_group_has_one_model() -> None:
    """An H100 and an A100 side by side make no group of two: tensor parallelism is as slow as its slowest."""
    mixed = (H100[0], replace(H100[1], model="A100"), H100[2], replace(H100[3], model="A100"), H100[4])
    assert names(device_groups(mixed, each=2, most=2)) == ["1,3", "0,2"]


@pytest.mark.parametrize(
    ("count", "each", "shared_by", "words", "hint"),
    [
        (0, 1, 1, "3 replicas of 1 GPUs each need 3; 0 are visible here", "--dry-run"),
        (2, 1, 1, "2 are visible here, of which 2 replicas can be made", "at most 2; --replicas-per-gpu"),
        (5, 2, 1, "need 6; 5 are visible here, of which 2 replicas", "at most 2"),
        (1, 1, 2, "2 replicas on a device; 1 are visible", "at most 2"),
    ],
)
def test_too_few_are_refused_with_the_figures(count: int, each: int, shared_by: int, words: str, hint: str) -> None:
    """What is needed, what is here, how many replicas it is enough for."""
    with pytest.raises(PlanRefused) as refused:
        device_groups(H100[:count], each=each, shared_by=shared_by, most=3)
    assert words in str(refused.value)
    assert hint in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ["MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", "MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb", "1"]),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, ["1", "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-7f57"}, ["1"]),
        ({"CUDA_VISIBLE_DEVICES": "MIG-cba6"}, ["MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb"]),
        ({"CUDA_VISIBLE_DEVICES": "1,-1,0"}, ["1"]),  # what follows a name that is none is not visible
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_the_environment_of_tonnage_itself_holds(environ: dict[str, str], expected: list[str]) -> None:
    """A scheduler that gave this process two of eight devices has its way."""
    assert [one.name for one in visible_devices(parse_listing(LISTING), environ)] == expected


def test_instances_are_devices_of_their_own_but_make_no_group() -> None:
    """Each MIG instance serves one replica; a replica of two is refused. NVML and nvidia-smi -L tell the same."""
    devices = parse_listing(LISTING)
    assert len(device_groups(devices, each=1, most=3)) == 3
    with pytest.raises(InputError, match="MIG instances do not work together"):
        device_groups(devices, each=2, most=1)
    assert [one.name for one in devices_by_nvml(CutUp())] == ["0", "MIG-cc", "MIG-dd"]


def test_a_process_is_given_its_devices_alone(tmp_path: Path) -> None:
    """CUDA's numbers are by PCI bus; AMD's are those of the kernel's nodes that compute."""
    assert device_environment(H100[2:4]) == (("CUDA_DEVICE_ORDER", "PCI_BUS_ID"), ("CUDA_VISIBLE_DEVICES", "2,3"))
    for node, simds in enumerate((0, 0, 304, 304)):
        (tmp_path / str(node)).mkdir()
        (tmp_path / str(node) / "properties").write_text(
            f"simd_count {simds}\nunique_id 17\ngfx_target_version 90402\n"
        )
    amd = amd_devices(tmp_path, print)
    assert device_environment(amd) == (("ROCR_VISIBLE_DEVICES", "0,1"),)
    assert visible_devices(amd, {"ROCR_VISIBLE_DEVICES": "1"}) == amd[1:]
    assert amd_devices(tmp_path / "none", print) == ()


def test_an_amd_node_that_may_not_be_read_is_left_out_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A control group answers EPERM for the nodes that it keeps: the others are counted from 0, as ROCm counts them."""
    for node in range(2):
        (tmp_path / str(node)).mkdir()
        (tmp_path / str(node) / "properties").write_text("simd_count 304\nunique_id 17\n")
    read, said = Path.read_text, list[str]()

    def guarded(file: Path, *others: Any, **named: Any) -> str:
        if file.parent.name == "0":
            raise PermissionError(errno.EPERM, "Operation not permitted", str(file))
        return read(file, *others, **named)

    monkeypatch.setattr(Path, "read_text", guarded)
    assert [one.index for one in amd_devices(tmp_path, said.append)] == [0]
    assert len(said) == 1
    assert "0/properties is not readable (Operation not permitted)" in said[0]


def test_numbers_of_unlike_boards_are_by_the_bus_or_not_known() -> None:
    """CUDA's own order is the fastest first, which nothing but CUDA knows: numbers of unlike boards are refused in it;
    equal boards, UUIDs and the order of the bus are not."""
    mixed = (H100[0], replace(H100[1], model="T4"))
    fastest = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST", "CUDA_VISIBLE_DEVICES": "0"}
    with pytest.raises(InputError, match="which of H100, T4 a number") as refused:
        visible_devices(mixed, fastest)
    assert "PCI_BUS_ID" in (refused.value.hint or "")
    assert visible_devices(mixed, {**fastest, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) == mixed[:1]
    assert visible_devices(mixed, {**fastest, "CUDA_VISIBLE_DEVICES": "GPU-1aaa"}) == mixed[1:]
    assert visible_devices(H100, fastest) == H100[:1]


def test_a_pool_gives_back_what_a_replica_had() -> None:
    """The next replica gets the group of the one that ended."""
    pool = DevicePool(device_groups(H100[:4], each=2, most=2))
    first, second = pool.take("r1"), pool.take("r2")
    assert (pool.free, set(first) & set(second)) == (0, set())
    pool.give_back("r1")
    pool.give_back("r1")
    assert pool.take("r3") == first
    assert pool.of("r3") == first
    assert pool.of("r1") == ()


def test_replicas_that_share_a_device_share_its_memory() -> None:
    """vLLM's part of all memory is divided; an engine that cannot be told so is refused until its user says it."""
    service = GenerationService(model="m", name="m", memory_fraction=0.9)
    assert shared_memory("vllm", service, 3).memory_fraction == pytest.approx(0.3)
    assert shared_memory("sglang", service, 1) == service
    for engine in ("sglang", "tensorrt-llm"):
        with pytest.raises(InputError, match="takes no share"):
            shared_memory(engine, service, 2)
    told = replace(service, extra=("--mem-fraction-static", "0.4"))
    assert shared_memory("sglang", told, 2) == told
