"""What a batch asks, and what it has done: values that the transfer fills and reports show."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, Literal

from tonnage.values import dataclass

Task = Literal["chat", "completions", "embeddings", "classify"]
TASK_PATHS: Final[Mapping[str, str]] = {
    "chat": "/v1/chat/completions", "completions": "/v1/completions", "embeddings": "/v1/embeddings",
    "classify": "/predict",
}  # fmt: skip
PATHS: Final = frozenset({*TASK_PATHS.values(), "/v1/responses", "/embed", "/classify", "/rerank", "/v1/rerank"})
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
Ending = Literal["done", "cost", "deadline", "interrupted", "upstream", "away"]  # away: nothing answered, for long


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """A request of a batch. `line` counts from 1; `key` names request and content: the same row has the same key."""

    line: int
    custom_id: str
    path: str
    body: bytes  # JSON
    key: str  # 32 hex digits


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A line of the input that is no request, and why."""

    line: int
    custom_id: str | None
    reason: str
    key: str


NO_MODEL: Final = "no model: name it in the body, or with --model"


class RowFault(ValueError):
    """What is wrong with a row."""


def row_key(custom_id: str, path: str, body: bytes) -> str:
    """Of a request: the first 128 bits of a BLAKE2b hash."""
    return hashlib.blake2b(b"\0".join((custom_id.encode(), path.encode(), body)), digest_size=16).hexdigest()


def read_row(found: Any, line: int, *, task: Task, model: str | None) -> BatchRow:
    """A row of OpenAI's batch format, or a plain one: `text` (or `prompt`, `messages`), and `id` or `custom_id`.

    `task` says what a plain row asks for; `model` is put in where a body names none. Raises RowFault.
    """
    if not isinstance(found, Mapping):
        raise RowFault(f"found a {type(found).__name__}, expected an object")
    if "body" in found or "url" in found:
        custom_id, path, body = _openai_row(found)
    else:
        custom_id, path, body = _plain_row(found, line, task)
    if model is not None and not body.get("model"):
        body["model"] = model
    if path.startswith("/v1/") and not body.get("model"):
        raise RowFault(NO_MODEL)
    if body.get("stream"):
        raise RowFault("a batch does not stream: leave out `stream`")
    text = _ENCODER.encode(body).encode()
    return BatchRow(line=line, custom_id=custom_id, path=path, body=text, key=row_key(custom_id, path, text))


def _openai_row(found: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    custom_id, path, body = found.get("custom_id"), found.get("url"), found.get("body")
    if not isinstance(custom_id, str) or not custom_id:
        raise RowFault("no custom_id")
    if found.get("method", "POST") != "POST":
        raise RowFault(f"method {found['method']!r}, expected POST")
    if path not in PATHS:
        raise RowFault(f"url {path!r} is none of {', '.join(sorted(PATHS))}")
    if isinstance(body, str):  # of a Parquet column
        try:
            body = json.loads(body)
        except ValueError as error:
            raise RowFault(f"the body is no JSON: {error}") from error
    if not isinstance(body, Mapping):
        raise RowFault("no body")
    return custom_id, path, dict(body)


def _plain_row(found: Mapping[str, Any], line: int, task: Task) -> tuple[str, str, dict[str, Any]]:
    named = next((found[name] for name in ("custom_id", "id") if found.get(name) is not None), f"row-{line}")
    if not isinstance(named, str | int):
        raise RowFault(f"id {named!r}, expected a text or a whole number")
    messages = found.get("messages")
    text = next((found[name] for name in ("text", "prompt") if isinstance(found.get(name), str)), None)
    if task == "chat" and isinstance(messages, list) and messages:
        body: dict[str, Any] = {"messages": messages}
    elif text is None:
        raise RowFault('no "text", "prompt" or "body"')
    elif task == "chat":
        body = {"messages": [{"role": "user", "content": text}]}
    else:
        body = {{"completions": "prompt", "embeddings": "input", "classify": "inputs"}[task]: text}
    options = {name: found[name] for name in ("model", "max_tokens", "temperature") if found.get(name) is not None}
    return str(named), TASK_PATHS[task], body | options


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """The state of a batch. Counts are of rows that are safe on the disk; `total` are the rows of the input."""

    total: int
    done_before: int  # answered or failed by earlier runs of the command
    answered: int  # by this one
    failed: int  # by this one, bad rows among them
    in_flight: int
    limit: int  # requests at a time, now
    retries: int
    seconds: float
    input_tokens: int  # of all runs
    output_tokens: int
    usd: float | None  # of all runs, at the price stated
    away: str = ""  # what does not answer, and for how long it is waited for; empty: it answers

    @property
    def finished(self) -> int:
        return self.done_before + self.answered + self.failed

    @property
    def per_s(self) -> float | None:
        here = self.answered + self.failed
        return here / self.seconds if here and self.seconds > 0 else None

    @property
    def left_s(self) -> float | None:
        """Seconds until all is done, as fast as until now."""
        return None if self.per_s is None else (self.total - self.finished) / self.per_s

    @property
    def usd_in_all(self) -> float | None:
        """What the whole batch costs, as dear as until now."""
        return None if self.usd is None or not self.finished else self.usd * self.total / self.finished


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """What a plan says: its rate with the 80 % interval, the cost of a row in all, and of an hour of its machines."""

    rows_per_s: float
    rows_per_s_low: float
    rows_per_s_high: float
    usd_per_row: float
    usd_per_hour: float | None

    def usd_at(self, rows_per_s: float) -> float | None:
        """What a row costs on those machines at another rate, without start-up and what else the plan counts."""
        return None if self.usd_per_hour is None else self.usd_per_hour / 3600.0 / rows_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome:
    """How a batch ended. `reason` says why it stopped before its end; the same command goes on with it."""

    progress: BatchProgress
    ending: Ending
    reason: str
    output: str
    errors: str
    faults: tuple[tuple[str, int], ...]  # kind of the rows that failed in this run, how many
    cut_bytes: int  # torn tail that was cut off at the start
    cpu_s: float
    planned: PlannedBatch | None = None
