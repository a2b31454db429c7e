"""What a switch changes in a job or in the process that carries it out."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from tonnage.errors import InputError
from tonnage.values import dataclass
from tonnage.workload.jobs import (
    Attention,
    BatchJob,
    CacheFormat,
    EngineName,
    Job,
    ServeJob,
    TrainJob,
    TrainPrecision,
    WeightFormat,
)
from tonnage.workload.programs import Program

Allocator = Literal["glibc-keeping", "jemalloc", "tcmalloc"]
Runtime = Literal["onnx", "torch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchChange:
    """What differs from how the work is stated. None: as it is.

    `program`: features over those of the job's program. `threads`: of one process; `workers`: that compute passes
    beside one another, on as many threads each. `runtime`: what an encoder is computed with on a processor.
    `cuda_graphs`: compiled steps are captured and launched at once.
    """

    precision: TrainPrecision | None = None
    attention: Attention | None = None
    compile: bool | None = None
    cuda_graphs: bool | None = None
    program: Program = Program()
    weights: WeightFormat | None = None
    kv_cache: CacheFormat | None = None
    engine: EngineName | None = None
    runtime: Runtime | None = None
    threads: int | None = None
    workers: int | None = None
    allocator: Allocator | None = None

    def over(self, other: SwitchChange) -> SwitchChange:
        """This change where it says something, else the other.

        >>> both = SwitchChange(precision="bf16").over(SwitchChange(precision="fp32", threads=2))
        >>> both.precision, both.threads
        ('bf16', 2)
        """
        stated = {
            name: value
            for name in ("precision", "attention", "compile", "cuda_graphs", "weights", "kv_cache", "engine", "runtime",
                         "threads", "workers", "allocator")
            if (value := getattr(self, name)) is not None
        }  # fmt: skip
        return replace(other, program=self.program.over(other.program), **stated)


def changed(job: Job, change: SwitchChange) -> Job:
    """The job with the change in what sizing reads of it. InputError where the job is of a kind that has no such terms.

    Threads, workers, allocator and runtime belong to the process, not to the job.
    """
    if isinstance(job, TrainJob):
        stated = {name: value for name in ("precision", "attention", "compile")
                  if (value := getattr(change, name)) is not None}  # fmt: skip
        return replace(job, program=change.program.over(job.program), **stated)
    if isinstance(job, (ServeJob, BatchJob)):
        stated = {name: value for name in ("weights", "kv_cache", "engine")
                  if (value := getattr(change, name)) is not None}  # fmt: skip
        return replace(job, **stated)
    raise InputError(
        "tables have no switches of this kind", hint="`tonnage bench` compares engines of boosted trees and networks"
    )
