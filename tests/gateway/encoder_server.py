"""The encoder server in a process of its own, for what the gateway asks of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_port


@contextmanager
def serving(model: Path | str, home: Path, *words: str) -> Iterator[str]:
    """`tonnage serve MODEL`, until the block ends; its address."""
    port = free_port()
    command = [sys.executable, "-m", "tonnage", "serve", str(model), "--port", str(port), "--workers", "1", *words]
    env = {**os.environ, "TONNAGE_HOME": str(home)}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        said = [server.stderr.readline(), server.stderr.readline()]
        assert "takes requests" in said[1], said
        yield f"http://127.0.0.1:{port}"
        server.terminate()
        server.wait(30)
