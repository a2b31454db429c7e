"""How a request for images or audio passes to an upstream: as it came, with the upstream's name of the model."""

from __future__ import annotations

from math import ceil
from typing import Final

import orjson

from tonnage.gateway.dialects.usage import Surface, Usage
from tonnage.gateway.proxy.asked import GatewayRequest, with_model
from tonnage.gateway.proxy.passage import NotAnAnswer, Passed, Tap
from tonnage.gateway.proxy.tap import UsageTap
from tonnage.http.connection import Headers

TARGETS: Final[dict[Surface, bytes]] = {
    "images": b"/images/generations", "image-edits": b"/images/edits",
    "transcriptions": b"/audio/transcriptions", "speech": b"/audio/speech",
}  # fmt: skip


class MediaPassage:
    """Every byte passes but the model's name."""

    kind: bytes | None = None
    headers: Headers = ()
    translated = False

    def __init__(self, surface: Surface) -> None:
        self._surface: Surface = surface

    def request(self, asked: GatewayRequest, model: str, output_limit: int | None) -> Passed:  # noqa: ARG002
        assert asked.media is not None
        place = asked.media.model_place
        if place is None:
            body = with_model(asked, model)
        else:
            body = b"".join([asked.body[: place.begin], model.encode(), asked.body[place.end :]])
        return Passed(target=TARGETS[self._surface], body=body, content_type=asked.media.content_type)

    def whole(self, body: bytes, model: str) -> tuple[bytes, Usage | None]:  # noqa: ARG002
        """The number of images, or the seconds heard, where the answer tells. Raises NotAnAnswer."""
        if self._surface == "speech":
            return body, None
        try:
            said = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            if self._surface == "transcriptions":  # a text or subtitles
                return body, None
            raise NotAnAnswer("what is no JSON") from error
        if not isinstance(said, dict):
            raise NotAnAnswer("what is no object")
        if self._surface == "transcriptions":
            usage = said.get("usage")
            seconds = usage.get("seconds") if isinstance(usage, dict) else said.get("duration")
            if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or seconds < 0:
                return body, None
            return body, Usage(input_tokens=0, output_tokens=0, media_units=ceil(seconds))
        data = said.get("data")
        if not isinstance(data, list):
            raise NotAnAnswer("no images")
        return body, Usage(input_tokens=0, output_tokens=0, media_units=len(data))

    def tap(self, asked: GatewayRequest) -> Tap:
        """Of an upstream that streams all the same."""
        return UsageTap(asked.surface, strip=False)

    def error(self, status: int, body: bytes) -> tuple[int, bytes]:
        return status, body
