"""Spot of one option of a plan: what is expected, and from where it is known."""

from __future__ import annotations

from tonnage.sizing.estimates import Figure
from tonnage.spot_instances.knowledge import SpotHazard
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotDetail:
    """Spot of one option. Hours and counts are expected ones; `work_h` is of one machine, without any of them."""

    hazard: SpotHazard
    work_h: float
    startup_h: float  # with the state read back
    save_h: float
    interval_h: float  # between saves; of items in flight where these are kept one by one
    nodes: int  # machines that one loss stops
    preemptions: Figure
    waiting_h: Figure
    keeps_items: bool  # each item is kept as it is answered: nothing is saved
