"""The processes of a gateway: workers that share its sockets. It starts them again when they die or when asked, and
passes changed files on to them."""

from __future__ import annotations

import os
import pickle
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from tonnage.errors import InputError, TonnageError
from tonnage.files import make_private_folder
from tonnage.gateway.addresses import local_url
from tonnage.gateway.file.described import Gateway
from tonnage.gateway.worker import SIZE, WorkerTask, serves

RESTARTS: Final = 5  # of workers that end as soon as they begin, before a gateway that never served gives up
SHORT_LIFE_S: Final = 15.0  # longer than one try to reach a database
FIRST_WAIT_S: Final = 0.5  # before a worker that ended so is started again; doubled each time
LONGEST_WAIT_S: Final = 15.0
POLL_S: Final = 0.2
GRACE_S: Final = 10.0  # after the drain, until SIGKILL
Say = Callable[[str], None]


class BatchCarrier(Protocol):
    """Carries batches until it is closed."""

    def close(self) -> None: ...


class GatewayProcesses:
    """`reload`: reads the file again; TonnageError leaves the workers with the old one. `run_batches`: begins to carry
    batches, given the address of the gateway and the secret of the runner."""

    def __init__(
        self, gateway: Gateway, folder: Path, reload: Callable[[], Gateway], say: Say,
        run_batches: Callable[[str, str], BatchCarrier] | None = None,
    ) -> None:  # fmt: skip
        self.gateway, self.folder, self._read, self.say = gateway, folder, reload, say
        self._run_batches = run_batches
        self._batch_secret = None if run_batches is None else secrets.token_urlsafe(24)
        self._runner: BatchCarrier | None = None
        self._workers: list[_Child] = []
        self._stopping = False
        self._reload_asked = self._renewal_asked = False
        self._to_renew: list[int] = []  # workers that are to be replaced, one after another
        self._renewing: tuple[int, _Child] | None = None  # which one, and who takes its place once it serves
        self._retiring: list[tuple[_Child, float]] = []  # and until when they may answer what is under way
        self._short_lives = 0
        self._served = False  # whether a worker of this gateway ever lived long
        self._next_start_s = 0.0

    def run(self, on_begin: Callable[[int], None] | None = None) -> int:
        """Serve until SIGTERM or SIGINT. Exit code: of the first worker where none can begin. Raises TonnageError."""
        listen = self.gateway.listen
        self._sockets = [_listening(listen.host, listen.port)]
        if listen.admin_port is not None:
            self._sockets.append(_listening(listen.admin_host, listen.admin_port))
        port = int(self._sockets[0].getsockname()[1])
        make_private_folder(self.folder)
        handlers = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        handlers[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._ask_reload)
        handlers[signal.SIGUSR2] = signal.signal(signal.SIGUSR2, self._ask_renewal)
        try:
            self._workers = [self._start(number) for number in range(listen.workers)]
            if on_begin is not None:
                on_begin(port)
            if self._run_batches is not None and self._batch_secret is not None:
                self._runner = self._run_batches(local_url(listen.host, port), self._batch_secret)
            return self._watch()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            for one in self._sockets:
                one.close()

    def stop(self) -> None:
        """Let the workers answer what is under way, then end."""
        self._stopping = True

    # inside

    def _start(self, number: int) -> _Child:
        task = WorkerTask(
            gateway=self.gateway, folder=str(self.folder), sockets=tuple(one.fileno() for one in self._sockets),
            number=number, batch_secret=self._batch_secret,
        )  # fmt: skip
        process = subprocess.Popen(
            [sys.executable, "-m", "tonnage.gateway.worker"], stdin=subprocess.PIPE, pass_fds=task.sockets,
            start_new_session=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        made = _Child(process, task, time.monotonic())
        made.send()
        return made

    def _watch(self) -> int:
        while not self._stopping:
            time.sleep(POLL_S)
            if self._reload_asked:
                self._reload_asked = False
                self._reload()
            if self._renewal_asked:
                self._renewal_asked = False
                self._to_renew = list(range(len(self._workers)))
            self._renew()
            self._replace_dead()
        self._end()
        return 0

    def _renew(self) -> None:
        """A worker after another hands over to a new process, which runs the program as it is installed now. The old
        one ends only when the new one serves, and answers what is under way; their sockets are the same."""
        now_s = time.monotonic()
        for old, until_s in list(self._retiring):
            if old.process.poll() is not None:
                self._retiring.remove((old, until_s))
                if not self._retiring and self._renewing is None and not self._to_renew:
                    self.say("all workers are new")
            elif now_s > until_s:
                old.process.kill()
        if self._renewing is None:
            if self._to_renew:
                index = self._to_renew.pop(0)
                self._renewing = (index, self._start(index))
            return
        index, fresh = self._renewing
        if fresh.process.poll() is not None:
            self.say(f"the new worker {index} ended with {fresh.process.returncode}; the old ones stay")
            self._renewing, self._to_renew = None, []
        elif serves(self.folder, fresh.process.pid):
            old, self._workers[index], self._renewing = self._workers[index], fresh, None
            old.process.terminate()
            self._retiring.append((old, now_s + self.gateway.listen.drain + GRACE_S))

    def _replace_dead(self) -> None:
        """Workers that end as soon as they begin, as while a database is away, are started again ever more slowly."""
        now_s = time.monotonic()
        if all(one.process.poll() is None and now_s - one.begun_s >= SHORT_LIFE_S for one in self._workers):
            self._short_lives = 0
        for index, child in enumerate(self._workers):
            code = child.process.poll()
            if code is None:
                self._served = self._served or now_s - child.begun_s >= SHORT_LIFE_S
                continue
            if not child.end_reported:
                child.end_reported = True
                short = code > 0 and now_s - child.begun_s < SHORT_LIFE_S  # by itself, not by a signal
                self._ended(index, code, now_s if short else None)
            if not self._stopping and (code <= 0 or now_s >= self._next_start_s):
                self._workers[index] = self._start(index)

    def _ended(self, index: int, code: int, short_s: float | None) -> None:
        """A worker's end; `short_s`: now, where it had only begun. Raises TonnageError where none can begin."""
        wait_s = 0.0
        if short_s is not None:
            self._short_lives += 1
            wait_s = min(FIRST_WAIT_S * 2 ** ((self._short_lives - 1) // len(self._workers)), LONGEST_WAIT_S)
            self._next_start_s = max(self._next_start_s, short_s + wait_s)
        rounds = self._short_lives // len(self._workers)
        if code == InputError.exit_code or (not self._served and rounds >= RESTARTS):
            self._end()
            raise TonnageError(f"workers of the gateway end with {code} as soon as they begin",
                               hint="see their messages above")  # fmt: skip
        self.say(f"worker {index} ended with {code}; another one begins" + (f" in {wait_s:g} s" if wait_s else ""))

    def _end(self) -> None:
        if self._runner is not None:
            self._runner.close()
        for one in self._sockets:
            one.close()  # first: a connection that is never accepted would hang
        fresh = () if self._renewing is None else (self._renewing[1],)
        children = (*self._workers, *fresh, *(one for one, _ in self._retiring))
        for child in children:
            with suppress(ProcessLookupError):
                child.process.terminate()
        until = time.monotonic() + self.gateway.listen.drain + GRACE_S
        for child in children:
            try:
                child.process.wait(max(until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()

    def _reload(self) -> None:
        try:
            found = self._read()
        except TonnageError as error:
            self.say(f"the file as it was stays in force: {error}")
            return
        if _fixed(found) != _fixed(self.gateway):
            self.say("where the gateway listens, its workers, its store and `batches` change with a new start only")
        self.gateway = found
        for child in (*self._workers, *(() if self._renewing is None else (self._renewing[1],))):
            child.task = replace(child.task, gateway=found)
            child.send()
        self.say("the gateway follows the changed file")

    def _stop(self, *_: object) -> None:
        self.stop()

    def _ask_reload(self, *_: object) -> None:
        self._reload_asked = True

    def _ask_renewal(self, *_: object) -> None:
        self._renewal_asked = True


def _fixed(gateway: Gateway) -> tuple[object, ...]:
    listen = gateway.listen
    return listen.host, listen.port, listen.workers, gateway.store, gateway.batches, gateway.limits_in_redis


class _Child:
    """A worker's process, and the last message to it."""

    def __init__(self, process: subprocess.Popen[bytes], task: WorkerTask, begun_s: float) -> None:
        self.process, self.task, self.begun_s = process, task, begun_s
        self.end_reported = False  # whether its end was said

    def send(self) -> None:
        data = pickle.dumps(self.task)
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has just ended: the next one gets the message
            self.process.stdin.write(SIZE.pack(len(data)) + data)
            self.process.stdin.flush()


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens, for all workers. InputError where the port is taken."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise InputError(f"{host}:{port} cannot be listened on: {error.strerror}",
                         hint="name another port: `listen:` in the gateway file") from error  # fmt: skip
    made.listen(2048)
    return made
