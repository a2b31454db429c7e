"""What a run writes to be able to go on, and how long that takes: bytes of its state over the rate it is written at."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from tonnage.catalog.market import InstanceType
from tonnage.sizing.precision import TRAINING, optimizer_bytes_per_parameter
from tonnage.workload.jobs import Job, TabularJob, TrainJob
from tonnage.workload.parameters import adapter_parameters, count_parameters

# What one machine writes, and reads back. A cloud's default volume carries 0.131 GB/s (AWS gp3: 125 MiB/s, up to 1,000
# MiB/s where they are paid), and IBM's synchronous save of a 7 B model took 148.8 s (pytorch.org/blog/reducing-
# checkpointing-times): 84 GB of 12 bytes a parameter at 0.56 GB/s. Range 0.13 to 1.05.
WRITE_GB_PER_S: Final = 0.5
WRITE_RANGE: Final = (0.13, 1.05)
WRITE_SOURCE: Final = (
    "a checkpoint's bytes at the rate of one machine, at most its network's: AWS gp3 volumes write 0.13 to 1.05 GB/s, "
    "a synchronous save of a 7 B model took IBM 148.8 s (pytorch.org/blog/reducing-checkpointing-times), 0.56 GB/s"
)
FIXED_S: Final = 1.0  # barrier, flush and digests of a small state: judgement, 0.2 to 5
TREE_NODE_BYTES: Final = 40.0  # an XGBoost node as it is saved, with its statistics


def state_bytes(job: Job) -> float:
    """Weights in the precision they are kept in and the optimizer's state; adapters alone where only these are trained.

    Work that keeps each item as it is answered has no state.
    """
    if isinstance(job, TabularJob):
        return _tabular_bytes(job)
    if not isinstance(job, TrainJob):
        return 0.0
    full = job.method == "full"
    trained = count_parameters(job.model).total if full else adapter_parameters(job.model, job.lora)
    numbers = TRAINING["bf16" if job.precision == "auto" else job.precision]
    optimizer = optimizer_bytes_per_parameter(job.optimizer, numbers.optimizer_element_bytes, job.model.hidden)
    return float(trained) * (numbers.weight_bytes + optimizer)


def _tabular_bytes(job: TabularJob) -> float:
    if job.method == "boosted-trees":
        return job.trees * 2.0 ** (job.depth + 1) * TREE_NODE_BYTES
    widths = (job.features, *job.hidden_layers, 1)
    weights = sum(before * after + after for before, after in pairwise(widths))
    return weights * 12.0  # fp32 weights and AdamW's two moments


def transfer_s(size_bytes: float, instance: InstanceType) -> float:
    """Seconds to write, or to read back, so many bytes on one machine."""
    network = instance.network_gbit_per_s
    rate = WRITE_GB_PER_S if network is None else min(WRITE_GB_PER_S, network / 8.0)
    return size_bytes / (rate * 1e9)


def save_s(size_bytes: float, instance: InstanceType) -> float:
    """Seconds of one save."""
    return FIXED_S + transfer_s(size_bytes, instance) if size_bytes else 0.0
