"""Gaps between a run and its machine are found before anything starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tonnage.api.launching import refuse_cut_short
from tonnage.errors import PlanRefused
from tonnage.runs.preflight import Gpu, LocalMachine, check_run
from tonnage.runs.spec import DataSource, DataSpec, GuardSpec, LaunchSpec, RunSpec

SPEC = RunSpec(name="one", task="mlp", data=DataSpec(train=DataSource(location="rows.csv", format="csv")))
LAPTOP = LocalMachine(cores=8, memory_gib=16)
TWO_GPUS = LocalMachine(cores=32, memory_gib=128, gpus=(Gpu(name="NVIDIA L4", memory_gib=22.5),) * 2)


def figures(**named: tuple[float, float, float]) -> dict[str, Any]:
    return {
        "figures": {
            name: {"value": value, "low": low, "high": high, "basis": "computed"}
            for name, (low, value, high) in named.items()
        }
    }


def check(
    spec: RunSpec, machine: LocalMachine, *, disk: float = 1000, weights: float | None = None, **named: Any
) -> list[str]:
    found = check_run(spec, machine, free_disk_gib=disk, weights_gib=weights, prediction=figures(**named))
    return [f"{one.kind}: {one.message}" for one in found]


def on(device: str, processes: int, runner: str = "torchrun") -> RunSpec:
    return replace(SPEC, launch=LaunchSpec(device=device, processes=processes, runner=runner))  # type: ignore[arg-type]


def test_a_run_that_fits_has_no_gap() -> None:
    """Nothing is said where nothing is wrong."""
    assert check(SPEC, LAPTOP, peak_memory_gib=(1, 2, 3), weights=0.1) == []
    assert check(on("cuda", 2), TWO_GPUS, peak_memory_gib=(10, 12, 14)) == []


@pytest.mark.parametrize("device", ["cuda", "auto"])
def test_fewer_gpus_than_processes_are_refused(device: str) -> None:
    """The refusal says how many are needed and how many are here."""
    assert check(on(device, 4), TWO_GPUS)[0].startswith("refused: needs 4 GPUs, one a process; this machine has 2")


def test_cuda_without_a_gpu_is_refused() -> None:
    """A run that must have a GPU does not slide onto the processor."""
    assert "this machine has 0" in check(on("cuda", 1, "local"), LAPTOP)[0]
    assert check(on("auto", 1, "local"), LAPTOP) == []


@pytest.mark.parametrize(
    ("figure", "kind"), [((20.0, 21.0, 22.0), None), ((20.0, 22.0, 24.0), "doubtful"), ((23.0, 24.0, 25.0), "refused")]
)
def test_memory_of_a_gpu(figure: tuple[float, float, float], kind: str | None) -> None:
    """Refused where even the low end does not fit, doubtful where only the high end does not."""
    found = check(on("cuda", 2), TWO_GPUS, peak_memory_gib=figure)
    assert [one.split(":")[0] for one in found] == ([kind] if kind else [])


def test_host_memory_counts_every_process() -> None:
    """On processors the workers share one memory: what fits once does not fit four times."""
    assert check(on("cpu", 1), LAPTOP, peak_memory_gib=(5, 5, 5)) == []
    assert check(on("cpu", 4), LAPTOP, peak_memory_gib=(5, 5, 5))[0].startswith("refused: needs 20.0 GiB to 20.0 GiB")


def test_words_of_one_and_of_little() -> None:
    """One GPU is one GPU; a model of a megabyte takes no «0.0 GiB»."""
    assert "needs 1 GPU, one a process" in check(on("cuda", 1, "local"), LAPTOP)[0]
    assert "take 8.2 MiB, 2.0 MiB are free" in check(SPEC, LAPTOP, weights=0.002, disk=2 / 1024)[0]


def test_room_on_the_disk() -> None:
    """A checkpoint that cannot be written is refused; room for fewer than are kept is doubtful."""
    assert check(SPEC, LAPTOP, weights=1.0, disk=3.9)[0].startswith("refused: a checkpoint and the model take 4.0 GiB")
    assert check(SPEC, LAPTOP, weights=1.0, disk=5.0)[0].startswith("doubtful: 3 checkpoints")
    assert check(SPEC, LAPTOP, weights=1.0, disk=13.0) == []
    assert check(SPEC, LAPTOP, disk=0.5)[0].startswith("doubtful: 0.5 GiB")


def test_cost_before_the_start() -> None:
    """A run that will surely pass its own limit says so: started with `-y` alone."""
    limited = replace(SPEC, guard=GuardSpec(max_cost_usd=10, usd_per_hour=1))
    assert check(limited, LAPTOP, cost_usd=(5, 7, 9)) == []
    assert check(limited, LAPTOP, cost_usd=(5, 9, 12))[0].startswith("doubtful: may cost up to $12.00")
    assert check(limited, LAPTOP, cost_usd=(11, 12, 13))[0].startswith("cut short: costs $11.00")


@pytest.mark.parametrize("name", ["", "../up", "a b", "-x", "x" * 65])
def test_names_that_are_no_folders(name: str) -> None:
    """A name is one plain folder's."""
    assert "cannot name a run" in check(replace(SPEC, name=name), LAPTOP)[0]


def test_one_process_is_one_process() -> None:
    """The local runner is not started twice in silence."""
    assert "torchrun" in check_run(
        on("cpu", 2, "local"), LAPTOP, free_disk_gib=9, weights_gib=None, prediction={}
    )[0].hint  # fmt: skip


def test_a_limit_below_the_prediction_is_refused_unless_it_is_asked_for() -> None:
    limited = replace(SPEC, guard=GuardSpec(max_cost_usd=10, usd_per_hour=1))
    surely, perhaps = (
        check_run(limited, LAPTOP, free_disk_gib=100.0, weights_gib=0.1, prediction=figures(cost_usd=cost))
        for cost in ((11, 12, 13), (5, 9, 12))
    )
    with pytest.raises(PlanRefused, match=r"limit is \$10.00") as refused:
        refuse_cut_short(surely)
    assert "-y" in (refused.value.hint or "")
    refuse_cut_short(perhaps)
