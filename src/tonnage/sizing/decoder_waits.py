"""Times that requests see: first token, each further one, the whole answer; places in line crossed with lengths."""

from __future__ import annotations

from typing import Final

import numpy as np

from tonnage.sizing.decoder_curves import DecoderRows
from tonnage.sizing.decoder_reading import InFlight, fed
from tonnage.sizing.decoder_run import Run
from tonnage.sizing.decoder_seen import NORMAL_PLACES, WAIT_PLACES, WAIT_SHARES, LatencySpread, quantiles, spread_of
from tonnage.sizing.estimates import Array
from tonnage.values import dataclass

TOTALS: Final = 5  # first-token times kept where answers' lengths are crossed with them
MOST_READING: Final = 0.95  # of the time, that prompts may take where their queue is worked out
_WIDE, _DEEP = (slice(None), None), (slice(None), None, None)

Points = tuple[Array, Array]  # seconds and shares of the requests, (rows x points)


def first_tokens(run: Run, token_s: Array) -> Points:
    """Time to the first token: places in line crossed with prompts. `token_s`: time of a step."""
    rows, engine = run.curves.rows, run.curves.engine
    wait = _wait_s(run, token_s)
    most = np.minimum(run.reading.together, rows.step_tokens / rows.data_ranks)  # a prompt is read by one data rank
    own_steps = np.ceil(rows.reads / most[_WIDE]) if rows.scheduler.chunked else 1.0
    beside = np.zeros_like(run.most) if rows.scheduler.prompts_first else run.curves.decode_s(run.beside)
    front_s = rows.scheduler.front_s(engine) - np.where(run.held_s > 0, rows.scheduler.accept_s, 0.0)
    read = own_steps * beside[_WIDE] + run.reading.each_s + front_s[_WIDE] + engine.reply_us * 1e-6
    seconds = (wait[:, :, None] + read[:, None, :]).reshape(len(wait), -1)
    shares = (WAIT_SHARES[None, :, None] * rows.prompt_shares[:, None, :]).reshape(len(wait), -1)
    return seconds, shares


def _wait_s(run: Run, token_s: Array) -> Array:
    """Seconds before a prompt is read, (rows x places): the step under way, prompts before it, a slot, the queue."""
    place = WAIT_PLACES[None, :]
    closed, finite = run.closed[_WIDE], run.finite[_WIDE]
    arriving = np.minimum(run.paced_per_s, run.capacity_per_s)
    busy = np.minimum(arriving * run.reading.mean_s, MOST_READING)
    square = np.sum(run.reading.each_s**2 * run.curves.rows.prompt_shares, axis=1)
    prompts = arriving * square / (2.0 * (1.0 - busy))  # Pollaczek-Khinchine
    wait = np.minimum(run.most, 1.0)[_WIDE] * token_s[_WIDE] * place
    # Before others' prompts: where there is a queue it is counted below; of a short run no more than all others.
    others = np.where(run.finite, np.maximum(run.load.requests - 1.0, 0.0), 0.0)
    before = np.where(run.finite, others * run.reading.mean_s, np.inf)
    met = np.minimum(prompts[_WIDE] * -np.log(1.0 - place), before[_WIDE])
    wait = wait + np.where(closed | run.queue[_WIDE], 0.0, met)
    wait = wait + np.where(closed | finite, 0.0, _slot_wait_s(run.flying, place))
    without = np.maximum(run.load.users - run.curves.rows.slots, 0.0) / run.capacity_per_s
    return wait + np.where(closed, without[_WIDE], 0.0) + _queue_s(run)


def _queue_s(run: Run) -> Array:
    """What a run of so many requests adds: those who come faster than they are answered wait for those before."""
    requests = np.where(run.finite, run.load.requests, 1.0)[_WIDE]
    number = np.minimum(WAIT_PLACES[None, :] * requests + 0.5, np.maximum(requests, 1.0))  # none is after the last
    with np.errstate(divide="ignore", invalid="ignore"):
        came = np.where(np.isfinite(run.load.rate_per_s)[_WIDE], number / run.load.rate_per_s[_WIDE], 0.0)
        handed = np.where(np.isfinite(run.paced_per_s)[_WIDE], number / run.paced_per_s[_WIDE], 0.0)
    started = _start_s(run, number, requests) - _start_s(run, np.ones_like(number), requests)
    held = run.held_s[_WIDE]
    at_start = np.where(number <= run.slots[_WIDE], held + started, 0.0)  # users all begin at once
    behind = np.maximum(held + np.maximum(started, handed) - came, 0.0)
    return np.where(run.closed[_WIDE], at_start, np.where(run.finite[_WIDE], behind, 0.0))


def _start_s(run: Run, place: Array, requests: Array) -> Array:
    """When the request at `place` in the queue of a load that is there at once has its first token.

    Answers of one length end in waves; others all the time.
    """
    rows = run.curves.rows
    among = np.minimum(run.slots[_WIDE], requests)
    waves = np.floor(np.maximum(place - 1e-9, 0.0) / among)
    inside = np.minimum(place, among) if rows.varied else place - waves * among
    beside = 0.0 if rows.scheduler.prompts_first else run.curves.decode_s(np.maximum(inside / 2.0, 1.0))
    each = run.filling.mean_s[_WIDE] + rows.read[_WIDE] / run.filling.together[_WIDE] * beside
    later = np.maximum(place - among, 0.0) if rows.varied else waves * run.slots[_WIDE]
    return inside * each + later / run.capacity_per_s[_WIDE]


def _slot_wait_s(flying: InFlight, place: Array) -> Array:
    """Wait for a slot at `place` of the requests: none for most, exponential for the rest."""
    late = np.log(np.maximum(flying.waits[_WIDE], 1e-300) / (1.0 - place))
    return np.where(late > 0, late * flying.wait_s[_WIDE], 0.0)


def token_points(run: Run) -> Points:
    """Time of a step after the first: places in line crossed with answers' lengths.

    A step reads the prompts that enter. In a queue the first requests decode while all others' prompts that
    there are slots for are read, as many a step as its budget takes, and short answers meet little else. Of what the
    number in flight varies, an answer's whole time averages a third away.
    """
    rows, curves = run.curves.rows, run.curves
    decode = curves.decode_s(np.maximum(run.seen_by, 1.0))
    varies = np.sqrt(2.0 / 3.0) * np.minimum(run.flying.deviation[_WIDE], run.seen_by)
    more = curves.decode_s(np.maximum(run.seen_by + varies, 1.0)) - decode
    more = more + (run.reading.mean_s / rows.answer)[_WIDE] * varies
    more = np.where((run.closed | run.queue)[_WIDE], 0.0, more)[:, None, :] * NORMAL_PLACES[None, :, None]
    seconds = (decode[:, None, :] + np.maximum(_meanwhile_s(run), 0.0)) * run.slower[_DEEP] + more
    shares = WAIT_SHARES[None, :, None] * rows.output_shares[:, None, :]
    return seconds.reshape(len(decode), -1), np.broadcast_to(shares, seconds.shape).reshape(len(decode), -1)


def between_tokens_s(run: Run, points: Points) -> Array:
    """Mean time of a step over all tokens (inter-token latency), from `token_points`: long answers count more."""
    seconds, shares = points
    written = shares * np.tile(run.curves.rows.outputs, (1, len(WAIT_SHARES)))
    return np.asarray(np.sum(seconds * written, axis=1) / np.sum(written, axis=1))


def median_between_tokens_s(run: Run, mean_s: Array) -> Array:
    """Median time of a step over all tokens: one that reads no prompt where most do not, else that of the mean step."""
    rows, met = run.curves.rows, _newcomers(run)
    a_prompt = np.maximum(rows.read / run.filling.together, 1.0)[_DEEP]  # steps
    filled = 0.0 if rows.scheduler.prompts_first else met.during / met.per_step
    reading = (filled + (met.later + met.steady) * a_prompt) / met.answers
    written = WAIT_SHARES[None, :, None] * (rows.output_shares * rows.outputs)[:, None, :]
    of_steps = np.sum(np.minimum(reading, 1.0) * written, axis=(1, 2)) / np.sum(written, axis=(1, 2))
    alone = run.curves.decode_s(np.maximum(run.most, 1.0))
    return np.asarray(np.where(of_steps < 0.5, np.minimum(alone, mean_s), mean_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Newcomers:
    """Prompts that an answer meets on its way, (rows x places x answers): `during` the filling of slots, `per_step` of
    them a step, `later` as others leave, or all along (`steady`)."""

    answers: Array
    per_step: Array
    during: Array
    later: Array
    steady: Array


def _newcomers(run: Run) -> _Newcomers:
    rows, queue = run.curves.rows, run.queue[_DEEP]
    answers = np.maximum(rows.answers, 1.0)[:, None, :]
    requests = np.where(run.finite, run.load.requests, 1.0)
    left = np.maximum(
        np.minimum(requests, run.slots)[_DEEP] - (WAIT_PLACES[None, :] * requests[_WIDE])[:, :, None], 0.0
    )
    per_step = np.full_like(requests, np.inf) if rows.scheduler.prompts_first else run.filling.together / rows.read
    per_step = per_step[_DEEP]
    during = np.minimum(left, answers * per_step)
    refill = np.where(run.load.requests > run.slots, np.minimum(run.most, fed(run.curves)) / rows.answer, 0.0)[_DEEP]
    later = refill * np.maximum(answers - during / per_step, 0.0)
    shortened = np.where(run.finite, 1.0 - run.most / (2.0 * requests), 1.0)
    steady = (np.minimum(run.entering, run.most / rows.answer) * shortened)[_DEEP] * answers
    return _Newcomers(
        answers=answers, per_step=per_step, during=np.where(queue, during, 0.0), later=np.where(queue, later, 0.0),
        steady=np.where(queue, 0.0, steady),
    )  # fmt: skip


def _meanwhile_s(run: Run) -> Array:
    """Seconds a step that prompts take, (rows x places x answers)."""
    met = _newcomers(run)
    cost = run.reading.mean_s[_DEEP]
    filled_s = met.during * np.where(run.queue, run.filling.mean_s, 0.0)[_DEEP]  # may be infinite without one
    read = (filled_s + (met.later + met.steady) * cost) / met.answers
    noise = np.sqrt(met.later) / met.answers * cost * NORMAL_PLACES[None, :, None]  # a Poisson number of prompts
    return np.asarray(read + noise if run.curves.rows.varied else read)


def whole_answers(rows: DecoderRows, ttft: tuple[Array, Array], token: Array) -> LatencySpread:
    """First token and the others: answers' lengths crossed with a few first-token times."""
    outputs, shares = rows.outputs, rows.output_shares
    places = (np.arange(TOTALS) + 0.5) / TOTALS
    first = np.stack(quantiles(*ttft, places.tolist()), axis=1)
    first = first + (np.sum(ttft[0] * ttft[1], axis=1) - first.mean(axis=1))[:, None]
    rest = np.maximum(outputs - 1.0, 0.0) * token[:, None]
    seconds = (first[:, :, None] + rest[:, None, :]).reshape(len(token), -1)
    weights = np.broadcast_to(shares[:, None, :] / TOTALS, (len(token), TOTALS, shares.shape[1]))
    return spread_of(seconds, weights.reshape(len(token), -1))
