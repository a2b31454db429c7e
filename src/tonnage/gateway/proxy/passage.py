"""How a request passes to an upstream and its answer back: as it is, or translated to what the upstream speaks."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

import orjson

from tonnage.gateway.dialects import StreamTranslator, UntranslatableRequest, UpstreamNonsense, native, translator
from tonnage.gateway.dialects.usage import Dialect, Surface, Usage, read_usage
from tonnage.gateway.proxy.asked import OUTPUT_KEYS, GatewayRequest, with_model
from tonnage.gateway.proxy.tap import UsageTap
from tonnage.http.connection import Headers

_HEADERS: Final[dict[Dialect, Headers]] = {"anthropic": ((b"anthropic-version", b"2023-06-01"),)}
STREAM_KIND: Final = b"text/event-stream"
TARGETS: Final = {
    "chat": b"/chat/completions", "completions": b"/completions", "responses": b"/responses",
    "embeddings": b"/embeddings", "messages": b"/messages",
}  # fmt: skip


class NotAnAnswer(Exception):
    """A whole answer that its dialect does not allow."""


class Passed(NamedTuple):
    """A request as it goes to the upstream; `dropped`: hints that the upstream has no word for."""

    target: bytes
    body: bytes
    dropped: tuple[str, ...] = ()
    content_type: bytes = b"application/json"


class Tap(Protocol):
    """A stream on its way back: `feed` returns what goes to the client, `rest` what is left at the end.

    `failed`: why nothing more can be read from it; `ended_failed`: it is whole, and its end says that it failed.
    """

    def feed(self, data: bytes) -> bytes: ...
    @property
    def usage(self) -> Usage | None: ...
    @property
    def finished(self) -> bool: ...
    @property
    def failed(self) -> str | None: ...
    @property
    def ended_failed(self) -> bool: ...
    @property
    def events(self) -> int: ...
    @property
    def rest(self) -> bytes: ...


class Passage(Protocol):
    """Between a surface and a dialect. `kind`: the content type of streams, None: the upstream's own; `headers`: what
    the dialect wants; `translated`: a limit of output tokens goes upstream where the client stated
    none, so that no translation chooses one."""

    kind: bytes | None
    headers: Headers
    translated: bool

    def request(self, asked: GatewayRequest, model: str, output_limit: int | None) -> Passed: ...
    def whole(self, body: bytes, model: str) -> tuple[bytes, Usage | None]: ...
    def tap(self, asked: GatewayRequest) -> Tap: ...
    def error(self, status: int, body: bytes) -> tuple[int, bytes]: ...


@lru_cache(maxsize=64)
def passage(surface: Surface, dialect: Dialect) -> Passage:
    """Raises UnsupportedTranslation."""
    if surface not in TARGETS:
        from tonnage.gateway.media.passage import MediaPassage

        return MediaPassage(surface)
    return NativePassage(surface) if native(surface, dialect) else TranslatedPassage(surface, dialect)


class NativePassage:
    """Both speak the same: every byte passes but the model's name."""

    kind: bytes | None = None
    headers: Headers = ()
    translated = False

    def __init__(self, surface: Surface) -> None:
        self._surface: Surface = surface
        self._target = TARGETS[surface]

    def request(self, asked: GatewayRequest, model: str, output_limit: int | None) -> Passed:
        add: dict[str, Any] = {}
        if output_limit is not None:
            add[OUTPUT_KEYS[self._surface][0]] = output_limit
        if asked.stream and not asked.wants_usage and self._surface in ("chat", "completions"):
            add["stream_options"] = {**(asked.said.get("stream_options") or {}), "include_usage": True}
        return Passed(target=self._target, body=with_model(asked, model, add=add))

    def whole(self, body: bytes, model: str) -> tuple[bytes, Usage | None]:  # noqa: ARG002
        """Raises NotAnAnswer."""
        try:
            said = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise NotAnAnswer("what is no JSON") from error
        return body, read_usage(self._surface, said) if isinstance(said, dict) else None

    def tap(self, asked: GatewayRequest) -> Tap:
        return UsageTap(self._surface, strip=not asked.wants_usage)

    def error(self, status: int, body: bytes) -> tuple[int, bytes]:
        return status, body


class TranslatedPassage:
    """The upstream speaks otherwise."""

    kind: bytes | None = STREAM_KIND
    translated = True

    def __init__(self, surface: Surface, dialect: Dialect) -> None:
        self._surface = surface
        self.headers: Headers = _HEADERS.get(dialect, ())
        self._translator = translator(surface, dialect)

    def request(self, asked: GatewayRequest, model: str, output_limit: int | None) -> Passed:
        """Raises UntranslatableRequest, which names the field."""
        said = asked.said if output_limit is None else {**asked.said, OUTPUT_KEYS[self._surface][0]: output_limit}
        made = self._translator.request(said, model)
        return Passed(target=made.path.encode(), body=orjson.dumps(made.body), dropped=made.dropped)

    def whole(self, body: bytes, model: str) -> tuple[bytes, Usage | None]:
        """Raises NotAnAnswer."""
        try:
            said = orjson.loads(body)
            if not isinstance(said, dict):
                raise NotAnAnswer("what is no object")
            return orjson.dumps(self._translator.answer(said, model=model)), self._translator.usage(said)
        except (orjson.JSONDecodeError, UpstreamNonsense, UntranslatableRequest) as error:
            raise NotAnAnswer(str(error)) from error

    def tap(self, asked: GatewayRequest) -> Tap:
        return _TranslatedTap(self._translator.stream(include_usage=asked.wants_usage, model=asked.model))

    def error(self, status: int, body: bytes) -> tuple[int, bytes]:
        status, said = self._translator.error(status, body)
        return status, orjson.dumps(said)


class _TranslatedTap:
    """A translated stream as a tap; what it says when its upstream has ended is asked for once."""

    ended_failed = False  # a failure that the upstream tells is `failed`

    def __init__(self, stream: StreamTranslator) -> None:
        self._stream = stream

    @property
    def usage(self) -> Usage | None:
        return self._stream.usage

    @property
    def finished(self) -> bool:
        return self._stream.finished and self._stream.failed is None

    @property
    def failed(self) -> str | None:
        return None if self._stream.failed is None else self._stream.failed.message

    @property
    def events(self) -> int:
        return self._stream.events

    @property
    def rest(self) -> bytes:
        return self._stream.end()

    def feed(self, data: bytes) -> bytes:
        return self._stream.feed(data)
