"""From the words of `tonnage run` to a run that is ready to be submitted, or the reason why it is not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tonnage.api.charging import read_labels
from tonnage.api.committing import reserved, soft_warnings
from tonnage.api.failover import ANY, PLAN, first_that_can
from tonnage.api.home_runs import run_names, runs_folder
from tonnage.api.place_prices import price_at, price_doubts, stated_price
from tonnage.api.placing import NO_PREDICTION, cost_at, executor_at, machine_at, next_number
from tonnage.api.planned_places import first_planned
from tonnage.api.run_prediction import SCHEMA, predict_run
from tonnage.errors import InputError, MissingExtra, PlanRefused, TonnageError
from tonnage.supervisor.notices import check_clouds
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.api.place_prices import HourlyPrice
    from tonnage.api.planned_places import PlannedPlace
    from tonnage.places.contract import Executor, Submission
    from tonnage.places.file import AnyPlace
    from tonnage.runners.runner import Runner
    from tonnage.runs.folder import RunFolder
    from tonnage.runs.job import Job
    from tonnage.runs.preflight import LocalMachine, PreflightFinding
    from tonnage.runs.spec import RunSpec
    from tonnage.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A run checked and rendered; nothing has been touched."""

    spec: RunSpec
    folder: RunFolder
    runner: Runner
    job: Job
    prediction: dict[str, Any]
    doubts: tuple[PreflightFinding, ...]
    executor: Executor | None = None  # of the place it goes to; None: this machine
    submission: Submission | None = None  # what is sent there
    cost: dict[str, Any] | None = None  # of a place
    planned: PlannedPlace | None = None  # the option of the plan that it carries out


def prepare(settings: Settings, file: str, given: dict[str, Any], *, dry_run: bool = False) -> Launch:
    """Read, check and render. InputError and PlanRefused say what prevents the run.

    At `any` place means at the first that can carry it, and `plan` at the first of the plan's options that a place
    has: then, and only then, places are asked. A dry run takes the first of them unasked, and where the
    name is taken shows the run under the next that is free.
    """
    from tonnage.runs.folder import RunFolder

    on, planned, nowhere = given.get("on"), None, RunFolder(runs_folder(settings.home) / "check")
    if on == ANY:
        on = first_that_can(settings, nowhere)
    elif on == PLAN:
        planned = first_planned(settings, file, nowhere, ask=not dry_run)
        on, given = planned.place, {"usd_per_hour": planned.usd_per_hour, **_stated(given)}
    there = None if on is None else _holds(settings, on)
    launch = prepare_spec(settings, overridden(read_spec(file, there=there), given), on=on, dry_run=dry_run)
    if planned is None or launch.executor is None:
        return launch
    place = launch.executor.place
    stated = place.run_usd_per_hour is not None
    price = price_at(settings, place) if stated else stated_price(planned.usd_per_hour, "the plan")
    cost = cost_at(place, launch.prediction, price)
    return replace(launch, planned=planned, cost=cost)


def _stated(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _holds(settings: Settings, on: str) -> Callable[[str], bool]:
    return executor_at(settings, on).place.holds


def prepare_spec(settings: Settings, asked: RunSpec, *, on: str | None = None, dry_run: bool = False) -> Launch:
    """The same, of a specification; `on`: at this place. The place is asked nothing yet."""
    if on is not None and on != "local":
        return _prepare_at(settings, asked, on, dry_run=dry_run)
    from tonnage.runners.machine import look_at_machine
    from tonnage.runs.folder import RunFolder
    from tonnage.runs.guards import check_guard
    from tonnage.runs.secrets import hide_secrets

    spec, secrets = hide_secrets(asked)
    os.environ.update(secrets)  # for the supervisor and its workers: no file of the run holds them
    check_guard(spec.guard)
    spec, taken = _with_free_name(settings, spec, dry_run=dry_run)
    folder = RunFolder(runs_folder(settings.home) / spec.name)
    machine = look_at_machine()
    prediction = predict_run(spec, machine, settings)
    doubts = taken + _check(spec, machine, folder, prediction) + _over_soft_budgets(settings, spec, folder, prediction)
    runner = runner_for(spec, machine, prediction.get("threads"))
    return Launch(
        spec=spec, folder=folder, runner=runner, job=runner.render(spec, folder), prediction=prediction, doubts=doubts
    )


def _prepare_at(settings: Settings, asked: RunSpec, on: str, *, dry_run: bool) -> Launch:
    """A run at a place: measured by what is written down of the place, and rendered with its script."""
    from tonnage.runs.folder import RunFolder

    named, taken = _with_free_name(settings, asked, dry_run=dry_run)
    folder = RunFolder(runs_folder(settings.home) / named.name)
    launch = render_at(settings, named, folder, on)
    budgets = _over_soft_budgets(settings, launch.spec, folder, launch.prediction)
    return replace(launch, doubts=taken + launch.doubts + budgets)


def render_at(settings: Settings, asked: RunSpec, folder: RunFolder, on: str) -> Launch:
    """What the next submission of a run would send to a place; nothing is written, and the place is asked nothing.

    InputError and PlanRefused say why the place, as it is written down, cannot carry it.
    """
    from tonnage.runs.guards import check_guard
    from tonnage.runs.secrets import hide_secrets

    executor = executor_at(settings, on)
    place = executor.place
    machine = machine_at(place)
    price = price_at(settings, place)
    spec, secrets = hide_secrets(priced_at(asked, None if price is None else price.usd_per_hour))
    os.environ.update(secrets)  # the place's scheduler takes them over to the job
    check_guard(spec.guard)
    prediction = predict_at(spec, machine, settings, executor)
    doubts = _check(spec, machine, folder, prediction, there=place.holds) + _doubts_of(settings, place, price)
    runner = runner_for(spec, machine, prediction.get("threads"), **installed_at(place))
    job = runner.render(spec, executor.folder_there(folder))
    return Launch(
        spec=spec, folder=folder, runner=runner, job=job, prediction=prediction, doubts=doubts, executor=executor,
        submission=executor.render(spec, job, folder, number=next_number(folder)),
        cost=cost_at(place, prediction, price),
    )  # fmt: skip


def _doubts_of(settings: Settings, place: AnyPlace, price: HourlyPrice | None) -> tuple[PreflightFinding, ...]:
    """What is doubtful of a place's price, on the day of the settings' clock."""
    from tonnage.runs.preflight import PreflightFinding

    found = price_doubts(place, price, today=settings.today)
    return tuple(PreflightFinding(kind="doubtful", message=said, hint=mends) for said, mends in found)


def _over_soft_budgets(
    settings: Settings, spec: RunSpec, folder: RunFolder, prediction: dict[str, Any]
) -> tuple[PreflightFinding, ...]:
    """What soft budgets say; PlanRefused where a hard one has no room."""
    from tonnage.runs.preflight import PreflightFinding

    said = soft_warnings(settings.home, spec, folder, prediction)
    return tuple(PreflightFinding(kind="doubtful", message=one, hint="the budget is soft") for one in said)


def predict_at(spec: RunSpec, machine: LocalMachine, settings: Settings, executor: Executor) -> dict[str, Any]:
    """What is predicted of a run at a place: by this machine's measurements, where the place's machines are like it."""
    if executor.place.like_this_machine:
        return predict_run(spec, machine, settings)
    why = NO_PREDICTION.format(place=executor.name)
    return {"schema": SCHEMA, "device": None, "why_none": why, "micro_batch": None, "figures": {}}


def priced_at(spec: RunSpec, hour: float | None) -> RunSpec:
    """The run with the place's USD an hour, where it has none of its own: limits in money are held against it."""
    if spec.guard.usd_per_hour is not None or hour is None:
        return spec
    return replace(spec, guard=replace(spec.guard, usd_per_hour=hour))


def refuse_cut_short(findings: Iterable[PreflightFinding]) -> None:
    """PlanRefused for a run that its own limit surely ends before its work is done, unless that is asked for."""
    for one in findings:
        if one.kind == "cut short":
            raise PlanRefused(one.message, hint=one.hint)


def start(launch: Launch) -> None:
    """Write the run down and submit it. PlanRefused where its place could not carry it: nothing is written then."""
    from tonnage.runs.data_prints import with_prints
    from tonnage.runs.secrets import masked

    name = launch.spec.name
    place: dict[str, Any] = {} if launch.executor is None else {"place": launch.executor.name}
    if launch.executor is not None:
        from tonnage.api.placing import refuse_at

        refuse_at(launch.executor.name, launch.executor.check(launch.folder))
    home = launch.folder.path.parent.parent
    try:
        with reserved(home, launch.spec, launch.folder, launch.prediction):
            launch.folder.create(
                replace(launch.spec, data=with_prints(launch.spec.data)),
                prediction=masked(json.dumps(launch.prediction, indent=2)) + "\n",
                submitted={"name": name, **how(launch.spec), **place},
            )
    except FileExistsError as error:  # another of this name was faster
        raise InputError(f"a run named '{name}' is there already", hint="--name NAME starts another") from error
    except OSError as error:
        raise TonnageError(f"{launch.folder.path} cannot be made: {error.strerror}", hint="set TONNAGE_HOME") from error
    if launch.executor is None or launch.submission is None:
        launch.runner.submit(launch.job, launch.folder)
    else:
        launch.executor.submit(launch.submission, launch.folder)


def read_spec(file: str, *, there: Callable[[str], bool] | None = None) -> RunSpec:
    """A workload file with a `run:` block, or the spec.json of an earlier run."""
    path = Path(file)
    if path.suffix == ".json":
        from tonnage.runs.spec import load_spec

        try:
            return load_spec(path.read_text(encoding="utf-8"), where=file)
        except OSError as error:
            raise InputError(f"{file}: cannot be read: {error.strerror}", hint="name a workload file") from error
    from tonnage.runs.reading import load_run_spec

    return load_run_spec(path, there=there)


def overridden(spec: RunSpec, given: dict[str, Any]) -> RunSpec:
    """The specification under the command's own words; None was not given."""

    def changed(part: Any, **values: Any) -> Any:
        return replace(part, **{name: value for name, value in values.items() if value is not None})

    hours, idle_minutes, notices = given.get("max_hours"), given.get("idle_minutes"), given.get("notices")
    guard = changed(
        spec.guard,
        max_cost_usd=given.get("max_cost"),
        usd_per_hour=given.get("usd_per_hour"),
        billing_quantum_s=given.get("billing_quantum_s"),
        max_s=None if hours is None else hours * 3600,
        idle_s=None if idle_minutes is None else idle_minutes * 60,
    )
    runner = given.get("runner")
    if runner is None and spec.launch.runner == "local" and (given.get("processes") or 1) > 1:
        runner = "torchrun"  # `local` is one process
    launch = changed(
        spec.launch,
        runner=runner,
        processes=given.get("processes"),
        device=given.get("device"),
        max_restarts=given.get("max_restarts"),
        metrics_port=given.get("metrics_port"),
        notices=tuple(notices) if notices else None,
    )
    charge = changed(
        spec.charge,
        project=given.get("project"),
        team=given.get("team"),
        environment=given.get("environment"),
        labels=read_labels(given.get("labels") or (), spec.charge.labels),
    )
    return changed(spec, name=given.get("name"), guard=guard, launch=launch, charge=charge)  # type: ignore[no-any-return]


def how(spec: RunSpec) -> dict[str, Any]:
    """What the journal says of a submission: in which configuration the steps that follow are done."""
    return {"runner": spec.launch.runner, "processes": spec.launch.processes, "device": spec.launch.device}


def runner_for(
    spec: RunSpec, machine: LocalMachine, threads: int | None = None, *, python: str | None = None, nodes: int = 1
) -> Runner:
    """The runner a specification names.

    `threads` of each process where the specification says none (None: the cores shared out); `python`: another
    installation's; `nodes`: of a Slurm job. InputError where the runner is one machine's, MissingExtra where what it
    starts is not installed here.
    """
    from tonnage.runners import make_runner
    from tonnage.runners.runner import WORKER

    if nodes > 1 and spec.launch.runner != "torchrun":
        hint = f"--runner torchrun --processes {nodes}"
        raise InputError(f"the runner '{spec.launch.runner}' does not work on {nodes} nodes", hint=hint)
    each = max(1, machine.cores // spec.launch.processes)  # a run may go on where it may use fewer than it began with
    runner = make_runner(
        spec.launch.runner,
        cores=machine.cores,
        gpus=len(machine.gpus),
        threads=None if threads is None else min(threads, each),
        worker=os.environ.get("TONNAGE_WORKER") or WORKER,
        **({} if python is None else {"python": python}),
        **({} if nodes == 1 else {"nodes": nodes}),
    )
    if python is None and runner.extra is not None and find_spec(runner.extra[0]) is None:
        raise MissingExtra(f"the runner '{spec.launch.runner}'", runner.extra[1])
    return runner


def installed_at(place: AnyPlace) -> dict[str, Any]:
    """What a runner has to know of a place: its interpreter, and over how many nodes Slurm spreads the run."""
    nodes = place.machines if place.kind == "slurm" else 1
    return {"python": place.python, "nodes": nodes}


def runner_of(folder: RunFolder) -> Runner:
    """The runner that a run was submitted by."""
    from tonnage.runners import make_runner

    return make_runner(folder.spec().launch.runner, cores=1)


def _with_free_name(
    settings: Settings, spec: RunSpec, *, dry_run: bool
) -> tuple[RunSpec, tuple[PreflightFinding, ...]]:
    """InputError where a run of the name is here already; a dry run goes on under a free name, which is a doubt."""
    from tonnage.runs.folder import RunFolder
    from tonnage.runs.preflight import PreflightFinding

    folder = RunFolder(runs_folder(settings.home) / spec.name)
    if not folder.path.exists():
        return spec, ()
    from tonnage.runs.liveness import observed_state

    name, state = spec.name, observed_state(folder).state
    other = next(free for number in range(2, 10_000) if (free := f"{name}-{number}") not in run_names(settings.home))
    goes_on = f"`tonnage resume {name}` goes on with it, " if state.value in {"stopped", "lost", "failed"} else ""
    message = f"a run named '{name}' is there already: {state.value}"
    if not dry_run:
        raise InputError(message, hint=f"{goes_on}--name {other} starts a new run")
    shown = f"{message}; this is what `--name {other}` starts"
    found = PreflightFinding(kind="doubtful", message=shown, hint=goes_on.removesuffix(", "))
    return replace(spec, name=other), (found,)


def _check(
    spec: RunSpec, machine: LocalMachine, folder: RunFolder, prediction: dict[str, Any], *,
    there: Callable[[str], bool] = lambda _: False,
) -> tuple[PreflightFinding, ...]:  # fmt: skip
    from tonnage.runners.machine import free_disk_gib
    from tonnage.runs.preflight import check_run

    check_clouds(spec.launch.notices)
    _check_data(spec, there)
    findings = check_run(
        spec,
        machine,
        free_disk_gib=free_disk_gib(folder.path),
        weights_gib=_size_gib(spec.weights),
        prediction=prediction,
    )
    refused = [one for one in findings if one.kind == "refused"]
    if refused:
        raise PlanRefused("; ".join(one.message for one in refused), hint=refused[0].hint or None)
    return findings


def _check_data(spec: RunSpec, there: Callable[[str], bool]) -> None:
    """Local files must be there before anything is started; of those that lie at the place only it knows."""
    from glob import glob

    for source in (spec.data.train, spec.data.validation, spec.data.test):
        if source is None or source.format in {"hf", "sql"} or "://" in source.location:
            continue
        if not there(source.location) and not glob(source.location):
            raise InputError(f"no data at {source.location}", hint="correct `run.data` in the workload file")


def _size_gib(weights: str | None) -> float | None:
    if weights is None or "://" in weights or not Path(weights).is_dir():
        return None
    files: Sequence[Path] = [*Path(weights).glob("*.safetensors"), *Path(weights).glob("*.bin")]
    return sum(file.stat().st_size for file in files) / 2**30 if files else None
