"""What is predicted of a run before its first step: by this machine's own profile, where it has been measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tonnage.api.measured_here import with_own_rows
from tonnage.errors import InputError, TonnageError
from tonnage.reports.wording import plural

if TYPE_CHECKING:
    from tonnage.api.measured_here import Corrected
    from tonnage.calibration.local_profile import DeviceProfile
    from tonnage.planning.local import LocalPrediction
    from tonnage.runs.preflight import LocalMachine
    from tonnage.runs.spec import RunSpec
    from tonnage.settings import Settings
    from tonnage.sizing.estimates import Figure

SCHEMA: Final = "tonnage/prediction@1"
UNITS: Final = {"samples_per_s": "samples/s", "peak_memory_gib": "GiB", "time_s": "s", "cost_usd": "USD"}


def predict_run(spec: RunSpec, machine: LocalMachine, settings: Settings) -> dict[str, Any]:
    """The prediction as `prediction.json` holds it. `why_none` says why there is none; a figure not known is absent."""
    try:
        known = _profile(spec, machine, settings)
        made = _on_this_machine(spec, machine, known.profile, settings)
    except TonnageError as error:  # a run needs no prediction; the reason for its absence is in its file
        why = f"{error}; {error.hint}" if error.hint else str(error)
        return {"schema": SCHEMA, "device": None, "why_none": why, "micro_batch": None, "figures": {}}
    from tonnage.reports.local import drift_lines

    return {
        "schema": SCHEMA,
        "device": made.device,
        "why_none": None,
        "micro_batch": made.work.micro_batch,
        "threads": made.work.threads if known.profile.kind == "cpu" else None,
        "lengths": {"mean": made.work.job.lengths.mean, "maximum": made.work.job.lengths.maximum},
        "rows_left_out": list(known.left_out),
        "rows": made.time_rows,
        "drift": list(drift_lines(made.drift)),
        "figures": _figures(spec, made),
    }


def _on_this_machine(
    spec: RunSpec, machine: LocalMachine, profile: DeviceProfile, settings: Settings
) -> LocalPrediction:
    from tonnage.api import load_workload
    from tonnage.calibration.store import read_calibration
    from tonnage.planning.local import predict_local, training_job

    if spec.sweep is not None:  # the file's own values are not those of the trial
        raise InputError("trials of a sweep are not predicted", hint="run the workload file itself")
    if spec.workload_file is None:
        raise InputError("a specification without its workload file", hint="run the workload file itself")
    own = None if settings.calibration is None else read_calibration(settings.calibration)
    job = training_job(load_workload(spec.workload_file, settings=settings))
    one_copy = spec.launch.processes == 1 or spec.training.sharding == "ddp"  # a sharded state is not copied

    def predicted(saves_beside: bool) -> LocalPrediction:
        return predict_local(
            job, profile, own, threads=spec.launch.threads, processes=spec.launch.processes, cores=machine.cores,
            micro_batch=spec.training.micro_batch, saves_beside=saves_beside,
        )  # fmt: skip

    made = predicted(spec.checkpoint.asynchronous and one_copy)
    return made if not made.work.saves_beside or _saves_on_the_way(spec, made) else predicted(saves_beside=False)


def _saves_on_the_way(spec: RunSpec, made: LocalPrediction) -> bool:
    """Whether the first checkpoint is due before the last step: a shorter run saves once, when nothing else is done."""
    from tonnage.recipes.checkpoints.interval import FIRST_S

    steps, run_s = _extent(spec, made)
    every_steps, every_s = spec.checkpoint.every_steps, spec.checkpoint.every_s
    if every_steps is None and every_s is None:
        every_s = FIRST_S
    return (every_steps is not None and every_steps < steps) or (every_s is not None and every_s < run_s.value)


def _profile(spec: RunSpec, machine: LocalMachine, settings: Settings) -> Corrected:
    """The newest profile of this machine, of the kind of device the run computes on, with the rows of its runs."""
    from tonnage.calibration.local_file import HINT, find_profile, stored_profiles
    from tonnage.calibration.local_profile import DeviceKind
    from tonnage.runs.preflight import uses_gpus

    if not any(True for _ in stored_profiles(settings.home)):
        raise InputError("this machine has not been measured", hint=HINT)
    from tonnage.benchmarks.machine import host_identity

    kind: DeviceKind = "cuda" if uses_gpus(spec, machine) else "cpu"
    return with_own_rows(find_profile("local", settings.home, host_identity(), kind=kind), settings)


def _extent(spec: RunSpec, made: LocalPrediction) -> tuple[int, Figure]:
    """Steps of the run and their seconds: `max_steps` may end it before its epochs do."""
    steps = made.steps if spec.training.max_steps is None else min(spec.training.max_steps, made.steps)
    return steps, made.step_s.scaled(float(steps))


def _figures(spec: RunSpec, made: LocalPrediction) -> dict[str, Any]:
    _, run_s = _extent(spec, made)
    hour = spec.guard.usd_per_hour
    figures = {
        "samples_per_s": made.samples_per_s,
        "peak_memory_gib": made.peak_memory_gib,
        "time_s": run_s,
        "cost_usd": made.cost_usd if hour is None else run_s.scaled(hour / 3600),
    }
    return {
        name: {"value": figure.value, "low": figure.low, "high": figure.high, "basis": figure.basis}
        for name, figure in figures.items()
        if figure is not None
    }


def prediction_doubts(prediction: dict[str, Any]) -> tuple[str, ...]:
    """What speaks against a prediction: runs that its profile did not foresee, and runs that taught nothing."""
    left_out = prediction.get("rows_left_out", [])
    said = f"{plural(len(left_out), 'measured row')} left out of the prediction, the first: "
    return (*prediction.get("drift", ()), *([said + left_out[0]] if left_out else []))


def prediction_line(prediction: dict[str, Any]) -> str:
    """One line for people.

    >>> prediction_line({"why_none": "no profile", "figures": {}})
    'predicted: nothing (no profile)'
    """
    figures = prediction["figures"]
    if not figures:
        return f"predicted: nothing ({prediction['why_none']})"
    shown = [
        f"{figure['value']:.3g} {UNITS[name]} ({figure['low']:.3g} to {figure['high']:.3g})"
        for name, figure in figures.items()
        if name in UNITS
    ]
    threads = prediction.get("threads")
    how = "" if threads is None else f", {plural(threads, 'thread')} a process"
    return f"predicted on {prediction['device']}{how}: {', '.join(shown)}"
