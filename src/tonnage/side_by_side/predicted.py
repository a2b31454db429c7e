"""What the tabular model predicts of an engine of a bench, on the machine of the bench."""

from __future__ import annotations

from typing import Final

import numpy as np

from tonnage.calibration.engine_costs import is_unknown, java_bytes, process_bytes
from tonnage.calibration.tabular_fit import TabularFit, correction, gpu_spread
from tonnage.calibration.tabular_rows import physics
from tonnage.side_by_side.host import Host
from tonnage.side_by_side.spec import EngineSpec, TableFacts
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import Machine, missing_figure, stack
from tonnage.sizing.estimates import Figure
from tonnage.sizing.tabular import (
    TABULAR_MEMORY_SPREAD,
    CpuColumns,
    estimate_mlp_on_gpus,
    estimate_trees_on_gpus,
)
from tonnage.units import from_gib
from tonnage.values import dataclass
from tonnage.workload.jobs import TabularJob

COMPUTE_PRECISION: Final = "fp32"  # of networks here; trees read no matrix rate


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePrediction:
    """Seconds of preparing and training, and bytes; None: not known. `tables`: those whose rows corrected it."""

    seconds: Figure | None = None
    memory_bytes: Figure | None = None
    tables: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePredictor:
    """`kind: tabular` predicts an engine on this machine, with what earlier rows say of both."""

    host: Host
    facts: TableFacts | None
    fit: TabularFit | None

    def predicted(self, engine: EngineSpec, rows: int, columns: int) -> EnginePrediction:
        """On a GPU by the physics alone; none where its card is not known, or there are several, nor on a cluster by
        its address, whose machines are not known here."""
        job = engine.tabular_job(rows, columns, self.facts)
        if job is None or engine.master is not None:
            return EnginePrediction()
        if engine.devices:
            return self._on_gpu(job, engine)
        estimate = physics(job, processors_of(engine, self.host))
        change = correction(
            self.fit, method=job.method, engine=engine.engine, passes=float(engine.passes), device=self.host.processor,
            workers=engine.workers, job=job,
        )  # fmt: skip
        if not change.tables and is_unknown(engine.engine, engine.workers):
            return EnginePrediction()
        seconds = float(change.seconds(estimate.total_s, float(min(engine.threads, self.host.logical_cores)))[0])
        memory = java_bytes(engine.engine, engine.workers, from_gib(engine.memory_gib), 4.0 * rows * columns)
        if memory is None:
            memory = float(estimate.host_memory_bytes[0]) + process_bytes(engine.engine, engine.workers)
        return EnginePrediction(
            seconds=change.spread.around(seconds, basis="assumed"), tables=change.tables,
            memory_bytes=TABULAR_MEMORY_SPREAD.around(memory, basis="assumed"),
        )  # fmt: skip

    def _on_gpu(self, job: TabularJob, engine: EngineSpec) -> EnginePrediction:
        card = self.host.gpu_of(engine)
        if card is None or card.vendor != "NVIDIA" or missing_figure(card, COMPUTE_PRECISION) is not None:
            return EnginePrediction()
        machine = Machine(accelerator=card, count=1, intra=None, network_gb_per_s=None, network_latency_us=0.0)
        devices = stack([machine], COMPUTE_PRECISION, Assumptions())
        formula = estimate_mlp_on_gpus if job.method == "mlp" else estimate_trees_on_gpus
        estimate = formula(job, devices, np.array([1.0]), np.array([self.host.memory_bytes]))
        return EnginePrediction(
            seconds=gpu_spread(job).around(float(estimate.total_s[0]), basis="assumed"),
            memory_bytes=TABULAR_MEMORY_SPREAD.around(float(estimate.host_memory_bytes[0]), basis="assumed"),
        )


def processors_of(engine: EngineSpec, host: Host) -> CpuColumns:
    """The cores that a cell of the engine is pinned to: as many as it has threads, where there are so many."""
    return CpuColumns(
        vcpus=np.array([float(min(engine.threads, host.logical_cores))]), memory_bytes=np.array([host.memory_bytes]),
        arm=np.array([host.arm]), threads_per_core=np.array([host.threads_per_core]),
    )  # fmt: skip
