"""What can be read: each address with the verb that answers it. A page, its JSON and its CSV come from one report;
the catalog's pages are searched by a form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tonnage import api
from tonnage.api.catalog_lists import catalog_list
from tonnage.api.place_verbs import places
from tonnage.api.services import find_service, services, show_service
from tonnage.errors import UnknownName, did_you_mean, nearest
from tonnage.reports.environment import settings_report
from tonnage.reports.price_history import history_report
from tonnage.settings import describe_settings
from tonnage.web import gateways, run_pages
from tonnage.web.asked import AskedField, Links, PageRequest, Resource, Shown, file_of
from tonnage.web.compared import compare_files, compared
from tonnage.web.project_files import visible_files
from tonnage.web.run_pages import standing_alerts
from tonnage.web.whatif import changed_workload

HISTORY: Final = ("machine", "provider", "region", "purchase")
KINDS: Final = ("gpus", "instances", "offers", "snapshots", "history")


def _file(asked: PageRequest) -> Path:
    return file_of(asked, visible_files(asked), "workload", "/workloads")


def _workloads(asked: PageRequest) -> Shown:
    from tonnage.web.reports import workloads_report

    asked.refuse_others()
    files = visible_files(asked)
    compare = compare_files(files)
    links = tuple((f"/{'compare' if name in compare else 'plan'}/{name}", name) for name in files)
    return Shown(report=workloads_report(files), links=links)


def _plan(asked: PageRequest) -> Shown:
    rank = asked.query.get("rank", "cost")
    source, sliders = changed_workload(_file(asked), asked.beside("rank", "top"))
    made = api.plan(source, rank=rank, top=asked.count("top", 10, 200), settings=asked.settings)  # type: ignore[arg-type]
    return Shown(report=made.report(), sliders=sliders, links=_others(asked.name, "plan"))


def _size(asked: PageRequest) -> Shown:
    source, sliders = changed_workload(_file(asked), asked.beside("top"))
    made = api.size(source, top=asked.count("top", 30, 500), settings=asked.settings)
    return Shown(report=made.report(), sliders=sliders, links=_others(asked.name, "size"))


def _explain(asked: PageRequest) -> Shown:
    source, sliders = changed_workload(_file(asked), asked.beside("option"))
    made = api.plan(source, settings=asked.settings).explain(asked.query.get("option"))
    return Shown(report=made.report(), sliders=sliders, links=_others(asked.name, "explain"))


def _gains(asked: PageRequest) -> Shown:
    source, sliders = changed_workload(_file(asked), asked.beside())
    return Shown(
        report=api.gains(source, settings=asked.settings).report(), sliders=sliders, links=_others(asked.name, "gains")
    )


def _others(name: str, this: str) -> Links:
    return tuple((f"/{verb}/{name}", verb) for verb in ("plan", "size", "explain", "gains") if verb != this)


def _service(asked: PageRequest) -> Shown:
    asked.refuse_others()
    found = find_service(asked.name, asked.settings)
    if found is None:
        known = [one.name for one in services(asked.settings)]
        hint = did_you_mean(nearest(asked.name, known), "/runs lists services that run")
        raise UnknownName(f"no service is named '{asked.name[:80]}'", hint=hint)
    return Shown(report=show_service(found, asked.settings).report(), live=True)


def _budgets(asked: PageRequest) -> Shown:
    asked.refuse_others()
    answer = api.list_budgets(settings=asked.settings)
    seen = tuple(one for one in answer.found if asked.sees(one.budget.project))
    names = tuple(one.budget.name for one in seen)
    return Shown(report=answer.make_report(seen), live=True, links=tuple((f"/budgets/{name}", name) for name in names))


def _budget(asked: PageRequest) -> Shown:
    asked.refuse_others()
    if asked.who.projects is not None:
        found = {one.budget.name: one.budget for one in api.list_budgets(settings=asked.settings).found}
        if asked.name not in found or not asked.sees(found[asked.name].project):
            raise UnknownName(f"no budget of your projects is named '{asked.name[:80]}'", hint="/budgets lists them")
    report = api.budget_runs(asked.name, settings=asked.settings).report()
    return Shown(report=report, live=True, links=(("/budgets", "budgets"),))


def _places(asked: PageRequest) -> Shown:
    asked.refuse_others()
    return Shown(report=places(settings=asked.settings).report())


def _alerts(asked: PageRequest) -> Shown:
    asked.refuse_others()
    return Shown(report=standing_alerts(asked)[0], live=True)


def _audit(asked: PageRequest) -> Shown:
    asked.refuse_others()
    return Shown(report=api.audit_lines(settings=asked.settings).report())


def _me(asked: PageRequest) -> Shown:
    from tonnage.web.reports import caller_report

    asked.refuse_others()
    return Shown(report=caller_report(asked.who))


def _settings(asked: PageRequest) -> Shown:
    asked.refuse_others()
    return Shown(report=settings_report(tuple(describe_settings(asked.settings)), origin=True))


def catalog(what: str) -> Callable[[PageRequest], Shown]:
    """The page of accelerators, machines or offers."""

    def answer(asked: PageRequest) -> Shown:
        asked.refuse_others("gpu", "provider")
        gpu, provider = asked.query.get("gpu"), asked.query.get("provider")
        fields = [AskedField("gpu", "GPU, as H100:8 or 24GB..80GB", gpu or "")]
        if what != "gpus":
            fields.append(AskedField("provider", "Provider", provider or ""))
        report = catalog_list(what, gpu=gpu or None, provider=provider or None, settings=asked.settings)
        return Shown(report=report, fields=tuple(fields), links=_other_prices(what))

    return answer


def snapshots(asked: PageRequest) -> Shown:
    """The snapshots that there are."""
    asked.refuse_others()
    return Shown(report=api.list_snapshots(settings=asked.settings).report(), links=_other_prices("snapshots"))


def history(asked: PageRequest) -> Shown:
    """What a machine cost in each snapshot; without `machine` the form alone."""
    asked.refuse_others(*HISTORY)
    machine, *narrowed = (asked.query.get(name, "").strip() for name in HISTORY)
    fields = tuple(
        AskedField(name, label, asked.query.get(name, ""))
        for name, label in zip(HISTORY, ("Machine", "Provider", "Region", "Bought as"), strict=True)
    )
    if not machine:
        return Shown(report=history_report("", ()), fields=fields, links=_other_prices("history"))
    providers, regions, purchases = ((one,) if one else () for one in narrowed)
    answer = api.price_history(
        machine, providers=providers, regions=regions, purchases=purchases, settings=asked.settings
    )
    return Shown(report=answer.report(), fields=fields, links=_other_prices("history"))


def _other_prices(this: str) -> tuple[tuple[str, str], ...]:
    return tuple((f"/catalog/{one}", one) for one in KINDS if one != this)


RESOURCES: Final[Sequence[Resource]] = (
    Resource(path="", shared=True, scope="project",
             about="What runs, what it costs now, what needs a person.", answer=run_pages.home, menu="Home"),
    Resource(path="workloads", scope="project",
             about="The workload files of the server's folder.", answer=_workloads, menu="Workloads"),
    Resource(path="plan/{name}", parameters=("rank", "top"), sliders=True, scope="project",
             about="Every way to buy the work, ranked; sliders are parameters.", answer=_plan),
    Resource(path="size/{name}", parameters=("top",), sliders=True, scope="project",
             about="What the work needs, and on which machines it fits.", answer=_size),
    Resource(path="explain/{name}", parameters=("option",), sliders=True, scope="project",
             about="Why the winner won; `option` names another.", answer=_explain),
    Resource(path="compare/{name}", scope="project", about="A compare file; each weight is a parameter.",
             answer=compared),
    Resource(path="gains/{name}", sliders=True, scope="project", about="What promised gains come to for the work.",
             answer=_gains),
    Resource(path="runs", shared=True, scope="project", about="Runs and services.", answer=run_pages.runs, menu="Runs"),
    Resource(path="runs/{name}", scope="project", shared=True, stamp=run_pages.run_stamp,
             about="One run: predicted and measured, loss, events, spend.", answer=run_pages.run),
    Resource(path="runs/{name}/logs", parameters=("lines",), scope="project", shared=True, stamp=run_pages.run_stamp,
             about="The last `lines` that a run printed.", answer=run_pages.logs),
    Resource(path="services/{name}", about="What a service costs now, beside its plan.", answer=_service),
    Resource(path="budgets", shared=True, scope="project",
             about="What teams may spend, and what is left of it.", answer=_budgets, menu="Budgets"),
    Resource(path="budgets/{name}", scope="project",
             about="Who spent a budget: its runs of this period.", answer=_budget),
    Resource(path="gateways", about="The gateway files of the server's folder.", answer=gateways.gateways,
             menu="Gateways"),
    Resource(path="gateways/{name}", parameters=("sort",), about="What a running gateway does now.",
             answer=gateways.gateway),
    Resource(path="gateways/{name}/spend", parameters=("by", "days"),
             about="What a gateway has spent, `by` key, team, route or deployment.",
             answer=gateways.spend),
    Resource(path="catalog/gpus", parameters=("gpu",), scope="none", shared=True, about="Accelerators.",
             answer=catalog("gpus"), menu="Catalog"),
    Resource(path="catalog/instances", parameters=("gpu", "provider"), scope="none",
             about="Machines that one can rent.", answer=catalog("instances")),
    Resource(path="catalog/offers", parameters=("gpu", "provider"), scope="none",
             about="Prices, with the day they were read.", answer=catalog("offers")),
    Resource(path="catalog/snapshots", scope="none", about="Snapshots of the catalog.", answer=snapshots),
    Resource(path="catalog/history", parameters=HISTORY, scope="none",
             about="What a `machine` cost in each snapshot.", answer=history),
    Resource(path="places", about="Where runs can be carried out.", answer=_places, menu="Places"),
    Resource(path="alerts", about="Alerts that stand.", answer=_alerts, menu="Alerts"),
    Resource(path="audit", about="What was done, by whom.", answer=_audit, menu="Audit", role="admin"),
    Resource(path="me", scope="none", about="Who asks, and what that may do.", answer=_me),
    Resource(path="settings", about="Settings, and where each comes from.", answer=_settings, menu="Settings",
             role="admin"),
)  # fmt: skip
