"""Forms as clients upload files: `multipart/form-data`. Source: RFC 7578."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_BOUNDARY: Final = re.compile(rb'boundary=(?:"([^"]{1,70})"|([^\s;]{1,70}))', re.IGNORECASE)
_NAME: Final = re.compile(rb'[;\s]name="((?:[^"\\]|\\.)*)"', re.IGNORECASE)
_FILENAME: Final = re.compile(rb'[;\s]filename="((?:[^"\\]|\\.)*)"', re.IGNORECASE)


class BadForm(ValueError):
    """A form that cannot be read, and why."""


class FormPart(NamedTuple):
    """A field, or a file where `filename` is not None."""

    filename: str | None
    content: bytes


def read_form(content_type: bytes, body: bytes) -> dict[str, FormPart]:
    """The parts of a form by their name; of two with one name the last. Raises BadForm."""
    found = _BOUNDARY.search(content_type)
    if found is None or not content_type.lower().startswith(b"multipart/form-data"):
        raise BadForm("the upload must be multipart/form-data with a boundary")
    mark = b"--" + (found[1] or found[2])
    pieces = (b"\r\n" + body).split(b"\r\n" + mark)
    if len(pieces) < 3 or not pieces[-1].startswith(b"--"):
        raise BadForm("the form ends before its last boundary")
    parts = {}
    for piece in pieces[1:-1]:
        head, middle, content = piece.partition(b"\r\n\r\n")
        named = _NAME.search(head)
        if not middle or named is None:
            raise BadForm("a part of the form has no name")
        filename = _FILENAME.search(head)
        parts[_text(named[1])] = FormPart(None if filename is None else _text(filename[1]), content)
    return parts


def _text(raw: bytes) -> str:
    return re.sub(rb"\\(.)", rb"\1", raw).decode("utf-8", "replace")
