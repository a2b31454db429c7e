"""Pages of runs: home, the list, one run, its log; each asker sees those of the projects that are theirs."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage import api
from tonnage.api.home_runs import all_runs, find_run
from tonnage.api.run_listing import run_listing
from tonnage.api.services import services_now
from tonnage.api.watch import watch_folder
from tonnage.errors import DataError, InputError, UnknownName, did_you_mean, nearest
from tonnage.runs.liveness import heartbeat_file, observed_state
from tonnage.runs.states import RunStatus
from tonnage.web.asked import Links, PageRequest, Shown

if TYPE_CHECKING:
    from tonnage.api.services import ServiceNow
    from tonnage.reports.rendering import Report
    from tonnage.runs.folder import RunFolder


def home(asked: PageRequest) -> Shown:
    from tonnage.web.reports import home_report

    asked.refuse_others()
    runs = visible_runs(asked)
    listed = run_listing(runs, title="Runs", every=False)
    under_way = [
        run.path.name for run in runs if not (state := run.state()).state.ended or state.state is RunStatus.LOST
    ]
    alerts, standing = standing_alerts(asked)
    running, fault = _services(asked)
    return Shown(
        report=home_report(listed, running, fault, alerts, len(under_way), standing), live=True,
        links=(*((f"/runs/{name}", name) for name in under_way), *_service_links(running)),
    )  # fmt: skip


def runs(asked: PageRequest) -> Shown:
    from tonnage.web.reports import with_services

    asked.refuse_others()
    found = visible_runs(asked)
    running, fault = _services(asked)
    report = with_services(run_listing(found, title="Runs"), running, fault)
    links = tuple((f"/runs/{run.path.name}", run.path.name) for run in found)
    return Shown(report=report, live=True, links=(*links, *_service_links(running)))


def _services(asked: PageRequest) -> tuple[tuple[ServiceNow, ...], str]:
    """The services that the asker may see, which are of every project; and why they cannot be read, where they cannot:
    one record hides no run."""
    if asked.who.projects is not None:
        return (), ""
    try:
        return services_now(asked.settings), ""
    except DataError as error:
        return (), str(error)


def _service_links(found: tuple[ServiceNow, ...]) -> Links:
    return tuple((f"/services/{one.name}", one.name) for one in found)


def run(asked: PageRequest) -> Shown:
    asked.refuse_others()
    folder = visible_run(asked)
    found = api.show(asked.name, settings=asked.settings)
    return Shown(
        report=found.report(), live=True, acts=_acts(asked, folder),
        links=((f"/runs/{asked.name}/logs", "logs"),),
    )  # fmt: skip


def run_stamp(asked: PageRequest) -> Hashable:
    """Sizes and times of the files that a run's page and log are read from. UnknownName as `visible_run`."""
    folder = visible_run(asked)
    files = (
        folder.spec_file, folder.journal_file, folder.metrics_file, folder.samples_file, folder.log_file,
        folder.prediction_file, folder.result_file, heartbeat_file(folder),
    )  # fmt: skip
    return tuple(_stamp(one) for one in files)


def _stamp(file: Path) -> tuple[int, int]:
    try:
        found = file.stat()
    except OSError:  # it is not there, or may not be read: reading it says which
        return 0, 0
    return found.st_mtime_ns, found.st_size


def _acts(asked: PageRequest, folder: RunFolder) -> Links:
    """What may be asked of a run as it is now."""
    state = observed_state(folder).state
    acts: Links = (("stop", "Save and stop"), ("cancel", "End at once"))
    if state is RunStatus.SUCCEEDED:
        acts = ()
    elif state.ended or state is RunStatus.LOST:
        acts = (("resume", "Go on with it"),)
    return tuple((f"/api/v1/runs/{asked.name}/{act}", said) for act, said in acts)


def logs(asked: PageRequest) -> Shown:
    from tonnage.web.reports import logs_report

    asked.refuse_others("lines")
    folder = visible_run(asked)
    lines = asked.count("lines", 200, 5000)
    return Shown(report=logs_report(folder, lines), live=True, links=((f"/runs/{asked.name}", asked.name),))


def standing_alerts(asked: PageRequest) -> tuple[Report, int]:
    """Alerts that are pending or fire, and how many; where no watch has run there are none, and the page says so."""
    from tonnage.web.reports import no_watch_report

    if asked.who.projects is not None:
        return no_watch_report("Alerts are of every project: a key of all projects sees them."), 0
    if not (watch_folder(asked.settings) / "state.json").exists():
        return no_watch_report("No watch has run here, so there are no alerts: `tonnage watch` looks for them."), 0
    found = api.watch_status(settings=asked.settings)
    return found.report(), len(found.found)


def visible_runs(asked: PageRequest) -> list[RunFolder]:
    """The runs that the asker may see; of one whose file cannot be read the project is not known."""
    if asked.who.projects is None:
        return list(all_runs(asked.settings))
    found = []
    for run in all_runs(asked.settings):
        try:
            project = run.spec().charge.project
        except (InputError, OSError):
            continue
        if asked.sees(project):
            found.append(run)
    return found


def visible_run(asked: PageRequest) -> RunFolder:
    """The run that the address names. UnknownName also where it is of a project that the asker may not see."""
    if asked.who.projects is None:
        return find_run(asked.settings, asked.name)
    try:
        found = find_run(asked.settings, asked.name)
        if asked.sees(found.spec().charge.project):
            return found
    except (UnknownName, InputError, OSError):  # it is answered as one that is not there
        pass
    hint = did_you_mean(nearest(asked.name, [one.path.name for one in visible_runs(asked)]), "/runs lists them")
    raise UnknownName(f"no run of your projects is named '{asked.name[:80]}'", hint=hint)
