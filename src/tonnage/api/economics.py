"""What a service or a batch costs on machines of one's own beside prices per token: `tonnage.breakeven`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.api.reading import read_day, read_seconds
from tonnage.errors import InputError, NothingFits
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.api.catalogs import CatalogSource
    from tonnage.api.inputs import CalibrationSource, Clock, WorkloadSource
    from tonnage.catalog import Catalog
    from tonnage.planning.calibrated_model import CalibratedModel
    from tonnage.pricing.tokens import TokenPrices
    from tonnage.service.answer import BreakEven, BreakEvenQuestion
    from tonnage.service.autoscaling import Autoscaling
    from tonnage.service.batch_breakeven import BatchBreakEven
    from tonnage.service.economics import Demand
    from tonnage.service.rate_curve import RateCurve
    from tonnage.workload.jobs import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEvenOptions(Options):
    """What `breakeven` is asked: token prices to compare with, the day's demand, and how the own fleet follows it."""

    against: tuple[str, ...] = option(
        "--against", "A table of token prices, CSV or JSON; may be repeated.", default=(), metavar="FILE"
    )
    api_models: tuple[str, ...] = option(
        "--api-model",
        "A model whose token prices the catalog has; may be repeated. [default: buy.token_models of the "
        "file, else the workload's own model where an API sells it]",
        default=(), metavar="NAME",
    )  # fmt: skip
    usd_per_million_input: float | None = option(
        "--input-usd", "API price of a million input tokens.", default=None, metavar="USD", least=0
    )
    usd_per_million_output: float | None = option(
        "--output-usd", "API price of a million output tokens.", default=None, metavar="USD", least=0
    )
    usd_per_million_cached_input: float | None = option(
        "--cached-input-usd", "API price of a million cached input tokens.", default=None, metavar="USD", least=0
    )
    batch_discount_percent: float | None = option(
        "--batch-discount", "Off API prices where answers may wait.",
        default=None, metavar="PERCENT", least=0, most=99,
    )  # fmt: skip
    cached_fraction: float = option(
        "--cached-share", "Part of the input that is cached.", default=0.0, metavar="FRACTION", least=0, most=1
    )
    own_prefix_cache: bool = option(
        "--prefix-cache", "The own fleet does not read cached input again either.", default=False
    )
    peak_to_trough: float | None = option(
        "--peak-to-trough", "A daily wave whose peak, the file's rate, is so many troughs.",
        default=None, metavar="RATIO", least=1,
    )  # fmt: skip
    hourly: tuple[float, ...] | None = option(
        "--hourly",
        "The day's shape: 24 numbers with commas between; the highest stands for the file's rate.",
        default=None, metavar="24 VALUES", read=read_day,
    )  # fmt: skip
    variation: float = option(
        "--variation", "Of the gaps: 1 Poisson, above in bursts.", default=1.0, metavar="CV", least=0.1, most=10
    )
    fixed: bool = option("--fixed", "No autoscaling: the peak's machines stand all day.", default=False)
    minimum_machines: int = option("--min", "Machines held at least.", default=1, metavar="N", least=0)
    maximum_machines: int | None = option("--max", "Machines held at most.", default=None, metavar="N", least=1)
    spare_replicas: int | None = option(
        "--spare", "Replicas that may fail. [default: spare_replicas of the file]",
        default=None, metavar="N", least=0,
    )  # fmt: skip
    warm_up_s: float = option(
        "--warm-up", "From start to first answer.", default=300.0, metavar="TIME", read=read_seconds, text="5m"
    )
    scale_in_delay_s: float = option(
        "--scale-in-delay", "Idle time before a machine is given back.",
        default=300.0, metavar="TIME", read=read_seconds, text="5m",
    )  # fmt: skip
    reserved_discount_percent: float | None = option(
        "--reserved-discount", "Off on-demand for a year committed.",
        default=None, metavar="PERCENT", least=0, most=99,
    )  # fmt: skip
    p99: bool = option("--p99", "The promised latency holds at p99, not p95.", default=False)
    item_failure_fraction: float = option(
        "--item-failure", "Batch: tries that fail.", default=0.0, metavar="FRACTION", least=0, most=0.99
    )
    seed: int = option("--seed", "Of the simulations.", default=0, metavar="N", least=0)


def breakeven(
    workload: WorkloadSource,
    options: BreakEvenOptions | None = None,
    *,
    catalog: CatalogSource | None = None,
    as_of: Clock | None = None,
    calibration: CalibrationSource | None = None,
    settings: Settings | None = None,
    **constraints: Any,
) -> Answer[BreakEven] | Answer[BatchBreakEven]:
    """What a service costs at its own rate on the cheapest autoscaled fleet, beside prices per token, and from where it
    pays; for a batch, finish and cost on each number of machines.

    `constraints` replace the workload's, as for `plan`. The answer's fault is NothingFits where no machine keeps the
    promise or the deadline. Raises InputError for a workload that is neither service nor batch, and for prices or day
    shapes that contradict one another; UnknownName for a model that no API of the catalog sells.

    >>> import tonnage
    >>> service = {"kind": "serve", "model": "gpt2",
    ...     "serve": {"rate_per_s": 5, "input_tokens": 64, "output_tokens": 8, "p95_latency": "2s"}}
    >>> prices = tonnage.BreakEvenOptions(usd_per_million_input=0.5, usd_per_million_output=1.5)
    >>> answer = tonnage.breakeven(service, prices, as_of="2026-11-20", gpus="T4", providers="aws")
    >>> answer.found.fleet.unit.option.gpu
    'T4'
    """
    from tonnage.api.catalogs import market_of
    from tonnage.api.inputs import calibrated_model_of, read_workload
    from tonnage.overrides import override_constraints

    options, settings = options or BreakEvenOptions(), settings or current_settings(as_of=as_of)
    market = market_of(catalog, settings)
    job = override_constraints(read_workload(workload, as_of, market, settings), market, **constraints)
    prices = _prices(options, job, market)
    calibrated = calibrated_model_of(calibration, None, settings)
    ask = _of_batch if job.kind == "batch" else _of_service
    return ask(job, market, prices, options, calibrated)


def _of_service(
    job: Workload, market: Catalog, prices: list[TokenPrices], options: BreakEvenOptions, calibrated: CalibratedModel
) -> Answer[BreakEven]:
    from tonnage.reports.breakeven import breakeven_report
    from tonnage.reports.reasons.flips import relaxation_words
    from tonnage.service.breakeven import break_even
    from tonnage.workload.jobs import ServeJob

    question = _question(job, options)
    if isinstance(job.job, ServeJob):  # the fleets of this answer follow the question's own curve
        job = replace(job, job=replace(job.job, traffic=None))
    found = break_even(job, market, prices, question, calibrated=calibrated)
    fault = None
    if found.fleet is None:
        near = relaxation_words(found.plan.relaxations[0]) if found.plan.relaxations else None
        hint = near or "`tonnage plan` names what each machine lacks"
        fault = NothingFits(f"no machine keeps the promise of {job.name}", hint=hint)
    return Answer(found, breakeven_report, fault)


def _of_batch(
    job: Workload, market: Catalog, prices: list[TokenPrices], options: BreakEvenOptions, calibrated: CalibratedModel
) -> Answer[BatchBreakEven]:
    from tonnage.reports.batch_breakeven import batch_breakeven_report
    from tonnage.service.batch_breakeven import batch_break_even

    found = batch_break_even(
        job, market, prices, item_failure=options.item_failure_fraction, cached_fraction=options.cached_fraction,
        seed=options.seed, calibrated=calibrated,
    )  # fmt: skip
    fault = None
    if found.chosen is None:
        hint = "a later deadline, or another GPU"
        fault = NothingFits(f"no number of machines ends {job.name} in time", hint=hint)
    return Answer(found, batch_breakeven_report, fault)


def _prices(options: BreakEvenOptions, job: Workload, market: Catalog) -> list[TokenPrices]:
    """Of files and as stated; of the catalog where models are named or nothing else is there."""
    from tonnage.pricing.tokens import COLUMNS, parse_token_prices
    from tonnage.service.listed_tokens import listed_token_prices
    from tonnage.workload.tables.reading import load_table

    read = [one for path in options.against for one in parse_token_prices(load_table(path, COLUMNS), path)]
    stated = _stated_prices(options, beside_files=bool(read))
    found = read if stated is None else [*read, stated]
    if options.api_models or not found:
        found += listed_token_prices(job, market, options.api_models)
    return found


def _stated_prices(options: BreakEvenOptions, *, beside_files: bool) -> TokenPrices | None:
    """The price that the options state; InputError where one of the two is missing."""
    from tonnage.pricing.tokens import TokenPrices

    of_input, of_output = options.usd_per_million_input, options.usd_per_million_output
    discount = options.batch_discount_percent
    if of_input is None and of_output is None:
        if options.usd_per_million_cached_input is not None or (discount is not None and not beside_files):
            raise InputError("a discount without a price", hint="--input-usd and --output-usd, or --against FILE")
        return None
    if of_input is None or of_output is None:
        missing = "--input-usd" if of_input is None else "--output-usd"
        raise InputError(f"{missing} is missing", hint="a missing price is not zero: give both")
    return TokenPrices(
        name="API",
        usd_per_million_input=of_input,
        usd_per_million_output=of_output,
        usd_per_million_cached_input=options.usd_per_million_cached_input,
        batch_discount_fraction=None if discount is None else discount / 100.0,
        source="--input-usd, --output-usd",
        read_on=None,
    )


def _question(job: Workload, options: BreakEvenOptions) -> BreakEvenQuestion:
    from tonnage.service.answer import BreakEvenQuestion

    discount = options.reserved_discount_percent
    return BreakEvenQuestion(
        demand=_demand(job, options),
        policy=_policy(job, options),
        quantile="p99" if options.p99 else "p95",
        cached_fraction=options.cached_fraction,
        own_prefix_cache=options.own_prefix_cache,
        reserved_discount=None if discount is None else discount / 100.0,
        seed=options.seed,
    )


def _demand(job: Workload, options: BreakEvenOptions) -> Demand:
    from tonnage.service.economics import Demand
    from tonnage.units import HOURS_PER_MONTH

    hours = getattr(job.job, "hours_per_month", float(HOURS_PER_MONTH))
    return Demand(curve=_curve(options, job), variation=options.variation, hours_per_month=hours)


def _policy(job: Workload, options: BreakEvenOptions) -> Autoscaling:
    from tonnage.service.autoscaling import Autoscaling

    own = getattr(job.job, "spare_replicas", 0)
    return Autoscaling(
        enabled=not options.fixed,
        minimum=options.minimum_machines,
        maximum=options.maximum_machines,
        spare=own if options.spare_replicas is None else options.spare_replicas,
        warm_up_s=options.warm_up_s,
        scale_in_delay_s=options.scale_in_delay_s,
    )


def _curve(options: BreakEvenOptions, job: Workload) -> RateCurve:
    """The day's shape: as the options say, else the file's `serve.traffic`, else a wave whose mean is its `token_load`
    of the busy rate."""
    from tonnage.service.rate_curve import RateCurve

    if options.hourly is None:
        ratio, traffic = options.peak_to_trough, getattr(job.job, "traffic", None)
        if ratio is not None:
            return RateCurve.sinusoid(ratio)
        if traffic is not None and traffic.repeats:
            return RateCurve.of(traffic.shares)
        return RateCurve.of_load(job.buy.tokens.load)
    if options.peak_to_trough is not None:
        raise InputError("--hourly and --peak-to-trough are two shapes of one day", hint="give one of them")
    return RateCurve.of(options.hourly)
