"""`tonnage plan`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from tonnage.cli import options
from tonnage.cli.local_device import Device, OtherMachine, refuse_beside_device, show_on_device
from tonnage.cli.session import Session, open_session


def plan(
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="A workload file, NAME.tonnage.yaml.", show_default=False)
    ] = None,
    portfolio: Annotated[
        str | None,
        typer.Option(
            "--portfolio",
            metavar="FILE",
            help="A portfolio file instead: several workloads bought together.",
            show_default=False,
        ),
    ] = None,
    rank: options.Rank = "cost",
    top: options.Top = 10,
    provider: options.Providers = None,
    platform: options.Platforms = None,
    region: options.Regions = None,
    gpu: options.Gpus = None,
    deadline: options.Deadline = None,
    budget: options.Budget = None,
    hold: options.Hold = None,
    accept_risk: options.AcceptRisk = None,
    trust: options.Trust = None,
    exclude: options.Exclude = None,
    quota: options.QuotaFiles = None,
    device: Device = None,
    other_machine: OtherMachine = False,
    layout: options.Layout = None,
    memory_margin: options.MemoryMargin = None,
    calibration: options.CalibrationFile = None,
    max_price_age: options.MaxPriceAge = None,
    catalog: options.CatalogFolder = None,
    as_of: options.AsOf = None,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Rank every way to buy what the workload needs, and show why each other way lost.

    --provider, --platform, --region, --gpu, --deadline and --budget replace the file's own constraints; --exclude,
    --accept-risk and --quota add to them.
    With --portfolio: the cheapest assignment of several workloads under shares, quotas, a budget and a reserved base.
    With --device: training, or an encoder served or run over a batch, on a device that `tonnage calibrate --local`
    measured, in place of what is for sale.
    Exit code 3: nothing fits; the nearest misses are shown.
    """
    session = open_session(
        output=output, as_of=as_of, catalog=catalog, calibration=calibration, max_price_age_days=max_price_age,
        quiet=quiet,
    )  # fmt: skip
    if portfolio is not None:
        refuse_beside_portfolio(
            {"FILE": file, "--provider": provider, "--platform": platform, "--region": region, "--gpu": gpu,
             "--deadline": deadline, "--budget": budget, "--hold": hold, "--rank": rank != "cost", "--device": device,
             "--layout": layout, "--accept-risk": accept_risk, "--trust": trust, "--exclude": exclude, "--quota": quota}
        )  # fmt: skip
        show_portfolio(session, portfolio, memory_margin=memory_margin)
        return
    if file is None:
        from tonnage.errors import InputError

        hint = "a workload file, or --portfolio FILE; `tonnage plan --help` shows both"
        raise InputError("Missing argument 'FILE'", hint=hint)
    if device is not None:
        refuse_beside_device(
            {
                "--provider": provider,
                "--platform": platform,
                "--region": region,
                "--gpu": gpu,
                "--rank": rank != "cost",
                "--layout": layout,
                "--trust": trust,
                "--exclude": exclude,
                "--quota": quota,
            }
        )
        limits = {"deadline": deadline, "budget_usd": budget, "hold": hold, "accept_risk": accept_risk}
        show_on_device(session, file, device, memory_margin=memory_margin, other_machine=other_machine, limits=limits)
        return
    result = make(
        session, file, rank=rank, top=top, providers=provider, platforms=platform, regions=region, gpus=gpu,
        deadline=deadline, budget_usd=budget, hold=hold, accept_risk=accept_risk, trust=trust, exclude=exclude,
        quotas=quota, layout=layout, memory_margin=memory_margin,
    )  # fmt: skip
    from tonnage.reports.plan import plan_report

    session.show(plan_report(result.plan, top=top))
    stop_if_nothing_fits(result)


def make(session: Session, file: str, **given: Any) -> Any:
    """The plan of a file under a session's settings."""
    with session.progress("planning"):
        from tonnage import api

        return api.plan(file, settings=session.settings, **given)


def stop_if_nothing_fits(result: Any) -> None:
    """NothingFits, with the change nearest at hand, where a plan has no option."""
    if result.options:
        return
    from tonnage.errors import NothingFits
    from tonnage.reports.reasons.flips import nothing_fits_hint

    plan = result.plan
    refused = f"nothing fits {plan.name}: {len(plan.refused):,} candidates refused"
    raise NothingFits(refused, hint=nothing_fits_hint(plan))


def refuse_beside_portfolio(given: Mapping[str, object]) -> None:
    """InputError for what says something about one workload only."""
    for name, value in given.items():
        if value:
            from tonnage.errors import InputError

            hint = "limits stand in the portfolio file, or in the workload files that it names"
            raise InputError(f"{name} goes with one workload, not with --portfolio", hint=hint)


def show_portfolio(session: Session, file: str, *, memory_margin: float | None) -> None:
    """Plan a portfolio file and show it; NothingFits where no assignment holds every limit."""
    with session.progress("planning the portfolio"):
        from tonnage import api

        answer = api.portfolio(file, memory_margin=memory_margin, settings=session.settings)
    session.show_answer(answer)
