"""A request for images or audio: how many units of what it asks for, and what they cost at a deployment."""

from __future__ import annotations

import struct
from math import ceil
from typing import Any, Final, Literal

from tonnage.gateway.dialects.usage import Surface, Usage
from tonnage.gateway.forms import Part, form_fields, read_parts
from tonnage.gateway.money.rates import MediaRates
from tonnage.gateway.proxy.asked import GatewayRequest, UnreadableRequest, json_object
from tonnage.http.connection import Headers
from tonnage.values import dataclass

MEDIA_PATHS: Final[dict[str, Surface]] = {
    "/v1/images/generations": "images", "/v1/images/edits": "image-edits",
    "/v1/audio/transcriptions": "transcriptions", "/v1/audio/speech": "speech",
}  # fmt: skip
MOST_IMAGES: Final = 128
LEAST_BITS_PER_S: Final = 4000  # no codec of speech in use takes fewer (Opus begins at 6,000)
USUAL_BITS_PER_S: Final = 64_000  # of audio of unknown length, for estimates alone
_PCM: Final = 1  # in the header of a WAV file
Unit = Literal["image", "second", "character"]
_UNITS: Final[dict[Surface, Unit]] = {
    "images": "image", "image-edits": "image", "transcriptions": "second", "speech": "character",
}  # fmt: skip


class NoPrice(Exception):
    """The deployment has no price for what is asked: its words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaAsk:
    """`units`: images or letters asked for, or seconds of audio where the file says them; None: a file whose length is
    not known. `audio_bytes`: of that file. `model_place`: where the model's name is in a form."""

    unit: Unit
    units: int | None
    content_type: bytes
    size: str | None = None
    quality: str | None = None
    audio_bytes: int = 0
    model_place: Part | None = None

    def most_pico(self, rates: MediaRates) -> int:
        """What it can cost at most. Raises NoPrice."""
        units = self.units
        if units is None:
            by_bytes = self.audio_bytes * 8 / LEAST_BITS_PER_S
            units = ceil(min(by_bytes, rates.longest_audio_s or by_bytes))
        return units * self._unit_pico(rates)

    def cost_pico(self, rates: MediaRates, usage: Usage | None) -> int:
        """What an answer costs; None: by estimate."""
        units = self.units if usage is None else usage.media_units
        if units is None:
            units = ceil(self.audio_bytes * 8 / USUAL_BITS_PER_S)
        return units * self._unit_pico(rates)

    def counted(self, usage: Usage | None) -> Usage | None:
        """What is billed: as the answer tells it, else as the request does where that is exact."""
        if self.unit == "character" or (usage is None and self.unit == "second" and self.units is not None):
            return Usage(input_tokens=0, output_tokens=0, media_units=self.units or 0)
        return usage

    def _unit_pico(self, rates: MediaRates) -> int:
        if self.unit == "image":
            found = rates.image_price_pico(self.size, self.quality)
            if found is None:
                raise NoPrice(f"images of {self.size or 'any size'}, quality {self.quality or 'any'}, have no price")
            return found
        found = rates.audio_s_pico if self.unit == "second" else rates.character_pico
        if found is None:
            raise NoPrice(f"a {self.unit} has no price")
        return found


def read_media(surface: Surface, headers: Headers, body: bytes) -> GatewayRequest:
    """The request of a body, JSON or a form. Raises UnreadableRequest."""
    kind = next((value for name, value in headers if name == b"content-type"), b"")
    place = None
    audio = b""
    if surface in ("image-edits", "transcriptions"):
        parts = read_parts(kind, body)
        said: dict[str, Any] = dict(form_fields(body, parts))
        place = next((one for one in parts if one.name == "model" and not one.is_file), None)
        files = [one for one in parts if one.is_file]
        if not files:
            raise UnreadableRequest("the form has no file", param="file")
        if surface == "transcriptions":
            if len(files) > 1:
                raise UnreadableRequest("the form has more than one file", param="file")
            audio = body[files[0].begin : files[0].end]
    else:
        said = json_object(body)
        kind = b"application/json"
    model = said.get("model")
    if not isinstance(model, str) or not model:
        raise UnreadableRequest("`model` must name a route of the gateway", param="model")
    if said.get("stream") not in (None, False, "false") or said.get("stream_format") not in (None, "audio"):
        raise UnreadableRequest("images and audio are passed on whole: leave `stream` out", param="stream")
    media = MediaAsk(
        unit=_UNITS[surface], units=_units(surface, said, audio), content_type=kind, size=_word(said, "size"),
        quality=_word(said, "quality"), audio_bytes=len(audio), model_place=place,
    )  # fmt: skip
    return GatewayRequest(
        surface=surface, model=model, body=body, said=said, stream=False, wants_usage=False, max_tokens=None,
        answers=1, images=0, unbounded=None, media=media,
    )  # fmt: skip


def _units(surface: Surface, said: dict[str, Any], audio: bytes) -> int | None:
    if surface == "transcriptions":
        return _wav_seconds(audio)
    if surface == "speech":
        text = said.get("input")
        if not isinstance(text, str):
            raise UnreadableRequest("`input` must be a text", param="input")
        return len(text)
    number = said.get("n", 1)
    if isinstance(number, str) and number.isascii() and number.isdigit():
        number = int(number)  # of a form
    if number is None:
        number = 1
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MOST_IMAGES:
        raise UnreadableRequest(f"`n` must be a whole number, 1 to {MOST_IMAGES}", param="n")
    return number


def _word(said: dict[str, Any], name: str) -> str | None:
    found = said.get(name)
    if found is not None and not isinstance(found, str):
        raise UnreadableRequest(f"`{name}` must be a text", param=name)
    return found


def _wav_seconds(audio: bytes) -> int | None:
    """Whole seconds of a WAV file of plain samples, rounded up: its bytes over those a second, whatever length its
    header claims. None: it is another kind of file."""
    if len(audio) < 44 or audio[:4] != b"RIFF" or audio[8:16] != b"WAVEfmt ":
        return None
    channels, rate, _, _, bits = struct.unpack_from("<HIIHH", audio, 22)
    bytes_per_s: int = channels * rate * bits // 8
    if struct.unpack_from("<H", audio, 20)[0] != _PCM or not bytes_per_s:
        return None
    return ceil(len(audio) / bytes_per_s)
