"""What the machines of one run tell each other in its bucket: where the first is, and whether all still work.

The first looks after the run as the machine of a run of one does. The others learn from the bucket where the first is,
end with it, and tell it when their machine is taken away. Where one of them is lost, or never comes, the first ends the
attempt, and all machines end; what goes on does so from the newest checkpoint.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from tonnage.errors import TonnageError
from tonnage.places.bucket.layout import Keys
from tonnage.places.bucket.objects import Objects
from tonnage.runs.states import WorkerExit
from tonnage.supervisor.members import Member, free_port, member_word

JOIN_S: Final = 540.0  # from the first machine's start: torchrun itself waits 600 s for the others, and names none
LOOK_S: Final = 0.5


class Gathering:
    """The first machine's side: says where it is, and looks whether the others still work."""

    def __init__(
        self, objects: Objects, keys: Keys, member: Member, *, silent_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._objects, self._keys, self._member = objects, keys, member
        self.endpoint = f"{member.address}:{free_port()}"
        self._silent_s, self._clock = silent_s, clock
        self._since, self._seen = clock(), {0: member.address}  # numbers of those that have come
        self.lost = ""  # which machine is, and why; empty while all work

    def look(self, attempt: int) -> None:
        """Renew the word. Where another machine is lost, or will be: say so, and have the run saved and ended."""
        told = member_word(self._member, endpoint=self.endpoint, attempt=attempt, over=None)
        self._objects.write(self._keys.meeting, told)
        if self.lost:
            return
        self.lost = next(filter(None, (self._fault(number) for number in range(1, self._member.machines))), "")
        if self.lost:
            sys.stderr.write(f"tonnage: {self.lost}; the attempt ends\n")
            os.kill(os.getpid(), signal.SIGTERM)

    def over(self, code: int) -> None:
        """The others end."""
        self._objects.write(self._keys.meeting, member_word(self._member, endpoint=self.endpoint, attempt=0, over=code))

    def _fault(self, number: int) -> str:
        found = self._objects.read(self._keys.member(number))
        named = f"machine {number + 1} of {self._member.machines}"
        if found is None:
            return self._absent(named) if self._clock() - self._since > JOIN_S else ""
        told = json.loads(found.content)
        if told.get("leaves"):
            return f"{named} is taken away"
        if found.age_s <= self._silent_s:
            self._seen[number] = str(told["address"])
        elif number in self._seen:
            return f"{named} has been silent for {found.age_s:.0f} s"
        return ""

    def _absent(self, named: str) -> str:
        there = ", ".join(self._seen[number] for number in sorted(self._seen))
        return f"{named} has not come in {JOIN_S / 60:.0f} minutes (those that have: {there}); its console says why"


class Beside:
    """A further machine's side: what it does while its workers run, until the first one ends."""

    def __init__(
        self, objects: Objects, keys: Keys, member: Member, *, every_s: float, silent_s: float, token: str,
        notice_s: float,
        bring: Callable[[], None] = lambda: None, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._objects, self._keys, self._member = objects, keys, member
        self._every_s, self._token, self._silent_s = every_s, token, silent_s
        self._notice_s, self._bring, self._clock = notice_s, bring, clock  # `bring`: what else goes to the bucket
        self._next, self._gone_at, self._first, self._attempt = 0.0, math.inf, "", 0
        self.code: int | None = None  # with which this machine ends; None while it works

    def leave(self) -> None:
        """This machine is taken away: the first learns it at once, and ends all; without it this one ends in time."""
        leaves_s = self._notice_s + 2 * self._every_s  # the first learns of it by then, and has its whole time to save
        self._gone_at, self._next = min(self._gone_at, self._clock() + leaves_s), 0.0

    def meet(self) -> str:
        """Where torchrun meets in the first machine's next start of the workers; empty where it is over before."""
        while self.code is None:
            try:
                endpoint = self._newer_start()
            except TonnageError as error:
                sys.stderr.write(f"tonnage: {error.message}; it is tried again\n")
                endpoint = ""
            if endpoint:
                return endpoint
            self.flush(waiting=not self._first)
            time.sleep(LOOK_S)
        return ""

    def _newer_start(self) -> str:
        """Where the first machine's workers meet, of a start that this machine has not taken part in; else empty."""
        found = self._objects.read(self._keys.meeting)
        told: dict[str, Any] = {} if found is None else json.loads(found.content)
        lately = found is not None and found.age_s <= self._silent_s and told["over"] is None
        newer = told.get("identity") != self._first or told.get("attempt", 0) > self._attempt
        if not (lately and newer and told["attempt"]):
            return ""
        self._first, self._attempt = told["identity"], told["attempt"]
        return str(told["endpoint"])

    def flush(self, *, waiting: bool = False) -> None:
        """One exchange, where it is time for one: this machine's word, and whether the first still works."""
        if self.code is None and self._clock() >= self._gone_at:
            sys.stderr.write("tonnage: this machine is taken away, and the first has not ended the run in time\n")
            self.code = int(WorkerExit.PREEMPTED)
        if self._clock() < self._next or self.code is not None:
            return
        self._next = self._clock() + self._every_s
        leaves = self._gone_at < math.inf
        try:
            self._objects.write(self._keys.member(self._member.number), member_word(self._member, leaves=leaves))
            self.code = self._superseded() if waiting else self._superseded() or self._ended()
            self._bring()
        except TonnageError as error:
            sys.stderr.write(f"tonnage: {error.message}; it is tried again\n")

    def _superseded(self) -> int | None:
        found = self._objects.read(self._keys.lease)
        lease: dict[str, Any] = {} if found is None else json.loads(found.content)
        ours = lease.get("token") == self._token and lease.get("epoch", 0) <= self._keys.epoch
        return None if ours else int(WorkerExit.PREEMPTED)

    def _ended(self) -> int | None:
        found = self._objects.read(self._keys.meeting)
        if found is None or found.age_s > self._silent_s:
            sys.stderr.write("tonnage: the first machine is lost\n")
            return int(WorkerExit.PREEMPTED)
        told = json.loads(found.content)
        if told["identity"] != self._first:  # another start of the same job
            return int(WorkerExit.PREEMPTED)
        return None if told["over"] is None else int(told["over"])
