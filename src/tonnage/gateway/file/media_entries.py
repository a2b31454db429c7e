"""The prices of images and audio in a gateway file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tonnage.gateway.media.rates import MediaRates
from tonnage.gateway.money.rates import pico_usd
from tonnage.workload.file.fields import Duration, PositiveOrZero, StrictModel
from tonnage.workload.file.fields import key as entry
from tonnage.workload.file.problems import Problem

_IMAGE: Final = re.compile(r"\d{1,5}x\d{1,5}( [a-z0-9-]{1,20})?")


class MediaEntry(StrictModel):
    """What images and audio cost; only what has a price can be asked."""

    usd_per_image: PositiveOrZero | None = entry("Each image that `images` does not name.", default=None)
    images: dict[str, PositiveOrZero] = entry(
        "Each image by its size, or size and quality.", default={}, example='{"1024x1024 hd": 0.08}'
    )
    usd_per_audio_s: PositiveOrZero | None = entry("Each second of audio that is transcribed.", default=None)
    longest_audio: Duration | None = entry(
        "What it transcribes of one request at most. Default: as long as the file's bytes can be.", default=None
    )
    usd_per_character: PositiveOrZero | None = entry("Each letter of a text that is spoken.", default=None)


def media_problems(path: tuple[str | int, ...], one: MediaEntry, dialect: str) -> Iterator[Problem]:
    """What of the prices contradicts itself."""
    if one.usd_per_image is one.usd_per_audio_s is one.usd_per_character is None and not one.images:
        yield Problem(
            path,
            "has no price, and an unknown price is not taken as zero",
            "usd_per_image, usd_per_audio_s or usd_per_character",
        )
    for name in one.images:
        if not _IMAGE.fullmatch(name):
            yield Problem((*path, "images", name), "is no size", "such as 1024x1024, or 1024x1024 hd with a quality")
    if one.longest_audio is not None and one.usd_per_audio_s is None:
        yield Problem((*path, "longest_audio"), "needs usd_per_audio_s", "state what a second costs")
    if dialect != "openai":
        yield Problem(path, f"images and audio are asked as OpenAI does, not as {dialect}", "dialect: openai")


def read_media_rates(one: MediaEntry) -> MediaRates:
    """Whole pico-dollars."""
    return MediaRates(
        image_pico=None if one.usd_per_image is None else pico_usd(one.usd_per_image),
        images={name: pico_usd(price) for name, price in one.images.items()},
        audio_s_pico=None if one.usd_per_audio_s is None else pico_usd(one.usd_per_audio_s),
        character_pico=None if one.usd_per_character is None else pico_usd(one.usd_per_character),
        longest_audio_s=one.longest_audio,
    )
