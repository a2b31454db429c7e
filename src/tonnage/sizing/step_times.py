"""Seconds of a server's steps, looked up: the sizing formulas evaluated once on a grid, then interpolated.

A simulation asks for millions of steps; nothing here calls numpy once the tables are made. A mixed step of B decoding
requests at mean context C and prompt chunks (p_i new tokens, k_i in all) takes

    D(B, C) + [L(B + Σp) - L(B)] + Σ A(p_i, k_i)

D: a decode step (weights, keys and values, what the engine adds to a call); D(0) = 0. L: one pass over n tokens with
next to no attention; L(0) = 0. So the bracket is what the prompt tokens add where weights are read for the decodes
anyway (0 while weights bound the pass, their compute once it binds). A: attention of a chunk, which looks at
p·(k - p/2) pairs. With B = 0 this is a prefill.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from tonnage.sizing.devices import Devices
from tonnage.sizing.engines import Engine
from tonnage.sizing.estimates import Array, distinct
from tonnage.sizing.inference_pass import PassWork, decoder_only, pass_s, pass_work
from tonnage.sizing.inference_time import forward_s
from tonnage.sizing.served_formats import FORMATS, ServedFormat
from tonnage.values import dataclass
from tonnage.workload.shapes import ModelShape

Row = list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderTimes:
    """Step times of a decoder replica.

    `decode_s[b][i]`: a decode step of b requests at a mean context of `contexts[i]` tokens (row 0 is zero, of a
    step without decodes); `linear_s[n]`: one pass over n tokens; `attention_s[i][j]`: attention of `chunks[i]` new
    tokens over an equivalent of `keys[j]` keys.
    """

    contexts: Row
    decode_s: list[Row]
    linear_s: Row
    chunks: Row
    keys: Row
    attention_s: list[Row]

    @property
    def most_requests(self) -> int:
        return len(self.decode_s) - 1

    @property
    def most_tokens(self) -> int:
        return len(self.linear_s) - 1

    def decode_step_s(self, requests: int, context_tokens: float) -> float:
        """Seconds of a decode step, linear between the table's contexts."""
        row, grid = self.decode_s[requests], self.contexts
        cell = min(max(bisect_right(grid, context_tokens) - 1, 0), len(grid) - 2)
        share = (context_tokens - grid[cell]) / (grid[cell + 1] - grid[cell])
        return row[cell] + (row[cell + 1] - row[cell]) * share

    def chunk_attention_s(self, new_tokens: int, all_tokens: int) -> float:
        """Seconds of attention of the last `new_tokens` of `all_tokens`; bilinear, as p·k is."""
        across, along = self.chunks, self.keys
        keys = 2.0 * all_tokens - new_tokens  # half of p·(2k - p) is p·(k - p/2), the pairs a causal chunk sees
        i = min(max(bisect_right(across, new_tokens) - 1, 0), len(across) - 2)
        j = min(max(bisect_right(along, keys) - 1, 0), len(along) - 2)
        u = (new_tokens - across[i]) / (across[i + 1] - across[i])
        v = (keys - along[j]) / (along[j + 1] - along[j])
        low, high = self.attention_s[i], self.attention_s[i + 1]
        near = low[j] + (low[j + 1] - low[j]) * v
        return near + (high[j] + (high[j + 1] - high[j]) * v - near) * u


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderTimes:
    """`batch_s[b - 1][i]`: seconds of a batch of b requests padded to `lengths[i]` tokens, linear in between."""

    lengths: Row
    batch_s: list[Row] = field(default_factory=list)

    @property
    def most_requests(self) -> int:
        return len(self.batch_s)

    def service_s(self, requests: int, longest_tokens: float) -> float:
        row, grid = self.batch_s[requests - 1], self.lengths
        cell = min(max(bisect_right(grid, longest_tokens) - 1, 0), len(grid) - 2)
        share = (longest_tokens - grid[cell]) / (grid[cell + 1] - grid[cell])
        return row[cell] + (row[cell + 1] - row[cell]) * share


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSteps:
    """The passes whose seconds fill a decoder's tables, laid out once: another engine's figures need no new layout."""

    batches: Array
    contexts: Array
    counts: Array
    chunks: Array
    keys: Array
    decode: PassWork
    passes: PassWork  # tokens with one key each, then chunks x keys, then chunks with one key each
    most_requests: int
    most_tokens: int

    @classmethod
    def lay_out(
        cls,
        shape: ModelShape,
        devices: Devices,
        served: ServedFormat,
        engine: Engine,
        *,
        tensor_parallel: float,
        most_requests: int,
        most_tokens: int,
        longest_tokens: int,
        coarse: float = 1.0,
    ) -> DecoderSteps:
        """Grid for up to `most_requests` decoding, `most_tokens` new tokens a step, `longest_tokens` in a request.

        `devices` holds one row. Grid steps are a factor of 2 (contexts, keys), 1.41 (requests) and 1.19 (tokens), to
        the power `coarse`.
        """
        batches, contexts = _grid(most_requests, 2 ** (0.5 * coarse)), _grid(longest_tokens, 2.0**coarse)
        counts, chunks = _grid(most_tokens, 2 ** (0.25 * coarse)), _grid(most_tokens, 2.0**coarse)
        keys = _grid(2 * longest_tokens, 2.0**coarse)

        def work(shape: ModelShape, batch: Array, query: Array, keys: Array, logits: Array) -> PassWork:
            rows = np.zeros(len(batch), dtype=np.intp)
            return pass_work(
                shape, devices.take(rows), served, engine, batch=batch, query=query, keys=keys,
                tensor_parallel=np.full(len(rows), tensor_parallel), logit_tokens=logits,
            )  # fmt: skip

        b, c = (grid.ravel() for grid in np.meshgrid(batches, contexts, indexing="ij"))
        p, k = (grid.ravel() for grid in np.meshgrid(chunks, keys, indexing="ij"))
        query = np.concatenate([counts, p, chunks])
        over = np.concatenate([np.ones(len(counts)), k, np.ones(len(chunks))])
        one = np.ones(len(query))
        return cls(
            batches=batches, contexts=contexts, counts=counts, chunks=chunks, keys=keys,
            decode=work(decoder_only(shape), b, np.ones(len(b)), c, b), passes=work(shape, one, query, over, one),
            most_requests=most_requests, most_tokens=most_tokens,
        )  # fmt: skip

    def times(self, engine: Engine) -> DecoderTimes:
        """The tables under `engine`."""
        steps = pass_s(self.decode, engine).reshape(len(self.batches), len(self.contexts))
        seconds = pass_s(self.passes, engine)
        tokens, over, least = np.split(seconds, [len(self.counts), len(seconds) - len(self.chunks)])
        attention = np.maximum(over.reshape(len(self.chunks), len(self.keys)) - least[:, None], 0.0)
        every = np.arange(1.0, self.most_requests + 1.0)
        decode = np.stack([np.interp(every, self.batches, steps[:, i]) for i in range(len(self.contexts))], axis=1)
        linear = np.interp(np.arange(1.0, self.most_tokens + 1.0), self.counts, tokens)
        return DecoderTimes(
            contexts=self.contexts.tolist(),
            decode_s=[[0.0] * len(self.contexts), *decode.tolist()],
            linear_s=[0.0, *linear.tolist()],
            chunks=self.chunks.tolist(),
            keys=self.keys.tolist(),
            attention_s=attention.tolist(),
        )


def decoder_times(
    shape: ModelShape,
    devices: Devices,
    *,
    weights: str,
    engine: Engine,
    tensor_parallel: float,
    most_requests: int,
    most_tokens: int,
    longest_tokens: int,
) -> DecoderTimes:
    """Tables for `engine`; against the formulas themselves they err by less than 2 % (tested)."""
    steps = DecoderSteps.lay_out(
        shape, devices, FORMATS[weights], engine, tensor_parallel=tensor_parallel, most_requests=most_requests,
        most_tokens=most_tokens, longest_tokens=longest_tokens,
    )  # fmt: skip
    return steps.times(engine)


def encoder_times(
    shape: ModelShape,
    devices: Devices,
    *,
    weights: str,
    engine: Engine,
    tensor_parallel: float,
    most_requests: int,
    longest_tokens: int,
) -> EncoderTimes:
    """Tables for batches of up to `most_requests` requests of up to `longest_tokens` tokens; one row of `devices`."""
    batches, lengths = _grid(most_requests, 2**0.5), _grid(longest_tokens, 2**0.5)
    b, n = (grid.ravel() for grid in np.meshgrid(batches, lengths, indexing="ij"))
    seconds = forward_s(
        shape, devices.take(np.zeros(len(b), dtype=np.intp)), batch=b, query=n, keys=n, weights=weights,
        tensor_parallel=np.full(len(b), tensor_parallel), engine=engine,
    ).reshape(len(batches), len(lengths))  # fmt: skip
    every = np.arange(1.0, most_requests + 1.0)
    table = np.stack([np.interp(every, batches, seconds[:, i]) for i in range(len(lengths))], axis=1)
    return EncoderTimes(lengths=lengths.tolist(), batch_s=table.tolist())


def _grid(most: int, ratio: float) -> NDArray[np.float64]:
    """Whole numbers from 1 to `most`, each about `ratio` times the last; at least two of them."""
    most = max(most, 2)
    points = np.rint(ratio ** np.arange(int(np.log(most) / np.log(ratio)) + 1))
    return distinct(np.append(points, float(most)))
