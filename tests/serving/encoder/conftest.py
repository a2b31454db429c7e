"""Tiny encoders of each task, written once, and an application over one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
import pytest

from tonnage.testing.tiny_encoders import HEADS, write_tiny_encoder

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

Served = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture(scope="session")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Task -> folder."""
    root = tmp_path_factory.mktemp("encoders")
    return {task: write_tiny_encoder(root / task, task) for task in HEADS}


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where exported graphs are kept."""
    return tmp_path_factory.mktemp("exported")


@pytest.fixture
def served(encoders: dict[str, Path], cache: Path) -> Served:
    """A client of the application over the tiny encoder of a task; further fields of the service by name."""
    from tonnage.serving.encoder.app import App
    from tonnage.serving.encoder.caching import open_cache
    from tonnage.serving.encoder.engine import Encoder
    from tonnage.serving.encoder.service import EncoderService
    from tonnage.serving.encoder.versions import Versions

    @asynccontextmanager
    async def open_client(task: str, **changed: object) -> AsyncIterator[httpx.AsyncClient]:
        fields: dict[str, object] = {"workers": 2, "batch_tokens": 64, "exports": str(cache), **changed}
        service = EncoderService(model=str(encoders[task]), name="tiny", **fields)  # type: ignore[arg-type]
        load = partial(Encoder, cache=open_cache(service.cache_items, service.cache_url))
        fallback = None if service.fallback is None else load(replace(service, model=service.fallback))
        app = App(Versions(load(service), load, seed=0), fallback=fallback)
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://served") as client:
            yield client
        assert all(one.drain(timeout_s=10) for one in app.versions.every())

    return open_client
