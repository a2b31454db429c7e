"""The keys of a deployment: prices of images and audio, and its score from a file of an evaluation, which is what
`tonnage evaluate -o json` and `tonnage bench run -o json` write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from tonnage.errors import InputError, did_you_mean, nearest
from tonnage.gateway.money.rates import MediaRates, pico_usd
from tonnage.values import dataclass
from tonnage.workload.file.fields import Duration, PositiveOrZero, StrictModel, Word
from tonnage.workload.file.fields import key as entry
from tonnage.workload.file.problems import Problem
from tonnage.workload.run_terms import less_is_better

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


class QualityFromEntry(StrictModel):
    """Where a score is: `tonnage evaluate RUN -o json` and `tonnage bench run FILE -o json` write such files."""

    file: Word = entry("The file, JSON.")
    metric: Word = entry("Which of its figures; more must be better.")
    of: Word | None = entry("For a bench: the name of the engine whose score it is.", default=None)
    data: Word | None = entry("For a bench over several data sets: which.", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityScore:
    """`metric` None: a score that the gateway file states; `samples`: that it was measured on, where that is known."""

    value: float
    metric: str | None = None
    samples: int | None = None
    file: str | None = None


def read_quality(one: QualityFromEntry, folder: Path, place: str) -> QualityScore:
    """The score of a file. InputError names `place` in the gateway file and what the file has."""
    path = folder / one.file
    if less_is_better(one.metric):
        raise InputError(f"{place}: of {one.metric} less is better, so it has no floor", hint="accuracy, f1, ndcg, ...")
    try:
        document = orjson.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"{place}: {path} cannot be read: {error.strerror}", hint="check the path") from error
    except orjson.JSONDecodeError as error:
        raise InputError(f"{place}: {path} is not JSON: {error}", hint="tonnage evaluate RUN -o json > FILE") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    reads = {"tonnage/evaluation@1": _evaluated, "tonnage/engine-bench@1": _benched}.get(schema or "")
    hint = "what `tonnage evaluate RUN -o json` or `tonnage bench run FILE -o json` writes"
    if reads is None:
        raise InputError(f"{place}: {path} is not an evaluation (its schema is {schema!r})", hint=hint)
    try:
        found = reads(document, one, place)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{place}: {path} is not whole: {error!r}", hint=hint) from error
    return QualityScore(value=found[0], metric=one.metric, samples=found[1], file=one.file)


def _evaluated(document: Mapping[str, Any], one: QualityFromEntry, place: str) -> tuple[float, int | None]:
    metrics = document["metrics"]
    value = metrics.get(one.metric)
    if not isinstance(value, int | float):
        hint = did_you_mean(nearest(one.metric, metrics), f"it has {', '.join(metrics)}")
        raise InputError(f"{place}: {one.file} has no {one.metric}", hint=hint)
    return float(value), document.get("samples")


def _benched(document: Mapping[str, Any], one: QualityFromEntry, place: str) -> tuple[float, int | None]:
    metrics = {data["name"]: data["metric"] for data in document["data"]}
    of_engine = [row for row in document["engines"] if row["name"] == one.of and metrics[row["data"]] == one.metric]
    wanted = [row for row in of_engine if one.data is None or row["data"] == one.data]
    if len(wanted) != 1:
        known = ", ".join(_places(document, metrics))
        count = "no score" if not wanted else f"{len(wanted)} scores"
        what = f"{one.metric} of {one.of}" + ("" if one.data is None else f" on {one.data}")
        raise InputError(f"{place}: {one.file} has {count} of {what}", hint=f"`of:` and `data:`; it has {known}")
    quality = wanted[0]["quality"]
    if quality is None:
        raise InputError(f"{place}: {one.of} has no score in {one.file}: it did not end", hint="run the bench again")
    return float(quality["value"]), None


def _places(document: Mapping[str, Any], metrics: Mapping[str, str]) -> Iterator[str]:
    for row in document["engines"]:
        yield f"{metrics[row['data']]} of {row['name']} on {row['data']}"
