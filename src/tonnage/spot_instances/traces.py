"""Spot traces: the JSON format read and judged, then resampled to ticks.

    {"metadata": {"gap_seconds": 195, "family": ..., "zone": ..., "nodes": 1, ...}, "data": [0, 1, ...],
     "spot_price_usd_per_h": [...]}

`data` counts instances available (or alive) at each sample; a job of `nodes` instances has spot where the count
reaches `nodes`. `null` is a missing sample: up to 600 s of them hold the last value, more split the trace. Source
of the format: github.com/skypilot-org/spot-traces, data of Wu et al., «Can't Be Late», NSDI 2024.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import ceil
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tonnage.errors import InputError
from tonnage.spot_instances.job import TICK_S
from tonnage.units import SECONDS_PER_HOUR
from tonnage.values import dataclass

LONGEST_HOLE_S: Final = 600.0
LONGEST_GAP_S: Final = 86_400.0
MOST_INSTANCES: Final = 10**9
_SHAPE: Final = 'a trace is {"metadata": {"gap_seconds": 120, "nodes": 1, ...}, "data": [0, 1, ...]}; see docs/spot.md'


class TraceError(InputError):
    """A trace file cannot be used; names the file and the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotTrace:
    """One zone's record: whether spot was up at each sample, in stretches without a hole over 600 s."""

    name: str
    family: str
    zone: str
    accelerator: str
    nodes: int
    gap_s: float
    segments: tuple[NDArray[np.bool_], ...]  # at the trace's own sampling
    prices_usd_per_h: NDArray[np.float64] | None = None

    @property
    def hours(self) -> float:
        """Hours recorded, holes left out."""
        return sum(len(one) for one in self.segments) * self.gap_s / SECONDS_PER_HOUR

    @property
    def availability(self) -> float:
        """Share of samples with spot."""
        return float(np.concatenate(self.segments).mean())

    def ticks(self, tick_s: float = TICK_S) -> tuple[NDArray[np.bool_], ...]:
        """The segments at ticks of `tick_s`, each the last sample at or before the tick."""
        return tuple(_resampled(one, self.gap_s, tick_s) for one in self.segments)


def parse_trace(text: str, *, name: str) -> SpotTrace:
    """A trace from the text of its file. Raises TraceError with what is wrong and where."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a plain ValueError
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise TraceError(f"{name} is not JSON{where}", hint=_SHAPE) from error
    return trace_of(document, name=name)


def trace_of(document: Any, *, name: str) -> SpotTrace:
    """A trace from a parsed document."""
    if not isinstance(document, Mapping):
        raise TraceError(f"{name} holds no JSON object", hint=_SHAPE)
    for key in ("metadata", "data"):
        if key not in document:
            raise TraceError(f"{name} has no `{key}`", hint=_SHAPE)
    metadata = document["metadata"]
    if not isinstance(metadata, Mapping):
        raise TraceError(f"{name}: `metadata` is no object", hint=_SHAPE)
    gap_s = _number(metadata, "gap_seconds", name)
    nodes = _nodes(metadata, name)
    counts = _counts(document["data"], "data", name)
    return SpotTrace(
        name=name,
        family=str(metadata.get("family") or name),
        zone=str(metadata.get("zone") or name),
        accelerator=str(metadata.get("accelerator") or "unknown"),
        nodes=nodes,
        gap_s=gap_s,
        segments=_segments(counts, nodes, gap_s, name),
        prices_usd_per_h=_prices(document, len(counts), name),
    )


def _number(metadata: Mapping[str, Any], key: str, name: str) -> float:
    if key not in metadata:
        raise TraceError(f"{name}: `metadata` has no `{key}`", hint=_SHAPE)
    value = metadata[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LONGEST_GAP_S:
        raise TraceError(f"{name}: `{key}` is {value!r}", hint="seconds between samples, more than 0, at most a day")
    return float(value)


def _nodes(metadata: Mapping[str, Any], name: str) -> int:
    value = metadata.get("nodes", 1)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_INSTANCES:
        raise TraceError(f"{name}: `nodes` is {value!r}", hint="the instances a job needs at once: 1 or more")
    return value


def _counts(data: Any, key: str, name: str) -> NDArray[np.float64]:
    """Samples as floats, NaN where missing."""
    if not isinstance(data, list):
        raise TraceError(f"{name}: `{key}` is no list", hint=_SHAPE)
    if not data:
        raise TraceError(f"{name}: `{key}` is empty", hint="a trace needs samples")
    for place, value in enumerate(data):
        if value is None:
            continue
        if not isinstance(value, int | float) or not 0 <= value <= MOST_INSTANCES:
            raise TraceError(f"{name}: sample {place} of `{key}` is {value!r}", hint="a count, 0 or more, or null")
    return np.array([np.nan if value is None else float(value) for value in data])


def _prices(document: Mapping[str, Any], samples: int, name: str) -> NDArray[np.float64] | None:
    if document.get("spot_price_usd_per_h") is None:
        return None
    prices = _counts(document["spot_price_usd_per_h"], "spot_price_usd_per_h", name)
    if len(prices) != samples:
        raise TraceError(
            f"{name}: {len(prices)} prices for {samples} samples", hint="`spot_price_usd_per_h` has one a sample"
        )
    return prices


def _segments(counts: NDArray[np.float64], nodes: int, gap_s: float, name: str) -> tuple[NDArray[np.bool_], ...]:
    """Stretches between holes; a short hole holds the value before it."""
    known = np.flatnonzero(~np.isnan(counts))
    if not len(known):
        raise TraceError(f"{name}: `data` holds no sample, only null", hint="a trace needs samples")
    far = np.flatnonzero((np.diff(known) > 1) & (np.diff(known) * gap_s > LONGEST_HOLE_S))
    parts = []
    for piece in np.split(known, far + 1):
        places = np.arange(piece[0], piece[-1] + 1)
        held = piece[np.searchsorted(piece, places, side="right") - 1]
        parts.append(counts[held] >= nodes)
    return tuple(parts)


def _resampled(samples: NDArray[np.bool_], gap_s: float, tick_s: float) -> NDArray[np.bool_]:
    count = max(1, ceil(len(samples) * gap_s / tick_s - 1e-9))
    places = np.floor(np.arange(count) * tick_s / gap_s + 1e-9).astype(np.intp)
    return np.asarray(samples[np.minimum(places, len(samples) - 1)])
