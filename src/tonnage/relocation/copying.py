"""What leaves one place for another: by which command, at whose price, in which time. Pure."""

from __future__ import annotations

import shlex
from glob import has_magic
from itertools import takewhile
from typing import Final

from tonnage.catalog.services import Service, ServicePrices
from tonnage.pricing.extras import Charge, listed_charges
from tonnage.units import gbit_to_gb_per_s
from tonnage.values import dataclass

SCHEMES: Final = {"s3": "aws", "gs": "gcp", "az": "azure", "abfs": "azure", "abfss": "azure", "hf": "huggingface"}
VOLUMES: Final = "/Volumes/"
HALFWAY: Final = "moved"  # a folder of this machine


@dataclass(frozen=True, slots=True)
class Site:
    """Where bytes lie: who bills what leaves, and in which region. None: no cloud of the catalog, or not known."""

    provider: str | None
    region: str | None = None


def provider_of(location: str) -> str | None:
    """Who keeps what a location names; None of a path, a volume or a database.

    >>> provider_of("s3://rows/train"), provider_of("gs://rows"), provider_of("/data/rows.csv")
    ('aws', 'gcp', None)
    """
    scheme, separator, _ = location.partition("://")
    return SCHEMES.get(scheme.lower()) if separator else None


def egress(services: ServicePrices, origin: Site, target: Site, size_gb: float | None) -> tuple[Charge, ...] | None:
    """What the origin's provider charges for what leaves it, once; empty where nothing is, None where it is not known.

    What leaves a machine of one's own is billed by no provider of the catalog; within one region nothing is charged.
    """
    inside = origin.provider == target.provider
    if origin.provider is None or size_gb == 0 or (origin == target and origin.region is not None):
        return ()
    if size_gb is None or origin.region is None or (inside and target.region is None):
        return None
    service: Service = "egress region" if inside else "egress internet"
    return listed_charges(services, service, (origin.provider, origin.region), size_gb)


def copy_s(size_gb: float | None, gbit_per_s: float) -> float | None:
    """Seconds at a rate in Gbit/s (10⁹ bits); None where the size is not known.

    >>> copy_s(125.0, 1.0)
    1000.0
    """
    return None if size_gb is None else size_gb / gbit_to_gb_per_s(gbit_per_s)


def copied_to(location: str, store: str) -> str:
    """Where a copy of what a location names lies below another store: the same last part of its name, below `data`.

    >>> copied_to("s3://rows/train/*.jsonl", "gs://runs/t"), copied_to("s3://rows/train.csv", "gs://runs/t")
    ('gs://runs/t/data/train/*.jsonl', 'gs://runs/t/data/train.csv')
    """
    base, pattern = _base(location)
    return "/".join((store, "data", base.rpartition("/")[2], *([pattern] if pattern else [])))


def copy_commands(origin: str, target: str) -> tuple[str, ...]:
    """Commands that copy what one location names to another: the providers' own.

    Between two stores that no single command reads, by way of this machine. Empty where none is known here.

    >>> copy_commands("s3://rows/train/*.jsonl", "gs://runs/data/train/*.jsonl")
    ('gcloud storage cp --recursive s3://rows/train gs://runs/data',)
    >>> copy_commands("/Volumes/main/ml/rows/train.csv", "s3://runs/data/train.csv")
    ('databricks fs cp dbfs:/Volumes/main/ml/rows/train.csv moved/train.csv', 'aws s3 cp moved/train.csv s3://runs/data/train.csv')
    """
    origin, target = _base(origin)[0], _base(target)[0]
    within = _command(origin, target)
    if within is not None:
        return (within,)
    halfway = f"{HALFWAY}/{origin.rpartition('/')[2]}"
    away, home = _command(origin, halfway), _command(halfway, target)
    return () if away is None or home is None else (away, home)


def _command(origin: str, target: str) -> str | None:
    """The one command that reads both; None where there is none. A folder goes into the folder above its copy."""
    ends = (origin, target)
    folder = not _is_file(origin)
    more = ("--recursive",) if folder else ()
    if all(one.startswith("s3://") or "://" not in one for one in ends) and not _on_volume(*ends):
        return shlex.join(("aws", "s3", "cp", *more, *ends))
    if _on_volume(*ends) and not any("://" in one for one in ends):
        named = (f"dbfs:{one}" if _on_volume(one) else one for one in ends)
        return shlex.join(("databricks", "fs", "cp", *more, *named))
    if all(one.startswith(("s3://", "gs://")) or "://" not in one for one in ends) and not _on_volume(*ends):
        return shlex.join(("gcloud", "storage", "cp", *more, origin, target.rpartition("/")[0] if folder else target))
    return None


def _on_volume(*locations: str) -> bool:
    return any(one.startswith(VOLUMES) for one in locations)


def _base(location: str) -> tuple[str, str]:
    """The file or folder that a location names, and the pattern below it."""
    scheme, separator, path = location.partition("://")
    parts = (path if separator else location).rstrip("/").split("/")
    plain = list(takewhile(lambda part: not has_magic(part), parts))
    base, pattern = "/".join(plain), "/".join(parts[len(plain) :])
    return (f"{scheme}://{base}" if separator else base), pattern


def _is_file(location: str) -> bool:
    return "." in location.rpartition("/")[2]
