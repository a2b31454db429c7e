"""A service of replicas: the balancer listens, the control law decides, replicas come and go."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, Final

from tonnage.errors import DataError, MissingExtra, TonnageError
from tonnage.metric_names import REGISTRY
from tonnage.reports.reasons.scaling import scaling_words
from tonnage.scaling.law import ControlLaw, control_law
from tonnage.scaling.service import ScaledService, WeekSchedule
from tonnage.serving.engines.devices import Device, DevicePool
from tonnage.serving.engines.processes import read_counts
from tonnage.serving.listening import listening_socket
from tonnage.serving.replicas.app import ReplicaApp
from tonnage.serving.replicas.balancer import Balancer
from tonnage.serving.replicas.latencies import AnswerLatencies
from tonnage.serving.replicas.raised import Raised, clear_raised, read_raised
from tonnage.serving.replicas.replica import SmokeTest
from tonnage.serving.replicas.replica_set import Render, ReplicaRules, ReplicaSet
from tonnage.serving.replicas.trial import TrialRules
from tonnage.serving.running.meter import CostMeter, ReplicaCounts
from tonnage.values import dataclass

RELEARN: Final = 1.5  # start-ups measured this many times as long, or as short: the law starts over with them
FEWEST_START_UP_S: Final = 1.0
METER_S: Final = 5.0
STOPS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedService:
    """What `serve_replicas` needs to know. `devices`: a group for each replica; none: they run on the cores."""

    scaled: ScaledService
    host: str = "127.0.0.1"
    port: int = 8000
    most_waiting: int = 1000
    longest_wait_s: float = 300.0
    prefix_bytes: int | None = None
    ready_timeout_s: float = 900.0
    drain_timeout_s: float = 300.0
    schedule: WeekSchedule | None = None
    devices: tuple[tuple[Device, ...], ...] = ()
    usd_per_machine_hour: float | None = None  # None: not known
    replicas_per_machine: int | None = 1  # None: all share one
    event_per_token: bool = True  # of a stream; not with speculative decoding
    smoke: SmokeTest | None = None


class Service:
    """All parts of a running service, for one event loop."""

    def __init__(self, settings: ReplicatedService, render: Render, folder: Path, say: Callable[[str], None]) -> None:
        self.settings, self.say = settings, say
        self.balancer = Balancer(
            promise_s=settings.scaled.promise_s, most_waiting=settings.most_waiting,
            longest_wait_s=settings.longest_wait_s,
        )  # fmt: skip
        rules = ReplicaRules(
            slots=settings.scaled.slots, ready_timeout_s=settings.ready_timeout_s,
            drain_timeout_s=settings.drain_timeout_s, smoke=settings.smoke,
        )  # fmt: skip
        devices = DevicePool(settings.devices) if settings.devices else None
        self.latencies = AnswerLatencies()
        self._raised = Raised()
        self.replicas = ReplicaSet(render, rules, self.balancer, folder, say, devices)
        self.app = ReplicaApp(
            self.balancer, self.replicas.upstreams, self.page, prefix_bytes=settings.prefix_bytes,
            on_fault=self.replicas.report_fault, on_answer=self.latencies.add,
            event_per_token=settings.event_per_token,
        )  # fmt: skip
        self.law: ControlLaw = control_law(settings.scaled, settings.schedule)
        self.meter = CostMeter(
            usd_per_machine_hour=settings.usd_per_machine_hour, replicas_per_machine=settings.replicas_per_machine
        )
        self.on_update: Callable[[], None] = lambda: None  # SIGUSR1: another version is asked for
        self.on_costs: Callable[[dict[str, Any]], None] = lambda _: None
        self.server: Any = None
        self._counts = ReplicaCounts()
        self._metering: asyncio.Task[None] | None = None
        self._scaler: asyncio.Task[None] | None = None
        self._renewal: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Take no more requests, answer those under way, then end."""
        if self.server is not None:
            self.server.should_exit = True

    def begin(self) -> None:
        """Start the least number of replicas, one at least, and decide from now on."""
        clear_raised(self.replicas.folder)
        self.replicas.begin()
        self.replicas.scale_to(max(self.settings.scaled.least, 1))
        self._scaler = asyncio.ensure_future(self._scale())
        self._metering = asyncio.ensure_future(self._meter())

    async def stop_if_hopeless(self) -> None:
        """Stop once replicas were tried and none has ever been ready."""
        await self.replicas.hopeless.wait()
        self.stop()

    def renew(self) -> None:
        """Replace all replicas by new ones of the same command, one by one."""
        self._renewal = asyncio.ensure_future(self._renewed())

    def update(self, render: Render, trial: TrialRules, on_end: Callable[[str | None], None]) -> None:
        """Replace all replicas by those of another command, the first of them on trial. `on_end` is called with why
        the old ones stay, or None."""
        self._renewal = asyncio.ensure_future(self._updated(render, trial, on_end))

    async def _updated(self, render: Render, trial: TrialRules, on_end: Callable[[str | None], None]) -> None:
        try:
            await self.replicas.update(render, trial)
        except TonnageError as error:
            self.say(f"rolled back: {error}")
            on_end(str(error))
        else:
            self.say("all replicas are of the new version")
            on_end(None)

    async def _renewed(self) -> None:
        try:
            await self.replicas.update(self.replicas.render)
            self.say("all replicas are new")
        except TonnageError as error:
            self.say(f"the old replicas stay: {error}")

    async def close(self) -> None:
        """Decide no more; drain and end all replicas."""
        for task in (self._scaler, self._metering):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        await self.replicas.close()

    async def _scale(self) -> None:
        state = self.law.begin()
        while True:
            await asyncio.sleep(self.law.interval_s)
            measured_s = self.replicas.start_up_s
            if measured_s is not None and self._differs(measured_s):
                scaled = replace(self.law.service, start_up_s=max(measured_s, FEWEST_START_UP_S))
                self.law = control_law(scaled, self.settings.schedule)
                state = self.law.begin()
            self._look_at_raised()
            seen = self.balancer.observe(ready=self.replicas.count("ready"), starting=self.replicas.count("starting"))
            state, wanted, reason = self.law.decide(state, seen, monotonic())
            wanted = max(wanted, min(self._raised.least, self.settings.scaled.most))
            if wanted != self.replicas.wanted:
                self.say(f"{self.replicas.wanted} -> {wanted} replicas: {scaling_words(reason)}")
            self.replicas.scale_to(wanted)

    def _look_at_raised(self) -> None:
        """What a watch asks for, or no longer does; a file that cannot be read changes nothing, and is reported."""
        try:
            raised = read_raised(self.replicas.folder) or Raised()
        except DataError as error:
            self.say(str(error))
            return
        if raised == self._raised:
            return
        self._raised = raised
        slots = min(raised.slots or self.settings.scaled.slots, self.settings.scaled.slots)
        self.replicas.set_slots(slots)
        if raised.least or raised.slots is not None:
            self.say(f"a watch asks for at least {raised.least} replicas, {slots} requests at a time for each")
        else:
            self.say("the service's own number of replicas and slots hold again")

    async def _meter(self) -> None:
        """What it costs, a few seconds apart. A replica that does not answer keeps what it had counted."""
        while True:
            held = list(self.replicas.replicas.values())
            for one in held:
                if one.state == "ready" and (counts := await asyncio.to_thread(read_counts, one.running)) is not None:
                    self._counts.see(one.name, counts)
            answered = float(self.balancer.counts.finished)
            self.meter.tick(monotonic(), replicas=len(held), counts=self._counts.total(requests=answered))
            self.on_costs(self.standing())
            await asyncio.sleep(METER_S)

    def _differs(self, measured_s: float) -> bool:
        known_s = max(self.law.service.start_up_s, FEWEST_START_UP_S)
        return not 1.0 / RELEARN <= max(measured_s, FEWEST_START_UP_S) / known_s <= RELEARN

    # the service's own pages

    def page(self, path: str) -> tuple[int, str, bytes] | None:
        """The answer to one of its own paths; None for those of the replicas."""
        ready = self.replicas.count("ready")
        match path:
            case "/health":
                return 200, "application/json", b'{"status": "ok"}'
            case "/ready":
                kind = b'{"ready": %d}' % ready
                return (200 if ready or self.settings.scaled.least == 0 else 503), "application/json", kind
            case "/metrics":
                return 200, "text/plain; version=0.0.4", self.metrics().encode()
            case "/replicas":
                return 200, "application/json", json.dumps(self.document()).encode()
            case "/costs":
                return 200, "application/json", json.dumps(self.meter.document()).encode()
            case _:
                return None

    def document(self) -> dict[str, Any]:
        """The replicas as JSON values."""
        return {
            "schema": "tonnage/replicas@1",
            "wanted": self.replicas.wanted,
            "waiting": self.balancer.waiting,
            "start_up_s": self.replicas.start_up_s,
            "replicas": [
                {"name": one.name, "state": one.state, "version": one.version, "port": one.running.command.port,
                 "pid": one.running.process.pid, "in_flight": one.seat.in_flight, "ready_after_s": one.ready_s,
                 "devices": [device.name for device in self._devices_of(one.name)]}
                for one in self.replicas.replicas.values()
            ],
        }  # fmt: skip

    def _devices_of(self, replica: str) -> tuple[Device, ...]:
        return () if self.replicas.devices is None else self.replicas.devices.of(replica)

    def standing(self) -> dict[str, Any]:
        """What it costs, how many replicas answer, and 95th percentiles of the last minute (None: too few
        answers)."""
        return {
            **self.meter.document(), "replicas_ready": self.replicas.count("ready"),
            "replicas_most": self.settings.scaled.most, "slots": self.replicas.rules.slots,
            **self.latencies.document(monotonic()),
        }  # fmt: skip

    def metrics(self) -> str:
        """Prometheus' text."""
        counts, replicas = self.balancer.counts, self.replicas
        found = {
            "requests_arrived_total": counts.arrived, "requests_finished_total": counts.finished,
            "requests_late_total": counts.late, "requests_refused_total": counts.refused,
            "requests_retried_total": counts.retried, "requests_failed_total": counts.failed,
            "requests_abandoned_total": counts.abandoned, "replica_restarts_total": replicas.restarts,
            "requests_waiting": self.balancer.waiting, "requests_running": self.balancer.running,
            "replicas_wanted": replicas.wanted, "replicas_ready": replicas.count("ready"),
            "replicas_starting": replicas.count("starting"), "replicas_draining": replicas.count("draining"),
            "replica_start_up_seconds": replicas.start_up_s or 0.0,
        }  # fmt: skip
        known = [(REGISTRY[f"tonnage_{name}"], float(value)) for name, value in found.items()]
        known += [(REGISTRY[name], value) for name, _, value in self.meter.metrics()]
        lines = [
            f"# HELP {one.name} {one.help}\n# TYPE {one.name} {one.kind}\n{one.name} {value:.12g}"
            for one, value in known
        ]
        return "\n".join([*lines, ""])


async def serve_replicas(
    settings: ReplicatedService,
    render: Render,
    folder: Path,
    say: Callable[[str], None],
    *,
    on_begin: Callable[[Service, int], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then answer what is under way and end all replicas.

    `on_begin` gets the service and its port once it listens. Raises TonnageError where the port is taken,
    and where the first replicas all fail to get ready.
    """
    uvicorn = _uvicorn()
    listening = listening_socket(settings.host, settings.port)
    port = int(listening.getsockname()[1])
    service = Service(settings, render, folder, say)
    service.server = server = uvicorn.Server(uvicorn.Config(
        service.app, log_level="warning", access_log=False, lifespan="off", server_header=False,
        date_header=False, timeout_graceful_shutdown=int(settings.drain_timeout_s),
    ))  # fmt: skip
    server.capture_signals = nullcontext  # uvicorn's own would end this process before the replicas have ended
    loop = asyncio.get_running_loop()
    for number in STOPS:
        loop.add_signal_handler(number, service.stop)
    loop.add_signal_handler(signal.SIGHUP, service.renew)
    loop.add_signal_handler(signal.SIGUSR1, lambda: service.on_update())
    service.begin()
    watched = asyncio.ensure_future(service.stop_if_hopeless())
    if on_begin is not None:
        on_begin(service, port)
    say(f"http://{settings.host}:{port} takes requests")
    try:
        await server.serve(sockets=[listening])
    finally:
        for number in (*STOPS, signal.SIGHUP, signal.SIGUSR1):
            loop.remove_signal_handler(number)
        watched.cancel()
        await service.close()
        listening.close()
    if service.replicas.hopeless.is_set():
        raise TonnageError("no replica became ready", hint=f"the logs of those that were tried: {folder}")


def run_service(
    settings: ReplicatedService,
    render: Render,
    folder: Path,
    say: Callable[[str], None],
    *,
    on_begin: Callable[[Service, int], None] | None = None,
) -> None:
    """`serve_replicas` in an event loop of its own: uvloop's where it exists."""
    work = serve_replicas(settings, render, folder, say, on_begin=on_begin)
    if sys.platform == "win32":
        asyncio.run(work)
        return
    try:
        import uvloop
    except ImportError as error:
        work.close()
        raise MissingExtra("a balancer before replicas", "load") from error
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


def _uvicorn() -> Any:
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra("a balancer before replicas", "serve") from error
    return uvicorn
