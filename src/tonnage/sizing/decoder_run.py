"""A load on a decoder replica, settled: how many are in flight, how fast they come, what a step reads of prompts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tonnage.sizing.decoder_curves import DecoderCurves, DecoderRows
from tonnage.sizing.decoder_reading import (
    InFlight,
    PromptReading,
    States,
    capacity_per_s,
    fed,
    in_flight_at,
    read_prompts,
    states_of,
)
from tonnage.sizing.decoder_seen import DecoderLoad
from tonnage.sizing.estimates import Array
from tonnage.values import dataclass

Flags = NDArray[np.bool_]
FASTEST_PER_S = 1e12  # stands for all at once where a number is needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Columns of one load. `most`: in flight at the fullest; `seen_by`: as requests with each answer meet them
    on average (rows x answers).

    `paced_per_s`: the rate at which the scheduler gets requests, past the front end; `entering`: prompts a step. While
    there is a queue, steps are filled with prompts (`filling`); later they read what enters (`reading`). `slower`: time
    per token over that of the mean number in flight, since more are met where there are more.
    """

    curves: DecoderCurves
    load: DecoderLoad
    slots: Array
    capacity_per_s: Array
    paced_per_s: Array
    flying: InFlight
    most: Array
    seen_by: Array
    entering: Array
    reading: PromptReading
    filling: PromptReading
    slower: Array

    @property
    def held_s(self) -> Array:
        """Seconds in which a front end that takes turns accepts all that come at once, before any goes on."""
        together = np.where(np.isfinite(self.load.rate_per_s), 0.0, np.where(self.finite, self.load.requests, 0.0))
        return np.minimum(together, self.load.users) * self.curves.rows.scheduler.accept_s

    @property
    def closed(self) -> Flags:
        """Users who each wait for an answer."""
        return np.isfinite(self.load.users)

    @property
    def finite(self) -> Flags:
        return np.isfinite(self.load.requests)

    @property
    def queue(self) -> Flags:
        """Requests come faster than they are answered, for as long as they come."""
        return self.finite & (self.paced_per_s > self.capacity_per_s) & ~self.closed

    @property
    def beside(self) -> Array:
        """Others in flight while a request is read."""
        return np.where(self.closed, np.maximum(self.most - 1.0, 0.0), self.most)


def settle(curves: DecoderCurves, load: DecoderLoad, states: States | None = None) -> Run:
    """The run of `load`. `states`: of these curves, where they are at hand (a search asks for many loads)."""
    rows = curves.rows
    slots = np.minimum(rows.slots, load.users)
    capacity, closed = capacity_per_s(curves, slots), np.isfinite(load.users)
    at_once = np.isinf(load.rate_per_s) & np.isfinite(load.requests)
    front_s = rows.scheduler.front_s(curves.engine) - np.where(at_once, rows.scheduler.accept_s, 0.0)
    offered = np.minimum(load.rate_per_s, 1.0 / np.maximum(front_s, 1e-12))
    paced = np.where(closed, capacity, offered)
    flying = in_flight_at(states or states_of(curves), np.minimum(paced, FASTEST_PER_S))
    most = np.minimum(np.where(closed, slots, np.minimum(flying.mean, slots)), load.requests)
    refill = read_prompts(curves, most, most / rows.answer)
    step = curves.decode_s(np.maximum(most, 1.0)) + most / rows.answer * refill.mean_s
    # Newcomers a step: what leaves makes room for them; all that come where there are slots for all.
    limited = ((load.requests > slots) & rows.varied) | closed | (paced < capacity)
    entering = np.where(limited, np.minimum(paced, capacity), paced) * step
    beside = np.minimum(np.where(closed, np.maximum(most - 1.0, 0.0), most), fed(curves))
    seen_by = np.minimum(_overlap(rows, load.requests, most, paced, step * rows.answer, closed), fed(curves)[:, None])
    steady = np.isfinite(paced) & ~closed & (paced < capacity)
    by_little = most / (np.where(steady, paced, 1.0) * rows.answer)
    return Run(
        curves=curves, load=load, slots=slots, capacity_per_s=capacity, paced_per_s=paced, flying=flying, most=most,
        seen_by=seen_by, entering=entering, reading=read_prompts(curves, beside, entering),
        filling=read_prompts(curves, beside / 2.0, np.full_like(beside, np.inf)),
        slower=np.where(steady & (load.requests > most), np.maximum(by_little / step, 1.0), 1.0),
    )  # fmt: skip


def _overlap(rows: DecoderRows, requests: Array, most: Array, paced: Array, stay: Array, closed: Flags) -> Array:
    """Requests in flight as a request meets them on average, (rows x answers): fewer than at the fullest moment of a
    short run.

    Two of N requests that start within a time T = τ·W of one another's stay W overlap by 1 - τ/3 of it (τ <= 1), or
    (1 - 1/(3τ)) / τ; all at once, only the longer answers thin out, which meet each other alone in the end.
    """
    outputs, shares = rows.outputs, rows.output_shares
    both = np.minimum(outputs[:, :, None], outputs[:, None, :])
    thinning = np.einsum("rlm,rm,rl->rl", both, shares, 1.0 / outputs)
    with np.errstate(divide="ignore", invalid="ignore"):
        tau = np.where(np.isfinite(requests), requests / (paced * stay), np.inf)
        short = most * (1.0 - np.minimum(tau, 1.0) / 3.0)
        long = most * (1.0 - np.where(np.isfinite(tau), most / (3.0 * requests), 0.0))
    single = (tau < 1.0) & (requests <= most + 0.5)
    full = np.where((requests > most + 0.5) & (tau < 1.0), most, long)
    thinned = short[:, None] * (thinning + (1.0 - thinning) * np.minimum(tau, 1.0)[:, None])
    return np.where(closed[:, None], most[:, None], np.where(single[:, None], thinned, full[:, None]))
