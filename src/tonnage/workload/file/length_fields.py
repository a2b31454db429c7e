"""Token lengths in a workload file: a number, mean and max, percentiles or a histogram → `Lengths`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from tonnage.workload.file.fields import MeanLength, Positive, Spelled, StrictModel, TokenLength, key
from tonnage.workload.jobs import Lengths

PERCENTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}
WIDE_SHARE = 0.2  # of all sequences between two percentiles, above which more pieces follow the line


class LengthBin(StrictModel):
    """One bar of a histogram: so many sequences (or such a share of them) have this length."""

    tokens: TokenLength = key("Length of the sequences in this bar.", unit="tokens", example="64")
    weight: Positive = key("How many sequences, or their share: only ratios count.", example="0.3")


def _pair(value: Any) -> Any:
    if isinstance(value, list) and len(value) == 2:
        return {"tokens": value[0], "weight": value[1]}
    return value


class LengthFields(StrictModel):
    """Lengths in tokens. Give `mean` with `max`, or percentiles with `max`, or a `histogram`."""

    mean: MeanLength | None = key("Mean length.", default=None, unit="tokens", example="48")
    max: TokenLength | None = key("Longest length: memory follows it.", default=None, unit="tokens", example="128")
    p50: TokenLength | None = key("Half are at most this long.", default=None, unit="tokens", example="40")
    p90: TokenLength | None = key("90 % are at most this long.", default=None, unit="tokens", example="75")
    p95: TokenLength | None = key("95 % are at most this long.", default=None, unit="tokens", example="90")
    p99: TokenLength | None = key("99 % are at most this long.", default=None, unit="tokens", example="120")
    histogram: (
        Annotated[
            list[Annotated[LengthBin, BeforeValidator(_pair)]],
            Field(min_length=1),
            Spelled("list of [tokens, weight]"),
        ]
        | None
    ) = key("Lengths with their weights.", default=None, example="[[32, 60], [64, 30], [128, 10]]")


def _spread(value: Any) -> Any:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return {"mean": value, "max": value}
    return {"histogram": value} if isinstance(value, list) else value


TokenLengths = Annotated[LengthFields, BeforeValidator(_spread), Spelled("number, mapping or list (see Lengths)")]


def find_length_faults(fields: LengthFields) -> Iterable[tuple[str, str]]:
    """(key, fault) for lengths that contradict each other or do not suffice."""
    points = [(name, value) for name in PERCENTILES if (value := getattr(fields, name)) is not None]
    if fields.histogram is not None:
        for name in ("mean", "max", *PERCENTILES):
            if getattr(fields, name) is not None:
                yield name, "a histogram already says this; give one or the other"
        return
    if fields.mean is not None and points:
        yield points[0][0], "give `mean` or percentiles, not both"
    if fields.mean is None and not points:
        yield "", "expected `mean` and `max`, percentiles and `max`, or a `histogram`"
    if fields.max is None:
        yield "max", "is missing: memory follows the longest length"
        return
    if fields.mean is not None and fields.mean > fields.max:
        yield "mean", f"the mean ({fields.mean:g}) is above the max ({fields.max})"
    for (lower, low), (upper, high) in pairwise([*points, ("max", fields.max)]):
        if low > high:
            yield lower, f"{lower} ({low}) is above {upper} ({high})"


def freeze_lengths(fields: LengthFields) -> Lengths:
    """`Lengths` of fields without faults.

    The mean of percentiles is the area under straight lines between the points, from 1 token at 0 %.

    >>> freeze_lengths(LengthFields(p50=40, p90=80, max=120))
    Lengths(mean=44.25, maximum=120)
    """
    if fields.histogram is not None:
        total = sum(entry.weight for entry in fields.histogram)
        mean = sum(entry.tokens * (entry.weight / total) for entry in fields.histogram)
        longest = max(entry.tokens for entry in fields.histogram)
        points = tuple((float(entry.tokens), entry.weight / total) for entry in fields.histogram if entry.weight > 0)
        return Lengths(mean=min(mean, float(longest)), maximum=longest, points=points)
    assert fields.max is not None
    if fields.mean is not None:
        return Lengths(mean=float(fields.mean), maximum=fields.max)
    stated = [(share, getattr(fields, name)) for name, share in PERCENTILES.items()]
    curve = [(0.0, 1), *((share, value) for share, value in stated if value is not None), (1.0, fields.max)]
    mean = sum((right - left) * (low + high) / 2 for (left, low), (right, high) in pairwise(curve))
    return Lengths(mean=mean, maximum=fields.max, points=tuple(_along(curve)))


def _along(curve: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """(tokens, share) along straight lines between percentiles: the middle of each piece, short ones near the end."""
    for (left, low), (right, high) in pairwise(curve):
        if right <= left:
            continue
        pieces = 4 if right - left > WIDE_SHARE else 2
        for place in range(pieces):
            yield low + (high - low) * (place + 0.5) / pieces, (right - left) / pieces
