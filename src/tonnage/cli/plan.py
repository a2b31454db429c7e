"""`tonnage plan`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tonnage import api
from tonnage.api.plan_options import PlanOptions
from tonnage.cli import options
from tonnage.cli.declared import PlanSession, completing, given_flags
from tonnage.cli.local_device import Device, OtherMachine, refuse_beside_device, show_on_device
from tonnage.cli.session import Session
from tonnage.errors import InputError, NothingFits

if TYPE_CHECKING:
    from tonnage.api.plans import PlanResult

PlanChoices = Annotated[
    PlanOptions,
    completing(
        rank=options.complete_rank, providers=options.complete_provider, platforms=options.complete_platform,
        regions=options.complete_region, gpus=options.complete_gpu, accept_risk=options.complete_risk,
        exclude=options.complete_exclusion, layout=options.complete_layout,
    ),
]  # fmt: skip
_FITTING_ONE_MACHINE: Final = ("--deadline", "--budget", "--hold", "--accept-risk", "--memory-margin", "--top")


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
    *,
    asked: PlanChoices,
    device: Device = None,
    other_machine: OtherMachine = False,
    session: PlanSession,
) -> None:
    """Rank every way to buy what the workload needs, and show why each other way lost.

    --provider, --platform, --region, --gpu, --deadline and --budget replace the file's own constraints; --exclude,
    --accept-risk and --quota add to them.
    With --portfolio: the cheapest assignment of several workloads under shares, quotas, a budget and a reserved base.
    With --device: training, or an encoder served or run over a batch, on a device that `tonnage calibrate --local`
    measured, in place of what is for sale.
    Exit code 3: nothing fits; the nearest misses are shown.
    """
    if portfolio is not None:
        refuse_beside_portfolio({"FILE": file, "--device": device, **given_flags(asked)})
        show_portfolio(session, portfolio, memory_margin=asked.memory_margin)
        return
    if file is None:
        hint = "a workload file, or --portfolio FILE; `tonnage plan --help` shows both"
        raise InputError("Missing argument 'FILE'", hint=hint)
    if device is not None:
        plan_on_device(session, file, device, asked, other_machine=other_machine)
        return
    result = make(session, file, asked)
    from tonnage.reports.plan import plan_report

    session.show(plan_report(result.plan, top=asked.top))
    stop_if_nothing_fits(result)


def make(session: Session, file: str, asked: PlanOptions) -> PlanResult:
    """The plan of a file under a session's settings."""
    with session.progress("planning"):
        return api.plan(file, settings=session.settings, **asked.keywords())


def plan_on_device(session: Session, file: str, device: str, asked: PlanOptions, *, other_machine: bool) -> None:
    """Show the work on a measured device; InputError where the options choose among machines for sale."""
    beside = {flag: value for flag, value in given_flags(asked).items() if flag not in _FITTING_ONE_MACHINE}
    refuse_beside_device(beside)
    show_on_device(
        session, file, device, memory_margin=asked.memory_margin, other_machine=other_machine, limits=asked.limits()
    )


def stop_if_nothing_fits(result: Any) -> None:
    """NothingFits, with the change nearest at hand, where a plan has no option."""
    if result.options:
        return
    from tonnage.reports.reasons.flips import nothing_fits_hint

    plan = result.plan
    refused = f"nothing fits {plan.name}: {len(plan.refused):,} candidates refused"
    raise NothingFits(refused, hint=nothing_fits_hint(plan))


def refuse_beside_portfolio(given: Mapping[str, object]) -> None:
    """InputError for what says something about one workload only."""
    for name, value in given.items():
        if value and name not in ("--memory-margin", "--top"):
            hint = "limits stand in the portfolio file, or in the workload files that it names"
            raise InputError(f"{name} goes with one workload, not with --portfolio", hint=hint)


def show_portfolio(session: Session, file: str, *, memory_margin: float | None) -> None:
    """Plan a portfolio file and show it; NothingFits where no assignment holds every limit."""
    with session.progress("planning the portfolio"):
        answer = api.portfolio(file, memory_margin=memory_margin, settings=session.settings)
    session.show_answer(answer)
