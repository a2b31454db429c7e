"""Who asks what, when: arrival processes and request lengths, all drawn from one explicit seed.

Draws at another rate are the same unit draws, scaled: two loads compared under one seed see the same requests in the
same order (common random numbers).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tonnage.errors import InputError
from tonnage.sizing.estimates import Array
from tonnage.sizing.length_points import CHAT_LONGEST, CHAT_SPREAD
from tonnage.sizing.traces import Counts, RequestTrace
from tonnage.values import dataclass
from tonnage.workload.jobs import Lengths, Requests

if TYPE_CHECKING:  # a plan draws nothing, and `numpy.random` takes long to import
    from numpy.random import Generator as Random

Z999 = 3.09  # 99.9th percentile of a normal variable


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson:
    """Independent users: exponential gaps of mean 1 / rate."""

    rate_per_s: float

    def times_s(self, random: Random, count: int) -> Array:
        return np.cumsum(random.standard_exponential(count)) / _positive("rate_per_s", self.rate_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deterministic:
    """A metronome: one request every 1 / rate seconds; an infinite rate is all of them at once."""

    rate_per_s: float

    def times_s(self, random: Random, count: int) -> Array:  # noqa: ARG002
        return np.arange(count) / _positive("rate_per_s", self.rate_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursty:
    """Gamma gaps of mean 1 / rate and coefficient of variation `variation`: 1 is Poisson, above it comes in bursts."""

    rate_per_s: float
    variation: float

    def times_s(self, random: Random, count: int) -> Array:
        shape = 1.0 / _positive("variation", self.variation) ** 2
        return np.cumsum(random.standard_gamma(shape, count) / shape) / _positive("rate_per_s", self.rate_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReplay:
    """A trace as it happened, `speed` times as fast (2: twice the rate, the same gaps in proportion)."""

    trace: RequestTrace
    speed: float = 1.0

    def times_s(self, random: Random, count: int) -> Array:  # noqa: ARG002
        if count > len(self.trace):
            raise InputError(
                f"{count:,} requests asked of {self.trace.name}, which has {len(self.trace):,}",
                hint="ask for fewer, or draw lengths from the trace and arrivals from a process",
            )
        return self.trace.at_s[:count] / _positive("speed", self.speed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """`users` who each send a request, wait for its answer, think (exponential, mean `think_s`) and send the next."""

    users: int
    think_s: float = 0.0


Process = Poisson | Deterministic | Bursty | TraceReplay | ClosedLoop


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedLengths:
    """Every request alike, in tokens."""

    input_tokens: int
    output_tokens: int = 0

    def draw(self, random: Random, count: int) -> tuple[Counts, Counts]:  # noqa: ARG002
        whole = np.ones(count, dtype=np.int64)
        return whole * self.input_tokens, whole * self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadLengths:
    """Lengths as their points state them, else log-normal with the stated means whose 99.9th percentile is the stated
    maximum; none is longer.

    From mean = exp(mu + s²/2) and maximum = exp(mu + 3.09·s): s = 3.09 - sqrt(3.09² - 2·ln(maximum/mean)). Real chat
    lengths are of this kind (right-skewed, over two decades); use a trace where there is one.
    """

    requests: Requests

    def draw(self, random: Random, count: int) -> tuple[Counts, Counts]:
        output = self.requests.output_tokens
        prompts = _log_normal(random, count, self.requests.input_tokens)
        return prompts, np.zeros(count, dtype=np.int64) if output is None else _log_normal(random, count, output)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatLengths:
    """Lengths of a conversation data set of which only the means are known: log-normal, cut at 4.7 times the mean.

    The means of what is drawn are the stated ones.
    """

    input_tokens: float
    output_tokens: float

    def draw(self, random: Random, count: int) -> tuple[Counts, Counts]:
        return _chat(random, count, self.input_tokens), _chat(random, count, self.output_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLengths:
    """Pairs of prompt and answer lengths drawn with replacement from a trace (the pairing is kept)."""

    trace: RequestTrace

    def draw(self, random: Random, count: int) -> tuple[Counts, Counts]:
        picked = random.integers(len(self.trace), size=count)
        return self.trace.input_tokens[picked], self.trace.output_tokens[picked]


TokenLengths = FixedLengths | SpreadLengths | ChatLengths | TraceLengths


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Requests drawn, in order of arrival. `users`: closed loop, where `at_s` is empty and `think_s` follows each."""

    at_s: Array
    input_tokens: Counts
    output_tokens: Counts
    users: int | None = None
    think_s: Array | None = None

    def __len__(self) -> int:
        return len(self.input_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """An arrival process, request lengths and how many requests; `lengths` None: those of the replayed trace."""

    process: Process
    lengths: TokenLengths | None = None
    requests: int | None = None  # None: as many as the trace has

    def draw(self, seed: int) -> Stream:
        """The requests of this seed; arrivals and lengths come from two independent generators."""
        arrivals, lengths = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
        count = self._count()
        prompts, answers = self._lengths(lengths, count)
        if isinstance(self.process, ClosedLoop):
            if self.process.users < 1 or self.process.think_s < 0:
                raise InputError("a closed loop needs at least one user and a think time of at least 0 s")
            think = arrivals.standard_exponential(count + self.process.users) * self.process.think_s
            return Stream(
                at_s=np.empty(0), input_tokens=prompts, output_tokens=answers, users=self.process.users, think_s=think
            )
        return Stream(at_s=self.process.times_s(arrivals, count), input_tokens=prompts, output_tokens=answers)

    def _count(self) -> int:
        if self.requests is None and not isinstance(self.process, TraceReplay):
            raise InputError("how many requests is not stated", hint="only a replayed trace tells it by itself")
        count = len(self.process.trace) if isinstance(self.process, TraceReplay) else 0
        count = count if self.requests is None else self.requests
        if count < 1:
            raise InputError(f"{count} requests: at least one is needed")
        return count

    def _lengths(self, random: Random, count: int) -> tuple[Counts, Counts]:
        if self.lengths is not None:
            return self.lengths.draw(random, count)
        if not isinstance(self.process, TraceReplay):
            raise InputError("request lengths are not stated", hint="give FixedLengths, SpreadLengths or TraceLengths")
        trace = self.process.trace
        return trace.input_tokens[:count], trace.output_tokens[:count]


def _log_normal(random: Random, count: int, lengths: Lengths) -> Counts:
    """Whole lengths between 1 and the maximum: as stated, fixed where the mean is the maximum, else log-normal."""
    normal = random.standard_normal(count)
    if lengths.points:
        places = np.searchsorted(np.cumsum([share for _, share in lengths.points])[:-1], random.random(count))
        stated: Counts = np.maximum(np.rint(np.array([tokens for tokens, _ in lengths.points])), 1).astype(np.int64)
        return stated[places]
    if lengths.maximum <= lengths.mean:
        return np.full(count, max(1, round(lengths.mean)), dtype=np.int64)
    sigma = Z999 - math.sqrt(max(Z999**2 - 2.0 * math.log(lengths.maximum / lengths.mean), 0.0))
    drawn = lengths.mean * np.exp(sigma * normal - sigma**2 / 2.0)
    return np.clip(np.rint(drawn), 1, lengths.maximum).astype(np.int64)


def _chat(random: Random, count: int, mean: float) -> Counts:
    drawn = np.minimum(np.exp(CHAT_SPREAD * random.standard_normal(count) - CHAT_SPREAD**2 / 2.0), CHAT_LONGEST)
    lengths: Counts = np.maximum(np.rint(drawn * (mean / drawn.mean())), 1).astype(np.int64)
    return lengths


def _positive(name: str, value: float) -> float:
    if not value > 0:
        raise InputError(f"{name} is {value:g}: it must be above 0")
    return value
