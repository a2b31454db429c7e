"""Go on with a run: the same folder, the same specification, a new supervisor."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tonnage.api.committing import refuse_over_budget, reserved
from tonnage.api.failover import ANY, first_that_can, leave_place, place_of
from tonnage.api.launching import how, installed_at, overridden, predict_at, runner_for
from tonnage.api.place_prices import price_at
from tonnage.api.placing import executor_at, executor_of, machine_at, refuse_at, settle, submit_at
from tonnage.api.run_prediction import predict_run
from tonnage.errors import InputError, PlanRefused, TonnageError
from tonnage.files import write_whole

if TYPE_CHECKING:
    from tonnage.places.contract import Executor
    from tonnage.runs.folder import RunFolder
    from tonnage.runs.preflight import LocalMachine
    from tonnage.runs.spec import RunSpec
    from tonnage.runs.states import RunState
    from tonnage.settings import Settings


def resume_run(folder: RunFolder, given: dict[str, Any], settings: Settings) -> None:
    """Start it again. InputError where there is nothing to go on with, PlanRefused where a limit is used up."""
    from tonnage.places.file import LOCAL
    from tonnage.runners.machine import look_at_machine
    from tonnage.runs.guards import check_guard
    from tonnage.runs.liveness import has_supervisor, observed_state
    from tonnage.runs.secrets import recall_secrets
    from tonnage.runs.states import RunStatus

    executor, was = executor_of(settings, folder), None
    fault = settle(settings, folder)
    moved = _moved_to(settings, folder, given.get("on"))
    if fault and not moved:
        raise TonnageError(fault, hint="`--on PLACE` goes on elsewhere, from the newest checkpoint that is here")
    if moved:
        _refuse_done(folder, answers=not fault)
        there = executor_at(settings, moved)
        refuse_at(moved, there.check(folder))
        refuse_over_budget(
            settings.home, _asked_of(settings, folder, given, executor, there), folder, _predicted(folder, None)
        )
        leave_place(settings, folder)
        was, executor = executor, there
    here = executor is None or executor.kind == LOCAL
    place: dict[str, Any] = {} if executor is None or here else {"place": executor.name}
    name, state = folder.path.name, observed_state(folder)
    if has_supervisor(folder) or not state.state.ended:
        raise InputError(f"'{name}' is {state.state.value}", hint=f"`tonnage logs -f {name}` follows it")
    if state.state is RunStatus.SUCCEEDED:
        raise InputError(f"'{name}' has succeeded: nothing is left to do", hint=f"`tonnage show {name}`")
    old = folder.spec()
    recall_secrets(old)
    spec = _asked_of(settings, folder, given, was, executor if moved else None)
    check_guard(spec.guard)
    _check_limits(folder, spec)
    _check_disk(folder)
    _check_data(folder, spec)
    machine = look_at_machine() if executor is None or here else machine_at(executor.place)
    _check_machine(spec, machine)
    prediction = None  # it stays as it was
    if how(spec) != how(old):
        prediction = (
            predict_run(spec, machine, settings) if executor is None else predict_at(spec, machine, settings, executor)
        )
    threads = _threads(folder) if prediction is None else prediction.get("threads")
    runner = runner_for(spec, machine, threads, **({} if executor is None else installed_at(executor.place)))
    if executor is not None:
        refuse_at(executor.name, executor.check(folder))
    with reserved(settings.home, spec, folder, _predicted(folder, prediction), resumed=True):
        _record(folder, spec, old, state, prediction, place)
    if executor is None:
        runner.submit(runner.render(spec, folder), folder)
    else:
        submit_at(executor, spec, runner.render(spec, executor.folder_there(folder)), folder)


def _record(
    folder: RunFolder, spec: RunSpec, old: RunSpec, state: RunState, prediction: dict[str, Any] | None,
    place: dict[str, Any],
) -> None:  # fmt: skip
    """Write down what is asked now: limits, retries and processes; what is trained stays as it was."""
    from tonnage.runs.journal import EventKind
    from tonnage.runs.secrets import masked
    from tonnage.runs.spec import dump_spec
    from tonnage.runs.states import RunReason, RunStatus

    if state.state is RunStatus.LOST and folder.state().state is not RunStatus.LOST:
        message = "its supervisor was gone without a last word"
        folder.record(EventKind.LOST, who="cli", reason=RunReason.SUPERVISOR_LOST.value, message=message)
    if spec != old:
        write_whole(folder.spec_file, dump_spec(replace(spec, name=old.name)))
    if prediction is not None:
        write_whole(folder.prediction_file, masked(json.dumps(prediction, indent=2)) + "\n")
    name = folder.path.name
    folder.record(EventKind.SUBMITTED, who="cli", name=name, **how(spec), message="resumed by its user", **place)


def _asked_of(
    settings: Settings, folder: RunFolder, given: dict[str, Any], was: Executor | None, now: Executor | None
) -> RunSpec:  # fmt: skip
    """The run with what its user gives now; at another place (`now`) with its price, unless one is given."""
    spec = overridden(folder.spec(), given)
    if now is None or given.get("usd_per_hour") is not None:
        return spec
    return _repriced(spec, None if was is None else _hour_at(settings, was), _hour_at(settings, now))


def _hour_at(settings: Settings, executor: Executor) -> float | None:
    price = price_at(settings, executor.place)
    return None if price is None else price.usd_per_hour


def _moved_to(settings: Settings, folder: RunFolder, on: str | None) -> str | None:
    """The place that the run goes on at, where that is another one than it was at."""
    if on is None:
        return None
    was = place_of(folder)
    name = first_that_can(settings, folder, last=(was,)) if on == ANY else executor_at(settings, on).name
    return name if name != was else None


def _refuse_done(folder: RunFolder, *, answers: bool) -> None:
    """InputError for a run that works, or has nothing left to do: its place is not left then."""
    from tonnage.runs.liveness import has_supervisor
    from tonnage.runs.states import RunStatus

    name, state = folder.path.name, folder.state().state
    if state is RunStatus.SUCCEEDED:
        raise InputError(f"'{name}' has succeeded: nothing is left to do", hint=f"`tonnage show {name}`")
    if answers and (has_supervisor(folder) or not state.ended):
        raise InputError(
            f"'{name}' is {state.value}", hint=f"`tonnage stop {name}` first: it saves, then goes on elsewhere"
        )


def _repriced(spec: RunSpec, was: float | None, now: float | None) -> RunSpec:
    """The run with the new place's USD an hour, where it had the old one's and not one of its user's."""
    return spec if spec.guard.usd_per_hour != was else replace(spec, guard=replace(spec.guard, usd_per_hour=now))


def _threads(folder: RunFolder) -> int | None:
    """Of each process, as the run began with; None: nothing was predicted, or its file can no longer be read."""
    threads: int | None = _predicted(folder, None).get("threads")
    return threads


def _predicted(folder: RunFolder, made: dict[str, Any] | None) -> dict[str, Any]:
    """What was `made` just now, else what the run began with; empty where its file can no longer be read."""
    if made is not None:
        return made
    try:
        found: dict[str, Any] = json.loads(folder.prediction_file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found


def _check_data(folder: RunFolder, spec: RunSpec) -> None:
    """InputError where there are checkpoints to go on from and the rows are not those the run began with."""
    from tonnage.runs.data_prints import check_prints

    if any(folder.checkpoints.glob("step-*")):
        check_prints(spec.data)


def _check_machine(spec: RunSpec, machine: LocalMachine) -> None:
    """PlanRefused where the machine has not what the run asks for now."""
    from tonnage.runs.preflight import check_run

    found = check_run(spec, machine, free_disk_gib=float("inf"), weights_gib=None, prediction={})
    if refused := [one for one in found if one.kind == "refused"]:
        raise PlanRefused("; ".join(one.message for one in refused), hint=refused[0].hint or None)


def _check_disk(folder: RunFolder) -> None:
    """Refuse before anything is written: a run whose disk is full would be lost half started."""
    from tonnage.runners.machine import LEAST_GIB, free_disk_gib

    free_gib = free_disk_gib(folder.path)
    if free_gib < LEAST_GIB:
        raise PlanRefused(f"{folder.path}: {free_gib * 1024:.1f} MiB are free", hint="make room, then resume it")


def _check_limits(folder: RunFolder, spec: RunSpec) -> None:
    """A limit that is used up would stop the run at once."""
    from tonnage.runs.guards import SpendMeter, breach
    from tonnage.runs.liveness import read_heartbeat

    beat = read_heartbeat(folder)
    if beat is None:
        return
    meter = SpendMeter(held_s=0.0, earlier_s=beat.held_s, earlier_usd=beat.spent_usd or 0.0)
    found = breach(spec.guard, meter, save_s=1.0)
    if found is not None:
        raise PlanRefused(f"the limit is used up: {found.message}", hint="give a larger --max-cost or --max-hours")
