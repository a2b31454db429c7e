"""The encoder server as an engine: its command is this Python with the service's file."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from tonnage.serving.encoder.service import EncoderService, dump_service
from tonnage.serving.engines.engine import EngineCommand, EngineFile, EnginePlace
from tonnage.values import dataclass

SERVICE_FILE: Final = "service.json"
KEY_VARIABLE: Final = "TONNAGE_SERVE_KEY"
RUNNING: Final = "tonnage_encoder_texts_computing"
WAITING: Final = "tonnage_encoder_texts_waiting"
ANSWERED: Final = 'tonnage_encoder_requests_total{status="200"}'


@dataclass(frozen=True, slots=True)
class EncoderEngine:
    """The engine of models that write no tokens. See `ServingEngine`."""

    name: str = "encoder"

    def render(self, service: EncoderService, place: EnginePlace) -> EngineCommand:
        """The command of one replica, with the service as its file; it is ready once model and queue are."""
        key = KEY_VARIABLE if place.api_key else None
        told = replace(service, host=place.host, port=place.port, key_variable=key)
        file = str(PurePosixPath(place.folder) / SERVICE_FILE)
        return EngineCommand(
            engine=self.name, argv=(sys.executable, "-m", "tonnage.serving.encoder", file), host=place.host,
            port=place.port, health="/ready", metrics="/metrics", running=RUNNING, waiting=WAITING,
            requests=ANSWERED,
            secrets=(key,) if key else (), drains=True, files=(EngineFile(path=SERVICE_FILE, text=dump_service(told)),),
        )  # fmt: skip
