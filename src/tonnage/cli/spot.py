"""`tonnage spot`: replay policies over recorded spot, fit how long spot lasts, judge spot for one job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tonnage.cli import options
from tonnage.cli.meter import Meter
from tonnage.cli.session import Session, open_session
from tonnage.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from tonnage.catalog.market import InstanceType
    from tonnage.spot_instances import HazardModel, Trace

commands = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Spot under a deadline: replay policies over traces, fit lifetimes, judge spot for a job.",
)
_ZONES = ("apart", "together")


def complete_zones(incomplete: str) -> list[str]:
    return [name for name in _ZONES if name.startswith(incomplete)]


Traces = Annotated[
    list[str],
    typer.Argument(metavar="TRACE...", help="Spot traces, JSON; their format: docs/spot.md.", show_default=False),
]
WorkHours = Annotated[
    float, typer.Option("--hours", metavar="H", help="Hours of work, undisturbed.", show_default=False)
]
DeadlineHours = Annotated[
    float, typer.Option("--deadline-hours", metavar="D", help="Hours until it must be done.", show_default=False)
]
OwnDeadline = Annotated[
    float | None,
    typer.Option("--deadline-hours", metavar="D", help="Hours until it must be done. [default: none]"),
]
Changeover = Annotated[
    float,
    typer.Option(
        "--changeover-hours",
        metavar="C",
        help="Hours a launch takes until work goes on (boot, restore, lost work); billed.",
        show_default=False,
    ),
]
PriceRatio = Annotated[
    float,
    typer.Option("--price-ratio", metavar="K", help="On-demand price over spot price.", show_default=False),
]
ModelFile = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="FILE",
        help="A hazard model of your own, from `tonnage spot fit --out`. [default: the packaged one]",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Fixes what is drawn at random.")]


@commands.command("replay", short_help="Policies side by side over recorded spot")
def replay(
    traces: Traces,
    hours: WorkHours,
    deadline_hours: DeadlineHours,
    changeover_hours: Changeover,
    price_ratio: PriceRatio,
    windows: Annotated[
        int, typer.Option("--windows", metavar="N", min=1, max=100_000, help="Random starts a trace.")
    ] = 300,
    seed: Seed = 0,
    zones: Annotated[
        str,
        typer.Option(
            "--zones",
            metavar="HOW",
            autocompletion=complete_zones,
            help="apart: each trace is a job's one zone; together: one job may move among all.",
        ),
    ] = "apart",
    model: ModelFile = None,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Replay a job with a deadline over recorded spot, from random starts, under every policy and the offline optimum.

    Costs are in multiples of the whole job on demand. A deadline that even on-demand would miss is bad input, exit 2.
    """
    session = open_session(output=output, quiet=quiet)
    from tonnage.errors import InputError
    from tonnage.reports.spot import replay_report
    from tonnage.spot_instances import SpotJob, replay_traces

    if zones not in _ZONES:
        raise InputError(f"'{zones}' is no way to take zones", hint="--zones takes apart or together")
    job = SpotJob(work_h=hours, deadline_h=deadline_hours, changeover_h=changeover_hours, price_ratio=price_ratio)
    known = read_traces(traces)
    with Meter(quiet=quiet) as meter:
        found = replay_traces(
            job, known, read_model(model), windows=windows, seed=seed, together=zones == "together",
            on_step=meter.show,
        )  # fmt: skip
    session.show(replay_report(found))
    for one in found.skipped:
        session.say(f"skipped: {one.reason}")


@commands.command("fit", short_help="How long spot lasts: hazards, Weibull shapes, a model file")
def fit(
    traces: Traces,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="Write the hazard model here, JSON.", show_default=False),
    ] = None,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Fit spot lifetimes: preemption hazard by age, Weibull shapes, availability and prices, by zone and accelerator.

    With traces of several families each is left out in turn, and its lifetimes judged by a fit on the others.
    """
    session = open_session(output=output, quiet=quiet)
    from tonnage.errors import InputError
    from tonnage.files import save_for_user
    from tonnage.reports.spot_fit import fit_report
    from tonnage.spot_instances import fit_traces, model_text

    if out is not None and not Path(out).parent.is_dir():
        raise InputError(f"{Path(out).parent} is no folder", hint="make it first, or name another --out")
    known = read_traces(traces)
    with session.progress("fitting"):
        found = fit_traces(known, source=_source(known))
    if out is not None:
        save_for_user(Path(out), model_text(found.model), hint="name another --out")
    session.show(fit_report(found, out))


@commands.command("advise", short_help="Expected hours, bill, checkpoint interval; refuses what cannot hold")
def advise(
    hours: WorkHours,
    changeover_hours: Changeover,
    price_ratio: PriceRatio,
    deadline_hours: OwnDeadline = None,
    checkpoint_minutes: Annotated[
        float | None,
        typer.Option(
            "--checkpoint-minutes",
            metavar="M",
            help="Work between two checkpoints. [default: as plans choose it, near the best]",
            show_default=False,
        ),
    ] = None,
    no_checkpoints: Annotated[bool, typer.Option("--no-checkpoints", help="Nothing is saved on the way.")] = False,
    save_minutes: Annotated[
        float | None,
        typer.Option("--save-minutes", metavar="M", help="What one checkpoint takes. [default: 1]", show_default=False),
    ] = None,
    checkpoint_gb: Annotated[
        float | None,
        typer.Option(
            "--checkpoint-gb",
            metavar="GB",
            min=0.0,
            help="Size of one checkpoint, in place of --save-minutes: written as plans write it, on --machine.",
            show_default=False,
        ),
    ] = None,
    sharded: Annotated[
        bool, typer.Option("--sharded", help="Each machine writes its part of a checkpoint (FSDP, ZeRO).")
    ] = False,
    nodes: Annotated[
        int, typer.Option("--nodes", metavar="N", min=1, max=10_000, help="Machines; losing one stops all.")
    ] = 1,
    price: Annotated[
        float | None,
        typer.Option("--price", metavar="USD", help="Spot, a machine-hour; gives bills in USD.", show_default=False),
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(
            "--machine",
            metavar="PROVIDER/TYPE",
            help="The machine: how long it lasts is taken as plans take it. [default: the typical traced zone]",
            show_default=False,
        ),
    ] = None,
    region: Annotated[
        str,
        typer.Option(
            "--region", metavar="REGION", help="Where --machine is; bands are published by region.", show_default=False
        ),
    ] = "",
    model: ModelFile = None,
    seed: Seed = 0,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Judge spot for one job: expected hours and bill, the best checkpoint interval, the chance to miss a deadline.

    Exit code 4, with the expected hours, where spot without checkpoints diverges or a deadline cannot be kept.
    """
    session = open_session(output=output, quiet=quiet)
    from tonnage.errors import InputError, PlanRefused
    from tonnage.reports.reasons.spot_refusals import spot_refusal_words
    from tonnage.reports.spot_advice import advice_report
    from tonnage.spot_instances import SpotQuestion, machine_hazard
    from tonnage.spot_instances import advise as judge

    if no_checkpoints and checkpoint_minutes is not None:
        raise InputError("--no-checkpoints and --checkpoint-minutes exclude each other", hint="give one of them")
    if model is not None and machine is not None:
        raise InputError(
            "--model and --machine exclude each other", hint="give one of them: each says how long spot lasts"
        )
    rented = None if machine is None else _machine(session, machine)
    if rented is None and (region or checkpoint_gb is not None or sharded):
        raise InputError(
            "--region, --checkpoint-gb and --sharded are of a machine", hint="--machine aws/p4d.24xlarge names it"
        )
    save_h = _save_h(save_minutes, checkpoint_gb, rented, nodes if sharded else 1)
    known = read_model(model)
    if rented is not None:
        hazard = machine_hazard(rented, region)
        known = replace(hazard.model, source=f"{hazard.known}: {hazard.source}")
    question = SpotQuestion(
        work_h=hours, changeover_h=changeover_hours, price_ratio=price_ratio, save_h=save_h,
        interval_h=None if checkpoint_minutes is None else checkpoint_minutes / 60.0,
        checkpoints=not no_checkpoints, deadline_h=deadline_hours, nodes=nodes, usd_per_h=price, seed=seed,
    )  # fmt: skip
    with session.progress("computing"):
        answer = judge(question, known)
    session.show(advice_report(answer))
    if answer.refused is not None:
        minutes = 60 * answer.best.interval_h
        raise PlanRefused(
            spot_refusal_words(answer.refused),
            hint=f"the best interval between checkpoints is {minutes:.0f} min; `tonnage spot replay` compares policies "
            "that keep a deadline with on-demand",
        )


def _machine(session: Session, name: str) -> InstanceType:
    """The catalog's machine of a `PROVIDER/TYPE`."""
    from tonnage.api import load_catalog
    from tonnage.errors import InputError

    provider, slash, kind = name.partition("/")
    if not slash:
        raise InputError(f"'{name}' names no provider", hint="write it as aws/p4d.24xlarge")
    return load_catalog(settings=session.settings).instance_type(kind, provider)


def _save_h(minutes: float | None, size_gb: float | None, machine: InstanceType | None, writers: int) -> float:
    """Hours of a save: as stated, else of so many GB on that machine, else a minute."""
    from tonnage.errors import InputError
    from tonnage.spot_instances import machine_save_s

    if size_gb is None or machine is None:
        return (1.0 if minutes is None else minutes) / 60.0
    if minutes is not None:
        raise InputError("--save-minutes and --checkpoint-gb exclude each other", hint="give one of them")
    return machine_save_s(size_gb * 1e9, machine, writers) / SECONDS_PER_HOUR


def read_traces(paths: list[str]) -> list[Trace]:
    """The traces of some files, each under its file's name. InputError on a file that is none."""
    from tonnage.errors import InputError
    from tonnage.spot_instances import parse_trace

    found = []
    for path in paths:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise InputError(f"{path} cannot be read: {reason}", hint="name trace files, JSON") from error
        found.append(parse_trace(text, name=Path(path).name.removesuffix(".json")))
    return found


def read_model(path: str | None) -> HazardModel:
    """The packaged hazard model, or one from a file."""
    from tonnage.errors import InputError
    from tonnage.spot_instances import packaged_model, parse_model

    if path is None:
        return packaged_model()
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InputError(f"{path} cannot be read: {reason}", hint="`tonnage spot fit --out` writes one") from error
    return parse_model(text, name=Path(path).name)


def _source(traces: list[Trace]) -> str:
    families = sorted({trace.family for trace in traces})
    return f"{len(traces)} traces of {', '.join(families)}"
