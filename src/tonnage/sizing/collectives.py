"""Collective operations: latency plus bytes over bus bandwidth, by link, ranks and nodes."""

from __future__ import annotations

import numpy as np

from tonnage.sizing.devices import Devices
from tonnage.sizing.estimates import Array, Num


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


def send_s(size_bytes: Num, crosses_nodes: Num | np.ndarray, devices: Devices) -> Array:
    """Seconds to hand `size_bytes` to a neighbour, inside the node or across."""
    inside = size_bytes / devices.intra_bytes_per_s + devices.intra_latency_s
    between = size_bytes / devices.inter_bytes_per_s + devices.inter_latency_s
    return np.where(np.asarray(crosses_nodes) > 0, between, inside)
