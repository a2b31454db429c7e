"""What a run writes to be able to go on, and how long that takes: bytes of its state over the rate it is written at.

Machines that each hold a part of the state (FSDP, ZeRO, tensor and pipeline parallel) write and read their parts at the
same time; where each holds all of it (DDP), one writes and all read. Plans and `spot advise` both ask here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tonnage.catalog.market import InstanceType
from tonnage.sizing.estimates import Array
from tonnage.sizing.precision import TRAINING, optimizer_bytes_per_parameter
from tonnage.values import dataclass
from tonnage.workload.adapters import adapter_parameters
from tonnage.workload.jobs import Job, TabularJob, TrainJob
from tonnage.workload.parameters import count_parameters

# What one machine writes, and reads back. A cloud's default volume carries 0.131 GB/s (AWS gp3: 125 MiB/s, up to 1,000
# MiB/s where they are paid), and IBM's synchronous save of a 7 B model took 148.8 s (pytorch.org/blog/reducing-
# checkpointing-times): 84 GB of 12 bytes a parameter at 0.56 GB/s. Range 0.13 to 1.05.
WRITE_GB_PER_S: Final = 0.5
WRITE_RANGE: Final = (0.13, 1.05)
WRITE_SOURCE: Final = (
    "a checkpoint's bytes at so much for each machine that writes, at most its network's: AWS gp3 volumes write 0.13 "
    "to 1.05 GB/s, a synchronous save of a 7 B model took IBM 148.8 s (pytorch.org/blog/reducing-checkpointing-times), "
    "0.56 GB/s"
)
# What the object store takes from, and gives to, all machines together by default, GB/s. Azure: a general-purpose v2
# account, 25 Gbit/s in and 50 out in most regions (60 and 200 in some; Azure Support raises it), "Scalability and
# performance targets for standard storage accounts", learn.microsoft.com. Amazon S3 states a limit for requests alone,
# and of others none was found: there machines and their networks bound a save.
STORE_GB_PER_S: Final = {"azure": (25.0 / 8.0, 50.0 / 8.0)}
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveRates:
    """Rates in GB/s, of one machine or in columns of machines. A store without a stated limit: inf."""

    machine: Array
    store_write: Array
    store_read: Array

    def take(self, rows: NDArray[np.intp]) -> SaveRates:
        """The rates of some rows of the columns."""
        return SaveRates(
            machine=self.machine[rows], store_write=self.store_write[rows], store_read=self.store_read[rows]
        )


def save_rates(instances: Sequence[InstanceType]) -> SaveRates:
    """What each machine writes and reads, and what its provider's store carries."""
    stores = [STORE_GB_PER_S.get(one.provider, (inf, inf)) for one in instances]
    return SaveRates(
        machine=np.array([_machine_gb_per_s(one) for one in instances], dtype=np.float64),
        store_write=np.array([write for write, _ in stores], dtype=np.float64),
        store_read=np.array([read for _, read in stores], dtype=np.float64),
    )


def _machine_gb_per_s(instance: InstanceType) -> float:
    network = instance.network_gbit_per_s
    return WRITE_GB_PER_S if network is None else min(WRITE_GB_PER_S, network / 8.0)


def save_s(size_bytes: float, rates: SaveRates, writers: Array | float = 1.0) -> Array:
    """Seconds of one save of `size_bytes` in all, cut evenly over `writers` machines that write at the same time."""
    if not size_bytes:
        return np.zeros_like(rates.machine)
    together = np.minimum(rates.machine * writers, rates.store_write)
    return np.asarray(FIXED_S + size_bytes / (together * 1e9))


def restore_s(
    size_bytes: float, rates: SaveRates, machines: Array | float = 1.0, writers: Array | float = 1.0
) -> Array:
    """Seconds until `machines` have read the state back: each its part of 1 / `writers`, all at the same time."""
    part = size_bytes / writers
    each = np.minimum(rates.machine, rates.store_read / machines)
    return np.asarray(part / (each * 1e9))


def machine_save_s(size_bytes: float, instance: InstanceType, writers: float = 1.0) -> float:
    """`save_s` of one kind of machine."""
    return float(save_s(size_bytes, save_rates([instance]), writers)[0])
