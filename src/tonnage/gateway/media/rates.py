"""Prices of images and audio: by the image, the second and the letter, in whole pico-dollars."""

from __future__ import annotations

from collections.abc import Mapping

from tonnage.gateway.dialects.usage import Surface
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaRates:
    """`images`: by «size quality» or size; `image_pico`: of every other image. None: not sold.

    `longest_audio_s`: what the deployment hears of one request at most; None: not stated.
    """

    image_pico: int | None
    images: Mapping[str, int]
    audio_s_pico: int | None
    character_pico: int | None
    longest_audio_s: float | None

    @property
    def surfaces(self) -> frozenset[Surface]:
        """What may be asked of it: what has a price."""
        found: set[Surface] = set()
        if self.image_pico is not None or self.images:
            found |= {"images", "image-edits"}
        if self.audio_s_pico is not None:
            found.add("transcriptions")
        if self.character_pico is not None:
            found.add("speech")
        return frozenset(found)

    def image_price_pico(self, size: str | None, quality: str | None) -> int | None:
        """Of one image; the dearest where the request leaves open which; None: such images have no price here.

        >>> rates = MediaRates(image_pico=None, images={"512x512": 1, "1024x1024 hd": 3}, audio_s_pico=None,
        ...                    character_pico=None, longest_audio_s=None)
        >>> asked = [("512x512", None), ("1024x1024", "hd"), (None, None), ("9x9", "hd")]
        >>> [rates.image_price_pico(*one) for one in asked]
        [1, 3, 3, None]
        """
        open_size, open_quality = size in (None, "auto"), quality in (None, "auto")
        if not open_size and not open_quality and f"{size} {quality}" in self.images:
            return self.images[f"{size} {quality}"]
        if not open_size and size in self.images:
            return self.images[str(size)]
        fitting = [
            price for name, price in self.images.items()
            if (open_size or name.split(" ")[0] == size) and (open_quality or name.partition(" ")[2] in ("", quality))
        ]  # fmt: skip
        if not (open_size or open_quality):
            return self.image_pico
        return max((*fitting, *(() if self.image_pico is None else (self.image_pico,))), default=None)
