"""A load to be served: when requests arrive and how long each holds a slot. Read from traces, scaled, or generated."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from tonnage.errors import InputError
from tonnage.sizing.estimates import Array
from tonnage.sizing.traces import RequestTrace
from tonnage.values import dataclass

if TYPE_CHECKING:
    from numpy.random import Generator as Random

MOST_REQUESTS: Final = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTimes:
    """How long a request holds its slot: prompt tokens are read at a rate, answer tokens are written one by one."""

    prefill_tokens_per_s: float = 10_000.0
    decode_s_per_token: float = 0.02

    def __post_init__(self) -> None:
        for name in ("prefill_tokens_per_s", "decode_s_per_token"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} is {value:g}: it must be above 0")

    def of(self, trace: RequestTrace) -> Array:
        """Seconds of each request of a trace."""
        return trace.input_tokens / self.prefill_tokens_per_s + trace.output_tokens * self.decode_s_per_token


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Requests in order of arrival: seconds since the start, and the seconds that each holds a slot."""

    name: str
    at_s: Array
    service_s: Array
    span_s: float

    def __post_init__(self) -> None:
        if len(self.at_s) == 0:
            raise InputError(f"the load '{self.name}' has no request", hint="a load needs at least one")
        if len(self.at_s) != len(self.service_s):
            raise InputError(f"'{self.name}': {len(self.at_s)} arrivals, {len(self.service_s)} service times")

    def __len__(self) -> int:
        return len(self.at_s)

    @property
    def mean_slots(self) -> float:
        """Slots in use on average if no request had to wait."""
        return float(self.service_s.sum()) / self.span_s


def load_of_trace(trace: RequestTrace, times: ServiceTimes) -> Load:
    """The trace as it happened. Its span ends with the last arrival, a second long at least."""
    return Load(name=trace.name, at_s=trace.at_s, service_s=times.of(trace), span_s=_span(trace.at_s))


def scaled(load: Load, times: float, *, seed: int, jitter_s: float = 2.0) -> Load:
    """`times` as many requests with the same course: each request is copied, its copies up to `jitter_s` later.

    A fraction of a copy is drawn. Copies keep the service time of their request in random order, so that no two
    copies of one moment are alike. `times` = 1 returns the load.
    """
    if not (math.isfinite(times) and times > 0):
        raise InputError(f"a load {times:g} times as large: it must be above 0")
    if times == 1:
        return load
    random = np.random.default_rng(seed)
    copies = np.floor(times + random.random(len(load))).astype(np.int64)
    if copies.sum() > MOST_REQUESTS:
        raise InputError(f"{copies.sum():,} requests: at most {MOST_REQUESTS:,}", hint="scale by less")
    at_s = np.repeat(load.at_s, copies)
    service_s = random.permutation(np.repeat(load.service_s, copies))
    return _sorted(load.name, at_s + random.random(len(at_s)) * jitter_s, service_s, load.span_s + jitter_s)


def with_wave(load: Load, *, seed: int, period_s: float = 1200.0, depth: float = 0.65) -> Load:
    """The load thinned to a wave: each request stays with chance (1 - depth·cos(2πt/period)) / (1 + depth)."""
    if not (period_s > 0 and 0 <= depth <= 1):
        raise InputError(f"a wave of {period_s:g} s and depth {depth:g}: the period is above 0, the depth 0 to 1")
    chance = (1.0 - depth * np.cos(2 * np.pi * load.at_s / period_s)) / (1.0 + depth)
    kept = np.random.default_rng(seed).random(len(load)) < chance
    return Load(name=load.name, at_s=load.at_s[kept], service_s=load.service_s[kept], span_s=load.span_s)


Shape = Callable[[Array, "Random"], Array]  # seconds -> load at that second, as a part of the peak


def _steady(at_s: Array, random: Random) -> Array:  # noqa: ARG001
    return np.full(len(at_s), 0.6)


def _waves(at_s: Array, random: Random) -> Array:  # noqa: ARG001
    return 0.6 - 0.4 * np.cos(2 * np.pi * at_s / 1800.0)


def _on_off(at_s: Array, random: Random) -> Array:
    """On for 20 to 180 s, off for 60 to 420 s."""
    return _alternating(at_s, random, on_s=(20.0, 180.0), off_s=(60.0, 420.0), low=0.15)


def _spikes(at_s: Array, random: Random) -> Array:
    """Spikes of 10 to 30 s, shorter than a start-up, one to four minutes apart."""
    return _alternating(at_s, random, on_s=(10.0, 30.0), off_s=(60.0, 240.0), low=0.2)


def _rare_spikes(at_s: Array, random: Random) -> Array:
    """Spikes of 10 to 30 s, ten to twenty minutes apart."""
    return _alternating(at_s, random, on_s=(10.0, 30.0), off_s=(600.0, 1200.0), low=0.2)


def _daily(at_s: Array, random: Random) -> Array:  # noqa: ARG001
    """A working day in two hours: quiet nights, a peak in the afternoon."""
    return 0.08 + 0.92 * np.clip(np.sin(2 * np.pi * (at_s / 7200.0 - 0.3)), 0.0, None) ** 1.5


def _ramps(at_s: Array, random: Random) -> Array:  # noqa: ARG001
    """Up over 25 minutes, down within one."""
    return 0.1 + 0.9 * np.clip((at_s % 1800.0) / 1500.0, 0.0, 1.0) * (at_s % 1800.0 < 1500.0)


def _silent_nights(at_s: Array, random: Random) -> Array:  # noqa: ARG001
    """Half of each hour without any request."""
    return np.where(at_s % 3600.0 < 1800.0, 0.7, 0.0)


KINDS: Final[dict[str, Shape]] = {
    "steady": _steady, "waves": _waves, "daily": _daily, "ramps": _ramps, "on-off": _on_off, "spikes": _spikes,
    "rare-spikes": _rare_spikes, "silent-nights": _silent_nights,
}  # fmt: skip


def generated(
    kind: str, *, peak_slots: float = 128.0, hours: float = 4.0, service_s: float = 4.0, spread: float = 0.8, seed: int
) -> Load:
    """A load of a kind: arrivals are Poisson around its course, service times log-normal of the stated mean.

    `peak_slots` are the slots in use at the peak of the course if no request waits. InputError for an unknown kind.
    """
    if kind not in KINDS:
        raise InputError(f"'{kind}' is not a kind of burst", hint=f"the kinds are {', '.join(KINDS)}")
    for name, value in (("peak_slots", peak_slots), ("hours", hours), ("service_s", service_s)):
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{name} is {value:g}: it must be above 0")
    random = np.random.default_rng(seed)
    seconds = np.arange(math.ceil(hours * 3600.0), dtype=np.float64)
    rate = KINDS[kind](seconds, random) * peak_slots / service_s
    if rate.sum() > MOST_REQUESTS:
        raise InputError(f"{rate.sum():,.0f} requests: at most {MOST_REQUESTS:,}", hint="take fewer hours or slots")
    counts = random.poisson(rate)
    at_s = np.repeat(seconds, counts)
    times = service_s * np.exp(spread * random.standard_normal(len(at_s)) - spread**2 / 2.0)
    return _sorted(kind, at_s + random.random(len(at_s)), times, float(len(seconds)))


def _alternating(
    at_s: Array, random: Random, *, on_s: tuple[float, float], off_s: tuple[float, float], low: float
) -> Array:
    """1 while on, `low` while off; each stay is drawn evenly from its range."""
    found = np.full(len(at_s), low)
    begin = 0.0
    while begin < len(at_s):
        begin += random.uniform(*off_s)
        end = begin + random.uniform(*on_s)
        found[int(begin) : int(end)] = 1.0
        begin = end
    return found


def _sorted(name: str, at_s: Array, service_s: Array, span_s: float) -> Load:
    order = np.argsort(at_s, kind="stable")
    return Load(name=name, at_s=at_s[order], service_s=service_s[order], span_s=span_s)


def _span(at_s: Array) -> float:
    return max(float(at_s[-1]), 1.0) if len(at_s) else 1.0
