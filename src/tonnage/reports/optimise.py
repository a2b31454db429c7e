"""Switches for one workload on one device: predicted beside measured gains, quality, advice (`tonnage/optimise@1`)."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, Final

from tonnage.optimisations.outcomes import MeasuredSwitch, Quality, SwitchOutcome, Unpredicted
from tonnage.optimisations.predicting import Together
from tonnage.optimisations.slices import CardPacking, SlicePacking
from tonnage.planning.reasons.misses import UnpublishedMiss
from tonnage.reports.blocks import Block, Bullets, Page, Paragraph
from tonnage.reports.listing import Field, Fields, cell, field_table, field_values, fields_report, figure_fields
from tonnage.reports.plain import plain_figure, plain_number
from tonnage.reports.reasons.miss_words import miss_words
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, plural, render_scaled_interval
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass
from tonnage.workload.jobs import Kind, TrainPrecision

OPTIMISE_SCHEMA: Final = "tonnage/optimise@1"
VISIBLE: Final = 1.01  # from how much more than the product of single gains the page says why
UNITS: Final = {"train": "samples/s", "serve": "/s", "batch": "/s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimisationsFound:
    """What there is to switch on. `base`: the rate of the work as it is stated; `base_measured`: the same, measured.

    `auto_precision`: what `train.precision: auto` is on the device, where the work says so; `others`: further GPUs that
    the name given could mean.
    """

    name: str
    kind: Kind
    device: str
    base: Figure | Unpredicted
    outcomes: tuple[SwitchOutcome, ...]
    together: Together | None
    packing: CardPacking | None
    base_measured: MeasuredSwitch | None
    most_loss: float
    catalog: str | None
    auto_precision: TrainPrecision | None = None
    others: tuple[str, ...] = ()


def optimise_report(found: OptimisationsFound) -> Report:
    """One row a switch; below, how each is switched on and what is not known."""
    return fields_report(lambda: _page(found), lambda: _document(found), _row(found), found.outcomes)


def _page(found: OptimisationsFound) -> Page:
    blocks: list[Block] = []
    if found.others:
        text = f"{len(found.others) + 1} GPUs have such a name; this is the one that most prices are of, beside "
        blocks.append(Paragraph(text=f"{text}{', '.join(found.others)}: `--gpu` takes a whole name."))
    blocks += [Paragraph(text=_base_words(found)), field_table(_cells(found), found.outcomes)]
    if found.together is not None:
        gain = found.together.gain
        text = f"Together, as predicted: {', '.join(found.together.names)}: {_times(gain)}."
        blocks.append(Paragraph(text=text + _beyond_product(found, gain.value)))
    blocks.append(Bullets(items=tuple(f"{one.switch.name}: {'; '.join(_remarks(one))}." for one in found.outcomes)))
    if found.packing is not None:
        blocks += [
            Paragraph(text=_packing_words(found.packing)),
            field_table(_SLICE_CELLS, found.packing.slices),
        ]
    loss = (
        f"A switch that loses more than {found.most_loss:.2%} of accuracy is refused. " if found.base_measured else ""
    )
    blocks.append(
        Paragraph(
            text=f"{loss}«switch on»: the whole 80 % interval of the gain lies above 1; «open»: a part of it.",
            tone="faint",
        )
    )
    return Page(title=f"Switches for {found.name} on {found.device}", blocks=tuple(blocks))


def _beyond_product(found: OptimisationsFound, gain: float) -> str:
    """Why switches together can gain more than each alone multiplied."""
    assert found.together is not None
    alone = prod(one.gain.value for one in found.outcomes
                 if one.gain is not None and one.switch.name in found.together.names)  # fmt: skip
    if len(found.together.names) < 2 or gain < alone * VISIBLE:
        return ""
    return (
        f" That is more than their product ({alone:.2f}x): a step takes the longer of what the device computes and "
        "what the host launches, so that one switch frees what another then saves."
    )


def _base_words(found: OptimisationsFound) -> str:
    unit = UNITS.get(found.kind, "/s")
    auto = "" if found.auto_precision is None else f" (`train.precision: auto` is {found.auto_precision} here)"
    parts = [
        f"As stated{auto}: {_why(found.base)}." if isinstance(found.base, Unpredicted)
        else f"As stated{auto}: {_rate(found.base, unit)} predicted."
    ]  # fmt: skip
    measured = found.base_measured
    if measured is not None and measured.rate_per_s is not None:
        parts.append(f"Measured: {_rate(measured.rate_per_s, unit)} over {plural(measured.turns, 'turn')}.")
    return " ".join(parts)


def _remarks(one: SwitchOutcome) -> Iterator[str]:
    yield one.switch.how
    if one.why_none is not None:
        yield f"not predicted: {_why(one.why_none)}"
    measured = one.measured
    if measured is None:
        return
    if measured.reason is not None:
        yield f"not measured: {measured.reason}"
    if measured.quality is not None and measured.quality.loss.high > 0:
        yield _quality_words(measured.quality)
    elif measured.agreement is not None:
        yield f"{measured.agreement:.2%} of answers are the same"


def _quality_words(quality: Quality) -> str:
    loss = quality.loss
    kind = "the same rows" if quality.paired else "two trained models"
    return (
        f"{quality.metric} {quality.before:.4f} before, {quality.after:.4f} after on {quality.rows:,} rows: a loss of "
        f"{loss.value:.2%} ({loss.low:.2%} to {loss.high:.2%}; {kind})"
    )


def _why(why: Unpredicted) -> str:
    if why.miss is None:
        return why.said
    words = miss_words(why.miss)
    return words.needs if isinstance(why.miss, UnpublishedMiss) else words.clause


def _rate(figure: Figure, unit: str) -> str:
    return render_scaled_interval(figure, unit)


def _times(figure: Figure | None) -> str:
    if figure is None:
        return UNKNOWN
    return f"{figure.value:.2f}x ({figure.low:.2f}–{figure.high:.2f})"


def _measured_gain(one: SwitchOutcome) -> str:
    if one.measured is None or one.measured.left_out:
        return UNKNOWN
    return "failed" if one.measured.gain is None else _times(one.measured.gain)


def _quality_cell(one: SwitchOutcome) -> str:
    quality = None if one.measured is None else one.measured.quality
    return UNKNOWN if quality is None else f"{quality.before:.3f} → {quality.after:.3f}"


def _cells(found: OptimisationsFound) -> Fields[SwitchOutcome]:
    cells: list[Field[SwitchOutcome]] = [
        cell("switch", lambda one: one.switch.name, wraps=True),
        cell("predicted gain (80 %)", lambda one: _times(one.gain), right=True),
    ]
    if found.base_measured is not None:
        cells.append(cell("measured gain (80 %)", _measured_gain, right=True))
    if any(one.measured is not None and one.measured.quality is not None for one in found.outcomes):
        cells.append(cell("accuracy", _quality_cell, right=True))
    cells.append(cell("advice", lambda one: one.advice(found.most_loss)))
    return tuple(cells)


def _packing_words(packing: CardPacking) -> str:
    asked, best = f"{packing.asked_per_s:g} requests/s", packing.best
    if best is None:
        whole = "more than one card" if packing.whole_cards is None or packing.whole_cards > 1 else "a whole card"
        return f"Slices of {packing.card} (MIG): none of which a card holds several carries {asked}: it needs {whole}."
    return (
        f"Slices of {packing.card} (MIG): a service of {asked} fits into {best.slice.name}, of which a card holds "
        f"{best.services}: beside a card for each service that saves {best.saved_fraction:.0%} of the cards."
    )


def _document(found: OptimisationsFound) -> dict[str, Any]:
    return {
        "schema": OPTIMISE_SCHEMA,
        "workload": found.name,
        "kind": found.kind,
        "device": found.device,
        "catalog": found.catalog,
        "auto_precision": found.auto_precision,
        "other_gpus": list(found.others),
        "max_loss_fraction": found.most_loss,
        "as_stated": {
            "predicted_per_s": None if isinstance(found.base, Unpredicted) else plain_figure(found.base),
            "why_not_predicted": _why(found.base) if isinstance(found.base, Unpredicted) else None,
            "measured_per_s": plain_figure(None if found.base_measured is None else found.base_measured.rate_per_s),
        },
        "switches": [field_values(_row(found), one) for one in found.outcomes],
        "together": None if found.together is None else {
            "switches": list(found.together.names), "gain": plain_figure(found.together.gain),
            "predicted_per_s": plain_figure(found.together.rate_per_s),
        },
        "slices": None if found.packing is None else {
            "card": found.packing.card, "asked_per_s": plain_number(found.packing.asked_per_s),
            "whole_card_per_s": _known(found.packing.whole), "whole_cards": found.packing.whole_cards,
            "kinds": [field_values(_SLICE, one) for one in found.packing.slices],
        },
    }  # fmt: skip


def _known(rate: Figure | Unpredicted) -> dict[str, Any] | None:
    return None if isinstance(rate, Unpredicted) else plain_figure(rate)


def _of_measured(one: SwitchOutcome, name: str) -> Any:
    return None if one.measured is None else getattr(one.measured, name)


def _of_quality(one: SwitchOutcome, name: str) -> Any:
    quality = _of_measured(one, "quality")
    return None if quality is None else getattr(quality, name)


def _row(found: OptimisationsFound) -> Fields[SwitchOutcome]:
    return (
        Field("switch", lambda one: one.switch.name),
        Field("group", lambda one: one.switch.group),
        *figure_fields("predicted_gain{}", lambda one: one.gain),
        Field("why_not_predicted", lambda one: None if one.why_none is None else _why(one.why_none)),
        *figure_fields("measured_gain{}", lambda one: _of_measured(one, "gain")),
        *figure_fields("measured_per_s{}", lambda one: _of_measured(one, "rate_per_s")),
        Field("turns", lambda one: _of_measured(one, "turns")),
        Field("why_not_measured", lambda one: _of_measured(one, "reason")),
        Field("quality_metric", lambda one: _of_quality(one, "metric")),
        Field("quality_before", lambda one: _of_quality(one, "before")),
        Field("quality_after", lambda one: _of_quality(one, "after")),
        Field("quality_rows", lambda one: _of_quality(one, "rows")),
        *figure_fields("quality_loss{}", lambda one: _of_quality(one, "loss")),
        Field("same_answers_fraction", lambda one: _of_measured(one, "agreement")),
        *figure_fields("peak_rss_bytes{}", lambda one: _of_measured(one, "peak_rss_bytes")),
        *figure_fields("warm_up_s{}", lambda one: _of_measured(one, "warm_up_s")),
        Field("advice", lambda one: one.advice(found.most_loss)),
        Field("how", lambda one: one.switch.how),
    )


_SLICE: Final[Fields[SlicePacking]] = (
    Field("slice", lambda one: one.slice.name),
    Field("instances", lambda one: one.slice.instances),
    Field("memory_gib", lambda one: one.slice.memory_gib),
    Field("per_slice_per_s", lambda one: _known(one.rate_per_s)),
    Field("why_not", lambda one: _why(one.rate_per_s) if isinstance(one.rate_per_s, Unpredicted) else None),
    Field("services_per_card", lambda one: one.services),
    Field("cards", lambda one: one.cards),
    Field("saved_fraction", lambda one: one.saved_fraction),
    Field("source", lambda one: one.slice.source.text),
)
_SLICE_CELLS: Final[Fields[SlicePacking]] = (
    cell("slice", lambda one: one.slice.name),
    cell("a card", lambda one: str(one.slice.instances), right=True),
    cell("carries", lambda one: _why(one.rate_per_s) if isinstance(one.rate_per_s, Unpredicted)
         else _rate(one.rate_per_s, "/s"), right=True, wraps=True),
    cell("services a card", lambda one: str(one.services) if one.services else UNKNOWN, right=True),
    cell("cards saved", lambda one: UNKNOWN if one.saved_fraction is None else f"{one.saved_fraction:.0%}", right=True),
)  # fmt: skip
