"""What can be read: each address with the verb that answers it. A page, its JSON and its CSV come from one report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import InputError, UnknownName, did_you_mean, nearest
from tonnage.values import dataclass
from tonnage.web.keys import Role
from tonnage.web.whatif import Chosen, changed_workload

if TYPE_CHECKING:
    from tonnage.reports.rendering import Report
    from tonnage.settings import Settings

SUFFIX: Final = ".tonnage.yaml"
MOST_ROWS: Final = 1000
Links = tuple[tuple[str, str], ...]  # address, words


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """One request: the path's name, the query, the settings of the server and the folder of its workload files."""

    name: str
    query: Mapping[str, str]
    settings: Settings
    folder: Path

    def count(self, key: str, default: int, most: int) -> int:
        """A whole number of the query. Raises InputError."""
        text = self.query.get(key)
        if text is None:
            return default
        if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= most:
            raise InputError(f"{key}: found '{text[:40]}', expected a whole number from 1 to {most}")
        return int(text)

    def beside(self, *known: str) -> dict[str, str]:
        """The query without these keys and without those that every address takes."""
        return {key: value for key, value in self.query.items() if key not in (*known, *EVERYWHERE)}

    def refuse_others(self, *known: str) -> None:
        """InputError for a key that the address does not take."""
        for key in self.beside(*known):
            hint = did_you_mean(nearest(key, known), f"known: {', '.join(known) or 'none'}")
            raise InputError(f"'{key[:40]}' is no parameter here", hint=hint)


EVERYWHERE: Final = ("limit", "offset", "fragment")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What an address answers: the report, further addresses, and the sliders of a what-if. `live`: the page is asked
    for again while it is open. `acts`: what may be asked of the thing shown (address, words)."""

    report: Report
    links: Links = ()
    sliders: tuple[Chosen, ...] = ()
    live: bool = False
    acts: Links = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """An address below `/` and `/api/v1/`; a name in braces is a part of it. `menu`: its word in the menu."""

    path: str
    about: str
    answer: Callable[[PageRequest], Shown]
    menu: str = ""
    role: Role = "viewer"


def workload_files(folder: Path) -> dict[str, Path]:
    """Workload files of the folder and those right below, by the name that addresses take."""
    found = [*folder.glob(f"*{SUFFIX}"), *folder.glob(f"*/*{SUFFIX}")]
    names = {path: path.relative_to(folder).as_posix().removesuffix(SUFFIX).replace("/", "~") for path in found}
    return {name: path for path, name in sorted(names.items(), key=lambda one: one[1]) if path.is_file()}


def _file(asked: PageRequest) -> Path:
    files = workload_files(asked.folder)
    if asked.name not in files:
        hint = did_you_mean(nearest(asked.name, files), "/workloads lists them")
        raise UnknownName(f"no workload is named '{asked.name[:80]}'", hint=hint)
    return files[asked.name]


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
    return Shown(report=workloads_report(files), links=tuple((f"/plan/{name}", name) for name in files))


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
    acts = (("stop", "Save and stop"), ("cancel", "End at once"))
    return Shown(
        report=found.report(), live=True, acts=tuple((f"/api/v1/runs/{asked.name}/{act}", said) for act, said in acts),
        links=((f"/runs/{asked.name}/logs", "logs"),),
    )  # fmt: skip


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


def _catalog(what: str) -> Callable[[PageRequest], Shown]:
    def answer(asked: PageRequest) -> Shown:
        from tonnage.api.inputs import load_catalog
        from tonnage.catalog import filter_accelerators, filter_instance_types, filter_offers, parse_gpu_filter
        from tonnage.reports.catalog_lists import gpus_report, instances_report, offers_report

        asked.refuse_others("gpu", "provider")
        known = load_catalog(settings=asked.settings)
        text, provider = asked.query.get("gpu"), asked.query.get("provider")
        gpu = None if not text else parse_gpu_filter(text)
        providers = (provider,) if provider else ()
        if what == "gpus":
            report = gpus_report(known, filter_accelerators(known, gpu=gpu), top=MOST_ROWS)
        elif what == "instances":
            found = filter_instance_types(known, gpu=gpu, providers=providers)
            report = instances_report(known, found, top=MOST_ROWS)
        else:
            report = offers_report(known, filter_offers(known, gpu=gpu, providers=providers), top=MOST_ROWS)
        kinds = ("gpus", "instances", "offers")
        return Shown(report=report, links=tuple((f"/catalog/{one}", one) for one in kinds if one != what))

    return answer


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
    Resource(path="gains/{name}", about="What promised gains come to for the work.", answer=_gains),
    Resource(path="runs", about="Runs and services.", answer=_runs, menu="Runs"),
    Resource(path="runs/{name}", about="One run: predicted and measured, loss, events, spend.", answer=_run),
    Resource(path="runs/{name}/logs", about="The last `lines` that a run printed.", answer=_logs),
    Resource(path="services/{name}", about="What a service costs now, beside its plan.", answer=_service),
    Resource(path="catalog/gpus", about="Accelerators.", answer=_catalog("gpus"), menu="Catalog"),
    Resource(path="catalog/instances", about="Machines that one can rent.", answer=_catalog("instances")),
    Resource(path="catalog/offers", about="Prices, with the day they were read.", answer=_catalog("offers")),
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
