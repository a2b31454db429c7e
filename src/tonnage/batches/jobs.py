"""Rows carried by batch jobs of a platform: written into jobs, followed, collected, each row once in the output.

What is handed over is noted before: a note names the rows and the token of its job, so that a client that was killed
finds its jobs again (the platform knows a token that it has seen) and asks nothing twice. A note goes once the answers
of its job are recorded.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from tempfile import TemporaryFile
from typing import IO, Final, Literal, Protocol

from tonnage.batches.job_chunks import Chunk, full_chunks
from tonnage.batches.job_notes import JobNote, JobNotes, joined_keys
from tonnage.batches.outputs import BatchOutput
from tonnage.batches.reading import BatchInput, undone_rows
from tonnage.batches.records import Finished, answer_line, fault_line, tokens_of
from tonnage.errors import InputError
from tonnage.traffic.batch import BadRow, BatchProgress, BatchRow, Ending, RowFault
from tonnage.values import dataclass

RECORDED_AT_ONCE: Final = 1000
BYTES_A_TOKEN: Final = 3  # fewer than English text has, for what a job may cost at most
_NO_ANSWER: Final = "no answer in the job"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """A job as the platform tells. `failed`: it has no results; `ended early`: stopped or expired, with some."""

    status: Literal["runs", "done", "failed", "ended early"]
    said: str
    processed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """What a job says of one record: a body of OpenAI's protocol, or why there is none."""

    record: str
    body: bytes | None = None
    code: str = ""
    message: str = ""


class JobPlace(Protocol):
    """A platform that takes batch jobs. TonnageError where it refuses, or is away for too long."""

    shown: str
    least_rows: int  # of a job
    most_rows: int
    most_bytes: int
    most_jobs: int  # at a time

    def record(self, row: BatchRow) -> bytes:
        """The line of a row, named `record_name`; RowFault where the platform does not take it."""

    def submit(self, note: JobNote, records: IO[bytes]) -> str:
        """Hand a job over, or find the one that was handed over under its token; the platform's name of it."""

    def look(self, note: JobNote) -> JobState:
        """The job as it is now."""

    def results(self, note: JobNote) -> Iterator[JobResult]:
        """What it answered, in any order."""


def record_name(line: int) -> str:
    """Of a row in a job: eleven characters, as Bedrock wants them.

    >>> record_name(7)
    'R0000000007'
    """
    return f"R{line:010d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """When to stop, and what tokens cost (None: not known). `poll_s`: between two looks at the jobs."""

    usd: Callable[[int, int], float | None]
    most_usd: float | None
    deadline_s: float | None
    poll_s: float


class JobBatch:
    """One batch on a platform. After `run`, `ending`, `reason` and `faults` say how it went."""

    def __init__(
        self, place: JobPlace, source: BatchInput, finished: Finished, total: int, output: BatchOutput, notes: JobNotes,
        limits: JobLimits, on_progress: Callable[[BatchProgress], None], *,
        clock: Callable[[], float] = time.monotonic, wait: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self._place, self._source, self._finished, self._total = place, source, finished, total
        self._output, self._notes, self._limits, self._on_progress = output, notes, limits, on_progress
        self._clock, self._wait, self._began_s = clock, wait, clock()
        self._answered = self._failed = self._processed = 0
        self._tokens = (finished.input_tokens, finished.output_tokens)
        self._open_usd: dict[str, float] = {}  # token of a job, what it may cost at most
        self.faults: Counter[str] = Counter()
        self.ending: Ending = "done"
        self.reason = ""

    def run(self) -> None:
        """Until all rows are recorded, or `ending` says why not. Ctrl-C and the deadline leave the jobs to go on."""
        try:
            self._run()
        except KeyboardInterrupt:
            self._stop("interrupted", "asked to stop; the jobs go on")

    def _run(self) -> None:
        notes = self._notes.load()
        self._refuse_others(notes)
        for note in notes if self._limits.most_usd is not None else ():
            if note.most_written is None:
                self._stop("cost", "rows without max_tokens: what a job that is out may cost is not known")
                continue
            self._open_usd[note.token] = self._most_usd(note.size_bytes, note.most_written)
        open_jobs = [note if note.job else self._hand_over_again(note) for note in notes]
        outside = {line for note in open_jobs for line in note.lines}
        chunks = full_chunks(self._records(outside), self._place, self._too_small)
        all_out = False
        while True:
            while not all_out and self.ending == "done" and len(open_jobs) < self._place.most_jobs:
                chunk = next(chunks, None)
                if chunk is None:
                    all_out = True
                    break
                with chunk.file:
                    if self._affordable(chunk):
                        note = chunk.note(self._place.shown)
                        self._notes.save(note)
                        open_jobs.append(self._hand_over(note, chunk.file))
            self._processed = 0
            open_jobs = [note for note in open_jobs if not self._collected(note)]
            self._on_progress(self.progress())
            if not open_jobs and (all_out or self.ending != "done"):
                return
            if open_jobs and self._is_late():
                return
            if open_jobs:
                self._wait(self._limits.poll_s)

    def _is_late(self) -> bool:
        deadline_s = self._limits.deadline_s
        if deadline_s is None or self._clock() - self._began_s < deadline_s:
            return False
        self._stop("deadline", "the deadline is reached; the jobs go on")
        return True

    def _stop(self, ending: Ending, reason: str) -> None:
        if self.ending == "done":
            self.ending, self.reason = ending, reason

    def _refuse_others(self, notes: Sequence[JobNote]) -> None:
        for note in notes:
            if note.place != self._place.shown:
                raise InputError(
                    f"{self._notes.shown} has jobs of {note.place}", hint="go on there, until they are done"
                )

    # handing over

    def _records(self, outside: set[int]) -> Iterator[tuple[BatchRow, bytes]]:
        """Rows that are in no job yet, and their records."""
        for row in undone_rows(self._source.rows(), self._finished):
            line = None if row.line in outside else self._line(row)
            if line is not None and isinstance(row, BatchRow):
                yield row, line

    def _line(self, row: BatchRow | BadRow) -> bytes | None:
        """The record of a row; a row that has none is recorded as failed."""
        reason = row.reason if isinstance(row, BadRow) else ""
        try:
            if isinstance(row, BatchRow):
                return self._place.record(row)
        except (RowFault, KeyError, TypeError, ValueError, AttributeError) as error:
            reason = str(error) if isinstance(error, RowFault) else f"{type(error).__name__}: {error}"
        self.faults["bad row"] += 1
        self._failed += 1
        self._output.write([], [fault_line(row, "bad row", reason, None)])
        return None

    def _too_small(self, chunk: Chunk) -> None:
        least = f"{self._place.shown} takes {self._place.least_rows:,} rows a job at least"
        self._stop("upstream", f"{least}, and of {chunk.model} {len(chunk.lines):,} are left over")

    def _affordable(self, chunk: Chunk) -> bool:
        """Whether the limit holds if all jobs that are out cost as much as they can; it stops the batch else."""
        limit = self._limits.most_usd
        if limit is None:
            return True
        if chunk.most_written is None:
            self._stop("cost", "rows without max_tokens: what their job may cost is not known")
            return False
        cost = self._most_usd(chunk.size_bytes, chunk.most_written)
        if (self._limits.usd(*self._tokens) or 0.0) + sum(self._open_usd.values()) + cost > limit:
            self._stop("cost", f"the next job may cost {cost:.6g} USD, which would pass {limit:.6g} USD")
            return False
        self._open_usd[chunk.token] = cost
        return True

    def _most_usd(self, size_bytes: int, written: int) -> float:
        """What a job may cost; 0 without prices, which a limit is refused without."""
        return self._limits.usd(size_bytes // BYTES_A_TOKEN, written) or 0.0

    def _hand_over(self, note: JobNote, records: IO[bytes]) -> JobNote:
        records.seek(0)
        handed = replace(note, job=self._place.submit(note, records))
        self._notes.save(handed)
        return handed

    def _hand_over_again(self, note: JobNote) -> JobNote:
        """A job that may not have been handed over before a kill, with its records as they were."""
        wanted = set(note.lines)
        self._insist_same_rows(note)
        with TemporaryFile() as file:
            for row in self._source.rows():
                if row.line in wanted and isinstance(row, BatchRow):
                    file.write(self._place.record(row) + b"\n")
            return self._hand_over(note, file)

    # collecting

    def _collected(self, note: JobNote) -> bool:
        """Whether a job is over and its answers are recorded."""
        state = self._place.look(note)
        self._processed += state.processed
        if state.status == "runs":
            return False
        if state.status == "failed":
            self._stop("upstream", f"job {note.job}: {state.said}")
        else:
            self._record(note, whole=state.status == "done")
            if state.status == "ended early":
                self._stop("upstream", f"job {note.job} ended early: {state.said}")
        self._processed -= state.processed
        self._open_usd.pop(note.token, None)
        self._notes.remove(note)
        return True

    def _record(self, note: JobNote, *, whole: bool) -> None:
        """Results into the output; of a job that is done, rows without a result are failed rows."""
        rows = self._rows_of(note)
        answers: list[bytes] = []
        faults: list[bytes] = []
        for result in self._place.results(note):
            row = rows.pop(result.record, None)
            if row is None:  # recorded already, before a kill
                continue
            self._sort(row, result, answers, faults)
            if len(answers) + len(faults) >= RECORDED_AT_ONCE:
                self._write(answers, faults)
        for name, row in rows.items() if whole else ():
            self._sort(row, JobResult(record=name, code=_NO_ANSWER, message="the job is done"), answers, faults)
        self._write(answers, faults)

    def _insist_same_rows(self, note: JobNote) -> None:
        """InputError where the input has other rows at the job's lines: its answers would go to the wrong ones."""
        wanted = set(note.lines)
        found = (row.key for row in self._source.rows() if row.line in wanted and isinstance(row, BatchRow))
        if joined_keys(found) != note.keys:
            raise InputError(f"the input has changed since job {note.job or note.token} was handed over",
                             hint="run with the input as it was, or name another output")  # fmt: skip

    def _rows_of(self, note: JobNote) -> dict[str, BatchRow]:
        wanted = set(note.lines)
        self._insist_same_rows(note)
        return {
            record_name(row.line): row
            for row in undone_rows(self._source.rows(), self._finished)
            if row.line in wanted and isinstance(row, BatchRow)
        }

    def _sort(self, row: BatchRow, result: JobResult, answers: list[bytes], faults: list[bytes]) -> None:
        code, message = result.code, result.message
        if result.body is not None:
            try:
                tokens = tokens_of(json.loads(result.body))
            except (ValueError, TypeError, AttributeError, RecursionError):
                code, message = "rubbish", "the answer is no JSON of this protocol"
            else:
                self._tokens = (self._tokens[0] + tokens[0], self._tokens[1] + tokens[1])
                answers.append(answer_line(row, 200, result.body, tokens))
                return
        self.faults[code] += 1
        faults.append(fault_line(row, code, message, None))

    def _write(self, answers: list[bytes], faults: list[bytes]) -> None:
        if answers or faults:
            self._output.write(answers, faults)
        self._answered += len(answers)
        self._failed += len(faults)
        answers.clear()
        faults.clear()

    def progress(self) -> BatchProgress:
        """`in_flight`: records that the platform has answered in jobs that are not over."""
        return BatchProgress(
            total=self._total, done_before=len(self._finished.keys), answered=self._answered, failed=self._failed,
            in_flight=self._processed, limit=self._place.most_rows, retries=0, seconds=self._clock() - self._began_s,
            input_tokens=self._tokens[0], output_tokens=self._tokens[1], usd=self._limits.usd(*self._tokens),
        )  # fmt: skip
