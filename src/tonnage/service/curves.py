"""Both costs as one thing varies and the rest stays: volume, bursts, cached share, lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from tonnage.service.answer import ApiCost, CostCurve, CurvePoint
from tonnage.service.crossings import Cost, find_crossings, volume_grid
from tonnage.service.economics import Demand, cheapest_fleet, figure_of
from tonnage.service.study import FleetStudy, api_usd, resizer
from tonnage.service.units import FleetUnit
from tonnage.workload.jobs import Lengths, Requests

VARIATIONS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
CACHED = (0.0, 0.25, 0.5, 0.75, 0.9)
RATIOS = (0.25, 1.0, 4.0, 16.0, 64.0)  # input tokens for one of output, the sum as it is


def cost_curves(study: FleetStudy, apis: Sequence[ApiCost], rate: float) -> tuple[CostCurve, ...]:
    question, demand = study.question, study.question.demand
    ways = [(api.prices, api.provisioned) for api in apis]

    def own_of(units: Sequence[FleetUnit], demand: Demand) -> Cost:
        return cache(lambda volume: cheapest_fleet(units, demand, volume, question.policy).usd)

    usual = own_of(study.units, demand)  # all points along the volume ask for the same fleets

    def point(
        value: float, units: Sequence[FleetUnit], demand: Demand, requests: Requests, cached: float, at: float = rate
    ) -> CurvePoint:
        months = demand.requests_per_month(at) / 1000.0
        costs = [api_usd(study, way, demand, requests, cached) for way in ways]
        paid = tuple(api(at) / months for api in costs)
        if not units:
            return CurvePoint(
                value=value, own_usd_per_1000=None, api_usd_per_1000=paid, crossing_per_s=(None,) * len(ways)
            )
        if units is study.units and demand is question.demand:
            paid_own = study.figure(at).scaled(1.0 / months)
        else:
            fleets = [cheapest_fleet(units, demand, at, question.policy, end=end) for end in ("value", "high", "low")]
            paid_own = figure_of(*(fleet.usd / months for fleet in fleets))

        own = usual if units is study.units and demand is question.demand else own_of(units, demand)
        grid = volume_grid(rate, (), per_decade=6)
        first = tuple(
            next((found for found, above in find_crossings(own, api, grid) if above == "own fleet"), None)
            for api in costs
        )
        return CurvePoint(value=value, own_usd_per_1000=paid_own, api_usd_per_1000=paid, crossing_per_s=first)

    cached, requests = question.cached_fraction, study.requests
    volumes = [rate * 10 ** (step / 2) for step in range(-6, 7)]
    resized = resizer(study)
    return (
        CostCurve(name="volume", unit="requests a month", points=tuple(
            point(demand.requests_per_month(at), study.units, demand, requests, cached, at) for at in volumes
        )),
        CostCurve(name="burstiness", unit="variation of the gaps", points=tuple(
            point(value, study.units, replace(demand, variation=value), requests, cached) for value in VARIATIONS
        )),
        CostCurve(name="cached share", unit="part of the input", points=tuple(
            point(value, resized(requests, value), demand, requests, value) for value in CACHED
        )),
        *((CostCurve(name="input per output token", unit="tokens", points=tuple(
            point(ratio, resized(changed, cached), demand, changed, cached)
            for ratio, changed in ((ratio, with_ratio(requests, ratio)) for ratio in RATIOS)
        )),) if requests.output_tokens is not None else ()),
    )  # fmt: skip


def with_ratio(requests: Requests, ratio: float) -> Requests:
    """Requests of the same tokens in all, `ratio` of input for one of output; the longest scale alike.

    >>> asked = Requests(input_tokens=Lengths(mean=60.0, maximum=120), output_tokens=Lengths(mean=40.0, maximum=80))
    >>> with_ratio(asked, 4.0).output_tokens
    Lengths(mean=20.0, maximum=40)
    """
    assert requests.output_tokens is not None
    total = requests.input_tokens.mean + requests.output_tokens.mean
    output = total / (1.0 + ratio)
    return replace(
        requests,
        input_tokens=_scaled(requests.input_tokens, total - output),
        output_tokens=_scaled(requests.output_tokens, output),
    )


def _scaled(lengths: Lengths, mean: float) -> Lengths:
    mean = max(mean, 1.0)
    return Lengths(mean=mean, maximum=max(round(lengths.maximum * mean / lengths.mean), 1))
