"""`tonnage explain`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tonnage.cli import options
from tonnage.cli.explain_comparison import explain_comparison, is_compare_file
from tonnage.cli.local_device import Device, OtherMachine, refuse_beside_device, show_on_device
from tonnage.cli.meter import Meter
from tonnage.cli.plan import make, stop_if_nothing_fits
from tonnage.cli.session import open_session


def explain(
    file: options.File,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            autocompletion=options.complete_name,
            help="An instance type, GPU, provider, platform or token model. Without it: the winner and all losers.",
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
    flips: Annotated[
        int | None,
        typer.Option(
            "--flips",
            min=0,
            max=1000,
            metavar="N",
            help="Of how many losers to work out every change that flips them, each tried. [default: 10 of those that "
            "NAME means, 0 of a whole plan]",
            show_default=False,
        ),
    ] = None,
    max_price_age: options.MaxPriceAge = None,
    catalog: options.CatalogFolder = None,
    as_of: options.AsOf = None,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Explain the plan: the winner's ledger, time, memory and assumptions, and what each other option lacks.

    For each loser: the limit that binds, and the smallest change that would make it win; with NAME or --flips, in every
    dimension (price, memory, speed, deadline, budget, rate, promise), each tried. Of a compare file: its decision tree
    with the way taken and what would change the outcome (-o md adds Mermaid, -o html is a page). With --device: where
    the time goes on a device that `tonnage calibrate --local` measured, and which benches correct it.
    """
    session = open_session(
        output=output, as_of=as_of, catalog=catalog, calibration=calibration, max_price_age_days=max_price_age,
        quiet=quiet,
    )  # fmt: skip
    if device is not None:
        refuse_beside_device(
            {"NAME": name, "--provider": provider, "--platform": platform, "--region": region, "--gpu": gpu,
             "--rank": rank != "cost", "--layout": layout, "--trust": trust, "--exclude": exclude, "--quota": quota,
             "--flips": flips}
        )  # fmt: skip
        limits = {"deadline": deadline, "budget_usd": budget, "hold": hold, "accept_risk": accept_risk}
        show_on_device(session, file, device, memory_margin=memory_margin, other_machine=other_machine, limits=limits)
        return
    if is_compare_file(file):
        given = {"NAME": name, "--provider": provider, "--platform": platform, "--region": region, "--gpu": gpu,
                 "--deadline": deadline, "--budget": budget, "--flips": flips, "--layout": layout}  # fmt: skip
        explain_comparison(session, file, memory_margin=memory_margin, given=given)
        return
    result = make(
        session, file, rank=rank, top=top, providers=provider, platforms=platform, regions=region, gpus=gpu,
        deadline=deadline, budget_usd=budget, hold=hold, accept_risk=accept_risk, trust=trust, exclude=exclude,
        quotas=quota, layout=layout, memory_margin=memory_margin,
    )  # fmt: skip
    from tonnage.reports.explain import explain_report
    from tonnage.reports.selection import select_candidates

    selection = None if name is None else select_candidates(result.plan, result.catalog, name)
    wanted = (0 if name is None else 10) if flips is None else flips
    flipped = _flipped(result, selection or result.plan, wanted, quiet=quiet)
    session.show(explain_report(result.plan, selection, result.assumptions, top=top, flipped=flipped))
    if name is None:
        stop_if_nothing_fits(result)


def _flipped(result: Any, among: Any, wanted: int, *, quiet: bool) -> list[Any]:
    """What flips the first `wanted` losers of a plan or selection, options before refusals."""
    losers = [*(one for one in among.options if one.rank > 1), *among.refused][:wanted]
    found = []
    with Meter(quiet=quiet) as meter:
        for number, loser in enumerate(losers, start=1):
            meter.show(f"what would flip {loser.instance_type} ({number} of {len(losers)}) ...")
            found.append((loser, result.flips(loser)))
    return found
