"""Batches of OpenAI's own API (`/v1/files`, `/v1/batches`), and of services that have the same.

Source: OpenAI, «Batch API» guide and reference (read 2026-11): 50,000 requests and 200 MB a file, one model and one
endpoint each, done within 24 hours.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any, Final, TypeVar

import httpx

from tonnage.batches.job_notes import JobNote
from tonnage.batches.jobs import JobResult, JobState, record_name
from tonnage.errors import InputError, TonnageError
from tonnage.http.retries import RetryPolicy, TemporaryError, is_temporary, retry_after_s
from tonnage.traffic.batch import BatchRow, RowFault

T = TypeVar("T")
NOT_EXECUTED: Final = ("batch_expired", "batch_cancelled")
LONGEST_MESSAGE: Final = 500
_AGAIN: Final = "the same command goes on with its jobs"
TAKEN: Final = ("/v1/chat/completions", "/v1/embeddings", "/v1/completions", "/v1/responses")
TOKEN: Final = "tonnage_token"  # in a batch's metadata
PAGE: Final = 100
ATTEMPTS: Final = 8
TIMEOUT_S: Final = 600.0
_RUNS: Final = frozenset({"validating", "in_progress", "finalizing", "cancelling"})
_ENDINGS: Final[Mapping[str, Any]] = {"completed": "done", "failed": "failed", "expired": "ended early",
                                      "cancelled": "ended early"}  # fmt: skip


class OpenAIJobs:
    """Batches under one key."""

    least_rows = 1
    most_rows = 50_000
    most_bytes = 200 * 10**6
    most_jobs = 20

    def __init__(self, url: str, headers: Mapping[str, str], *, sleep: Any = time.sleep) -> None:
        self.shown = url.rstrip("/")
        base = self.shown if self.shown.endswith("/v1") else f"{self.shown}/v1"
        self._client = httpx.Client(base_url=base, headers=dict(headers), timeout=TIMEOUT_S)
        self._sleep = sleep

    def record(self, row: BatchRow) -> bytes:
        if row.path not in TAKEN:
            raise RowFault(f"batches of this API take {', '.join(TAKEN)}, not {row.path}")
        head = {"custom_id": record_name(row.line), "method": "POST", "url": row.path}
        return json.dumps(head, separators=(",", ":")).encode()[:-1] + b',"body":' + row.body + b"}"

    def submit(self, note: JobNote, records: IO[bytes]) -> str:
        def made() -> str:
            known = self._known(note.token)  # after a try whose answer was lost, too
            if known is not None:
                return known
            records.seek(0)
            named = (f"{note.token}.jsonl", records, "application/jsonl")
            file = self._ask("POST", "/files", files={"file": named}, data={"purpose": "batch"})
            asked = {"input_file_id": file["id"], "endpoint": note.path, "completion_window": "24h",
                     "metadata": {TOKEN: note.token}}  # fmt: skip
            return str(self._ask("POST", "/batches", json=asked)["id"])

        return self._insist(made)

    def _known(self, token: str) -> str | None:
        """The batch that was made with this token: creation itself knows no idempotency key."""
        after: dict[str, str] = {}
        while True:
            page = self._ask("GET", "/batches", params={"limit": str(PAGE), **after})
            for one in page["data"]:
                if (one.get("metadata") or {}).get(TOKEN) == token:
                    return str(one["id"])
            if not page.get("has_more") or not page["data"]:
                return None
            after = {"after": page["data"][-1]["id"]}

    def look(self, note: JobNote) -> JobState:
        found = self._batch(note)
        counts = found.get("request_counts") or {}
        processed = int(counts.get("completed") or 0) + int(counts.get("failed") or 0)
        status = str(found["status"])
        if status in _RUNS:
            return JobState(status="runs", said=status, processed=processed)
        if status not in _ENDINGS:
            raise TonnageError(f"{self.shown} says {status!r} of {note.job}, which is not known here")
        faults = ((found.get("errors") or {}).get("data") or ())[:3]
        said = "; ".join(str(one.get("message")) for one in faults) or status
        return JobState(status=_ENDINGS[status], said=said, processed=processed)

    def results(self, note: JobNote) -> Iterator[JobResult]:
        found = self._batch(note)
        for name in ("output_file_id", "error_file_id"):
            if found.get(name):
                yield from self._lines(str(found[name]))

    def close(self) -> None:
        self._client.close()

    def _batch(self, note: JobNote) -> Any:
        return self._insist(lambda: self._ask("GET", f"/batches/{note.job}"))

    def _lines(self, file: str) -> Iterator[JobResult]:
        """The results of a file. TonnageError where they cannot be asked for, or break off: asking again is safe."""
        try:
            with self._client.stream("GET", f"/files/{file}/content") as answer:
                if answer.status_code != 200:
                    raise TonnageError(f"{self.shown} answers {answer.status_code} to the results", hint=_AGAIN)
                for line in _lines_of(answer.iter_bytes()):
                    result = _result(json.loads(line))
                    if result.code not in NOT_EXECUTED:  # the same command asks these rows again
                        yield result
        except httpx.HTTPError as error:
            raise TonnageError(f"{self.shown}: the results broke off: {error}", hint=_AGAIN) from error

    def _insist(self, ask: Callable[[], T]) -> T:
        return RetryPolicy(attempts=ATTEMPTS, wait=self._sleep, give_up=_given_up).insist(ask, self.shown)

    def _ask(self, method: str, path: str, **said: Any) -> Any:
        """The JSON of an answer. TemporaryError is worth another try."""
        try:
            answer = self._client.request(method, path, **said)
        except httpx.TransportError as error:
            raise TemporaryError(f"{type(error).__name__}: {error}") from error
        if is_temporary(answer.status_code):
            asked_s = retry_after_s(answer.headers.get("retry-after"))
            raise TemporaryError(f"HTTP {answer.status_code}", retry_after_s=asked_s)
        if answer.status_code != 200:
            said_there = answer.text[:LONGEST_MESSAGE]
            kind = InputError if answer.status_code in (400, 401, 403, 404) else TonnageError
            raise kind(f"{self.shown} answers {answer.status_code} to {method} {path}: {said_there}", hint=_AGAIN)
        return answer.json()


def _lines_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Lines that end with a line feed alone: a text may hold the other separators that Unicode knows."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from (line for line in lines if line.strip())
    if rest.strip():
        yield rest


def _result(found: Mapping[str, Any]) -> JobResult:
    name, response, error = str(found.get("custom_id")), found.get("response") or {}, found.get("error")
    if not error and response.get("status_code") == 200:
        body = json.dumps(response["body"], ensure_ascii=False, separators=(",", ":")).encode()
        return JobResult(record=name, body=body)
    said = error or (response.get("body") or {}).get("error") or {}
    code = f"http {response['status_code']}" if response.get("status_code") else str(said.get("code"))
    return JobResult(record=name, code=code, message=str(said.get("message")))


def _given_up(shown: str, failures: int, error: TemporaryError) -> TonnageError:
    return TonnageError(f"{shown}: {error}, {failures} times in a row", hint=_AGAIN)
