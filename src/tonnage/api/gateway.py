"""The gateway, started and asked: `tonnage.gateway`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.errors import InputError
from tonnage.settings import Settings, current_settings

if TYPE_CHECKING:
    from tonnage.gateway.file.described import Gateway
    from tonnage.gateway.money.rates import Rates


def load_gateway_file(path: Path | str, *, settings: Settings | None = None) -> Gateway:
    """The gateway of a file, its prices from the catalog where it says so. WorkloadError names line and key."""
    from tonnage.gateway.file.reading import load_gateway

    settings = settings or current_settings()
    return load_gateway(
        Path(path), home=settings.home, catalog_rates=partial(_catalog_rates, settings=settings),
        planned_speeds=partial(_planned_speeds, settings=settings),
    )  # fmt: skip


def run_gateway(
    path: Path | str, *, settings: Settings | None = None, say: Callable[[str], None] = print,
    on_begin: Callable[[int], None] | None = None,
) -> int:  # fmt: skip
    """Serve until SIGTERM or SIGINT; SIGHUP reads the file again. Exit code 0. Raises TonnageError."""
    from tonnage.gateway.processes import GatewayProcesses

    settings = settings or current_settings()
    gateway = load_gateway_file(path, settings=settings)
    processes = GatewayProcesses(
        gateway, settings.home / "gateway", partial(load_gateway_file, path, settings=settings), say
    )
    return processes.run(on_begin)


def _catalog_rates(name: str, *, settings: Settings) -> Rates:
    """The on-demand prices of `PLATFORM/MODEL` in the catalog, the dearest region's."""
    raise InputError(name)


def _planned_speeds(path: Path, *, settings: Settings) -> tuple[float, float]:
    raise InputError(str(path))
