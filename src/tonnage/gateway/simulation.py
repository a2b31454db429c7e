"""A log of requests replayed against the routes of a gateway file: what it would have cost, taken and refused.

Deployments hold as many requests at a time as the file says, each for the first byte and its output tokens at the
speed that the ledger measured. Allowances are taken at what a request costs; the gateway itself holds a bound while a
request is under way, so close to a cap it refuses a little earlier.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from heapq import heappop, heappush
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final, cast, get_args

import orjson

from tonnage.errors import DataError, InputError
from tonnage.gateway.dialects.usage import Usage
from tonnage.gateway.file.described import ANYBODY, Caller, Gateway
from tonnage.gateway.file.entries import Policy
from tonnage.gateway.money.allowances import Allowance
from tonnage.gateway.money.rates import PICO_PER_USD, usd_text
from tonnage.gateway.routing.choosing import Facts, order
from tonnage.gateway.routing.health import DeploymentHealth
from tonnage.reports.blocks import Column, Page, Pairs, Table
from tonnage.reports.rendering import Report
from tonnage.reports.wording import short
from tonnage.values import dataclass

COLUMNS: Final = ("at_s", "key", "route", "input_tokens", "output_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRequest:
    """`at_s`: seconds, from any beginning; `key`: a caller's name."""

    at_s: float
    key: str
    route: str
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Of a deployment, in seconds; None: not measured and not stated."""

    first_byte_s: float | None
    per_output_token_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """`usd_pico`, `requests` by deployment; `refused` by allowance; `unserved`: no deployment took them."""

    requests: Mapping[str, int]
    usd_pico: Mapping[str, int]
    latencies_s: tuple[float, ...]  # of those whose deployments have a known speed, in order of size
    refused: Mapping[str, int]
    unserved: int


def logged_requests(attempts: Iterable[Mapping[str, Any]]) -> list[LoggedRequest]:
    """The requests of a ledger, each once: as its last attempt that has a usage."""
    last: dict[str, LoggedRequest] = {}
    for one in attempts:
        if one["input_tokens"] is not None:
            last[one["request"]] = LoggedRequest(
                at_s=one["at"], key=one["key"], route=one["route"], input_tokens=one["input_tokens"],
                output_tokens=one["output_tokens"] or 0,
            )  # fmt: skip
    return sorted(last.values(), key=lambda one: one.at_s)


def read_log(path: Path) -> list[LoggedRequest]:
    """The requests of a CSV file with `COLUMNS`, or of JSON lines with these keys. DataError names the line."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}", hint="a CSV file or JSON lines") from error
    found = []
    for number, row in enumerate(_rows(text, path), start=2 if path.suffix == ".csv" else 1):
        try:
            made = LoggedRequest(
                at_s=float(row["at_s"]), key=str(row.get("key") or "none"), route=str(row["route"]),
                input_tokens=int(row["input_tokens"]), output_tokens=int(row["output_tokens"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path}:{number}: {error!r}", hint=f"columns: {', '.join(COLUMNS)}") from error
        if made.input_tokens < 0 or made.output_tokens < 0:
            raise DataError(f"{path}:{number}: negative tokens", hint="counts are 0 or more")
        found.append(made)
    return sorted(found, key=lambda one: one.at_s)


def _rows(text: str, path: Path) -> Iterable[Mapping[str, Any]]:
    if path.suffix == ".csv":
        return csv.DictReader(text.splitlines())
    try:
        return [orjson.loads(line) for line in text.splitlines() if line.strip()]
    except orjson.JSONDecodeError as error:
        raise DataError(f"{path} is not JSON lines: {error}", hint="name a CSV file .csv") from error


def speeds(gateway: Gateway, attempts: Iterable[Mapping[str, Any]]) -> dict[str, Speed]:
    """By deployment: medians of what the ledger measured, else what the file states."""
    firsts, per_token = defaultdict(list), defaultdict(list)
    for one in attempts:
        if one["outcome"] != "ok" or one["first_byte_s"] is None:
            continue
        firsts[one["deployment"]].append(one["first_byte_s"])
        if one["output_tokens"]:
            per_token[one["deployment"]].append((one["latency_s"] - one["first_byte_s"]) / one["output_tokens"])
    return {
        name: Speed(
            first_byte_s=median(firsts[name]) if firsts[name] else one.first_byte_s,
            per_output_token_s=median(per_token[name]) if per_token[name] else None,
        )
        for name, one in gateway.deployments.items()
    }


def simulate(
    gateway: Gateway, requests: Sequence[LoggedRequest], attempts: Sequence[Mapping[str, Any]], *, policy: str | None,
    speed: float, seed: int,
) -> Simulated:  # fmt: skip
    """Replay the requests. Raises InputError for a policy or a route that is not there."""
    if policy is not None and policy not in get_args(Policy):
        raise InputError(f"no policy '{policy}'", hint=f"one of {', '.join(get_args(Policy))}")
    missing = {one.route for one in requests} - set(gateway.routes)
    if missing:
        raise InputError(f"the log asks for {', '.join(sorted(missing))}", hint=f"routes: {', '.join(gateway.routes)}")
    if policy is not None:
        routes = {name: replace(one, policy=cast("Policy", policy)) for name, one in gateway.routes.items()}
        gateway = replace(gateway, routes=routes)
    replay = _Replay(gateway, speeds(gateway, attempts), Random(seed))
    begin_s = requests[0].at_s
    for one in requests:
        replay.request(one, begin_s + (one.at_s - begin_s) / speed)
    return replay.result()


class _Replay:
    """The state of a replay: what is under way, and what of each allowance is taken."""

    def __init__(self, gateway: Gateway, speeds: Mapping[str, Speed], random: Random) -> None:
        self.gateway, self.speeds, self.random = gateway, speeds, random
        self.callers: dict[str, Caller] = {one.name: one for one in gateway.callers.values()}
        self.healths = {name: DeploymentHealth(found.first_byte_s) for name, found in speeds.items()}
        self.ends: list[tuple[float, int, str, tuple[Allowance, ...]]] = []
        self.taken: Counter[tuple[str, int]] = Counter()
        self.requests: Counter[str] = Counter()
        self.usd_pico: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.latencies_s: list[float] = []
        self.unserved = 0
        self.number = 0

    def request(self, one: LoggedRequest, now_s: float) -> None:
        while self.ends and self.ends[0][0] <= now_s:
            _, _, name, places = heappop(self.ends)
            self.healths[name].under_way -= 1
            for place in places:
                self.taken[place.id, 0] -= 1
        caller = self.callers.get(one.key, ANYBODY)
        facts = Facts(surface="chat", input_tokens=one.input_tokens, caller=caller)
        route = self.gateway.routes[one.route]
        base = self.gateway.allowances_of(caller, route.name)
        for name in order(route, facts, self.gateway, self.healths, now_s, self.random):
            deployment, health = self.gateway.deployments[name], self.healths[name]
            if deployment.at_once is not None and health.under_way >= deployment.at_once:
                continue
            usage = Usage(input_tokens=one.input_tokens, output_tokens=one.output_tokens)
            usd_pico = deployment.rates.cost_pico(usage)
            refusing = self._take((*base, *self.gateway.allowances_at(name)), usd_pico, one, now_s)
            if refusing is None:
                self._carry(name, one, usd_pico, now_s, (*base, *self.gateway.allowances_at(name)))
                return
            if refusing.scope != "deployment":
                self.refused[refusing.id] += 1
                return
        self.unserved += 1

    def _take(
        self, allowances: tuple[Allowance, ...], usd_pico: int, one: LoggedRequest, now_s: float
    ) -> Allowance | None:
        """The allowance that refuses, or None: then all of them are taken from."""
        moment = datetime.fromtimestamp(now_s, UTC)
        amounts = {"usd": usd_pico, "tokens": one.input_tokens + one.output_tokens, "requests": 1, "at-once": 1}
        places = [(each, (each.id, each.begin(moment))) for each in allowances]
        for each, place in places:
            if each.hard and self.taken[place] + amounts[each.unit] > each.cap:
                return each
        for each, place in places:
            self.taken[place] += amounts[each.unit]
        return None

    def _carry(
        self, name: str, one: LoggedRequest, usd_pico: int, now_s: float, allowances: tuple[Allowance, ...]
    ) -> None:
        speed = self.speeds[name]
        latency_s = (speed.first_byte_s or 0.0) + one.output_tokens * (speed.per_output_token_s or 0.0)
        if speed.first_byte_s is not None:
            self.latencies_s.append(latency_s)
        self.requests[name] += 1
        self.usd_pico[name] += usd_pico
        self.healths[name].under_way += 1
        self.number += 1
        places = tuple(each for each in allowances if each.returns)
        heappush(self.ends, (now_s + latency_s, self.number, name, places))

    def result(self) -> Simulated:
        return Simulated(
            requests=dict(self.requests), usd_pico=dict(self.usd_pico), latencies_s=tuple(sorted(self.latencies_s)),
            refused=dict(self.refused), unserved=self.unserved,
        )  # fmt: skip


def simulated_report(found: Simulated) -> Report:
    """Requests and dollars by deployment, latencies, refusals by allowance."""
    names = sorted(found.requests, key=lambda name: -found.usd_pico[name])
    quantiles = {f"p{round(100 * share)}": _quantile(found.latencies_s, share) for share in (0.5, 0.95, 0.99)}
    total = sum(found.usd_pico.values())
    return Report(
        page=lambda: _page(found, names, quantiles),
        document=lambda: {
            "schema": "tonnage/gateway-simulation@1", "usd": usd_text(total),
            "deployments": [{"name": name, "requests": found.requests[name], "usd": usd_text(found.usd_pico[name])}
                            for name in names],
            "latency_s": quantiles, "refused": dict(sorted(found.refused.items())), "unserved": found.unserved,
        },
        columns=("deployment", "requests", "usd"),
        rows=lambda: [[name, found.requests[name], usd_text(found.usd_pico[name])] for name in names],
    )  # fmt: skip


def _page(found: Simulated, names: Sequence[str], quantiles: Mapping[str, float | None]) -> Page:
    columns = (Column(title="deployment"), Column(title="requests", align="right"), Column(title="USD", align="right"))
    rows = [(name, f"{found.requests[name]:,}", short(found.usd_pico[name] / PICO_PER_USD, 4)) for name in names]
    facts = [
        (f"latency {name}", "not known" if value is None else f"{short(value, 3)} s")
        for name, value in quantiles.items()
    ]
    facts += [(f"refused by {name}", f"{count:,}") for name, count in sorted(found.refused.items())]
    facts.append(("taken by no deployment", f"{found.unserved:,}"))
    usd = short(sum(found.usd_pico.values()) / PICO_PER_USD, 4)
    title = f"{sum(found.requests.values()):,} requests for {usd} USD"
    return Page(title=title, blocks=(Table(columns=columns, rows=tuple(rows)), Pairs(rows=tuple(facts))))


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value that at least this share is not above; None without values."""
    if not ordered:
        return None
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
