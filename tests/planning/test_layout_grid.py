"""The grid of layouts: what a workload fixes, and node counts as large as constraints allow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tonnage.catalog import Catalog
from tonnage.catalog.grammar import parse_gpu_filter
from tonnage.planning.calibrated_model import CalibratedModel
from tonnage.planning.layouts.layout_grid import grid_for
from tonnage.planning.layouts.machines import accelerator_machine_types
from tonnage.planning.layouts.train_sizing import size_training
from tonnage.planning.reasons.misses import DegreesMiss, WholeMachinesMiss
from tonnage.planning.sizes import make_size_report
from tonnage.reports.reasons.miss_words import miss_words
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import Machine
from tonnage.sizing.layouts import RECOMPUTES
from tonnage.workload.forced_layout import force_layout
from tonnage.workload.jobs import Constraints, TrainJob, Workload
from tonnage.workload.programs import ProgramName, documented

Make = Callable[..., Workload]
WHOLE = "gpus=16,dp=2,tp=2,pp=4,sharding=zero1,recompute=selective,mb=8,accumulation=2"


@pytest.fixture
def machines(catalog: Catalog) -> tuple[Machine, ...]:
    eights = [one for one in catalog.instance_types if one.accelerator == "H100-SXM"]
    return accelerator_machine_types(catalog, eights, precision="bf16", assumed=Assumptions()).machines


def job_of(work: Workload) -> TrainJob:
    assert isinstance(work.job, TrainJob)
    return work.job


def test_a_layout_fixed_in_every_key_is_the_only_one(make_train: Make, machines: tuple[Machine, ...]) -> None:
    """The grid holds that layout once a machine with such GPUs and a network, though no search would propose it."""
    job = job_of(force_layout(make_train(), WHOLE))
    grid = grid_for(job, machines, max_nodes=1, max_gpus=None)
    able = [i for i, one in enumerate(machines) if 16 % one.count == 0 and one.network_gb_per_s is not None]
    assert grid.machine.tolist() == able
    assert able
    for row, machine in enumerate(grid.machine):
        layout = grid.layouts.row(row)
        assert (layout.gpus, layout.nodes) == (16, 16 // machines[machine].count)
        assert (layout.data_parallel, layout.tensor_parallel, layout.pipeline_parallel) == (2, 2, 4)
        assert (layout.sharding, layout.recompute) == ("zero1", "selective")
        assert (layout.micro_batch, layout.accumulation) == (8, 2)


def test_scores_are_made_again_by_programs_that_do_so(make_train: Make, machines: tuple[Machine, ...]) -> None:
    """Megatron recomputes scores alone; transformers has no such recomputation to propose."""
    programs: dict[ProgramName, bool] = {"megatron": True, "transformers": False}
    for name, offered in programs.items():
        program = replace(documented(name), attention="eager")
        job = replace(job_of(make_train("llama-2-7b", global_batch=8)), attention="eager", program=program)
        found = grid_for(job, machines, max_nodes=1, max_gpus=None).layouts.recompute
        assert (RECOMPUTES.index("selective") in found) == offered


def test_context_parallel_takes_gpus(make_train: Make, machines: tuple[Machine, ...]) -> None:
    """Ranks that share a sequence are GPUs that do not multiply the batch."""
    job = job_of(force_layout(make_train("llama-2-7b", global_batch=8), "gpus=8,cp=2,tp=1,pp=1"))
    layouts = grid_for(job, machines, max_nodes=1, max_gpus=None).layouts
    assert np.all(layouts.data_parallel * 2 == 8)
    assert np.all(layouts.gpus == 8)
    assert np.all(layouts.data_parallel * layouts.micro_batch * layouts.accumulation == 8)


def test_size_shows_the_forced_layout(make_train: Make, catalog: Catalog) -> None:
    """`size` runs the layout it is given, or says which limit keeps a machine from it."""
    work = replace(make_train(), constraints=Constraints(gpus=(parse_gpu_filter("H100-SXM:8"),)))
    (found, *_) = make_size_report(force_layout(work, "gpus=8,dp=8,mb=2,sharding=ddp"), catalog).rows
    layout = dict(found.run.layout_fields)
    assert (layout["micro_batch"], layout["accumulation"], layout["sharding"]) == (2, 2, "ddp")
    none = make_size_report(force_layout(work, "gpus=4"), catalog)
    assert not none.rows
    assert {miss.miss.binding for miss in none.misses} == {"layout"}
    assert isinstance(none.misses[0].miss, WholeMachinesMiss)
    assert (none.misses[0].miss.gpus, none.misses[0].miss.gpus_per_machine) == (4, 8)


@pytest.mark.parametrize(
    ("gpus", "layout", "degrees", "needed", "there"),
    [
        ("H100-SXM:8", "tp=12", ("tensor parallel 12",), 12, 8),
        ("H100-SXM:1", "tp=2", ("tensor parallel 2",), 2, 1),
        ("H100-SXM:8", "tp=4,pp=4", ("tensor parallel 4", "pipeline parallel 4"), 16, 8),
    ],
)
def test_degrees_over_the_gpus_are_the_limit_named(
    make_train: Make, catalog: Catalog, gpus: str, layout: str, degrees: tuple[str, ...], needed: int, there: int
) -> None:
    """Not the global batch: the degrees multiply to more GPUs than the machine has, and lower ones lift that."""
    terms = Constraints(gpus=(parse_gpu_filter(gpus),), max_nodes=1)
    report = make_size_report(force_layout(replace(make_train(), constraints=terms), layout), catalog)
    assert not report.rows
    (miss,) = {one.miss for one in report.misses}
    assert isinstance(miss, DegreesMiss)
    assert (miss.degrees, miss.needed_gpus, miss.gpus) == (degrees, needed, there)
    words = miss_words(miss)
    assert "global batch" not in words.needs + words.has + words.lifts
    assert " x ".join(degrees) in words.needs


def test_more_nodes_allowed_change_no_other_option(make_train: Make, machines: tuple[Machine, ...]) -> None:
    """Beyond 4,096 nodes machines are still told apart: more nodes add options and take none away."""
    job = replace(job_of(make_train()), precision="bf16", global_batch=8 * 4097)

    def best(most: int) -> dict[tuple[int, float], float]:
        sized = size_training(job, machines, Constraints(max_nodes=most), CalibratedModel.packaged())
        return dict(zip(zip(sized.machine.tolist(), sized.nodes.tolist(), strict=True), sized.work_s, strict=True))

    few, many = best(64), best(4097)
    assert {key: many[key] for key in few} == few
    assert max(nodes for _, nodes in many) == 4097
