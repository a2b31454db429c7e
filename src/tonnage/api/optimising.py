"""What to switch on for one workload on one device: `tonnage.optimise`."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Literal

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.errors import InputError, MeasuringStopped, TonnageError, UnknownName, nearest
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.api.catalogs import CatalogSource
    from tonnage.api.inputs import CalibrationSource, Clock, WorkloadSource
    from tonnage.api.optimised_here import LabelledRows, MeasuredHere
    from tonnage.calibration.local_profile import DeviceProfile
    from tonnage.catalog import Catalog
    from tonnage.catalog.hardware import Accelerator
    from tonnage.optimisations.outcomes import SwitchOutcome, Unpredicted
    from tonnage.optimisations.predicting import Rate
    from tonnage.optimisations.slices import CardPacking
    from tonnage.optimisations.switches import Switch, SwitchChange
    from tonnage.planning.calibrated_model import CalibratedModel
    from tonnage.reports.optimise import OptimisationsFound
    from tonnage.sizing.estimates import Figure
    from tonnage.workload.jobs import Job, TrainPrecision, Workload

MOST_LOSS: Final = 0.01
MOST_REPEATS: Final = 50
SATURATING: Final = 100.0  # times the stated rate


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimiseOptions(Options):
    """On which device `optimise` looks, what it measures and how much quality may be lost."""

    gpu: str | None = option(
        "--gpu", "A GPU of the catalog. [default: this machine's processor]", default=None, metavar="GPU"
    )
    device: str = option(
        "--device", "The measured processor that predictions stand on: a profile's name or file.",
        default="local", metavar="NAME",
    )  # fmt: skip
    measure: bool = option(
        "--measure", "Measure each switch on this machine too: on its processor, or the training switches on its GPU.",
        default=False,
    )  # fmt: skip
    repeats: int = option("--repeats", "With --measure: turns, each with every switch.", default=3, metavar="N")
    steps: int = option("--steps", "With --measure: training steps timed in a turn.", default=12, metavar="N")
    model: str | None = option(
        "--model", "With --measure: the folder of a service's model, or pkg://package/folder. "
        "[default: random weights of its shape, quality then unknown]", default=None, metavar="FOLDER",
    )  # fmt: skip
    rows: str | None = option(
        "--rows", "With --measure: labelled rows (JSONL, CSV, Parquet) that a service's model is judged on.",
        default=None, metavar="FILE",
    )  # fmt: skip
    text_column: str = option("--text-column", "Of --rows.", default="text", metavar="NAME")
    label_column: str = option("--label-column", "Of --rows; rows may be without.", default="label", metavar="NAME")
    max_loss: float = option(
        "--max-loss", "Accuracy (a fraction) that a switch may lose; beyond, it is refused.", default=MOST_LOSS,
        metavar="X",
    )  # fmt: skip
    only: tuple[str, ...] = option("--only", "One switch alone; may be repeated.", default=(), metavar="NAME")


def optimise(
    workload: WorkloadSource,
    options: OptimiseOptions | None = None,
    *,
    catalog: CatalogSource | None = None,
    as_of: Clock | None = None,
    calibration: CalibrationSource | None = None,
    settings: Settings | None = None,
    say: Callable[[str], None] | None = None,
) -> Answer[OptimisationsFound]:
    """Each switch there is for this work on this device: its predicted gain, and with `measure` the measured one
    beside it, with the quality before and after.

    Raises InputError for a workload without switches (tables), options that cannot be used and work that cannot be
    measured here, UnknownName for a device or switch that is not known. Where someone ends the measuring, the answer
    is of what was measured and its fault is MeasuringStopped; KeyboardInterrupt passes where nothing was.
    """
    from tonnage.api.catalogs import market_of
    from tonnage.api.inputs import calibrated_model_of, read_workload
    from tonnage.reports.optimise import OptimisationsFound, optimise_report
    from tonnage.workload.jobs import TabularJob

    options, settings = options or OptimiseOptions(), settings or current_settings(as_of=as_of)
    _check(options)
    market = market_of(catalog, settings)
    work = read_workload(workload, as_of, market, settings)
    if isinstance(work.job, TabularJob):
        hint = "`tonnage bench` compares engines of boosted trees and networks"
        raise InputError("tables have no switches of this kind", hint=hint)
    calibrated = calibrated_model_of(calibration, None, settings)
    looked = _on_gpu(work, options, market, calibrated) if options.gpu else _here(work, options, settings)
    measured = None
    if options.measure:
        measured = _measured(workload, work, looked, options, settings, say or (lambda _: None))
        looked = replace(looked, outcomes=tuple(_with(one, measured) for one in looked.outcomes))
    found = OptimisationsFound(
        name=work.name, kind=work.kind, device=looked.device, base=looked.base, outcomes=looked.outcomes,
        together=looked.together, packing=looked.packing, base_measured=None if measured is None else measured.base,
        most_loss=options.max_loss, catalog=market.name if options.gpu else None,
        auto_precision=_auto(work.job, looked.base_change), others=looked.others,
    )  # fmt: skip
    fault = None
    if measured is not None and measured.stopped:
        fault = MeasuringStopped("stopped before all turns were measured", hint="the report is of the turns that were")
    return Answer(found, optimise_report, fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """What the predictor says of a device. `base_change`: how the work is carried out as it is stated."""

    device: str
    base: Figure | Unpredicted
    base_change: SwitchChange
    outcomes: tuple[SwitchOutcome, ...]
    together: Any
    packing: CardPacking | None = None
    others: tuple[str, ...] = ()  # GPUs that the name given could mean too


def _check(options: OptimiseOptions) -> None:
    if not 0 <= options.max_loss < 1:  # NaN fails too
        raise InputError(f"--max-loss: found {options.max_loss}, expected a fraction from 0 to below 1, such as 0.01")
    if not 1 <= options.repeats <= MOST_REPEATS:
        raise InputError(f"--repeats: found {options.repeats}, expected 1 to {MOST_REPEATS}")
    if not 1 <= options.steps <= 10_000:
        raise InputError(f"--steps: found {options.steps}, expected 1 to 10,000")
    if not options.measure and (options.rows or options.model):
        raise InputError("--rows and --model are used with --measure alone", hint="add --measure")


def _chosen(switches: tuple[Switch, ...], only: tuple[str, ...]) -> tuple[Switch, ...]:
    known = [one.name for one in switches]
    for name in only:
        if name not in known:
            raise UnknownName(f"no switch '{name}' for this work here", suggestions=nearest(name, known),
                              hint=f"known: {', '.join(known)}")  # fmt: skip
    return tuple(one for one in switches if not only or one.name in only)


def _on_gpu(work: Workload, options: OptimiseOptions, market: Catalog, calibrated: CalibratedModel) -> _Looked:
    from tonnage.catalog.grammar import parse_gpu_filter
    from tonnage.optimisations.predicting import HOST_FACTOR, gpu_gain_spread, predict_switches, predict_together
    from tonnage.optimisations.slices import pack_card
    from tonnage.optimisations.switches import SwitchChange, gpu_switches
    from tonnage.planning.sized_machines import auto_precision
    from tonnage.workload.jobs import ServeJob, TrainJob

    assert options.gpu is not None
    cards = market.accelerators_matching(parse_gpu_filter(options.gpu.partition(":")[0]))
    if not cards:
        raise UnknownName(f"'{options.gpu}' matches no GPU known here", hint="`tonnage catalog gpus` lists them all")
    card = _most_sold(cards, market)
    # `auto` is what the device trains in anyhow: a switch to that format changes nothing
    auto = isinstance(work.job, TrainJob) and work.job.precision == "auto"
    as_stated = SwitchChange(precision=auto_precision(card)) if auto else SwitchChange()
    if options.measure:
        _check_card(card.name, work)

    def rate(job: Job, _: SwitchChange) -> Figure | Unpredicted:
        return _rate_on(replace(work, job=job), market, card.name, calibrated)

    def on_host(factor: float) -> Rate:
        other = _with_host(calibrated, factor)
        return lambda job, _: _rate_on(replace(work, job=job), market, card.name, other)

    hosts = (on_host(HOST_FACTOR), on_host(1.0 / HOST_FACTOR)) if isinstance(work.job, TrainJob) else ()
    base = rate(work.job, SwitchChange())
    switches = tuple(one for one in gpu_switches(work.job) if one.change.over(as_stated) != as_stated or not one.sized)
    outcomes = predict_switches(work.job, _chosen(switches, options.only), rate, base, gpu_gain_spread, hosts)
    packing = None
    if isinstance(work.job, ServeJob) and not options.only:
        packing = pack_card(card, work.job.rate_per_s, market,
                            lambda catalog, name: _rate_on(work, catalog, name, calibrated))  # fmt: skip
    return _Looked(
        device=f"1 x {card.name}", base=base, base_change=replace(as_stated, threads=_cores_here()), outcomes=outcomes,
        packing=packing, others=tuple(one.name for one in cards if one is not card),
        together=predict_together(work.job, outcomes, rate, base, gpu_gain_spread, hosts),
    )  # fmt: skip


def _with_host(calibrated: CalibratedModel, factor: float) -> CalibratedModel:
    """The predictor with a host that takes `factor` times as long for each launch of a training."""
    assumed = calibrated.assumed
    return replace(
        calibrated,
        assumed=replace(
            assumed,
            training_launch_us_per_kernel=assumed.training_launch_us_per_kernel * factor,
            optimizer_launch_us_per_tensor=assumed.optimizer_launch_us_per_tensor * factor,
        ),
    )


def _cores_here() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check_card(card: str, work: Workload) -> None:
    """InputError where the first GPU of this machine is another one, or the work is none that is timed on it."""
    from tonnage.catalog.aliases import devices_called
    from tonnage.runners.machine import look_at_machine
    from tonnage.workload.jobs import TrainJob

    if not isinstance(work.job, TrainJob):
        raise InputError("of services, switches are measured on this machine's processor only",
                         hint="leave --gpu or --measure out")  # fmt: skip
    found = look_at_machine().gpus
    if not found:
        hint = "leave --gpu out to measure the processor, --measure for the prediction alone"
        raise InputError(f"--measure needs the {card} at hand, and this machine has no GPU", hint=hint)
    names = devices_called(found[0].name, vocabulary="nvidia-smi")
    if card not in names:
        known = f", {' or '.join(names)} in the catalog" if names else ", which the catalog does not know"
        raise InputError(f"--measure needs the {card} at hand; the GPU here is {found[0].name}{known}",
                         hint=f"--gpu {names[0]}" if names else "leave --measure out")  # fmt: skip


def _most_sold(cards: Sequence[Accelerator], market: Catalog) -> Accelerator:
    """Of GPUs of one name, the one that most prices are of; the first of those with as many."""
    device = {one.key: one.accelerator for one in market.instance_types}
    counts = Counter(device.get((one.provider, one.instance_type)) for one in market.offers)
    return max(cards, key=lambda one: (counts[one.name], -cards.index(one)))


def _auto(job: Job, base: SwitchChange) -> TrainPrecision | None:
    from tonnage.workload.jobs import TrainJob

    return base.precision if isinstance(job, TrainJob) and job.precision == "auto" else None


def _rate_on(work: Workload, market: Catalog, device: str, calibrated: CalibratedModel) -> Figure | Unpredicted:
    """Work a second on one device, by the path of `tonnage size`."""
    from tonnage.claimed_gains.devices import rate_of_one
    from tonnage.optimisations.outcomes import Unpredicted
    from tonnage.planning.sizes import make_size_report
    from tonnage.workload.jobs import NO_LIMIT

    machines = tuple(one for one in market.instance_types if one.accelerator == device)
    single = tuple(one for one in machines if one.accelerator_count == 1) or machines
    if not single:
        return Unpredicted(said=f"no machine of the catalog has {device}")
    own = replace(
        work,
        job=_saturating(work.job),
        constraints=replace(work.constraints, gpus=(), max_gpus=None, max_nodes=NO_LIMIT),
    )
    try:
        size = make_size_report(own, replace(market, instance_types=single), calibrated=calibrated)
    except TonnageError as error:
        return Unpredicted(said=error.message)
    rates = [rate for row in size.rows if (rate := rate_of_one(row)) is not None]
    if rates:
        return max(rates, key=lambda one: one.value)
    if size.misses:
        return Unpredicted(said="", miss=size.misses[0].miss)
    return Unpredicted(said=f"no machine of the catalog has one {device} alone")


def _saturating(job: Job) -> Job:
    """A service under so much load that each device carries the most it can inside the promise: at the stated rate the
    plan takes smaller batches where the load leaves room for them."""
    from tonnage.workload.jobs import ServeJob

    if not isinstance(job, ServeJob):
        return job
    return replace(job, rate_per_s=job.rate_per_s * SATURATING, spare_replicas=0, replicas=None)


def _here(work: Workload, options: OptimiseOptions, settings: Settings) -> _Looked:
    from tonnage.optimisations.outcomes import Unpredicted
    from tonnage.optimisations.predicting import (
        gpu_gain_spread,
        predict_switches,
        predict_together,
        processor_gain_spread,
        processor_rate,
    )
    from tonnage.optimisations.switches import processor_switches

    profile = _profile(options.device, settings)
    cores = _cores_here()
    arm = platform.machine().lower() in ("arm64", "aarch64")
    known = None if isinstance(profile, Unpredicted) else profile
    base_change = _as_stated(work, known, cores)

    def rate(job: Any, change: SwitchChange) -> Figure | Unpredicted:
        if isinstance(profile, Unpredicted):
            return profile
        return processor_rate(job, change.over(base_change), profile)

    base = rate(work.job, base_change)
    every = processor_switches(work.job, cores=cores, arm=arm)
    switches = _chosen(tuple(one for one in every if one.change.over(base_change) != base_change), options.only)
    if not switches:
        raise InputError("there are no switches for this work on a processor", hint="--gpu names a GPU of the catalog")
    spread_of = gpu_gain_spread if known is None else processor_gain_spread(known)  # None: nothing is predicted
    outcomes = predict_switches(work.job, switches, rate, base, spread_of=spread_of)
    return _Looked(
        device=f"this machine, {cores} cores" if known is None else known.name, base=base, base_change=base_change,
        outcomes=outcomes, together=predict_together(work.job, outcomes, rate, base, spread_of=spread_of),
    )  # fmt: skip


def _profile(device: str, settings: Settings) -> DeviceProfile | Unpredicted:
    """The profile, or why nothing can be predicted. UnknownName and InputError for one that is named and cannot be
    used."""
    from tonnage.api.measured_here import with_own_rows
    from tonnage.benchmarks.machine import host_identity
    from tonnage.calibration.local_file import find_profile, read_profile, stored_profiles
    from tonnage.optimisations.outcomes import Unpredicted

    here = host_identity()
    if device == "local" and not any(read_profile(one).identity.same_machine(here)
                                     for one in stored_profiles(settings.home)):  # fmt: skip
        said = "no processor has been measured: `tonnage calibrate --local` (services: --services) does it in a minute"
        return Unpredicted(said=said)
    profile = find_profile(device, settings.home, here, kind="cpu" if device == "local" else None)
    if profile.kind != "cpu":
        raise InputError(f"{profile.name} is not a processor", hint="--gpu names a GPU of the catalog")
    return with_own_rows(profile, settings).profile


def _as_stated(work: Workload, profile: DeviceProfile | None, cores: int) -> SwitchChange:
    """How the work is carried out without any switch: training on the threads that a run would take, an encoder in one
    worker of ONNX Runtime."""
    from tonnage.optimisations.predicting import encoder_format
    from tonnage.optimisations.switches import SwitchChange
    from tonnage.planning.local import predict_local
    from tonnage.workload.jobs import TrainJob

    job = work.job
    if not isinstance(job, TrainJob):
        weights: Any = encoder_format(job)  # type: ignore[arg-type]
        return SwitchChange(runtime="onnx", weights=weights, threads=1, workers=1)
    precision = job.precision if job.precision != "auto" else None
    if profile is None:
        return SwitchChange(threads=cores, precision=precision)
    try:
        made = predict_local(job, profile)
    except InputError:  # the switches say why
        return SwitchChange(threads=cores, precision=precision)
    return SwitchChange(threads=made.work.threads, precision=made.work.job.precision)


def _measured(
    source: WorkloadSource, work: Workload, looked: _Looked, options: OptimiseOptions, settings: Settings,
    say: Callable[[str], None],
) -> MeasuredHere:  # fmt: skip
    from tonnage.api.optimised_here import (
        MeasuringTerms,
        measure_switches,
        pass_jobs,
        training_jobs,
        why_not_in_runs,
    )
    from tonnage.optimisations.outcomes import MeasuredSwitch
    from tonnage.workload.jobs import TrainJob

    terms = MeasuringTerms(repeats=options.repeats, steps=options.steps)
    switches = [one.switch for one in looked.outcomes]
    if isinstance(work.job, TrainJob):
        from tonnage.api.launching import read_spec

        if not isinstance(source, (str, Path)) or not Path(source).is_file():
            raise InputError("a run is measured from its workload file", hint="name the file")
        if options.rows or options.model:
            raise InputError("--rows and --model are of services; a training file names its own under `run`")
        why = {one.name: reason for one in switches if options.gpu and (reason := why_not_in_runs(one))}
        device: Literal["cpu", "cuda"] = "cpu" if options.gpu is None else "cuda"
        jobs = training_jobs(read_spec(str(source)), looked.base_change, terms, device=device)
        found = measure_switches([one for one in switches if one.name not in why], jobs, terms, None, say=say)
        left_out = {name: MeasuredSwitch(reason=reason, left_out=True) for name, reason in why.items()}
        return replace(found, switches={**found.switches, **left_out})
    rows = None if options.rows is None else _labelled(options)
    with TemporaryDirectory(prefix="tonnage-optimise-model-") as scratch:
        model = _model(work, options, Path(scratch))
        vocabulary = work.job.model.vocab if options.model is not None else _tiny_words()  # type: ignore[union-attr]
        jobs = pass_jobs(work.job, model, settings.home / "exported", looked.base_change, terms, rows,  # type: ignore[arg-type]
                         vocabulary=vocabulary)  # fmt: skip
        return measure_switches(switches, jobs, terms, rows, say=say)


def _tiny_words() -> int:
    """Words of the tokenizer that a model of random weights gets."""
    from tonnage.testing.tiny_encoders import WORDS

    return len(WORDS)


def _model(work: Workload, options: OptimiseOptions, scratch: Path) -> Path:
    """The folder named, else a classifier of random weights and the workload's shape."""
    from tonnage.runs.locations import absolute
    from tonnage.testing.tiny_encoders import write_tiny_encoder

    if options.model is not None:
        return Path(absolute(options.model, Path.cwd()))
    if options.rows is not None:
        raise InputError("labelled rows need a trained model", hint="--model FOLDER, such as a run's `model` folder")
    shape: Any = work.job.model  # type: ignore[union-attr]
    if shape.architecture != "encoder" or shape.ffn != 4 * shape.hidden or shape.gated_mlp:
        raise InputError(f"no model of random weights is made of the shape of {shape.name}", hint="--model FOLDER")
    return write_tiny_encoder(scratch / "model", "classification", hidden=shape.hidden, heads=shape.heads,
                              layers=shape.layers, positions=shape.max_positions or 512)  # fmt: skip


def _labelled(options: OptimiseOptions) -> LabelledRows:
    from tonnage.api.optimised_here import LabelledRows
    from tonnage.recipes.data.reading import read_rows
    from tonnage.runs.locations import absolute
    from tonnage.runs.spec import DataSource
    from tonnage.workload.run_terms import format_of

    assert options.rows is not None
    form = format_of(options.rows)
    if form not in ("jsonl", "csv", "parquet"):
        raise InputError(f"--rows: {options.rows} is not a JSONL, CSV or Parquet file")
    source = DataSource(location=absolute(options.rows, Path.cwd()), format=form)
    read = read_rows(source, name="--rows", wanted=frozenset((options.text_column, options.label_column)))
    texts = [str(one) for one in read.column(options.text_column, "text")]
    labels = None
    if options.label_column in read.seen:
        labels = tuple(str(one) for one in read.column(options.label_column, "label"))
    return LabelledRows(texts=tuple(texts), labels=labels)


def _with(outcome: SwitchOutcome, measured: MeasuredHere) -> SwitchOutcome:
    return replace(outcome, measured=measured.switches.get(outcome.switch.name))
