"""A device profile, and a training job on it, as reports (`device-profile-summary@1`, `local-prediction@1`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from tonnage.calibration.local_drift import DeviceDrift
from tonnage.calibration.local_profile import DeviceCurve, DeviceProfile, MeasuredPoint
from tonnage.planning.local import LocalPrediction
from tonnage.planning.reasons.misses import Miss
from tonnage.reports.blocks import Block, Heading, Page, Pairs, Paragraph
from tonnage.reports.listing import Field, Fields, cell, field_table, field_values, fields_report
from tonnage.reports.plain import plain_cost, plain_figure, plain_number
from tonnage.reports.reasons import miss_document, miss_words
from tonnage.reports.rendering import Report
from tonnage.reports.wording import (
    plural,
    render_duration,
    render_interval,
    render_money,
    render_money_interval,
    render_scaled,
    render_time_interval,
    short,
)
from tonnage.sizing.estimates import Figure

PROFILE_SCHEMA: Final = "tonnage/device-profile-summary@1"
PREDICTION_SCHEMA: Final = "tonnage/local-prediction@1"
OTHERS: Final = 0.10  # of the processors, from where on a machine is called busy (as of a run: `runs.diagnosis`)
NOISY: Final = 0.15  # spread of the repeats of one call, in logarithms
_FIGURES: Final = ("step_s", "samples_per_s", "tokens_per_s", "run_s", "peak_memory_gib")
_UNITS: Final = {"flop": "FLOP/s", "bytes": "B/s", "elements": "elements/s", "scores": "scores/s",
                 "parameters": "parameters/s", "calls": "calls/s"}  # fmt: skip


def profile_report(profile: DeviceProfile, file: str) -> Report:
    """What was measured, with its noise. The file itself holds every point."""
    return fields_report(
        lambda: Page(title=f"Device profile {profile.name}", blocks=tuple(_profile_blocks(profile, file))),
        lambda: _profile_document(profile, file),
        _POINT,
        _points(profile),
    )


def _points(profile: DeviceProfile) -> list[tuple[DeviceCurve, MeasuredPoint]]:
    return [(curve, point) for curve in profile.curves for point in curve.points]


def _profile_document(profile: DeviceProfile, file: str) -> dict[str, Any]:
    line = profile.all_reduce
    return {
        "schema": PROFILE_SCHEMA,
        "file": file,
        "name": profile.name,
        "kind": profile.kind,
        "processor": profile.identity.processor,
        "gpu": profile.identity.device,
        "memory_gib": plain_number(profile.memory_gib),
        "made_at": profile.made_at,
        "versions": dict(profile.versions),
        "load_average": plain_number(profile.load_average),
        "noise_log_sd": plain_number(profile.noise_log_sd),
        "others_cpu_fraction": plain_number(profile.others_cpu_fraction),
        "disturbed_fraction": plain_number(profile.disturbed_fraction),
        "usd_per_hour": profile.usd_per_hour,
        "rows": len(profile.rows),
        "curves": [field_values(_POINT, row) for row in _points(profile)],
        "all_reduce": None if line is None else {
            "backend": line.backend, "processes": line.processes, "alpha_s": plain_number(line.alpha_s),
            "bytes_per_s": plain_number(line.bytes_per_s),
        },
    }  # fmt: skip


def _profile_blocks(profile: DeviceProfile, file: str) -> Iterator[Block]:
    machine, line = profile.identity, profile.all_reduce
    summed = (
        profile.no_all_reduce
        if line is None
        else f"{line.processes} processes ({line.backend}): {line.alpha_s * 1e6:.0f} us + bytes / "
        f"{render_scaled(line.bytes_per_s, 'B/s')}"
    )
    yield Pairs(
        rows=(
            ("written to", file),
            ("device", machine.device or machine.processor),
            ("cores", f"{machine.physical_cores} physical, {machine.logical_cores} logical"),
            ("memory", f"{profile.memory_gib:.1f} GiB; the framework alone {profile.framework_bytes / 2**20:.0f} MiB"),
            ("measured", f"{profile.made_at}, load average {profile.load_average:.1f}"),
            ("versions", ", ".join(f"{name} {text}" for name, text in profile.versions)),
            ("other programs", "not measured" if profile.others_cpu_fraction is None else
             f"took {100 * profile.others_cpu_fraction:.0f} % of the processors meanwhile"),
            ("noise", f"{100 * profile.noise_log_sd:.0f} % between repeats (median over all points); the system took "
             f"the processor away in {100 * profile.disturbed_fraction:.0f} % of them"),
            ("sum over processes", summed),
            ("an hour costs", "not stated" if profile.usd_per_hour is None else render_money(profile.usd_per_hour)),
            ("measured rows of work", str(len(profile.rows))),
        )
    )  # fmt: skip
    yield Heading(text="Rates by size of the call: median, and the spread of the repeats")
    yield field_table(_CURVE, profile.curves)
    yield from _warnings(profile)


def _warnings(profile: DeviceProfile) -> Iterator[Block]:
    """What makes the profile worth less. Its own threads wait for one another on an idle machine too, and the load of
    the minute before is of what ran then: only what others took meanwhile says that the machine was busy."""
    others = profile.others_cpu_fraction
    if others is not None and others > OTHERS:
        text = f"This machine was busy: other programs took {100 * others:.0f} % of its processors. Measure again when "
        yield Paragraph(text=text + "it is idle, or trust the intervals less.", tone="warning")
    elif profile.noise_log_sd > NOISY:
        text = f"Repeats of one call differ by {100 * profile.noise_log_sd:.0f} %: rates here are as uncertain as that."
        yield Paragraph(text=text, tone="warning")


def _rate(choose: Callable[[list[float]], float]) -> Callable[[DeviceCurve], str]:
    return lambda curve: render_scaled(choose([1.0 / point.per_unit_s for point in curve.points]), _UNITS[curve.unit])


def local_report(name: str, prediction: LocalPrediction, broken: tuple[Miss, ...]) -> Report:
    """A training job on a measured device."""
    return Report(
        page=lambda: Page(
            title=f"{name} on {prediction.device}", blocks=tuple(_prediction_blocks(prediction, broken))
        ),
        document=lambda: _prediction_document(name, prediction, broken),
        columns=("figure", "value", "low", "high"),
        rows=lambda: [_figure_row(key, getattr(prediction, key)) for key in _FIGURES]
        + ([_figure_row("cost_usd", prediction.cost_usd)] if prediction.cost_usd else []),
    )  # fmt: skip


def drift_lines(drift: DeviceDrift | None) -> tuple[str, ...]:
    """What runs of the same work say against the profile, in words; nothing where they agree with it."""
    if drift is None:
        return ()
    said, runs = [], plural(drift.runs, "run")
    if drift.drifted:
        expected = f"{drift.expected_low:.2f} to {drift.expected_high:.2f}"
        said.append(
            f"the profile no longer holds for this work: {runs} took {drift.slower:.2f} times as long as its curves "
            f"say, {expected} were expected. The machine has another load or clock than when it was measured "
            "(`tonnage calibrate --local` measures it again), or the curves leave out what this work does"
        )
    if drift.unsteady:
        said.append(
            f"{runs} of this work took up to {drift.spread_fraction or 0:.0%} more or less than their mean (80 % of "
            "them): the machine's speed is not the same from run to run, and the interval is that of the runs"
        )
    return tuple(said)


def _drift_document(drift: DeviceDrift | None) -> dict[str, Any] | None:
    if drift is None:
        return None
    return {
        "runs": drift.runs, "slower": plain_number(drift.slower), "drifted": drift.drifted,
        "expected_low": plain_number(drift.expected_low), "expected_high": plain_number(drift.expected_high),
        "spread_fraction": plain_number(drift.spread_fraction), "unsteady": drift.unsteady,
    }  # fmt: skip


def _figure_row(key: str, figure: Figure) -> list[Any]:
    return [key, *(plain_number(getattr(figure, end)) for end in ("value", "low", "high"))]


def _prediction_document(name: str, one: LocalPrediction, broken: tuple[Miss, ...]) -> dict[str, Any]:
    work = one.work
    return {
        "schema": PREDICTION_SCHEMA,
        "workload": name,
        "device": one.device,
        "layout": {
            "precision": work.job.precision, "processes": work.processes, "threads": work.threads,
            "micro_batch": work.micro_batch, "accumulation": work.accumulation, "steps": one.steps,
        },
        **{key: plain_figure(getattr(one, key)) for key in _FIGURES},
        "memory_available_gib": plain_number(one.memory_available_gib),
        "cost_usd": None if one.cost_usd is None else plain_cost(one.cost_usd),
        "time_parts_s": {key: plain_number(seconds) for key, seconds in one.time_parts_s},
        "memory_parts_gib": {key: plain_number(size) for key, size in one.memory_parts_gib},
        "rows": {"time": one.time_rows, "memory": one.memory_rows},
        "drift": _drift_document(one.drift),
        "broken": [_broken_document(miss) for miss in broken],
    }  # fmt: skip


def _broken_document(miss: Miss) -> dict[str, Any]:
    words = miss_words(miss)
    return {"limit": miss.binding, "needs": words.needs, "has": words.has, "reason": miss_document(miss)}


def _broken(miss: Miss) -> str:
    """The limit, and the change that was thought of."""
    lifts = f" (or: {miss_words(miss).lifts})" if miss.lifted_by else ""
    return f"{miss.binding}: {miss_words(miss).clause}{lifts}"


def _prediction_blocks(one: LocalPrediction, broken: tuple[Miss, ...]) -> Iterator[Block]:
    work = one.work
    layout = f"{work.job.precision}, {work.processes} x {work.threads} threads, micro-batch {work.micro_batch}"
    cost = "unknown: the profile states no usd_per_hour"
    if one.cost_usd is not None:
        cost = f"{render_money(one.cost_usd.value)} ({render_money_interval(one.cost_usd)})"
    yield Pairs(
        rows=(
            ("layout", layout + (f" x{work.accumulation}" if work.accumulation > 1 else "")),
            ("time", f"{render_duration(one.run_s.value)} ({render_time_interval(one.run_s)}), {one.steps:,} steps"),
            ("step", f"{render_duration(one.step_s.value)} ({render_time_interval(one.step_s)})"),
            ("samples/s", render_interval(one.samples_per_s)),
            ("tokens/s", render_interval(one.tokens_per_s)),
            ("memory", f"{render_interval(one.peak_memory_gib)} of {one.memory_available_gib:.1f} GiB"),
            ("cost", cost),
            ("based on", f"the profile's curves, {one.time_rows} measured rows of time, {one.memory_rows} of memory"),
        )
    )
    for line in drift_lines(one.drift):
        yield Paragraph(text=line, tone="warning")
    for item in broken:
        yield Paragraph(text=_broken(item), tone="warning")
    yield Heading(text="Where a step's time goes")
    total = sum(seconds for _, seconds in one.time_parts_s)
    yield field_table(_parts_fields(lambda part: f"{1e3 * part:.1f} ms", total), one.time_parts_s)
    yield Heading(text="Memory at the peak")
    held = sum(size for _, size in one.memory_parts_gib)
    yield field_table(_parts_fields(lambda part: f"{short(part)} GiB", held), one.memory_parts_gib)
    yield Paragraph(text="Intervals are 80 %. Time is of training alone: no data loading, no start-up.", tone="faint")


def _parts_fields(amount: Callable[[float], str], total: float) -> Fields[tuple[str, float]]:
    return (
        cell("part", lambda row: row[0]),
        cell("amount", lambda row: amount(row[1]), right=True),
        cell("share", lambda row: f"{100 * row[1] / total:.0f} %", right=True),
    )


_POINT: Final[Fields[tuple[DeviceCurve, MeasuredPoint]]] = (
    Field("operation", lambda row: row[0].operation),
    Field("precision", lambda row: row[0].precision),
    Field("threads", lambda row: row[0].threads),
    Field("unit", lambda row: row[0].unit),
    Field("size", lambda row: row[1].size),
    Field("per_s", lambda row: 1.0 / row[1].per_unit_s),
    Field("log_sd", lambda row: row[1].timing.log_sd),
    Field("repeats", lambda row: row[1].timing.repeats),
    Field("disturbed", lambda row: row[1].timing.disturbed),
)
_CURVE: Final[Fields[DeviceCurve]] = (
    cell("operation", lambda curve: curve.operation),
    cell("precision", lambda curve: curve.precision),
    cell("threads", lambda curve: str(curve.threads), right=True),
    cell("smallest", _rate(lambda rates: rates[0]), right=True),
    cell("largest", _rate(lambda rates: rates[-1]), right=True),
    cell("best", _rate(max), right=True),
    cell("spread", lambda curve: f"{100 * max(point.timing.log_sd for point in curve.points):.0f} %", right=True),
)
