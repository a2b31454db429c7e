"""A service before it starts: what is predicted of it, and each replica's command, complete."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tonnage.calibration.local_inference import BenchedLoad
from tonnage.planning.local_service import LocalService
from tonnage.planning.plan import MachineOption
from tonnage.reports.blocks import Block, Code, Heading, Page, Pairs, Paragraph
from tonnage.reports.local_service import measured_rows, service_blocks, service_document
from tonnage.reports.option_table import render_cost
from tonnage.reports.plain import plain_figure
from tonnage.reports.rendering import Report
from tonnage.reports.wording import (
    render_duration,
    render_interval,
    render_machines,
    render_purchase,
    render_time_interval,
)
from tonnage.serving.engines.engine import EngineCommand, EnginePlace
from tonnage.serving.engines.kserve_file import ClusterReplicas
from tonnage.sizing.estimates import Figure
from tonnage.units import HOURS_PER_MONTH
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedReplica:
    """The command of one replica, as process and in a container, and the option of a plan that it follows.

    None: nothing was planned; the engine has no image. `render` writes the command of another place, `slots` are the
    requests that a replica works on at once (None: its own batcher decides), `devices` the GPUs of each (0: none).
    `cluster_file` writes the file of a cluster; None: the engine has no image.
    """

    option: MachineOption | None
    folder: Path  # of its files and its log, on this machine
    command: EngineCommand
    render: Callable[[EnginePlace], EngineCommand]
    container: EngineCommand | None = None
    slots: int | None = None
    devices: int = 0
    here: LocalService | None = None  # what is predicted of it on this machine, where that was measured
    benches: tuple[BenchedLoad, ...] = ()  # of it on this machine
    cluster_file: Callable[[ClusterReplicas], str] | None = None
    workload_file: Path | None = None
    target: str = ""  # what was asked to be served
    requests_per_month: float | None = None  # at the workload's busy rate
    hours_per_month: float = float(HOURS_PER_MONTH)
    rate_varies: bool = False
    speculates: bool = False  # its engine sends several tokens in one event of a stream
    p95_latency_s: float | None = None  # as the workload promises it


def replica_report(planned: PlannedReplica) -> Report:
    """The plan's figures and the commands; JSON has the command's parts."""
    option, container = planned.option, planned.container
    commands = (("command", planned.command), *(() if container is None else (("container", container),)))
    return Report(
        page=lambda: Page(title=f"Would serve with {planned.command.engine}", blocks=tuple(_blocks(planned))),
        document=lambda: {
            "schema": "tonnage/service@1",
            "engine": planned.command.engine,
            "option": None if option is None else {
                "rank": option.rank, "provider": option.provider, "instance_type": option.instance_type,
                "region": option.region, "count": option.count, "purchase": option.purchase, "layout": option.layout,
            },
            "predicted": {name: plain_figure(figure) for name, figure in predicted(option)} if option else None,
            "here": None if planned.here is None else service_document(planned.here),
            **{name: command.document() for name, command in commands},
        },
        columns=("name", "value"),
        rows=lambda: [[name, command.command_line] for name, command in commands],
    )  # fmt: skip


def predicted(option: MachineOption) -> tuple[tuple[str, Figure], ...]:
    """The figures of the whole fleet by JSON key."""
    run = option.run
    times = (("latency_p95_s", run.latency_p95_s), ("ttft_p95_s", run.ttft_p95_s), ("tpot_p95_s", run.tpot_p95_s))
    figures = (("cost_usd", option.cost_usd), *run.rates, *times, ("memory_gib", run.memory_gib))
    return tuple((name, figure) for name, figure in figures if figure is not None)


def _blocks(planned: PlannedReplica) -> Iterator[Block]:
    if planned.option is not None:
        yield from _prediction(planned.option)
    if planned.here is not None:
        yield Heading(text=f"Predicted on this machine ({planned.here.device})")
        yield from service_blocks(planned.here)
        if planned.benches:
            yield Heading(text="Measured beside it")
            yield Pairs(rows=tuple(measured_rows(planned.here, planned.benches)))
    yield Heading(text="One replica")
    yield Code(lines=(planned.command.command_line,))
    for file in planned.command.files:
        yield Paragraph(text=f"{file.path}:")
        yield Code(lines=tuple(file.text.splitlines()))
    if planned.command.secrets:
        names = ", ".join(planned.command.secrets)
        yield Paragraph(text=f"The key that requests must carry is taken from {names}.", tone="faint")
    if planned.container is not None:
        yield Heading(text="In a container")
        yield Code(lines=(planned.container.command_line,))


def _prediction(option: MachineOption) -> Iterator[Block]:
    run = option.run
    machines, bought = render_machines(option.count, option.instance_type), render_purchase(option.purchase)
    where = f"{machines} of {option.provider}, {bought}"
    yield Pairs(rows=(("machines", where), ("layout", option.layout), ("cost", f"{render_cost(option)} a month")))
    yield Heading(text="Predicted")
    rates = tuple((name.replace("_per_s", "/s").replace("_", " "), render_interval(one)) for name, one in run.rates)
    times = (("p95 latency", run.latency_p95_s), ("p95 time to first token", run.ttft_p95_s),
             ("p95 time per output token", run.tpot_p95_s))  # fmt: skip
    yield Pairs(rows=(*rates, *((name, render_time_interval(figure)) for name, figure in times if figure is not None)))


def served_words(command: EngineCommand, ready_s: float) -> Sequence[str]:
    """The message once a replica takes requests."""
    return (
        f"{command.engine} takes requests at {command.url} after {render_duration(ready_s)}",
        "Ctrl-C ends it; what it is answering then is finished first",
    )


def here_words(planned: PlannedReplica) -> Iterator[str]:
    """The message about the service on this machine once it takes requests; nothing where it was not measured."""
    made = planned.here
    if made is None:
        return
    yield f"predicted here: at most {render_interval(made.saturation_per_s)} texts/s"
    if made.promise_s is not None:
        promised = render_duration(made.promise_s)
        yield f"predicted here: {render_interval(made.holds_per_s)} requests/s inside p95 {promised}"
    yield from (f"{rate}: {words}" for rate, words in measured_rows(made, planned.benches))
