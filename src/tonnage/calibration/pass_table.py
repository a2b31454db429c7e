"""Every operator of many passes as a few long columns: an engine's seconds in one sweep, as a fit asks for often.

The formulas are those of `sizing/engine_rates.py`, called with columns of operators instead of one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tonnage.calibration.memo import ReadMemo
from tonnage.sizing.devices import Devices
from tonnage.sizing.engine_rates import Scales, engine_operator_s, kernels_left, operator_scales
from tonnage.sizing.engines import Engine
from tonnage.sizing.estimates import Array, Num
from tonnage.sizing.inference_pass import PassWork, exchange_s, pass_s
from tonnage.sizing.operators import Operator
from tonnage.values import dataclass

_COLUMNS = (
    "flop", "moved_bytes", "rows", "columns", "kernels", "dispatch_share", "ramp", "groups", "query_length", "blocks",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """Operators of one kind: `place` is the pass each belongs to, `times` how often it runs there.

    Equal operators on equal devices occur in many passes: `operator`, `devices`, `scales` and `low_bit` have each once,
    and `which` says which one an entry is.
    """

    place: NDArray[np.int64]
    times: Array
    which: NDArray[np.int64]
    operator: Operator
    devices: Devices
    scales: Scales
    low_bit: Array
    any_low_bit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryMemos:
    """What entries took lately: a search moves one figure at a time, which most entries do not read."""

    device_s: ReadMemo[Array]
    kernels: ReadMemo[Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTable:
    """Many passes, one after another in the order of the works they were made from."""

    entries: tuple[Entries, ...]
    passes: int
    whole: PassWork | None  # of all passes: what a call, a sequence and an all-reduce take; None: of none
    memos: tuple[EntryMemos, ...]  # of the entries, in their order

    def seconds(self, engine: Engine) -> Array:
        """Seconds of each pass under `engine`, as `pass_s` has them."""
        if self.whole is None:
            return np.zeros(0)
        device, kernels = np.zeros(self.passes), np.zeros(self.passes)
        for one, memos in zip(self.entries, self.memos, strict=True):
            device += memos.device_s.recall(engine, partial(self._device_s, one))
            if engine.host_us_per_kernel:
                kernels += memos.kernels.recall(engine, partial(self._kernels, one))
        host = kernels * engine.host_us_per_kernel * 1e-6 * self.whole.host_factor
        call = engine.call_us * self.whole.host_factor + engine.sequence_us * self.whole.batch
        return np.asarray(np.maximum(device, host) + call * 1e-6 + exchange_s(self.whole, engine))

    def _device_s(self, one: Entries, engine: Engine) -> Array:
        """Seconds that these operators take in each pass."""
        devices = one.devices
        if one.any_low_bit:
            share = np.where(one.low_bit > 0, engine.low_bit_fraction, 1.0)
            devices = replace(devices, peak_flop_per_s=devices.peak_flop_per_s * share)
        return self._summed(one, engine_operator_s(one.operator, devices, engine, one.scales))

    def _kernels(self, one: Entries, engine: Engine) -> Array:
        """Kernels that the host launches for these operators in each pass."""
        launched = one.operator.kernels * one.operator.dispatch_share
        return self._summed(one, launched * kernels_left(one.operator, engine))

    def _summed(self, entries: Entries, values: Num) -> Array:
        """Of each pass: the values of its operators (one for each of `entries.operator`), as often as they run."""
        each = entries.times * np.broadcast_to(values, entries.low_bit.shape)[entries.which]
        return np.asarray(np.bincount(entries.place, weights=each, minlength=self.passes), dtype=np.float64)


def pass_table(works: Sequence[PassWork]) -> PassTable:
    """The table of `works`; none has experts dealt to ranks with requests of their own."""
    kinds: dict[tuple[str, bool, bool], list[tuple[int, float, Operator, PassWork]]] = {}
    starts = np.concatenate(([0], np.cumsum([work.rows for work in works]))).astype(np.int64)
    for start, work in zip(starts, works, strict=False):
        for stage in work.stages:
            for op in stage.operators:
                key = (op.kind, op.name == "norm and activation", op.scores)
                kinds.setdefault(key, []).append((int(start), stage.repeats, op, work))
    return PassTable(
        entries=tuple(_entries(parts) for parts in kinds.values()),
        memos=tuple(EntryMemos(device_s=ReadMemo(), kernels=ReadMemo()) for _ in kinds),
        passes=int(starts[-1]),
        whole=_whole(works) if works else None,
    )


def _whole(works: Sequence[PassWork]) -> PassWork:
    """One work of all rows, without operators."""
    columns: dict[str, Any] = {
        name: _joined([(getattr(work, name), work.rows) for work in works])
        for name in ("batch", "tensor_parallel", "exchanged_bytes", "exchanges", "host_factor")
    }
    return replace(works[0], stages=(), devices=_joined_devices([work.devices for work in works]), **columns)


def _entries(parts: Sequence[tuple[int, float, Operator, PassWork]]) -> Entries:
    columns = {name: _joined([(getattr(op, name), work.rows) for _, _, op, work in parts]) for name in _COLUMNS}
    devices = _joined_devices([work.devices for _, _, _, work in parts])
    low_bit = _joined([(float(work.served.low_bit), work.rows) for _, _, _, work in parts])
    first, which = _distinct([*columns.values(), *_known_columns(devices).values(), low_bit])
    taken: dict[str, Any] = {name: column[first] for name, column in columns.items()}
    operator = replace(parts[0][2], count=1.0, **taken)
    devices = replace(devices, **{name: column[first] for name, column in _known_columns(devices).items()})
    return Entries(
        place=np.concatenate([np.arange(start, start + work.rows) for start, _, _, work in parts]),
        times=_joined([(repeats * np.asarray(op.count), work.rows) for _, repeats, op, work in parts]),
        which=which,
        operator=operator,
        devices=devices,
        scales=operator_scales(operator, devices),
        low_bit=low_bit[first],
        any_low_bit=bool(np.any(low_bit)),
    )


def _distinct(columns: Sequence[Array]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first place of each distinct row of these columns, and for every row which of them it is. NaN equals NaN.

    >>> first, which = _distinct([np.array([1.0, 2.0, 1.0]), np.array([3.0, 3.0, 3.0])])
    >>> first.tolist(), which.tolist()
    ([0, 1], [0, 1, 0])
    """
    known: dict[bytes, int] = {}
    table = np.ascontiguousarray(np.stack(columns, axis=1))
    which = np.array([known.setdefault(row.tobytes(), len(known)) for row in table], dtype=np.int64)
    first = np.full(len(known), len(which), dtype=np.int64)
    np.minimum.at(first, which, np.arange(len(which)))
    return first, which


def _known_columns(devices: Devices) -> dict[str, Any]:
    return {field.name: value for field in fields(Devices) if (value := getattr(devices, field.name)) is not None}


def _joined_devices(parts: Sequence[Devices]) -> Devices:
    names = [field.name for field in fields(Devices) if getattr(parts[0], field.name) is not None]
    columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return Devices(**columns)


def _joined(parts: Sequence[tuple[Any, int]]) -> Array:
    if not parts:
        return np.zeros(0)
    return np.concatenate([np.broadcast_to(np.asarray(value, dtype=np.float64), (rows,)) for value, rows in parts])


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTimer:
    """Passes that are timed together, and where each finds its rows."""

    table: PassTable
    rows: Mapping[int, slice]  # by the work's identity; the works are held by whoever asks

    def under(self, engine: Engine) -> Callable[[PassWork, Engine], Array]:
        """Seconds of a work's passes under `engine`, looked up; worked out where it is not one of the table's."""
        seconds = self.table.seconds(engine)

        def timed(work: PassWork, asked: Engine) -> Array:
            rows = self.rows.get(id(work))
            return pass_s(work, asked) if rows is None or asked is not engine else seconds[rows]

        return timed


def pass_timer(works: Sequence[PassWork]) -> PassTimer:
    """A timer of `works`; those with dealt experts are left to `pass_s`."""
    plain = [work for work in works if work.dealt is None]
    ends = np.cumsum([work.rows for work in plain]).tolist()
    rows = {id(work): slice(end - work.rows, end) for work, end in zip(plain, ends, strict=True)}
    return PassTimer(table=pass_table(plain), rows=rows)
