"""Spot of an option in words, and as JSON: what interruptions are expected, and from where that is known."""

from __future__ import annotations

from typing import Any

from tonnage.reports.plain import plain_day, plain_figure, plain_number
from tonnage.reports.wording import render_date, render_duration, render_interval, short
from tonnage.spot_instances.detail import SpotDetail
from tonnage.spot_instances.knowledge import Band, SpotHazard
from tonnage.units import SECONDS_PER_HOUR


def spot_words(spot: SpotDetail) -> str:
    """Interruptions, waiting, saves; then how long such machines last and who says so."""
    lost = render_interval(spot.preemptions, "interruptions expected")
    ends = [render_duration(hours * SECONDS_PER_HOUR) for hours in (spot.waiting_h.value, spot.waiting_h.high)]
    waits = f"{ends[0]} (up to {ends[1]}) of the time is waiting for spot to return, not billed"
    return f"Spot: {lost}; {waits}; {_kept(spot)}. {_known(spot.hazard)}."


def _kept(spot: SpotDetail) -> str:
    if spot.keeps_items:
        return (
            f"each answer is kept, so what is in flight ({render_duration(spot.interval_h * SECONDS_PER_HOUR)}) is lost"
        )
    if spot.interval_h >= spot.work_h * (1 - 1e-9):
        return "the work is too short for a checkpoint on the way to pay"
    save = render_duration(spot.save_h * SECONDS_PER_HOUR)
    return f"a checkpoint of {save} after every {render_duration(spot.interval_h * SECONDS_PER_HOUR)} of work"


def _known(hazard: SpotHazard) -> str:
    at_first = f"{short(100.0 * hazard.lost_in_first_hour)} % of machines are lost in their first hour"
    rate = f"{short(hazard.per_h)} an hour over a machine's mean life ({at_first})"
    match hazard.known:
        case "stated":
            return f"Interruptions: {short(hazard.per_h)} an hour, as buy.interruptions_per_hour states"
        case "traces":
            return f"Interruptions: {rate}, from {hazard.source}"
        case "band":
            assert hazard.band is not None
            level = ", at the level of traces of machines in that band" if hazard.band.open else ""
            return f"Interruptions: {rate}, from {_band(hazard.band)}{level}"
        case _:
            return (
                f"Interruptions: {rate}, taken from traces of other machines ({hazard.source}), as no trace "
                "and no published figure speaks of this one; buy.interruptions_per_hour states what you see"
            )


def _band(band: Band) -> str:
    share = (
        f"over {short(band.low_percent)} %"
        if band.open
        else f"{short(band.low_percent)} to {short(band.high_percent)} %"
    )
    return f"{share} taken back in a month ({band.source}, read {render_date(band.read_on)})"


def spot_document(spot: SpotDetail | None) -> dict[str, Any] | None:
    """The same as values."""
    if spot is None:
        return None
    band = spot.hazard.band
    return {
        "interruptions_per_hour": plain_number(spot.hazard.per_h),
        "lost_in_first_hour": plain_number(spot.hazard.lost_in_first_hour),
        "known_from": spot.hazard.known,
        "source": spot.hazard.source,
        "band_percent_a_month": None if band is None else [band.low_percent, band.high_percent],
        "read_on": None if band is None else plain_day(band.read_on),
        "work_hours": plain_number(spot.work_h),
        "changeover_hours": plain_number(spot.startup_h),
        "save_hours": plain_number(spot.save_h),
        "interval_hours": plain_number(spot.interval_h),
        "machines_lost_together": spot.nodes,
        "items_kept_one_by_one": spot.keeps_items,
        "interruptions": plain_figure(spot.preemptions),
        "waiting_hours": plain_figure(spot.waiting_h),
    }
