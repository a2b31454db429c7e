"""What requests see on decoder replicas under a load, in closed form: all at once, offered at a rate, or from users.

In flight: B requests. Each gives one token a step of D(B) seconds; a step also reads what prompts arrive. A request
that writes O tokens meets as many newcomers as are in flight, so with x seconds a prompt a token takes
y = D(B) + (B / O)·x, and a replica answers X(B) = B / (O·y) requests a second (Little's law). At a rate r, B follows
from X (`in_flight_at`); above X(most in flight) requests queue. Checked against the event simulation in
docs/decisions/serving-simulation.md.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from tonnage.sizing.decoder_curves import DecoderCurves
from tonnage.sizing.decoder_makespan import last_answer_s, makespan_s
from tonnage.sizing.decoder_reading import States
from tonnage.sizing.decoder_run import Run, settle
from tonnage.sizing.decoder_seen import PERCENTILES, DecoderLoad, LatencySpread, Seen, SeenLoad, p95_of, spread_of
from tonnage.sizing.decoder_waits import (
    between_tokens_s,
    first_tokens,
    median_between_tokens_s,
    token_points,
    whole_answers,
)
from tonnage.sizing.estimates import Array


def serve_load(curves: DecoderCurves, load: DecoderLoad, states: States | None = None) -> SeenLoad:
    """What the requests of `load` see on each row. `states`: of these curves, where they are at hand."""
    if curves.rows.scheduler.admission == "fixed":
        return _fixed_batch(curves, load)
    run = settle(curves, load, states)
    steps, shares = token_points(run)
    step = np.asarray(np.sum(steps * shares, axis=1))
    each = between_tokens_s(run, (steps, shares))
    ttft = first_tokens(run, step)
    given = curves.rows.step_gives
    tokens = steps / given, shares
    latency = whole_answers(curves.rows, ttft, step / given)
    makespan = _until_last(run, latency, np.sum(ttft[0] * ttft[1], axis=1), each)
    rate = np.where(run.finite, load.requests / makespan, np.minimum(run.paced_per_s, run.capacity_per_s))
    return SeenLoad(
        requests_per_s=rate, capacity_per_s=run.capacity_per_s, in_flight=run.most, makespan_s=makespan,
        ttft=spread_of(*ttft), tpot=spread_of(*tokens), latency=latency, between_tokens_s=each / given,
        median_between_tokens_s=median_between_tokens_s(run, each) / given,
    )  # fmt: skip


def p95_seen(
    curves: DecoderCurves, load: DecoderLoad, of: Collection[Seen], states: States | None = None
) -> dict[Seen, Array]:
    """95th percentiles of the times asked for, seconds, as `serve_load` says them, and nothing else: a search for the
    largest load within promises asks many times, with the `states` of these curves at hand."""
    if curves.rows.scheduler.admission == "fixed":
        seen = serve_load(curves, load)
        return {name: getattr(seen, name).at["p95"] for name in of}
    run = settle(curves, load, states)
    steps, shares = token_points(run)
    found: dict[Seen, Array] = {}
    if "tpot" in of:
        found["tpot"] = p95_of(steps / curves.rows.step_gives, shares)
    if "ttft" not in of and "latency" not in of:
        return found
    step = np.asarray(np.sum(steps * shares, axis=1))
    ttft = first_tokens(run, step)
    if "ttft" in of:
        found["ttft"] = p95_of(*ttft)
    if "latency" in of:
        found["latency"] = whole_answers(curves.rows, ttft, step / curves.rows.step_gives).at["p95"]
    return found


def _until_last(run: Run, latency: LatencySpread, first: Array, step: Array) -> Array:
    """From the first request to the last answer: what the work takes, or until the last has come and is answered. Users
    who all have a slot leave it while the front end works on their next request. `first`, `step`: seconds of the mean
    first token and of the mean step of all tokens."""
    work = makespan_s(run)
    latest = np.where(run.finite, np.maximum(run.load.requests - 1.0, 0.0), 0.0) / run.paced_per_s + latency.mean
    paced = np.isfinite(run.load.rate_per_s) & run.finite
    if paced.any():
        latest = np.where(paced, last_answer_s(run, first, step), latest)
    front_s = run.curves.rows.scheduler.front_s(run.curves.engine) + run.curves.engine.reply_us * 1e-6
    leave = run.load.users <= run.curves.rows.slots
    turns = np.where(leave, run.load.requests, 0.0) / np.where(leave, run.load.users, 1.0)
    return np.where(run.closed, work + turns * front_s, np.maximum(work, latest))


def _fixed_batch(curves: DecoderCurves, load: DecoderLoad) -> SeenLoad:
    """One batch from its prompts to its last token: everyone waits for all prompts, then for all steps."""
    rows = curves.rows
    batch = rows.slots
    read = curves.linear_s(batch * rows.read) + batch * curves.attention_mean_s
    token = curves.decode_s(batch) / rows.step_gives
    longest = rows.outputs.max(axis=1)
    latency = read + np.maximum(longest - 1.0, 0.0) * token

    def alike(seconds: Array) -> LatencySpread:
        return LatencySpread(mean=seconds, at=dict.fromkeys(PERCENTILES, seconds))

    batches = np.where(np.isfinite(load.requests), np.ceil(load.requests / batch), 1.0)
    requests = np.where(np.isfinite(load.requests), load.requests, batch)
    return SeenLoad(
        requests_per_s=requests / (batches * latency), capacity_per_s=batch / latency, in_flight=batch,
        makespan_s=batches * latency, ttft=alike(read), tpot=alike(token), latency=alike(latency),
        between_tokens_s=token, median_between_tokens_s=token,
    )  # fmt: skip
