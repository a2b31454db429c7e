"""From what the client speaks to what an upstream speaks, and back."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final, Protocol

from tonnage.errors import InputError
from tonnage.gateway.dialects.conversation import (
    CallPiece,
    Conversation,
    Counted,
    Ended,
    Event,
    Failed,
    ModelAnswer,
    Stopped,
    UpstreamNonsense,
    UpstreamRequest,
)
from tonnage.gateway.dialects.errors import translated_error
from tonnage.gateway.dialects.surfaces.chat_answer import ChatStream, write_chat
from tonnage.gateway.dialects.surfaces.chat_request import read_chat
from tonnage.gateway.dialects.surfaces.messages_answer import MessagesStream, write_messages
from tonnage.gateway.dialects.surfaces.messages_request import read_messages
from tonnage.gateway.dialects.usage import Dialect, Surface, Usage

NATIVE: Final = frozenset(
    {("chat", "openai"), ("completions", "openai"), ("responses", "openai"), ("embeddings", "openai"),
     ("messages", "anthropic")}
)  # fmt: skip
TRANSLATED: Final[tuple[tuple[Surface, Dialect], ...]] = (
    ("chat", "anthropic"), ("chat", "converse"), ("messages", "openai"), ("messages", "converse"),
)  # fmt: skip


class UnsupportedTranslation(InputError):
    """No way from this surface to that dialect."""


class Reader(Protocol):
    def feed(self, piece: bytes) -> Iterable[Event]: ...


class DialectModule(Protocol):
    """What a module of `upstreams` has."""

    def write_request(self, said: Conversation, model: str) -> UpstreamRequest: ...
    def read_answer(self, body: Mapping[str, Any]) -> ModelAnswer: ...
    @property
    def read_stream(self) -> Callable[[], Reader]: ...  # the class of its events


def native(surface: Surface, dialect: Dialect) -> bool:
    """Whether bytes pass through unchanged."""
    return (surface, dialect) in NATIVE


def translator(surface: Surface, dialect: Dialect) -> Translator:
    """Raises UnsupportedTranslation with what there is."""
    if (surface, dialect) not in TRANSLATED:
        ways = [there for here, there in (*NATIVE, *TRANSLATED) if here == surface]
        hint = f"upstreams for {surface} speak {', '.join(sorted(ways))}"
        raise UnsupportedTranslation(f"{surface} cannot be translated to {dialect}", hint=hint)
    return Translator(surface, dialect)


class Translator:
    """Holds no state; one serves every request."""

    def __init__(self, surface: Surface, dialect: Dialect) -> None:
        self.surface, self.dialect = surface, dialect
        self._upstream: DialectModule = import_module(f"tonnage.gateway.dialects.upstreams.{dialect}")

    def request(self, body: Mapping[str, Any], model: str) -> UpstreamRequest:
        """Raises UntranslatableRequest, which names the field."""
        said = read_chat(body) if self.surface == "chat" else read_messages(body)
        return self._upstream.write_request(said, model)

    def answer(
        self, body: Mapping[str, Any], *, model: str = "", id_: str | None = None, created: int | None = None
    ) -> dict[str, Any]:
        """`model`, `id_`, `created`: where the upstream says none. Raises UpstreamNonsense."""
        found = self._upstream.read_answer(body)
        id_ = id_ or _new_id(self.surface)
        if self.surface == "chat":
            return write_chat(found, id_=id_, model=model, created=_created(created))
        return write_messages(found, id_=id_, model=model)

    def usage(self, body: Mapping[str, Any]) -> Usage | None:
        """The usage of an upstream's whole answer; None where it did not say."""
        return self._upstream.read_answer(body).usage

    def stream(
        self, *, include_usage: bool, model: str = "", id_: str | None = None, created: int | None = None
    ) -> StreamTranslator:
        """`include_usage`: the client of `chat` asked for the counts; `messages` always has them."""
        id_ = id_ or _new_id(self.surface)
        writer: ChatStream | MessagesStream = MessagesStream(id_=id_, model=model)
        if self.surface == "chat":
            writer = ChatStream(id_=id_, model=model, created=_created(created), include_usage=include_usage)
        return StreamTranslator(self._upstream.read_stream(), writer)

    def error(self, status: int, body: bytes) -> tuple[int, dict[str, Any]]:
        """Status and body of an upstream's error in the surface's words."""
        return translated_error(self.surface, status, body)


class StreamTranslator:
    """`finished`: the upstream said its end; a stream cut midway is not finished. `failed`: it said it cannot go on."""

    def __init__(self, reader: Reader, writer: ChatStream | MessagesStream) -> None:
        self._reader, self._writer = reader, writer
        self._ended = False
        self.usage: Usage | None = None
        self.finished = False
        self.failed: Failed | None = None
        self.events = 0

    def feed(self, data: bytes) -> bytes:
        """The surface's own events for what became whole. What an upstream garbles ends in an error event."""
        if self.failed is not None or self._ended:
            return b""
        return b"".join(self._write(event) for event in self._events(data))

    def end(self) -> bytes:
        """What is left to say when the upstream's bytes have ended; nothing for a stream that was cut."""
        return self._write(Ended()) if self.finished and not self._ended and self.failed is None else b""

    def _events(self, data: bytes) -> Iterator[Event]:
        try:
            yield from self._reader.feed(data)
        except UpstreamNonsense as error:
            yield Failed(status=502, message=f"the upstream sent {error}")

    def _write(self, event: Event) -> bytes:
        if self._ended or self.failed is not None:
            return b""
        self.events += 1
        if isinstance(event, CallPiece) and self.finished:
            event = Failed(status=502, message="the upstream went on with a call after its answer's end")
        if isinstance(event, Counted):
            self.usage = event.usage
        elif isinstance(event, Stopped):
            self.finished = True
        elif isinstance(event, Failed):
            self.failed = event
        elif isinstance(event, Ended):
            if not self.finished:
                return self._write(Failed(status=502, message="the upstream's answer ended before it was complete"))
            self._ended = True
        return self._writer.write(event)


def _new_id(surface: Surface) -> str:
    return f"{'chatcmpl-' if surface == 'chat' else 'msg_'}{uuid.uuid4().hex}"


def _created(stated: int | None) -> int:
    return int(time.time()) if stated is None else stated
