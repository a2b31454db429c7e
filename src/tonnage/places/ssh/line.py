"""The connection: OpenSSH's own client, one master connection for all requests, and what its words mean.

OpenSSH rather than a library: `~/.ssh/config`, agents, hardware keys, certificates, jump hosts and single sign-on work
as they do in the user's shell, and nobody has to learn a second set of rules for host keys.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import IO, Any, Final

from tonnage.errors import TonnageError
from tonnage.places.file import SSHPlace
from tonnage.places.ssh.agent import MARK
from tonnage.values import dataclass

CONNECT_TIMEOUT_S: Final = 10
SILENT_S: Final = 5  # between two questions whether the other side lives; after three without an answer it is cut
NO_CONNECTION: Final = 255  # ssh's own exit code for its own troubles
_BOOT: Final = (
    "import sys;r=sys.stdin.buffer;exec(compile(r.read(int(r.readline())),'agent','exec'),{'__name__':'agent'})"
)


class ConnectionCut(TonnageError):
    """The connection could not be made, or broke. `why`: which of the known reasons; None: another."""

    def __init__(self, message: str, *, hint: str, why: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.why = why


class AgentRefusal(TonnageError):
    """The machine answered, and cannot do what was asked. `kind` as in `agent.py`."""

    def __init__(self, kind: str, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class SSHConnection:
    """How one place is reached."""

    name: str  # the place's
    place: SSHPlace

    @property
    def command(self) -> tuple[str, ...]:
        """ssh with all its options and the host; the remote command follows."""
        place = self.place
        given = [
            *(["-p", str(place.port)] if place.port else []),
            *(["-i", str(Path(place.key).expanduser()), "-o", "IdentitiesOnly=yes"] if place.key else []),
            *(["-J", place.jump] if place.jump else []),
            *(["-o", f"UserKnownHostsFile={Path(place.known_hosts).expanduser()}"] if place.known_hosts else []),
            *(["-l", place.user] if place.user else []),
        ]
        return ("ssh", *_OPTIONS, *given, place.host)

    def said(self, *words: str) -> str:
        """The command as a person would type it, for hints."""
        place = self.place
        user = f"{place.user}@" if place.user else ""
        port = f"-p {place.port} " if place.port else ""
        jump = f"-J {place.jump} " if place.jump else ""
        return f"ssh {port}{jump}{user}{place.host}" + (f" {' '.join(words)}" if words else "")

    def ask(self, verb: str, request: Mapping[str, Any], body: Iterable[bytes] = ()) -> AgentReply:
        """Have the machine do one thing. ConnectionCut where it cannot be reached, AgentRefusal where it says no."""
        _make_sockets()
        process = self._open(f"{shlex.quote(self.place.python)} -c {shlex.quote(_BOOT)}")
        assert process.stdin is not None
        text = json.dumps({"verb": verb, "folder": self.place.folder, **request}).encode()
        writer = threading.Thread(target=_write, args=(process.stdin, [_agent(), text], body), daemon=True)
        writer.start()
        return self._reply(process)

    def _open(self, command: str) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                [*self.command, "--", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env={**os.environ, "LC_ALL": "C"}, start_new_session=True,  # Ctrl-C is the client's, not the master's
            )  # fmt: skip
        except FileNotFoundError as error:
            hint = "install OpenSSH's client (Debian: openssh-client)"
            raise TonnageError("there is no `ssh` on this machine", hint=hint) from error

    def _reply(self, process: subprocess.Popen[bytes]) -> AgentReply:
        assert process.stdout is not None
        for line in process.stdout:  # a login script may print before it
            if line.decode(errors="replace").rstrip() == MARK:
                break
        else:
            raise self._fault(process)
        try:
            answer: dict[str, Any] = json.loads(process.stdout.readline())
        except ValueError:
            raise self._fault(process) from None
        if kind := answer.get("refused"):
            _end(process, now=True)
            raise AgentRefusal(kind, f"{self.name}: {answer['message']}", hint=self._hint(kind))
        return AgentReply(answer, process, self)

    def _hint(self, kind: str) -> str:
        hints = {
            "disk": f"make room: `{self.said('df -h', self.place.folder)}`",
            "start": f"`{self.said(self.place.python, '-m pip list')}` shows what is installed there",
            "busy": "`tonnage places orphans --end` ends what no run waits for",
            "superseded": "`tonnage ps` shows where the run stands",
        }
        return hints.get(kind, f"`tonnage places check {self.name}`")

    def _fault(self, process: subprocess.Popen[bytes]) -> TonnageError:
        """Why there is no answer, by ssh's own words."""
        assert process.stderr is not None
        said = process.stderr.read().decode(errors="replace")
        code = process.wait()
        _end(process)
        words = "; ".join(line.strip() for line in said.splitlines() if line.strip())[-600:]
        if code == NO_CONNECTION or code < 0:
            return self._cut(said, words)
        if code in {126, 127}:
            message = f"{self.name}: there is no {self.place.python} on {self.place.host}"
            return ConnectionCut(
                message, hint=f"places.{self.name}.python: another interpreter, or install it", why="no python"
            )
        return TonnageError(
            f"{self.name}: the other side ended with {code}: {words}", hint=f"`tonnage places check {self.name}`"
        )

    def _cut(self, said: str, words: str) -> ConnectionCut:
        host = self.place.host
        if "IDENTIFICATION HAS CHANGED" in said:
            where = f"-f {self.place.known_hosts} " if self.place.known_hosts else ""
            asked = f"[{host}]:{self.place.port}" if self.place.port else host
            hint = f"ask its administrator; then `ssh-keygen {where}-R '{asked}'` and `{self.said('true')}`"
            return ConnectionCut(f"{self.name}: the host key of {host} has changed", hint=hint, why="key changed")
        if "host key" in said.lower() and ("is known for" in said or "verification failed" in said):
            hint = f"compare its fingerprint: `{self.said('true')}`"
            return ConnectionCut(f"{self.name}: the host key of {host} is not known here", hint=hint, why="key unknown")
        if "Permission denied" in said or "Too many authentication" in said:
            hint = f"`ssh-copy-id {host}`, or places.{self.name}.key; `{self.said('true')}` tries it"
            return ConnectionCut(f"{self.name}: {host} refuses our key: {words}", hint=hint, why="refused")
        message = f"{self.name}: {host} cannot be reached: {words or 'the connection broke'}"
        return ConnectionCut(message, hint=f"`{self.said('true')}` tries it", why="unreachable")


_SOCKETS: Final = Path(tempfile.gettempdir()) / f"tonnage-ssh-{os.getuid()}"
_OPTIONS: Final = (
    "-T", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", f"ConnectTimeout={CONNECT_TIMEOUT_S}",
    "-o", f"ServerAliveInterval={SILENT_S}", "-o", "ServerAliveCountMax=3", "-o", "ControlMaster=auto",
    "-o", f"ControlPath={_SOCKETS / '%C'}",
    "-o", "ControlPersist=30", "-o", "LogLevel=ERROR",
)  # fmt: skip


class AgentReply:
    """What the machine answered: values at once, files as they come."""

    def __init__(self, answer: dict[str, Any], process: subprocess.Popen[bytes], line: SSHConnection) -> None:
        self.answer = answer
        self._process, self._line = process, line

    def frames(self) -> Iterator[tuple[str, int, int, Iterator[bytes]]]:
        """(name, offset, bytes, blocks) of each file; read each before the next. ConnectionCut where it breaks."""
        for name, offset, size in self.answer["frames"]:
            yield name, offset, size, self._blocks(size)
        self.close()

    def _blocks(self, size: int) -> Iterator[bytes]:
        assert self._process.stdout is not None
        while size:
            block = self._process.stdout.read(min(1 << 20, size))
            if not block:
                raise self._line._fault(self._process)
            size -= len(block)
            yield block

    def close(self) -> None:
        """Nothing more is read."""
        _end(self._process)


def _make_sockets() -> None:
    """The folder of the master connections' sockets: ours alone, and short, as a socket's path must be."""
    _SOCKETS.mkdir(mode=0o700, exist_ok=True)
    if _SOCKETS.is_symlink() or _SOCKETS.stat().st_uid != os.getuid():
        raise TonnageError(f"{_SOCKETS} is somebody else's", hint="remove it, or set TMPDIR")


@cache
def _agent() -> bytes:
    """As one text: what it needs to know of logs is before it."""
    logs, own = (
        files(package).joinpath(name).read_bytes()
        for package, name in (("tonnage.runs", "log_parts.py"), ("tonnage.places.ssh", "agent.py"))
    )
    return logs + own.replace(b"from __future__ import annotations\n", b"")


def _write(stdin: IO[bytes], parts: Iterable[bytes], body: Iterable[bytes]) -> None:
    """In a thread of its own: the machine may answer, or refuse, before it has read all."""
    with contextlib.suppress(BrokenPipeError, ValueError):  # the answer says why
        for part in parts:
            stdin.write(b"%d\n" % len(part) + part)
        for block in body:
            stdin.write(block)
    with contextlib.suppress(BrokenPipeError):
        stdin.close()


def _end(process: subprocess.Popen[bytes], *, now: bool = False) -> None:
    """Nothing more is expected. `now`: whatever is still being sent is not."""
    if now:
        process.kill()
    try:
        process.wait(CONNECT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()
