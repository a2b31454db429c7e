"""Whether a listed machine agrees with what is already known of it, and the best description of the two."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.hardware import Accelerator
from tonnage.catalog.market import InstanceType
from tonnage.errors import UnknownAccelerator, UnknownInstanceType

MEMORY_TOLERANCE = 0.03
NOT_HELD = "a machine without devices that the catalog does not hold"


class RowRejectedError(Exception):
    """A listed row is not used; the text is the reason as reports count it."""


class RowNotWantedError(RowRejectedError):
    """A row that is as it should be, and of no use here: left out, not quarantined."""


def find_device(known: Catalog, names: tuple[str, ...]) -> Accelerator:
    """The first of `names` that the accelerator table has; raises RowRejectedError when none is."""
    for name in names:
        try:
            return known.accelerator(name)
        except UnknownAccelerator:
            continue
    raise RowRejectedError(f"accelerator not in our table: {names[-1]}")


def settle(known: Catalog, listed: InstanceType) -> InstanceType:
    """The machine to use for a listing: what is known of it already, if both agree, else the listing itself.

    What is known says more (form factor of the GPU, network, links). Raises RowRejectedError when the two
    contradict each other about devices or host: listings are known to get such figures wrong.
    """
    try:
        mine = known.instance_type(listed.name, listed.provider)
    except UnknownInstanceType:
        return listed
    if abs(mine.accelerator_count - listed.accelerator_count) > 0.01:
        raise RowRejectedError(
            f"{listed.name}: listed with {listed.accelerator_count:g} devices, known with {mine.accelerator_count:g}"
        )
    if not _same_family(mine.accelerator, listed.accelerator):
        raise RowRejectedError(f"{listed.name}: listed with {listed.accelerator}, known with {mine.accelerator}")
    for what in ("vcpus", "memory_gib"):
        ours, theirs = getattr(mine, what), getattr(listed, what)
        if ours and theirs and not 0.8 <= theirs / ours <= 1.25:
            raise RowRejectedError(f"{listed.name}: listed with {what} {theirs:g}, known with {ours:g}")
    return mine


def wanted_machines(known: Catalog, regions: Sequence[str]) -> Callable[[InstanceType, str], None]:
    """Raises RowNotWantedError for a machine without devices that `known` does not hold, and for other regions.

    A cloud lists thousands of such machines; a catalog that held them all would slow every plan. `regions` empty: all.
    """
    held = {machine.key for machine in known.instance_types}

    def check(machine: InstanceType, region: str) -> None:
        if not machine.accelerator_count and machine.key not in held:
            raise RowNotWantedError(NOT_HELD)
        if regions and region not in regions:
            raise RowNotWantedError("another region")

    return check


def check_memory(device: Accelerator, count: float, gpu_memory_gib: float | None) -> None:
    """Raise RowRejectedError when the listed GPU memory (GiB, all devices) is not that of `count` devices."""
    if gpu_memory_gib is None or device.memory_gib is None:
        return
    expected = device.memory_gib * count
    if abs(gpu_memory_gib - expected) > MEMORY_TOLERANCE * expected + 1.0:
        raise RowRejectedError(f"GPU memory {gpu_memory_gib:g} GiB is not {count:g} x {device.name}")


def _same_family(ours: str | None, theirs: str | None) -> bool:
    """The same device up to form factor and memory: listings say `A100` or `H100` for several of them."""
    if ours is None or theirs is None:
        return ours == theirs
    return ours.split("-")[0] == theirs.split("-")[0]
