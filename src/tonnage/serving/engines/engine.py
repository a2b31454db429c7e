"""What every serving engine does: it renders a complete command; and the encoder server as an engine, whose command is
this Python with the service's file. Starting, watching and ending it is the same for all (`processes`).
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Final, Protocol, TypeVar

from pydantic import TypeAdapter

from tonnage.serving.encoder.service import EncoderService, dump_service
from tonnage.values import dataclass

Service_contra = TypeVar("Service_contra", contravariant=True)
SERVICE_FILE: Final = "service.json"
KEY_VARIABLE: Final = "TONNAGE_SERVE_KEY"
RUNNING: Final = "tonnage_encoder_texts_computing"
WAITING: Final = "tonnage_encoder_texts_waiting"
ANSWERED: Final = 'tonnage_encoder_requests_total{status="200"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFile:
    """A file the engine reads; its path starts at the replica's folder."""

    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlace:
    """Where a replica listens and keeps its files. `api_key`: requests must carry a key, which the engine's variable
    holds; it is in no command."""

    folder: str
    port: int
    host: str = "127.0.0.1"
    api_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCommand:
    """What starts one replica. Secrets are named; their values come from the environment of the process that starts it.

    `health`: the path that answers 200 once requests are taken. `metrics`: the path of Prometheus' text, with
    `running` and `waiting`, the gauges of requests worked on and queued; None: the engine has none. `requests`,
    `input_tokens` and `output_tokens`: its counters of what was answered, with a label where not all of a name counts.
    """

    engine: str
    argv: tuple[str, ...]
    host: str
    port: int
    health: str
    metrics: str | None = None
    running: str | None = None
    waiting: str | None = None
    requests: str | None = None
    input_tokens: str | None = None
    output_tokens: str | None = None
    env: tuple[tuple[str, str], ...] = ()  # set for the command, over what it inherits
    secrets: tuple[str, ...] = ()
    drains: bool = False  # on SIGTERM it finishes what it took; others are asked whether they work on anything first
    files: tuple[EngineFile, ...] = ()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def command_line(self) -> str:
        """The command as a shell takes it."""
        return shlex.join(self.argv)

    def document(self) -> dict[str, Any]:
        """The command as JSON values."""
        found: dict[str, Any] = TypeAdapter(EngineCommand).dump_python(self, mode="json")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """Requests that a replica works on, and that wait inside it. None: its metrics do not say."""

    running: float | None
    waiting: float | None


class ServingEngine(Protocol[Service_contra]):
    """One engine: what it is called, and how a service becomes its command."""

    @property
    def name(self) -> str: ...

    def render(self, service: Service_contra, place: EnginePlace) -> EngineCommand:
        """The command of one replica: complete, readable, every argument one that the engine takes; nothing is touched.

        Raises InputError (or UnknownName) for a setting that the engine has no argument for.
        """


@dataclass(frozen=True, slots=True)
class EncoderEngine:
    """The engine of models that write no tokens. See `ServingEngine`."""

    name: str = "encoder"

    def render(self, service: EncoderService, place: EnginePlace) -> EngineCommand:
        """The command of one replica, with the service as its file; it is ready once model and queue are."""
        key = KEY_VARIABLE if place.api_key else None
        placed = replace(service, host=place.host, port=place.port, key_variable=key)
        file = str(PurePosixPath(place.folder) / SERVICE_FILE)
        return EngineCommand(
            engine=self.name, argv=(sys.executable, "-m", "tonnage.serving.encoder", file), host=place.host,
            port=place.port, health="/ready", metrics="/metrics", running=RUNNING, waiting=WAITING,
            requests=ANSWERED,
            secrets=(key,) if key else (), drains=True,
            files=(EngineFile(path=SERVICE_FILE, text=dump_service(placed)),),
        )  # fmt: skip
