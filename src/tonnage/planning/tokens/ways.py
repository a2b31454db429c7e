"""Ways to buy tokens instead of machines: on demand, in batches, provisioned, and learning on the platform."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Final, Literal

from tonnage.catalog import Catalog
from tonnage.catalog.hardware import Source
from tonnage.catalog.managed import TokenPrice
from tonnage.planning.reasons.changes import Publish, State
from tonnage.planning.reasons.misses import UnpricedMiss
from tonnage.planning.reasons.risks import ConditionsRisk, ModelUnitsRisk, Risk, UnpricedStorageRisk
from tonnage.planning.reasons.term_misses import NeededPrice
from tonnage.planning.tokens.work import MILLION, TokenWork
from tonnage.pricing.deals import DATABRICKS_CLOUDS
from tonnage.pricing.extras import OWN, Extras, exact, people_lines
from tonnage.pricing.ledger import Ledger, LedgerLine, Part, hours
from tonnage.pricing.lines import credit_lines
from tonnage.pricing.rates import after_discount
from tonnage.pricing.usage import HOURS_PER_MONTH
from tonnage.units import SECONDS_PER_HOUR
from tonnage.values import dataclass
from tonnage.workload.discounts import percent_off
from tonnage.workload.jobs import DataPlace, Workload
from tonnage.workload.token_models import find_token_models

TokenPlatform = Literal["bedrock", "databricks"]
TokenPurchase = Literal["on_demand", "batch", "provisioned"]
BILLERS: Final = {"bedrock": ("bedrock", "aws"), "databricks": ("databricks",)}
PLAIN: Final = ("on-demand", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to have a model's tokens. `missing`: a figure without which it has no price."""

    platform: TokenPlatform
    model: str
    purchase: TokenPurchase
    region: str  # as the price table has it
    lines: tuple[LedgerLine, ...]
    units: int = 1
    mind: tuple[Risk, ...] = ()
    missing: UnpricedMiss | None = None

    @property
    def undated(self) -> bool:
        """Whether a price of it carries no date; what the workload states itself needs none."""
        return any(line.read_on is None for line in self.lines if line.source != OWN)

    def ledger(self, workload: Workload) -> Ledger:
        """With people and credit."""
        lines = [*self.lines, *people_lines(self.platform, workload)]
        return Ledger(lines=(*lines, *credit_lines(lines, workload)))


def wanted_models(workload: Workload, catalog: Catalog, *, training: bool) -> tuple[str, ...]:
    """The priced models that would do: those the workload names, else the workload's own under the API's names."""
    priced = catalog.managed.token_models
    named = workload.buy.tokens.models
    if named:
        found = [model for name in named for model in find_token_models(name, priced)]
        return tuple(dict.fromkeys(found))
    model = getattr(workload.job, "model", None)
    return () if training or model is None else find_token_models(model.name, priced)


def token_ways(workload: Workload, catalog: Catalog, work: TokenWork) -> list[Way]:
    """Every way to buy `work` of the models that would do."""
    maker = _WayMaker(workload=workload, catalog=catalog, work=work)
    found: list[Way] = []
    for model in wanted_models(workload, catalog, training=work.training):
        found += maker.learning(model) if work.training else [*maker.by_token(model), *maker.provisioned(model)]
    return [_with_data(way, workload, catalog) for way in found]


def _with_data(way: Way, workload: Workload, catalog: Catalog) -> Way:
    """The way with what it takes to bring the data to it. Bedrock is at AWS; Databricks is taken where the data is.

    A price that holds in several regions of AWS holds in the one where the data is.
    """
    data = workload.data
    if data is None or (way.platform == "databricks" and data.provider in DATABRICKS_CLOUDS):
        return way
    elsewhere = data.provider != "aws"
    if not elsewhere and (way.region == data.region or catalog.region("aws", way.region) is None):
        return way
    charges = Extras(workload=workload, services=catalog.services).moving("aws", way.region)
    if charges is None:
        return replace(way, missing=way.missing or unpriced_egress(data, elsewhere=elsewhere))
    moved = (charge.line(f"data out of {data.provider}", "data transfer", data.provider) for charge in charges)
    return replace(way, lines=(*way.lines, *(line for line in moved if line is not None)))


def unpriced_egress(data: DataPlace, *, elsewhere: bool) -> UnpricedMiss:
    """What moving the data costs is not known. `elsewhere`: to another provider, rather than another region."""
    key = "egress_usd_per_gb" if elsewhere else "egress_region_usd_per_gb"
    return UnpricedMiss(
        of="egress",
        name=f"{data.provider}/{data.region}",
        size_gb=data.size_gb,
        lifted_by=(State(key=f"buy.prices.{key}", of="price"),),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _WayMaker:
    workload: Workload
    catalog: Catalog
    work: TokenWork

    def by_token(self, model: str) -> Iterator[Way]:
        """On demand in every region it is priced for, and as a batch where the platform has one."""
        prices = [price for price in self.catalog.managed.tokens if price.model == model and price.plain]
        for platform, region in dict.fromkeys((price.platform, price.region) for price in prices):
            here = [price for price in prices if (price.platform, price.region) == (platform, region)]
            listed = dearest_by_kind(here)
            yield self._tokens(model, platform, listed, "on_demand", Decimal(0), ())
            if self.workload.is_service:
                continue
            for batch in self.catalog.managed.batch_discounts:
                if batch.platform == platform:
                    mind = ConditionsRisk(of="batch price", conditions=batch.conditions, source=batch.source.text)
                    yield self._tokens(model, platform, listed, "batch", batch.fraction, (mind,))

    def _tokens(
        self,
        model: str,
        platform: TokenPlatform,
        listed: dict[str, TokenPrice],
        purchase: TokenPurchase,
        off: Decimal,
        mind: tuple[Risk, ...],
    ) -> Way:
        cached = self.workload.buy.tokens.cached_input_fraction if "cache read" in listed and purchase != "batch" else 0
        read, written = self.work.input_tokens, self.work.output_tokens
        if self.work.read_alone is not None and "output" not in listed:
            read, written = self.work.read_alone, 0.0
        amounts = (("input", read * (1 - cached)), ("cache read", read * cached), ("output", written))
        absent = [kind for kind, amount in amounts if amount > 0 and kind not in listed]
        lines = [
            self._line(
                f"{kind} tokens, {model}{' in batches' if off else ''}",
                amount / MILLION,
                "million tokens",
                listed[kind].usd_per_million_tokens * (1 - off),
                listed[kind].source,
                platform,
                model,
            )
            for kind, amount in amounts
            if amount > 0 and kind in listed
        ]
        some = next(iter(listed.values()))
        said = some.conditions.removeprefix("on-demand; ")
        risk = ConditionsRisk(of="price", conditions=said, source=some.source.text)
        return Way(
            platform=platform,
            model=model,
            purchase=purchase,
            region=some.region,
            lines=tuple(lines),
            mind=(*mind, *(() if said in PLAIN else (risk,))),
            missing=_unpriced("tokens", absent[0]) if absent else None,
        )

    def provisioned(self, model: str) -> Iterator[Way]:
        """Model units by the hour; what one of them carries is not published, so their number is the user's."""
        units = self.workload.buy.tokens.model_units
        for price in self.catalog.managed.provisioned:
            if price.model != model:
                continue
            months = price.commitment_months
            time = self._provisioned_hours(months)
            count = units or 0
            name = f"{months} month(s) committed" if months else "no commitment"
            what = f"model units, {model}, {name}"
            missing = None
            if not units:
                missing = UnpricedMiss(
                    of="model units", name=model, lifted_by=(State(key="buy.model_units", of="units"),)
                )
            elif time is None:
                carried = State(key="buy.tokens_per_minute", of="carried")
                missing = UnpricedMiss(of="hours", name=model, lifted_by=(carried,))
            lines = (
                ()
                if missing
                else (
                    self._line(
                        what,
                        count * (time or 0.0),
                        "model unit-hour",
                        price.usd_per_model_unit_hour,
                        price.source,
                        "bedrock",
                        model,
                    ),
                )
            )
            yield Way(
                platform="bedrock",
                model=model,
                purchase="provisioned",
                region=price.region,
                lines=lines,
                units=max(count, 1),
                mind=(ModelUnitsRisk(commitment_months=months),),
                missing=missing,
            )

    def _provisioned_hours(self, months: int) -> float | None:
        """Hours on the bill: a service's month; a job's hours, or all of its commitment; None: not known."""
        if self.workload.is_service:
            return HOURS_PER_MONTH
        time = api_time_s(self.workload, self.work)
        if months:
            needed = 0.0 if time is None else time / SECONDS_PER_HOUR
            return max(months * HOURS_PER_MONTH, needed)
        return None if time is None else time / SECONDS_PER_HOUR

    def learning(self, model: str) -> Iterator[Way]:
        """Fine-tuning on the platform: tokens x epochs, and keeping the result."""
        managed = self.catalog.managed
        prices = [price for price in managed.customisation if price.model == model]
        if not prices:
            missing = _unpriced("customisation", model)
            platform: TokenPlatform = "bedrock"
            yield Way(platform=platform, model=model, purchase="on_demand", region="all", lines=(), missing=missing)
        for price in prices:
            amount = self.work.total_tokens / MILLION
            lines = [
                self._line(
                    f"training tokens, {model}",
                    amount,
                    "million tokens",
                    price.usd_per_million_tokens,
                    price.source,
                    "bedrock",
                    model,
                )
            ]
            months = self.workload.buy.tokens.model_storage_months
            if months:
                lines += [
                    self._line(
                        one.what,
                        months,
                        "model-month",
                        one.usd_per_model_month,
                        one.source,
                        "bedrock",
                        model,
                        "storage",
                    )
                    for one in managed.storage
                ]
            yield Way(
                platform="bedrock",
                model=model,
                purchase="on_demand",
                region=price.region,
                lines=tuple(lines),
                mind=() if managed.storage else (UnpricedStorageRisk(),),
            )

    def _line(
        self,
        what: str,
        quantity: float,
        unit: str,
        price: Decimal,
        source: Source,
        platform: TokenPlatform,
        model: str,
        part: Part = "tokens",
    ) -> LedgerLine:
        percent = percent_off(self.workload.buy.discount_percent, BILLERS[platform], model)
        return LedgerLine(
            what=what,
            part=part,
            quantity=hours(quantity),
            unit=unit,
            usd_per_unit=after_discount(price, percent),
            source=source.text,
            read_on=source.read_on,
            discount_percent=exact(percent),
            billed_by=BILLERS[platform][-1],
        )


def _unpriced(of: NeededPrice, name: str) -> UnpricedMiss:
    return UnpricedMiss(of=of, name=name, lifted_by=(Publish(what="price"),))


def dearest_by_kind(prices: Iterable[TokenPrice]) -> dict[str, TokenPrice]:
    """One price a kind of token; where a list has several that nothing tells apart, the dearest."""
    found: dict[str, TokenPrice] = {}
    for price in prices:
        before = found.get(price.kind)
        if before is None or price.usd_per_million_tokens > before.usd_per_million_tokens:
            found[price.kind] = price
    return found


def api_time_s(workload: Workload, work: TokenWork) -> float | None:
    """When an API is done, at the tokens a minute that the account may use; None where that is not stated."""
    rate = workload.buy.tokens.per_minute
    return None if rate is None or work.training else work.total_tokens / rate * 60
