"""A request, an answer and the events of a stream in words that belong to no dialect.

Surfaces read requests into these and write answers from them; upstreams the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from tonnage.errors import InputError
from tonnage.gateway.dialects.usage import Usage
from tonnage.values import dataclass

Role = Literal["user", "assistant"]
StopReason = Literal["end", "length", "tool", "stop-sequence", "filtered", "context", "paused"]


class UntranslatableRequest(InputError):
    """The other dialect has no word for `parameter`, or `parameter` is malformed."""

    def __init__(self, parameter: str, why: str, *, hint: str | None = None) -> None:
        super().__init__(f"`{parameter}` {why}", hint=hint)
        self.parameter = parameter


class UpstreamNonsense(Exception):
    """An upstream sent what its own dialect does not allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """`cache`: a prompt cache may end here; the value is its time to live, "5m" or "1h"."""

    text: str
    cache: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """Base64 `data` of a `media_type`, or a `url`."""

    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    cache: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A PDF: base64 `data`, or a `url`."""

    name: str | None = None
    data: str | None = None
    url: str | None = None
    cache: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """`arguments`: JSON as text."""

    id: str
    name: str
    arguments: str
    cache: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What the tool answered to the call with this id."""

    id: str
    parts: tuple[Text | Image | Document, ...]
    failed: bool = False
    cache: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """Reasoning in words; `signature` proves to the provider that the words are its own."""

    text: str
    signature: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Redacted:
    """Reasoning that only the provider can read."""

    data: str


Part = Text | Image | Document | ToolCall | ToolResult | Thinking | Redacted


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one side said."""

    role: Role
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that the model may call; `schema` is the JSON schema of its arguments."""

    name: str
    description: str | None
    schema: Mapping[str, Any]
    strict: bool | None = None
    cache: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    """`name`: of the one tool that must be called."""

    kind: Literal["auto", "any", "none", "tool"]
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSchema:
    """The JSON schema that the answer must follow."""

    schema: Mapping[str, Any]
    name: str = "answer"
    description: str | None = None
    strict: bool | None = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A request. `thinking`: in Anthropic's words. `dropped`: hints that were left out, in words for people."""

    turns: tuple[Turn, ...]
    system: tuple[Text, ...] = ()
    tools: tuple[Tool, ...] = ()
    choice: ToolChoice | None = None
    parallel_calls: bool | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    schema: AnswerSchema | None = None
    json_object: bool = False
    effort: str | None = None
    thinking: Mapping[str, Any] | None = None
    user: str | None = None
    stream: bool = False
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """A whole answer. None: the upstream did not say."""

    id: str | None
    model: str | None
    parts: tuple[Part, ...]
    stop: StopReason
    stop_sequence: str | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRequest:
    """`path` is relative to the deployment's base URL. `dropped`: hints that the upstream has no word for."""

    path: str
    body: dict[str, Any]
    stream: bool
    dropped: tuple[str, ...] = ()


# events of a stream, in the order in which they came


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    id: str | None = None
    model: str | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPiece:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingPiece:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """The thinking so far is whole."""

    signature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactedPiece:
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBegan:
    """`ordinal`: 0 for the first call of the answer."""

    ordinal: int
    id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPiece:
    """The next characters of the arguments."""

    ordinal: int
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    reason: StopReason
    sequence: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The upstream said, inside its stream, that it cannot go on."""

    status: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Nothing follows."""


Event = (
    Began | TextPiece | ThinkingPiece | Signed | RedactedPiece | CallBegan | CallPiece | Stopped | Counted | Failed
    | Ended
)  # fmt: skip
