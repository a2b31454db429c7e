"""What a request asks for, as far as the gateway must know: the rest of its body passes unseen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from tonnage.gateway.dialects.usage import Surface

if TYPE_CHECKING:
    from tonnage.gateway.media.asked import MediaAsk


_FIELDS: Final[Mapping[Surface, tuple[str, ...]]] = {
    "responses": ("previous_response_id", "conversation", "prompt", "background"),
    "chat": ("web_search_options",),
    "messages": ("container", "mcp_servers"),
    "completions": (),
    "embeddings": (),
}
_TOOLS: Final = (
    "web_search",
    "web_fetch",
    "file_search",
    "code_interpreter",
    "code_execution",
    "mcp",
    "image_generation",
)
NAMES: Final = frozenset(("input", "tools", *(one for fields in _FIELDS.values() for one in fields)))
_FILE: Final = re.compile(rb'"(file_id|file_url|fileUri)"\s*:\s*"')
_DOCUMENT: Final = re.compile(rb'"type"\s*:\s*"document"')
_ADDRESS: Final = re.compile(rb'"type"\s*:\s*"(?:url|file)"')


def unbounded_part(surface: Surface, said: Mapping[str, Any], body: bytes) -> str | None:
    """The name of a part whose tokens nothing in the body bounds; None: none.

    `body`: without escaped letters.
    """
    for name in _FIELDS[surface]:
        if said.get(name):
            return name
    if surface == "responses" and _refers(said.get("input")):
        return "input"
    tools = said.get("tools")
    if surface in ("responses", "messages") and isinstance(tools, list):
        kinds = (one.get("type") for one in tools if isinstance(one, dict))
        if any(isinstance(kind, str) and kind.startswith(_TOOLS) for kind in kinds):
            return "tools"
    return unbounded_bytes(body)


def unbounded_bytes(body: bytes) -> str | None:
    """The same of a request that has none of `NAMES`."""
    if b'"file' in body and (found := _FILE.search(body)) is not None:
        return found[1].decode()
    if b'"document"' in body and _DOCUMENT.search(body) is not None and _ADDRESS.search(body) is not None:
        return "document"
    return None


def _refers(items: Any) -> bool:
    """Whether items of the input name earlier ones, whose type may be left out."""
    if not isinstance(items, list):
        return False
    return any(
        isinstance(one, dict) and one.get("type") in (None, "item_reference") and "role" not in one for one in items
    )


SURFACES: Final[Mapping[str, Surface]] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/responses": "responses",
    "/v1/embeddings": "embeddings",
    "/v1/messages": "messages",
}
OUTPUT_KEYS: Final[Mapping[Surface, tuple[str, ...]]] = {
    "chat": ("max_completion_tokens", "max_tokens"),
    "completions": ("max_tokens",),
    "responses": ("max_output_tokens",),
    "embeddings": (),
    "messages": ("max_tokens",),
}
MOST_TOKENS: Final = 10**8
TEMPLATE_TOKENS: Final = 512  # what an upstream adds around a request: its template, a prompt for tools
BYTES_PER_TOKEN: Final = 4  # of English text, for estimates alone
_SELDOM: Final = NAMES | {"n", "best_of", "prompt"}  # without any of these there is one answer, and little to look at
_IMAGE_ADDRESS: Final = re.compile(rb'"(?:image_url|url)"\s*:\s*(?:\{\s*"url"\s*:\s*)?"(?!data:)')


class UnreadableRequest(Exception):
    """The request cannot be read: status, kind and words of the answer."""

    def __init__(
        self, message: str, *, status: int = 400, kind: str = "invalid_request_error", param: str | None = None
    ):
        super().__init__(message)
        self.status, self.kind, self.param = status, kind, param


class GatewayRequest(NamedTuple):
    """A request. `body`: as the client sent it; `said`: the same, parsed. `answers`: how many it asks for (`n`)."""

    surface: Surface
    model: str
    body: bytes
    said: dict[str, Any]
    stream: bool
    wants_usage: bool  # in its stream
    max_tokens: int | None  # of one answer, as stated
    answers: int
    images: int  # given by an address, whose tokens their size does not bound
    unbounded: str | None  # a part to which the upstream adds what it has stored, or finds
    media: MediaAsk | None = None  # of a request for images or audio

    def most_input_tokens(self, image_tokens: int, stored_tokens: int | None = None) -> int:
        """No tokenizer of bytes makes more tokens of a text than it has bytes; its JSON has more bytes still.

        `stored_tokens`: the most that the upstream adds itself where the request has an unbounded part.
        """
        stored = 0 if self.unbounded is None or stored_tokens is None else stored_tokens
        return len(self.body) + TEMPLATE_TOKENS + self.images * image_tokens + stored

    @property
    def predicted_tokens(self) -> int:
        """At most so many tokens of a prediction of the answer are rejected: they are billed as output beside it."""
        if "prediction" not in self.said or self.surface != "chat":
            return 0
        predicted = self.said["prediction"]
        return 0 if predicted is None else len(_written({"prediction": predicted}))

    @property
    def input_tokens_estimate(self) -> int:
        return len(self.body) // BYTES_PER_TOKEN + 1

    @property
    def repeats(self) -> bool:
        """Whether the same answer is meant to come again: embeddings, temperature 0, a seed."""
        return self.surface == "embeddings" or self.said.get("temperature") == 0 or self.said.get("seed") is not None

    @property
    def prefix(self) -> bytes:
        """The beginning of the conversation: what a prompt cache could hold."""
        return self.body[:1024]


def json_object(body: bytes) -> dict[str, Any]:
    """The object that a body holds. Raises UnreadableRequest."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise UnreadableRequest(f"the body is not JSON: {error}") from error
    if not isinstance(said, dict):
        raise UnreadableRequest("the body must be a JSON object")
    return said


def read_asked(surface: Surface, body: bytes) -> GatewayRequest:
    """The request of a body. Raises UnreadableRequest, in the words that the client is answered with."""
    said = json_object(body)
    model = said.get("model")
    if not isinstance(model, str) or not model:
        raise UnreadableRequest("`model` must name a route of the gateway", param="model")
    stream = said.get("stream", False)
    if stream is None:
        stream = False
    if not isinstance(stream, bool):
        raise UnreadableRequest("`stream` must be true or false", param="stream")
    options = said.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise UnreadableRequest("`stream_options` must be an object", param="stream_options")
    plain = _written(said) if b"\\u" in body else body  # a name may be written in escapes
    usual = _SELDOM.isdisjoint(said)
    return GatewayRequest(
        surface, model, body, said, stream,
        options is not None and options.get("include_usage") is True,
        _max_tokens(surface, said),
        1 if usual else _answers(said),
        len(_IMAGE_ADDRESS.findall(plain)) if b'"image' in plain else 0,
        unbounded_bytes(plain) if usual else unbounded_part(surface, said, plain),
    )  # fmt: skip


def with_model(asked: GatewayRequest, model: str, *, add: Mapping[str, Any] | None = None) -> bytes:
    """The body for an upstream: with its name of the model and `add`, every other byte as it was where that is safe.

    Raises UnreadableRequest for one that is nested deeper than JSON can be written again.
    """
    body = asked.body
    if asked.model != model:
        found = _model_place(asked.model).findall(body)
        if len(found) != 1:  # the same words occur in a tool's schema, say: written again as a whole
            return _written({**asked.said, **(add or {}), "model": model})
        body = body.replace(found[0], b'"model":' + orjson.dumps(model), 1)
    if not add:
        return body
    if any(name in asked.said for name in add):
        return _written({**asked.said, **add, "model": model})
    start = body.index(b"{") + 1
    return body[:start] + orjson.dumps(dict(add))[1:-1] + b"," + body[start:]


def _written(said: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(said)
    except orjson.JSONEncodeError as error:
        raise UnreadableRequest(f"the body cannot be passed on: {error}") from error


_PLACES: dict[str, re.Pattern[bytes]] = {}


def _model_place(model: str) -> re.Pattern[bytes]:
    found = _PLACES.get(model)
    if found is None:
        if len(_PLACES) > 1000:  # names come from clients
            _PLACES.clear()
        found = _PLACES[model] = re.compile(rb'"model"\s*:\s*' + re.escape(orjson.dumps(model)))
    return found


def _max_tokens(surface: Surface, said: Mapping[str, Any]) -> int | None:
    """The larger one where both names are stated: upstreams differ in which of them they follow."""
    most = None
    for name in OUTPUT_KEYS[surface]:
        value = said.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UnreadableRequest(f"`{name}` must be a whole number, 1 or more", param=name)
        if value > MOST_TOKENS:
            raise UnreadableRequest(f"`{name}` is above {MOST_TOKENS:,}", param=name)
        most = value if most is None else max(most, value)
    return most


def _answers(said: Mapping[str, Any]) -> int:
    """`n`, or `best_of` where it is more; times the prompts of a list."""
    most = 1
    for name in ("n", "best_of"):
        value = said.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1024:
            raise UnreadableRequest(f"`{name}` must be a whole number, 1 to 1024", param=name)
        most = max(most, value)
    prompt = said.get("prompt")
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        most *= len(prompt)
    return most
