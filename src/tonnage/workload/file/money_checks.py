"""What cannot hold in discounts, commitments, schedules, token models and places of data."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tonnage.catalog.catalog import Catalog
from tonnage.errors import did_you_mean, nearest
from tonnage.workload.discounts import covers, split_discount
from tonnage.workload.file.kinds import ServeFile, TabularFile, WorkloadFile
from tonnage.workload.file.problems import Problem, shorten
from tonnage.workload.file.terms_fields import BuyFields
from tonnage.workload.token_models import find_token_models


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
    yield from _place_problems(file, catalog)
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


def _place_problems(file: WorkloadFile, catalog: Catalog) -> Iterator[Problem]:
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
