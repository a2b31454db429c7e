"""A log of requests replayed against the routes of a gateway file: what it would have cost, taken and refused.

`request_replay` says what is replayed of the gateway, and what is not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random
from statistics import mean, median
from typing import Any, cast, get_args

from tonnage.errors import InputError
from tonnage.gateway.file.described import Gateway
from tonnage.gateway.file.entries import Policy
from tonnage.gateway.money.rates import PICO_PER_USD, usd_text
from tonnage.gateway.replayed import LoggedRequest
from tonnage.gateway.request_replay import RequestReplay, Simulated, Speed
from tonnage.reports.blocks import Column, Page, Pairs, Table
from tonnage.reports.rendering import Report
from tonnage.reports.wording import short


def speeds(gateway: Gateway, attempts: Iterable[Mapping[str, Any]]) -> dict[str, Speed]:
    """By deployment: medians of what the ledger measured, else what the file states."""
    firsts, per_token, written = defaultdict(list), defaultdict(list), defaultdict(list)
    for one in attempts:
        if one["outcome"] != "ok" or one["first_byte_s"] is None:
            continue
        firsts[one["deployment"]].append(one["first_byte_s"])
        if one["output_tokens"]:
            per_token[one["deployment"]].append((one["latency_s"] - one["first_byte_s"]) / one["output_tokens"])
            written[one["deployment"]].append(one["output_tokens"])
    return {
        name: Speed(
            first_byte_s=median(firsts[name]) if firsts[name] else one.first_byte_s,
            per_output_token_s=median(per_token[name]) if per_token[name] else None,
            output_tokens=mean(written[name]) if written[name] else None,
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
    replay = RequestReplay(gateway, speeds(gateway, attempts), Random(seed))
    begin_s = requests[0].at_s
    for one in requests:
        replay.request(one, begin_s + (one.at_s - begin_s) / speed)
    return replay.finish()


def simulated_report(found: Simulated) -> Report:
    """Requests and dollars by deployment, latencies, refusals by allowance."""
    names = sorted(found.requests, key=lambda name: -found.usd_pico[name])
    quantiles = {f"p{round(100 * share)}": _quantile(found.latencies_s, share) for share in (0.5, 0.95, 0.99)}
    waits = {name: _quantile(found.waits_s, share) for name, share in (("p50", 0.5), ("p95", 0.95))}
    total = sum(found.usd_pico.values())
    return Report(
        page=lambda: _page(found, names, quantiles, waits),
        document=lambda: {
            "schema": "tonnage/gateway-simulation@1", "usd": usd_text(total),
            "deployments": [{"name": name, "requests": found.requests[name], "usd": usd_text(found.usd_pico[name])}
                            for name in names],
            "latency_s": quantiles, "refused": dict(sorted(found.refused.items())), "unserved": found.unserved,
            "waited": {"requests": len(found.waits_s), "s": waits}, "left_out": found.left_out,
            "sampled": found.share,
        },
        columns=("deployment", "requests", "usd"),
        rows=lambda: [[name, found.requests[name], usd_text(found.usd_pico[name])] for name in names],
    )  # fmt: skip


def _page(
    found: Simulated, names: Sequence[str], quantiles: Mapping[str, float | None], waits: Mapping[str, float | None]
) -> Page:
    columns = (Column(title="deployment"), Column(title="requests", align="right"), Column(title="USD", align="right"))
    rows = [(name, f"{found.requests[name]:,}", short(found.usd_pico[name] / PICO_PER_USD, 4)) for name in names]
    facts = [
        (f"latency {name}", "not known" if value is None else f"{short(value, 3)} s")
        for name, value in quantiles.items()
    ]
    if found.waits_s:
        shown = ", ".join(f"{name} {short(value or 0.0, 3)} s" for name, value in waits.items())
        facts.append(("waited in the queue", f"{len(found.waits_s):,}: {shown}"))
    facts += [(f"refused by {name}", f"{count:,}") for name, count in sorted(found.refused.items())]
    facts.append(("taken by no deployment", f"{found.unserved:,}"))
    if found.left_out:
        facts.append(("left out, without a count of tokens", f"{found.left_out:,}"))
    if found.share < 1.0:
        facts.append(("the log has kept", f"{short(100 * found.share, 3)} % of the requests"))
    usd = short(sum(found.usd_pico.values()) / PICO_PER_USD, 4)
    title = f"{sum(found.requests.values()):,} requests for {usd} USD"
    return Page(title=title, blocks=(Table(columns=columns, rows=tuple(rows)), Pairs(rows=tuple(facts))))


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value that at least this share is not above; None without values."""
    if not ordered:
        return None
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
