"""Energy and carbon of an option, where figures for them exist; what is missing is named, never guessed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Annotated, Literal

from pydantic import Field

from tonnage.catalog import Catalog
from tonnage.comparison.profile_file import Evidence, SourceEntry
from tonnage.comparison.request import Fraction, Pue, Stated
from tonnage.comparison.user_files import Name, Text, parse_entries
from tonnage.planning.plan import Option, TokenOption
from tonnage.sizing.estimates import Basis, Figure, add_figures
from tonnage.values import dataclass
from tonnage.workload.file.fields import StrictModel

GRAMS_PER_KG = 1000.0
WATTS_PER_KW = 1000.0
GRID_UNIT = "g/kWh"


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """A number of the way from the device to the grid, and where it comes from (evidence None: stated by the user)."""

    value: float
    origin: str
    unit: str = ""
    evidence: Evidence | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingFootprint:
    """What a footprint lacks: the power of what is behind a token API, of machines without an accelerator, of a device;
    the load of a service; the PUE of a provider; the grid of a place; or the work, which is not all done there."""

    of: Literal["token power", "processor power", "power limit", "load", "PUE", "grid", "work"]
    name: str = ""  # of the device, the provider, the place


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Energy and carbon of a month. None: not known, and `missing` says which facts are missing."""

    energy_kwh: Figure | None
    carbon_kg: Figure | None
    missing: tuple[MissingFootprint, ...]
    factors: tuple[tuple[str, Factor], ...] = ()


class RangeEntry(StrictModel):
    value: Fraction
    low: Fraction
    high: Fraction
    source: Text


class ProviderEntry(StrictModel):
    pue: Pue
    pue_source: Name
    grid_source: Name
    grid_g_per_kwh: dict[Name, Annotated[float, Field(ge=0, le=2000)]]


class CarbonFile(StrictModel):
    power_fraction: RangeEntry
    idle_fraction: RangeEntry
    sources: dict[Name, SourceEntry]
    providers: dict[Name, ProviderEntry]


@lru_cache(maxsize=1)
def load_carbon() -> CarbonFile:
    """The packaged figures."""
    text = files("tonnage.comparison").joinpath("data/carbon.yaml").read_text("utf-8")
    entries, _ = parse_entries(text, CarbonFile, file="carbon.yaml", page="docs/compare.md")
    return entries


def footprint(
    option: Option, hours: Figure, catalog: Catalog, stated: Stated, *, load: float | None = 1.0
) -> Footprint:
    """kWh = devices x power limit x fraction x hours x PUE; kg = kWh x grid. The host machine is not counted.

    fraction = idle + (busy - idle) x load: a device with little to do draws little more than an idle one.

    `hours`: in a month, of all the machines of the option together, at work or waiting for it. `load`: the share of
    what they could do that they do in these hours, 0 to 1; None: not known.
    """
    watts = _device_watts(option, catalog)
    if isinstance(watts, MissingFootprint):
        return Footprint(energy_kwh=None, carbon_kg=None, missing=(watts,))
    if load is None and stated.power_fraction is None:
        return Footprint(energy_kwh=None, carbon_kg=None, missing=(MissingFootprint(of="load"),))
    pue, grid = _pue(option.provider, stated), _grid(option.provider, option.region, stated)
    if pue is None:
        missing = MissingFootprint(of="PUE", name=option.provider)
        return Footprint(energy_kwh=None, carbon_kg=None, missing=(missing,), factors=(("power limit", watts),))
    drawn, origin, basis = _drawn(load, hours.basis, stated)
    kwh_per_hour = watts.value / WATTS_PER_KW * pue.value
    energy = Figure(
        value=kwh_per_hour * drawn.value * hours.value,
        low=kwh_per_hour * drawn.low * hours.low,
        high=kwh_per_hour * drawn.high * hours.high,
        basis=basis,
    )
    factors = [("power limit", watts), ("drawn", Factor(value=drawn.value, origin=origin)), ("PUE", pue)]
    if grid is None:
        missing = MissingFootprint(of="grid", name=f"{option.provider} {option.region}".strip())
        return Footprint(energy_kwh=energy, carbon_kg=None, missing=(missing,), factors=tuple(factors))
    factors.append(("grid", grid))
    return Footprint(
        energy_kwh=energy, carbon_kg=energy.scaled(grid.value / GRAMS_PER_KG), missing=(), factors=tuple(factors)
    )


def _device_watts(option: Option, catalog: Catalog) -> Factor | MissingFootprint:
    """The power limit of all devices of an option, or what is missing."""
    if isinstance(option, TokenOption):
        return MissingFootprint(of="token power")
    if option.gpu is None:
        return MissingFootprint(of="processor power")
    device = catalog.accelerator(option.gpu)
    if device.tdp_w is None:
        return MissingFootprint(of="power limit", name=device.name)
    count = option.gpu_count * option.count
    origin = f"{count:g} x {device.name} at {device.tdp_w:g} W (catalog)"
    return Factor(value=count * device.tdp_w, origin=origin, unit="W")


def _drawn(load: float | None, basis: Basis, stated: Stated) -> tuple[Figure, str, Basis]:
    """The fraction of their power limit that the devices draw, where it comes from, and the basis of the energy."""
    if stated.power_fraction is not None:
        own = stated.power_fraction
        return Figure(value=own, low=own, high=own), "stated: carbon.power_fraction", basis
    assert load is not None
    busy, idle = load_carbon().power_fraction, load_carbon().idle_fraction

    def at(low: float, high: float) -> float:
        return low + (high - low) * min(load, 1.0)

    drawn = Figure(value=at(idle.value, busy.value), low=at(idle.low, busy.low), high=at(idle.high, busy.high))
    return drawn, f"load {100 * load:.2g} %", "assumed"


def _pue(provider: str, stated: Stated) -> Factor | None:
    if stated.pue is not None:
        return Factor(value=stated.pue, origin="stated: carbon.pue")
    known = load_carbon().providers.get(provider)
    if known is None:
        return None
    return Factor(value=known.pue, origin=f"PUE of {provider}", evidence=_evidence(known.pue_source))


def _grid(provider: str, region: str, stated: Stated) -> Factor | None:
    if stated.grid_g_per_kwh is not None:
        return Factor(value=stated.grid_g_per_kwh, origin="stated: carbon.grid_g_per_kwh", unit=GRID_UNIT)
    known = load_carbon().providers.get(provider)
    value = None if known is None else known.grid_g_per_kwh.get(region)
    if known is None or value is None:
        return None
    origin = f"grid of {provider} {region}"
    return Factor(value=value, origin=origin, unit=GRID_UNIT, evidence=_evidence(known.grid_source))


def _evidence(name: str) -> Evidence:
    return load_carbon().sources[name]


def total(found: Mapping[str, Footprint | None]) -> Footprint:
    """Over several workloads: None where one of them is not known."""
    energy = add_figures(one.energy_kwh if one else None for one in found.values()) if found else None
    carbon = add_figures(one.carbon_kg if one else None for one in found.values()) if found else None
    missing = dict.fromkeys(lack for one in found.values() if one for lack in one.missing)
    if any(one is None for one in found.values()):
        missing = {MissingFootprint(of="work"): None}
    factors = dict.fromkeys(pair for one in found.values() if one for pair in one.factors)
    return Footprint(energy_kwh=energy, carbon_kg=carbon, missing=tuple(missing), factors=tuple(factors))
