"""Seconds that a load of so many requests takes a decoder replica: all at once, or coming at a rate."""

from __future__ import annotations

import numpy as np

from tonnage.sizing.decoder_curves import DecoderCurves
from tonnage.sizing.decoder_reading import fed
from tonnage.sizing.decoder_run import Run
from tonnage.sizing.estimates import Array


def makespan_s(run: Run) -> Array:
    """Seconds from the first prompt to the last token of a load that is there at once (NaN: endless).

    Steps are full while requests wait, then fewer and fewer run. Answers of one length that start together end
    together, in waves; what they are apart (`stagger`, of an answer's steps) is what it takes to read their prompts.
    """
    curves, reading, filling = run.curves, run.reading, run.filling
    rows = curves.rows
    count = np.where(run.finite, run.load.requests, np.nan)
    among = np.fmin(run.slots, count)
    answer = np.maximum(rows.output - 1.0, 0.0) / rows.step_gives
    running = np.minimum(np.where(np.isfinite(among), np.maximum(among, 1.0), 1.0), fed(curves))
    full = curves.decode_s(running)
    weights = 2.0 * curves.decode_s(np.maximum(np.nan_to_num(among, nan=1.0) / 2.0, 1.0)) - full
    stagger = np.minimum(among * rows.read / filling.together / np.maximum(rows.answer, 1.0), 1.0)
    spread = _drained_s(curves, among, full, count, answer, running)
    waves = np.ceil(count / among) - 1.0
    together = waves * answer * full + _ending_s(curves, count - waves * among)
    apart = np.where((count > among) & rows.varied, 1.0, stagger)
    steps = (1.0 - apart) * together + apart * spread
    ramp = np.maximum(weights, 0.0) * answer * stagger * (1.0 - 0.5 * apart)
    read = among * filling.mean_s + (count - among) * np.where(rows.varied, reading.mean_s, filling.mean_s)
    return np.asarray(run.held_s + read + steps + ramp)


def last_answer_s(run: Run, first_s: Array, step_s: Array) -> Array:
    """Seconds until the last of requests that come at a rate is answered; their first tokens take `first_s`, a step
    while more come `step_s` (NaN: endless, infinite where all are there at once).

    No newcomers delay those that are answered after the last has come, and fewer and fewer are in flight. The last to
    end need not be the last to come: of N requests, m of which are of some length or longer, the last such one is
    followed by (N - m) / (m + 1) others on average.
    """
    rows = run.curves.rows
    count = np.where(run.finite, run.load.requests, np.nan)[:, None]
    order = np.argsort(rows.answers, axis=1)
    answers = np.maximum(np.take_along_axis(rows.answers, order, axis=1) - 1.0, 0.0)
    shares = np.take_along_axis(np.broadcast_to(rows.output_shares, rows.answers.shape), order, axis=1)
    longer = count * np.minimum(np.cumsum(shares[:, ::-1], axis=1)[:, ::-1], 1.0)
    every_s = 1.0 / run.paced_per_s[:, None]
    came_s = np.maximum(count - 1.0 - np.maximum(count - longer, 0.0) / (longer + 1.0), 0.0) * every_s
    left_s = np.maximum((count - 1.0) * every_s - came_s - first_s[:, None], 0.0)
    later = np.maximum(answers - left_s / step_s[:, None], 0.0)
    ends_s = came_s + first_s[:, None] + (answers - later) * step_s[:, None] + later * _emptying_s(run, later)
    some = np.where(longer >= np.minimum(1.0, count), ends_s, -np.inf)
    return np.asarray(np.where(np.isfinite(count[:, 0]), some.max(axis=1), np.nan))


def _emptying_s(run: Run, steps: Array) -> Array:
    """Mean time of the next `steps` (rows x any) after the last request has come: answers end, none begin."""
    rows = run.curves.rows
    at = steps[:, :, None] * ((np.arange(8) + 0.5) / 8.0)
    left = np.maximum(rows.answers[:, None, None, :] - at[..., None], 0.0)
    share = np.sum(left * rows.output_shares[:, None, None, :], axis=3) / rows.answer[:, None, None]
    running = np.minimum(run.most, fed(run.curves))[:, None, None] * share
    return np.asarray(run.curves.decode_s(np.maximum(running, 1.0)).mean(axis=2))


def _ending_s(curves: DecoderCurves, together: Array) -> Array:
    """Steps of requests that start at the same time, until the longest answer ends."""
    rows = curves.rows
    order = np.argsort(rows.outputs, axis=1)
    lengths = np.maximum(np.take_along_axis(rows.outputs, order, axis=1) - 1.0, 0.0) / rows.step_gives
    shares = np.take_along_axis(np.broadcast_to(rows.output_shares, rows.outputs.shape), order, axis=1)
    left = 1.0 - np.cumsum(shares, axis=1) + shares  # of the requests, while the i-th length lasts
    steps = np.diff(lengths, axis=1, prepend=0.0)
    running = np.nan_to_num(together, nan=1.0)[:, None] * left  # below one: the share of runs that have such a length
    return np.asarray(np.sum(steps * curves.decode_s(running), axis=1))


def _drained_s(curves: DecoderCurves, among: Array, full: Array, count: Array, answer: Array, running: Array) -> Array:
    """Full steps, then the last `among` requests, which are anywhere in their answers."""
    rows = curves.rows
    shares = (np.arange(8) + 0.5) / 8.0
    longest = np.maximum(rows.outputs.max(axis=1) - 1.0, 0.0) / rows.step_gives
    at = longest[:, None] * shares[None, :]
    left = np.maximum((rows.outputs[:, None, :] - 1.0) / rows.step_gives - at[:, :, None], 0.0)
    fed = running
    running = np.sum(left * np.broadcast_to(rows.output_shares, rows.outputs.shape)[:, None, :], axis=2)
    running = running / np.maximum(answer, 1e-9)[:, None] * np.nan_to_num(among, nan=1.0)[:, None]
    drained = np.sum(running, axis=1) * longest / 8.0  # tokens
    seconds = np.sum(curves.decode_s(running), axis=1) * longest / 8.0
    return np.asarray(np.maximum(count * answer - drained, 0.0) / fed * full + seconds)
