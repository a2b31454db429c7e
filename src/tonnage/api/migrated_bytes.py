"""What a run reads and has saved, and how each comes to another place: for `tonnage.migrate`. Nothing is copied."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tonnage.settings import Settings
from tonnage.units import GB
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.catalog.services import ServicePrices
    from tonnage.places.file import AnyPlace
    from tonnage.relocation.copying import Site
    from tonnage.relocation.relocation import Copied, SizeBasis
    from tonnage.runs.folder import RunFolder
    from tonnage.runs.spec import RunSpec
    from tonnage.workload.jobs import Workload

HERE: Final = "this machine"
SOURCES: Final = {"hf": "the hub", "sql": "the database"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    """Two places, the prices of what moves between them, and the rate of a copy."""

    before: AnyPlace
    after: AnyPlace
    services: ServicePrices
    gbit_per_s: float


def copies_of(
    settings: Settings, spec: RunSpec, folder: RunFolder | None, before: AnyPlace, after: AnyPlace, *,
    workload: Workload | None, data_gb: float | None, gbit_per_s: float,
) -> tuple[Copied, ...]:  # fmt: skip
    """Rows, weights and checkpoints. `folder`: of a run that has begun; `workload` says where its data is."""
    from tonnage.api.catalogs import market_of

    ends = _Ends(
        before=before, after=after, services=market_of(None, settings).services, gbit_per_s=gbit_per_s
    )  # fmt: skip
    found = [*_rows(spec, ends, workload, data_gb), *_models(spec, ends)]
    if folder is not None:
        found += _saved(folder, ends, workload)
    return tuple(found)


def _rows(spec: RunSpec, ends: _Ends, workload: Workload | None, data_gb: float | None) -> Iterator[Copied]:
    """The rows: those of this machine, then of the places, then of clouds."""
    from tonnage.runs.locations import is_remote

    sources = [one for one in (spec.data.train, spec.data.validation, spec.data.test) if one is not None]
    for format_, whence in SOURCES.items():
        names = [one.location for one in sources if one.format == format_]
        yield from (_fetched("rows", name, whence, ends) for name in dict.fromkeys(names))
    plain = [
        where for one in sources if one.format not in SOURCES for where in (one.location, *one.more)
    ]  # fmt: skip
    here = [one for one in dict.fromkeys(plain) if not is_remote(one) and not ends.before.holds(one)]
    if here:
        yield _sent("rows", here, ends)
    stated = data_gb if data_gb is not None or workload is None or workload.data is None else workload.data.size_gb
    for one in dict.fromkeys(plain):
        if is_remote(one) or ends.before.holds(one):
            yield _remote("rows", one, ends, size_gb=stated, workload=workload)
            stated = 0.0 if stated is not None else None  # the size is that of all rows: it is counted once


def _models(spec: RunSpec, ends: _Ends) -> Iterator[Copied]:
    from tonnage.runs.locations import is_remote

    named = dict.fromkeys(one for one in (spec.weights, spec.config, spec.tokenizer) if one is not None)
    here = [one for one in named if not is_remote(one)]
    if here:
        yield _sent("weights", here, ends)
    for one in named:
        if one.startswith("hf://"):
            yield _fetched("weights", one, SOURCES["hf"], ends)
        elif is_remote(one):
            yield _remote("weights", one, ends, size_gb=None, workload=None)


def _sent(what: str, locations: list[str], ends: _Ends) -> Copied:
    """Files of this machine: a submission brings them along, each once."""
    from tonnage.relocation.copying import copy_s
    from tonnage.relocation.relocation import Copied

    size_gb = sum(_size_gb(one) for one in locations)
    stays = ends.after.kind in {"local", "slurm"}
    return Copied(
        what=what, how="read" if stays else "sent", origin=", ".join(locations),
        target=HERE if stays else _store(ends.after),
        size_gb=size_gb, size_basis="measured", charges=(),
        time_s=0.0 if stays else copy_s(size_gb, ends.gbit_per_s),
        note="" if stays else "goes along with the run; what is there already is not sent again",
    )  # fmt: skip


def _size_gb(location: str) -> float:
    """Of a file, a folder or a pattern. InputError where nothing is there."""
    from tonnage.runs.locations import files_at

    path = Path(location)
    files = [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else files_at(location)
    return sum(one.stat().st_size for one in files) / GB


def _fetched(what: str, location: str, whence: str, ends: _Ends) -> Copied:
    from tonnage.relocation.relocation import Copied

    return Copied(
        what=what, how="fetched", origin=location, target=ends.after.kind, size_gb=None, size_basis=None, charges=(),
        time_s=None, note=f"the run takes it from {whence} there as well",
    )  # fmt: skip


def _remote(
    what: str, location: str, ends: _Ends, *, size_gb: float | None, workload: Workload | None
) -> Copied:  # fmt: skip
    """What lies at a cloud or a place: read where it lies if that is as near, else copied once."""
    from tonnage.relocation.copying import Site, copied_to, copy_commands, copy_s, egress, provider_of
    from tonnage.relocation.relocation import Copied

    origin, target = _site_of(location, ends, workload), _site_at(ends.after)
    basis: SizeBasis | None = None if size_gb is None else "stated"
    store = getattr(ends.after, "bucket", None)
    near = origin == target and origin.provider is not None
    charges = egress(ends.services, origin, target, size_gb)
    unread = ends.before.holds(location)  # a path that only the old place has
    commands = () if store is None else copy_commands(location, copied_to(location, str(store)))
    if near and not unread:
        return Copied(what=what, how="read", origin=location, target=location, size_gb=size_gb, size_basis=basis,
                      charges=(), time_s=0.0, note="it lies in the region of the machines")  # fmt: skip
    if store is None or not commands:
        why = "the place has no store of its own" if store is None else "no command is known that copies it"
        note = f"{why}: each run that reads it from afar pays for it again"
        if unread:
            note = f"{why}, and no other place sees this path: put it where {ends.after.kind} reads"
        return Copied(what=what, how="read", origin=location, target=location, size_gb=size_gb, size_basis=basis,
                      charges=charges, time_s=copy_s(size_gb, ends.gbit_per_s), note=note)  # fmt: skip
    assert isinstance(origin, Site)
    known = provider_of(location) or ends.before.kind
    once = copy_s(size_gb, ends.gbit_per_s)
    return Copied(
        what=what, how="copied", origin=location, target=copied_to(location, str(store)), size_gb=size_gb,
        size_basis=basis, charges=charges, time_s=None if once is None else once * len(commands), commands=commands,
        note=f"a run that reads them from {known} instead pays as much each time",
    )  # fmt: skip


def _saved(folder: RunFolder, ends: _Ends, workload: Workload | None) -> Iterator[Copied]:
    """The newest checkpoint: `tonnage resume --on` brings it by way of this machine."""
    from tonnage.relocation.copying import Site, copy_s, egress
    from tonnage.relocation.relocation import Copied

    if folder.state().attempt == 0 and not any(folder.checkpoints.glob("step-*")):
        return  # nothing has been saved yet
    size_gb, basis = _checkpoint_gb(folder, workload)
    there = folder.mirror_file.exists()
    passes = int(there) + int(ends.after.kind not in {"local", "slurm"})
    once = copy_s(size_gb, ends.gbit_per_s)
    yield Copied(
        what="newest checkpoint", how="sent", origin=_store(ends.before), target=_store(ends.after), size_gb=size_gb,
        size_basis=basis,
        charges=egress(ends.services, _store_site(ends.before), Site(None), size_gb) if there else (),
        time_s=None if once is None else once * passes,
        note="`tonnage resume` brings it, by way of this machine",
    )  # fmt: skip


def _checkpoint_gb(folder: RunFolder, workload: Workload | None) -> tuple[float | None, SizeBasis | None]:
    """As it lies here, else by the formula that `tonnage run` reserves memory with; None where neither tells."""
    from tonnage.sizing.local_memory import checkpoint_copy_bytes
    from tonnage.workload.jobs import TrainJob

    steps = sorted(
        (one for one in folder.checkpoints.glob("step-*") if one.name[5:].isdigit()), key=lambda one: int(one.name[5:])
    )
    if steps:
        return _size_gb(str(steps[-1])), "measured"
    if workload is not None and isinstance(workload.job, TrainJob):
        return checkpoint_copy_bytes(workload.job) / GB, "computed"
    return None, None


def _store(place: AnyPlace) -> str:
    """Where what a run has saved lies."""
    if place.kind in {"local", "slurm"}:
        return HERE
    return str(getattr(place, "bucket", None) or getattr(place, "folder", None) or f"the volume of {place.where}")


def _site_at(place: AnyPlace) -> Site:
    """Where the machines of a place are."""
    from tonnage.relocation.copying import Site

    machine = place.catalog_machine
    return Site(None) if machine is None else Site(machine.provider, machine.region)


def _store_site(place: AnyPlace) -> Site:
    """Where its bucket is: its provider by the address, its region that of the place."""
    from tonnage.relocation.copying import Site, provider_of

    at = _site_at(place)
    provider = provider_of(str(getattr(place, "bucket", "") or "")) or at.provider
    return Site(provider, at.region if provider == at.provider else None)


def _site_of(location: str, ends: _Ends, workload: Workload | None) -> Site:
    """Where rows lie: in a bucket of one of the places, else where the workload file says, else only at whose cloud."""
    from tonnage.relocation.copying import Site, provider_of

    for place in (ends.before, ends.after):
        bucket = str(getattr(place, "bucket", "") or "")
        if bucket and _same_bucket(bucket, location):
            return _store_site(place)
    provider = provider_of(location)
    data = None if workload is None else workload.data
    if data is not None and provider in (None, data.provider):
        return Site(data.provider, data.region)
    return Site(provider)


def _same_bucket(one: str, other: str) -> bool:
    """Whether two addresses are of one bucket or volume.

    >>> _same_bucket("s3://runs/tonnage", "s3://runs/rows/a.csv"), _same_bucket("s3://runs/t", "s3://rows/a")
    (True, False)
    """

    def root(address: str) -> tuple[str, ...]:
        parts = address.split("/")
        return tuple(parts[:5] if address.startswith("/Volumes/") else parts[:3])

    return root(one) == root(other)
