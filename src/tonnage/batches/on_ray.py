"""A batch on a Ray cluster, through Ray Data: tasks ask parts of the input, the driver alone records what they bring.

A worker that is killed loses its part, which another asks again; a driver that is killed loses the parts on their way,
and the same command goes on: what counts is the record, as with one process.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any, Final

from tonnage.batches.allowance import BatchAllowance
from tonnage.batches.carrying import BatchTransfer, Carriage
from tonnage.batches.gate import Gate
from tonnage.batches.outputs import BatchOutput
from tonnage.batches.reading import BatchInput, CheckedInput, undone_rows
from tonnage.batches.records import Finished, read_finished
from tonnage.errors import MissingExtra
from tonnage.http.pool import run_in_loop
from tonnage.traffic.batch import BadRow, BatchProgress, BatchRow, Ending
from tonnage.values import dataclass

AGAIN_S: Final = 0.2
OBJECT_STORE_BYTES: Final = 512 * 2**20  # of a cluster that this process starts
_PASSED_ON: Final = ("PYTHONPATH",)  # no secret: Ray would write it down


@dataclass(frozen=True, slots=True, kw_only=True)
class RayWork:
    """What every worker is given. `key_headers` reads the key from the worker's own environment."""

    source: BatchInput
    checked: CheckedInput
    finished: Finished
    carriage: Carriage  # without the key
    key_headers: Callable[[str | None], Mapping[str, str]]
    key_variable: str | None
    parts: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RayEnding:
    """How a batch on Ray ended."""

    ending: Ending
    reason: str
    progress: BatchProgress
    faults: tuple[tuple[str, int], ...]


class PartAsker:
    """A worker: asks one part after the other. The concurrency that it found is kept from part to part."""

    def __init__(self, work: Any, allowance: Any) -> None:
        import ray

        self._ray, self._allowance = ray, allowance
        self._work: RayWork = ray.get(work[0])
        self._gate = Gate(self._work.carriage.concurrency)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[Any]]:
        """`id`: places in the list of parts. Lines of answers and of faults, and counts, for each."""
        found = [self._ask(self._work.parts[int(at)]) for at in batch["id"]]
        return {name: [one[name] for one in found] for name in found[0]}

    def _ask(self, part: int) -> dict[str, Any]:
        lines = self._work.checked.part_lines
        rows = self._work.source.part(self._work.checked.begins[part], part * lines + 1, lines)
        left = list(undone_rows(rows, self._work.finished))
        sink = _Gathered()
        while left:
            allowed, left_s = self._call("admit", part, len(left))
            if allowed is None:
                time.sleep(AGAIN_S)
                continue
            if not allowed:
                break
            some, left = left[:allowed], left[allowed:]
            transfer = self._carry(some, sink, left_s)
            progress = transfer.progress()
            self._call("report", part, progress.answered, progress.usd or 0.0)
            if transfer.reason:
                break
        return sink.outcome(part)

    def _carry(self, rows: Sequence[BatchRow | BadRow], sink: _Gathered, left_s: float | None) -> BatchTransfer:
        headers = {**self._work.carriage.headers, **self._work.key_headers(self._work.key_variable)}
        to = replace(self._work.carriage, headers=headers, deadline_s=left_s, most_usd=None)
        transfer = BatchTransfer(
            to, finished=read_finished((), cut=False), total=len(rows), sink=sink,
            on_progress=lambda _: self._look(transfer), gate=self._gate, signals=False,
        )  # fmt: skip
        ending = run_in_loop(transfer.carry(iter(rows)))
        sink.count(transfer)
        if ending != "done":
            self._call("stop", ending, transfer.reason)
        return transfer

    def _look(self, transfer: BatchTransfer) -> None:
        """Whether all are to stop."""
        ending, reason = self._call("ended")
        if ending is not None:
            transfer.stop(ending, reason)

    def _call(self, name: str, *given: Any) -> Any:
        return self._ray.get(getattr(self._allowance, name).remote(*given))


class _Gathered:
    """The lines of one part, and what its carriers counted."""

    gather_s = 0.0

    def __init__(self) -> None:
        self._lines: tuple[list[bytes], list[bytes]] = ([], [])
        self._faults: Counter[str] = Counter()
        self._retries = self._input_tokens = self._output_tokens = 0

    def write(self, answers: Sequence[bytes], faults: Sequence[bytes]) -> None:
        self._lines[0].extend(answers)
        self._lines[1].extend(faults)

    def count(self, transfer: BatchTransfer) -> None:
        progress = transfer.progress()
        self._faults += transfer.faults
        self._retries += progress.retries
        self._input_tokens += progress.input_tokens
        self._output_tokens += progress.output_tokens

    def outcome(self, part: int) -> dict[str, Any]:
        return {
            "part": part, "answers": b"".join(self._lines[0]), "faults": b"".join(self._lines[1]),
            "answered": len(self._lines[0]), "failed": len(self._lines[1]), "retries": self._retries,
            "input_tokens": self._input_tokens, "output_tokens": self._output_tokens,
            "kinds": json.dumps(self._faults),
        }  # fmt: skip


class RayBatch:
    """The driver: parts go out, what comes back is written to `output` at once."""

    def __init__(
        self, work: RayWork, output: BatchOutput, *, workers: int | None, most_usd: float | None,
        deadline_s: float | None, on_progress: Callable[[BatchProgress], None],
    ) -> None:  # fmt: skip
        self._work, self._output, self._workers, self._on_progress = work, output, workers, on_progress
        self._limits = {"most_usd": most_usd, "deadline_s": deadline_s}
        self._answered = self._failed = self._retries = self._at_once = 0
        self._tokens = (work.finished.input_tokens, work.finished.output_tokens)
        self._faults: Counter[str] = Counter()
        self._waiting: tuple[list[bytes], list[bytes]] = ([], [])
        self._began_s = self._written_s = time.monotonic()
        self._seen: set[int] = set()

    def run(self) -> RayEnding:
        """Until all parts are back, or none is asked any more. What came back is recorded in any case."""
        ray = _need_ray()
        started = _join_or_start(ray, self._workers)
        try:
            allowance = (
                ray.remote(BatchAllowance).options(num_cpus=0).remote(spent_usd=self._usd() or 0.0, **self._limits)
            )
            with _interrupts(allowance):
                for found in self._results(ray, allowance):
                    self._take(found)
                    self._at_once = ray.get(allowance.at_once.remote())
                    self._on_progress(self.progress())
            ending, reason = ray.get(allowance.ended.remote())
        finally:
            self._write()
            if started:
                ray.shutdown()
        self._on_progress(self.progress())
        return RayEnding(
            ending=ending or "done", reason=reason, progress=self.progress(), faults=tuple(self._faults.most_common())
        )

    def _results(self, ray: Any, allowance: Any) -> Iterator[dict[str, Any]]:
        from ray import data

        context = data.DataContext.get_current()
        context.enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.WARNING)
        parts, given = len(self._work.parts), ray.put(self._work)
        most = self._workers or max(1, int(ray.cluster_resources().get("CPU", 2)) - 1)
        asked = data.range(parts, override_num_blocks=parts).map_batches(
            PartAsker, batch_size=1, fn_constructor_args=([given], allowance), num_cpus=1,
            compute=data.ActorPoolStrategy(min_size=self._workers or 1, max_size=most),
        )  # fmt: skip
        for table in asked.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            yield from table.to_pylist()

    def _take(self, found: Mapping[str, Any]) -> None:
        if found["part"] in self._seen:
            return
        self._seen.add(found["part"])
        self._answered += found["answered"]
        self._failed += found["failed"]
        self._retries += found["retries"]
        self._tokens = (self._tokens[0] + found["input_tokens"], self._tokens[1] + found["output_tokens"])
        self._faults.update(json.loads(found["kinds"]))
        for waiting, lines in zip(self._waiting, (found["answers"], found["faults"]), strict=True):
            if lines:
                waiting.append(lines)
        if time.monotonic() - self._written_s >= self._output.gather_s:
            self._write()

    def _write(self) -> None:
        if any(self._waiting):
            self._output.write(*self._waiting)
        self._waiting, self._written_s = ([], []), time.monotonic()

    def progress(self) -> BatchProgress:
        """Rows that came back, and how many the workers ask now."""
        return BatchProgress(
            total=self._work.checked.rows, done_before=len(self._work.finished.keys), answered=self._answered,
            failed=self._failed, in_flight=self._at_once, limit=self._at_once, retries=self._retries,
            seconds=time.monotonic() - self._began_s, input_tokens=self._tokens[0], output_tokens=self._tokens[1],
            usd=self._usd(),
        )  # fmt: skip

    def _usd(self) -> float | None:
        return self._work.carriage.usd(*self._tokens)


def _need_ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingExtra("--on ray", "ray") from error
    return ray


def _join_or_start(ray: Any, workers: int | None) -> bool:
    """The cluster of this process or of RAY_ADDRESS; else one of this machine, which is ended afterwards (True)."""
    if ray.is_initialized():
        return False
    passed = {name: value for name, value in os.environ.items() if name in _PASSED_ON}
    common: dict[str, Any] = {"log_to_driver": False, "logging_level": "warning", "runtime_env": {"env_vars": passed}}
    if os.environ.get("RAY_ADDRESS"):
        ray.init(**common)
    else:
        cpus = (workers or max(1, (os.cpu_count() or 2) - 1)) + 1  # one for the parts themselves
        ray.init(num_cpus=cpus, object_store_memory=OBJECT_STORE_BYTES, include_dashboard=False, **common)
    return True


@contextmanager
def _interrupts(allowance: Any) -> Iterator[None]:
    """Ctrl-C and SIGTERM stop all workers, which bring back what they have; a second one ends the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        allowance.stop.remote("interrupted", "asked to stop")
        restore()

    def restore() -> None:
        for one, handler in before.items():
            signal.signal(one, handler)

    for one in before:
        signal.signal(one, stop)
    try:
        yield
    finally:
        restore()
