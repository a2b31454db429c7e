"""What tabular sizing answers with, and the processors it is asked about: columns, one row per candidate."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tonnage.sizing.estimates import Array, column
from tonnage.sizing.tabular_assumptions import TabularAssumptions
from tonnage.values import dataclass

FLOAT_BYTES = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuColumns:
    """Processors of machines without an accelerator.

    A vCPU is a hardware thread: half a core on x86, a whole core on Graviton and other Arm servers, and on AWS's AMD
    families from the seventh generation (m7a, c7a). `threads_per_core` says so where it is known; None takes 2 for
    x86 and 1 for Arm. Source: default threads per core that Amazon EC2 states for each type (VCpuInfo).
    """

    vcpus: Array
    memory_bytes: Array
    arm: NDArray[np.bool_]
    threads_per_core: Array | None = None

    def cores(self, assumed: TabularAssumptions) -> Array:
        """Cores of the reference speed each machine amounts to (a second thread adds `hyperthread_gain` - 1)."""
        threads = np.where(self.arm, 1.0, 2.0) if self.threads_per_core is None else self.threads_per_core
        gain = np.where(threads > 1, assumed.hyperthread_gain, 1.0)
        return self.vcpus / threads * gain

    def core_fraction(self, assumed: TabularAssumptions) -> Array:
        """Speed of one core over the reference core that was measured."""
        return np.where(self.arm, assumed.arm_core_fraction, assumed.x86_core_fraction)


@dataclass(frozen=True, slots=True, kw_only=True)
class TabularMemory:
    """Bytes of one memory (a device's, or a node's host memory) at the peak, one row per candidate."""

    raw_bytes: Array  # the float32 table
    copies_bytes: Array  # what loading holds on top of it
    quantised_bytes: Array
    gradients_bytes: Array
    rows_bytes: Array  # predictions, labels, positions
    histograms_bytes: Array
    sketch_bytes: Array
    state_bytes: Array  # MLP: weights, gradients, optimizer
    activations_bytes: Array
    runtime_bytes: Array

    @property
    def total_bytes(self) -> Array:
        return sum((getattr(self, field.name) for field in fields(self)), start=np.zeros(1))

    def components(self, index: int) -> dict[str, float]:
        """Component -> bytes of one row, without the `_bytes` suffix, zeros left out."""
        named = {field.name.removesuffix("_bytes"): float(getattr(self, field.name)[index]) for field in fields(self)}
        return {name: size for name, size in named.items() if size > 0}


def memory_columns(length: int, /, **parts: float | Array) -> TabularMemory:
    """`TabularMemory` of `length` rows from the parts that are there (names without `_bytes`); the others are 0."""
    names = [field.name for field in fields(TabularMemory)]
    unknown = {f"{name}_bytes" for name in parts} - set(names)
    assert not unknown, unknown
    return TabularMemory(**{name: column(parts.get(name.removesuffix("_bytes"), 0.0), length) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class TabularEstimate:
    """Seconds of the whole job, and peak memory per device and per node, one row per candidate."""

    quantise_s: Array  # trees: sketch and binning, once
    histogram_s: Array  # trees: adding cells into histograms
    partition_s: Array  # trees: gradients, and moving rows to their child
    evaluate_s: Array  # trees: reducing histograms and scanning them for splits
    compute_s: Array  # MLP: forward and backward
    optimizer_s: Array
    loading_s: Array  # MLP: batches the device waits for
    communication_s: Array
    overhead_s: Array  # kernel launches and synchronisation
    device: TabularMemory
    host: TabularMemory
    device_capacity_bytes: Array  # per device; 0 where there is none
    host_capacity_bytes: Array  # per node

    @property
    def total_s(self) -> Array:
        return sum((getattr(self, name) for name in self._parts()), start=np.zeros(1))

    @property
    def device_memory_bytes(self) -> Array:
        return self.device.total_bytes

    @property
    def host_memory_bytes(self) -> Array:
        return self.host.total_bytes

    def fits(self, margin_fraction: float) -> NDArray[np.bool_]:
        """Whether both memories hold the job with `margin_fraction` of each left free."""
        usable = 1.0 - margin_fraction
        device = self.device_memory_bytes <= self.device_capacity_bytes * usable
        return device & (self.host_memory_bytes <= self.host_capacity_bytes * usable)

    def corrected(self, factor: float, added_s: Array) -> TabularEstimate:
        """All seconds `factor` times as long, and so many more beside them."""
        changed: dict[str, Any] = {name: getattr(self, name) * factor for name in self._parts()}
        return replace(self, **changed | {"overhead_s": changed["overhead_s"] + added_s})

    @classmethod
    def _parts(cls) -> tuple[str, ...]:
        return tuple(field.name for field in fields(cls) if field.name.endswith("_s"))

    def parts(self, index: int) -> dict[str, float]:
        """Part -> seconds of one row, without the `_s` suffix; zeros left out, NaN (a link unknown) kept."""
        named = {name.removesuffix("_s"): float(getattr(self, name)[index]) for name in self._parts()}
        return {name: seconds for name, seconds in named.items() if seconds != 0}

    def components(self, index: int) -> dict[str, float]:
        """`device ...` and `host ...` component -> bytes of one row, zeros left out."""
        memories = (("device", self.device), ("host", self.host))
        return {f"{where} {name}": size for where, held in memories for name, size in held.components(index).items()}


def estimate_columns(
    length: int,
    /,
    *,
    device: TabularMemory,
    host: TabularMemory,
    device_capacity_bytes: float | Array,
    host_capacity_bytes: float | Array,
    **parts: float | Array,
) -> TabularEstimate:
    """`TabularEstimate` of `length` rows from the time parts that are there (names without `_s`); the others are 0."""
    names = [field.name for field in fields(TabularEstimate) if field.name.endswith("_s")]
    unknown = {f"{name}_s" for name in parts} - set(names)
    assert not unknown, unknown
    return TabularEstimate(
        **{name: column(parts.get(name.removesuffix("_s"), 0.0), length) for name in names},
        device=device,
        host=host,
        device_capacity_bytes=column(device_capacity_bytes, length),
        host_capacity_bytes=column(host_capacity_bytes, length),
    )


def amdahl(cores: Array, serial_fraction: float) -> Array:
    """Time on `cores` over time on one: serial + (1 - serial) / cores. Below one core the whole work slows down."""
    few = np.minimum(cores, 1.0)
    return np.asarray((serial_fraction + (1.0 - serial_fraction) / np.maximum(cores, 1.0)) / few)
