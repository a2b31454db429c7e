"""What services speak: how a text becomes a request, and what an answer says. One entry a protocol."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from tonnage.errors import InputError
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What one request asks. `body`: keys of a data set's own request, which win over ours."""

    text: str
    output_tokens: int | None = None
    messages: tuple[Mapping[str, Any], ...] = ()
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedTokens:
    """Tokens as the service counted them; None: it did not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None


class Rubbish(Exception):
    """An answer that is not of the protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A protocol. `body` makes the request of a model and a prompt, `read` what an answer that is not streamed says
    (Rubbish where it is not one)."""

    name: str
    path: Callable[[str], str]  # of the model
    body: Callable[[str, Prompt], dict[str, Any]]
    read: Callable[[Any], CountedTokens]
    generates: bool = False

    def request_body(self, model: str, prompt: Prompt) -> bytes:
        """The body as it is sent; the model is ours, all other keys of a data set's body win."""
        body = self.body(model, prompt)
        if prompt.body is not None:
            body |= {key: value for key, value in prompt.body.items() if key not in ("model", "stream")}
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def find_dialect(name: str) -> Dialect:
    """The dialect called so; InputError lists those there are."""
    if name not in DIALECTS:
        raise InputError(f"no protocol is named '{name}'", hint=f"there are {', '.join(DIALECTS)}")
    return DIALECTS[name]


def read_answer(dialect: Dialect, body: bytes) -> CountedTokens:
    """What a whole answer says; Rubbish where it is not JSON, says an error, or lacks what the protocol gives."""
    try:
        found = json.loads(body)
    except ValueError as error:
        raise Rubbish("the answer is not JSON") from error
    if isinstance(found, dict) and found.get("error"):
        raise Rubbish("the answer is an error under status 200")
    try:
        return dialect.read(found)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise Rubbish("the answer lacks what its protocol gives") from error


class TimedStreamReader:
    """The events of a streamed answer (server-sent events): when each piece of text came, and the usage at its end."""

    def __init__(self) -> None:
        self._rest = b""
        self.pieces_s: list[float] = []
        self.usage = CountedTokens()
        self.ended = False  # the protocol's own end was seen
        self.fault = ""

    def feed(self, data: bytes, now_s: float) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip(), now_s)

    def _event(self, payload: bytes, now_s: float) -> None:
        if payload == b"[DONE]":
            self.ended = True
            return
        try:
            found = json.loads(payload)
            if found.get("error"):
                self.fault = "error in stream"
                return
            if found.get("usage"):
                self.usage = _openai_usage(found)
            for choice in found.get("choices") or ():
                delta = choice.get("delta") or choice
                if delta.get("content") or delta.get("text") or delta.get("reasoning_content"):
                    self.pieces_s.append(now_s)
                self.ended = self.ended or bool(choice.get("finish_reason"))
        except (ValueError, AttributeError, TypeError):
            self.fault = "rubbish in stream"


def _openai_usage(found: Mapping[str, Any]) -> CountedTokens:
    usage = found.get("usage") or {}
    return CountedTokens(input_tokens=usage.get("prompt_tokens"), output_tokens=usage.get("completion_tokens"))


def _chat(model: str, prompt: Prompt) -> dict[str, Any]:
    messages = list(prompt.messages) or [{"role": "user", "content": prompt.text}]
    return {"model": model, "messages": messages, **_streamed(prompt)}


def _completion(model: str, prompt: Prompt) -> dict[str, Any]:
    return {"model": model, "prompt": prompt.text, **_streamed(prompt)}


def _streamed(prompt: Prompt) -> dict[str, Any]:
    """`ignore_eos` (vLLM, SGLang, llama.cpp): answers as long as asked for, so that lengths are the test's."""
    length = {} if prompt.output_tokens is None else {"max_tokens": max(prompt.output_tokens, 1), "ignore_eos": True}
    return {**length, "stream": True, "stream_options": {"include_usage": True}}


def _read_vectors(found: Any) -> CountedTokens:
    found["data"][0]["embedding"][0]
    return _openai_usage(found)


def _read_list(found: Any) -> CountedTokens:
    """A list with an entry a text; vLLM puts it under `data`."""
    (found["data"] if isinstance(found, dict) else found)[0]
    return CountedTokens()


def _read_outputs(found: Any) -> CountedTokens:
    found["outputs"][0]["data"][0]
    return CountedTokens()


def _read_generated(found: Any) -> CountedTokens:
    found["choices"][0]
    return _openai_usage(found)


def _infer(_model: str, prompt: Prompt) -> dict[str, Any]:
    return {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [prompt.text]}]}


def _at(path: str) -> Callable[[str], str]:
    return lambda _model: path


_KNOWN: Final = (
    Dialect(name="openai-chat", path=_at("/v1/chat/completions"), body=_chat, read=_read_generated, generates=True),
    Dialect(name="openai-completions", path=_at("/v1/completions"), body=_completion, read=_read_generated,
            generates=True),
    Dialect(name="openai-embeddings", path=_at("/v1/embeddings"), read=_read_vectors,
            body=lambda model, prompt: {"model": model, "input": prompt.text}),
    Dialect(name="tei-embed", path=_at("/embed"), read=_read_list, body=lambda _, prompt: {"inputs": prompt.text}),
    Dialect(name="tei-predict", path=_at("/predict"), read=_read_list, body=lambda _, prompt: {"inputs": prompt.text}),
    Dialect(name="classify", path=_at("/classify"), read=_read_list, body=lambda _, prompt: {"inputs": prompt.text}),
    Dialect(name="tei-rerank", path=_at("/rerank"), read=_read_list,
            body=lambda _, prompt: {"query": prompt.text[:64], "texts": [prompt.text]}),
    Dialect(name="open-inference", path=lambda model: f"/v2/models/{model}/infer", body=_infer, read=_read_outputs),
)  # fmt: skip
DIALECTS: Final[dict[str, Dialect]] = {one.name: one for one in _KNOWN}
