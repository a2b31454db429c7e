"""What an upstream adds to a request by itself, so that the bytes of its body bound nothing: stored conversations,
files by id or by address, tools that the upstream runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tonnage.gateway.dialects.usage import Surface

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
