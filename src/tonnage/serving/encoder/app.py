"""The server as an ASGI application: paths, keys, bounds, deadlines, and every fault as JSON."""

from __future__ import annotations

import asyncio
import hmac
import importlib
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any, Final

from tonnage.serving.encoder.engine import Encoder, deadline_in
from tonnage.serving.encoder.faults import BadRequest, Draining, Fault, NotFound, TooLarge, Unauthorized
from tonnage.serving.encoder.measures import Measures
from tonnage.serving.encoder.protocols import (
    Asked,
    Body,
    ask_embed,
    ask_infer,
    ask_openai_embeddings,
    ask_predict,
    ask_question,
    ask_rerank,
    model_metadata,
)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Ask = Callable[[Body], Asked]
DEADLINE: Final = b"x-deadline-ms"  # milliseconds from the request's arrival
LOOK_AFTER_S: Final = 0.05  # a client is watched for having gone once its answer takes this long
DRAIN_S: Final = 60.0
_JSON: Final = ((b"content-type", b"application/json"),)


class Gone(Exception):
    """The client hung up: nobody reads an answer."""


class App:
    """Requests in, answers out, over one model. `version` names the weights; answers carry it."""

    def __init__(self, encoder: Encoder, *, version: str) -> None:
        self.encoder, self.service, self.version = encoder, encoder.service, version
        self.measures = Measures(encoder)
        self.ending: Callable[[], bool] = lambda: False  # whether the server takes nothing new
        key = os.environ.get(self.service.key_variable) if self.service.key_variable else None
        self._key = key.encode() if key else None
        folder, name = encoder.folder, self.service.name
        infer = partial(ask_infer, folder, name=name, version=version)
        base = f"/v2/models/{name}"
        self._posts: Mapping[str, Ask] = {
            "/predict": partial(ask_predict, folder), "/classify": partial(ask_predict, folder),
            "/embed": partial(ask_embed, folder), "/v1/embeddings": partial(ask_openai_embeddings, folder),
            "/rerank": partial(ask_rerank, folder), "/answer": partial(ask_question, folder),
            f"{base}/infer": infer, f"{base}/versions/{version}/infer": infer,
        }  # fmt: skip
        metadata = partial(model_metadata, folder, name, version)
        self._gets: Mapping[str, Callable[[], Any]] = {
            "/info": self._info, "/v1/models": self._models, "/v2": self._server, base: metadata,
            f"{base}/versions/{version}": metadata,
        }  # fmt: skip
        self._encode = _json_writer()
        self._decode = _json_reader()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        began, path = time.perf_counter(), scope["path"]
        try:
            status, headers, body = await self._respond(scope, receive)
        except Fault as fault:
            status, headers, body = fault.status, (*_JSON, *fault.headers()), self._encode(_fault(path, fault))
        except Gone:
            self.measures.count(path if path in self._posts else "other", 499, time.perf_counter() - began)
            return
        self.measures.count(path if path in self._posts else "other", status, time.perf_counter() - began)
        await send({"type": "http.response.start", "status": status,
                    "headers": [*headers, (b"content-length", str(len(body)).encode())]})  # fmt: skip
        await send({"type": "http.response.body", "body": body})

    async def _respond(self, scope: Scope, receive: Receive) -> tuple[int, Sequence[tuple[bytes, bytes]], bytes]:
        path, headers = scope["path"], dict(scope["headers"])
        if scope["method"] == "GET":
            return self._read(path, headers)
        ask = self._posts.get(path)
        if ask is None:
            raise NotFound(self._unknown(path))
        if scope["method"] != "POST":
            raise BadRequest(f"{path} takes POST")
        self._check_key(headers)
        asked = ask(self._json(await self._body(headers, receive)))
        work = self.encoder.answers(asked.texts, truncate=asked.truncate, deadline=_deadline(headers))
        found, tokens = await _unless_gone(work, receive)
        return 200, _JSON, self._encode(asked.answer(found, tokens))

    def _read(self, path: str, headers: Mapping[bytes, bytes]) -> tuple[int, Sequence[tuple[bytes, bytes]], bytes]:
        if path in ("/health", "/v2/health/live"):
            return 200, _JSON, b"{}"
        if path in ("/ready", "/v2/health/ready", f"/v2/models/{self.service.name}/ready"):
            if self.ending():
                raise Draining("the server is ending")
            return 200, _JSON, b"{}"
        if path == "/metrics":
            return 200, ((b"content-type", b"text/plain; version=0.0.4"),), self.measures.text()
        self._check_key(headers)
        if path not in self._gets:
            raise NotFound(self._unknown(path))
        return 200, _JSON, self._encode(self._gets[path]())

    async def _body(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        """The whole body; TooLarge as soon as it is known to be larger than is taken."""
        most = self.service.body_bytes
        said = headers.get(b"content-length", b"0")
        if said.isdigit() and int(said) > most:
            raise TooLarge(f"the body has {int(said):,} bytes, at most {most:,} are taken")
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Gone
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > most:
                raise TooLarge(f"the body has more than {most:,} bytes")
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def _json(self, body: bytes) -> Body:
        try:
            found = self._decode(body)
        except (ValueError, UnicodeDecodeError) as error:
            raise BadRequest(f"the body is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise BadRequest("the body is a JSON object")
        return found

    def _check_key(self, headers: Mapping[bytes, bytes]) -> None:
        if self._key is None:
            return
        given = headers.get(b"authorization", b"").removeprefix(b"Bearer ")
        if not hmac.compare_digest(given, self._key):
            raise Unauthorized("the key is missing or wrong: Authorization: Bearer KEY")

    def _unknown(self, path: str) -> str:
        if path.startswith(("/v2/models/", "/v1/models/")):
            return f"no such model or version; served: {self.service.name}, version {self.version}"
        return f"no such path: {path}"

    def _info(self) -> Body:
        encoder, folder = self.encoder, self.encoder.folder
        return {
            "model_id": self.service.name, "version": self.version, "task": folder.task, "device": encoder.device,
            "runtime": self.service.runtime, "dtype": self.service.weights, "labels": list(folder.labels),
            "max_input_length": encoder.tokens.most_tokens, "max_client_batch_size": self.service.request_items,
            "workers": encoder.tuned.workers, "max_batch_tokens": encoder.tuned.batch_tokens,
        }  # fmt: skip

    def _models(self) -> Body:
        return {"object": "list", "data": [{"id": self.service.name, "object": "model", "owned_by": "tonnage"}]}

    def _server(self) -> Body:
        from tonnage import __version__

        return {"name": "tonnage", "version": __version__, "extensions": []}

    async def _live(self, receive: Receive, send: Send) -> None:
        """The server's start and end: at its end what was taken is finished."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                self.encoder.drain(timeout_s=DRAIN_S)
                await send({"type": "lifespan.shutdown.complete"})
                return


async def _unless_gone(work: Any, receive: Receive) -> Any:
    """What `work` gives; Gone, and the work cancelled, where the client hangs up before. It is watched only once an
    answer takes long: most are given before anybody could."""
    task = asyncio.ensure_future(work)
    done, _ = await asyncio.wait({task}, timeout=LOOK_AFTER_S)
    if done:
        return task.result()
    gone = asyncio.ensure_future(_disconnected(receive))
    await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        gone.cancel()
        return task.result()
    task.cancel()
    raise Gone


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


def _deadline(headers: Mapping[bytes, bytes]) -> float | None:
    said = headers.get(DEADLINE)
    if said is None:
        return None
    try:
        left_ms = float(said)
    except ValueError:
        left_ms = -1.0
    if not 0 < left_ms < float("inf"):
        raise BadRequest(f"{DEADLINE.decode()} is a number of milliseconds above 0")
    return deadline_in(left_ms / 1000.0)


def _fault(path: str, fault: Fault) -> Body:
    """In the shape of the API that was asked: OpenAI's has an object, the others a text."""
    if path.startswith("/v1/"):
        return {"error": {"message": str(fault), "type": fault.kind, "code": fault.status}}
    return {"error": str(fault), "error_type": fault.kind}


def _json_writer() -> Callable[[Any], bytes]:
    """orjson where it is installed (the extra `serve`): NaN becomes null in both."""
    try:
        made: Callable[[Any], bytes] = importlib.import_module("orjson").dumps
    except ImportError:
        return lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return made


def _json_reader() -> Callable[[bytes], Any]:
    try:
        made: Callable[[bytes], Any] = importlib.import_module("orjson").loads
    except ImportError:
        return json.loads
    return made
