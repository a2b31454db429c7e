"""What is known of how long a spot machine lasts, by provider and machine: from traces, from a published band, or wide.

Three levels of knowledge, the nearest first:

- `stated`: the workload's own `buy.interruptions_per_hour`, the same at every age, with no interval.
- `traces`: the packaged fit, where its traces are of this provider and kind of machine.
- `band`: the share of machines that the provider says it took back in a month. How long those ran is not published: a
  day is taken (4 to 168 h), so hazard = -ln(1 - share) / 24 h. The open band, over 20 %, holds machines of which there
  are traces (AWS p3): they lose 0.2 an hour, twenty times its lower end. So it takes the traces' level, with a wider
  interval.
- `other machines`: the traces' level with an interval that is wider still. Azure shows eviction rates to subscribers,
  Google preemptions to project owners; neither is public.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from functools import cache
from importlib.resources import files
from math import log
from typing import Final, Literal

import numpy as np

from tonnage.catalog.market import InstanceType
from tonnage.spot_instances.drawing import lifetime, mean_h
from tonnage.spot_instances.hazards import BUCKETS, Direction, HazardModel
from tonnage.spot_instances.model_file import packaged_model
from tonnage.values import dataclass
from tonnage.workload.jobs import BuyTerms

Known = Literal["stated", "traces", "band", "other machines"]
TRACED: Final = {"aws": ("V100", "K80"), "gcp": ()}  # accelerators of the packaged traces, by provider
TRACED_PROCESSORS: Final = ("aws", "gcp")  # machines without accelerators: r5.16xlarge and c3-highcpu-88
RUN_H: Final = 24.0  # how long a machine of a band runs if it is not taken back: judgement, 4 to 168 h
BAND_SPREAD: Final = 1.46  # of the log: 80 % within a factor of 6.5, the ends of RUN_H
OPEN_BAND_SPREAD: Final = 1.07  # sqrt(2) x the spread of zones and families in the fit: one kind of machine further
FAR_SPREAD: Final = 1.32  # sqrt(3) x: another provider too. Both are judgements
FILE: Final = "interruption-bands.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Share of machines taken back in a month, percent, as a provider publishes it."""

    low_percent: float
    high_percent: float
    read_on: date
    source: str

    @property
    def open(self) -> bool:
        return self.high_percent >= 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotHazard:
    """How long a machine lasts, and from where that is known."""

    model: HazardModel
    known: Known
    source: str
    band: Band | None = None

    @property
    def per_h(self) -> float:
        """One over the mean life of the typical zone."""
        return 1.0 / mean_h(self.model.up, 0.0)

    @property
    def lost_in_first_hour(self) -> float:
        """Chance that a machine of the typical zone is taken back within an hour of its start: the hazard falls with
        age, so short work loses more machines than `per_h` times its hours."""
        return 1.0 - float(lifetime(self.model.up, 0.0).survival(np.array([1.0]))[0])


def spot_hazard(provider: str, instance_type: str, region: str, accelerator: str | None, buy: BuyTerms) -> SpotHazard:
    """What is known of one machine in one region."""
    if buy.interruptions_per_hour is not None:
        return _stated(float(buy.interruptions_per_hour))
    if _traced(provider, accelerator):
        return SpotHazard(model=packaged_model(), known="traces", source=packaged_model().source)
    band = bands().get((provider, instance_type, region))
    return other_machines() if band is None else _banded(band)


def machine_hazard(instance: InstanceType, region: str) -> SpotHazard:
    """What plans take for a machine of which a workload states nothing. Bands are of a region: "" finds none."""
    return spot_hazard(instance.provider, instance.name, region, instance.accelerator, BuyTerms())


def _traced(provider: str, accelerator: str | None) -> bool:
    if accelerator is None:
        return provider in TRACED_PROCESSORS
    return accelerator.split("-")[0] in TRACED.get(provider, ())


@cache
def _stated(per_h: float) -> SpotHazard:
    model = packaged_model()
    up = Direction(per_h=(max(per_h, 1e-9),) * BUCKETS, log_mean=0.0, log_spread=1e-9)
    return SpotHazard(model=replace(model, up=up), known="stated", source="buy.interruptions_per_hour")


@cache
def other_machines() -> SpotHazard:
    """What is taken where nothing is known of the machine."""
    model = packaged_model()
    up = replace(model.up, log_spread=FAR_SPREAD)
    return SpotHazard(model=replace(model, up=up), known="other machines", source=model.source)


@cache
def _banded(band: Band) -> SpotHazard:
    model = packaged_model()
    if band.open:
        up = replace(model.up, log_spread=OPEN_BAND_SPREAD)
        return SpotHazard(model=replace(model, up=up), known="band", source=f"{band.source}; {model.source}", band=band)
    share = (band.low_percent + band.high_percent) / 200.0
    up = _at_rate(model.up, -log(1.0 - share) / RUN_H)
    return SpotHazard(model=replace(model, up=up), known="band", source=band.source, band=band)


def _at_rate(side: Direction, per_h: float) -> Direction:
    """The same shape over the ages, at such a level that the mean life is 1 / `per_h`."""
    low, high = -12.0, 6.0
    for _ in range(60):
        middle = (low + high) / 2.0
        found = replace(side, log_mean=middle, log_spread=BAND_SPREAD)
        low, high = (middle, high) if mean_h(found, 0.0) * per_h > 1.0 else (low, middle)
    return replace(side, log_mean=high, log_spread=BAND_SPREAD)


@cache
def bands() -> Mapping[tuple[str, str, str], Band]:
    """Published bands by provider, instance type and region."""
    text = (files("tonnage.spot_instances") / "data" / FILE).read_text(encoding="utf-8")
    return {
        (row["provider"], row["instance_type"], row["region"]): Band(
            low_percent=float(row["low_percent"]), high_percent=float(row["high_percent"]),
            read_on=date.fromisoformat(row["read_on"]), source=row["source"],
        )
        for row in csv.DictReader(text.splitlines())
    }  # fmt: skip
