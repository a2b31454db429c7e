"""What was measured on running machines, a machine a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from tonnage.catalog import Catalog
from tonnage.catalog.market import InstanceType, Purchase
from tonnage.errors import InputError, WorkloadError
from tonnage.units import HOURS_PER_MONTH
from tonnage.values import dataclass
from tonnage.workload.tables.reading import InputColumn, InputRow

PURCHASES: Final[tuple[Purchase, ...]] = ("on_demand", "spot", "reserved_1y", "reserved_3y")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineUsage:
    """Peaks are the highest over the time measured. None: not measured. GPU figures are of one device, its mean of all
    for the utilisation (part of the time in which any kernel ran, as `nvidia-smi` reports it)."""

    name: str
    instance: InstanceType
    region: str | None
    purchase: Purchase
    hours_per_month: float
    gpu_memory_peak_gib: float | None = None
    gpu_utilisation: float | None = None
    vcpus_peak: float | None = None
    memory_peak_gib: float | None = None
    workload: str | None = None  # path of a workload file, as the table has it
    line: int = 0


def usage_columns(catalog: Catalog) -> tuple[InputColumn, ...]:
    """The columns of a usage table."""
    return (
        InputColumn(name="name"),
        InputColumn(name="provider", required=True, choices=tuple(provider.name for provider in catalog.providers)),
        InputColumn(name="instance_type", required=True),
        InputColumn(name="region"),
        InputColumn(name="purchase", choices=PURCHASES),
        InputColumn(name="hours_per_month", kind="number", required=True, maximum=744.0),
        InputColumn(name="gpu_memory_peak_gib", kind="number"),
        InputColumn(name="gpu_utilisation_percent", kind="number", maximum=100.0),
        InputColumn(name="vcpus_peak", kind="number"),
        InputColumn(name="memory_peak_gib", kind="number"),
        InputColumn(name="workload"),
    )


def parse_usage(rows: Sequence[InputRow], file: str, catalog: Catalog) -> tuple[MachineUsage, ...]:
    """Usage from the rows of a table of `usage_columns`. WorkloadError names file, line and column of what is wrong."""
    return tuple(_usage(row, file, catalog) for row in rows)


def _usage(row: InputRow, file: str, catalog: Catalog) -> MachineUsage:
    provider, name = row.text("provider"), row.text("instance_type")
    assert provider is not None
    assert name is not None
    try:
        instance = catalog.instance_type(name, provider)
    except InputError as error:
        raise WorkloadError(error.message, hint=error.hint, file=file, line=row.line, key="instance_type") from error
    region = row.text("region")
    known = {offer.region for offer in catalog.offers_of(instance)} | {
        one.name for one in catalog.regions if one.provider == provider
    }
    if region is not None and region not in known:
        hint = f"leave it empty for the cheapest, or one of: {', '.join(sorted(known)[:12])}"
        raise WorkloadError(
            f"found '{region}', no region of {provider}", hint=hint, file=file, line=row.line, key="region"
        )
    _check_peaks(row, file, instance)
    percent = row.number("gpu_utilisation_percent")
    return MachineUsage(
        name=row.text("name") or f"{provider} {instance.name}",
        instance=instance,
        region=region,
        purchase=cast(Purchase, row.text("purchase") or "on_demand"),
        hours_per_month=min(row.number("hours_per_month") or 0.0, float(HOURS_PER_MONTH)),
        gpu_memory_peak_gib=row.number("gpu_memory_peak_gib"),
        gpu_utilisation=None if percent is None else percent / 100.0,
        vcpus_peak=row.number("vcpus_peak"),
        memory_peak_gib=row.number("memory_peak_gib"),
        workload=row.text("workload"),
        line=row.line,
    )


def _check_peaks(row: InputRow, file: str, instance: InstanceType) -> None:
    """A peak above what the machine has was measured elsewhere, or in another unit."""
    for column, has, unit in (
        ("vcpus_peak", instance.vcpus, "vCPUs"),
        ("memory_peak_gib", instance.memory_gib, "GiB"),
        ("gpu_memory_peak_gib", _memory_of_one(instance), "GiB a GPU"),
    ):
        found = row.number(column)
        if found is not None and has is not None and found > has * 1.05:
            fault = f"found {found:g}, but {instance.name} has {has:g} {unit}"
            raise WorkloadError(fault, hint="check the unit: GiB, not MiB or GB", file=file, line=row.line, key=column)


def _memory_of_one(instance: InstanceType) -> float | None:
    """Memory of one device as the provider states it; 0 without a GPU, None where it is not stated."""
    if instance.accelerator is None:
        return 0.0
    if instance.gpu_memory_gib is None or not instance.accelerator_count:
        return None
    return instance.gpu_memory_gib / max(instance.accelerator_count, 1.0)
