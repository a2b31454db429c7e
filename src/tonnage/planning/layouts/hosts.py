"""Hosts beside devices: columns of what they get ready, and figures that the slower of the two sets."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tonnage.planning.plan import HostShare
from tonnage.planning.sized import IntArray
from tonnage.sizing.devices import HostRate, Machine
from tonnage.sizing.estimates import Array, Figure
from tonnage.values import dataclass

VCPUS_PER_GPU_COMFORTABLE = 4.0  # input workers per device that keep a fine-tune fed: judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """Items a second that one machine's host gets ready, a machine each; inf where it holds nothing up, or where its
    vCPUs are not stated."""

    rates: tuple[HostRate | None, ...]
    value: Array
    low: Array
    high: Array

    @property
    def any(self) -> bool:
        """Whether some host is looked at."""
        return any(one is not None for one in self.rates)

    def in_doubt(self, machine: IntArray, devices_per_s: Array, gpus: Array) -> NDArray[np.bool_]:
        """Rows of one machine each whose vCPUs are not stated, while its devices' items/s ask for many."""
        each = np.array([inf if one is None else _unstated_items_per_s(one) for one in self.rates], dtype=np.float64)
        return np.asarray(takes_many(devices_per_s / each[machine], gpus))

    def share(self, machine: int, nodes: int, devices_per_s: float) -> HostShare | None:
        """Risks of `nodes` such machines, whose devices would take so many items a second."""
        rate = self.rates[machine]
        if rate is None:
            return None
        return HostShare(
            stage=rate.stage,
            vcpus=rate.vcpus,
            items_per_s=self.figure(machine, nodes),
            devices_per_s=devices_per_s,
            needed_vcpus=0.0 if rate.vcpu_items_per_s is None else devices_per_s / rate.vcpu_items_per_s,
        )

    def figure(self, machine: int, nodes: float) -> Figure | None:
        """Items a second of `nodes` machines; None where nothing is known."""
        rate = self.rates[machine]
        if rate is None or rate.items_per_s is None:
            return None
        one = rate.items_per_s
        return Figure(value=one.value * nodes, low=one.low * nodes, high=one.high * nodes, basis="assumed")


def takes_many(vcpus: Array | float, gpus: Array | float) -> Any:
    """Whether the work of `gpus` devices takes more vCPUs than nearly every machine of that many has."""
    return vcpus > VCPUS_PER_GPU_COMFORTABLE * gpus


def _unstated_items_per_s(rate: HostRate) -> float:
    """Items a second of one vCPU where the machine's number of them is not stated; inf where it is, or they do
    nothing."""
    return inf if rate.items_per_s is not None or rate.vcpu_items_per_s is None else rate.vcpu_items_per_s


def hosts_of(machines: Sequence[Machine]) -> Hosts:
    """The columns of `machines`."""
    known = [None if one.host is None else one.host.items_per_s for one in machines]
    value, low, high = (
        np.array([inf if one is None else getattr(one, end) for one in known], dtype=np.float64)
        for end in ("value", "low", "high")
    )
    return Hosts(rates=tuple(one.host for one in machines), value=value, low=low, high=high)


def slower(rate: Figure, host: Figure | None) -> Figure:
    """A rate that a host bounds: the lower of the two, at each end."""
    if host is None:
        return rate
    ends = {end: min(getattr(rate, end), getattr(host, end)) for end in ("value", "low", "high")}
    return Figure(**ends, basis=rate.basis if rate.value <= host.value else host.basis)


def longer(time: Figure, items: float, host: Figure | None) -> Figure:
    """Seconds for `items` that a host bounds: the longer of the two, at each end."""
    if host is None:
        return time
    least = Figure(value=items / host.value, low=items / host.high, high=items / host.low, basis=host.basis)
    ends = {end: max(getattr(time, end), getattr(least, end)) for end in ("value", "low", "high")}
    return Figure(**ends, basis=time.basis if time.value >= least.value else least.basis)
