"""Contradictions in the constraints and in the ways to buy, found before any planning."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import get_args

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.grammar import GpuFilter, parse_gpu_filter
from tonnage.catalog.market import Purchase
from tonnage.errors import InputError, UnknownAccelerator, did_you_mean, nearest
from tonnage.workload.discounts import covers, split_discount
from tonnage.workload.durations import LONGEST_S
from tonnage.workload.file.kinds import ServeFile, TabularFile, WorkloadFile
from tonnage.workload.file.problems import Problem, shorten
from tonnage.workload.file.terms_fields import BuyFields, ConstraintFields
from tonnage.workload.file.yaml_lines import KeyPath
from tonnage.workload.token_models import find_token_models

PURCHASES: tuple[Purchase, ...] = get_args(Purchase)
DEFAULT_PURCHASES: tuple[Purchase, ...] = ("on_demand", "spot")


def find_term_problems(file: WorkloadFile, *, as_of: datetime, catalog: Catalog) -> Iterator[Problem]:
    """Everything in `constraints` and `buy` that cannot hold."""
    limits, buy = file.constraints, file.buy
    providers = [provider.name for provider in catalog.providers]
    yield from _deadline_problems(file, as_of)
    yield from find_money_problems(file, catalog)
    yield from _purchase_problems(limits, buy)
    yield from _gpu_problems(limits, catalog)
    unknown = [
        *_unknown_names(("constraints", "providers"), limits.providers, providers, "provider"),
        *_unknown_names(("constraints", "regions"), limits.regions, _region_names(catalog), "region"),
        *_unknown_names(("constraints", "residency"), limits.residency, _area_names(catalog), "area"),
    ]
    yield from unknown or _place_problems(limits, catalog)


def choose_purchases(limits: ConstraintFields, buy: BuyFields, *, service: bool) -> tuple[Purchase, ...]:
    """The ways to buy that remain, in the order of `Purchase`."""
    if buy.purchases is not None:
        allowed = set(buy.purchases)
    else:
        switched = {name: getattr(buy, name) for name in PURCHASES}
        allowed = {
            name for name in PURCHASES if switched[name] or (switched[name] is None and name in DEFAULT_PURCHASES)
        }
    if not is_interruptible(limits, buy, service=service):
        allowed.discard("spot")
    return tuple(name for name in PURCHASES if name in allowed)


def is_interruptible(limits: ConstraintFields, buy: BuyFields, *, service: bool) -> bool:
    """As stated; where nothing is stated a service is not, unless the file names spot as a way to buy."""
    if limits.interruptible is not None:
        return limits.interruptible
    return not service or _names_spot(buy)


def _names_spot(buy: BuyFields) -> bool:
    return buy.spot is True or (buy.purchases is not None and "spot" in buy.purchases)


def _deadline_problems(file: WorkloadFile, as_of: datetime) -> Iterator[Problem]:
    deadline = file.constraints.deadline
    if deadline is None:
        return
    path = ("constraints", "deadline")
    if isinstance(file, ServeFile):
        yield Problem(path, "a service runs on and has no deadline", "use `serve.p95_latency` for its speed")
    left_s = deadline.seconds_from(as_of)
    when = deadline.at.isoformat() if deadline.at else f"{left_s:g} s"
    if left_s <= 0:
        yield Problem(
            path,
            f"found {when}, which is in the past at {as_of.isoformat(timespec='minutes')}",
            "give a later instant, or a duration from the start such as 24h; --as-of sets the clock",
        )
    elif left_s > LONGEST_S:
        yield Problem(path, f"found {when}, expected a deadline within ten years", "check the year")


def _unknown_names(path: tuple[str, ...], found: Iterable[str], known: Collection[str], what: str) -> Iterator[Problem]:
    for place, name in enumerate(found):
        if name not in known:
            where: KeyPath = (*path, place)
            listed = f"known: {', '.join(known)}" if len(known) < 20 else f"{len(known)} are known"
            hint = did_you_mean(nearest(name, known, count=1), listed)
            yield Problem(where, f"found {shorten(name)}, which is no {what} known here", hint)


def _purchase_problems(limits: ConstraintFields, buy: BuyFields) -> Iterator[Problem]:
    switched = [name for name in PURCHASES if getattr(buy, name) is not None]
    if buy.purchases is not None and switched:
        yield Problem(("buy", switched[0]), "give `purchases` or single switches, not both", "remove one")
        return
    if limits.interruptible is False and _names_spot(buy):
        yield Problem(
            ("constraints", "interruptible"),
            "found False, but `buy` names spot, which can be taken back at any time",
            "set `interruptible: true`, or take spot out of `buy`",
        )
    elif not choose_purchases(limits, buy, service=False):
        where: tuple[str, ...] = ("buy",) if buy.purchases is None else ("buy", "purchases")
        yield Problem(where, "no way to buy is left", "allow on_demand, spot, reserved_1y or reserved_3y")


def _region_names(catalog: Catalog) -> Collection[str]:
    sold = {offer.region for offer in catalog.offers if offer.region}
    return sorted(sold | {region.name for region in catalog.regions})


def _area_names(catalog: Catalog) -> Collection[str]:
    return sorted({region.area for region in catalog.regions})


def _place_problems(limits: ConstraintFields, catalog: Catalog) -> Iterator[Problem]:
    """Providers, regions and areas that exist, but nowhere together."""
    allowed = limits.providers or tuple(provider.name for provider in catalog.providers)
    sellers = {(offer.region, offer.provider) for offer in catalog.offers}
    sellers |= {(region.name, region.provider) for region in catalog.regions}
    if limits.regions and not any((name, seller) in sellers for name in limits.regions for seller in allowed):
        yield Problem(
            ("constraints", "regions"),
            f"found {', '.join(limits.regions)}, but {', '.join(limits.providers)} has no such region",
            "name a region of these providers, or drop `providers` or `regions`",
        )
    elif limits.residency:
        yield from _residency_problems(limits, allowed, catalog)


def _residency_problems(limits: ConstraintFields, allowed: Collection[str], catalog: Catalog) -> Iterator[Problem]:
    path, wanted = ("constraints", "residency"), ", ".join(limits.residency)
    here = [region for region in catalog.regions if region.provider in allowed]
    if not any(region.area in limits.residency for region in here):
        fault = f"found {wanted}, but {', '.join(limits.providers)} has no region there"
        yield Problem(path, fault, "allow another provider")
        return
    areas = {name: {region.area for region in here if region.name == name} for name in limits.regions}
    if areas and all(found and not found.intersection(limits.residency) for found in areas.values()):
        listed = ", ".join(f"{name} ({', '.join(sorted(found))})" for name, found in areas.items())
        fault = f"found {wanted}, but every region allowed lies elsewhere: {listed}"
        yield Problem(path, fault, "add a region inside that area, or drop `regions`")


def _gpu_problems(limits: ConstraintFields, catalog: Catalog) -> Iterator[Problem]:
    for place, text in enumerate(limits.gpus):
        path = ("constraints", "gpus", place)
        try:
            wanted = parse_gpu_filter(text)
        except InputError as error:
            yield Problem(path, error.message, error.hint)
            continue
        if limits.max_gpus is not None and wanted.min_count > limits.max_gpus:
            fault = f"found {shorten(text)}, more than max_gpus ({limits.max_gpus}) allows"
            yield Problem(path, fault, "raise `max_gpus` or ask for fewer")
        yield from _unmatched(path, wanted, catalog)


def _unmatched(path: KeyPath, wanted: GpuFilter, catalog: Catalog) -> Iterator[Problem]:
    hint: str | None = "`tonnage catalog gpus` lists them all"
    try:
        if catalog.accelerators_matching(wanted):
            return
    except UnknownAccelerator as error:
        hint = error.hint
    yield Problem(path, f"found {shorten(wanted.text)}, which matches no GPU known here", hint)


def find_money_problems(file: WorkloadFile, catalog: Catalog) -> Iterator[Problem]:
    """Unknown names and contradictions in `buy`, `team` and `data`."""
    skus = skus_by_biller(catalog)
    for key in file.buy.discounts:
        yield from _discount_problems(key, skus)
    for name in file.buy.committed_usd:
        if name not in skus:
            yield _unknown(("buy", "committed_usd", name), name, list(skus), "provider")
    yield from _reservation_problems(file.buy)
    yield from _schedule_problems(file)
    yield from _token_problems(file, catalog)
    yield from _price_place_problems(file, catalog)
    if file.team.hourly_usd is None and (file.team.setup_hours or file.team.operation_hours):
        yield Problem(("team",), "hours of people are stated, but not what one costs", "add `hourly_usd: 90`")


def skus_by_biller(catalog: Catalog) -> dict[str, Collection[str]]:
    """Everything that a discount may name, by who bills it."""
    skus: dict[str, list[str]] = {provider.name: [] for provider in catalog.providers}
    for instance in catalog.instance_types:
        skus.setdefault(instance.provider, []).append(instance.name)
    managed = catalog.managed
    for platform in ("databricks", "bedrock"):
        skus[platform] = list(dict.fromkeys(price.model for price in managed.tokens if price.platform == platform))
    skus["databricks"] += list(dict.fromkeys(price.sku for price in managed.dbu_prices))
    skus["bedrock"] += [price.model for price in managed.provisioned]
    skus["bedrock"] += [price.model for price in managed.customisation]
    skus["sagemaker"] = [f"ml.{price.instance_type}" for price in managed.ml_instances]
    skus["vertex"] = [fee.instance_type for fee in managed.management_fees]
    return dict(skus)


def _discount_problems(key: str, skus: dict[str, Collection[str]]) -> Iterator[Problem]:
    biller, pattern = split_discount(key)
    path = ("buy", "discounts", key)
    if biller not in skus:
        yield _unknown(path, biller, list(skus), "provider")
    elif "/" in key and (not pattern or not any(covers(pattern, sku) for sku in skus[biller])):
        hint = did_you_mean(nearest(pattern, skus[biller], count=1), "`tonnage catalog instances` lists machines")
        yield Problem(path, f"found {shorten(pattern)}, which is no SKU or family of {biller} known here", hint)


def _unknown(path: tuple[str, ...], name: str, known: Collection[str], what: str) -> Problem:
    hint = did_you_mean(nearest(name, known, count=1), f"known: {', '.join(known)}")
    return Problem(path, f"found {shorten(name)}, which is no {what} known here", hint)


def _reservation_problems(buy: BuyFields) -> Iterator[Problem]:
    if buy.reserved_owned and buy.reserved_utilization is not None:
        yield Problem(
            ("buy", "reserved_utilization"),
            "reservations that are owned are paid anyway; their utilization does not count",
            "drop `reserved_owned` or `reserved_utilization`",
        )


def _schedule_problems(file: WorkloadFile) -> Iterator[Problem]:
    if not isinstance(file, ServeFile) or file.buy.schedule is None:
        return
    if "hours_per_month" in file.serve.model_fields_set:
        yield Problem(
            ("buy", "schedule"),
            "the hours of a month are stated twice, here and as `serve.hours_per_month`",
            "keep one of them",
        )


def _token_problems(file: WorkloadFile, catalog: Catalog) -> Iterator[Problem]:
    if file.buy.token_models and isinstance(file, TabularFile):
        yield Problem(("buy", "token_models"), "no token API learns from tables", "remove the key")
        return
    known = catalog.managed.token_models
    for place, name in enumerate(file.buy.token_models):
        found = find_token_models(name, known)
        path = ("buy", "token_models", place)
        if not found:
            hint = did_you_mean(nearest(name, known, count=1), f"{len(known)} models have a price")
            yield Problem(path, f"found {shorten(name)}, which has no token price in the catalog", hint)


def _price_place_problems(file: WorkloadFile, catalog: Catalog) -> Iterator[Problem]:
    data = file.data
    if (data.location is None) != (data.size_gb is None):
        missing, given = ("size_gb", "location") if data.size_gb is None else ("location", "size_gb")
        yield Problem(("data", given), f"`{missing}` is missing beside it", "moving data is priced by place and size")
    if data.location is None:
        return
    provider, _, region = data.location.partition("/")
    known = [f"{one.provider}/{one.name}" for one in catalog.regions]
    sold = {(offer.provider, offer.region) for offer in catalog.offers}
    if f"{provider}/{region}" not in known and (provider, region) not in sold:
        hint = did_you_mean(nearest(data.location, known, count=1), "write `provider/region`, such as aws/us-east-1")
        yield Problem(("data", "location"), f"found {shorten(data.location)}, which is no place known here", hint)
