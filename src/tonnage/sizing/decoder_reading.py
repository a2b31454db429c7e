"""Prompts in the steps of a decoder replica: what they add, and the requests in flight and a second that follow."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tonnage.sizing.decoder_curves import DecoderCurves, DecoderRows
from tonnage.sizing.estimates import Array
from tonnage.sizing.schedulers import UNLIMITED
from tonnage.values import dataclass

FEW, MANY = 24, 28  # points of the number in flight: one by one, then in equal ratios
MOST_USED = 0.999  # of the capacity, in an endless load
DECODES_SHARE: Final = 0.9  # of a step's tokens that prompts take where they take most


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptReading:
    """Prompts beside `in_flight` decodes: tokens read together and the seconds of the mean prompt and of each."""

    together: Array
    mean_s: Array
    each_s: Array  # (rows x prompts)


def capacity_per_s(curves: DecoderCurves, in_flight: Array) -> Array:
    """Requests a second that `in_flight` at all times finish: B / (O · y), at most what the front end hands over."""
    rows = curves.rows
    lift = (slice(None),) + (None,) * (in_flight.ndim - 1)
    output = rows.answer[lift]
    in_flight = np.minimum(in_flight, fed(curves)[lift])
    step = curves.decode_s(in_flight)
    together = read_together(curves, in_flight / output * rows.read[lift], in_flight)
    attention = curves.attention_mean_s[lift] / read_at_once(rows, together)
    read = curves.read_token_s(in_flight, together) * rows.read[lift] + attention
    rate = in_flight / (output * step + in_flight * read)
    return np.minimum(rate, 1.0 / max(rows.scheduler.front_s(curves.engine), 1e-12))


def read_at_once(rows: DecoderRows, together: Array) -> Array:
    """Prompts whose attention runs at the same time in a step that reads `together`: one a data rank at most."""
    lift = (-1,) + (1,) * (together.ndim - 1)
    ranks = np.asarray(rows.data_ranks, dtype=np.float64).reshape(lift)
    return np.asarray(np.clip(together / rows.read.reshape(lift), 1.0, ranks))


def fed(curves: DecoderCurves) -> Array:
    """Requests that can decode at a time if every step reads as many prompts as its budget takes; others are read."""
    rows = curves.rows
    return np.asarray(np.maximum(rows.answer * np.maximum(DECODES_SHARE * rows.step_tokens / rows.read, 0.01), 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """Requests in flight at an offered rate: mean and standard deviation, and the wait of those who find no slot."""

    mean: Array
    deviation: Array
    waits: Array  # share of requests that find all slots taken
    wait_s: Array  # their mean wait


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """Numbers in flight that a replica may be in, (rows x states), none first: whatever the rate is."""

    number: Array
    log_service: Array  # logarithm of X(1)·...·X(n)
    width: Array  # numbers in flight that a state stands for
    most_per_s: Array  # X(slots), a row each

    def take(self, index: NDArray[np.intp]) -> States:
        """Those of some rows."""
        return States(
            number=self.number[index], log_service=self.log_service[index], width=self.width[index],
            most_per_s=self.most_per_s[index],
        )  # fmt: skip


def states_of(curves: DecoderCurves) -> States:
    """One by one up to a few in flight, then in equal ratios to all slots."""
    slots = np.maximum(curves.rows.slots, 1.0)
    none = np.zeros((len(slots), 1))
    few = np.broadcast_to(np.arange(1.0, FEW + 1.0), (len(slots), FEW))
    many = np.maximum(slots / FEW, 1.0)[:, None] ** (np.arange(1, MANY + 1) / MANY) * FEW
    number = np.minimum(np.concatenate([few, many], axis=1), slots[:, None])
    rates = np.maximum.accumulate(capacity_per_s(curves, number), axis=1)
    step = np.diff(number, axis=1, prepend=0.0)
    logs = np.log(rates)
    before = np.concatenate([logs[:, :1], logs[:, :-1]], axis=1)
    slower = np.cumsum(step * (logs + before) / 2.0 + np.where(step > 0, (logs - before) / 2.0, 0.0), axis=1)
    after = np.concatenate([step[:, 1:], none], axis=1)
    width = (step + after) / 2.0 + (step <= 1.0) * (step - after) / 2.0
    return States(
        number=np.concatenate([none, number], axis=1), log_service=np.concatenate([none, slower], axis=1),
        width=np.maximum(np.concatenate([none + 1.0, width], axis=1), 0.0), most_per_s=rates[:, -1],
    )  # fmt: skip


def in_flight_at(states: States, rate_per_s: Array) -> InFlight:
    """Requests in flight when they come at random times at a rate, each slowing the others down.

    A processor-sharing queue whose service rate is X(n) with n in flight: P(n) ~ r^n / (X(1)·...·X(n)), whatever the
    distribution of lengths (Baskett, Chandy, Muntz, Palacios 1975); beyond the slots requests queue at X(slots). At or
    above X(slots) all slots are taken.
    """
    rate, number, top = np.asarray(rate_per_s, dtype=np.float64), states.number, states.most_per_s
    slots = number[:, -1]
    used = np.minimum(rate / top, MOST_USED)
    log_weight = number * np.log(used * top)[:, None] - states.log_service
    highest = log_weight.max(axis=1)
    weight = np.exp(log_weight - highest[:, None]) * states.width
    last = np.exp(log_weight[:, -1] - highest)
    queued = last * used / (1.0 - used)  # states beyond the slots
    total = weight.sum(axis=1) + queued
    mean = ((weight * number).sum(axis=1) + queued * slots) / total
    square = ((weight * number**2).sum(axis=1) + queued * slots**2) / total
    full = rate >= top
    return InFlight(
        mean=np.where(full, slots, mean), deviation=np.where(full, 0.0, np.sqrt(np.maximum(square - mean**2, 0.0))),
        waits=(last + queued) / total, wait_s=1.0 / (top * (1.0 - used)),
    )  # fmt: skip


def read_together(curves: DecoderCurves, wanted: Array, in_flight: Array) -> Array:
    """Prompt tokens read in one step where `wanted` come: whole prompts, or chunks that the step's budget leaves."""
    rows = curves.rows
    lift = (slice(None),) + (None,) * (wanted.ndim - 1)
    prompt, longest = rows.read[lift], rows.reads.max(axis=1)[lift]
    budget = rows.step_tokens[lift]
    room = np.maximum(budget - (0.0 if rows.scheduler.prompts_first else in_flight * rows.verified), 0.25 * budget)
    if not rows.scheduler.chunked:
        room = np.maximum(room, np.minimum(longest, prompt))
    return np.maximum(np.minimum(np.maximum(wanted, prompt), room), 1.0)


def read_prompts(curves: DecoderCurves, in_flight: Array, newcomers: Array) -> PromptReading:
    """`newcomers`: prompts a step."""
    rows = curves.rows
    wanted = np.minimum(newcomers * rows.read, UNLIMITED)
    together = read_together(curves, wanted, in_flight)
    token = curves.read_token_s(in_flight, together)
    at_once = read_at_once(rows, together)
    each = token[:, None] * rows.reads + curves.attention_s / at_once[:, None]
    return PromptReading(together=together, mean_s=token * rows.read + curves.attention_mean_s / at_once, each_s=each)
