"""What requests see on decoder replicas under a load, in closed form: all at once, offered at a rate, or from users.

In flight: B requests. Each gives one token a step of D(B) seconds; a step also reads what prompts arrive. A request
that writes O tokens meets as many newcomers as are in flight, so with x seconds a prompt a token takes
y = D(B) + (B / O)·x, and a replica answers X(B) = B / (O·y) requests a second (Little's law). At a rate r, B solves
X(B) = r; above X(most in flight) requests queue. Checked against the event simulation in
docs/decisions/serving-simulation.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

from tonnage.sizing.decoder_curves import DecoderCurves, DecoderRows
from tonnage.sizing.estimates import Array
from tonnage.sizing.schedulers import UNLIMITED

# Where a waiting time is read: middles of shares of the requests, finer towards the late end.
WAIT_SHARES: Final = np.array([0.1, 0.2, 0.2, 0.2, 0.12, 0.08, 0.05, 0.03, 0.02])
WAIT_PLACES: Final = np.cumsum(WAIT_SHARES) - WAIT_SHARES / 2.0
PERCENTILES: Final[Mapping[str, float]] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_NORMAL: Final = np.array([NormalDist().inv_cdf(place) for place in WAIT_PLACES])
TOTALS: Final = 5  # first-token times kept where answers' lengths are crossed with them


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a replica is asked, a figure a row; infinite where there is no such limit.

    `requests` in all, `rate_per_s` at which they arrive (infinite: all at once), `users` who each wait for an answer.
    """

    requests: Array
    rate_per_s: Array
    users: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A time that requests see, seconds: mean and percentiles, a row each."""

    mean: Array
    at: Mapping[str, Array]  # p50, p90, p95, p99


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A load as it is served. `in_flight`: requests that a step serves; `capacity_per_s`: of an endless load."""

    requests_per_s: Array
    capacity_per_s: Array
    in_flight: Array
    makespan_s: Array
    ttft: Spread
    tpot: Spread
    latency: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """Prompts beside `in_flight` decodes: tokens read together and the seconds of the mean prompt and of each."""

    together: Array
    mean_s: Array
    each_s: Array  # (rows x prompts)


def capacity_per_s(curves: DecoderCurves, in_flight: Array) -> Array:
    """Requests a second that `in_flight` at all times finish: B / (O · y), at most what the front end hands over."""
    rows = curves.rows
    lift = (slice(None),) + (None,) * (in_flight.ndim - 1)
    output = rows.output[lift]
    in_flight = np.minimum(in_flight, _fed(curves, lift))
    step = curves.decode_s(in_flight)
    together = _together(curves, in_flight / output * rows.prompt[lift], in_flight)
    read = curves.read_token_s(in_flight, together) * rows.prompt[lift] + curves.attention_mean_s[lift]
    rate = in_flight / (output * step + in_flight * read)
    return np.minimum(rate, 1.0 / max(curves.engine.request_us * 1e-6, 1e-12))


def _fed(curves: DecoderCurves, lift: tuple[object, ...] = (slice(None),)) -> Array:
    """Requests that can decode at a time if every step reads as many prompts as its budget takes; others are read."""
    rows = curves.rows
    return np.maximum(rows.output * np.maximum(0.9 * rows.step_tokens / rows.prompt, 0.01), 1.0)[lift]


def in_flight_at(curves: DecoderCurves, rate_per_s: Array) -> Array:
    """Requests in flight at a rate: X(B) = rate, at most the slots; below 1 where the replica is idle between."""
    slots = curves.rows.slots
    grid = np.maximum(slots, 1.0)[:, None] ** (np.arange(33) / 32.0)
    rates = np.maximum.accumulate(capacity_per_s(curves, grid), axis=1)
    rate = np.asarray(rate_per_s, dtype=np.float64)[:, None]
    cell = np.clip((rates < rate).sum(axis=1), 1, 32)[:, None]
    low, high = np.take_along_axis(rates, cell - 1, axis=1), np.take_along_axis(rates, cell, axis=1)
    left, right = np.take_along_axis(grid, cell - 1, axis=1), np.take_along_axis(grid, cell, axis=1)
    share = np.clip((rate - low) / np.maximum(high - low, 1e-300), 0.0, 1.0)
    found = (left + (right - left) * share)[:, 0]
    alone = rate[:, 0] / rates[:, 0]  # below one request in flight: the share of time that there is one
    return np.where(rate[:, 0] < rates[:, 0], alone, np.where(rate[:, 0] >= rates[:, -1], slots, found))


def serve_load(curves: DecoderCurves, load: Load) -> Seen:
    """What the requests of `load` see on each row."""
    if curves.rows.scheduler.admission == "fixed":
        return _fixed_batch(curves)
    rows, front = curves.rows, curves.engine.request_us * 1e-6
    slots = np.minimum(rows.slots, load.users)
    capacity = capacity_per_s(curves, slots)
    closed = np.isfinite(load.users)
    offered = np.minimum(load.rate_per_s, 1.0 / front if front else np.inf)
    paced = np.where(closed, capacity, offered)  # requests reach the scheduler at this rate
    reached = np.where(np.isfinite(paced), in_flight_at(curves, np.minimum(paced, 1e12)), slots)
    most = np.minimum(np.where(closed, slots, np.minimum(reached, slots)), load.requests)
    stay = rows.output * curves.decode_s(np.maximum(most, 1.0)) + most * _reading(curves, most, most / rows.output).mean_s
    # Newcomers a step: what leaves makes room for them; all that come where there are slots for all.
    step = stay / rows.output
    queued = (load.requests > slots) & rows.varied | closed
    entering = np.where(queued | (paced < capacity), np.minimum(paced, capacity), paced) * step
    beside = np.minimum(np.where(closed, np.maximum(most - 1.0, 0.0), most), _fed(curves))
    reading = _reading(curves, beside, entering)
    filling = _reading(curves, beside / 2.0, np.full_like(beside, np.inf))  # while a queue stands: full steps
    seen_by = _overlap(rows, load.requests, most, paced, stay, closed)
    seen_by = np.minimum(seen_by, _fed(curves))
    decode = curves.decode_s(np.maximum(seen_by, 1.0))
    tokens = _token_points(curves, load, reading, filling, most, slots, decode, seen_by, entering, paced > capacity)
    token = np.sum(tokens[0] * tokens[1], axis=1)
    ttft = _first_tokens(curves, load, reading, filling, most, slots, token, capacity, paced)
    latency = _whole(rows, ttft, token)
    ttft_seen = _spread(*ttft)
    makespan = _makespan(curves, load.requests, slots, reading, filling)
    endless = ~np.isfinite(load.requests)
    latest = np.where(endless, 0.0, load.requests) / paced + latency.mean
    makespan = np.where(closed, makespan, np.maximum(makespan, latest))
    rate = np.where(endless, np.minimum(paced, capacity), load.requests / makespan)
    return Seen(requests_per_s=rate, capacity_per_s=capacity, in_flight=most, makespan_s=makespan, ttft=ttft_seen,
                tpot=_spread(*tokens), latency=latency)  # fmt: skip


def _fixed_batch(curves: DecoderCurves) -> Seen:
    """One batch from its prompts to its last token: everyone waits for all prompts, then for all steps."""
    rows = curves.rows
    batch = rows.slots
    read = curves.linear_s(batch * rows.prompt) + batch * curves.attention_mean_s
    step = curves.decode_s(batch)
    longest = rows.outputs.max(axis=1)
    latency = read + np.maximum(longest - 1.0, 0.0) * step

    def alike(seconds: Array) -> Spread:
        return Spread(mean=seconds, at=dict.fromkeys(PERCENTILES, seconds))

    return Seen(requests_per_s=batch / latency, capacity_per_s=batch / latency, in_flight=batch, makespan_s=latency,
                ttft=alike(read), tpot=alike(step), latency=alike(latency))  # fmt: skip


def _together(curves: DecoderCurves, wanted: Array, in_flight: Array) -> Array:
    """Prompt tokens read in one step where `wanted` come: whole prompts, or chunks that the step's budget leaves."""
    rows = curves.rows
    lift = (slice(None),) + (None,) * (wanted.ndim - 1)
    prompt, longest = rows.prompt[lift], rows.prompts.max(axis=1)[lift]
    budget = rows.step_tokens[lift]
    room = np.maximum(budget - (0.0 if rows.scheduler.prompts_first else in_flight), 0.25 * budget)
    if not rows.scheduler.chunked:
        room = np.maximum(room, np.minimum(longest, prompt))
    return np.maximum(np.minimum(np.maximum(wanted, prompt), room), 1.0)


def _reading(curves: DecoderCurves, in_flight: Array, newcomers: Array) -> _Reading:
    """`newcomers`: prompts a step."""
    rows = curves.rows
    wanted = np.minimum(newcomers * rows.prompt, UNLIMITED)
    together = _together(curves, wanted, in_flight)
    token = curves.read_token_s(in_flight, together)
    each = token[:, None] * rows.prompts + curves.attention_s
    return _Reading(together=together, mean_s=token * rows.prompt + curves.attention_mean_s, each_s=each)


def _overlap(rows: DecoderRows, requests: Array, most: Array, paced: Array, stay: Array, closed: Array) -> Array:
    """Requests in flight as a request meets them on average: fewer than at the fullest moment of a short run.

    Two of N requests that start within a time T = τ·W of one another's stay W overlap by 1 - τ/3 of it (τ <= 1), or
    (1 - 1/(3τ)) / τ; all at once, only the longer answers thin out.
    """
    outputs, shares = rows.outputs, rows.output_shares
    both = np.minimum(outputs[:, :, None], outputs[:, None, :])
    thinning = np.einsum("rlm,rl,rm,rl->r", both, shares, shares, 1.0 / outputs)
    with np.errstate(divide="ignore", invalid="ignore"):
        tau = np.where(np.isfinite(requests), requests / (paced * stay), np.inf)
        short = most * (1.0 - np.minimum(tau, 1.0) / 3.0)
        long = most * (1.0 - np.where(np.isfinite(tau), most / (3.0 * requests), 0.0))
    single = (tau < 1.0) & (requests <= most + 0.5)
    queue = (requests > most + 0.5) & (tau < 1.0)
    full = np.where(queue, most, long)
    return np.where(closed, most, np.where(single, short * (thinning + (1.0 - thinning) * np.minimum(tau, 1.0)), full))


def _start_s(curves: DecoderCurves, place: Array, reading: _Reading, slots: Array, stay: Array, capacity: Array,
             requests: Array) -> Array:  # fmt: skip
    """When the request at `place` in the queue of a load that is there at once has its first token."""
    rows = curves.rows
    wide = (slice(None), None)
    among = np.minimum(slots, requests)[wide]
    inside = np.minimum(place, among)
    if not rows.varied:
        inside = place - np.floor(np.maximum(place - 1e-9, 0.0) / among) * among
    beside = 0.0 if rows.scheduler.prompts_first else curves.decode_s(np.maximum(inside / 2.0, 1.0))
    per_prompt = reading.mean_s[wide] + rows.prompt[wide] / reading.together[wide] * beside
    begun = inside * per_prompt
    if rows.varied:
        return begun + np.maximum(place - among, 0.0) / capacity[wide]
    return begun + np.floor(np.maximum(place - 1e-9, 0.0) / among) * stay[wide]


def _first_tokens(
    curves: DecoderCurves, load: Load, reading: _Reading, filling: _Reading, most: Array, slots: Array, token: Array,
    capacity: Array, paced: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """(seconds, shares) of the time to the first token: places in line crossed with prompts, (rows x points)."""
    rows, engine = curves.rows, curves.engine
    wide = (slice(None), None)
    closed, finite = np.isfinite(load.users)[wide], np.isfinite(load.requests)[wide]
    place = WAIT_PLACES[None, :]
    # A step is under way when a request comes; then prompts that came before; then a slot.
    wait = np.minimum(most, 1.0)[wide] * token[wide] * place
    arriving = np.minimum(paced, capacity)
    busy = np.minimum(arriving * reading.mean_s, 0.95)
    square = np.sum(reading.each_s**2 * rows.prompt_shares, axis=1)
    queue = arriving * square / (2.0 * (1.0 - busy))
    late = -np.log(1.0 - place)
    wait = wait + np.where(closed, 0.0, queue[wide] * late)
    wait = wait + np.where(closed | finite, 0.0, _slot_wait_s(rows.output * token, arriving / capacity, slots, place))
    wait = wait + np.where(closed, np.maximum(load.users - rows.slots, 0.0)[wide] / capacity[wide], 0.0)
    requests = np.where(finite[:, 0], load.requests, 1.0)[wide]
    number = place * requests + 0.5
    with np.errstate(divide="ignore", invalid="ignore"):
        came = np.where(np.isfinite(load.rate_per_s)[wide], number / load.rate_per_s[wide], 0.0)
        handed = np.where(np.isfinite(paced)[wide], number / paced[wide], 0.0)
    started = _start_s(curves, number, filling, slots, slots / capacity, capacity, requests[:, 0])
    first = _start_s(curves, np.ones_like(number), filling, slots, slots / capacity, capacity, requests[:, 0])
    behind = np.maximum(started - first, handed) - came
    at_start = np.where(closed & (number <= slots[wide]), started - first, 0.0)  # users all begin at once
    wait = wait + np.where(closed, at_start, np.where(finite, np.maximum(behind, 0.0), 0.0))
    own_steps = np.ceil(rows.prompts / reading.together[wide])
    if not rows.scheduler.chunked:
        own_steps = np.ones_like(own_steps)
    others = np.where(closed[:, 0], np.maximum(most - 1.0, 0.0), most)
    beside = np.zeros_like(most) if rows.scheduler.prompts_first else curves.decode_s(others)
    read = own_steps * beside[wide] + reading.each_s + (engine.request_us + engine.reply_us) * 1e-6
    seconds = (wait[:, :, None] + read[:, None, :]).reshape(len(wait), -1)
    shares = (WAIT_SHARES[None, :, None] * rows.prompt_shares[:, None, :]).reshape(len(wait), -1)
    return seconds, shares


def _slot_wait_s(stay: Array, load: Array, slots: Array, place: Array) -> Array:
    """Wait for one of `slots` at `place` of the requests: Sakasegawa 1977 for M/G/c, the rest exponential."""
    used = np.minimum(load, 0.999)
    waits = used ** (np.sqrt(2.0 * (slots + 1.0)) - 1.0)
    mean = waits * stay / (slots * (1.0 - used))
    late = np.log(np.maximum(waits[:, None], 1e-300) / (1.0 - place))
    return np.where(late > 0, late * (mean / np.maximum(waits, 1e-300))[:, None], 0.0)


def _token_points(
    curves: DecoderCurves, load: Load, reading: _Reading, filling: _Reading, most: Array, slots: Array, decode: Array,
    seen_by: Array, entering: Array, queue: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """(seconds, shares) of the time per token after the first: places in line crossed with answers' lengths.

    A step reads the prompts that enter. Where a queue stands, the first requests decode while all others' prompts that
    there are slots for are read, as many a step as its budget takes, and short answers meet little else. Requests in
    flight vary like a Poisson number, of which an answer's whole time averages a third away.
    """
    rows = curves.rows
    wide, deep = (slice(None), None), (slice(None), None, None)
    closed, finite = np.isfinite(load.users), np.isfinite(load.requests)
    standing = finite & queue & ~closed
    answers = np.maximum(rows.outputs, 1.0)[:, None, :]
    number = (WAIT_PLACES[None, :] * np.where(finite, load.requests, 1.0)[wide])[:, :, None]
    filled = np.minimum(np.where(standing, load.requests, 1.0), slots)[deep]
    left = np.maximum(filled - number, 0.0)
    per_step = np.maximum(filling.together / rows.prompt, 1e-9)[deep]
    if rows.scheduler.prompts_first:
        per_step = np.full_like(per_step, np.inf)
    during = np.minimum(left, answers * per_step)
    refill = np.where(load.requests > slots, np.minimum(most, _fed(curves)) / rows.output, 0.0)[deep]
    later = refill * np.maximum(answers - during / per_step, 0.0)
    shortened = np.where(finite, 1.0 - most / (2.0 * np.where(finite, load.requests, 1.0)), 1.0)
    steady = (np.minimum(entering, most / rows.output) * shortened)[deep]
    cost = reading.mean_s[deep]
    read = np.where(standing[deep], (during * filling.mean_s[deep] + later * cost) / answers, steady * cost)
    # What is read during one answer is a Poisson number of prompts, too.
    some = np.where(standing[deep], later, steady * answers)
    read = read + np.sqrt(some) / answers * cost * np.where(standing & rows.varied, 1.0, 0.0)[deep] * _NORMAL[None, :, None]
    varies = np.sqrt(2.0 / 3.0 * seen_by)
    more = curves.decode_s(np.maximum(seen_by + varies, 1.0)) - decode + reading.mean_s * varies / rows.output
    more = np.where(closed | standing, 0.0, more)[wide] * _NORMAL[None, :]
    seconds = decode[deep] + np.maximum(read, 0.0) + more[:, :, None]
    shares = WAIT_SHARES[None, :, None] * rows.output_shares[:, None, :]
    return seconds.reshape(len(decode), -1), np.broadcast_to(shares, seconds.shape).reshape(len(decode), -1)


def _whole(rows: DecoderRows, ttft: tuple[Array, Array], token: Array) -> Spread:
    """First token and the others: answers' lengths crossed with a few first-token times."""
    outputs, shares = rows.outputs, rows.output_shares
    places = (np.arange(TOTALS) + 0.5) / TOTALS
    first = np.stack([_quantile(*ttft, place) for place in places], axis=1)
    first = first + (np.sum(ttft[0] * ttft[1], axis=1) - first.mean(axis=1))[:, None]
    rest = np.maximum(outputs - 1.0, 0.0) * token[:, None]
    seconds = (first[:, :, None] + rest[:, None, :]).reshape(len(token), -1)
    weights = np.broadcast_to(shares[:, None, :] / TOTALS, (len(token), TOTALS, shares.shape[1]))
    return _spread(seconds, weights.reshape(len(token), -1))


def _spread(seconds: Array, shares: Array) -> Spread:
    at = {name: _quantile(seconds, shares, share) for name, share in PERCENTILES.items()}
    return Spread(mean=np.asarray(np.sum(seconds * shares, axis=1)), at=at)


def _quantile(seconds: Array, shares: Array, share: float) -> Array:
    """The weighted quantile of each row, straight lines between the middles of the points' shares."""
    order = np.argsort(seconds, axis=1, kind="stable")
    values = np.take_along_axis(seconds, order, axis=1)
    weights = np.take_along_axis(np.broadcast_to(shares, seconds.shape), order, axis=1)
    middles = np.cumsum(weights, axis=1) - weights / 2.0
    cell = np.clip((middles < share).sum(axis=1), 1, max(values.shape[1] - 1, 1))[:, None]
    if values.shape[1] == 1:
        return values[:, 0]
    low, high = np.take_along_axis(middles, cell - 1, axis=1), np.take_along_axis(middles, cell, axis=1)
    left, right = np.take_along_axis(values, cell - 1, axis=1), np.take_along_axis(values, cell, axis=1)
    along = np.clip((share - low) / np.maximum(high - low, 1e-12), 0.0, 1.0)
    return np.asarray((left + (right - left) * along)[:, 0])


def _makespan(curves: DecoderCurves, requests: Array, slots: Array, reading: _Reading, filling: _Reading) -> Array:
    """Seconds from the first prompt to the last token of a load that is there at once (NaN: endless).

    Steps are full while requests wait, then fewer and fewer run. Answers of one length that start together end
    together, in waves; what they are apart (`stagger`, of an answer's steps) is what it takes to read their prompts.
    """
    rows = curves.rows
    count = np.where(np.isfinite(requests), requests, np.nan)
    among = np.fmin(slots, count)
    answer = np.maximum(rows.output - 1.0, 0.0)
    running = np.minimum(np.where(np.isfinite(among), np.maximum(among, 1.0), 1.0), _fed(curves))
    full = curves.decode_s(running)
    weights = 2.0 * curves.decode_s(np.maximum(np.nan_to_num(among, nan=1.0) / 2.0, 1.0)) - full
    stagger = np.minimum(among * rows.prompt / filling.together / np.maximum(rows.output, 1.0), 1.0)
    spread = _drained_s(curves, among, full, count, answer, running)
    waves = np.ceil(count / among) - 1.0
    together = waves * answer * full + _ending_s(curves, count - waves * among)
    apart = np.where((count > among) & rows.varied, 1.0, stagger)
    steps = (1.0 - apart) * together + apart * spread
    ramp = np.maximum(weights, 0.0) * answer * stagger * (1.0 - 0.5 * apart)
    read = among * filling.mean_s + (count - among) * np.where(rows.varied, reading.mean_s, filling.mean_s)
    return np.asarray(read + steps + ramp)


def _ending_s(curves: DecoderCurves, together: Array) -> Array:
    """Steps of requests that start at the same time, until the longest answer ends."""
    rows = curves.rows
    order = np.argsort(rows.outputs, axis=1)
    lengths = np.maximum(np.take_along_axis(rows.outputs, order, axis=1) - 1.0, 0.0)
    shares = np.take_along_axis(np.broadcast_to(rows.output_shares, rows.outputs.shape), order, axis=1)
    left = 1.0 - np.cumsum(shares, axis=1) + shares  # of the requests, while the i-th length lasts
    steps = np.diff(lengths, axis=1, prepend=0.0)
    running = np.maximum(np.nan_to_num(together, nan=1.0)[:, None] * left, 1.0)
    return np.asarray(np.sum(steps * curves.decode_s(running), axis=1))


def _drained_s(curves: DecoderCurves, among: Array, full: Array, count: Array, answer: Array, running: Array
) -> Array:
    """Full steps, then the last `among` requests, which are anywhere in their answers."""
    rows = curves.rows
    shares = (np.arange(8) + 0.5) / 8.0
    longest = np.maximum(rows.outputs.max(axis=1) - 1.0, 0.0)
    at = longest[:, None] * shares[None, :]
    left = np.maximum(rows.outputs[:, None, :] - 1.0 - at[:, :, None], 0.0)
    fed = running
    running = np.sum(left * np.broadcast_to(rows.output_shares, rows.outputs.shape)[:, None, :], axis=2)
    running = running / np.maximum(answer, 1e-9)[:, None] * np.nan_to_num(among, nan=1.0)[:, None]
    drained = np.sum(running, axis=1) * longest / 8.0  # tokens
    seconds = np.sum(curves.decode_s(running), axis=1) * longest / 8.0
    return np.asarray(np.maximum(count * answer - drained, 0.0) / fed * full + seconds)
