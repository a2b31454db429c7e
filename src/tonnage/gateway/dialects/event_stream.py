"""Events of a stream, whatever the pieces in which its bytes come: server-sent events, and AWS's binary encoding
(application/vnd.amazon.eventstream).

A message of AWS is: total length, length of the headers, CRC-32 of these eight bytes, headers, payload, CRC-32 of all
before. Source: the event stream encoding of the Smithy specification.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Final
from zlib import crc32

from tonnage.gateway.dialects.conversation import UpstreamNonsense
from tonnage.values import dataclass

LONGEST_MESSAGE_BYTES: Final = 24 << 20
_PRELUDE: Final = Struct(">III")
_CRC: Final = Struct(">I")
_SHORT: Final = Struct(">H")
_FIXED_BYTES: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}  # type of a header's value -> its bytes
_BYTES, _STRING = 6, 7
LONGEST_EVENT_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """`headers`: those whose value is a string."""

    headers: Mapping[str, str]
    payload: bytes


class MessageReader:
    """Feed it pieces; it returns the messages that became whole."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[Message]:
        """Raises UpstreamNonsense where a checksum or a length is wrong."""
        self._rest += piece
        while len(self._rest) >= _PRELUDE.size:
            total, headers, checksum = _PRELUDE.unpack_from(self._rest)
            if crc32(self._rest[:8]) != checksum:
                raise UpstreamNonsense("an event whose prelude has a wrong checksum")
            if total > LONGEST_MESSAGE_BYTES or total < headers + _PRELUDE.size + _CRC.size:
                raise UpstreamNonsense(f"an event of {total} bytes with {headers} bytes of headers")
            if len(self._rest) < total:
                return
            whole, self._rest = self._rest[:total], self._rest[total:]
            if crc32(whole[: -_CRC.size]) != _CRC.unpack(whole[-_CRC.size :])[0]:
                raise UpstreamNonsense("an event with a wrong checksum")
            at = _PRELUDE.size + headers
            yield Message(headers=_headers(whole[_PRELUDE.size : at]), payload=whole[at : -_CRC.size])


class EventReader:
    """Feed it pieces; it returns the data of each event that became whole."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """Raises UpstreamNonsense for an event that does not end."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) + sum(map(len, self._data)) > LONGEST_EVENT_BYTES:
            raise UpstreamNonsense(f"an event of more than {LONGEST_EVENT_BYTES} bytes")
        found = []
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                found.append(b"\n".join(self._data))
                self._data = []
        return found


def _headers(data: bytes) -> dict[str, str]:
    found = {}
    at = 0
    try:
        while at < len(data):
            name_end = at + 1 + data[at]
            name, kind = data[at + 1 : name_end].decode(), data[name_end]
            at = name_end + 1
            if kind in (_BYTES, _STRING):
                end = at + 2 + _SHORT.unpack_from(data, at)[0]
                if kind == _STRING:
                    found[name] = data[at + 2 : end].decode()
                at = end
            else:
                at += _FIXED_BYTES[kind]
    except (IndexError, KeyError, ValueError, StructError) as error:
        raise UpstreamNonsense("an event whose headers cannot be read") from error
    return found
