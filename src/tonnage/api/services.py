"""Services that run on this machine: listed, shown with what they cost now, ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.api.answers import Answer
from tonnage.errors import DataError, InputError, TonnageError, UnknownName, did_you_mean, nearest
from tonnage.reports.wording import render_money
from tonnage.settings import Settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.service.answer import BreakEven
    from tonnage.serving.running.record import RunningService
    from tonnage.serving.running.report import ServiceShown

PREFIX: Final = "service:"
END_S: Final = 600.0


def find_service(name: str, settings: Settings) -> RunningService | None:
    """The service of a name, written `NAME` or `service:NAME`; None where none of that name has run.

    UnknownName for `service:NAME` of none; DataError where its record cannot be read.
    """
    from tonnage.serving.running.record import read_record

    bare = name.removeprefix(PREFIX)
    found = None if "/" in bare else read_record(settings.home / "services" / bare)
    if found is None and name.startswith(PREFIX):
        known = [one.name for one in services(settings)]
        close = nearest(bare, known)
        raise UnknownName(f"no service is named '{bare}'", suggestions=close,
                          hint=did_you_mean(close, "`tonnage ps` lists services that run"))  # fmt: skip
    return found


def services(settings: Settings) -> Iterator[RunningService]:
    """Services that run, and those whose process is gone without a word."""
    from tonnage.serving.running.record import running_services

    return running_services(settings.home)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceNow:
    """A service as a list has it. `usd_per_hour` None: not known."""

    name: str
    state: str
    url: str
    usd_per_hour: float | None


def services_now(settings: Settings) -> tuple[ServiceNow, ...]:
    """Each service that runs or was killed, with what it said last that it costs. DataError for a record that cannot be
    read."""
    from tonnage.serving.running.record import read_costs

    return tuple(
        ServiceNow(
            name=one.name, state="runs" if one.is_alive else "is gone: its process was killed", url=one.url,
            usd_per_hour=(read_costs(settings.home / "services" / one.name) or {}).get("usd_per_hour"),
        )
        for one in services(settings)
    )  # fmt: skip


def service_lines(settings: Settings) -> tuple[str, ...]:
    """A line for each service that runs or was killed, as `ps` shows them."""
    try:
        found = services_now(settings)
    except DataError as error:  # one that cannot be read hides no run
        return (str(error),)
    lines = []
    for one in found:
        price = "" if one.usd_per_hour is None else f", {render_money(one.usd_per_hour)} an hour"
        lines.append(f"service {one.name} {one.state} at {one.url}{price}; `tonnage show {PREFIX}{one.name}`")
    return tuple(lines)


def show_service(service: RunningService, settings: Settings) -> Answer[ServiceShown]:
    """What a service costs now and since its start, beside its plan and prices per token for what it answers."""
    from tonnage.serving.running.record import read_costs
    from tonnage.serving.running.report import ServiceShown, service_report

    costs = read_costs(settings.home / "services" / service.name)
    shown = ServiceShown(service=service, costs=costs)
    try:
        shown = replace(shown, beside=_beside(service, costs, settings))
    except TonnageError as error:  # a price that is not known takes nothing from the others
        shown = replace(shown, why_no_tokens=str(error))
    return Answer(shown, service_report)


def end_service(service: RunningService, *, at_once: bool, wait: bool) -> Answer[RunningService]:
    """Ask a service to answer what is under way and to end. The fault says where it has not ended in ten minutes."""
    from tonnage.serving.running import record
    from tonnage.serving.running.report import ended_report

    if not service.is_alive:
        raise InputError(
            f"the service '{service.name}' has ended: its process is gone", hint="`tonnage ps` lists what runs"
        )
    ended = record.end_service(service, at_once=at_once, wait_s=END_S if wait else 0.0)
    fault = None
    if wait and not ended:
        fault = InputError(
            f"'{service.name}' still answers after {END_S:.0f} s", hint="`tonnage cancel` ends it at once"
        )
    return Answer(service, ended_report, fault=fault)


def _beside(service: RunningService, costs: dict[str, Any] | None, settings: Settings) -> BreakEven:
    """Prices per token, of requests as long as those it has answered where that is counted, else as the file says."""
    from tonnage.api.economics import breakeven
    from tonnage.api.inputs import load_workload
    from tonnage.service.answer import BreakEven

    if service.workload_file is None:
        raise InputError("no prices: the service was started without a workload file")
    if not Path(service.workload_file).is_file():
        raise InputError(f"no prices: {service.workload_file} is not there any more")
    workload = load_workload(service.workload_file, settings=settings)
    job = workload.service
    seen = (costs or {}).get("since_start") or {}
    requests, inputs, outputs = seen.get("requests"), seen.get("input_tokens"), seen.get("output_tokens")
    if requests and inputs and outputs and job.requests.output_tokens is not None:
        asked = replace(
            job.requests,
            input_tokens=_with_mean(job.requests.input_tokens, inputs / requests),
            output_tokens=_with_mean(job.requests.output_tokens, outputs / requests),
        )
        workload = replace(workload, job=replace(job, requests=asked))
    found = breakeven(workload, settings=settings).found
    if not isinstance(found, BreakEven):
        raise InputError("no prices: the workload is no service")
    if not found.apis:
        raise InputError(
            f"no API of the catalog sells {job.model.name}; `tonnage breakeven --against FILE` takes prices"
        )
    return found


def _with_mean(lengths: Any, mean: float) -> Any:
    """The lengths that were measured: their mean; the longest stays what the file says, or grows to the mean."""
    return replace(lengths, mean=mean, maximum=max(lengths.maximum, round(mean) + 1), points=())
