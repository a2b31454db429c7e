"""Replicas that only read prompts and replicas that only write answers, from those that do both.

A prompt is read in the first pool, its keys and values go over the link, and the second pool writes the answer: the
time to the first token is the first pool's, the time per token the second's (Zhong et al. 2024, DistServe,
arXiv:2401.09670; Patel et al. 2024, Splitwise, arXiv:2311.18677). Both have the passes, slots and cache of a replica
that does both. Leaves out that keys and values may be sent layer by layer while the prompt is read.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tonnage.sizing.decoder_curves import DecoderCurves
from tonnage.sizing.decoder_loads import serve_load
from tonnage.sizing.decoder_reading import capacity_per_s
from tonnage.sizing.decoder_replicas import request_bytes
from tonnage.sizing.decoder_seen import PERCENTILES, LatencySpread, SeenLoad, quantiles
from tonnage.sizing.devices import Devices
from tonnage.sizing.estimates import Array
from tonnage.sizing.promises import LatencyLimits, endless, largest_rate
from tonnage.sizing.schedulers import UNLIMITED
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRates:
    """Requests a second that one replica of either pool carries within its promise, and whether it keeps it at all."""

    prefill_per_s: Array
    decode_per_s: Array
    kept: np.ndarray


def reading_only(curves: DecoderCurves) -> DecoderCurves:
    """Replicas that read each prompt, write its first token and have nothing in flight."""
    rows = replace(curves.rows, outputs=np.ones_like(curves.rows.outputs), speculation=None)
    return replace(curves, rows=rows, decode_grid_s=np.zeros_like(curves.decode_grid_s))


def writing_only(curves: DecoderCurves) -> DecoderCurves:
    """Replicas whose requests come with their keys and values."""
    rows = replace(curves.rows, step_tokens=np.full_like(curves.rows.step_tokens, float(UNLIMITED)))
    none = np.zeros_like(curves.linear_grid_s)
    return replace(
        curves, rows=rows, linear_grid_s=none, attention_s=np.zeros_like(curves.attention_s), dealt_grid_s=None
    )


def handed_bytes(curves: DecoderCurves, tokens: Array) -> Array:
    """Bytes of keys and values of a prompt of `tokens` that each device hands to its counterpart."""
    return request_bytes(curves.rows, tokens)


def link_bytes_per_s(devices: Devices, one_machine: np.ndarray | bool) -> Array:
    """What each device can send: inside a machine over its link; else its share of the machine's network."""
    return np.where(one_machine, devices.intra_bytes_per_s, devices.inter_bytes_per_s / devices.per_node)


def most_rates(curves: DecoderCurves) -> PoolRates:
    """What replicas of both pools carry at most, whatever is promised."""
    reading, writing = reading_only(curves), writing_only(curves)
    return PoolRates(
        prefill_per_s=capacity_per_s(reading, reading.rows.slots),
        decode_per_s=capacity_per_s(writing, writing.rows.slots), kept=np.ones(len(curves.batches), dtype=bool),
    )  # fmt: skip


def pool_rates(curves: DecoderCurves, limits: LatencyLimits, link: Array) -> PoolRates:
    """What replicas of both pools carry. Each pool keeps its own promise; the first token also waits for the transfer
    over a `link` (bytes a second, a row each) and for the step of the second pool that writes it on; the link carries
    no more prompts than it can."""
    rows = curves.rows
    none = np.full(len(curves.batches), np.inf)
    writing = writing_only(curves)
    longest = handed_bytes(curves, rows.prompts.max(axis=1)) / link
    step = np.where(np.isfinite(limits.tpot_s), limits.tpot_s, writing.decode_s(rows.slots))
    first = LatencyLimits(latency_s=none, ttft_s=np.maximum(limits.ttft_s - longest - step, 0.0), tpot_s=none)
    prefill, reads = largest_rate(reading_only(curves), first)
    decode, writes = largest_rate(writing, LatencyLimits(latency_s=none, ttft_s=none, tpot_s=limits.tpot_s))
    sent = link / np.maximum(handed_bytes(curves, rows.prompt), 1.0)
    known = np.isfinite(longest)
    return PoolRates(
        prefill_per_s=np.minimum(prefill, sent), decode_per_s=np.minimum(decode, sent), kept=reads & writes & known
    )


def seen_in_pools(curves: DecoderCurves, prefill_per_s: Array, decode_per_s: Array, link: Array) -> SeenLoad:
    """What requests see at the rates of one replica of each pool. `link`: bytes a second between the pools."""
    reading = serve_load(reading_only(curves), endless(prefill_per_s))
    writing = serve_load(writing_only(curves), endless(decode_per_s))
    rows = curves.rows
    step = writing.tpot.mean

    def later(spread: LatencySpread) -> LatencySpread:
        prompts = quantiles(rows.prompts, rows.prompt_shares, tuple(PERCENTILES.values()))
        handed = {name: handed_bytes(curves, one) / link for name, one in zip(PERCENTILES, prompts, strict=True)}
        mean = spread.mean + handed_bytes(curves, rows.prompt) / link
        return LatencySpread(
            mean=mean + step, at={name: seconds + handed[name] + step for name, seconds in spread.at.items()}
        )

    ttft = later(reading.ttft)
    more = np.maximum(rows.output - 1.0, 0.0) * writing.tpot.mean
    own = LatencySpread(mean=writing.ttft.mean, at=writing.ttft.at)
    latency = LatencySpread(
        mean=ttft.mean + more,
        at={name: ttft.at[name] + writing.latency.at[name] - own.at[name] for name in PERCENTILES},
    )
    return replace(writing, ttft=ttft, latency=latency)
