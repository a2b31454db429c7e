"""Step times of many decoder replicas at once, as curves over requests in flight and tokens read: one row a replica.

A step with B requests at their mean context takes D(B); reading t prompt tokens in it adds L(B + t) - L(B), since the
weights are read once for both, and the attention of each prompt. The passes are laid out once (`lay_out_decoder`); an
engine's figures give their seconds (`DecoderPasses.under`). Between grid points the curves are straight.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tonnage.sizing.devices import Devices
from tonnage.sizing.engines import Engine
from tonnage.sizing.estimates import Array, Num
from tonnage.sizing.inference_pass import PassWork, decoder_only, pass_s, pass_work
from tonnage.sizing.kv_pool import windowed
from tonnage.sizing.operators import Operator
from tonnage.sizing.schedulers import UNLIMITED, Scheduler
from tonnage.sizing.served_formats import ServedFormat
from tonnage.values import dataclass
from tonnage.workload.jobs import Speculation
from tonnage.workload.shapes import ModelShape

BATCH_POINTS: Final = 12
TOKEN_POINTS: Final = 14
# What hypotheses of one request share of the cache comes out of the L2 cache but once: it is read side by side. L2 over
# memory bandwidth as printed: H100 2.7, V100 3.5, A100-40GB 4.6 (doi:10.1016/j.ultsonch.2023.106546, Table 3).
L2_OVER_MEMORY: Final = 2.7


_ROW_COLUMNS: Final = ("tensor_parallel", "host_factor", "slots", "step_tokens", "prompts", "prompt_shares", "outputs",
                       "output_shares", "beams", "data_ranks", "expert_parallel", "read_bytes", "cache_fraction",
                       "built")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderRows:
    """What is on each row, before any engine's figures. Lengths and their shares are (rows x points).

    `slots`: most requests in flight, any number from 1; `step_tokens`: most tokens of one step.
    """

    shape: ModelShape
    served: ServedFormat
    scheduler: Scheduler
    devices: Devices
    tensor_parallel: Array
    host_factor: Array
    slots: Array
    step_tokens: Array
    prompts: Array
    prompt_shares: Array
    outputs: Array
    output_shares: Array
    beams: Array | float = 1.0  # hypotheses that each request carries
    cached: float = 0.0  # share of every prompt whose keys and values are there already
    speculation: Speculation | None = None
    data_ranks: Array | float = 1.0  # groups of `tensor_parallel` devices with requests and a cache of their own
    expert_parallel: Array | float = 1.0  # devices that experts are dealt to whole
    read_bytes: Array | float = 0.0  # activations that each request of a fixed batch adds while the prompts are read
    workspace_bytes: float = 0.0  # what the engine keeps beside weights, cache and activations
    cache_fraction: Array | float = 0.0  # of free memory that the cache was given; 0: the engine's default
    built: Array | float = 0.0  # 1: a TensorRT engine, built for its requests

    def on_rank(self, tokens: Array) -> Array:
        """Tokens of one step that the busiest data rank reads of `tokens` in all: a prompt is on one."""
        lift = (-1,) + (1,) * (tokens.ndim - 1)
        ranks = np.asarray(self.data_ranks, dtype=np.float64).reshape(lift)
        whole = np.minimum(tokens, self.read.reshape(lift)) if np.any(ranks > 1.0) else 0.0
        return np.where(ranks > 1.0, np.maximum(tokens / ranks, whole), tokens)

    def take(self, index: NDArray[np.intp]) -> DecoderRows:
        """Some rows, as often as they are named."""
        columns = {name: getattr(self, name) for name in _ROW_COLUMNS}
        taken = {name: value if np.ndim(value) == 0 else value[index] for name, value in columns.items()}
        return replace(self, devices=self.devices.take(index), **taken)

    @property
    def verified(self) -> float:
        """Tokens of a request that go through a step: its last one and the guesses behind it."""
        return 1.0 if self.speculation is None else self.speculation.rows

    @property
    def step_gives(self) -> float:
        """Tokens that a step gives each request."""
        return 1.0 if self.speculation is None else self.speculation.tokens_per_step

    @property
    def answers(self) -> Array:
        """Steps that each answer takes."""
        return np.asarray(self.outputs / self.step_gives)

    @property
    def answer(self) -> Array:
        return np.asarray(self.output / self.step_gives)

    @property
    def reads(self) -> Array:
        """Tokens of each prompt that are read: those not cached, one at least, for its output starts the answer."""
        return np.maximum(self.prompts * (1.0 - self.cached), 1.0) if self.cached else self.prompts

    @property
    def read(self) -> Array:
        return np.asarray(np.sum(self.reads * self.prompt_shares, axis=1))

    @property
    def prompt(self) -> Array:
        return np.asarray(np.sum(self.prompts * self.prompt_shares, axis=1))

    @property
    def output(self) -> Array:
        return np.asarray(np.sum(self.outputs * self.output_shares, axis=1))

    @property
    def context(self) -> Array:
        """Tokens that a running request holds on average: long answers are met more often."""
        return np.asarray(self.prompt + self._written)

    @property
    def _written(self) -> Array:
        """Tokens of its answer that a running request holds on average."""
        met = np.sum(self.outputs**2 * self.output_shares, axis=1) / self.output
        return np.asarray(met / 2.0)

    @property
    def from_memory(self) -> Array:
        """Share of the cache that a step reads from memory where each request carries several hypotheses, which look at
        one prompt; at least what the L2 cache takes for the rest."""
        each = np.maximum(1.0 / np.asarray(self.beams, dtype=np.float64), 1.0 / L2_OVER_MEMORY)
        return np.asarray((self.prompt * each + self._written) / self.context)

    @property
    def varied(self) -> bool:
        """Answers differ in length, so their ends spread over time."""
        return int(self.outputs.shape[1]) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderPasses:
    """The passes behind the curves, laid out."""

    rows: DecoderRows
    batches: Array  # (rows x grid)
    tokens: Array
    decode: PassWork
    linear: PassWork
    whole: PassWork  # what is read of one prompt, over all of its keys
    bare: PassWork  # the same with next to no attention
    dealt: PassWork | None = None  # one token on each rank, and `tokens` in all of which the experts see theirs
    draft: DecoderPasses | None = None  # of the model that guesses, on the same grids

    @property
    def works(self) -> tuple[PassWork, ...]:
        """The passes of the model itself whose seconds `under` asks for."""
        return (self.decode, self.linear, self.whole, self.bare)

    def under(self, engine: Engine, timed: Callable[[PassWork, Engine], Array] = pass_s) -> DecoderCurves:
        """Seconds under `engine`. `timed`: seconds of a pass, where they are at hand."""
        count = len(self.batches)
        attention = timed(self.whole, engine) - timed(self.bare, engine)
        curves = DecoderCurves(
            rows=self.rows, batches=self.batches, tokens=self.tokens, engine=engine,
            decode_grid_s=timed(self.decode, engine).reshape(count, -1),
            linear_grid_s=timed(self.linear, engine).reshape(count, -1),
            attention_s=np.maximum(attention, 0.0).reshape(count, -1),
            dealt_grid_s=None if self.dealt is None else _beyond_first(pass_s(self.dealt, engine).reshape(count, -1)),
        )  # fmt: skip
        return curves if self.draft is None else curves.guessed_by(self.draft.under(engine))


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderCurves:
    """D and L of every row, and the attention seconds of each of its prompts."""

    rows: DecoderRows
    engine: Engine
    batches: Array
    tokens: Array
    decode_grid_s: Array
    linear_grid_s: Array
    attention_s: Array
    dealt_grid_s: Array | None = None  # what the experts add for tokens of other data ranks

    def take(self, index: NDArray[np.intp]) -> DecoderCurves:
        """Some rows, as often as they are named."""
        return replace(self, rows=self.rows.take(index), **{name: grid[index] for name, grid in self._grids().items()})

    def among(self, rows: DecoderRows, index: NDArray[np.intp]) -> DecoderCurves:
        """These curves as those at `index` of `rows`; the others' are not known."""

        def put(grid: Array) -> Array:
            every = np.full((len(rows.slots), grid.shape[1]), np.nan)
            every[index] = grid
            return every

        grids: dict[str, Any] = {name: put(grid) for name, grid in self._grids().items()}
        return replace(self, rows=rows, **grids)

    def _grids(self) -> dict[str, Any]:
        names = ("batches", "tokens", "decode_grid_s", "linear_grid_s", "attention_s", "dealt_grid_s")
        found = {name: getattr(self, name) for name in names}
        return {name: grid for name, grid in found.items() if grid is not None}

    def guessed_by(self, draft: DecoderCurves) -> DecoderCurves:
        """With the draft model's work: a step of it for every guess, and the prompts once more."""
        guesses = self.rows.verified - 1.0
        dealt = [one for one in (self.dealt_grid_s, draft.dealt_grid_s) if one is not None]
        return replace(
            self, dealt_grid_s=sum(dealt[1:], dealt[0]) if dealt else None,
            decode_grid_s=self.decode_grid_s + guesses * draft.decode_grid_s,
            linear_grid_s=self.linear_grid_s + draft.linear_grid_s, attention_s=self.attention_s + draft.attention_s,
        )  # fmt: skip

    def decode_s(self, in_flight: Array) -> Array:
        """Seconds of a step; (rows,) or (rows x any). Below one in flight: the share of time that there is one."""
        several = in_flight * np.asarray(self.rows.beams).reshape((-1,) + (1,) * (in_flight.ndim - 1))
        return _along(several, self.batches, self.decode_grid_s) * np.minimum(in_flight, 1.0)

    def linear_s(self, tokens: Array) -> Array:
        """Seconds of one pass over `tokens` with next to no attention."""
        return self._spread_s(self.rows.on_rank(tokens), tokens)

    def _spread_s(self, on_rank: Array, tokens: Array) -> Array:
        """Seconds of a pass over `tokens`, of which the busiest data rank has `on_rank`."""
        own = _along(on_rank, self.tokens, self.linear_grid_s)
        return own if self.dealt_grid_s is None else own + _along(tokens, self.tokens, self.dealt_grid_s)

    def read_token_s(self, in_flight: Array, together: Array) -> Array:
        """Seconds that one prompt token adds where `together` are read in a step beside `in_flight` decodes."""
        if self.rows.scheduler.prompts_first or self.rows.scheduler.admission == "fixed":
            return self.linear_s(together) / together
        rows = in_flight * self.rows.verified
        ranks = np.asarray(self.rows.data_ranks).reshape((-1,) + (1,) * (rows.ndim - 1))
        beside = self._spread_s(rows / ranks, rows) * np.minimum(in_flight, 1.0)
        mixed = self._spread_s(rows / ranks + self.rows.on_rank(together), rows + together)
        return np.maximum(mixed - beside, 0.0) / together

    @property
    def attention_mean_s(self) -> Array:
        return np.asarray(np.sum(self.attention_s * self.rows.prompt_shares, axis=1))


def joined_passes(parts: Sequence[DecoderPasses]) -> DecoderPasses:
    """The rows and grids of several models on one scheduler, whose columns are as wide, one after another. What is read
    of a model and its devices to lay passes out (`shape`, `served`, `devices`, the works) stays the first one's: a load
    reads step times alone."""
    first = parts[0].rows
    columns = {name: [getattr(part.rows, name) for part in parts] for name in _ROW_COLUMNS}
    joined: dict[str, Any] = {name: np.concatenate(values) for name, values in columns.items() if np.ndim(values[0])}
    return replace(
        parts[0], rows=replace(first, **joined), batches=np.concatenate([part.batches for part in parts]),
        tokens=np.concatenate([part.tokens for part in parts]),
    )  # fmt: skip


def joined_curves(parts: Sequence[DecoderCurves], passes: DecoderPasses) -> DecoderCurves:
    """The curves of `parts` as those of `joined_passes` of their passes."""
    grids = {
        name: [getattr(part, name) for part in parts] for name in ("decode_grid_s", "linear_grid_s", "attention_s")
    }
    return DecoderCurves(
        rows=passes.rows, engine=parts[0].engine, batches=passes.batches, tokens=passes.tokens,
        **{name: np.concatenate(values) for name, values in grids.items()},
    )  # fmt: skip


def lay_out_decoder(rows: DecoderRows, engine: Engine) -> DecoderPasses:
    """The passes of all rows on their grids, and those of a draft model."""
    most = np.maximum(rows.slots, 2.0) * rows.beams
    longest = rows.reads.max(axis=1)
    limited = rows.step_tokens < UNLIMITED
    room = np.where(limited, np.maximum(rows.step_tokens, longest), rows.slots * longest)
    batches = _grid(most, BATCH_POINTS)
    tokens = _grid(np.maximum(room + rows.slots * rows.verified, 2.0), TOKEN_POINTS)
    if rows.scheduler.admission == "fixed":  # one batch is asked for: the last points, and no others
        batches = _grid(np.maximum(rows.slots * rows.beams, 2.0), 2)
        tokens = _grid(np.maximum(rows.slots * rows.read, 2.0), 2)
    draft = draft_rows(rows)
    passes = _passes(rows, engine, batches, tokens)
    return passes if draft is None else replace(passes, draft=_passes(draft, engine, batches, tokens))


def draft_rows(rows: DecoderRows) -> DecoderRows | None:
    """The model that guesses, where there is one: cut like the target where its heads allow it, else on one device."""
    if rows.speculation is None or rows.speculation.draft is None:
        return None
    draft = rows.speculation.draft
    degree = np.where(draft.heads % rows.tensor_parallel == 0, rows.tensor_parallel, 1.0)
    return replace(rows, shape=draft, tensor_parallel=degree, speculation=None, expert_parallel=1.0)


def _passes(rows: DecoderRows, engine: Engine, batches: Array, tokens: Array) -> DecoderPasses:
    shape = windowed(rows.shape, rows.scheduler)
    count = len(rows.slots)
    data, dealt_to = (np.broadcast_to(one, (count,)) for one in (rows.data_ranks, rows.expert_parallel))
    ranks = data[:, None]

    def work(
        batch: Array, query: Array, keys: Array, logits: Array, group: Array | float = 0.0, of: ModelShape = shape
    ) -> PassWork:
        each = batch.shape[1]
        index = np.repeat(np.arange(count), each)
        return pass_work(
            of, rows.devices.take(index), rows.served, engine, batch=batch.ravel(), query=query.ravel(),
            keys=keys.ravel(), tensor_parallel=rows.tensor_parallel[index], logit_tokens=logits.ravel(),
            host_factor=rows.host_factor[index], data_ranks=data[index], expert_parallel=dealt_to[index],
            group_tokens=np.broadcast_to(group, batch.shape).ravel(),
        )  # fmt: skip

    ones = np.ones_like
    context = np.broadcast_to(rows.context[:, None], batches.shape)
    # The last p of k tokens see p·(k - p/2) pairs: what p causal ones see of 2k - p keys, which is p where p is k.
    reads = rows.reads
    seen = 2.0 * rows.prompts - reads
    each = np.maximum(batches / ranks, 1.0)  # idle data ranks run along with an empty request
    step = each * rows.verified
    decode = work(step, ones(batches), context, step, of=decoder_only(shape))
    if rows.verified > 1.0:
        decode = _verifying(decode, each.ravel(), rows.verified)
    if np.any(np.asarray(rows.beams) > 1.0):
        decode = _reading(decode, np.repeat(rows.from_memory, batches.shape[1]))
    apart = bool(np.any(data > 1.0)) and shape.experts > 0
    alone = np.where(ranks > 1.0, ranks, 0.0)  # the fewest tokens that experts see; 0: as many as the rank
    return DecoderPasses(
        rows=rows, batches=batches, tokens=tokens, decode=decode,
        linear=work(ones(tokens), tokens, ones(tokens), ones(tokens), alone if apart else 0.0),
        whole=work(ones(reads), reads, seen, ones(reads)),
        bare=work(ones(reads), reads, ones(reads), ones(reads)),
        dealt=work(ones(tokens), ones(tokens), ones(tokens), ones(tokens), np.where(ranks > 1.0, tokens, 1.0))
        if apart else None,
    )  # fmt: skip


def _beyond_first(seconds: Array) -> Array:
    """What each point takes longer than the first of its row."""
    return np.asarray(seconds - seconds[:, :1])


def _verifying(decode: PassWork, batch: Array, verified: float) -> PassWork:
    """A step laid out for `verified` tokens a request: its keys and values are read once for all of them."""
    return replace(_reading(decode, 1.0 / verified), batch=batch)


def _reading(decode: PassWork, share: Num) -> PassWork:
    """A step whose attention reads that share of keys and values from memory."""

    def part(op: Operator) -> Operator:
        return replace(op, moved_bytes=op.moved_bytes * share) if op.kind == "attention" else op

    stages = tuple(replace(one, operators=[part(op) for op in one.operators]) for one in decode.stages)
    return replace(decode, stages=stages)


def _grid(most: Array, points: int) -> Array:
    """1 to `most` in equal ratios, a row each."""
    return np.asarray(most)[:, None] ** (np.arange(points) / (points - 1.0))


def _along(at: Array, grid: Array, values: Array) -> Array:
    """Straight lines between the points of each row's grid of equal ratios; the end values beyond it."""
    flat = at.reshape(len(grid), prod(at.shape[1:]))
    last, most = grid.shape[1] - 1, grid[:, -1:]
    inside = np.minimum(np.maximum(flat, 1.0), most)
    place = np.log(inside) / (np.log(most) / last)
    cell = np.where(np.isnan(place), 0.0, place).astype(np.intp)  # NaN: an unknown link
    cell = np.minimum(np.maximum(cell, 0), last - 1)
    cell += np.arange(len(grid))[:, None] * grid.shape[1]  # among the points of all rows
    after = cell + 1
    low, high, under, over = grid.take(cell), grid.take(after), values.take(cell), values.take(after)
    return np.asarray(under + (over - under) * (inside - low) / (high - low)).reshape(at.shape)
