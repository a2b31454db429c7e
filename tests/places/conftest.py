"""A home with places, and the command line at it, as a user has them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tonnage.runs import RunFolder, RunSpec
from tonnage.runs.spec import DataSource, DataSpec, dump_spec
from tonnage.testing.sshd import SSHServer, ssh_server

ROOT = Path(__file__).parents[2]
LONGEST_S = 60.0


class Desk:
    """A home, its places.toml, and `tonnage` with its workers pretending."""

    def __init__(self, home: Path, places: str, environ: Mapping[str, str] | None = None) -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        self.environ = {
            **os.environ, **(environ or {}), "PYTHONPATH": str(ROOT / "src"), "TONNAGE_HOME": str(home),
            "TONNAGE_WORKER": "tonnage.testing.worker", "MLFLOW_TRACKING_URI": "none",
        }  # fmt: skip
        (home / "rows.csv").write_text("a,b\n1,2\n")
        (home / "places.toml").write_text(places)

    def spec(self, name: str, **more: Any) -> str:
        """The file of a run's specification."""
        data = DataSpec(train=DataSource(location=str(self.home / "rows.csv"), format="csv"))
        path = self.home / f"{name}.json"
        path.write_text(dump_spec(RunSpec(name=name, task="mlp", data=data, **more)))
        return str(path)

    def pretend(self, **pretence: Any) -> None:
        """What workers of submissions from now on do (`tonnage.testing.worker.Pretence`)."""
        self.environ["TONNAGE_FAKE"] = json.dumps(pretence)
        file = self.home / "places.toml"
        told = f"env.TONNAGE_FAKE = '{json.dumps(pretence)}'"  # where the environment does not go along
        file.write_text(re.sub(r"^env\.TONNAGE_FAKE = .*$", lambda _: told, file.read_text(), flags=re.MULTILINE))

    def folder(self, name: str) -> RunFolder:
        return RunFolder(self.home / "runs" / name)

    def tonnage(self, *words: str, code: int = 0) -> str:
        """One command; its standard output."""
        done = subprocess.run(
            [sys.executable, "-m", "tonnage", *words], env=self.environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, f"{done.returncode}: {done.stdout}\n{done.stderr}"
        return done.stdout + (done.stderr if code else "")

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """One command that goes on by itself."""
        command = [sys.executable, "-m", "tonnage", *words]
        return subprocess.Popen(
            command, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip

    def wait(self, true: Callable[[], bool], said: str = "") -> None:
        until = time.monotonic() + LONGEST_S
        while not true():
            assert time.monotonic() < until, said or "it did not come so far in time"
            time.sleep(0.05)


@pytest.fixture(scope="session")
def ssh_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SSHServer]:
    """A real SSH server."""
    with ssh_server(tmp_path_factory.mktemp("sshd-machine")) as found:
        yield found


@pytest.fixture
def box(ssh_machine: SSHServer) -> Callable[..., str]:
    """`places.toml` of that machine, with these terms changed."""

    def terms(there: Path, **changed: Any) -> str:
        values = {
            "kind": "ssh", "host": "127.0.0.1", "port": ssh_machine.port, "key": str(ssh_machine.key),
            "known_hosts": str(ssh_machine.known_hosts), "folder": str(there), "python": sys.executable, "cores": 1,
            "memory_gib": 1, "share": True, "free_gib": 0,
        } | changed  # fmt: skip
        return (
            "[places.box]\n"
            + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
            + "env.TONNAGE_FAKE = '{}'\n"
        )

    return terms


@pytest.fixture
def desk_at() -> Callable[..., Desk]:
    return Desk
