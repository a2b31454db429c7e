"""Is a figure of a GPU so? Data-sheet figures against published ones, prices per GPU-hour against all offers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Final

from tonnage.catalog import Accelerator, Catalog, Offer, Purchase, Source
from tonnage.claims.facts import gpu_figures
from tonnage.claims.figures import Amount
from tonnage.claims.findings import ClaimAnswer, Verdict
from tonnage.claims.statements import GpuClaim, GpuPriceClaim
from tonnage.values import dataclass

RATES: Final = (
    "dense_bf16_tflops", "dense_fp16_tflops", "dense_tf32_tflops", "dense_fp32_tflops", "dense_fp8_tflops",
    "dense_int8_tops",
)  # fmt: skip
TOLERANCES: Final = {
    "memory_gib": 0.03,
    "memory_bandwidth_gb_per_s": 0.01,
    "cuda_cores": 0.0,
    "tensor_cores": 0.0,
    "tdp_w": 0.0,
    **dict.fromkeys(RATES, 0.02),
}
UNITS: Final = {
    "memory_gib": " GiB",
    "memory_bandwidth_gb_per_s": " GB/s",
    "tdp_w": " W",
    **dict.fromkeys(RATES, " TFLOPS, dense"),
}
PRICE_TOLERANCE: Final = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class _Published:
    device: str
    figure: float
    source: Source


def answer_gpu(claim: GpuClaim) -> ClaimAnswer:
    """Whether each amount is what a device of that name has; says of which where its forms differ."""
    known = [figure for device in claim.gpu.devices for figure in _figures(device, claim.quantity)]
    if not known:
        return ClaimAnswer(verdict="unknown", hint="no source read here publishes it")
    matched = [_matching(amount, claim.quantity, known) for amount in claim.amounts]
    held = [figure for figures in matched for figure in figures]
    holds = all(matched)
    shown = held[0] if held else known[0]
    return ClaimAnswer(
        verdict="ok" if holds else "partly" if held else "wrong",
        right=_listed(held if holds else known, claim.quantity),
        source=shown.source.text,
        read_on=shown.source.read_on,
        hint=_others(claim, held, known) if holds else _sparse(claim, known),
    )


def _sparse(claim: GpuClaim, known: list[_Published]) -> str:
    """Where a dense rate was asked for and the printed one is the headline with structured sparsity."""
    doubled = [replace(one, figure=2 * one.figure) for one in known]
    if claim.quantity in RATES and any(_matching(amount, claim.quantity, doubled) for amount in claim.amounts):
        return "that is the rate with structured sparsity, twice the dense one"
    return ""


def _figures(device: Accelerator, quantity: str) -> Iterator[_Published]:
    figure = getattr(device, quantity, None)
    if figure is not None:
        yield _Published(device=device.name, figure=figure, source=device.source)
    for row in gpu_figures():
        if row.accelerator == device.name and row.quantity == quantity:
            yield _Published(device=device.name, figure=row.figure, source=row.source)


def _matching(amount: Amount, quantity: str, known: list[_Published]) -> list[_Published]:
    stated = amount.scaled(1000) if amount.unit.startswith("tb/s") else amount
    return [one for one in known if stated.covers(one.figure, tolerance_fraction=TOLERANCES[quantity])]


def _listed(figures: list[_Published], quantity: str) -> str:
    by_figure: dict[float, list[str]] = defaultdict(list)
    for one in figures:
        by_figure[one.figure].append(one.device)
    unit = UNITS.get(quantity, "")
    return "; ".join(f"{figure:,g}{unit} ({', '.join(dict.fromkeys(names))})" for figure, names in by_figure.items())


def _others(claim: GpuClaim, held: list[_Published], known: list[_Published]) -> str:
    """Forms of the same GPU for which the figure does not hold, or is not known to."""
    holding, published = {one.device for one in held}, {one.device for one in known}
    others = [one for one in known if one.device not in holding]
    unknown = [device.name for device in claim.gpu.devices if device.name not in published]
    parts = [f"another form differs: {_listed(others, claim.quantity)}"] if others else []
    return "; ".join([*parts, *([f"no figure held of {', '.join(unknown)}"] if unknown else [])])


def answer_gpu_price(claim: GpuPriceClaim, catalog: Catalog) -> ClaimAnswer:
    """A price, or a range, of one GPU-hour against the on-demand prices of whole machines, per GPU.

    Partly: the low end is the price of an attached GPU without the machine it needs, or nothing is sold so cheap.
    Wrong: all of it lies below or above every on-demand price. Between them, an offer not held here may have it.
    """
    devices = {device.name for device in claim.gpu.devices}
    prices = _per_gpu(devices, catalog, "on_demand")
    if not prices:
        return ClaimAnswer(verdict="unknown", hint="no on-demand price of it in the catalog")
    cheapest, dearest, alone = prices[0], prices[-1], _attached_alone(devices, catalog)
    amount, slack = claim.amount, 1 + PRICE_TOLERANCE
    if amount.low * slack < cheapest[0]:
        if amount.high * slack < cheapest[0] or any(abs(usd - amount.low) <= PRICE_TOLERANCE * usd for usd in alone):
            return _below(claim, catalog, devices, cheapest, dearest)
        spot = _per_gpu(devices, catalog, "spot")
        reached = bool(spot) and spot[0][0] <= amount.low
        hint = f"${amount.low:g} is reached on spot only" if reached else f"nothing is sold for ${amount.low:g}"
        return _answer("ok" if reached else "partly", cheapest, dearest, hint)
    if any(amount.low / slack <= usd <= amount.high * slack for usd, _ in prices):
        return _answer("ok", cheapest, dearest, "")
    if amount.low > dearest[0] * slack:
        return _answer("wrong", cheapest, dearest, "dearer than every on-demand price")
    return _answer("unknown", cheapest, dearest, "no offer here has this price, though some are lower and some higher")


def _below(
    claim: GpuPriceClaim,
    catalog: Catalog,
    devices: set[str],
    cheapest: tuple[float, Offer],
    dearest: tuple[float, Offer],
) -> ClaimAnswer:
    """A price, or the low end of a range, below what any machine costs on demand."""
    low = claim.amount.low
    if any(abs(usd - low) <= PRICE_TOLERANCE * usd for usd in _attached_alone(devices, catalog)):
        return _answer("partly", cheapest, dearest, f"${low:g} is the GPU alone, without its machine")
    spot = _per_gpu(devices, catalog, "spot")
    if spot and spot[0][0] <= claim.amount.high:
        return _answer("partly", cheapest, dearest, f"${low:g} is reached on spot only")
    return _answer("wrong", cheapest, dearest, "cheaper than every on-demand price")


def _per_gpu(devices: set[str], catalog: Catalog, purchase: Purchase) -> list[tuple[float, Offer]]:
    """USD per GPU-hour of every whole-GPU machine with one of `devices`, the cheapest first."""
    found = [
        (float(offer.usd_per_instance_hour) / machine.accelerator_count, offer)
        for machine in catalog.instance_types
        if machine.accelerator in devices and machine.accelerator_count >= 1
        for offer in catalog.offers_of(machine)
        if offer.purchase == purchase
    ]
    return sorted(found, key=lambda pair: (pair[0], pair[1].provider, pair[1].instance_type, pair[1].region))


def _attached_alone(devices: set[str], catalog: Catalog) -> set[float]:
    """What one more attached GPU adds to the price of the same machine in the same region."""
    by_host: dict[tuple[str, str, str], dict[float, float]] = defaultdict(dict)
    for machine in catalog.instance_types:
        if machine.accelerator in devices and "+" in machine.name:
            for offer in catalog.offers_of(machine):
                if offer.purchase == "on_demand":
                    host = (machine.provider, machine.name.partition("+")[0], offer.region)
                    by_host[host][machine.accelerator_count] = float(offer.usd_per_instance_hour)
    return {
        (prices[more] - prices[fewer]) / (more - fewer)
        for prices in by_host.values()
        for fewer, more in combinations(sorted(prices), 2)
    }


def _answer(verdict: Verdict, cheapest: tuple[float, Offer], dearest: tuple[float, Offer], hint: str) -> ClaimAnswer:
    low, offer = cheapest
    high, top = dearest
    return ClaimAnswer(
        verdict=verdict,
        right=f"${low:.4g} ({offer.provider} {offer.instance_type}) to ${high:.4g} ({top.provider} {top.instance_type})"
        " a GPU-hour on demand",
        source=offer.source.text,
        read_on=offer.read_on,
        hint=hint,
    )
