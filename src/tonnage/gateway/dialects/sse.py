"""Server-sent events, whatever the pieces in which their bytes come."""

from __future__ import annotations

from typing import Final

from tonnage.gateway.dialects.conversation import UpstreamNonsense

LONGEST_EVENT_BYTES: Final = 8 << 20


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
