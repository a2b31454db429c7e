"""An encoder service on a measured device as a report (`local-service@1`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isinf
from typing import Any, Final

from tonnage.calibration.local_inference import BenchedLoad
from tonnage.planning.local_service import LocalService
from tonnage.planning.reasons.misses import Miss
from tonnage.reports.blocks import Block, Heading, Page, Pairs, Paragraph
from tonnage.reports.plain import plain_figure, plain_number
from tonnage.reports.reasons import miss_document, miss_words
from tonnage.reports.rendering import Report
from tonnage.reports.wording import render_duration, render_interval, render_time_interval
from tonnage.sizing.estimates import Figure
from tonnage.workload.jobs import ServeJob

SCHEMA: Final = "tonnage/local-service@1"
SHOWN: Final = 3  # benches named on the page


def local_service_report(name: str, made: LocalService, broken: tuple[Miss, ...]) -> Report:
    """A service, or a batch, on a measured device."""
    return Report(
        page=lambda: Page(title=f"{name} on {made.device}", blocks=(*service_blocks(made), *_limits(broken))),
        document=lambda: {"workload": name, **service_document(made), "broken": [_broken(miss) for miss in broken]},
        columns=("figure", "value", "low", "high"),
        rows=lambda: [
            [key, *(plain_number(getattr(figure, end)) for end in ("value", "low", "high"))]
            for key, figure in service_figures(made)
        ],
    )


def service_figures(made: LocalService) -> tuple[tuple[str, Figure], ...]:
    """The figures by JSON key, those that are known."""
    found: list[tuple[str, Figure]] = [("saturation_per_s", made.saturation_per_s), ("holds_per_s", made.holds_per_s)]
    if isinstance(made.job, ServeJob):
        rate = made.job.rate_per_s
        seen = [(f"latency_{share}_s", made.latency_s(share, rate)) for share in ("p50", "p95")]
        found += [("requests_per_s", made.answered_per_s(rate)), *((key, one) for key, one in seen if one is not None)]
    else:
        rates = made.saturation_per_s
        items = float(made.job.items)
        found.append(("run_s", Figure(value=items / rates.value, low=items / rates.high, high=items / rates.low)))
    return tuple(found)


def service_document(made: LocalService) -> dict[str, Any]:
    """What a program reads. An end that is not bounded is null."""
    return {
        "schema": SCHEMA, "device": made.device, "workers": made.workers, "batch_tokens": made.queue.batch_tokens,
        **{key: _plain(figure) for key, figure in service_figures(made)},
        "slower_than_curves": plain_figure(made.slower),
        "parts_s": {key: plain_number(seconds) for key, seconds in made.parts_s},
        "benches": {"own": list(made.own_benches), "other_models": list(made.other_benches)},
    }  # fmt: skip


def _plain(figure: Figure) -> dict[str, Any]:
    ends = {end: getattr(figure, end) for end in ("value", "low", "high")}
    plain = {end: None if isinf(value) else plain_number(value) for end, value in ends.items()}
    return {**plain, "basis": figure.basis}


def service_blocks(made: LocalService) -> Iterator[Block]:
    """The figures, what corrects them, and where a text's time goes."""
    batches = "texts one by one" if made.queue.batch_tokens == 1 else f"batches of {made.queue.batch_tokens} tokens"
    yield Pairs(
        rows=(
            ("server", f"{made.workers} workers, {batches}, {made.job.weights}"),
            *_rates(made),
            ("based on", f"the profile's curves, benches: {bench_words(made)}"),
            *_corrected(made),
        )
    )
    yield Heading(text="Where the time of one text goes")
    yield Pairs(rows=tuple((name, render_duration(seconds)) for name, seconds in made.parts_s))
    yield Paragraph(text="Intervals are 80 %. A client on the same cores takes of them too.", tone="faint")


def bench_words(made: LocalService) -> str:
    """How many benches the figures rest on."""
    own, others = len(made.own_benches), len(made.other_benches)
    if not own and not others:
        return "none of a service yet"
    return f"{own} of this service, {others} of other models" if others else f"{own} of this service"


def measured_rows(made: LocalService, benches: Sequence[BenchedLoad]) -> Iterator[tuple[str, str]]:
    """The latest benches of the service: requests answered and p95, each measured beside what is predicted at that
    rate."""
    for one in benches[-SHOWN:]:
        p95_s = dict(one.latency_s).get("p95")
        if p95_s is not None:
            answered = render_interval(made.answered_per_s(one.offered_per_s))
            yield (
                f"at {one.offered_per_s:.4g} requests/s",
                f"measured {one.answered_per_s:.4g}/s, p95 {render_duration(p95_s)}; predicted {answered}/s, p95 "
                f"{_latency(made.latency_s('p95', one.offered_per_s))}",
            )


def _rates(made: LocalService) -> Iterator[tuple[str, str]]:
    figures = dict(service_figures(made))
    yield "at most", f"{render_interval(made.saturation_per_s)} texts/s"
    if not isinstance(made.job, ServeJob):
        yield "time", f"{render_duration(figures['run_s'].value)} ({render_time_interval(figures['run_s'])})"
        return
    if made.promise_s is not None:
        held, promised = render_interval(made.holds_per_s), render_duration(made.promise_s)
        yield "holds", f"{held} requests/s inside p95 {promised}"
    yield "offered", f"{made.job.rate_per_s:g} requests/s"
    yield "answered", f"{render_interval(figures['requests_per_s'])} requests/s"
    for share in ("p50", "p95"):
        yield f"{share} latency", _latency(figures.get(f"latency_{share}_s"))


def _latency(figure: Figure | None) -> str:
    if figure is None:
        return "grows without end at this rate"
    if isinf(figure.high):
        return f"{render_duration(figure.value)} ({render_duration(figure.low)} or more)"
    return f"{render_duration(figure.value)} ({render_time_interval(figure)})"


def _corrected(made: LocalService) -> Iterator[tuple[str, str]]:
    """That benches moved the figures, by how much, and which."""
    every = (*made.own_benches, *made.other_benches)
    if not every:
        return
    percent = 100.0 * (made.slower.value - 1.0)
    way = "slower" if percent >= 0 else "faster"
    yield (
        "benches say",
        f"batches are {abs(percent):.0f} % {way} than the curves ({render_interval(made.slower)} times)",
    )
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    yield "from rows", ", ".join(every[-SHOWN:]) + more


def _limits(broken: tuple[Miss, ...]) -> Iterator[Block]:
    for miss in broken:
        yield Paragraph(text=f"{miss.binding}: {miss_words(miss).clause}", tone="warning")


def _broken(miss: Miss) -> dict[str, Any]:
    words = miss_words(miss)
    return {"limit": miss.binding, "needs": words.needs, "has": words.has, "reason": miss_document(miss)}
