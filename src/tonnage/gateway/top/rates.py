"""What happened between two looks at a gateway: rates, quantiles, what is under way, what is left of budgets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from tonnage.gateway.measures import BUCKETS_S
from tonnage.values import dataclass

Kind = Literal["deployment", "route", "key"]
Circuit = Literal["closed", "partly open", "open"]
NO_DEPLOYMENT: Final = "none"  # answers of the gateway's own
HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopRow:
    """One deployment, route or key. None: not known, or nothing that it could be known of."""

    name: str
    requests_per_s: float
    in_flight: int
    first_byte_p50_s: float | None
    first_byte_p95_s: float | None
    output_tokens_per_s: float
    usd_per_hour: float
    circuit: Circuit | None = None
    cache_hit_share: float | None = None
    pays: float | None = None  # an own machine: its tokens at the cheapest price of a route beside it, over its hour


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLeft:
    """An allowance in its present window, in its unit (dollars are pico-dollars)."""

    words: str
    unit: str
    cap: int
    taken: int
    forecast: Mapping[str, Any] | None = None  # of a budget: as the status page has it

    @property
    def left(self) -> int:
        return max(self.cap - self.taken, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Top:
    """`accounts`: why budgets are not known; None: they are."""

    seconds: float
    workers: int
    waiting: int  # requests in the lines of limits
    deployments: tuple[TopRow, ...]
    routes: tuple[TopRow, ...]
    keys: tuple[TopRow, ...]
    budgets: tuple[BudgetLeft, ...]
    accounts: str | None


def happened(before: Mapping[str, Any], after: Mapping[str, Any]) -> Top:
    """Two status pages, the later one second. A count that fell, as when workers were replaced, counts as none."""
    seconds = max(after["at_s"] - before["at_s"], 1e-3)
    grown = _Grown(before, after)
    allowances = after["allowances"]
    return Top(
        seconds=seconds, workers=after["workers"], waiting=after["waiting"],
        deployments=tuple(_deployments(grown, after, seconds)), routes=tuple(_routes(grown, after, seconds)),
        keys=tuple(_keys(grown, after, seconds)), accounts=after.get("accounts"),
        budgets=tuple(
            BudgetLeft(words=one["words"], unit=one["unit"], cap=one["cap"], taken=one["taken"],
                       forecast=one.get("forecast"))
            for one in allowances or ()
        ),
    )  # fmt: skip


def quantile_s(counts: Sequence[float], share: float) -> float | None:
    """The share's quantile of a histogram over `BUCKETS_S`, linear within its bucket; None without values.

    Beyond the last bound the bound itself: the histogram knows no more.
    """
    total = sum(counts)
    if total <= 0:
        return None
    wanted, below = share * total, 0.0
    for index, count in enumerate(counts):
        if count > 0 and below + count >= wanted:
            if index >= len(BUCKETS_S):
                return BUCKETS_S[-1]
            low = BUCKETS_S[index - 1] if index else 0.0
            return low + (BUCKETS_S[index] - low) * (wanted - below) / count
        below += count
    return BUCKETS_S[-1]


class _Grown:
    """By how much counts and histograms grew, added up by one label."""

    def __init__(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        known = {_place(name, labels): amount for name, labels, amount in before["counts"]}
        self._counts = [
            (name, dict(labels), max(amount - known.get(_place(name, labels), 0.0), 0.0))
            for name, labels, amount in after["counts"]
        ]
        times = {_place(name, labels): values for name, labels, values in before["times"]}
        self._times = [
            (name, dict(labels), _less(values, times.get(_place(name, labels))))
            for name, labels, values in after["times"]
        ]

    def by(self, name: str, label: str, **wanted: str) -> dict[str, float]:
        found: dict[str, float] = defaultdict(float)
        for one, labels, amount in self._counts:
            if one == name and label in labels and all(labels.get(key) == value for key, value in wanted.items()):
                found[labels[label]] += amount
        return found

    def histogram(self, name: str, label: str, value: str) -> list[float]:
        """Counts a bucket, without the sum."""
        total = [0.0] * (len(BUCKETS_S) + 1)
        for one, labels, values in self._times:
            if one == name and labels.get(label) == value:
                total = [a + b for a, b in zip(total, values, strict=False)]
        return total


def _deployments(grown: _Grown, after: Mapping[str, Any], seconds: float) -> Iterable[TopRow]:
    for name, known in after["deployments"].items():
        resting = known["resting_workers"]
        circuit: Circuit = "closed" if not resting else "open" if resting >= after["workers"] else "partly open"
        pays = _pays(grown, name, known, seconds)
        yield _row(grown, "deployment", name, seconds, in_flight=known["under_way"], circuit=circuit, pays=pays)


def _pays(grown: _Grown, name: str, known: Mapping[str, Any], seconds: float) -> float | None:
    """None: no machine of one's own, or nothing beside it sells tokens."""
    per_hour, instead = known.get("own_usd_per_hour"), known.get("instead")
    if not per_hour or not instead:
        return None
    inputs, outputs = (
        grown.by("tonnage_gateway_tokens_total", "deployment", kind=kind).get(name, 0.0) for kind in ("input", "output")
    )
    bought = min(inputs * one["input_usd"] + outputs * one["output_usd"] for one in instead)
    return float(bought / seconds * HOUR_S / per_hour)


def _routes(grown: _Grown, after: Mapping[str, Any], seconds: float) -> Iterable[TopRow]:
    looked = grown.by("tonnage_gateway_cache_total", "route")
    missed = grown.by("tonnage_gateway_cache_total", "route", met="miss")
    hits = {name: all_of - missed.get(name, 0.0) for name, all_of in looked.items()}
    for name in after["routes"]:
        share = hits.get(name, 0.0) / looked[name] if looked.get(name) else None
        in_flight = after["in_flight"]["routes"].get(name, 0)
        yield _row(grown, "route", name, seconds, in_flight=in_flight, cache_hit_share=share, more=hits.get(name, 0.0))


def _keys(grown: _Grown, after: Mapping[str, Any], seconds: float) -> Iterable[TopRow]:
    requests = grown.by("tonnage_gateway_key_requests_total", "key")
    tokens = grown.by("tonnage_gateway_key_tokens_total", "key", kind="output")
    usd = grown.by("tonnage_gateway_key_usd_total", "key")
    for name in after["keys"]:
        yield TopRow(
            name=name, requests_per_s=requests.get(name, 0.0) / seconds,
            in_flight=after["in_flight"]["keys"].get(name, 0), first_byte_p50_s=None, first_byte_p95_s=None,
            output_tokens_per_s=tokens.get(name, 0.0) / seconds, usd_per_hour=usd.get(name, 0.0) / seconds * HOUR_S,
        )  # fmt: skip


def _row(
    grown: _Grown, kind: Kind, name: str, seconds: float, *, in_flight: int, circuit: Circuit | None = None,
    cache_hit_share: float | None = None, more: float = 0.0, pays: float | None = None,
) -> TopRow:  # fmt: skip
    """`more`: requests that no deployment answered, from the cache."""
    first = grown.histogram("tonnage_gateway_first_byte_seconds", kind, name)
    requests = grown.by("tonnage_gateway_requests_total", kind).get(name, 0.0) + more
    tokens = grown.by("tonnage_gateway_tokens_total", kind, kind="output").get(name, 0.0)
    usd = grown.by("tonnage_gateway_usd_total", kind).get(name, 0.0)
    return TopRow(
        name=name, requests_per_s=requests / seconds, in_flight=in_flight, first_byte_p50_s=quantile_s(first, 0.5),
        first_byte_p95_s=quantile_s(first, 0.95), output_tokens_per_s=tokens / seconds,
        usd_per_hour=usd / seconds * HOUR_S, circuit=circuit, cache_hit_share=cache_hit_share, pays=pays,
    )  # fmt: skip


def _place(name: str, labels: Iterable[Iterable[str]]) -> tuple[str, tuple[tuple[str, ...], ...]]:
    return name, tuple(tuple(one) for one in labels)


def _less(values: Sequence[float], before: Sequence[float] | None) -> list[float]:
    if before is None:
        return list(values)
    return [max(one - other, 0.0) for one, other in zip(values, before, strict=True)]
