"""Spot under a deadline: `tonnage.spot.replay`, `tonnage.spot.fit`, `tonnage.spot.advise`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.errors import InputError, PlanRefused
from tonnage.settings import Settings, current_settings
from tonnage.units import SECONDS_PER_HOUR
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.api.catalogs import CatalogSource
    from tonnage.catalog.market import InstanceType
    from tonnage.spot_instances import HazardModel, SpotTrace
    from tonnage.spot_instances.advice import SpotAdvice
    from tonnage.spot_instances.fitting import SpotFit
    from tonnage.spot_instances.replaying import ReplayResult

ZONES: Final = ("apart", "together")
_MODEL: Final = "A hazard model of your own, from `tonnage spot fit --out`. [default: the packaged one]"
_WORK: Final = "Hours of work, undisturbed."
_CHANGEOVER: Final = "Hours a launch takes until work goes on (boot, restore, lost work); billed."
_RATIO: Final = "On-demand price over spot price."
_SEED: Final = "Fixes what is drawn at random."


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions(Options):
    """The job that `replay` runs over recorded spot, and how its starts are drawn."""

    work_h: float = option("--hours", _WORK, metavar="H")
    deadline_h: float = option("--deadline-hours", "Hours until it must be done.", metavar="D")
    changeover_h: float = option("--changeover-hours", _CHANGEOVER, metavar="C")
    price_ratio: float = option("--price-ratio", _RATIO, metavar="K")
    windows: int = option("--windows", "Random starts a trace.", default=300, metavar="N", least=1, most=100_000)
    seed: int = option("--seed", _SEED, default=0, metavar="N", least=0)
    zones: str = option(
        "--zones", "apart: each trace is a job's one zone; together: one job may move among all.",
        default="apart", metavar="HOW",
    )  # fmt: skip
    model_file: str | None = option("--model", _MODEL, default=None, metavar="FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviseOptions(Options):
    """The job that `advise` judges spot for: work, checkpoints, machine, prices."""

    work_h: float = option("--hours", _WORK, metavar="H")
    changeover_h: float = option("--changeover-hours", _CHANGEOVER, metavar="C")
    price_ratio: float = option("--price-ratio", _RATIO, metavar="K")
    deadline_h: float | None = option(
        "--deadline-hours", "Hours until it must be done. [default: none]", default=None, metavar="D"
    )
    checkpoint_minutes: float | None = option(
        "--checkpoint-minutes", "Work between two checkpoints. [default: as plans choose it, near the best]",
        default=None, metavar="M",
    )  # fmt: skip
    no_checkpoints: bool = option("--no-checkpoints", "Nothing is saved on the way.", default=False)
    save_minutes: float | None = option(
        "--save-minutes", "What one checkpoint takes. [default: 1]", default=None, metavar="M"
    )
    checkpoint_gb: float | None = option(
        "--checkpoint-gb",
        "Size of one checkpoint, in place of --save-minutes: written as plans write it, on --machine.",
        default=None, metavar="GB", least=0.0,
    )  # fmt: skip
    sharded: bool = option("--sharded", "Each machine writes its part of a checkpoint (FSDP, ZeRO).", default=False)
    nodes: int = option("--nodes", "Machines; losing one stops all.", default=1, metavar="N", least=1, most=10_000)
    usd_per_machine_hour: float | None = option(
        "--price", "Spot, a machine-hour; gives bills in USD.", default=None, metavar="USD"
    )
    machine: str | None = option(
        "--machine",
        "The machine: how long it lasts is taken as plans take it. [default: the typical traced zone]",
        default=None, metavar="PROVIDER/TYPE",
    )  # fmt: skip
    region: str = option("--region", "Where --machine is; bands are published by region.", default="", metavar="REGION")
    model_file: str | None = option("--model", _MODEL, default=None, metavar="FILE")
    seed: int = option("--seed", _SEED, default=0, metavar="N", least=0)


def replay(
    traces: Sequence[Path | str], options: ReplayOptions, *, on_step: Callable[[str], None] | None = None
) -> Answer[ReplayResult]:
    """A job with a deadline under every policy and the offline optimum, over the recorded spot of trace files
    (docs/spot.md), from random starts. Costs are in multiples of the whole job on demand.

    `on_step` is called with what is computed. Raises InputError for a file that is no trace and for a deadline that
    even on-demand would miss.
    """
    from tonnage.reports.spot import replay_report
    from tonnage.spot_instances import SpotJob, replay_traces

    if options.zones not in ZONES:
        raise InputError(f"'{options.zones}' is not a way to take zones", hint="--zones takes apart or together")
    job = SpotJob(
        work_h=options.work_h, deadline_h=options.deadline_h, changeover_h=options.changeover_h,
        price_ratio=options.price_ratio,
    )  # fmt: skip
    found = replay_traces(
        job, read_traces(traces), read_model(options.model_file), windows=options.windows, seed=options.seed,
        together=options.zones == "together", on_step=on_step or _silent,
    )  # fmt: skip
    return Answer(found, replay_report, remarks=tuple(f"skipped: {one.reason}" for one in found.skipped))


def fit(traces: Sequence[Path | str], *, out: Path | str | None = None) -> Answer[SpotFit]:
    """Spot lifetimes of trace files: preemption hazard by age, Weibull shapes, availability and prices.

    `out` names a file for the fitted hazard model, JSON. With traces of several families each is left out in turn, and
    its lifetimes judged by a fit on the others. Raises InputError for a file that cannot be read or written.
    """
    from tonnage.files import save_for_user
    from tonnage.reports.spot_fit import fit_report
    from tonnage.spot_instances import fit_traces, model_text

    if out is not None and not Path(out).parent.is_dir():
        raise InputError(f"{Path(out).parent} is not a folder", hint="make it first, or name another --out")
    known = read_traces(traces)
    families = sorted({trace.family for trace in known})
    found = fit_traces(known, source=f"{len(known)} traces of {', '.join(families)}")
    if out is not None:
        save_for_user(Path(out), model_text(found.model), hint="name another --out")
    return Answer(found, partial(fit_report, file=None if out is None else str(out)))


def advise(
    options: AdviseOptions, *, catalog: CatalogSource | None = None, settings: Settings | None = None
) -> Answer[SpotAdvice]:
    """Spot judged for one job: expected hours and bill, the best checkpoint interval, the chance to miss a deadline.

    The answer's fault is PlanRefused where spot without checkpoints diverges or a deadline cannot be kept. Raises
    InputError for options that contradict one another, UnknownName for a machine that the catalog has not.

    >>> answer = advise(AdviseOptions(work_h=100, changeover_h=0.1, price_ratio=3, nodes=2))
    >>> answer.fault is None and answer.found.best.interval_h > 0
    True
    """
    from tonnage.reports.spot_advice import advice_report
    from tonnage.spot_instances import SpotQuestion
    from tonnage.spot_instances import advise as judge

    _check_combination(options)
    rented = None if options.machine is None else _machine(options.machine, catalog, settings)
    minutes = options.checkpoint_minutes
    question = SpotQuestion(
        work_h=options.work_h, changeover_h=options.changeover_h, price_ratio=options.price_ratio,
        save_h=_save_h(options, rented), interval_h=None if minutes is None else minutes / 60.0,
        checkpoints=not options.no_checkpoints, deadline_h=options.deadline_h, nodes=options.nodes,
        usd_per_h=options.usd_per_machine_hour, seed=options.seed,
    )  # fmt: skip
    found = judge(question, _hazards(options, rented))
    return Answer(found, advice_report, _refusal(found))


def _check_combination(options: AdviseOptions) -> None:
    if options.no_checkpoints and options.checkpoint_minutes is not None:
        raise InputError("--no-checkpoints and --checkpoint-minutes exclude each other", hint="give one of them")
    if options.model_file is not None and options.machine is not None:
        raise InputError(
            "--model and --machine exclude each other", hint="give one of them: each says how long spot lasts"
        )
    if options.machine is None and (options.region or options.checkpoint_gb is not None or options.sharded):
        raise InputError(
            "--region, --checkpoint-gb and --sharded are of a machine", hint="--machine aws/p4d.24xlarge names it"
        )


def _hazards(options: AdviseOptions, machine: InstanceType | None) -> HazardModel:
    """How long spot lasts: as plans take the machine's, else of a model file, else the packaged model."""
    from tonnage.spot_instances import machine_hazard

    if machine is None:
        return read_model(options.model_file)
    hazard = machine_hazard(machine, options.region)
    return replace(hazard.model, source=f"{hazard.known}: {hazard.source}")


def _refusal(found: SpotAdvice) -> PlanRefused | None:
    from tonnage.reports.reasons.spot_refusals import spot_refusal_words

    if found.refused is None:
        return None
    minutes = 60 * found.best.interval_h
    return PlanRefused(
        spot_refusal_words(found.refused),
        hint=f"the best interval between checkpoints is {minutes:.0f} min; `tonnage spot replay` compares policies "
        "that keep a deadline with on-demand",
    )


def _machine(name: str, catalog: CatalogSource | None, settings: Settings | None) -> InstanceType:
    """The catalog's machine of a `PROVIDER/TYPE`."""
    from tonnage.api.catalogs import market_of

    provider, slash, kind = name.partition("/")
    if not slash:
        raise InputError(f"'{name}' names no provider", hint="write it as aws/p4d.24xlarge")
    return market_of(catalog, settings or current_settings()).instance_type(kind, provider)


def _save_h(options: AdviseOptions, machine: InstanceType | None) -> float:
    """Hours of a save: as stated, else of so many GB on that machine, else a minute."""
    from tonnage.spot_instances import machine_save_s

    minutes, size_gb = options.save_minutes, options.checkpoint_gb
    if size_gb is None or machine is None:
        return (1.0 if minutes is None else minutes) / 60.0
    if minutes is not None:
        raise InputError("--save-minutes and --checkpoint-gb exclude each other", hint="give one of them")
    writers = options.nodes if options.sharded else 1
    return machine_save_s(size_gb * 1e9, machine, writers) / SECONDS_PER_HOUR


def read_traces(paths: Sequence[Path | str]) -> list[SpotTrace]:
    """The traces of some files, each under its file's name. InputError on a file that is not one."""
    from tonnage.spot_instances import parse_trace

    return [
        parse_trace(_text(path, hint="name trace files, JSON"), name=Path(path).name.removesuffix(".json"))
        for path in paths
    ]


def read_model(path: Path | str | None) -> HazardModel:
    """The packaged hazard model, or one from a file. InputError on a file that is not one."""
    from tonnage.spot_instances import packaged_model, parse_model

    if path is None:
        return packaged_model()
    return parse_model(_text(path, hint="`tonnage spot fit --out` writes one"), name=Path(path).name)


def _text(path: Path | str, *, hint: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InputError(f"{path} cannot be read: {reason}", hint=hint) from error


def _silent(text: str) -> None:
    del text
