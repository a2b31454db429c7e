"""What can be read: each address with the verb that answers it. A page, its JSON and its CSV come from one report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import UnknownName, did_you_mean, nearest
from tonnage.web import gateways, prices
from tonnage.web.asked import Links, PageRequest, Resource, Shown, file_of, workload_files
from tonnage.web.compared import compare_files, compared
from tonnage.web.whatif import changed_workload

if TYPE_CHECKING:
    from tonnage.reports.rendering import Report
    from tonnage.settings import Settings


def _file(asked: PageRequest) -> Path:
    return file_of(asked, workload_files(asked.folder), "workload", "/workloads")


def _home(asked: PageRequest) -> Shown:
    from tonnage.api.home_runs import all_runs
    from tonnage.api.run_listing import run_listing
    from tonnage.api.services import service_lines
    from tonnage.runs.states import RunStatus
    from tonnage.web.reports import home_report

    asked.refuse_others()
    runs = list(all_runs(asked.settings))
    listed = run_listing(runs, title="Runs", every=False, services=service_lines(asked.settings))
    under_way = [
        run.path.name for run in runs if not (state := run.state()).state.ended or state.state is RunStatus.LOST
    ]
    alerts, standing = _standing(asked.settings)
    return Shown(
        report=home_report(listed, alerts, len(under_way), standing), live=True,
        links=tuple((f"/runs/{name}", name) for name in under_way),
    )  # fmt: skip


def _workloads(asked: PageRequest) -> Shown:
    from tonnage.web.reports import workloads_report

    asked.refuse_others()
    files = workload_files(asked.folder)
    compare = compare_files(asked.folder)
    links = tuple((f"/{'compare' if name in compare else 'plan'}/{name}", name) for name in files)
    return Shown(report=workloads_report(files), links=links)


def _plan(asked: PageRequest) -> Shown:
    from tonnage import api

    rank = asked.query.get("rank", "cost")
    source, sliders = changed_workload(_file(asked), asked.beside("rank", "top"))
    made = api.plan(source, rank=rank, top=asked.count("top", 10, 200), settings=asked.settings)  # type: ignore[arg-type]
    return Shown(report=made.report(), sliders=sliders, links=_others(asked.name, "plan"))


def _size(asked: PageRequest) -> Shown:
    from tonnage import api

    source, sliders = changed_workload(_file(asked), asked.beside("top"))
    made = api.size(source, top=asked.count("top", 30, 500), settings=asked.settings)
    return Shown(report=made.report(), sliders=sliders, links=_others(asked.name, "size"))


def _explain(asked: PageRequest) -> Shown:
    from tonnage import api

    source, sliders = changed_workload(_file(asked), asked.beside("option"))
    made = api.plan(source, settings=asked.settings).explain(asked.query.get("option"))
    return Shown(report=made.report(), sliders=sliders, links=_others(asked.name, "explain"))


def _gains(asked: PageRequest) -> Shown:
    from tonnage import api

    source, sliders = changed_workload(_file(asked), asked.beside())
    return Shown(
        report=api.gains(source, settings=asked.settings).report(), sliders=sliders, links=_others(asked.name, "gains")
    )


def _others(name: str, this: str) -> Links:
    return tuple((f"/{verb}/{name}", verb) for verb in ("plan", "size", "explain", "gains") if verb != this)


def _runs(asked: PageRequest) -> Shown:
    from tonnage.api.home_runs import all_runs
    from tonnage.api.run_listing import run_listing
    from tonnage.api.services import service_lines

    asked.refuse_others()
    runs = list(all_runs(asked.settings))
    report = run_listing(runs, title="Runs", services=service_lines(asked.settings))
    return Shown(report=report, live=True, links=tuple((f"/runs/{run.path.name}", run.path.name) for run in runs))


def _run(asked: PageRequest) -> Shown:
    from tonnage import api

    asked.refuse_others()
    found = api.show(asked.name, settings=asked.settings)
    return Shown(
        report=found.report(), live=True, acts=_acts(asked),
        links=((f"/runs/{asked.name}/logs", "logs"),),
    )  # fmt: skip


def _acts(asked: PageRequest) -> Links:
    """What may be asked of a run as it is now."""
    from tonnage.api.home_runs import find_run
    from tonnage.runs.liveness import observed_state
    from tonnage.runs.states import RunStatus

    state = observed_state(find_run(asked.settings, asked.name)).state
    acts: Links = (("stop", "Save and stop"), ("cancel", "End at once"))
    if state is RunStatus.SUCCEEDED:
        acts = ()
    elif state.ended or state is RunStatus.LOST:
        acts = (("resume", "Go on with it"),)
    return tuple((f"/api/v1/runs/{asked.name}/{act}", said) for act, said in acts)


def _logs(asked: PageRequest) -> Shown:
    from tonnage.api.home_runs import find_run
    from tonnage.web.reports import logs_report

    asked.refuse_others("lines")
    folder = find_run(asked.settings, asked.name)
    lines = asked.count("lines", 200, 5000)
    return Shown(report=logs_report(folder, lines), live=True, links=((f"/runs/{asked.name}", asked.name),))


def _service(asked: PageRequest) -> Shown:
    from tonnage.api.services import find_service, services, show_service

    asked.refuse_others()
    found = find_service(asked.name, asked.settings)
    if found is None:
        known = [one.name for one in services(asked.settings)]
        hint = did_you_mean(nearest(asked.name, known), "/runs lists services that run")
        raise UnknownName(f"no service is named '{asked.name[:80]}'", hint=hint)
    return Shown(report=show_service(found, asked.settings).report(), live=True)


def _budgets(asked: PageRequest) -> Shown:
    from tonnage import api

    asked.refuse_others()
    answer = api.list_budgets(settings=asked.settings)
    names = tuple(one.budget.name for one in answer.found)
    return Shown(report=answer.report(), live=True, links=tuple((f"/budgets/{name}", name) for name in names))


def _budget(asked: PageRequest) -> Shown:
    from tonnage import api

    asked.refuse_others()
    report = api.budget_runs(asked.name, settings=asked.settings).report()
    return Shown(report=report, live=True, links=(("/budgets", "budgets"),))


def _places(asked: PageRequest) -> Shown:
    from tonnage.api.places import places

    asked.refuse_others()
    return Shown(report=places(settings=asked.settings).report())


def _alerts(asked: PageRequest) -> Shown:
    asked.refuse_others()
    return Shown(report=_standing(asked.settings)[0], live=True)


def _standing(settings: Settings) -> tuple[Report, int]:
    """Alerts that are pending or fire, and how many; where no watch has run there are none, and the page says so."""
    from tonnage import api
    from tonnage.api.watch import watch_folder
    from tonnage.web.reports import no_watch_report

    if not (watch_folder(settings) / "state.json").exists():
        return no_watch_report(), 0
    found = api.watch_status(settings=settings)
    return found.report(), len(found.found)


def _audit(asked: PageRequest) -> Shown:
    from tonnage import api

    asked.refuse_others()
    return Shown(report=api.audit_lines(settings=asked.settings).report())


def _settings(asked: PageRequest) -> Shown:
    from tonnage.reports.environment import settings_report
    from tonnage.settings import describe_settings

    asked.refuse_others()
    return Shown(report=settings_report(tuple(describe_settings(asked.settings)), origin=True))


RESOURCES: Final[Sequence[Resource]] = (
    Resource(path="", about="What runs, what it costs now, what needs a person.", answer=_home, menu="Home"),
    Resource(path="workloads", about="The workload files of the server's folder.", answer=_workloads, menu="Workloads"),
    Resource(path="plan/{name}", about="Every way to buy the work, ranked; sliders are parameters.", answer=_plan),
    Resource(path="size/{name}", about="What the work needs, and on which machines it fits.", answer=_size),
    Resource(path="explain/{name}", about="Why the winner won; `option` names another.", answer=_explain),
    Resource(path="compare/{name}", about="A compare file; each weight is a parameter.", answer=compared),
    Resource(path="gains/{name}", about="What promised gains come to for the work.", answer=_gains),
    Resource(path="runs", about="Runs and services.", answer=_runs, menu="Runs"),
    Resource(path="runs/{name}", about="One run: predicted and measured, loss, events, spend.", answer=_run),
    Resource(path="runs/{name}/logs", about="The last `lines` that a run printed.", answer=_logs),
    Resource(path="services/{name}", about="What a service costs now, beside its plan.", answer=_service),
    Resource(path="budgets", about="What teams may spend, and what is left of it.", answer=_budgets, menu="Budgets"),
    Resource(path="budgets/{name}", about="Who spent a budget: its runs of this period.", answer=_budget),
    Resource(path="gateways", about="The gateway files of the server's folder.", answer=gateways.gateways,
             menu="Gateways"),
    Resource(path="gateways/{name}", about="What a running gateway does now.", answer=gateways.gateway),
    Resource(path="gateways/{name}/spend", about="What a gateway has spent, `by` key, team, route or deployment.",
             answer=gateways.spend),
    Resource(path="catalog/gpus", about="Accelerators.", answer=prices.catalog("gpus"), menu="Catalog"),
    Resource(path="catalog/instances", about="Machines that one can rent.", answer=prices.catalog("instances")),
    Resource(path="catalog/offers", about="Prices, with the day they were read.", answer=prices.catalog("offers")),
    Resource(path="catalog/snapshots", about="Snapshots of the catalog.", answer=prices.snapshots),
    Resource(path="catalog/history", about="What a `machine` cost in each snapshot.", answer=prices.history),
    Resource(path="places", about="Where runs can be carried out.", answer=_places, menu="Places"),
    Resource(path="alerts", about="Alerts that stand.", answer=_alerts, menu="Alerts"),
    Resource(path="audit", about="What was done, by whom.", answer=_audit, menu="Audit", role="admin"),
    Resource(path="settings", about="Settings, and where each comes from.", answer=_settings, menu="Settings",
             role="admin"),
)  # fmt: skip


def listed(document: Mapping[str, Any]) -> str | None:
    """The key of the longest list of a document, which `limit` and `offset` cut."""
    lists = [(len(value), key) for key, value in document.items() if isinstance(value, list)]
    return max(lists)[1] if lists else None
