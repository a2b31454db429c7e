"""Batches that clients gave a gateway, carried by the runner of `tonnage batch` through the gateway itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from time import monotonic, time
from typing import Any, Final, Literal

from filelock import FileLock, Timeout

from tonnage.batches.carrying import BatchTransfer, Carriage
from tonnage.batches.outputs import FileOutput
from tonnage.batches.reading import BatchInput, check_input, undone_rows
from tonnage.batches.records import Record, fault_line
from tonnage.errors import TonnageError
from tonnage.gateway.batch_api.endpoints import INTERNAL
from tonnage.gateway.batch_api.store import ENDED, ENDING, OWNER, BatchStore, Document, made_name
from tonnage.gateway.file.kept_entries import BatchesEntry
from tonnage.http.pool import read_endpoint, run_in_loop
from tonnage.traffic.batch import BadRow, BatchProgress, BatchRow

LOOK_S: Final = 0.5  # between two looks for new batches
TIDY_S: Final = 600.0
REPORT_EVERY_S: Final = 1.0  # between two states of a batch that runs
ROW_TIMEOUT_S: Final = 900.0
TRIES: Final = 3
PATIENCE_S: Final = 900.0  # that the gateway may be away, as while its workers are replaced
MOST_FAULTS: Final = 50  # of an input that are reported
GROUP: Final = 1024
Why = Literal["cancelled", "expired", "stopped"]


class BatchRunner:
    """One for a gateway, in threads of its parent process. `url`: of the gateway, as this machine reaches it."""

    def __init__(
        self, store: BatchStore, entry: BatchesEntry, url: str, secret: str, say: Callable[[str], None]
    ) -> None:
        self.store, self.entry, self.url, self._secret, self._say = store, entry, url, secret, say
        self._lock = FileLock(store.folder / "runner.lock")
        self._stop = threading.Event()
        self._running: dict[str, Future[None]] = {}
        self._ended: set[str] = set()
        self._pool = ThreadPoolExecutor(entry.at_once, thread_name_prefix="gateway-batch")
        self._thread = threading.Thread(target=self._look_for_ever, name="gateway-batches", daemon=True)

    def start(self) -> None:
        """Carry what is there and what comes. Another gateway of the same accounts may do so already: then it does."""
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            self._say("another gateway of the same store carries its batches")
            return
        self._thread.start()

    def close(self) -> None:
        """Send nothing more and wait for answers on their way; the next start goes on with what is left."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._lock.release()

    def _look_for_ever(self) -> None:
        tidied_s = float("-inf")
        while True:
            try:
                self.look()
                if monotonic() - tidied_s > TIDY_S:
                    tidied_s = monotonic()
                    self.tidy()
            except OSError as error:  # a full disk: tried again
                self._say(f"batches cannot be looked at: {error}")
            if self._stop.wait(LOOK_S):
                return

    def look(self) -> None:
        """Begin with batches that wait, the oldest first."""
        waiting = [one for one in self._open() if one["id"] not in self._running]
        for one in sorted(waiting, key=lambda one: (one["created_at"], one["id"])):
            self._running[one["id"]] = self._pool.submit(self._run, one)
        for name, future in tuple(self._running.items()):
            if future.done():
                del self._running[name]

    def tidy(self) -> None:
        """Files and batches that ended long ago go."""
        now_s = time()
        for one in self.store.every("files"):
            if one["expires_at"] < now_s:
                self.store.remove_file(one["id"])
        for one in self.store.every("batches"):
            if one["status"] in ENDED and one["created_at"] + self.entry.longest + self.entry.keep < now_s:
                self.store.remove_batch(one["id"])

    def _open(self) -> Iterator[Document]:
        for path in (self.store.folder / "batches").glob("batch_*.json"):
            if path.stem in self._ended:
                continue
            found = self.store.load("batches", path.stem)
            if found is None:
                continue
            if found["status"] in ENDED:
                self._ended.add(path.stem)
            else:
                yield found

    def _run(self, batch: Document) -> None:
        try:
            _RunningBatch(self, batch).run(self._stop)
        except (OSError, TonnageError) as error:  # of the disk: said, and tried again at the next look
            self._say(f"{batch['id']} cannot go on now: {error}")
            self._stop.wait(REPORT_EVERY_S)

    def carriage(self, batch: Document) -> Carriage:
        said = f"{self._secret} {batch['id']} {batch[OWNER]}"
        return Carriage(
            endpoint=read_endpoint(self.url), headers={INTERNAL.decode(): said}, timeout_s=ROW_TIMEOUT_S, tries=TRIES,
            patience_s=PATIENCE_S, concurrency=self.entry.concurrency,
        )  # fmt: skip


class _RunningBatch:
    """One batch, from wherever an earlier run has left it."""

    def __init__(self, runner: BatchRunner, batch: Document) -> None:
        self.runner, self.store, self.batch = runner, runner.store, batch
        self.input = self.store.content(batch["input_file_id"])
        self.source = BatchInput(path=self.input, task="chat", model=None)
        self.answers = self.store.work(batch["id"])
        self.output = FileOutput(self.answers)
        self.errors = Path(self.output.errors_shown)
        self._why: Why | None = None
        self._reported_s = float("-inf")

    def run(self, stop: threading.Event) -> None:
        """Until it has ended, or is left for another start. Raises OSError, TonnageError: it may be run again."""
        if self.batch["status"] != "finalizing" and not self.input.exists():
            self._fail("input_gone", "the input file was deleted")
            return
        if self.batch["status"] == "validating" and not self._validated():
            return
        if self.batch["status"] == "in_progress" and not self._carried(stop):
            return
        self._finalise()

    def _validated(self) -> bool:
        faults = list(_faults(self.source, self.batch["endpoint"], self.runner.entry.rows))
        if not faults:
            try:
                total = check_input(self.source, self.output.finished()).rows
            except TonnageError as error:
                faults = [{"code": "invalid_input", "message": str(error), "param": None, "line": None}]
        if faults:
            self._save("failed", failed_at=int(time()), errors={"object": "list", "data": faults})
            return False
        self._save("in_progress", in_progress_at=int(time()), request_counts=_counts(total, 0, 0))
        return True

    def _carried(self, stop: threading.Event) -> bool:
        """Whether all rows are recorded; else it is left as it is."""
        finished = self.output.finished()
        before = (_lines(self.answers), _lines(self.errors))
        total = self.batch["request_counts"]["total"]
        transfer: BatchTransfer

        def look(progress: BatchProgress) -> None:
            if (why := self._asked_to_end(stop)) is not None and self._why is None:
                self._why = why
                transfer.stop("interrupted", why)
            if monotonic() - self._reported_s > REPORT_EVERY_S:
                self._reported_s = monotonic()
                done = (before[0] + progress.answered, before[1] + progress.failed)
                self._save("in_progress", durable=False, request_counts=_counts(total, *done))

        if (why := self._asked_to_end(stop)) is not None:
            self._why = why
        else:
            self.output.open()
            try:
                transfer = BatchTransfer(
                    self.runner.carriage(self.batch), finished=finished, total=total, sink=self.output,
                    on_progress=look, signals=False,
                )  # fmt: skip
                ending = run_in_loop(transfer.carry(undone_rows(self.source.rows(), finished)))
            finally:
                self.output.close()
            if ending in ("upstream", "away"):
                self._fail("gateway_refused", transfer.reason)
                return False
        if self._why == "stopped":
            return False
        if self._why is not None:
            self._fail_the_rest(self._why)
        self.batch[ENDING] = self._why or "completed"
        self._save("finalizing", finalizing_at=int(time()))
        return True

    def _fail(self, code: str, message: str) -> None:
        """End it with what answers there are."""
        fault = {"code": code, "message": message, "param": None, "line": None}
        self.batch[ENDING] = "failed"
        self._save("finalizing", errors={"object": "list", "data": [fault]})
        self._finalise()

    def _asked_to_end(self, stop: threading.Event) -> Why | None:
        if self.store.cancel_asked_at(self.batch["id"]) is not None:
            return "cancelled"
        if time() >= self.batch["expires_at"]:
            return "expired"
        return "stopped" if stop.is_set() else None

    def _fail_the_rest(self, why: Why) -> None:
        """Rows that were not sent are among the errors, with the reason."""
        record = Record(self.errors)
        said = "the batch was cancelled" if why == "cancelled" else "its completion window ended first"
        try:
            group: list[bytes] = []
            for row in undone_rows(self.source.rows(), self.output.finished()):
                group.append(fault_line(row, f"batch_{why}", f"not sent: {said}", None))
                if len(group) >= GROUP:
                    record.write(group)
                    group = []
            record.write(group)
        finally:
            record.close()

    def _finalise(self) -> None:
        """Answers and errors become files of the key; done twice it is the same."""
        batch, ended = self.batch, self.batch[ENDING]
        counts = batch["request_counts"]
        for key, what, path in (("output_file_id", "output", self.answers), ("error_file_id", "errors", self.errors)):
            name = made_name(batch["id"], what)
            goal = self.store.content(name)
            if path.exists() and path.stat().st_size:
                path.replace(goal)
            if goal.exists():
                self.store.describe_file(
                    batch[OWNER], name, f"{batch['id']}_{what}.jsonl", "batch_output", goal.stat().st_size,
                    keep_s=self.runner.entry.keep,
                )  # fmt: skip
                batch[key] = name
        files = [self.store.content(batch[key]) if batch[key] else None for key in ("output_file_id", "error_file_id")]
        done = [0 if file is None else _lines(file) for file in files]
        batch[f"{ended}_at"] = int(time())
        del batch[ENDING]
        self._save(ended, request_counts=_counts(counts["total"], *done))

    def _save(self, status: str, *, durable: bool = True, **changes: Any) -> None:
        self.batch.update(changes, status=status)
        self.store.save("batches", self.batch, durable=durable)


def _faults(source: BatchInput, endpoint: str, most_rows: int) -> Iterator[dict[str, Any]]:
    """What is wrong with an input, as OpenAI's `errors` have it; the first ones."""
    reported = 0
    for count, row in enumerate(source.rows(), start=1):
        if count > most_rows:
            message = f"the file has over {most_rows:,} requests"
            yield {"code": "too_many_requests", "message": message, "param": None, "line": None}
            return
        said = _row_fault(row, endpoint)
        if said is not None:
            reported += 1
            yield {"code": "invalid_request", "message": said, "param": None, "line": row.line}
            if reported >= MOST_FAULTS:
                return


def _row_fault(row: BatchRow | BadRow, endpoint: str) -> str | None:
    if isinstance(row, BadRow):
        return row.reason
    return None if row.path == endpoint else f"url {row.path!r} is not the batch's endpoint {endpoint!r}"


def _counts(total: int, completed: int, failed: int) -> dict[str, int]:
    return {"total": total, "completed": completed, "failed": failed}


def _lines(path: Path) -> int:
    if not path.exists():
        return 0
    with path.open("rb") as file:
        return sum(piece.count(b"\n") for piece in iter(lambda: file.read(1 << 20), b""))
