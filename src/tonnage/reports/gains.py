"""Promised gains beside what they come to for one workload (`tonnage/gains@1`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from tonnage.catalog import Catalog
from tonnage.claimed_gains.gain import Among, CheapestOnDemand, Evidence, FollowingFleet, Gain, PromisedGain, Side
from tonnage.reports.blocks import Block, Bullets, Page, Pairs, Paragraph
from tonnage.reports.listing import Field, Fields, cell, field_table, field_values, fields_report, figure_fields
from tonnage.reports.plain import plain_figure, plain_number, plain_usd
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, plural, render_money, render_scaled
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass

GAINS_SCHEMA: Final = "tonnage/gains@1"
SUBJECTS: Final[Mapping[str, str]] = MappingProxyType({
    "spot": "spot, cost saved", "autoscaling": "autoscaling, cost saved", "right-sizing": "right-sizing, cost saved",
    "arm": "Arm beside x86, cost saved", "h100": "one H100 beside the processor",
    "a100": "one A100 beside the processor", "providers": "difference between providers",
})  # fmt: skip
LACKS: Final[Mapping[str, str]] = MappingProxyType({
    "no spot price": "no machine that holds the work has a spot price in the catalog",
    "never on spot": "the work cannot be interrupted, so it is not planned on spot",
    "no on-demand price": "no machine with a spot price is also sold on demand",
    "no traffic": "the file states no traffic: `serve.traffic` with `peak_to_trough`, `hourly` or a trace",
    "not a service": "the work ends: there is no load to follow",
    "too short a trace": "the traffic is too short for a simulation beside the time that a machine takes to start",
    "no relied-on option": "no option that one would rely on holds the work",
    "no other machine": "only one machine holds the work",
    "not another machine's name": "no option of the plan has that instance type",
    "no local profile": "no processor has been measured: `tonnage calibrate --local` measures this one in a minute",
    "not measured here": "the profile of this machine does not cover this kind of work",
    "device does not hold it": "one GPU of this kind does not hold the work",
    "engine of processors": "this engine trains on processors alone",
    "engine not modelled": "nothing predicts this engine before `tonnage calibrate --tabular` has read rows of it",
    "no rows on these processors": "no measured row is of such processors: run the work on both and compare",
    "no rows by provider": "no measured row names its provider: run the same work on both and compare",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GainsFound:
    """The gains of one workload, with the catalog that they come from."""

    name: str
    gains: tuple[Gain, ...]
    catalog: Catalog


def gains_report(found: GainsFound) -> Report:
    """One row a promised gain; below, how each figure came about."""
    return fields_report(lambda: _page(found), lambda: _document(found), _ROW, found.gains)


def _page(found: GainsFound) -> Page:
    known = [one for one in found.gains if one.figure is not None]
    holding = sum(one.verdict == "holds" for one in known)
    counted = f"Of {plural(len(found.gains), 'promised gain')} {holding} {'holds' if holding == 1 else 'hold'}"
    rest = len(found.gains) - len(known)
    blocks: list[Block] = [
        Paragraph(text=f"{counted}; {rest} cannot be computed." if rest else f"{counted}."),
        field_table(_CELLS, found.gains),
        Bullets(items=tuple(f"{SUBJECTS[one.target.subject]}: {words_of(one)}" for one in found.gains)),
        Pairs(rows=(("prices", f"catalog {found.catalog.name} (built {found.catalog.built_on})"),)),
        Paragraph(
            text="A gain holds where both ends of its 80 % interval reach the promise; it is open where one does.",
            tone="faint",
        ),
    ]
    return Page(title=f"Gains of {found.name}", blocks=tuple(blocks))


def words_of(gain: Gain) -> str:
    """How a figure came about, or what is missing."""
    return "; ".join(_parts(gain)) + "."


def _parts(gain: Gain) -> Iterator[str]:
    if gain.lack is not None:
        yield f"unknown{f' ({gain.said})' if gain.said else ''}: {LACKS[gain.lack]}"
    if gain.before is not None and gain.after is not None and gain.figure is not None:
        yield f"{_side(gain.after)} beside {_side(gain.before)}"
    elif gain.after is not None and gain.after.per_s is not None:
        yield f"{_side(gain.after)} predicted"
    if gain.among is not None:
        if gain.after is not None and gain.before is None:
            yield f"{_side(gain.after)} beside the other machines that hold the work; --against names the one you run"
        among, what = gain.among, "machines sold both ways" if gain.target.subject == "spot" else "machines"
        yield f"over {among.pairs:,} {what}: {among.least:.0%} to {among.most:.0%}, median {among.median:.0%}"
    if gain.evidence is not None:
        yield _evidence(gain.evidence, gain)


def _evidence(found: Evidence, gain: Gain) -> str:
    if isinstance(found, CheapestOnDemand):
        return f"{found.saved:.0%} beside the cheapest on demand, {found.name}"
    if isinstance(found, FollowingFleet):
        if found.least is None:
            return f"{found.fixed} of {found.machine} carries the busy rate: there is nothing to scale"
        return (
            f"{found.least} to {found.most} of {found.machine} by the traffic in place of {found.fixed}; "
            f"{found.kept_fraction:.2%} of requests find a machine below its most"
        )
    assert gain.before is not None
    assert gain.after is not None
    return (
        f"{gain.after.name} costs {found.price:.0%} of {gain.before.name} (the middle of {plural(found.pairs, 'pair')} "
        f"with as many vCPUs and as much memory): the promise holds from {found.speed:.0%} of its speed"
    )


def _side(side: Side) -> str:
    if side.usd is not None:
        return f"{side.name} ({render_money(side.usd.value)})"
    return side.name if side.per_s is None else f"{side.name} ({render_scaled(side.per_s.value, '/s')})"


def _shown(target: PromisedGain, figure: Figure | None) -> str:
    if figure is None:
        return UNKNOWN
    if target.unit == "times":
        return f"{_times(figure.value)} ({_times(figure.low)}–{_times(figure.high)})"
    return f"{figure.value:.0%} ({figure.low:.0%}–{figure.high:.0%})"


def _times(value: float) -> str:
    return f"{value:.3g}x"


def _promised(target: PromisedGain) -> str:
    if target.unit == "times":
        return _times(target.least)
    if target.unit == "spread":
        return f"below {target.least:.0%}"
    return f"{target.least:.0%}" + (f"–{target.most:.0%}" if target.most is not None else "")


def _document(found: GainsFound) -> dict[str, Any]:
    return {
        "schema": GAINS_SCHEMA,
        "workload": found.name,
        "catalog": {"snapshot": found.catalog.name, "built_on": found.catalog.built_on.isoformat()},
        "gains": [field_values(_GAIN, one) for one in found.gains],
    }


def _side_document(side: Side | None) -> dict[str, Any] | None:
    if side is None:
        return None
    cost = None if side.usd is None else {
        "value": plain_usd(side.usd.value), "low": plain_usd(side.usd.low), "high": plain_usd(side.usd.high),
        "basis": side.usd.basis,
    }  # fmt: skip
    return {"name": side.name, "cost_usd": cost, "work_per_s": plain_figure(side.per_s)}


def _among_document(among: Among | None) -> dict[str, Any] | None:
    if among is None:
        return None
    parts = {"least": among.least, "median": among.median, "most": among.most}
    return {"pairs": among.pairs} | {name: plain_number(value) for name, value in parts.items()}


_HEAD: Final[Fields[Gain]] = (
    Field("gain", lambda one: one.target.subject),
    Field("unit", lambda one: {"saving": "fraction", "times": "times", "spread": "fraction"}[one.target.unit]),
    Field("promised", lambda one: plain_number(one.target.least)),
    Field("promised_up_to", lambda one: plain_number(one.target.most)),
)
_GAIN: Final[Fields[Gain]] = (
    *_HEAD,
    Field("figure", lambda one: one.figure, json=plain_figure),
    Field("verdict", lambda one: one.verdict),
    Field("lack", lambda one: one.lack),
    Field("before", lambda one: one.before, json=_side_document),
    Field("after", lambda one: one.after, json=_side_document),
    Field("among", lambda one: one.among, json=_among_document),
    Field("how", words_of),
)
_ROW: Final[Fields[Gain]] = (
    *_HEAD,
    *figure_fields("figure{}", lambda one: one.figure),
    Field("verdict", lambda one: one.verdict),
    Field("how", words_of),
)
_CELLS: Final[Fields[Gain]] = (
    cell("gain", lambda one: SUBJECTS[one.target.subject], wraps=True),
    cell("promised", lambda one: _promised(one.target), right=True),
    cell("here (80 %)", lambda one: _shown(one.target, one.figure), right=True),
    cell("verdict", lambda one: one.verdict),
)
