"""Token APIs beside machines: which of them are options, and why the others are out."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Final

from tonnage.catalog import Catalog
from tonnage.catalog.market import Platform
from tonnage.planning.broken_limits import budget_of, deadline_of
from tonnage.planning.offers.market import exclusion_miss, not_listed
from tonnage.planning.plan import Bought, Objective, Refusal, TokenOption
from tonnage.planning.reasons.changes import (
    AnyChange,
    Buy,
    LeaveOut,
    MovePromise,
    MoveQuota,
    RankByCost,
    State,
)
from tonnage.planning.reasons.misses import (
    BudgetMiss,
    DeadlineMiss,
    Miss,
    NotAllowedMiss,
    OtherGpuMiss,
    QuotaMiss,
    ResidencyMiss,
    SlowApiMiss,
    UnknownFinishMiss,
    UnknownLatencyMiss,
)
from tonnage.planning.reasons.risks import (
    BusyRateRisk,
    OldPriceRisk,
    OtherModelRisk,
    Promise,
    Risk,
    StandInRisk,
    UndatedPriceRisk,
    UnknownFinishRisk,
    UnknownQuotaRisk,
)
from tonnage.planning.tokens.ways import Way, api_time_s, token_ways
from tonnage.planning.tokens.work import TokenWork, token_work, tokens_per_minute
from tonnage.pricing.deals import DATABRICKS_CLOUDS
from tonnage.pricing.extras import OWN
from tonnage.pricing.ledger import Ledger
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass
from tonnage.workload.exclusions import Exclusion
from tonnage.workload.jobs import ServeJob, Workload

AREAS: Final = {"us regions": "us", "us": "us"}  # how a price table names where it holds
SHORT: Final = {"us regions": "us", "global profile": "global", "all": ""}
STATE_RATE: Final = State(key="buy.tokens_per_minute", of="quota")
BY_USE: Final = "by use"  # how tokens are paid


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenOptions:
    """Options without ranks, and refusals."""

    options: tuple[TokenOption, ...]
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
        return self.workload.is_service

    def provider(self, way: Way) -> str:
        """Who runs it; Databricks on the first cloud that the workload allows."""
        allowed = self.workload.constraints.providers or DATABRICKS_CLOUDS
        clouds = [cloud for cloud in DATABRICKS_CLOUDS if cloud in allowed]
        return clouds[0] if way.platform == "databricks" and clouds else "aws"

    def miss(self, way: Way, usd: float) -> Miss | None:
        """The first limit that a way breaks."""
        for found in (self._constraint(way), way.missing, self._speed(usd), self._budget(usd)):
            if found is not None:
                return found
        return None

    def _constraint(self, way: Way) -> Miss | None:
        wanted, buys = self.workload.constraints, self.workload.buy.purchases
        provider, platform = self.provider(way), way.platform
        if wanted.platforms and platform not in wanted.platforms:
            return not_listed("platform", wanted.platforms, platform)
        out = next((one for one in wanted.exclude if _rules_out(one, provider, way)), None)
        if out is not None:
            return exclusion_miss(out)
        if wanted.providers and provider not in wanted.providers:
            return not_listed("provider", wanted.providers, provider)
        if "on_demand" not in buys:
            buy = Buy(purchase="on_demand")
            return NotAllowedMiss(binding="purchase", allowed=buys, has=BY_USE, lifted_by=(buy,))
        if wanted.gpus:
            asked = tuple(one.text for one in wanted.gpus)
            return OtherGpuMiss(asked=asked, gpu=None, gpu_count=0, api=True, lifted_by=(LeaveOut(key="gpus"),))
        return self._place(way)

    def _place(self, way: Way) -> Miss | None:
        """Regions and residency against where the price holds; a global profile may answer from anywhere."""
        wanted = self.workload.constraints
        area = AREAS.get(way.region)
        region = self.catalog.region("aws", way.region)
        area = region.area if region is not None else area
        inside = {one.area for one in self.catalog.regions if one.name in wanted.regions}
        if wanted.regions and way.region != "all" and way.region not in wanted.regions and area not in inside:
            free = LeaveOut(key="regions")
            return NotAllowedMiss(binding="region", allowed=wanted.regions, has=way.region, lifted_by=(free,))
        if wanted.residency and area not in wanted.residency:
            free = LeaveOut(key="residency")
            return ResidencyMiss(areas=wanted.residency, area=area, priced_for=way.region, lifted_by=(free,))
        return None

    def _speed(self, usd: float) -> Miss | None:
        """Limits on time: what is not known cannot be shown to hold."""
        job = self.workload.job
        if isinstance(job, ServeJob):
            return self._latency(job, usd) or self._quota(job, self.workload.buy.tokens.per_minute)
        time, deadline = api_time_s(self.workload, self.work), self.workload.constraints.deadline_s
        if time is None and deadline is not None:
            # no rate of the account says how long learning takes
            lift: AnyChange = LeaveOut(key="deadline") if self.work.training else STATE_RATE
            return UnknownFinishMiss(binding="deadline", deadline_s=deadline, usd=usd, lifted_by=(lift,))
        if time is None and self.objective == "time":
            lift = RankByCost() if self.work.training else STATE_RATE
            return UnknownFinishMiss(binding="time", deadline_s=None, usd=usd, lifted_by=(lift,))
        if time is not None and deadline is not None and time > deadline:
            later = deadline_of(time)
            return DeadlineMiss(needed_s=time, deadline_s=deadline, lifted_by=(later,))
        return None

    def _latency(self, job: ServeJob, usd: float) -> Miss | None:
        tokens = self.workload.buy.tokens
        promises: tuple[tuple[Promise, float | None, float | None, str], ...] = (
            ("latency", job.p95_latency_s, tokens.p95_latency_s, "buy.token_p95_latency"),
            ("ttft", job.p95_ttft_s, tokens.p95_ttft_s, "buy.token_p95_ttft"),
        )
        for promise, promised_s, stated_s, key in promises:
            if promised_s is not None and stated_s is None:
                state = State(key=key, of="measured")
                return UnknownLatencyMiss(promise=promise, promised_s=promised_s, usd=usd, lifted_by=(state,))
            if promised_s is not None and stated_s is not None and stated_s > promised_s:
                looser = MovePromise(promise=promise, promised_s=stated_s)
                return SlowApiMiss(
                    promise=promise, stated_s=stated_s, promised_s=promised_s, usd=usd, lifted_by=(looser,)
                )
        return None

    def _quota(self, job: ServeJob, per_minute: float | None) -> Miss | None:
        needed = tokens_per_minute(job, self.workload.buy.tokens)
        if per_minute is None or needed <= per_minute:
            return None
        return QuotaMiss(
            needed_tokens_per_minute=needed,
            allowed_tokens_per_minute=per_minute,
            lifted_by=(MoveQuota(tokens_per_minute=needed),),
        )

    def _budget(self, usd: float) -> Miss | None:
        budget = self.workload.constraints.budget_usd
        if budget is None or usd <= budget:
            return None
        return BudgetMiss(needed_usd=usd, budget_usd=budget, lifted_by=(budget_of(usd),))

    def option(self, way: Way, ledger: Ledger) -> TokenOption:
        """A way that holds every limit, as an option."""
        total = float(ledger.total_usd)
        time = None if self.service else _stated(api_time_s(self.workload, self.work))
        days = [line.read_on for line in ledger.lines if line.source != OWN]
        work, tokens = self.work, self.workload.buy.tokens
        return TokenOption(
            rank=0,
            provider=self.provider(way),
            instance_type=way.model,
            region=SHORT.get(way.region, way.region),
            purchase=way.purchase,
            count=way.units,
            price_read_on=_oldest(days),
            time_s=time,
            cost_usd=Figure(value=total, low=total, high=total),
            ledger=ledger,
            risks=tuple(self._risks(way, days, known=time is not None or self.service)),
            pareto=time is not None,
            loses_by=None,
            platform=way.platform,
            training=work.training,
            input_tokens=round(work.input_tokens),
            output_tokens=round(work.output_tokens),
            latency_p95_s=_stated(tokens.p95_latency_s) if self.service else None,
            ttft_p95_s=_stated(tokens.p95_ttft_s) if self.service else None,
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
            miss=miss,
            platform=platform,
        )


def _rules_out(exclusion: Exclusion, provider: str, way: Way) -> bool:
    if exclusion.kind == "provider":
        return exclusion.provider == provider
    return exclusion.kind == "undated" and way.undated


def _stated(value: float | None) -> Figure | None:
    """A figure that the workload states, where it does: no interval of ours."""
    return None if value is None else Figure(value=value, low=value, high=value, basis="assumed")


def _oldest(days: Iterable[date | None]) -> date | None:
    """The earliest date; None where one is not known, or there is none."""
    listed = list(days)
    known = [day for day in listed if day is not None]
    return min(known) if known and len(known) == len(listed) else None
