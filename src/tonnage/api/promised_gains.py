"""What promised gains come to for one workload: `tonnage.gains`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.errors import InputError, UnknownName, nearest
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.api.catalogs import CatalogSource
    from tonnage.api.inputs import CalibrationSource, Clock, WorkloadSource
    from tonnage.catalog import Catalog
    from tonnage.claimed_gains.devices import UnmeasuredProcessor
    from tonnage.claimed_gains.gain import Gain, PromisedGain, Side
    from tonnage.planning.calibrated_model import CalibratedModel
    from tonnage.planning.plan import Plan
    from tonnage.reports.gains import GainsFound
    from tonnage.workload.jobs import TabularJob, Workload

DEVICES: Final = ("h100", "a100")
ONE_PROCESS: Final = 1  # workers of a table on this machine


def read_promises(flag: str, texts: list[str]) -> tuple[tuple[str, float], ...]:
    """`NAME=FIGURE` texts; InputError names the flag.

    >>> read_promises("--promise", ["spot=0.5"])
    (('spot', 0.5),)
    """
    found = []
    for text in texts:
        name, _, figure = text.partition("=")
        try:
            found.append((name, float(figure)))
        except ValueError:
            raise InputError(f"{flag}: found '{text}', expected NAME=FIGURE such as spot=0.6") from None
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class GainsOptions(Options):
    """Which promises `gains` judges, and beside what."""

    promises: tuple[tuple[str, float], ...] = option(
        "--promise",
        "What is promised, in place of the usual figure: spot=0.6, autoscaling=0.4, right-sizing=0.25, arm=0.2 "
        "(parts of the cost), h100=10, a100=6 (times as fast), providers=0.05; may be repeated.",
        default=(), metavar="NAME=FIGURE", read=read_promises, repeated=True,
    )  # fmt: skip
    only: tuple[str, ...] = option("--only", "One gain alone; may be repeated.", default=(), metavar="NAME")
    against: str | None = option(
        "--against", "Right-sizing beside this instance type, the one you run now.", default=None, metavar="TYPE"
    )
    device: str = option(
        "--device", "The measured processor that GPUs are compared with: a profile's name or file.",
        default="local", metavar="NAME",
    )  # fmt: skip


def gains(
    workload: WorkloadSource,
    options: GainsOptions | None = None,
    *,
    catalog: CatalogSource | None = None,
    as_of: Clock | None = None,
    calibration: CalibrationSource | None = None,
    settings: Settings | None = None,
    **constraints: Any,
) -> Answer[GainsFound]:
    """Each promised gain computed for this workload, with an 80 % interval and how it came about; what cannot be
    computed says what is missing. `constraints` as for `plan`.

    Raises InputError for an unknown gain, a promise that cannot be and a workload that cannot be read, UnknownName for
    an instance type or a device profile that is not known.
    """
    from tonnage.api.catalogs import market_of
    from tonnage.api.inputs import calibrated_model_of, read_workload
    from tonnage.claimed_gains.gain import only, with_least
    from tonnage.overrides import override_constraints
    from tonnage.planning.limits import check_limits
    from tonnage.reports.gains import GainsFound, gains_report

    options, settings = options or GainsOptions(), settings or current_settings(as_of=as_of)
    targets = with_least(dict(options.promises))
    with_least(dict.fromkeys(options.only, 0.5))  # InputError for an unknown name
    market = market_of(catalog, settings)
    job = override_constraints(read_workload(workload, as_of, market, settings), market, **constraints)
    check_limits(job, market)
    if options.against is not None:
        _check_sold(options.against, market)
    calibrated = calibrated_model_of(calibration, None, settings)
    wanted = only(targets, options.only)
    of_plan = {"spot", "autoscaling", "right-sizing"} & {one.subject for one in wanted}
    planned = _planned(job, market, calibrated, settings) if of_plan else None
    found = tuple(_gain(one, job, market, planned, calibrated, options, settings) for one in wanted)
    return Answer(GainsFound(name=job.name, gains=found, catalog=market), gains_report)


def _check_sold(instance_type: str, market: Catalog) -> None:
    names = {one.name for one in market.instance_types}
    if instance_type not in names:
        raise UnknownName(
            f"no instance type '{instance_type}' in the catalog", suggestions=nearest(instance_type, names)
        )


def _planned(job: Workload, market: Catalog, calibrated: CalibratedModel, settings: Settings) -> Plan:
    """The plan with both purchases, on virtual machines."""
    from tonnage.planning.planner import make_plan

    both = replace(job, buy=replace(job.buy, purchases=("on_demand", "spot")))
    return make_plan(
        both, market, objective="cost", calibrated=calibrated, max_price_age_days=settings.max_price_age_days
    )


def _gain(
    target: PromisedGain, job: Workload, market: Catalog, planned: Plan | None, calibrated: CalibratedModel,
    options: GainsOptions, settings: Settings,
) -> Gain:  # fmt: skip
    from tonnage.claimed_gains.devices import arm_gain
    from tonnage.claimed_gains.gain import Gain
    from tonnage.claimed_gains.savings import machine_gain, scaling_gain, spot_gain

    if target.subject == "arm":
        return arm_gain(target, market)
    if target.subject in DEVICES:
        return _device_gain(target, job, market, calibrated, options, settings)
    if planned is None or target.subject == "providers":
        return Gain(target=target, lack="no rows by provider")
    if target.subject == "spot":
        return spot_gain(target, planned, job)
    if target.subject == "autoscaling":
        return scaling_gain(target, planned, job, used=calibrated.assumed.target_utilisation)
    return machine_gain(target, planned, options.against)


def _device_gain(
    target: PromisedGain, job: Workload, market: Catalog, calibrated: CalibratedModel, options: GainsOptions,
    settings: Settings,
) -> Gain:  # fmt: skip
    from tonnage.claimed_gains.devices import gpu_gain
    from tonnage.claimed_gains.gain import Gain
    from tonnage.overrides import parse_override_gpus
    from tonnage.planning.sizes import make_size_report
    from tonnage.side_by_side.spec import EngineKind, trains_on_processors_alone
    from tonnage.workload.jobs import TabularJob

    engine = job.job.engine if isinstance(job.job, TabularJob) else None
    if engine is not None and trains_on_processors_alone(cast("EngineKind", engine)):
        return Gain(target=target, lack="engine of processors", said=engine)
    filters = parse_override_gpus(f"{target.subject.upper()}:1", market)
    size = make_size_report(job, market, gpus=filters, calibrated=calibrated)
    return gpu_gain(target, size, _processor(job, options.device, settings))


def _processor(job: Workload, device: str, settings: Settings) -> Side | UnmeasuredProcessor:
    """The rate of the work on a measured processor, or why there is none. Raises InputError for a profile that is named
    or lies here and cannot be used, UnknownName for an unknown name."""
    from tonnage.api.local_service import predict_here
    from tonnage.api.measured_here import with_own_rows
    from tonnage.benchmarks.machine import host_identity
    from tonnage.calibration.local_file import find_profile, read_profile, stored_profiles
    from tonnage.claimed_gains.devices import UnmeasuredProcessor
    from tonnage.claimed_gains.gain import Side
    from tonnage.planning.local import predict_local
    from tonnage.workload.jobs import BatchJob, ServeJob, TabularJob, TrainJob

    if isinstance(job.job, TabularJob) and device == "local":
        return _tables_here(job.job, settings)
    here = host_identity()
    known = [] if device != "local" else [read_profile(one).identity for one in stored_profiles(settings.home)]
    if device == "local" and not any(one.same_machine(here) for one in known):
        return UnmeasuredProcessor(lack="no local profile", said="")
    profile = find_profile(device, settings.home, here, other_machine=device != "local")
    if profile.kind != "cpu":
        return UnmeasuredProcessor(lack="not measured here", said=f"{profile.name} is not a processor")
    try:
        if isinstance(job.job, TrainJob):
            rate = predict_local(job.job, with_own_rows(profile, settings).profile).samples_per_s
        elif isinstance(job.job, (ServeJob, BatchJob)):
            rate = predict_here(job.job, settings, profile=profile).found.holds_per_s
        else:
            return UnmeasuredProcessor(lack="not measured here", said="tables are not timed on a processor")
    except InputError as error:
        return UnmeasuredProcessor(lack="not measured here", said=error.message)
    return Side(name=f"{profile.name}, {max(profile.threads)} threads", per_s=rate)


def _tables_here(job: TabularJob, settings: Settings) -> Side | UnmeasuredProcessor:
    """A table on all threads of this machine, predicted as for a bench: by the physics, and by the rows of earlier
    benches that `tonnage calibrate --tabular` has read. None of an engine that a bench does not predict either."""
    import numpy as np

    from tonnage.benchmarks.engines.session import read_host
    from tonnage.calibration.engine_costs import is_unknown
    from tonnage.calibration.tabular_file import load_tabular
    from tonnage.calibration.tabular_fit import correction
    from tonnage.calibration.tabular_rows import physics
    from tonnage.claimed_gains.devices import UnmeasuredProcessor
    from tonnage.claimed_gains.gain import Side
    from tonnage.sizing.estimates import Figure
    from tonnage.sizing.tabular import CpuColumns

    host = read_host()
    threads = float(host.logical_cores)
    change = correction(load_tabular(settings.home), method=job.method, engine=job.engine, passes=job.passes,
                        device=host.processor, job=job)  # fmt: skip
    if job.engine is not None and not change.tables and is_unknown(job.engine, ONE_PROCESS):
        return UnmeasuredProcessor(lack="engine not modelled", said=job.engine)
    cores = CpuColumns(
        vcpus=np.array([threads]), memory_bytes=np.array([host.memory_bytes]), arm=np.array([host.arm]),
        threads_per_core=np.array([host.threads_per_core]),
    )  # fmt: skip
    seconds = change.spread.around(float(change.seconds(physics(job, cores).total_s, threads)[0]), basis="assumed")
    work = job.rows * job.passes
    rate = Figure(value=work / seconds.value, low=work / seconds.high, high=work / seconds.low, basis="assumed")
    return Side(name=f"{host.processor}, {host.logical_cores} threads (predicted)", per_s=rate)
