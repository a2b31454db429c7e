"""A replica started here, alone or several behind a balancer: `tonnage.serve`, and the service of a batch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.api.charging import Leased, charge_of, leased
from tonnage.api.interrupting import terminations_interrupt
from tonnage.api.service_updates import VersionUpdates, read_smoke_test
from tonnage.api.serving import ServeOptions, planned_replica, slots_of
from tonnage.errors import InputError, PlanRefused

if TYPE_CHECKING:
    from tonnage.runs.preflight import LocalMachine
    from tonnage.scaling.service import WeekSchedule
    from tonnage.serving.engines.devices import Device
    from tonnage.serving.engines.processes import EngineProcess
    from tonnage.serving.report import PlannedReplica
    from tonnage.serving.running.record import Ends, RunningService
    from tonnage.settings import Settings
    from tonnage.sizing.estimates import Figure

DRAIN_S: Final = 60.0
WATCH_S: Final = 0.5
METER_S: Final = 5.0


def serve(
    planned: PlannedReplica,
    options: ServeOptions | None = None,
    *,
    say: Callable[[str], None] | None = None,
) -> int:
    """Start the replica here and stay until it ends or SIGINT or SIGTERM comes; it then finishes what it answers.

    Returns the engine's exit code. Raises PlanRefused where this machine has not the GPUs of a replica, InputError or
    TonnageError where the engine does not start.
    """
    from tonnage.runners.machine import look_at_machine
    from tonnage.serving.running.record import recorded

    asked, tell = options or ServeOptions(), say or (lambda _: None)
    if asked.on == "ray":
        _serve_on_ray(planned, asked, tell)
        return 0
    if asked.replicas is not None:
        serve_replicated(planned, asked, tell)
        return 0
    machine = look_at_machine()
    _check_machine(planned, machine)
    if planned.option is not None and planned.option.gpu is not None and not machine.gpus:
        tell(f"planned for {planned.option.gpu}: on this machine's cores the predicted figures do not hold")
    service = _running_service(planned, asked)
    with (
        recorded(planned.folder, service),
        leased(planned.folder.parents[1], service.name, charge_of(asked), _most_usd_per_hour(service), tell) as lease,
        terminations_interrupt(),
    ):
        return _serve_one(planned, service, asked, tell, lease)


def _most_usd_per_hour(service: RunningService) -> float | None:
    """Of all machines that it may hold at a time."""
    if service.usd_per_machine_hour is None:
        return None
    most, each = 1 if service.replicas is None else service.replicas[1], service.replicas_per_machine
    return service.usd_per_machine_hour * (1 if each is None else math.ceil(most / each))


def _serve_one(
    planned: PlannedReplica, service: RunningService, asked: ServeOptions, tell: Callable[[str], None], lease: Leased
) -> int:
    from tonnage.serving.engines.processes import start_engine, stop_engine, wait_ready
    from tonnage.serving.report import here_words, served_words

    running = start_engine(planned.command, planned.folder)
    tell(f"starting {planned.command.engine}; its log: {running.log_file}")
    ready = False
    try:
        ready_s = wait_ready(running, timeout_s=asked.ready_timeout_s)
        ready = True
        for line in (*served_words(planned.command, ready_s), *here_words(planned)):
            tell(line)
        if not _stay(running, service, planned.folder, lease):
            _finish(running, tell)
            raise PlanRefused("a hard budget is at its limit: the service has ended", hint="tonnage budgets list")
    except KeyboardInterrupt:
        if not ready:
            raise
        _finish(running, tell)
        return 0
    finally:
        stop_engine(running, grace_s=DRAIN_S if ready else 0.0)
    return running.process.wait()


def _stay(running: EngineProcess, service: RunningService, folder: Path, lease: Leased) -> bool:
    """Until the engine ends; what it costs is written down on the way. False: its budget has no more for it."""
    from tonnage.serving.engines.processes import read_counts
    from tonnage.serving.running.meter import CostMeter, ServiceCounts
    from tonnage.serving.running.record import write_costs

    meter = CostMeter(
        usd_per_machine_hour=service.usd_per_machine_hour, replicas_per_machine=service.replicas_per_machine
    )
    counts, due = ServiceCounts(), 0.0
    while running.process.poll() is None:
        if time.monotonic() >= due:
            due = time.monotonic() + METER_S
            counts = read_counts(running) or counts
            meter.tick(time.monotonic(), replicas=1, counts=counts)
            with suppress(OSError):  # a full disk ends no service
                write_costs(folder, meter.document())
            if not lease.tick(None if meter.whole is None else meter.whole.usd):
                return False
        time.sleep(WATCH_S)
    return True


def _running_service(planned: PlannedReplica, asked: ServeOptions) -> RunningService:
    """The record of the service that this process is about to be."""
    from tonnage.serving.running.record import PlannedCost, RunningService, this_process

    option, cost = planned.option, None
    layout = {} if option is None else dict(option.run.layout_fields)
    if option is not None and planned.requests_per_month is not None:
        run = option.run
        cost = PlannedCost(
            rank=option.rank, provider=option.provider, instance_type=option.instance_type, machines=option.count,
            usd_per_month=option.cost_usd.value, low_usd_per_month=option.cost_usd.low,
            high_usd_per_month=option.cost_usd.high, requests_per_month=planned.requests_per_month,
            hours_per_month=planned.hours_per_month, rate_varies=planned.rate_varies,
            p95_latency_s=planned.p95_latency_s, tensor_parallel=int(layout.get("tensor_parallel", 1)),
            concurrency=int(layout["concurrency"]) if "concurrency" in layout else None,
            predicted_p95_s=_ends(run.latency_p95_s), predicted_ttft_p95_s=_ends(run.ttft_p95_s),
            predicted_tpot_p95_s=_ends(run.tpot_p95_s),
        )  # fmt: skip
    price, price_from, each = asked.usd_per_hour, "--usd-per-hour", None
    if price is None and option is not None:  # the planned machine's, as if each that the plan has held its replicas
        price, price_from = option.usd_per_instance_hour, f"the plan's {option.instance_type} at {option.provider}"
        each = int(layout.get("replicas_per_node", 1))
    pid, began = this_process()
    return RunningService(
        name=planned.folder.name, engine=planned.command.engine, url=f"http://{asked.host}:{asked.port}", pid=pid,
        process_started_at=began, started_at=datetime.now(UTC), replicas=asked.replicas, usd_per_machine_hour=price,
        price_from="" if price is None else price_from, planned=cost,
        replicas_per_machine=each,
        workload_file=None if planned.workload_file is None else str(planned.workload_file),
    )  # fmt: skip


def _ends(figure: Figure | None) -> Ends | None:
    return None if figure is None else (figure.value, figure.low, figure.high)


def _serve_on_ray(planned: PlannedReplica, asked: ServeOptions, tell: Callable[[str], None]) -> None:
    from tonnage.serving.encoder.on_ray import RayReplicas, serve_on_ray
    from tonnage.serving.encoder.service import parse_service

    if planned.command.engine != "encoder":
        raise InputError(f"replicas of {planned.command.engine} are not started on Ray", hint="--on ray is of encoders")
    least, most = asked.replicas or (1, 1)
    gpus = 1 if planned.option is not None and planned.option.gpu else 0
    replicas = RayReplicas(least=least, most=most, slots=slots_of(planned, asked), gpus=gpus)
    serve_on_ray(parse_service(planned.command.files[0].text), replicas, tell)


@contextmanager
def served_here(target: Path | str, options: ServeOptions, *, settings: Settings | None = None) -> Iterator[str]:
    """The URL of a replica on a free port of this machine, which ends with the block. Raises as `serve` does."""
    from tonnage.runners.machine import look_at_machine
    from tonnage.serving.engines.processes import drain_engine, start_engine, stop_engine, wait_ready
    from tonnage.serving.replicas.replica import free_port

    here = replace(options, port=free_port(options.host))
    planned = planned_replica(target, here, settings=settings).checked()
    _check_machine(planned, look_at_machine())
    running = start_engine(planned.command, planned.folder)
    try:
        wait_ready(running, timeout_s=options.ready_timeout_s)
        yield planned.command.url
        if not planned.command.drains:
            drain_engine(running, timeout_s=DRAIN_S)
    finally:
        stop_engine(running)


def serve_replicated(planned: PlannedReplica, asked: ServeOptions, tell: Callable[[str], None]) -> None:
    """Serve with replicas behind a balancer until SIGINT or SIGTERM; SIGHUP replaces all replicas, one by one.

    Each replica gets GPUs of its own. Raises PlanRefused where there are too few.
    """
    from tonnage.scaling.service import ScaledService
    from tonnage.serving.engines.engine import EngineCommand, EnginePlace
    from tonnage.serving.replicas.service import ReplicatedService, Service, run_service
    from tonnage.serving.running.record import recorded, write_costs

    least, most = asked.replicas or (1, 1)
    record = _running_service(planned, asked)
    scaled = ScaledService(
        slots=slots_of(planned, asked), start_up_s=asked.start_up_s, promise_s=asked.promise_s, least=least,
        most=most, to_zero_after_s=asked.to_zero_after_s,
    )  # fmt: skip
    service = ReplicatedService(
        scaled=scaled, host=asked.host, port=asked.port, most_waiting=asked.queue, prefix_bytes=asked.prefix_bytes,
        ready_timeout_s=asked.ready_timeout_s, schedule=_schedule(asked.at_least),
        devices=_replica_devices(planned, asked, most, tell), usd_per_machine_hour=record.usd_per_machine_hour,
        replicas_per_machine=record.replicas_per_machine, smoke=read_smoke_test(asked.smoke),
        event_per_token=not planned.speculates,
    )  # fmt: skip

    def placed(made: PlannedReplica, name: str, port: int) -> EngineCommand:
        folder = str(planned.folder / name)
        return made.render(EnginePlace(folder=folder, host="127.0.0.1", port=port, api_key=asked.api_key))

    with (
        recorded(planned.folder, record),
        leased(planned.folder.parents[1], record.name, charge_of(asked), _most_usd_per_hour(record), tell) as lease,
    ):

        def begin(made: Service, _port: int) -> None:
            def costs(found: dict[str, Any]) -> None:
                with suppress(OSError):  # a full disk ends no service
                    write_costs(planned.folder, found)
                whole = found["since_start"]
                if not lease.tick(None if whole is None else whole["usd"]):
                    made.stop()

            made.on_costs = costs
            made.on_update = VersionUpdates(made, planned, asked, placed).begin

        run_service(service, partial(placed, planned), planned.folder, tell, on_begin=begin)


def _replica_devices(
    planned: PlannedReplica, asked: ServeOptions, most: int, tell: Callable[[str], None]
) -> tuple[tuple[Device, ...], ...]:
    """A group for each replica; none where they run on the cores."""
    from tonnage.serving.engines.devices import device_groups, devices_here

    here = devices_here(tell) if planned.devices else ()
    if not here and _runs_on_cores(planned):
        return ()
    return device_groups(here, each=planned.devices, shared_by=asked.replicas_per_gpu, most=most)


def _schedule(hours: Sequence[str]) -> WeekSchedule | None:
    """The hours on the clock of this machine, in its own time zone."""
    from tonnage.scaling.service import WeekSchedule, parse_hours

    if not hours:
        return None
    now = datetime.now().astimezone()
    since_monday_s = now.weekday() * 86_400.0 + now.hour * 3600.0 + now.minute * 60.0 + now.second
    return WeekSchedule(hours=tuple(map(parse_hours, hours)), offset_s=since_monday_s - time.monotonic())


def _finish(running: EngineProcess, tell: Callable[[str], None]) -> None:
    from tonnage.serving.engines.processes import drain_engine

    tell(f"finishing what is being answered, for at most {DRAIN_S:g} s; Ctrl-C again ends it at once")
    if not running.command.drains:
        drain_engine(running, timeout_s=DRAIN_S)


def _runs_on_cores(planned: PlannedReplica) -> bool:
    gpu = None if planned.option is None else planned.option.gpu
    return gpu is None or planned.command.engine in ("llama.cpp", "encoder")


def _check_machine(planned: PlannedReplica, machine: LocalMachine) -> None:
    """PlanRefused where a replica's GPUs are not here. llama.cpp and encoders run on cores too, more slowly than on the
    planned GPU."""
    option = planned.option
    if option is None or _runs_on_cores(planned):
        return
    needed = dict(option.run.layout_fields).get("tensor_parallel", 1)
    if len(machine.gpus) >= int(needed):
        return
    raise PlanRefused(f"a replica takes {needed} x {option.gpu}; this machine has {len(machine.gpus)} GPUs",
                      hint="--dry-run prints the command to start there, as a process and as a container")  # fmt: skip
