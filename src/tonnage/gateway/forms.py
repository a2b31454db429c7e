"""Forms of several parts (`multipart/form-data`, RFC 7578): their fields, and where each is in the body."""

from __future__ import annotations

import re
from email.message import Message
from email.utils import collapse_rfc2231_value
from typing import Final, NamedTuple

from tonnage.gateway.proxy.asked import UnreadableRequest

MOST_PARTS: Final = 64
MOST_HEADER_BYTES: Final = 8 << 10
_BOUNDARY: Final = re.compile(rb"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")


class Part(NamedTuple):
    """`begin` and `end` of its content in the body. `filename` None: a field."""

    name: str
    begin: int
    end: int
    filename: str | None

    @property
    def is_file(self) -> bool:
        return self.filename is not None


def read_parts(content_type: bytes, body: bytes) -> list[Part]:
    """The parts of a form. Raises UnreadableRequest: also where readers could differ in what they see."""
    said = Message()
    said["content-type"] = content_type.decode("latin-1")
    found = said.get_param("boundary")
    boundary = found.encode("latin-1", "replace") if isinstance(found, str) else b""
    if said.get_content_type() != "multipart/form-data" or not _BOUNDARY.fullmatch(boundary):
        raise UnreadableRequest("the body must be multipart/form-data with a boundary")
    mark = b"--" + boundary
    if not body.startswith(mark):
        raise UnreadableRequest("the form does not begin with its boundary")
    parts: list[Part] = []
    at = len(mark)
    while not body.startswith(b"--", at):
        if not body.startswith(b"\r\n", at) or len(parts) >= MOST_PARTS:
            raise UnreadableRequest("the form cannot be read" if len(parts) < MOST_PARTS else "too many parts")
        head_end = body.find(b"\r\n\r\n", at, at + MOST_HEADER_BYTES)
        end = body.find(b"\r\n" + mark, head_end + 2)
        if head_end < 0 or end < 0:
            raise UnreadableRequest("the form cannot be read: a part ends before its boundary")
        parts.append(_part(body[at + 2 : head_end], min(head_end + 4, end), end))
        at = end + 2 + len(mark)
    return parts


def form_fields(body: bytes, parts: list[Part]) -> dict[str, str]:
    """Fields that are no files. One that occurs twice is refused: readers differ in which of them counts."""
    found: dict[str, str] = {}
    for part in parts:
        if part.is_file:
            continue
        if part.name in found and not part.name.endswith("[]"):
            raise UnreadableRequest(f"`{part.name}` stands twice in the form", param=part.name)
        try:
            found[part.name] = body[part.begin : part.end].decode()
        except UnicodeDecodeError as error:
            raise UnreadableRequest(f"`{part.name}` is no UTF-8 text", param=part.name) from error
    return found


def _part(head: bytes, begin: int, end: int) -> Part:
    said = Message()
    for line in head.split(b"\r\n"):
        name, _, value = line.decode("utf-8", "replace").partition(":")
        if name.strip().lower() == "content-disposition" and "content-disposition" not in said:
            said["content-disposition"] = value.strip()
    field = said.get_param("name", header="content-disposition")
    if not isinstance(field, str):
        raise UnreadableRequest("a part of the form has no name")
    filename = said.get_param("filename", header="content-disposition")
    return Part(field, begin, end, None if filename is None else collapse_rfc2231_value(filename))
