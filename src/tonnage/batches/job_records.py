"""Requests of OpenAI's protocol as records of a job, and what a job answers as OpenAI's protocol has it.

Bedrock takes one request a line in its own forms: Converse for conversations, of every family of models alike, and the
body of the model itself for embeddings. What has no counterpart there is refused by name, never left out.
Sources: AWS, «Format and upload your batch inference data», and the API reference of Converse (read 2026-11).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from tonnage.traffic.batch import RowFault

Invocation = Literal["Converse", "InvokeModel"]
CHAT: Final = "/v1/chat/completions"
EMBEDDINGS: Final = "/v1/embeddings"
_INFERENCE: Final = {"max_tokens": "maxTokens", "max_completion_tokens": "maxTokens", "temperature": "temperature",
                     "top_p": "topP"}  # fmt: skip
_CHAT_TAKEN: Final = frozenset({*_INFERENCE, "model", "messages", "stop", "tools", "tool_choice"})
_IGNORED: Final = frozenset({"user", "metadata", "store"})  # say nothing of the answer
_NEUTRAL: Final[Mapping[str, Any]] = {"n": 1, "stream": False, "logprobs": False, "frequency_penalty": 0,
                                      "presence_penalty": 0, "encoding_format": "float"}  # fmt: skip
_FINISH: Final = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls",
                  "content_filtered": "content_filter", "guardrail_intervened": "content_filter"}  # fmt: skip
_IMAGES: Final = ("png", "jpeg", "gif", "webp")


def invocation_of(path: str) -> Invocation:
    """The form in which Bedrock takes the requests of a path. RowFault for one that has none."""
    if path == CHAT:
        return "Converse"
    if path == EMBEDDINGS:
        return "InvokeModel"
    raise RowFault(f"Bedrock's batch jobs take {CHAT} and {EMBEDDINGS}, not {path}")


def model_input(path: str, model: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The `modelInput` of a request. RowFault names what Bedrock does not take."""
    if invocation_of(path) == "Converse":
        return _converse(body)
    return _embedding(model, body)


def openai_body(path: str, model: str, output: Mapping[str, Any]) -> dict[str, Any]:
    """The body of an answer from a `modelOutput`. ValueError where it is no answer of that kind."""
    try:
        return _chat_completion(model, output) if path == CHAT else _embedding_list(model, output)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"the output is no answer of {model}: {type(error).__name__} {error}") from error


# conversations


def _converse(body: Mapping[str, Any]) -> dict[str, Any]:
    _refuse_others(body, _CHAT_TAKEN)
    asked: dict[str, Any] = {"messages": []}
    system: list[dict[str, str]] = []
    for message in body["messages"] if isinstance(body.get("messages"), list) else _fault("no list of messages"):
        if not isinstance(message, Mapping):
            raise RowFault("a message is no object")
        role = message.get("role")
        if role in ("system", "developer"):
            system.extend(_texts(message.get("content")))
        elif role in ("user", "assistant", "tool"):
            _add(asked["messages"], "assistant" if role == "assistant" else "user", _blocks(role, message))
        else:
            raise RowFault(f"a message of the role {role!r}")
    if not asked["messages"]:
        raise RowFault("no message of a user")
    if system:
        asked["system"] = system
    inference = {theirs: body[ours] for ours, theirs in _INFERENCE.items() if body.get(ours) is not None}
    if body.get("stop") is not None:
        inference["stopSequences"] = [body["stop"]] if isinstance(body["stop"], str) else list(body["stop"])
    if inference:
        asked["inferenceConfig"] = inference
    if body.get("tools"):
        asked["toolConfig"] = _tools(body)
    return asked


def _add(messages: list[dict[str, Any]], role: str, blocks: list[dict[str, Any]]) -> None:
    """Converse wants the roles to alternate: what one says after another becomes one message."""
    if messages and messages[-1]["role"] == role:
        messages[-1]["content"].extend(blocks)
    else:
        messages.append({"role": role, "content": blocks})


def _blocks(role: str, message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if role == "tool":
        return [{"toolResult": {"toolUseId": message.get("tool_call_id"), "content": _texts(content)}}]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    found = [_block(part) for part in parts]
    for call in message.get("tool_calls") or ():
        function = call["function"]
        said = {"toolUseId": call["id"], "name": function["name"], "input": json.loads(function["arguments"] or "{}")}
        found.append({"toolUse": said})
    if not found:
        raise RowFault(f"a message of the role {role!r} without content")
    return found


def _block(part: Any) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "text":
        return {"text": part["text"]}
    if kind == "image_url":
        head, _, data = str(part["image_url"]["url"]).partition(";base64,")
        form = head.removeprefix("data:image/").replace("jpg", "jpeg")
        if form in _IMAGES and data:
            return {"image": {"format": form, "source": {"bytes": data}}}
        raise RowFault("an image that is no data URL of PNG, JPEG, GIF or WebP")
    raise RowFault(f"a content part of the type {kind!r}")


def _texts(content: Any) -> list[dict[str, str]]:
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    if not all(isinstance(part, Mapping) and part.get("type") == "text" for part in parts):
        raise RowFault("a system or tool message that is no text")
    return [{"text": part["text"]} for part in parts]


def _tools(body: Mapping[str, Any]) -> dict[str, Any]:
    specs = []
    for tool in body["tools"]:
        function = tool.get("function") or {}
        spec = {"name": function.get("name"), "inputSchema": {"json": function.get("parameters") or {"type": "object"}}}
        if function.get("description"):
            spec["description"] = function["description"]
        specs.append({"toolSpec": spec})
    choice = body.get("tool_choice", "auto")
    if isinstance(choice, Mapping):
        chosen: dict[str, Any] = {"tool": {"name": choice["function"]["name"]}}
    elif choice in ("auto", "required"):
        chosen = {"any" if choice == "required" else "auto": {}}
    else:
        raise RowFault(f"tool_choice {choice!r}: leave out the tools instead")
    return {"tools": specs, "toolChoice": chosen}


def _chat_completion(model: str, output: Mapping[str, Any]) -> dict[str, Any]:
    blocks = output["output"]["message"]["content"]
    message: dict[str, Any] = {"role": "assistant", "content": "".join(one["text"] for one in blocks if "text" in one)}
    calls = [_tool_call(one["toolUse"]) for one in blocks if "toolUse" in one]
    if calls:
        message |= {"content": message["content"] or None, "tool_calls": calls}
    usage = output["usage"]
    read, written = int(usage["inputTokens"]), int(usage["outputTokens"])
    reason = _FINISH.get(output.get("stopReason", ""), "stop")
    return {
        "object": "chat.completion", "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }  # fmt: skip


def _tool_call(use: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": use["name"], "arguments": json.dumps(use["input"])}
    return {"id": use["toolUseId"], "type": "function", "function": function}


# embeddings


def _embedding(model: str, body: Mapping[str, Any]) -> dict[str, Any]:
    _refuse_others(body, frozenset({"model", "input", "dimensions"}))
    given = body.get("input")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, Sequence) or not texts or not all(isinstance(one, str) for one in texts):
        raise RowFault("the input is no text and no list of texts")
    if "titan-embed" in model:
        if len(texts) > 1:
            raise RowFault("Titan embeds one text a record")
        sized = {} if body.get("dimensions") is None else {"dimensions": body["dimensions"]}
        return {"inputText": texts[0], **sized}
    if "cohere.embed" in model:
        if body.get("dimensions") is not None:
            raise RowFault("dimensions are not taken by Cohere's models there")
        return {"texts": list(texts), "input_type": "search_document"}
    raise RowFault(f"no form of embeddings is known for {model}: Titan's and Cohere's are")


def _embedding_list(model: str, output: Mapping[str, Any]) -> dict[str, Any]:
    vectors = [output["embedding"]] if "embedding" in output else output["embeddings"]
    data = [{"object": "embedding", "index": at, "embedding": one} for at, one in enumerate(vectors)]
    read = int(output.get("inputTextTokenCount", 0))
    usage = {"prompt_tokens": read, "total_tokens": read}
    return {"object": "list", "model": model, "data": data, "usage": usage}


def _refuse_others(body: Mapping[str, Any], taken: frozenset[str]) -> None:
    others = [
        name for name, value in body.items()
        if name not in taken and name not in _IGNORED and value is not None
        and not (name in _NEUTRAL and _NEUTRAL[name] == value)
    ]  # fmt: skip
    if others:
        raise RowFault(f"Bedrock's batch jobs do not take {', '.join(sorted(others))}")


def _fault(reason: str) -> Any:
    raise RowFault(reason)
