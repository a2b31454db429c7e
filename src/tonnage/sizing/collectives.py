"""Collective operations: latency plus bytes over bus bandwidth, by link, ranks and nodes."""

from __future__ import annotations

import numpy as np

from tonnage.sizing.devices import Devices
from tonnage.sizing.estimates import Array, Num

# One step of a ring from a rank to the next: NVIDIA/nccl src/graph/tuning.cc, `hwLat`, Ring, Simple (NVLink, network).
HOP_INSIDE_S, HOP_BETWEEN_S = 3.4e-6, 14.0e-6


def all_reduce_s(size_bytes: Num, ranks: Num, nodes: Num, devices: Devices, *, sharers: Num = 1.0) -> Array:
    """Seconds of an all-reduce of `size_bytes` on every rank.

    A ring: 2(n-1)/n · bytes cross every link between neighbours, so the slowest sets the time: the link inside a node
    (bus bandwidth, NCCL's busbw), or the node's network where ranks sit on several. NaN where the link that is needed
    is not published. `sharers`: groups of ranks on a node that do the same at the same time and share its network (one
    per tensor-parallel rank, say).
    Source: NCCL tests, PERFORMANCE.md.
    """
    ranks, nodes = np.asarray(ranks, dtype=np.float64), np.asarray(nodes, dtype=np.float64)
    crossing = 2.0 * (ranks - 1) / ranks * size_bytes
    local = np.maximum(ranks / nodes, 1.0)
    inside = np.where(local > 1, crossing / devices.intra_bytes_per_s + devices.intra_latency_s, 0.0)
    between = crossing * sharers / devices.inter_bytes_per_s + devices.inter_latency_s
    return np.maximum(inside, np.where(nodes > 1, between, 0.0))


def all_gather_s(size_bytes: Num, ranks: Num, nodes: Num, devices: Devices, *, sharers: Num = 1.0) -> Array:
    """Seconds to gather `size_bytes` in all onto every rank (or to reduce-scatter them): half an all-reduce."""
    return all_reduce_s(size_bytes, ranks, nodes, devices, sharers=sharers) / 2.0


def ring_latency_s(ranks: Num, nodes: Num) -> Array:
    """Seconds that the first byte of a gather takes round all ranks, node after node: a ring has no short cut, so that
    many small gathers over many ranks cost more than their bytes.

    >>> f"{ring_latency_s(1536, 192):.2e} {ring_latency_s(8, 1):.2e}"
    '7.26e-03 2.72e-05'
    """
    between = np.where(np.asarray(nodes) > 1, nodes, 0.0)
    return np.asarray(between * HOP_BETWEEN_S + (np.asarray(ranks) - between) * HOP_INSIDE_S)


def send_s(size_bytes: Num, crosses_nodes: Num | np.ndarray, devices: Devices) -> Array:
    """Seconds to hand `size_bytes` to a neighbour, inside the node or across."""
    inside = size_bytes / devices.intra_bytes_per_s + devices.intra_latency_s
    between = size_bytes / devices.inter_bytes_per_s + devices.inter_latency_s
    return np.where(np.asarray(crosses_nodes) > 0, between, inside)
