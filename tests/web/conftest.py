"""A server of the page over a home of its own, on a free port of this machine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("fastapi")

import uvicorn

from tonnage.settings import Settings, current_settings
from tonnage.web.access import LOCAL_NAMES, Access
from tonnage.web.app import WebServer, make_app
from tonnage.web.keys import KeyFile, Role, now_utc

EXAMPLES = Path(__file__).parents[2] / "examples"
DAY = "2026-11-20"
Open = Callable[..., httpx.Client]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def settings(home: Path) -> Settings:
    assert not home.exists()
    return current_settings(as_of=DAY)


@pytest.fixture
def keys(home: Path) -> KeyFile:
    return KeyFile(home / "ui" / "keys.json")


@pytest.fixture
def audited() -> list[dict[str, Any]]:
    return []


@contextmanager
def listening(made: WebServer) -> Iterator[str]:
    """The application on a free port, in a thread; its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        running = uvicorn.Server(uvicorn.Config(make_app(made), log_level="critical", lifespan="off"))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [free]})
        thread.start()
        yield f"http://127.0.0.1:{free.getsockname()[1]}"
        running.should_exit = True
        thread.join(20)


@pytest.fixture
def server(settings: Settings, keys: KeyFile, audited: list[dict[str, Any]]) -> Iterator[Open]:
    """`server()`: on this machine, nobody signs in. `server(open_here=False)`: with keys."""
    with ExitStack() as stack:

        def opened(*, open_here: bool = True, folder: Path = EXAMPLES) -> httpx.Client:
            access = Access(keys=keys, open_here=open_here, hosts=LOCAL_NAMES)
            made = WebServer(settings, folder, access, secure=False, audit=lambda **one: audited.append(one))
            url = stack.enter_context(listening(made))
            return stack.enter_context(httpx.Client(base_url=url, timeout=60))

        yield opened


@pytest.fixture
def key_of(keys: KeyFile) -> Callable[[Role], dict[str, str]]:
    """Headers of a new key of a role."""

    def made(role: Role) -> dict[str, str]:
        secret = keys.add(f"{role}-{len(keys.every())}", role, now=now_utc(), expires_at=None)
        return {"authorization": f"Bearer {secret}"}

    return made
