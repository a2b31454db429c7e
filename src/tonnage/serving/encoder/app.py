"""The server as an ASGI application: paths, keys, bounds, deadlines, and every fault as JSON."""

from __future__ import annotations

import asyncio
import hmac
import importlib
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final

from tonnage.errors import InputError
from tonnage.serving.encoder.engine import Encoder, deadline_in
from tonnage.serving.encoder.faults import (
    BadRequest,
    Draining,
    Fault,
    Forbidden,
    ModelFailed,
    NotFound,
    Overloaded,
    TooLarge,
    Unauthorized,
    WrongTask,
)
from tonnage.serving.encoder.measures import Measures
from tonnage.serving.encoder.opened import Kind
from tonnage.serving.encoder.pictures.protocol import (
    ask_picture_infer,
    ask_picture_vectors,
    ask_pictures,
    picture_metadata,
)
from tonnage.serving.encoder.protocols import (
    Body,
    EncoderRequest,
    ask_embed,
    ask_infer,
    ask_openai_embeddings,
    ask_predict,
    ask_question,
    ask_rerank,
    model_metadata,
)
from tonnage.serving.encoder.tables.protocol import ask_rows, ask_table_infer, table_metadata
from tonnage.serving.encoder.tensors import HEADER_LENGTH, with_bytes
from tonnage.serving.encoder.versions import DRAIN_S, Versions

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Ask = Callable[[Encoder, Body], EncoderRequest]
Response = tuple[int, Sequence[tuple[bytes, bytes]], bytes]
ADMIN_KEY_VARIABLE: Final = "TONNAGE_SERVE_ADMIN_KEY"
CLIENT_GONE: Final = 499  # as nginx counts a client that hung up
DEADLINE: Final = b"x-deadline-ms"  # milliseconds from the request's arrival
LOOK_AFTER_S: Final = 0.05  # a client is watched for having gone once its answer takes this long
_LOG: Final = logging.getLogger("uvicorn.error")
_JSON: Final = ((b"content-type", b"application/json"),)
_FELL_BACK: Final = (b"x-fallback", b"true")


def _by_kind(asks: Mapping[Kind, Ask]) -> Ask:
    """A path that each kind of model reads in its own way."""

    def ask(encoder: Encoder, body: Body) -> EncoderRequest:
        if encoder.opened.kind not in asks:
            raise WrongTask(f"the model's task is {encoder.folder.task}, which has no such endpoint")
        return asks[encoder.opened.kind](encoder, body)

    return ask


_PREDICT: Final = _by_kind({"texts": ask_predict, "tables": ask_rows, "images": ask_pictures})
_EMBED: Final = _by_kind({"texts": ask_embed, "images": ask_picture_vectors})
_INFER: Final = _by_kind({"texts": ask_infer, "tables": ask_table_infer, "images": ask_picture_infer})
_METADATA: Final[Mapping[Kind, Callable[[Encoder, str, Sequence[str]], Body]]] = {
    "texts": model_metadata, "tables": table_metadata, "images": picture_metadata,
}  # fmt: skip


class Gone(Exception):
    """The client hung up: no answer is read."""


class App:
    """Requests in, answers out, over the versions of one model. Answers name their version in `x-model-version`."""

    def __init__(self, versions: Versions, *, fallback: Encoder | None = None) -> None:
        self.versions, self.fallback, self.service = versions, fallback, versions.main.service
        versions.kept = fallback
        self.measures = Measures(versions)
        self.ending: Callable[[], bool] = lambda: False  # whether the server takes nothing new
        keys = os.environ.get(self.service.key_variable, "") if self.service.key_variable else ""
        self._keys = tuple(key.strip().encode() for key in keys.split(",") if key.strip())
        if self.service.key_variable and not self._keys:
            raise InputError(f"{self.service.key_variable} holds no key", hint="set it, or serve without --api-key")
        self._admin_key = os.environ.get(ADMIN_KEY_VARIABLE, "").encode()
        self._base = f"/v2/models/{self.service.name}"
        self._change_base = f"/v2/repository/models/{self.service.name}"
        self._posts: Mapping[str, Ask] = {
            "/predict": _PREDICT, "/classify": ask_predict, "/embed": _EMBED, "/rerank": ask_rerank,
            "/v1/embeddings": ask_openai_embeddings, "/answer": ask_question, f"{self._base}/infer": _INFER,
        }  # fmt: skip
        self._gets: Mapping[str, Callable[[], Any]] = {
            "/info": self._info, "/v1/models": self._models, "/v2": self._server, self._base: self._metadata,
        }  # fmt: skip
        self._encode = _json_writer()
        self._decode = _json_reader()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        began, path = time.perf_counter(), scope["path"]
        endpoint = path if path in self._posts else "other"
        try:
            status, headers, body = await self._respond(scope, receive)
        except Fault as fault:
            status, headers, body = fault.status, (*_JSON, *fault.headers()), self._encode(_fault(path, fault))
        except Gone:
            self.measures.count(endpoint, CLIENT_GONE, time.perf_counter() - began)
            return
        except Exception as error:  # a bug of ours: its request fails, the others go on
            _LOG.exception("%s failed", path)
            ours = Fault(f"{type(error).__name__}: {error}")
            status, headers, body = ours.status, _JSON, self._encode(_fault(path, ours))
        self.measures.count(endpoint, status, time.perf_counter() - began)
        await send({"type": "http.response.start", "status": status,
                    "headers": [*headers, (b"content-length", str(len(body)).encode())]})  # fmt: skip
        await send({"type": "http.response.body", "body": body})

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        path, headers = scope["path"], dict(scope["headers"])
        if scope["method"] == "GET":
            return self._read(path, headers)
        if path.startswith("/v2/repository/"):
            return await self._change(path, headers, receive)
        ask, version = self._asked(path)
        if scope["method"] != "POST":
            raise BadRequest(f"{path} takes POST")
        tenant = self._tenant(headers)
        body = self._request(headers, await self._body(headers, receive))
        deadline = _deadline(headers)

        async def answer(encoder: Encoder) -> tuple[Encoder, EncoderRequest, list[Any], int]:
            asked = ask(encoder, body)
            found, tokens = await encoder.answers(
                asked.given, truncate=asked.truncate, deadline=deadline, tenant=tenant
            )
            return encoder, asked, found, tokens

        chosen = self.versions.choose(version)
        self.versions.shadow(answer)
        work = answer(chosen) if version is not None else self._with_fallback(answer, chosen)
        encoder, asked, found, tokens = await _unless_gone(work, receive)
        fell_back = (_FELL_BACK,) if encoder is self.fallback else ()
        named = (*_JSON, (b"x-model-version", encoder.version.encode()), *fell_back)
        return 200, named, self._encode(asked.answer(found, tokens))

    async def _with_fallback(self, answer: Callable[[Encoder], Any], chosen: Encoder) -> Any:
        """By the fallback model where the chosen one has as much waiting as may."""
        try:
            return await answer(chosen)
        except Overloaded:
            if self.fallback is None:
                raise
            return await answer(self.fallback)

    def _asked(self, path: str) -> tuple[Ask, str | None]:
        """How a path's body is read, and the version that it names."""
        if path in self._posts:
            return self._posts[path], None
        versioned = path.removeprefix(f"{self._base}/versions/").split("/")
        if path.startswith(self._base) and len(versioned) == 2 and versioned[1] == "infer":
            return _INFER, versioned[0]
        raise NotFound(self._unknown(path))

    async def _change(self, path: str, headers: Mapping[bytes, bytes], receive: Receive) -> Response:
        """The model repository's calls: index, load, unload, and the way back."""
        if not self._admin_key:
            raise Forbidden(f"versions are changed only where the server was started with {ADMIN_KEY_VARIABLE}")
        if not hmac.compare_digest(_bearer(headers), self._admin_key):
            raise Unauthorized("the key for changes is missing or wrong: Authorization: Bearer KEY")
        asked = (self._json(await self._body(headers, receive) or b"{}")).get("parameters") or {}
        if path == f"{self._change_base}/load":
            await self.versions.load(_word(asked, "model"), share=_share(asked), shadow=asked.get("shadow") is True)
        elif path == f"{self._change_base}/unload":
            await self.versions.unload(_word(asked, "version"))
        elif path == f"{self._change_base}/rollback":
            await self.versions.roll_back()
        elif path != "/v2/repository/index":
            raise NotFound(self._unknown(path))
        return 200, _JSON, self._encode(self.versions.index())

    def _read(self, path: str, headers: Mapping[bytes, bytes]) -> Response:
        if path in ("/health", "/v2/health/live"):
            return 200, _JSON, b"{}"
        if path in ("/ready", "/v2/health/ready", f"{self._base}/ready"):
            if self.ending():
                raise Draining("the server is ending")
            if not self.versions.main.batcher.alive:
                raise ModelFailed("no worker computes any more")
            return 200, _JSON, b"{}"
        if path == "/metrics":
            return 200, ((b"content-type", b"text/plain; version=0.0.4"),), self.measures.text()
        self._tenant(headers)
        if path in self._gets:
            return 200, _JSON, self._encode(self._gets[path]())
        version = path.removeprefix(f"{self._base}/versions/")
        if version == path:
            raise NotFound(self._unknown(path))
        return 200, _JSON, self._encode(self._metadata(self.versions.choose(version)))

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

    def _request(self, headers: Mapping[bytes, bytes], body: bytes) -> Body:
        """JSON, with bytes of tensors behind it where a header says how long it is."""
        said = headers.get(HEADER_LENGTH)
        if said is None:
            return self._json(body)
        if not said.isdigit() or int(said) > len(body):
            raise BadRequest(
                f"{HEADER_LENGTH.decode()} is {said.decode(errors='replace')}, the body has {len(body)} bytes"
            )
        return with_bytes(self._json(body[: int(said)]), body[int(said) :])

    def _json(self, body: bytes) -> Body:
        try:
            found = self._decode(body)
        except (ValueError, UnicodeDecodeError) as error:
            raise BadRequest(f"the body is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise BadRequest("the body is a JSON object")
        return found

    def _tenant(self, headers: Mapping[bytes, bytes]) -> bytes:
        """The key of a request, which is whose it is; Unauthorized without one of the server's."""
        if not self._keys:
            return b""
        given = _bearer(headers)
        equal = [hmac.compare_digest(given, key) for key in self._keys]  # all of them: no time tells which
        if not any(equal):
            raise Unauthorized("the key is missing or wrong: Authorization: Bearer KEY")
        return given

    def _unknown(self, path: str) -> str:
        if path.startswith(("/v2/models/", "/v1/models/", "/v2/repository/")):
            return f"no such model, version or call; served: {self.service.name}, {', '.join(self.versions.names())}"
        return f"no such path: {path}"

    def _metadata(self, encoder: Encoder | None = None) -> Body:
        found = encoder or self.versions.main
        return _METADATA[found.opened.kind](found, self.service.name, self.versions.names())

    def _info(self) -> Body:
        encoder = self.versions.main
        changed = {} if encoder.opened.change is None else {"change": dict(encoder.opened.change)}
        return {
            "model_id": self.service.name, "version": encoder.version, "task": encoder.folder.task,
            "device": encoder.device, "runtime": encoder.opened.runtime, "dtype": self.service.weights,
            "labels": list(encoder.folder.labels), "max_input_length": encoder.opened.most_tokens,
            "max_client_batch_size": encoder.opened.request_items, "workers": encoder.tuned.workers,
            "max_batch_tokens": encoder.tuned.batch_tokens, **changed,
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
                for one in self.versions.every():
                    await asyncio.to_thread(one.drain, timeout_s=DRAIN_S)
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


def _bearer(headers: Mapping[bytes, bytes]) -> bytes:
    return headers.get(b"authorization", b"").removeprefix(b"Bearer ")


def _word(asked: Body, key: str) -> str:
    value = asked.get(key)
    if not isinstance(value, str) or not value:
        raise BadRequest(f"`parameters.{key}` is a text")
    return value


def _share(asked: Body) -> float:
    value = asked.get("share", 1.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise BadRequest("`parameters.share` is a number above 0, to 1")
    return float(value)


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
    """orjson where it is installed (the extra `serve`), in which NaN is null; without it NaN is an error."""
    try:
        made: Callable[[Any], bytes] = importlib.import_module("orjson").dumps
    except ImportError:
        return lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    return made


def _json_reader() -> Callable[[bytes], Any]:
    try:
        made: Callable[[bytes], Any] = importlib.import_module("orjson").loads
    except ImportError:
        return json.loads
    return made
