"""What a service that runs has written down of itself: its record, and what it costs, in its folder at home."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import psutil
from pydantic import TypeAdapter, ValidationError

from tonnage.errors import DataError, InputError
from tonnage.files import make_private_folder, write_whole
from tonnage.units import HOURS_PER_MONTH
from tonnage.values import dataclass

RECORD: Final = "running.json"
COSTS: Final = "costs.json"
SCHEMA: Final = "tonnage/running-service@1"
LOOK_EVERY_S: Final = 0.2
Ends = tuple[float, float, float]  # value, low and high end of an 80 % interval


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCost:
    """What the plan says of the whole service, a month."""

    rank: int
    provider: str
    instance_type: str
    machines: int
    usd_per_month: float
    low_usd_per_month: float
    high_usd_per_month: float
    requests_per_month: float
    hours_per_month: float = float(HOURS_PER_MONTH)  # in which the service is held
    rate_varies: bool = False  # dollars are then of a mean day, not of the busy rate
    p95_latency_s: float | None = None  # promised; None: it is not
    tensor_parallel: int = 1
    concurrency: int | None = None  # of a replica, as planned
    predicted_p95_s: Ends | None = None  # from request to answer
    predicted_ttft_p95_s: Ends | None = None  # to the first token; None where none are generated
    predicted_tpot_p95_s: Ends | None = None  # for each token after it

    def usd_per_hour(self) -> Ends:
        """Value, low and high end."""
        hours = self.hours_per_month
        return self.usd_per_month / hours, self.low_usd_per_month / hours, self.high_usd_per_month / hours

    def usd_per_1000_requests(self) -> tuple[float, float, float]:
        """Value, low and high end."""
        each = 1000.0 / self.requests_per_month
        return self.usd_per_month * each, self.low_usd_per_month * each, self.high_usd_per_month * each


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningService:
    """A service, and the process that looks after it. `usd_per_machine_hour` None: not known."""

    name: str
    engine: str
    url: str
    pid: int
    process_started_at: float  # seconds since the epoch: a number is used again, with another start
    started_at: datetime
    replicas: tuple[int, int] | None = None  # fewest and most; None: one, without a balancer
    usd_per_machine_hour: float | None = None
    price_from: str = ""  # where that price is from, in words
    replicas_per_machine: int | None = 1  # None: all share one machine, that of the price
    workload_file: str | None = None
    planned: PlannedCost | None = None

    @property
    def is_alive(self) -> bool:
        """Whether its process is there."""
        return _process(self) is not None


_ADAPTER: Final = TypeAdapter(RunningService)


def write_record(folder: Path, service: RunningService) -> None:
    """Say that the service runs. InputError where another one of this name does."""
    other = read_record(folder)
    if other is not None and other.pid != service.pid and other.is_alive:
        raise InputError(
            f"a service named '{service.name}' runs already, as process {other.pid}",
            hint=f"--name gives this one another, `tonnage stop {service.name}` ends that one",
        )
    make_private_folder(folder)
    (folder / COSTS).unlink(missing_ok=True)
    values = {"schema": SCHEMA, **_ADAPTER.dump_python(service, mode="json")}
    write_whole(folder / RECORD, json.dumps(values, indent=2) + "\n")


@contextmanager
def recorded(folder: Path, service: RunningService) -> Iterator[None]:
    """The record exists while the block runs. InputError where another service of this name runs."""
    write_record(folder, service)
    try:
        yield
    finally:
        with suppress(DataError, OSError):
            found = read_record(folder)
            if found is not None and found.pid == service.pid:
                (folder / RECORD).unlink(missing_ok=True)


def read_record(folder: Path) -> RunningService | None:
    """The record in a service's folder; None where there is none. DataError where it cannot be read."""
    try:
        values: dict[str, Any] = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        values.pop("schema", None)
        return _ADAPTER.validate_python(values)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, ValidationError, AttributeError) as error:
        raise DataError(
            f"{folder / RECORD} cannot be read: {error}", hint="remove it, where no such service runs"
        ) from error


def running_services(home: Path) -> Iterator[RunningService]:
    """Every service that left a record, by name; those whose process is gone among them."""
    for file in sorted((home / "services").glob(f"*/{RECORD}")):
        if (found := read_record(file.parent)) is not None:
            yield found


def write_costs(folder: Path, costs: Mapping[str, Any]) -> None:
    """What it costs now; not forced to the disk, since it holds for seconds."""
    write_whole(folder / COSTS, json.dumps(dict(costs)) + "\n", durable=False)


def read_costs(folder: Path) -> dict[str, Any] | None:
    """What it said last that it costs; None where it has said nothing yet."""
    try:
        found = json.loads((folder / COSTS).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def end_service(service: RunningService, *, at_once: bool, wait_s: float | None) -> bool:
    """Ask its process to answer what is under way and to end; `at_once`: twice, so that it does not wait.

    Whether it has ended within `wait_s`; None: for as long as it takes.
    """
    process = _process(service)
    if process is None:
        return True
    with suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGTERM)
        if at_once:
            time.sleep(LOOK_EVERY_S)
            process.send_signal(signal.SIGTERM)
    until = None if wait_s is None else time.monotonic() + wait_s
    while service.is_alive:
        if until is not None and time.monotonic() >= until:
            return False
        time.sleep(LOOK_EVERY_S)
    return True


def this_process() -> tuple[int, float]:
    """Number and start of this process."""
    return os.getpid(), psutil.Process().create_time()


def _process(service: RunningService) -> psutil.Process | None:
    try:
        found = psutil.Process(service.pid)
        same = abs(found.create_time() - service.process_started_at) < 1.0
        return found if same and found.status() != psutil.STATUS_ZOMBIE else None
    except psutil.Error:
        return None
