"""/v1/files and /v1/batches as OpenAI's clients ask for them. Source: OpenAI, API reference «Files» and «Batch»."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from hmac import compare_digest
from time import time
from typing import Any, Final
from urllib.parse import parse_qs

import orjson

from tonnage.gateway.batch_api.store import ENDED, OWNER, BatchStore, Document, new_name, shown
from tonnage.gateway.file.described import ANYBODY, Caller, Gateway
from tonnage.gateway.file.kept_entries import BatchesEntry
from tonnage.gateway.forms import form_fields, read_parts
from tonnage.gateway.proxy.asked import UnreadableRequest
from tonnage.gateway.proxy.replies import JSON, GatewayReply, send_reply
from tonnage.gateway.proxy.server import ClientExchange
from tonnage.http.connection import Headers

PATHS: Final = ("/v1/files", "/v1/batches")
ENDPOINTS: Final = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings")
INTERNAL: Final = b"x-tonnage-batch"  # of the runner's own requests: its secret, the key's name, the batch
MOST_LISTED: Final = 100
MOST_METADATA: Final = 16
_WINDOW: Final = re.compile(r"([1-9]\d{0,3})([hd])")
_HOUR_S: Final = 3600
_FORM: Final = b"content-type: application/octet-stream\r\n"
Answered = tuple[int, bytes, bytes]  # status, head, body


class _RequestError(Exception):
    """A request that is answered with an error."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None) -> None:
        super().__init__(message)
        self.reply = GatewayReply(
            status=status, kind="not_found" if status == 404 else "invalid_request_error", message=message, param=param
        )


class BatchEndpoints:
    """Of one worker. `secret`: what the runner of batches shows, that asks in the name of a key."""

    def __init__(self, store: BatchStore, secret: str) -> None:
        self.store, self._secret = store, secret.encode()

    def asked_for(self, headers: Headers, gateway: Gateway) -> tuple[Caller, str] | None:
        """The key for which the runner asks, and its batch; None: it is not the runner, or the key is no more."""
        for name, value in headers:
            if name == INTERNAL:
                secret, _, rest = value.partition(b" ")
                batch, _, key = rest.decode("utf-8", "replace").partition(" ")
                if compare_digest(secret, self._secret) and (caller := _by_name(gateway, key)) is not None:
                    return caller, batch
        return None

    async def answer(self, exchange: ClientExchange, caller: Caller, entry: BatchesEntry) -> None:
        """Answer a request to one of `PATHS`; the disk is used in a thread."""
        try:
            status, head, body = await asyncio.to_thread(self._answer, exchange, caller, entry)
        except _RequestError as refused:
            send_reply(exchange, refused.reply, None)
        except OSError as error:
            message = f"the files cannot be used now: {error.strerror or error}"
            send_reply(
                exchange, GatewayReply(status=503, kind="storage_unavailable", message=message, retry_after_s=5.0), None
            )
        else:
            exchange.answer(status, head, body)

    # in a thread

    def _answer(self, exchange: ClientExchange, caller: Caller, entry: BatchesEntry) -> Answered:
        _, _, kind, *rest = exchange.path.split("/")
        verb = (exchange.method, kind, len(rest))
        named: dict[tuple[bytes, str, int], Callable[[], Document | bytes]] = {
            (b"POST", "files", 0): lambda: self._upload(exchange, caller, entry),
            (b"GET", "files", 0): lambda: self._list("files", caller, exchange.query),
            (b"GET", "files", 1): lambda: shown(self._file(rest[0], caller)),
            (b"DELETE", "files", 1): lambda: self._delete(rest[0], caller),
            (b"GET", "files", 2): lambda: self._content(rest, caller),
            (b"POST", "batches", 0): lambda: self._create(exchange.body, caller, entry),
            (b"GET", "batches", 0): lambda: self._list("batches", caller, exchange.query),
            (b"GET", "batches", 1): lambda: self.store.shown_batch(self._batch(rest[0], caller)),
            (b"POST", "batches", 2): lambda: self._cancel(rest, caller),
        }  # fmt: skip
        if verb not in named:
            raise _RequestError(f"{exchange.path} does not take {exchange.method.decode('latin-1')}", status=405)
        found = named[verb]()
        return (200, _FORM, found) if isinstance(found, bytes) else (200, JSON, orjson.dumps(found))

    def _upload(self, exchange: ClientExchange, caller: Caller, entry: BatchesEntry) -> Document:
        kind = next((value for name, value in exchange.headers if name == b"content-type"), b"")
        try:
            parts = read_parts(kind, exchange.body)
            purpose = form_fields(exchange.body, parts).get("purpose")
        except UnreadableRequest as error:
            raise _RequestError(str(error), param="file") from error
        if purpose != "batch":
            raise _RequestError("`purpose` must be batch: other files are not kept here", param="purpose")
        file = next((one for one in parts if one.name == "file" and one.filename is not None), None)
        if file is None or file.filename is None:
            raise _RequestError("`file` is missing", param="file")
        size = file.end - file.begin
        if not size:
            raise _RequestError("the file is empty", param="file")
        if size > entry.file_mb * 1e6:
            raise _RequestError(f"the file has over {entry.file_mb:g} MB", status=413, param="file")
        if self.store.bytes_of(caller.name) + size > entry.key_mb * 1e6:
            message = f"the files of this key would take over {entry.key_mb:g} MB: delete some"
            raise _RequestError(message, status=413, param="file")
        return shown(
            self.store.add_file(
                caller.name, file.filename[:200], "batch", exchange.body[file.begin : file.end], keep_s=entry.keep
            )
        )

    def _create(self, body: bytes, caller: Caller, entry: BatchesEntry) -> Document:
        try:
            said = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise _RequestError(f"the body is not JSON: {error}") from error
        if not isinstance(said, dict):
            raise _RequestError("the body must be a JSON object")
        endpoint, window = said.get("endpoint"), said.get("completion_window")
        if endpoint not in ENDPOINTS:
            raise _RequestError(f"`endpoint` must be one of {', '.join(ENDPOINTS)}", param="endpoint")
        window_s = _window_s(window)
        if window_s is None or window_s > entry.longest:
            most = f"{entry.longest / _HOUR_S:g}h"
            raise _RequestError(f"`completion_window` must be hours or days, such as 24h, at most {most}",
                           param="completion_window")  # fmt: skip
        name = said.get("input_file_id")
        file = self.store.load_of("files", name, caller.name) if isinstance(name, str) else None
        if file is None or file["purpose"] != "batch":
            raise _RequestError(
                "`input_file_id` names no file of this key with the purpose batch", param="input_file_id"
            )
        now = int(time())
        document: Document = {
            "id": new_name("batch_"), "object": "batch", "endpoint": endpoint, "errors": None, "input_file_id": name,
            "completion_window": window, "status": "validating", "output_file_id": None, "error_file_id": None,
            "created_at": now, "in_progress_at": None, "expires_at": now + window_s, "finalizing_at": None,
            "completed_at": None, "failed_at": None, "expired_at": None, "cancelling_at": None, "cancelled_at": None,
            "request_counts": {"total": 0, "completed": 0, "failed": 0}, "metadata": _metadata(said.get("metadata")),
            OWNER: caller.name,
        }  # fmt: skip
        self.store.save("batches", document)
        return shown(document)

    def _cancel(self, rest: list[str], caller: Caller) -> Document:
        if rest[1] != "cancel":
            raise _RequestError("no such path", status=404)
        batch = self._batch(rest[0], caller)
        if batch["status"] in ENDED:
            raise _RequestError(f"the batch is {batch['status']} already", status=409)
        self.store.ask_to_cancel(batch["id"])
        return self.store.shown_batch(batch)

    def _delete(self, name: str, caller: Caller) -> Document:
        file = self._file(name, caller)
        for one in self.store.all_of("batches", caller.name):
            if one["status"] not in ENDED and one["input_file_id"] == name:
                raise _RequestError(f"{one['id']} reads this file: cancel it first", status=409)
        self.store.remove_file(file["id"])
        return {"id": file["id"], "object": "file", "deleted": True}

    def _content(self, rest: list[str], caller: Caller) -> bytes:
        if rest[1] != "content":
            raise _RequestError("no such path", status=404)
        try:
            return self.store.content(self._file(rest[0], caller)["id"]).read_bytes()
        except FileNotFoundError as error:
            raise _RequestError("the file is gone", status=404) from error

    def _list(self, kind: Any, caller: Caller, query: bytes) -> Document:
        asked = parse_qs(query.decode("latin-1"))
        found = self.store.all_of(kind, caller.name)
        if kind == "files" and "purpose" in asked:
            found = [one for one in found if one["purpose"] == asked["purpose"][-1]]
        after = asked.get("after", [""])[-1]
        if after:
            places = [index for index, one in enumerate(found) if one["id"] == after]
            if not places:
                raise _RequestError("`after` names none of them", param="after")
            found = found[places[0] + 1 :]
        limit = asked.get("limit", ["20" if kind == "batches" else "100"])[-1]
        if not limit.isdigit() or not 1 <= int(limit) <= 10_000:
            raise _RequestError("`limit` must be a whole number from 1 on", param="limit")
        page = found[: min(int(limit), MOST_LISTED)]
        data = [self.store.shown_batch(one) if kind == "batches" else shown(one) for one in page]
        return {
            "object": "list", "data": data, "has_more": len(found) > len(page),
            "first_id": data[0]["id"] if data else None, "last_id": data[-1]["id"] if data else None,
        }  # fmt: skip

    def _file(self, name: str, caller: Caller) -> Document:
        found = self.store.load_of("files", name, caller.name)
        if found is None:
            raise _RequestError(f"no file of this key is named {name[:60]!r}", status=404)
        return found

    def _batch(self, name: str, caller: Caller) -> Document:
        found = self.store.load_of("batches", name, caller.name)
        if found is None:
            raise _RequestError(f"no batch of this key is named {name[:60]!r}", status=404)
        return found


def _window_s(window: Any) -> int | None:
    found = _WINDOW.fullmatch(window) if isinstance(window, str) else None
    return None if found is None else int(found[1]) * _HOUR_S * (24 if found[2] == "d" else 1)


def _metadata(said: Any) -> Mapping[str, str] | None:
    if said is None:
        return None
    texts = isinstance(said, dict) and all(isinstance(one, str) and len(one) <= 512 for one in said.values())
    if not texts or len(said) > MOST_METADATA or any(len(key) > 64 for key in said):
        raise _RequestError("`metadata` must be at most 16 texts of at most 512 letters", param="metadata")
    return {str(key): str(value) for key, value in said.items()}


def _by_name(gateway: Gateway, name: str) -> Caller | None:
    if not gateway.callers:
        return ANYBODY if name == ANYBODY.name else None
    return next((one for one in gateway.callers.values() if one.name == name), None)
