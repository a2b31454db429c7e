"""Whether a Spark cluster can hold a run: asked of its master, which starts nothing for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tonnage.errors import TonnageError
from tonnage.places.contract import PlaceFinding
from tonnage.places.spark.master import SparkMaster
from tonnage.places.spark.place import SparkPlace
from tonnage.reports.wording import plural

OLDEST: Final = (3, 2)
NEWEST: Final = (4, 0)  # from here on its REST server and Python have not been tried


def against(name: str, place: SparkPlace, master: SparkMaster) -> Iterator[PlaceFinding]:
    """The REST server first, by which runs are sent; then the version, and workers that have what the run takes."""
    try:
        version, page = master.version(), master.page()
    except TonnageError as error:
        yield PlaceFinding(kind="refused", message=error.message, hint=error.hint or "")
        return
    yield from against_version(version)
    if page.get("status") != "ALIVE":
        said = f"the master at {place.web_url} is {page.get('status')}"
        yield _refused(said, f"places.{name}.address, rest and web: those of the master that leads")
    yield from against_workers(name, place, page["workers"])


def against_version(version: str) -> Iterator[PlaceFinding]:
    """Of the cluster's Spark; the run brings none of its own.

    >>> [one.message for one in against_version("2.4.8")]
    ['its Spark is 2.4.8, 3.2 is needed']
    """
    found = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if found < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        yield _refused(f"its Spark is {version or 'unknown'}, {wanted} is needed", f"a cluster of Spark {wanted}")
    elif found >= NEWEST:
        said = f"its Spark is {version}: runs have been tried on 3.5 alone"
        yield PlaceFinding(kind="doubtful", message=said, hint="a short run shows whether it works")


def against_workers(name: str, place: SparkPlace, workers: Sequence[Mapping[str, Any]]) -> Iterator[PlaceFinding]:
    """Whether living workers have room for all executors and the driver; a master lets others wait forever."""
    living = [one for one in workers if one["state"] == "ALIVE"]
    keys = f"places.{name}: cores, memory_gib, gpus, nodes"
    one = f"{plural(place.cores, 'core')}, {place.memory_gib:g} GiB" + (
        f" and {place.gpus} {place.resource}" if place.gpus else ""
    )
    has = sum(_executors(place, worker) for worker in living)
    if has < place.nodes:
        said = f"its {plural(len(living), 'living worker')} hold {plural(has, 'executor')} of {one}"
        yield _refused(f"{said}, {place.nodes} are needed: it would wait forever", f"{keys}; {place.web_url}")
        return
    if not any(has - _executors(place, worker) + _executors(place, worker, driver=True) >= place.nodes
               for worker in living if _holds_driver(place, worker)):  # fmt: skip
        driver = f"{plural(place.driver_cores, 'core')} and {place.driver_memory_gib:g} GiB"
        yield _refused(
            f"no worker has room for the driver ({driver}) beside {plural(place.nodes, 'executor')}",
            f"{keys}, driver_cores, driver_memory_gib; {place.web_url}",
        )


def _executors(place: SparkPlace, worker: Mapping[str, Any], *, driver: bool = False) -> int:
    """How many the whole worker holds, whatever is on it now; `driver`: beside the driver."""
    cores = worker["cores"] - (place.driver_cores if driver else 0)
    mib = worker["memory"] - (place.driver_mib if driver else 0)
    fits = [cores // place.cores, mib // place.executor_mib]
    if place.gpus:
        announced = worker.get("resources", {}).get(place.resource, {}).get("addresses", ())
        fits.append(len(announced) // place.gpus)
    return max(0, int(min(fits)))


def _holds_driver(place: SparkPlace, worker: Mapping[str, Any]) -> bool:
    return bool(worker["cores"] >= place.driver_cores and worker["memory"] >= place.driver_mib)


def _refused(message: str, hint: str) -> PlaceFinding:
    return PlaceFinding(kind="refused", message=message, hint=hint)
