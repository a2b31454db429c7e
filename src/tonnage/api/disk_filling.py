"""Disks of places that are filled without GPUs: `tonnage.fill_place`, what each phase costs, and what it saves."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.errors import InputError
from tonnage.settings import Settings, current_settings
from tonnage.units import SECONDS_PER_HOUR, gib_to_gb
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.places.google.disks import Fill
    from tonnage.places.google.filling import FilledDisk
    from tonnage.places.google.runs import ComputeRuns
    from tonnage.reports.rendering import Report

DISK_ID: Final = "THE-ID-GOOGLE-GIVES-THE-DISK"  # in bodies that are shown before there is a disk


FILLED_OTHERWISE: Final = {  # by kind of place: what machines that share content use there
    "ec2": "FSx for Lustre, which `setup` mounts at `mount`, and `shared_mount = true`: docs/places.md",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FillOptions(Options):
    """What `places fill` does, and what its forecast assumes."""

    disk: tuple[str, ...] = option("--disk", "Only this one; may be repeated.", default=(), metavar="NAME")
    dry_run: bool = option("--dry-run", "Show each phase, its cost and every request; ask and make nothing.",
                           default=False)  # fmt: skip
    remove: bool = option("--remove", "Delete the disks, and all that was made for them.", default=False)
    gbit_per_s: float = option(
        "--gbit-per-s", "What the forecast assumes that content arrives at.", default=1.0, metavar="RATE", least=0.001,
        most=10_000.0,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FillPhase:
    """A part of the work. None: not known; `monthly_usd` is paid for as long as disks are kept."""

    what: str
    hours: float | None = None
    usd: float | None = None
    monthly_usd: float | None = None
    basis: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FillForecast:
    """What filling a disk takes, beside the same download on the machines with GPUs."""

    name: str
    disk: str
    fetched_gib: float
    phases: tuple[FillPhase, ...]
    on_gpus: FillPhase  # the download that the disk spares
    requests: tuple[dict[str, Any], ...]

    @property
    def usd(self) -> float | None:
        """Once; None where a price is not known."""
        known = [one.usd for one in self.phases if one.usd is not None]
        return sum(known) if len(known) == len([one for one in self.phases if one.hours is not None]) else None

    @property
    def saved_usd(self) -> float | None:
        """By each run that reads the disk, the disk's own price left out; the first has to pay for the filling."""
        return self.on_gpus.usd


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledPlace:
    """What became of a place's disks, or would."""

    name: str
    forecasts: tuple[FillForecast, ...] = ()
    filled: tuple[FilledDisk, ...] = ()
    removed: tuple[str, ...] = ()


def fill_place(
    name: str, options: FillOptions | None = None, *, settings: Settings | None = None,
    say: Callable[[str], None] | None = None,
) -> Answer[FilledPlace]:  # fmt: skip
    """Fill the disks of a place (`fill` in places.toml) by a machine without GPUs; what is there already is taken.

    The same call after any cut goes on. `say` gets what happens. Raises UnknownName where there is no such place,
    InputError where it has no disk to fill, TonnageError where content does not come or the cloud refuses something.
    """
    from tonnage.api.home_runs import runs_folder
    from tonnage.api.placing import executor_at
    from tonnage.places.google.runs import ComputeRuns

    chosen, options = settings or current_settings(), options or FillOptions()
    executor = executor_at(chosen, name)
    if not isinstance(executor, ComputeRuns):
        hint = FILLED_OTHERWISE.get(executor.kind, "the kind gce has `fill`: docs/places.md")
        raise InputError(
            f"{executor.name} is of the kind {executor.kind}, whose machines share no disk that is filled", hint=hint
        )
    fills = _wanted(executor, options, executor.fills(runs_folder(chosen.home), say or _said))
    if options.dry_run:
        forecasts = tuple(_forecast(chosen, one.fill, options.gbit_per_s) for one in fills)
        return Answer(FilledPlace(name=executor.name, forecasts=forecasts), _forecast_report)
    if options.remove:
        removed = tuple(gone for one in fills for gone in one.remove())
        return Answer(FilledPlace(name=executor.name, removed=removed), _done)
    return Answer(FilledPlace(name=executor.name, filled=tuple(one.carry_out() for one in fills)), _done)


def _wanted(executor: ComputeRuns, options: FillOptions, fills: tuple[Any, ...]) -> tuple[Any, ...]:
    named = {one.fill.name: one for one in fills}
    if unknown := [one for one in options.disk if one not in named]:
        raise InputError(f"places.{executor.name}.fill has no {unknown[0]}", hint=f"it has {', '.join(named)}")
    return tuple(one for name, one in named.items() if not options.disk or name in options.disk)


def _said(text: str) -> None:
    sys.stderr.write(text + "\n")


def _forecast(settings: Settings, fill: Fill, gbit_per_s: float) -> FillForecast:
    from tonnage.api.place_prices import price_at
    from tonnage.places.google.disks import filling_place
    from tonnage.relocation.copying import copy_s

    terms, place = fill.terms, fill.place
    seconds = copy_s(gib_to_gb(terms.fetched_gib), gbit_per_s)
    assert seconds is not None
    hours = seconds / SECONDS_PER_HOUR
    machine, gpus = price_at(settings, filling_place(fill)), price_at(settings, place)
    bought = "spot" if terms.spot else "on demand"
    rate = f"{terms.fetched_gib:,.0f} GiB at {gbit_per_s:g} Gbit/s, assumed"
    phases = (
        FillPhase(
            what=f"{terms.instance_type}, {bought}, fetches and verifies", hours=hours,
            usd=None if machine is None else machine.usd_per_hour * hours,
            basis=f"{rate}; {'no price is known' if machine is None else _price(machine)}",
        ),
        FillPhase(what="the disk is switched to be read by many, the machine deleted"),
        *_kept(fill),
    )  # fmt: skip
    on_gpus = FillPhase(
        what=f"the same download on {place.machines} x {place.instance_type}", hours=hours,
        usd=None if gpus is None else gpus.usd_per_hour * hours,
        basis=f"{rate}; {'no price is known' if gpus is None else _price(gpus)}",
    )  # fmt: skip
    return FillForecast(name=fill.name, disk=fill.disk, fetched_gib=terms.fetched_gib, phases=phases, on_gpus=on_gpus,
                        requests=tuple(_requests(fill)))  # fmt: skip


def _price(price: Any) -> str:
    return f"${price.usd_per_hour:,.4f} an hour ({price.lines[0].source})"


def _kept(fill: Fill) -> Iterator[FillPhase]:
    """The disk in each zone, by the month."""
    terms, zones = fill.terms, fill.place.zones
    room = None if terms.usd_per_gib_month is None else terms.usd_per_gib_month * terms.size_gib
    speed: float | None = 0.0
    if terms.throughput_mib_per_s is not None:
        each = terms.usd_per_mib_s_month
        speed = None if each is None else each * terms.throughput_mib_per_s
    monthly = None if room is None or speed is None else room + speed
    basis = "places.toml" if monthly is not None else "no price is known"
    for at, zone in enumerate(zones):
        made = "" if at == 0 else f", copied from {zones[0]} by a snapshot that is deleted again"
        yield FillPhase(
            what=f"{terms.size_gib:,} GiB of hyperdisk-ml in {zone}{made}", monthly_usd=monthly, basis=basis
        )


def _requests(fill: Fill) -> Iterator[dict[str, Any]]:
    """Every request that makes something, in order."""
    from tonnage.places.google.disks import disk_body, filling_machine, snapshot_body

    first, *others = fill.place.zones
    project = f"compute/v1/projects/{fill.place.project}"
    yield {"service": f"POST {project}/zones/{first}/disks", "body": disk_body(fill, first)}
    yield {"service": f"POST {project}/zones/{first}/instances", "body": filling_machine(fill, first, DISK_ID)}
    if others:
        yield {"service": f"POST {project}/global/snapshots", "body": snapshot_body(fill, first)}
    for zone in others:
        body = disk_body(fill, zone, snapshot=fill.disk)
        yield {"service": f"POST {project}/zones/{zone}/disks", "body": body}


def _forecast_report(found: FilledPlace) -> Report:
    from tonnage.reports.blocks import Block, Column, Heading, Page, Paragraph, Table
    from tonnage.reports.rendering import Report

    columns = (Column(title="phase", wraps=True), Column(title="hours", align="right"),
               Column(title="USD once", align="right"), Column(title="USD a month", align="right"),
               Column(title="basis", wraps=True, folds=1))  # fmt: skip

    def rows(one: FillForecast) -> tuple[tuple[str, ...], ...]:
        return tuple((each.what, _shown(each.hours), _shown(each.usd), _shown(each.monthly_usd), each.basis)
                     for each in (*one.phases, one.on_gpus))  # fmt: skip

    def page() -> Page:
        blocks: list[Block] = []
        for one in found.forecasts:
            blocks += [Heading(text=f"{one.name}: {one.disk}"), Table(columns=columns, rows=rows(one)),
                       Paragraph(text=_verdict(one))]  # fmt: skip
        blocks.append(Paragraph(text="`-o json` has every request. Nothing was asked or made.", tone="faint"))
        return Page(title=f"Filling the disks of {found.name}", blocks=tuple(blocks))

    return Report(
        page=page, document=lambda: _document(found),
        columns=("disk", "phase", "hours", "usd", "usd_per_month", "basis"),
        rows=lambda: [
            [one.name, each.what, each.hours, each.usd, each.monthly_usd, each.basis]
            for one in found.forecasts for each in (*one.phases, one.on_gpus)
        ],
    )  # fmt: skip


def _verdict(one: FillForecast) -> str:
    """What is known of both sides, and what is not."""
    filling = f"Filling costs ${one.usd:,.2f} once" if one.usd is not None else (
        f"What filling costs is not known: fill.{one.name}.usd_per_hour of the machine that fetches is missing"
    )  # fmt: skip
    saved = "what it saves is not known: the place has no price" if one.saved_usd is None else (
        f"each run that does not download on its GPUs saves ${one.saved_usd:,.2f}"
    )  # fmt: skip
    monthly = [each.monthly_usd for each in one.phases if each.monthly_usd is not None]
    kept = f"the disks cost ${sum(monthly):,.2f} a month" if monthly else (
        "what the disks cost is not known: usd_per_gib_month, and usd_per_mib_s_month of throughput"
    )  # fmt: skip
    return f"{filling}; {saved}; {kept}."


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"


def _document(found: FilledPlace) -> dict[str, Any]:
    def phase(one: FillPhase) -> dict[str, Any]:
        return {"what": one.what, "hours": one.hours, "usd": one.usd, "usd_per_month": one.monthly_usd,
                "basis": one.basis}  # fmt: skip

    return {
        "schema": "tonnage/filled-disks@1", "place": found.name,
        "forecasts": [
            {"name": one.name, "disk": one.disk, "fetched_gib": one.fetched_gib,
             "phases": [phase(each) for each in one.phases], "on_gpus": phase(one.on_gpus), "usd": one.usd,
             "saved_usd_per_run": one.saved_usd, "requests": json.loads(json.dumps(one.requests))}
            for one in found.forecasts
        ],
        "filled": [{"disk": one.name, "zones": list(one.zones), "digest": one.digest} for one in found.filled],
        "removed": list(found.removed),
    }  # fmt: skip


def _done(found: FilledPlace) -> Report:
    from tonnage.reports.blocks import Block, Bullets, Page, Paragraph
    from tonnage.reports.rendering import Report

    lines = (*(f"{one.name} in {', '.join(one.zones)}: {one.digest}" for one in found.filled),
             *(f"deleted {one}" for one in found.removed))  # fmt: skip
    blocks: list[Block] = [Bullets(items=lines) if lines else Paragraph(text="There was nothing to delete.")]
    return Report(
        page=lambda: Page(title=f"Disks of {found.name}", blocks=tuple(blocks)), document=lambda: _document(found),
        columns=("disk", "zones", "digest"), rows=lambda: [[o.name, " ".join(o.zones), o.digest] for o in found.filled],
    )  # fmt: skip
