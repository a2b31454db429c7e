"""JSON-RPC 2.0 over lines, as the Model Context Protocol has it on standard input and output, up to its revision
2025-11-25."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TextIO

from tonnage.errors import TonnageError
from tonnage.values import dataclass

REVISIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")  # the newest first
LONGEST_LINE: Final = 4 << 20  # characters
PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnswer:
    """What a tool gives: text for a reader, the document behind it."""

    text: str
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTool:
    """One question. `schema`: of its arguments; `call` raises TonnageError."""

    name: str
    title: str
    about: str
    schema: Mapping[str, Any]
    call: Callable[[Mapping[str, Any]], ToolAnswer]


class _ProtocolError(Exception):
    """An error of the protocol, not of a tool."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def serve_lines(lines: Iterable[str], out: TextIO, tools: Sequence[AgentTool], version: str) -> None:
    """Answer each line until there are no more."""
    for line in lines:
        if line.strip() and (answer := answer_line(line, tools, version)) is not None:
            out.write(answer + "\n")
            out.flush()


def answer_line(line: str, tools: Sequence[AgentTool], version: str) -> str | None:
    """The answer to one message; None for a notification.

    >>> answer_line('{"jsonrpc": "2.0", "id": 1, "method": "ping"}', (), "0")
    '{"jsonrpc": "2.0", "id": 1, "result": {}}'
    """
    number: Any = None
    try:
        message = _message(line)
        number = message.get("id")
        if "id" not in message:
            return None
        said: dict[str, Any] = {"result": _result(message["method"], message.get("params", {}), tools, version)}
    except _ProtocolError as error:
        said = {"error": {"code": error.code, "message": error.message}}
    return json.dumps({"jsonrpc": "2.0", "id": number, **said}, ensure_ascii=False)


def _message(line: str) -> dict[str, Any]:
    if len(line) > LONGEST_LINE:
        raise _ProtocolError(INVALID_REQUEST, f"a message of over {LONGEST_LINE:,} characters")
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _ProtocolError(PARSE_ERROR, "not JSON") from error
    if not isinstance(found, dict) or found.get("jsonrpc") != "2.0" or not isinstance(found.get("method"), str):
        raise _ProtocolError(INVALID_REQUEST, "not a request of JSON-RPC 2.0")
    if "id" in found and (isinstance(found["id"], bool) or not isinstance(found["id"], str | int)):
        raise _ProtocolError(INVALID_REQUEST, "an id is a text or a whole number")
    if not isinstance(found.get("params", {}), dict):
        raise _ProtocolError(INVALID_PARAMS, "params must be an object")
    return found


def _result(method: str, params: Mapping[str, Any], tools: Sequence[AgentTool], version: str) -> dict[str, Any]:
    if method == "initialize":
        asked = params.get("protocolVersion")
        return {
            "protocolVersion": asked if asked in REVISIONS else REVISIONS[0], "capabilities": {"tools": {}},
            "serverInfo": {"name": "tonnage", "title": "Tonnage", "version": version},
        }  # fmt: skip
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": [_described(one) for one in tools]}
    if method == "tools/call":
        return _called(params, tools)
    raise _ProtocolError(NO_METHOD, f"no method '{method[:80]}'")


def _described(one: AgentTool) -> dict[str, Any]:
    hints = {"readOnlyHint": True, "openWorldHint": False}
    return {
        "name": one.name, "title": one.title, "description": one.about, "inputSchema": dict(one.schema),
        "annotations": hints,
    }  # fmt: skip


def _called(params: Mapping[str, Any], tools: Sequence[AgentTool]) -> dict[str, Any]:
    tool = next((one for one in tools if one.name == params.get("name")), None)
    if tool is None:
        raise _ProtocolError(INVALID_PARAMS, f"no tool '{str(params.get('name'))[:80]}'")
    given = params.get("arguments") or {}
    if not isinstance(given, dict):
        raise _ProtocolError(INVALID_PARAMS, "arguments must be an object")
    try:
        answer = tool.call(given)
    except TonnageError as error:  # the agent reads it and can ask better
        text = error.message + (f"\nhint: {error.hint}" if error.hint else "")
        return {"content": [{"type": "text", "text": text}], "isError": True}
    return {
        "content": [{"type": "text", "text": answer.text}], "structuredContent": dict(answer.document), "isError": False
    }  # fmt: skip
