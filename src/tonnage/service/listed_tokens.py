"""The catalog's token prices of a model, as break-evens compare them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from tonnage.catalog import Catalog
from tonnage.catalog.managed import TokenPrice
from tonnage.errors import UnknownName, did_you_mean, nearest
from tonnage.planning.tokens.ways import BILLERS, dearest_by_kind, wanted_models
from tonnage.pricing.tokens import TokenPrices
from tonnage.workload.discounts import percent_off
from tonnage.workload.jobs import Workload
from tonnage.workload.token_models import find_token_models


def listed_token_prices(workload: Workload, catalog: Catalog, models: Sequence[str] = ()) -> list[TokenPrices]:
    """Prices of `models`; without any, of those the workload names, else of its own model where an API sells it.

    After the workload's discounts; a model whose input or output price is not known is left out. Raises UnknownName
    for a model that no API of the catalog sells.
    """
    priced = catalog.managed.token_models
    named = tuple(dict.fromkeys(found for name in models for found in _models(name, priced)))
    chosen = named or wanted_models(workload, catalog, training=False)
    found = []
    for model in chosen:
        listed = [price for price in catalog.managed.tokens if price.model == model and price.plain]
        for platform, region in _newest_places(listed):
            here = [one for one in listed if (one.platform, one.region) == (platform, region)]
            made = _prices(model, here, workload, catalog)
            if made is not None:
                found.append(made)
    return found


def _models(name: str, priced: Sequence[str]) -> tuple[str, ...]:
    found = find_token_models(name, priced)
    if not found:
        raise UnknownName(
            f"no API of the catalog sells a model {name!r}",
            hint=did_you_mean(nearest(name, priced), "--against takes prices of your own"),
        )
    return found


def _newest_places(listed: Sequence[TokenPrice]) -> list[tuple[str, str]]:
    """One (platform, region) a platform: where its prices were read last, of several the first listed."""
    best: dict[str, TokenPrice] = {}
    for price in listed:
        before = best.get(price.platform)
        if before is None or (price.source.read_on or date.min) > (before.source.read_on or date.min):
            best[price.platform] = price
    return [(price.platform, price.region) for price in best.values()]


def _prices(model: str, listed: Sequence[TokenPrice], workload: Workload, catalog: Catalog) -> TokenPrices | None:
    first = listed[0]
    off = percent_off(workload.buy.discount_percent, BILLERS[first.platform], model) / 100.0
    usd = {kind: float(price.usd_per_million_tokens) * (1.0 - off) for kind, price in dearest_by_kind(listed).items()}
    if "input" not in usd or "output" not in usd:
        return None
    batch = [float(one.fraction) for one in catalog.managed.batch_discounts if one.platform == first.platform]
    return TokenPrices(
        name=f"{first.platform} {model}",
        usd_per_million_input=usd["input"],
        usd_per_million_output=usd["output"],
        usd_per_million_cached_input=usd.get("cache read"),
        batch_discount_fraction=batch[0] if batch else None,
        source=first.source.text,
        read_on=first.source.read_on,
    )
