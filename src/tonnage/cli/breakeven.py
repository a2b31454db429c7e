"""`tonnage breakeven`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tonnage.cli import options
from tonnage.cli.session import Session, open_session

if TYPE_CHECKING:
    from tonnage.pricing.tokens import TokenPrices
    from tonnage.service.answer import Question


def breakeven(
    file: options.File,
    against: Annotated[
        list[str] | None,
        typer.Option("--against", metavar="FILE", help="A table of token prices, CSV or JSON; may be repeated."),
    ] = None,
    api_model: Annotated[
        list[str] | None,
        typer.Option(
            "--api-model",
            metavar="NAME",
            help="A model whose token prices the catalog has; may be repeated. [default: buy.token_models of the "
            "file, else the workload's own model where an API sells it]",
            show_default=False,
        ),
    ] = None,
    input_usd: Annotated[
        float | None, typer.Option("--input-usd", metavar="USD", min=0, help="API price of a million input tokens.")
    ] = None,
    output_usd: Annotated[
        float | None, typer.Option("--output-usd", metavar="USD", min=0, help="API price of a million output tokens.")
    ] = None,
    cached_usd: Annotated[
        float | None,
        typer.Option("--cached-input-usd", metavar="USD", min=0, help="API price of a million cached input tokens."),
    ] = None,
    batch_discount: Annotated[
        float | None,
        typer.Option(
            "--batch-discount", metavar="PERCENT", min=0, max=99, help="Off API prices where answers may wait."
        ),
    ] = None,
    cached_share: Annotated[
        float,
        typer.Option("--cached-share", metavar="FRACTION", min=0, max=1, help="Part of the input that is cached."),
    ] = 0.0,
    prefix_cache: Annotated[
        bool, typer.Option("--prefix-cache", help="The own fleet does not read cached input again either.")
    ] = False,
    peak_to_trough: Annotated[
        float | None,
        typer.Option(
            "--peak-to-trough",
            metavar="RATIO",
            min=1,
            help="A daily wave whose peak, the file's rate, is so many troughs.",
        ),
    ] = None,
    hourly: Annotated[
        str | None,
        typer.Option(
            "--hourly",
            metavar="24 VALUES",
            help="The day's shape: 24 numbers with commas between; the highest stands for the file's rate.",
        ),
    ] = None,
    variation: Annotated[
        float,
        typer.Option("--variation", metavar="CV", min=0.1, max=10, help="Of the gaps: 1 Poisson, above in bursts."),
    ] = 1.0,
    fixed: Annotated[bool, typer.Option("--fixed", help="No autoscaling: the peak's machines stand all day.")] = False,
    minimum: Annotated[int, typer.Option("--min", metavar="N", min=0, help="Machines held at least.")] = 1,
    maximum: Annotated[
        int | None, typer.Option("--max", metavar="N", min=1, help="Machines held at most.", show_default=False)
    ] = None,
    spare: Annotated[
        int | None,
        typer.Option(
            "--spare", metavar="N", min=0, help="Replicas that may fail. [default: spare_replicas of the file]"
        ),
    ] = None,
    warm_up: Annotated[str, typer.Option("--warm-up", metavar="TIME", help="From start to first answer.")] = "5m",
    scale_in: Annotated[
        str, typer.Option("--scale-in-delay", metavar="TIME", help="Idle time before a machine is given back.")
    ] = "5m",
    reserved_discount: Annotated[
        float | None,
        typer.Option(
            "--reserved-discount", metavar="PERCENT", min=0, max=99, help="Off on-demand for a year committed."
        ),
    ] = None,
    p99: Annotated[bool, typer.Option("--p99", help="The promised latency holds at p99, not p95.")] = False,
    item_failure: Annotated[
        float, typer.Option("--item-failure", metavar="FRACTION", min=0, max=0.99, help="Batch: tries that fail.")
    ] = 0.0,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of the simulations.")] = 0,
    provider: options.Providers = None,
    region: options.Regions = None,
    gpu: options.Gpus = None,
    catalog: options.CatalogFolder = None,
    as_of: options.AsOf = None,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Tell what a service costs at its own rate, per 1,000 requests and per million tokens, and from where it pays.

    The cheapest autoscaled fleet beside token prices: break-even over volume, burstiness, cached share and lengths.
    For a batch: finish and cost on k spot machines. Exit code 3: no machine keeps the promise or the deadline.
    """
    session = open_session(output=output, as_of=as_of, catalog=catalog, quiet=quiet)
    with session.progress("computing the break-even"):
        from tonnage import api
        from tonnage.overrides import override_constraints

        market = api.load_catalog(settings=session.settings)
        workload = api.load_workload(file, catalog=market, settings=session.settings)
        workload = override_constraints(workload, market, providers=provider, regions=region, gpus=gpu)
        prices = _prices(against, input_usd, output_usd, cached_usd, batch_discount)
        if api_model or not prices:
            from tonnage.service.listed_tokens import listed_token_prices

            prices += listed_token_prices(workload, market, api_model or ())
    if workload.kind == "batch":
        _show_batch(session, workload, market, prices, item_failure, cached_share, seed)
        return
    question = _question(
        workload, cached_share, prefix_cache, peak_to_trough, hourly, variation, fixed, minimum, maximum, spare,
        warm_up, scale_in, reserved_discount, p99, seed,
    )  # fmt: skip
    with session.progress("computing the break-even"):
        from tonnage.reports.breakeven import breakeven_report
        from tonnage.service.breakeven import break_even

        found = break_even(workload, market, prices, question)
    session.show(breakeven_report(found))
    if found.fleet is None:
        from tonnage.errors import NothingFits
        from tonnage.reports.reasons.flips import relaxation_words

        near = relaxation_words(found.plan.relaxations[0]) if found.plan.relaxations else None
        hint = near or "`tonnage plan` names what each machine lacks"
        raise NothingFits(f"no machine keeps the promise of {workload.name}", hint=hint)


def _show_batch(
    session: Session, workload: Any, market: Any, prices: Any, item_failure: float, cached_share: float, seed: int
) -> None:
    from tonnage.errors import NothingFits
    from tonnage.reports.batch_breakeven import batch_breakeven_report
    from tonnage.service.batch_breakeven import batch_break_even

    found = batch_break_even(
        workload, market, prices, item_failure=item_failure, cached_fraction=cached_share, seed=seed
    )
    session.show(batch_breakeven_report(found))
    if found.chosen is None:
        raise NothingFits(
            f"no number of machines ends {workload.name} in time", hint="a later deadline, or another GPU"
        )


def _prices(
    against: list[str] | None,
    input_usd: float | None,
    output_usd: float | None,
    cached_usd: float | None,
    batch_discount: float | None,
) -> list[TokenPrices]:
    """Prices of the files, and of the flags where they are given; InputError where only one of the two is."""
    from tonnage.errors import InputError
    from tonnage.pricing.token_file import COLUMNS, parse_token_prices
    from tonnage.pricing.tokens import TokenPrices
    from tonnage.workload.tables.reading import load_table

    found = [one for path in against or () for one in parse_token_prices(load_table(path, COLUMNS), path)]
    if input_usd is None and output_usd is None:
        if cached_usd is not None or (batch_discount is not None and not found):
            raise InputError("a discount without a price", hint="--input-usd and --output-usd, or --against FILE")
        return found
    if input_usd is None or output_usd is None:
        missing = "--input-usd" if input_usd is None else "--output-usd"
        raise InputError(f"{missing} is missing", hint="a missing price is not zero: give both")
    flags = TokenPrices(
        name="API",
        usd_per_million_input=input_usd,
        usd_per_million_output=output_usd,
        usd_per_million_cached_input=cached_usd,
        batch_discount_fraction=None if batch_discount is None else batch_discount / 100.0,
        source="--input-usd, --output-usd",
        read_on=None,
    )
    return [*found, flags]


def _question(
    workload: Any,
    cached_share: float,
    prefix_cache: bool,
    peak_to_trough: float | None,
    hourly: str | None,
    variation: float,
    fixed: bool,
    minimum: int,
    maximum: int | None,
    spare: int | None,
    warm_up: str,
    scale_in: str,
    reserved_discount: float | None,
    p99: bool,
    seed: int,
) -> Question:
    from tonnage.service.answer import Question
    from tonnage.service.autoscaling import Autoscaling
    from tonnage.service.economics import Demand
    from tonnage.units import HOURS_PER_MONTH

    own = getattr(workload.job, "spare_replicas", 0)
    hours = getattr(workload.job, "hours_per_month", float(HOURS_PER_MONTH))
    return Question(
        demand=Demand(
            curve=_curve(peak_to_trough, hourly, workload.buy.tokens.load), variation=variation, hours_per_month=hours
        ),
        policy=Autoscaling(
            enabled=not fixed,
            minimum=minimum,
            maximum=maximum,
            spare=own if spare is None else spare,
            warm_up_s=_seconds("--warm-up", warm_up),
            scale_in_delay_s=_seconds("--scale-in-delay", scale_in),
        ),
        quantile="p99" if p99 else "p95",
        cached_fraction=cached_share,
        own_prefix_cache=prefix_cache,
        reserved_discount=None if reserved_discount is None else reserved_discount / 100.0,
        seed=seed,
    )


def _curve(peak_to_trough: float | None, hourly: str | None, load: float) -> Any:
    """The day's shape: as the flags say, else a wave whose mean is the file's `token_load` of the busy rate."""
    from tonnage.errors import InputError
    from tonnage.service.rate_curve import RateCurve

    if hourly is None:
        return RateCurve.of_load(load) if peak_to_trough is None else RateCurve.sinusoid(peak_to_trough)
    if peak_to_trough is not None:
        raise InputError("--hourly and --peak-to-trough are two shapes of one day", hint="give one of them")
    try:
        values = [float(part) for part in hourly.split(",")]
    except ValueError:
        raise InputError(f"--hourly: found '{hourly}', expected 24 numbers", hint="with commas between") from None
    return RateCurve.of(values)


def _seconds(flag: str, text: str) -> float:
    from tonnage.errors import InputError
    from tonnage.workload.durations import parse_duration_s

    if text.strip() in ("0", "0s"):
        return 0.0
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise InputError(f"{flag}: found '{text}', {error}") from None
