"""What an alert does to a service whose answers are late: the cheapest change that its plan predicts to help."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import InputError, TonnageError
from tonnage.serving.replicas.raised import Raised, clear_raised, read_raised, write_raised
from tonnage.settings import Settings
from tonnage.units import HOURS_PER_MONTH

if TYPE_CHECKING:
    from tonnage.monitoring.actions import ScaleDo
    from tonnage.planning.service_changes import RunningLayout, ServiceChange, ServiceChanges
    from tonnage.serving.running.record import RunningService

HELPED: Final = 0.95  # of the p95 before; a change behind which it is not below this did not help


def scale_service(settings: Settings, name: str, do: ScaleDo) -> str:
    """Make, say or take back the change, and say what it is predicted to do.

    Raises InputError where the service has no balancer, no plan or too few answers, TonnageError where no change is
    predicted to help, the cheapest one cannot be made while the service runs, or an earlier one did not help.
    """
    from tonnage.serving.running.record import read_costs

    folder = settings.home / "services" / name
    raised = read_raised(folder)
    if do == "undo":
        clear_raised(folder)
        asked = raised is not None and not raised.gave_up
        return f"'{name}': its own number of replicas and slots hold again" if asked else f"'{name}': nothing to undo"
    service = _service(settings, name)
    standing = read_costs(folder) or {}
    p95_s = standing.get("p95_s")
    if p95_s is None:
        raise InputError(f"'{name}' has had too few answers in the last minute", hint="its p95 is not known")
    if raised is not None and do == "act":
        _check_helped(name, folder, raised, standing, p95_s)
    words, made = _best_change(settings, service, standing, p95_s)
    if do == "say":
        return words
    slots = made.limit if made.kind == "limit" else None if raised is None else raised.slots
    write_raised(folder, Raised(least=made.replicas, slots=slots, p95_before_s=p95_s))
    return f"{words}; done"


def _best_change(
    settings: Settings, service: RunningService, standing: dict[str, Any], p95_s: float
) -> tuple[str, ServiceChange]:
    """What would help, in words, and the cheapest change of it that can be made while the service runs.

    Raises InputError and TonnageError as `scale_service`.
    """
    now = _running_layout(service, standing)
    found = _found(settings, service, now)
    head = f"'{service.name}' answers {now.rate_per_s:.3g} requests/s with a p95 of {p95_s:.3g} s, promised are "
    head += f"{found.promised_s:g} s"
    if found.enough:
        known = "" if found.now_p95_s is None else f" (p95 {found.now_p95_s.value:.3g} s)"
        raise TonnageError(
            f"{head}; its plan predicts that {now.replicas} replicas keep the promise at this load{known}",
            hint="no change of replicas or batches is predicted to help; look at the device",
        )
    best = found.best
    if best is None:
        raise TonnageError(f"{head}; no change on {now.instance_type} is predicted to keep the promise",
                           hint=f"tonnage plan {service.workload_file} shows other machines")  # fmt: skip
    words = f"{head}; the cheapest change that is predicted to help: {_words(best, found, now)}"
    most = int(standing.get("replicas_most") or 0)
    made = next((one for one in found.changes if one.kind != "layout" and one.replicas <= most), None)
    if made is None:
        hint = f"tonnage serve … --replicas N..{best.replicas}"
        if best.kind == "layout":
            hint = f"`tensor_parallel: {best.tensor_parallel}` in its file, and start it again"
        raise TonnageError(f"{words}; that cannot be done while it runs with at most {most} replicas", hint=hint)
    if made is not best:
        words += f"; without a restart: {_words(made, found, now)}"
    return words, made


def _service(settings: Settings, name: str) -> RunningService:
    from tonnage.serving.running.record import running_services

    found = next((one for one in running_services(settings.home) if one.name == name and one.is_alive), None)
    if found is None:
        raise InputError(f"no service named '{name}' runs here", hint="`tonnage ps` lists services")
    if found.replicas is None:
        raise InputError(f"'{name}' has no replicas behind a balancer", hint="tonnage serve … --replicas 1..4")
    if found.planned is None or found.workload_file is None:
        raise InputError(f"'{name}' was not planned", hint="tonnage serve FILE.tonnage.yaml --model … --replicas 1..4")
    return found


def _check_helped(name: str, folder: Path, raised: Any, standing: dict[str, Any], p95_s: float) -> None:
    """TonnageError where the change of before did not help, which is then taken back, or still comes about."""
    if raised.gave_up:
        raise TonnageError(f"'{name}': an earlier change did not help; none is tried again until the alert ends",
                           hint="tonnage explain its file, and look at the device")  # fmt: skip
    if int(standing.get("replicas_ready") or 0) < raised.least:
        raise TonnageError(f"'{name}': {raised.least} replicas were asked for, and they are not all ready yet",
                           hint=f"the logs of its replicas: {folder}")  # fmt: skip
    if raised.p95_before_s is not None and p95_s > HELPED * raised.p95_before_s:
        write_raised(folder, Raised(gave_up=True))
        raise TonnageError(
            f"'{name}': {raised.least} replicas did not help (p95 {raised.p95_before_s:.3g} s before, {p95_s:.3g} s "
            "with them): taken back, and not tried again until the alert ends",
            hint="tonnage explain its file, and look at the device",
        )


def _running_layout(service: RunningService, standing: dict[str, Any]) -> RunningLayout:
    from tonnage.planning.service_changes import RunningLayout

    planned, rate = service.planned, (standing.get("now") or {}).get("requests_per_s")
    assert planned is not None  # _service has seen to it
    replicas, slots = standing.get("replicas_ready"), standing.get("slots")
    if not rate or not replicas or not slots:
        raise InputError(f"'{service.name}' has not yet said what it answers", hint="its figures are a minute's")
    return RunningLayout(
        provider=planned.provider, instance_type=planned.instance_type, replicas=int(replicas),
        replicas_per_machine=service.replicas_per_machine or int(replicas), rate_per_s=float(rate),
        tensor_parallel=planned.tensor_parallel, limit=min(planned.concurrency or int(slots), int(slots)),
        usd_per_machine_hour=service.usd_per_machine_hour,
    )  # fmt: skip


def _found(settings: Settings, service: RunningService, now: RunningLayout) -> ServiceChanges:
    from tonnage.api.catalogs import market_of
    from tonnage.api.inputs import calibrated_model_of, load_workload
    from tonnage.planning.planner import rank_options
    from tonnage.planning.service_changes import helpful_changes

    market = market_of(None, settings)
    assert service.workload_file is not None  # _service has seen to it
    planner = partial(
        rank_options, objective="cost", calibrated=calibrated_model_of(None, None, settings),
        max_price_age_days=settings.max_price_age_days,
    )  # fmt: skip
    workload = load_workload(service.workload_file, catalog=market, settings=settings)
    return helpful_changes(workload, market, now, planner)


def _words(best: ServiceChange, found: ServiceChanges, now: RunningLayout) -> str:
    made = {
        "replicas": f"{best.replicas} replicas in place of {now.replicas}",
        "limit": f"at most {best.limit} requests at a time for each replica in place of {now.limit}",
        "layout": f"{best.replicas} replicas of {best.tensor_parallel} devices each",
    }[best.kind]
    if found.now_p95_s is None:
        before = "beyond what they carry" if found.has_queue else "not predicted (an encoder's plan has no queue)"
    else:
        before = f"{found.now_p95_s.value:.3g} s"
    cost = "no price is known"
    if found.now_usd_per_hour is not None and best.usd_per_hour is not None:
        a, b = found.now_usd_per_hour * HOURS_PER_MONTH, best.usd_per_hour * HOURS_PER_MONTH
        cost = f"machines {a:,.0f} -> {b:,.0f} USD a month"
    return f"{made}: predicted p95 {before} -> {best.p95_s.value:.3g} s; {cost}"
