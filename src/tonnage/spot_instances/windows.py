"""Random starts in traces: the stretches of ticks over which a job is replayed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tonnage.errors import InputError
from tonnage.spot_instances.job import TICK_H
from tonnage.spot_instances.traces import SpotTrace
from tonnage.values import dataclass

Up = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotWindows:
    """`up[window, tick, zone]`: whether spot is up in a zone."""

    name: str
    up: Up


def draw_windows(trace: SpotTrace, *, ticks: int, count: int, seed: int) -> SpotWindows:
    """`count` random starts of one trace. The draw depends on the seed and the trace alone, not on its neighbours.

    Raises InputError where no stretch of the trace is long enough.
    """
    segments = trace.ticks()
    rooms = np.array([max(0, len(one) - ticks + 1) for one in segments])
    if not rooms.sum():
        raise InputError(
            f"{trace.name} covers {max(map(len, segments)) * TICK_H:.1f} h without a hole, the deadline "
            f"{ticks * TICK_H:.1f} h",
            hint="a shorter job with a shorter deadline, or a longer trace",
        )
    places = np.random.default_rng(seed).integers(rooms.sum(), size=count)
    owner = np.searchsorted(np.cumsum(rooms), places, side="right")
    first = places - (np.cumsum(rooms) - rooms)[owner]
    up = np.stack([segments[o][f : f + ticks] for o, f in zip(owner, first, strict=True)])
    return SpotWindows(name=trace.name, up=up[:, :, None])


def draw_joint_windows(traces: Sequence[SpotTrace], *, ticks: int, count: int, seed: int) -> SpotWindows:
    """Random starts over the time that all traces cover, taken to begin together; every trace is one zone."""
    split = [trace.name for trace in traces if len(trace.segments) > 1]
    if split:
        raise InputError(
            f"{split[0]} has a hole of more than 600 s, so its zones cannot be laid side by side",
            hint="leave the trace out, or replay it without --zones together",
        )
    zones = [trace.ticks()[0] for trace in traces]
    room = min(map(len, zones)) - ticks + 1
    if room < 1:
        shortest = min(traces, key=lambda trace: trace.hours)
        raise InputError(
            f"{shortest.name} covers {shortest.hours:.1f} h, the deadline {ticks * TICK_H:.1f} h",
            hint="leave it out, or replay a shorter job",
        )
    starts = np.random.default_rng(seed).integers(room, size=count)
    up = np.stack([np.stack([zone[start : start + ticks] for zone in zones], axis=1) for start in starts])
    return SpotWindows(name=" + ".join(trace.name for trace in traces), up=up)
