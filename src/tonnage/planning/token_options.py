"""Token APIs beside machines: which of them are options, and why the others are out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Final

from tonnage.catalog import Catalog
from tonnage.catalog.market import Platform
from tonnage.planning.changes import bought_as, constrained, including
from tonnage.planning.market import exclusion_miss
from tonnage.planning.plan import Bought, Objective, Option, Refusal, RunDetail, Unknown
from tonnage.planning.reasons.risks import (
    BusyRateRisk,
    OldPriceRisk,
    OtherModelRisk,
    Risk,
    StandInRisk,
    UndatedPriceRisk,
    UnknownFinishRisk,
    UnknownQuotaRisk,
)
from tonnage.planning.sized import Miss
from tonnage.planning.token_ways import Way, api_time_s, token_ways
from tonnage.planning.token_work import TokenWork, token_work, tokens_per_minute
from tonnage.pricing.deals import DATABRICKS_CLOUDS
from tonnage.pricing.extras import OWN
from tonnage.pricing.ledger import Ledger
from tonnage.sizing.estimates import Figure
from tonnage.units import SECONDS_PER_HOUR
from tonnage.workload.exclusions import Exclusion
from tonnage.workload.jobs import ServeJob, Workload

AREAS: Final = {"us regions": "us", "us": "us"}  # how a price table names where it holds
SHORT: Final = {"us regions": "us", "global profile": "global", "all": ""}
NO_RATE: Final = "unknown: no throughput of this API is published"
STATE_RATE: Final = "buy.tokens_per_minute states what the account may use"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenOptions:
    """Options without ranks, and refusals."""

    options: tuple[Option, ...]
    refused: tuple[Refusal, ...]


def token_options(workload: Workload, catalog: Catalog, objective: Objective, max_age_days: int) -> TokenOptions:
    """Every way to buy the work as tokens of a model that would do, which is the workload's to say."""
    work = token_work(workload.job, workload.buy.tokens)
    if work is None:
        return TokenOptions(options=(), refused=())
    judge = _Judge(workload=workload, catalog=catalog, work=work, objective=objective, max_age_days=max_age_days)
    options, refused = [], []
    for way in token_ways(workload, catalog, work):
        ledger = way.ledger(workload)
        miss = judge.miss(way, float(ledger.total_usd))
        if miss is None:
            options.append(judge.option(way, ledger))
        else:
            refused.append(judge.refusal(way, miss))
    return TokenOptions(options=tuple(options), refused=tuple(refused))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judge:
    workload: Workload
    catalog: Catalog
    work: TokenWork
    objective: Objective
    max_age_days: int

    @property
    def service(self) -> bool:
        return isinstance(self.workload.job, ServeJob)

    def provider(self, way: Way) -> str:
        """Who runs it; Databricks on the first cloud that the workload allows."""
        allowed = self.workload.constraints.providers or DATABRICKS_CLOUDS
        clouds = [cloud for cloud in DATABRICKS_CLOUDS if cloud in allowed]
        return clouds[0] if way.platform == "databricks" and clouds else "aws"

    def miss(self, way: Way, usd: float) -> Miss | None:
        """The first limit that a way breaks."""
        for found in (self._constraint(way), self._price(way), self._speed(usd), self._budget(usd)):
            if found is not None:
                return found
        return None

    def _constraint(self, way: Way) -> Miss | None:
        wanted, buys = self.workload.constraints, self.workload.buy.purchases
        provider, platform = self.provider(way), way.platform
        if wanted.platforms and platform not in wanted.platforms:
            return _listed("platform", wanted.platforms, platform, "platforms")
        out = next((one for one in wanted.exclude if _rules_out(one, provider, way)), None)
        if out is not None:
            return exclusion_miss(out)
        if wanted.providers and provider not in wanted.providers:
            return _listed("provider", wanted.providers, provider, "providers")
        if "on_demand" not in buys:
            change = bought_as("on_demand")
            flip = "buy.on_demand: true"
            return Miss(binding="purchase", needs=", ".join(buys), has="paid by use", flips_when=flip, change=change)
        if wanted.gpus:
            asked = " or ".join(one.text for one in wanted.gpus)
            flip = "constraints.gpus is left out"
            change = constrained(gpus=())
            return Miss(binding="gpu", needs=asked, has="a token API", flips_when=flip, change=change)
        return self._place(way)

    def _place(self, way: Way) -> Miss | None:
        """Regions and residency against where the price holds; a global profile may answer from anywhere."""
        wanted = self.workload.constraints
        area = AREAS.get(way.region)
        region = self.catalog.region("aws", way.region)
        area = region.area if region is not None else area
        inside = {one.area for one in self.catalog.regions if one.name in wanted.regions}
        if wanted.regions and way.region != "all" and way.region not in wanted.regions and area not in inside:
            has = way.region
            return Miss(
                binding="region", needs=f"one of {', '.join(wanted.regions)}", has=has,
                flips_when="constraints.regions is left out", change=constrained(regions=()),
            )  # fmt: skip
        if wanted.residency and area not in wanted.residency:
            needs = f"data stays in {', '.join(wanted.residency)}"
            return Miss(
                binding="residency", needs=needs, has=f"an API priced for {way.region}",
                flips_when="constraints.residency is left out", change=constrained(residency=()),
            )  # fmt: skip
        return None

    def _price(self, way: Way) -> Miss | None:
        if way.missing is None:
            return None
        needs, flip = way.missing
        return Miss(binding="price", needs=needs, has="none", flips_when=flip)

    def _speed(self, usd: float) -> Miss | None:
        """Limits on time: what is not known cannot be shown to hold."""
        job, tokens = self.workload.job, self.workload.buy.tokens
        would = f" (it would cost ${usd:,.2f})"
        if isinstance(job, ServeJob):
            promises: tuple[tuple[Unknown, float | None, float | None, str], ...] = (
                ("p95 latency", job.p95_latency_s, tokens.p95_latency_s, "buy.token_p95_latency"),
                ("p95 TTFT", job.p95_ttft_s, tokens.p95_ttft_s, "buy.token_p95_ttft"),
            )
            for name, promised, measured, key in promises:
                if promised is not None and (measured is None or measured > promised):
                    has = f"unknown{would}" if measured is None else f"{measured * 1e3:g} ms{would}"
                    flip = f"{key} states what you measured" if measured is None else f"{name} is promised later"
                    return Miss(
                        binding="latency", needs=f"{name} within {promised * 1e3:g} ms", has=has, flips_when=flip,
                        unknown=name if measured is None else None, would_cost_usd=usd,
                    )  # fmt: skip
            return self._quota(job, tokens.per_minute)
        time, deadline = api_time_s(self.workload, self.work), self.workload.constraints.deadline_s
        if time is None and deadline is not None:
            training = self.work.training  # no rate of the account says how long learning takes
            return Miss(
                binding="deadline",
                needs=f"done within {deadline / SECONDS_PER_HOUR:.2f} h",
                has=NO_RATE + would,
                flips_when="constraints.deadline is left out" if training else STATE_RATE,
                change=constrained(deadline_s=None) if training else None,
                unknown="throughput",
                would_cost_usd=usd,
            )
        if time is None and self.objective == "time":
            flip = "plans are ranked by cost" if self.work.training else STATE_RATE
            return Miss(
                binding="time", needs="a finish time to rank by", has=NO_RATE + would, flips_when=flip,
                unknown="throughput", would_cost_usd=usd,
            )  # fmt: skip
        if time is not None and deadline is not None and time > deadline:
            hours, left = time / SECONDS_PER_HOUR, deadline / SECONDS_PER_HOUR
            return Miss(
                binding="deadline",
                needs=f"{hours:.2f} h",
                has=f"{left:.2f} h to the deadline",
                flips_when=f"the deadline is {hours * 1.01:.2f} h away",
                shortfall=time / deadline,
                change=constrained(deadline_s=time * 1.01),
            )
        return None

    def _quota(self, job: ServeJob, per_minute: float | None) -> Miss | None:
        needed = tokens_per_minute(job, self.workload.buy.tokens)
        if per_minute is None or needed <= per_minute:
            return None
        return Miss(
            binding="rate", needs=f"{needed:,.0f} tokens a minute", has=f"{per_minute:,.0f}",
            flips_when=f"buy.tokens_per_minute is {needed:.0f}", shortfall=needed / per_minute,
        )  # fmt: skip

    def _budget(self, usd: float) -> Miss | None:
        budget = self.workload.constraints.budget_usd
        if budget is None or usd <= budget:
            return None
        return Miss(
            binding="budget", needs=f"${usd:,.2f}", has=f"${budget:,.2f}", flips_when=f"the budget is ${usd:,.2f}",
            shortfall=usd / budget, change=constrained(budget_usd=usd * 1.001),
        )  # fmt: skip

    def option(self, way: Way, ledger: Ledger) -> Option:
        """A way that holds every limit, as an option without machines."""
        total = float(ledger.total_usd)
        seconds = None if self.service else api_time_s(self.workload, self.work)
        time = None if seconds is None else _stated(seconds)
        days = [line.read_on for line in ledger.lines if line.source != OWN]
        return Option(
            rank=0,
            provider=self.provider(way),
            instance_type=way.model,
            region=SHORT.get(way.region, way.region),
            purchase=way.purchase,
            count=way.units,
            gpu=None,
            gpu_count=0,
            usd_per_instance_hour=0.0,
            price_read_on=_oldest(days),
            time_s=time,
            cost_usd=Figure(value=total, low=total, high=total),
            ledger=ledger,
            run=self._run(time),
            risks=tuple(self._risks(way, days, known=time is not None or self.service)),
            pareto=False,
            loses_by="",
            platform=way.platform,
        )

    def _run(self, time: Figure | None) -> RunDetail:
        work, tokens = self.work, self.workload.buy.tokens
        none = Figure(value=0.0, low=0.0, high=0.0)
        said = "learning on the platform" if work.training else "tokens through an API"
        return RunDetail(
            layout=said,
            layout_fields=(
                ("input_tokens", round(work.input_tokens)),
                ("output_tokens", round(work.output_tokens)),
            ),
            time_s=time,
            time_parts=(),
            time_parts_of="request",
            memory_gib=none,
            memory_parts_gib=(),
            memory_available_gib=0.0,
            rates=(),
            latency_p95_s=None if tokens.p95_latency_s is None or not self.service else _stated(tokens.p95_latency_s),
            ttft_p95_s=None if tokens.p95_ttft_s is None or not self.service else _stated(tokens.p95_ttft_s),
            machines=False,
        )

    def _risks(self, way: Way, days: Iterable[date | None], *, known: bool) -> Iterable[Risk]:
        if not known:
            yield UnknownFinishRisk()
        job = self.workload.job
        if isinstance(job, ServeJob) and self.workload.buy.tokens.per_minute is None:
            yield UnknownQuotaRisk(needed_tokens_per_minute=tokens_per_minute(job, self.workload.buy.tokens))
        if self.service and self.workload.buy.tokens.load == 1:
            yield BusyRateRisk()
        if self.workload.buy.tokens.models:
            yield OtherModelRisk(model=way.model)
        else:
            yield StandInRisk(model=way.model)
        yield from way.mind
        oldest, dated = _oldest(days), [day for day in days if day is not None]
        if oldest is None:
            yield UndatedPriceRisk()
        if dated and (age := (self.workload.as_of.date() - min(dated)).days) > self.max_age_days:
            yield OldPriceRisk(age_days=age)

    def refusal(self, way: Way, miss: Miss) -> Refusal:
        platform: Platform = way.platform
        purchase: Bought = way.purchase
        return Refusal(
            provider=self.provider(way),
            instance_type=way.model,
            region=SHORT.get(way.region, way.region),
            purchase=purchase,
            count=way.units,
            gpu=None,
            gpu_count=0,
            binding=miss.binding,
            needs=miss.needs,
            has=miss.has,
            flips_when=miss.flips_when,
            shortfall=miss.shortfall,
            change=miss.change,
            platform=platform,
            unknown=miss.unknown,
            would_cost_usd=miss.would_cost_usd,
        )


def _rules_out(exclusion: Exclusion, provider: str, way: Way) -> bool:
    if exclusion.kind == "provider":
        return exclusion.provider == provider
    return exclusion.kind == "undated" and way.undated


def _listed(binding: str, wanted: Iterable[str], has: str, key: str) -> Miss:
    return Miss(
        binding=binding,  # type: ignore[arg-type]
        needs=f"one of {', '.join(wanted)}",
        has=has,
        flips_when=f"constraints.{key} includes {has}",
        change=including(key, has),
    )


def _stated(value: float) -> Figure:
    """A figure that the workload states: no interval of ours."""
    return Figure(value=value, low=value, high=value, basis="assumed")


def _oldest(days: Iterable[date | None]) -> date | None:
    """The earliest date; None where one is not known, or there is none."""
    listed = list(days)
    known = [day for day in listed if day is not None]
    return min(known) if known and len(known) == len(listed) else None
