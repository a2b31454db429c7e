"""A real SSH server on this machine, for tests and trials: own port, own host key, one key that it accepts.

Needs Debian's openssh-server. It listens on 127.0.0.1, lies in one folder and ends with the `with` block.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tonnage.errors import TonnageError
from tonnage.testing.slurm import PATHS, free_ports
from tonnage.values import dataclass

BINARIES: Final = ("sshd", "ssh", "ssh-keygen")
START_TIMEOUT_S: Final = 20.0


def missing_binaries() -> tuple[str, ...]:
    """What has to be installed first."""
    return tuple(name for name in BINARIES if shutil.which(name, path=PATHS) is None)


@dataclass(kw_only=True)
class SSHServer:
    """One that can be ended and started again, with another host key too."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def key(self) -> Path:
        """The private key that it accepts."""
        return self.folder / "key"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    def start(self) -> None:
        """Until it accepts connections."""
        tool = shutil.which("sshd", path=PATHS)
        assert tool is not None
        with (self.folder / "sshd.log").open("ab") as log:
            command = [tool, "-D", "-e", "-f", str(self.folder / "sshd_config")]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        until = time.monotonic() + START_TIMEOUT_S
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            if time.monotonic() > until or self.process.poll() is not None:
                raise TonnageError("sshd did not start", hint=f"{self.folder / 'sshd.log'} says why")
            time.sleep(0.02)

    def end(self) -> None:
        """The server and every session: as when the machine's network goes."""
        if self.process is None:
            return
        for session in self._sessions():
            with suppress(ProcessLookupError):
                os.kill(session, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self.process = None

    def cut(self) -> int:
        """End the sessions there are; the server goes on. How many there were."""
        sessions = self._sessions()
        for session in sessions:
            with suppress(ProcessLookupError):
                os.kill(session, signal.SIGKILL)
        return len(sessions)

    def new_host_key(self) -> None:
        """As a machine that was set up again, or another one under its address."""
        for file in self.folder.glob("host_key*"):
            file.unlink()
        _keygen(self.folder / "host_key")

    def trust(self) -> None:
        """Write the host key of now into `known_hosts`."""
        kind, key = (self.folder / "host_key.pub").read_text().split()[:2]
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {kind} {key}\n")

    def _sessions(self) -> list[int]:
        """The server's processes of connections: those that bear its name; what they have started is not touched."""
        import psutil

        assert self.process is not None
        found = psutil.Process(self.process.pid).children(recursive=True)
        return [one.pid for one in found if _is_session(one)]


def _is_session(process: object) -> bool:
    import psutil

    assert isinstance(process, psutil.Process)
    with suppress(psutil.Error):
        return process.name() == "sshd"
    return False


@contextmanager
def ssh_server(folder: Path) -> Iterator[SSHServer]:
    """Start it; its host key is in `known_hosts`, which no other test uses."""
    if missing := missing_binaries():
        raise TonnageError(f"{missing[0]} is not here", hint="apt-get install --no-install-recommends openssh-server")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o755)  # sshd looks at the folders above its files
    Path("/run/sshd").mkdir(exist_ok=True, mode=0o755)
    [port] = free_ports(1)
    for name in ("host_key", "key"):
        _keygen(folder / name)
    shutil.copyfile(folder / "key.pub", folder / "authorized_keys")
    (folder / "authorized_keys").chmod(0o600)
    (folder / "sshd_config").write_text(_configuration(folder, port))
    server = SSHServer(folder=folder, port=port)
    server.trust()
    server.start()
    try:
        yield server
    finally:
        server.end()


def _keygen(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def _configuration(folder: Path, port: int) -> str:
    return "\n".join([
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nPidFile {folder}/sshd.pid",
        f"AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nUsePAM no\nPasswordAuthentication no",
        f"KbdInteractiveAuthentication no\nPermitRootLogin yes\nAllowUsers {getpass.getuser()}\nPrintMotd no",
        "MaxStartups 100\nMaxSessions 100\nLogLevel INFO\n",
    ])  # fmt: skip


if __name__ == "__main__":  # a server to try by hand: python -m tonnage.testing.sshd FOLDER
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ssh_server(Path(sys.argv[1]).resolve()) as trial:
        sys.stdout.write(f"ssh -p {trial.port} -i {trial.key} -o UserKnownHostsFile={trial.known_hosts} 127.0.0.1\n")
        sys.stdout.flush()
        with suppress(KeyboardInterrupt):
            while True:
                time.sleep(60)
