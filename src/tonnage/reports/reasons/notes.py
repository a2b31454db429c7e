"""Words for notes of plans, runs and portfolios."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final, assert_never

from tonnage.planning.intervals import Interval
from tonnage.planning.reasons import notes as kinds
from tonnage.planning.reasons.notes import Note, PlanNote
from tonnage.reports.reasons.document import reason_document
from tonnage.sizing.program_profiles import UNSTATED_MEMORY

ENGINE_WORDS: Final[dict[kinds.EngineClass, str]] = {
    "eager": "a framework that launches one kernel an operation",
    "captured": "kernels of a framework, captured and replayed without the host",
    "graph": "a graph runtime that launches one kernel an operation",
    "traced": "a traced graph with some fused kernels",
    "compiled": "a compiler that fuses element-wise work",
    "inductor": "torch.compile: element-wise work fused, PyTorch's own attention kernels",
    "optimised": "an optimised graph of a general runtime",
    "converted": "a network converted for a fused-kernel engine",
    "library": "hand-written kernels of a library",
    "fused": "fused kernels, captured graphs (TensorRT class)",
    "static-llm": "captured decode steps at a fixed batch",
    "hosted-llm": "decode steps launched by a general framework",
    "llm": "continuous batching behind a compiled scheduler (TensorRT-LLM class)",
    "llm-python": "continuous batching behind a Python scheduler (vLLM class)",
}
CLOSED_FORM: Final = (
    "p95 figures are closed forms for steady arrivals, not simulated. Against the event simulation p95 latency is off "
    "by 5 to 8 % in the median for decoders, and too high for encoders (by 40 % where lengths are alike, 2 to 3 times "
    "where they vary); p95 TTFT by 39 to 56 %"
)
SERVICES: Final[dict[kinds.UnpricedService, str]] = {
    "object storage": "object storage of the data is",
    "block storage": "disks of the machines are",
}
UNREAD: Final[dict[kinds.UnreadPlatform, str]] = {
    "databricks": "Databricks Model Serving is left out: the DBU of its endpoints were not read; --platform "
    "databricks estimates them",
    "vertex": "Vertex AI endpoints are left out: the prices of their machines were not read; --platform vertex "
    "estimates them",
}
TERMS: Final[dict[kinds.TermName, tuple[str, float]]] = {
    "startup_s": ("start-up of {} min", 60.0),
    "checkpoint_gb_per_s": ("checkpoints written at {} GB/s", 1.0),
    "spot_interruptions_per_hour": ("{} interruptions an hour on spot without traces or a published band", 1.0),
}


def notes_document(notes: Iterable[Note]) -> dict[str, Any]:
    """The two keys of a document that has notes: `notes` in words, `note_values` as values."""
    listed = [(note, note_words(note)) for note in notes]
    return {
        "notes": [text for _, text in listed],
        "note_values": [reason_document(note, text) for note, text in listed],
    }


def note_words(note: Note) -> str:
    """One sentence or clause, without a capital or a full stop."""
    match note:
        case kinds.ScaledFleetNote() | kinds.FixedFleetNote():
            return _of_fleet(note)
        case kinds.LoadNote() | kinds.PoolLoadNote() | kinds.FrontEndNote() | kinds.AllocatorNote():
            return _of_run(note)
        case kinds.SharedCapacityNote(hours_per_month=hours):
            return (
                "capacity is held for all workloads at the same time; runs of one workload are spread over the month "
                f"({hours:g} h), at least one at a time"
            )
        case kinds.CommittedHoursNote():
            return "committed hours are paid whether used or not; only work bought on demand can move to them"
        case kinds.ReservedLeftOutNote():
            return "reserved prices of single workloads are left out: a reserved base is bought by `reserved`"
        case kinds.SharesNote(tolerance_fraction=tolerance):
            return f"shares are of the expected spend and hold within {100 * tolerance:g} percentage points"
        case _:
            return _of_plan(note)


def _of_fleet(note: kinds.ScaledFleetNote | kinds.FixedFleetNote) -> str:
    kept = f"{math.floor(note.kept_fraction * 1e4) / 1e4:.2%} of requests find a machine below its most"
    if isinstance(note, kinds.ScaledFleetNote):
        return (
            f"{note.least_machines} to {note.most_machines} machines, {note.machine_hours_per_day:.3g} machine-hours a "
            f"day; a fixed fleet of {note.fixed_machines} takes {note.fixed_machine_hours_per_day:.4g}. Simulated: the "
            f"control law on the stated traffic, {note.start_up_s:g} s to start, {kept}"
        )
    return (
        f"all {note.machines} machines stay on: simulated on the stated traffic, {note.start_up_s:g} s to start, the "
        f"control law saves nothing or is late ({kept})"
    )


def _of_run(note: kinds.LoadNote | kinds.PoolLoadNote | kinds.FrontEndNote | kinds.AllocatorNote) -> str:
    match note:
        case kinds.LoadNote(load_fraction=load, planned_fraction=planned, promised=promised):
            within = "within its promise" if promised else "at most"
            return f"the rate is {load:.0%} of what this fleet can carry {within}; planned to at most {planned:.0%}"
        case kinds.PoolLoadNote(prefill_fraction=prefill, decode_fraction=decode, planned_fraction=planned):
            return (
                f"the rate is {prefill:.0%} of what the replicas that read prompts can carry and {decode:.0%} of what "
                f"those that write answers can; planned to at most {planned:.0%}"
            )
        case kinds.FrontEndNote(engine=engine, accept_s=each):
            return (
                f"{engine}'s front end, not the GPU, limits a replica: {1e3 * each:.1f} ms a request ({1.0 / each:.0f} "
                "a second), measured on bursts of one installation; several API servers, or a larger batch a "
                "request, lift it"
            )
        case kinds.AllocatorNote(held_gib=held):
            return f"the allocator may hold {held:.2g} GiB more while there is room"
        case _:
            assert_never(note)


def _of_plan(note: PlanNote) -> str:
    match note:
        case kinds.EngineNote() | kinds.ClosedFormNote() | kinds.JudgedIntervalsNote() | kinds.IntervalsNote():
            return _of_predictions(note)
        case kinds.LeftOutPriceNote(row=row):
            return f"left out of the prices: {row}"
        case kinds.MoreLeftOutNote(rows=rows):
            return f"{rows} more rows are left out of the prices: `tonnage catalog check`"
        case kinds.NoOffersNote(purchase=purchase):
            return f"no {purchase} price is in the catalog: such options are left out, not free"
        case kinds.AssumedTermsNote(terms=terms):
            return "assumed, as the workload does not say: " + "; ".join(map(_term_words, terms))
        case kinds.BatchAboveSamplesNote(global_batch=batch, samples=samples):
            return (
                f"global_batch ({batch:,}) is above the {samples:,} samples of an epoch: a step is counted as full, "
                "and no program fills it"
            )
        case kinds.UnpricedServiceNote(service=service, sellers=()):
            return f"{SERVICES[service]} not in the totals: buy.prices states no price for them"
        case kinds.UnpricedServiceNote(service=service, sellers=sellers):
            where = f"{', '.join(sellers)}, not in every region"
            return (
                f"{SERVICES[service]} in the totals only where the catalog has a price ({where}): buy.prices states "
                "none"
            )
        case kinds.UnreadPlatformNote(platform=platform):
            return UNREAD[platform]
        case _:
            assert_never(note)


def _term_words(term: kinds.AssumedTerm) -> str:
    text, unit = TERMS[term.name]
    return f"{text.format(f'{term.value / unit:.2g}')} ({term.low / unit:.2g} to {term.high / unit:.2g})"


def _of_predictions(
    note: kinds.EngineNote | kinds.ClosedFormNote | kinds.JudgedIntervalsNote | kinds.IntervalsNote,
) -> str:
    match note:
        case kinds.EngineNote(engine=None, engine_class=name):
            words = ENGINE_WORDS[name]
            return f"inference figures are those of an engine of the class {name}: {words}; `engine:` names another"
        case kinds.EngineNote(engine=engine, engine_class=name):
            return f"inference figures are those of {engine} (class {name}): {ENGINE_WORDS[name]}"
        case kinds.ClosedFormNote():
            return CLOSED_FORM
        case kinds.JudgedIntervalsNote():
            return "80 % intervals are judgements: no measured rows stand behind them"
        case kinds.IntervalsNote(calibrated_on=day, intervals=intervals):
            dated = f"calibration of {day}" if day else "no calibration"
            behind = "; ".join(f"{one.of} by {interval_words(one)}" for one in intervals)
            return f"80 % intervals of the first option, {dated}: {behind}"
        case _:
            assert_never(note)


def interval_words(interval: Interval) -> str:
    """The basis of an 80 % interval."""
    measured = f"{interval.rows:,} left-out rows of {interval.families} families"
    behind = measured if interval.rows else "judgement"
    if interval.group == UNSTATED_MEMORY:
        behind += " (`train.program` says what it holds, and narrows this)"
    if not interval.unknown:
        return f"{interval.group}: {behind}"
    how = f"as {interval.far_rows:,} rows of unseen devices ask" if interval.far_rows else "by judgement"
    return f"{interval.group}: {behind}; none of {', '.join(interval.unknown)}: widened {how}"
