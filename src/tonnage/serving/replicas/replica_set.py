"""Replicas of one service: started, watched, restarted, drained, updated one by one. All in one event loop."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, Final

from tonnage.errors import TonnageError
from tonnage.http.upstream import Upstream
from tonnage.serving.engines.devices import DevicePool, device_environment
from tonnage.serving.engines.engine import EngineCommand
from tonnage.serving.replicas.balancer import Balancer
from tonnage.serving.replicas.replica import Replica, SmokeTest, free_port, start_replica
from tonnage.serving.replicas.trial import SeatCounts, TrialRules, judge
from tonnage.values import dataclass

Render = Callable[[str, int], EngineCommand]  # (name of the replica, port) -> its command
WATCH_S: Final = 0.1
HEALTH_EVERY_S: Final = 5.0
UNHEALTHY_LOOKS: Final = 3
FIRST_BACK_OFF_S: Final = 0.5
LONGEST_BACK_OFF_S: Final = 30.0
HOPELESS_STARTS: Final = 3
START_UP_MEMORY: Final = 0.3  # how much the newest start-up counts in the mean


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRules:
    """How replicas are treated."""

    slots: int
    host: str = "127.0.0.1"
    ready_timeout_s: float = 900.0
    drain_timeout_s: float = 300.0
    grace_s: float = 10.0  # from SIGTERM to SIGKILL
    smoke: SmokeTest | None = None  # of each replica, before it takes requests


class ReplicaSet:
    """`wanted` replicas are kept running; the balancer knows those that are ready. Each gets a group of `devices`;
    None: they share what this process sees."""

    def __init__(
        self,
        render: Render,
        rules: ReplicaRules,
        balancer: Balancer,
        folder: Path,
        say: Callable[[str], None],
        devices: DevicePool | None = None,
    ) -> None:
        self.devices = devices
        self.render, self.rules, self.balancer, self.folder, self.say = render, rules, balancer, folder, say
        self.replicas: dict[str, Replica] = {}
        self.upstreams: dict[str, Upstream] = {}
        self.wanted = 0
        self.version = 1
        self.restarts = 0
        self.start_up_s: float | None = None  # mean of those measured
        self._number = 0
        self._failures = 0
        self._not_before_s = 0.0
        self._updating = False
        self._closing = False
        self.hopeless = asyncio.Event()  # no replica has ever been ready, and enough were tried
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watcher: asyncio.Task[None] | None = None

    # what is there

    def count(self, state: str) -> int:
        """Replicas in this state."""
        return sum(one.state == state for one in self.replicas.values())

    @property
    def live(self) -> list[Replica]:
        """Starting or ready, the oldest first."""
        return [one for one in self.replicas.values() if one.state in ("starting", "ready")]

    # what is done

    def begin(self) -> None:
        """Watch the replicas from now on."""
        self._watcher = asyncio.ensure_future(self._watch())

    def scale_to(self, wanted: int) -> None:
        """Keep so many replicas. Those too many drain: starting ones end first, then the emptiest."""
        self.wanted = wanted
        self._fill()
        if self._updating:
            return
        for _ in range(len(self.live) - wanted):
            starting = [one for one in self.live if one.state == "starting"]
            chosen = starting[-1] if starting else min(reversed(self.live), key=lambda one: one.seat.in_flight)
            self._drain(chosen)

    def set_slots(self, slots: int) -> None:
        """So many requests at a time for each replica, from the next request on."""
        self.rules = replace(self.rules, slots=slots)
        for one in self.replicas.values():
            one.seat.slots = slots
        self.balancer.hand_out()

    async def update(self, render: Render, trial: TrialRules | None = None) -> None:
        """Replace every replica by one of the new command: start one, wait until it is ready, drain an old one.

        Where no device is free the old one is drained first; its requests wait or go to others. With `trial` the first
        new one takes its share of the requests beside the old ones until it is judged; nothing is drained before, so
        that there must be room for it. Where a new one does not become ready, or does not pass, the old command stays
        and TonnageError says why.
        """
        if self._updating:
            raise TonnageError("an update is under way", hint="wait until it is done")
        if trial is not None and not self._has_room():
            raise TonnageError("no device is free for a new version beside the old one",
                               hint="without a trial replicas are replaced in their place")  # fmt: skip
        self._updating = True
        if trial is not None:
            await self._on_trial(render, trial)
        before, self.render = self.render, render
        self.version += 1
        try:
            for old in [one for one in self.live if one.version < self.version]:
                if old.state == "gone":
                    continue
                if self._has_room():
                    await self._until_ready(self._start())
                    self._drain(old)
                else:
                    await self._drain(old)
                    await self._until_ready(self._start())
        except TonnageError:
            self.render = before
            self.version += 1  # what comes is neither old nor of the command that failed
            for one in [one for one in self.live if one.version == self.version - 1]:
                self._drain(one)
            raise
        finally:
            self._updating = False
            self.scale_to(self.wanted)

    async def _on_trial(self, render: Render, rules: TrialRules) -> None:
        """One replica of the new version takes its share until it has passed, and stays as the first of it.

        TonnageError where it has not passed: it has drained, and all others are as before.
        """
        new: Replica | None = None
        try:
            new = self._start(render, self.version + 1, rules.share)
            await self._until_ready(new)
            await self._judged(new, rules)
        except TonnageError:
            self.version += 1  # another trial is of another version
            for one in self.live:
                if one is new:
                    self._drain(one)
                else:
                    one.version = self.version
            self._updating = False
            self.scale_to(self.wanted)
            raise
        new.seat.share = None
        if oldest := [one for one in self.live if one.version <= self.version]:
            self._drain(oldest[0])

    async def _judged(self, new: Replica, rules: TrialRules) -> None:
        began_s, old = monotonic(), SeatCounts()
        new.seat.counts = counts = SeatCounts()
        try:
            while True:
                for one in self.replicas.values():
                    if one is not new:
                        one.seat.counts = old
                if new.state != "ready" or new.exit_code is not None:
                    raise TonnageError(f"replica {new.name} of the new version ended on trial",
                                       hint=f"the old version stays; its log: {new.running.log_file}")  # fmt: skip
                found = judge(counts, old, rules, elapsed_s=monotonic() - began_s)
                if found.decision == "back":
                    raise TonnageError(f"the new version did not pass: {found.why}", hint="the old version stays")
                if found.decision == "go on":
                    self.say(f"the new version passed: {found.why}")
                    return
                await asyncio.sleep(WATCH_S)
        finally:
            for one in self.replicas.values():
                one.seat.counts = None

    def report_fault(self, name: str) -> None:
        """A request found this replica not answering: look at its process at once."""
        replica = self.replicas.get(name)
        if replica is not None and replica.exit_code is not None:
            self._buried(replica)

    async def close(self) -> None:
        """Drain and end all replicas."""
        self.wanted, self._closing = 0, True
        if self._watcher is not None:
            self._watcher.cancel()
            with suppress(asyncio.CancelledError):
                await self._watcher
        for one in self.live:
            self._drain(one)
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # inside

    def _has_room(self) -> bool:
        """Whether devices are free for one more."""
        return self.devices is None or self.devices.free > 0

    def _fill(self) -> None:
        if self.devices is not None and self._updating:
            return  # the update counts on the devices that it freed
        lacking = self.wanted - len(self.live)
        if self.devices is not None:
            lacking = min(lacking, self.devices.free)
        if lacking > 0 and asyncio.get_running_loop().time() >= self._not_before_s:
            for _ in range(lacking):
                try:
                    self._start()
                except TonnageError as error:  # a port taken meanwhile, a program gone: again after a while
                    self._back_off(f"a replica does not start: {error}")
                    return

    def _start(self, render: Render | None = None, version: int | None = None, share: float | None = None) -> Replica:
        """One more of the present command, or of a new one that is on trial for a share of the requests."""
        self._number += 1
        name = f"r{self._number}"
        command = (render or self.render)(name, free_port(self.rules.host))
        if self.devices is not None:
            group = self.devices.take(name)
            command = replace(command, env=(*command.env, *device_environment(group)))
        try:
            replica = start_replica(name, version or self.version, command, self.folder, self.rules.slots)
        except BaseException:
            if self.devices is not None:
                self.devices.give_back(name)
            raise
        replica.seat.share = share
        self.replicas[name] = replica
        replica.task = self._spawn(self._come_up(replica))
        return replica

    async def _come_up(self, replica: Replica) -> None:
        try:
            ready_s = await replica.wait_ready(self.rules.ready_timeout_s)
            if self.rules.smoke is not None:
                await replica.pass_smoke_test(self.rules.smoke)
        except TonnageError as error:
            if replica.state == "starting":
                self._back_off(f"{error}\n{replica.running.last_words()}")
                await self._end(replica)
            return
        if replica.state != "starting":
            return
        replica.state, replica.ready_s = "ready", ready_s
        old = self.start_up_s
        self.start_up_s = ready_s if old is None else old + START_UP_MEMORY * (ready_s - old)
        self._failures = 0
        self.upstreams[replica.name] = replica.upstream
        self.balancer.add(replica.seat)
        self.say(f"replica {replica.name} takes requests after {ready_s:.1f} s")
        self._signal()

    async def _until_ready(self, replica: Replica) -> None:
        while replica.state == "starting":
            self._changed.clear()
            await self._changed.wait()
        if replica.state != "ready":
            raise TonnageError(f"replica {replica.name} of the new command did not become ready",
                               hint=f"the old command stays; its log: {replica.running.log_file}")  # fmt: skip

    async def _free_devices_of(self, replica: Replica) -> None:
        """Once no process of it is left: until then their memory is not free for another one."""
        if self.devices is None:
            return
        waited_s = 0.0
        while not self._closing and (left := await replica.left()):
            if waited_s <= self.rules.grace_s < waited_s + WATCH_S:
                pids = ", ".join(map(str, sorted(left)))
                self.say(f"replica {replica.name}: the processes {pids} do not end, and its devices stay with it")
            waited_s += WATCH_S
            await asyncio.sleep(WATCH_S)
        self.devices.give_back(replica.name)

    def _drain(self, replica: Replica) -> asyncio.Task[None]:
        """The task that ends with the replica."""
        ready = replica.state == "ready"
        replica.state = "draining"
        return self._spawn(self._drained(replica) if ready else self._end(replica))

    async def _drained(self, replica: Replica) -> None:
        if not await self.balancer.drain(replica.name, self.rules.drain_timeout_s):
            self.say(f"replica {replica.name} still works after {self.rules.drain_timeout_s:g} s of draining")
        await self._end(replica)

    async def _end(self, replica: Replica) -> None:
        self._forget(replica)
        await replica.stop(self.rules.grace_s)
        await self._free_devices_of(replica)
        self._signal()

    def _forget(self, replica: Replica) -> None:
        self.balancer.remove(replica.name)
        self.upstreams.pop(replica.name, None)
        self.replicas.pop(replica.name, None)
        replica.state = "gone"

    def _buried(self, replica: Replica) -> None:
        """A replica whose process ended by itself."""
        if replica.state in ("gone", "draining"):
            return
        was_ready = replica.state == "ready"
        self._forget(replica)
        replica.kill()  # workers that outlived it
        self._spawn(self._free_devices_of(replica))
        replica.upstream.close()
        self.restarts += 1
        self._signal()
        if was_ready and replica.ready_s is not None and self._failures == 0:
            self.say(f"replica {replica.name} ended with {replica.exit_code}: another one starts")
            self._failures = 1
        else:
            self._back_off(f"replica {replica.name} ended with {replica.exit_code}")
        self._fill()

    def _back_off(self, why: str) -> None:
        if self.start_up_s is None and self._failures >= HOPELESS_STARTS - 1:
            self._not_before_s = math.inf
            self.hopeless.set()
            self.say(why)
            return
        wait_s = min(FIRST_BACK_OFF_S * 2**self._failures, LONGEST_BACK_OFF_S)
        self._failures += 1
        self._not_before_s = asyncio.get_running_loop().time() + wait_s
        self.say(f"{why}; the next one starts in {wait_s:g} s")

    async def _watch(self) -> None:
        """Bury the dead, fill their places, look at the health of the others."""
        next_look_s = 0.0
        while True:
            await asyncio.sleep(WATCH_S)
            for one in list(self.replicas.values()):
                if one.state == "ready" and one.exit_code is not None:
                    self._buried(one)
            self._fill()
            now_s = asyncio.get_running_loop().time()
            if now_s >= next_look_s:
                next_look_s = now_s + HEALTH_EVERY_S
                for one in [one for one in self.replicas.values() if one.state == "ready"]:
                    self._spawn(self._look(one))

    async def _look(self, replica: Replica) -> None:
        healthy = await replica.healthy()
        replica.unhealthy = 0 if healthy else replica.unhealthy + 1
        if replica.unhealthy >= UNHEALTHY_LOOKS and replica.state == "ready":
            self.say(f"replica {replica.name} does not answer {replica.running.command.health}: it is ended")
            replica.kill()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _signal(self) -> None:
        self._changed.set()
