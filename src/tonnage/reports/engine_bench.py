"""Engines side by side (`tonnage/engine-bench@1`): time and dollars to a target, quality, rate, memory, prediction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tonnage.reports.bench_faster import faster_blocks, said_faster
from tonnage.reports.bench_search import (
    ease_blocks,
    scaling_blocks,
    search_blocks,
)
from tonnage.reports.blocks import Block, Bullets, Column, Heading, LineChart, Page, Pairs, Paragraph, Table
from tonnage.reports.engine_bench_rows import ROW_COLUMNS, bench_document, bench_rows
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, plural, render_money, render_scaled, short
from tonnage.side_by_side.faster import faster_on, not_compared
from tonnage.side_by_side.result import POWER_FIGURES, BenchResult, EngineResult
from tonnage.side_by_side.scaling import scaling_points
from tonnage.side_by_side.spec import BenchData
from tonnage.sizing.estimates import Figure
from tonnage.units import to_gib

SETTINGS: Final = "settings in the environment"
FAR_APART: Final = 5.0
Curves = tuple[tuple[str, tuple[tuple[float, float], ...]], ...]
QUIET_CORES: Final = 0.3


def engine_bench_report(found: BenchResult) -> Report:
    """A table and a chart a data set; below, what was predicted, the phases, failures and the conditions."""
    return Report(page=lambda: _page(found), document=lambda: bench_document(found), columns=ROW_COLUMNS,
                  rows=lambda: list(bench_rows(found)))  # fmt: skip


def _page(found: BenchResult) -> Page:
    blocks: list[Block] = [Paragraph(text=_verdict(found, data)) for data in found.spec.data]
    disturbed = _disturbed(found)
    if disturbed:
        blocks.append(Paragraph(tone="warning", text=disturbed))
    for data in found.spec.data:
        blocks += _data_blocks(found, data)
        blocks += search_blocks(found.spec, data, found.searches)
    blocks += scaling_blocks(scaling_points(found.spec, found.cells))
    blocks += ease_blocks(found.ease)
    blocks += _failures(found)
    blocks += _conditions(found)
    return Page(title=f"Bench {found.spec.name}", blocks=tuple(blocks))


def busiest(found: BenchResult) -> float:
    """Cores that other programs kept busy just before a cell, the most of all cells; 0 without any."""
    return max((cell.busy_before_cores for cell in found.cells if cell.busy_before_cores is not None), default=0.0)


def _disturbed(found: BenchResult) -> str:
    """What other programs took, where it was more than a quiet machine's; else ""."""
    during = [one.busy_during_cores for one in found.cells if one.busy_during_cores is not None]
    slowed = [one for one in during if one > QUIET_CORES]
    if not slowed and busiest(found) <= QUIET_CORES:
        return ""
    said = f"Other programs kept up to {busiest(found):.2f} cores busy before a cell"
    if slowed:
        said += f", and took up to {max(slowed):.2f} of a cell's own cores during {len(slowed)} of {len(during)} cells"
    said += ": these times are not those of a quiet machine. Run the bench again alone before its times are relied on"
    if slowed and not any("OMP_WAIT_POLICY" in one.get(SETTINGS, "") for one in found.sessions):
        said += (
            ", or under OMP_WAIT_POLICY=passive where others cannot be kept away: threads that wait for one another at "
            "full speed lose most"
        )
    return said + "."


def _of(found: BenchResult, data: BenchData) -> list[EngineResult]:
    """Its engines on all training rows: those on a share of them (weak scaling) have a table of their own."""
    return [row for row in found.rows if row.data.name == data.name and row.engine.takes_all_rows]


def _verdict(found: BenchResult, data: BenchData) -> str:
    rows = [row for row in _of(found, data) if row.done]
    if not rows:
        tried = any(row.failed for row in _of(found, data))
        return f"{data.name}: {'no engine came to an end' if tried else 'nothing is measured yet'}."
    best = (min if data.metric == "rmse" else max)(rows, key=lambda row: row.quality.value if row.quality else 0.0)
    said = f"{data.name}: best {data.metric} {_plain(best.quality, 4)} by {best.engine.name}"
    left = not_compared(found, data)
    timed = [row for row in rows if row.to_target_s is not None and not row.failed]
    if data.target is None:
        return said + "; no target is stated."
    if not timed:
        return said + f"; no engine came to {data.metric} {data.target:g} in every repeat{said_faster((), left)}."
    first = min(timed, key=lambda row: row.to_target_s.value if row.to_target_s else 0.0)
    return (
        said + f"; {first.engine.name} is first at {data.metric} {data.target:g}, after {_plain(first.to_target_s)} s"
        f"{said_faster(faster_on(found, data), left)}."
    )


def _data_blocks(found: BenchResult, data: BenchData) -> Iterator[Block]:
    rows = _of(found, data)
    if not rows:
        return
    count, columns = found.shapes[data.name]
    yield Heading(text=f"{data.name}: {count:,} training rows, {columns:,} columns, {data.task}")
    if any(row.done or row.failed for row in rows):
        yield _main_table(found, data, rows)
    yield from faster_blocks(data, faster_on(found, data), not_compared(found, data))
    lines = tuple((row.engine.name, row.curve) for row in rows if row.curve)
    if lines:
        yield LineChart(
            title=f"{data.name}: quality over time",
            x_title="seconds of preparing and training",
            y_title=f"{data.metric} on the validation rows",
            series=lines,
            log_x=_far_apart(lines),
        )
    if any(row.done for row in rows):
        yield _phase_table(found, rows)
        yield from _power_blocks(rows)
    yield _predicted_table(rows)


def _far_apart(lines: Curves) -> bool:
    """Whether one engine takes so many times as long as another that both cannot be seen along one axis of seconds."""
    ends = [curve[-1][0] for _, curve in lines]
    return min(seconds for _, curve in lines for seconds, _ in curve) > 0 and max(ends) > FAR_APART * min(ends)


def _main_table(found: BenchResult, data: BenchData, rows: list[EngineResult]) -> Table:
    goal = "to target" if data.target is None else f"s to {data.target:g}"
    right = [goal, "USD to it", data.metric, "s in all", "rows/s", "cores", "GiB"]
    columns = (Column(title="engine"), Column(title="done", align="right"),
               *(Column(title=title, align="right", folds=place if place > 4 else 0, fold_text=title + " {}")
                 for place, title in enumerate(right)))  # fmt: skip
    ordered = sorted(rows, key=lambda row: (row.to_target_s is None, row.failed > 0,
                                            row.to_target_s.value if row.to_target_s else 0.0,
                                            row.work_s is None, row.work_s.value if row.work_s else 0.0))  # fmt: skip
    return Table(columns=columns, rows=tuple(_main_row(found, row) for row in ordered))


def _main_row(found: BenchResult, row: EngineResult) -> tuple[str, ...]:
    reached = _spread(row.to_target_s)
    if row.to_target_s is None and row.data.target is not None and row.done:
        reached = f"{row.reached} of {row.done}"
    usd = row.usd_to_target
    gib = None if row.peak_rss_bytes is None else to_gib(row.peak_rss_bytes.value)
    return (
        row.engine.name, f"{row.done} of {found.spec.repeats}", reached,
        UNKNOWN if usd is None else render_money(usd.value), _spread(row.quality, 4), _spread(row.work_s),
        UNKNOWN if row.rows_per_s is None else render_scaled(row.rows_per_s.value, ""), _plain(row.cores_used),
        UNKNOWN if gib is None else short(gib, 3),
    )  # fmt: skip


def _phase_table(found: BenchResult, rows: list[EngineResult]) -> Table:
    titles = ("engine", "start-up s", "warm-up s", "prepare s", "train s", "cores that others took")
    columns = tuple(Column(title=title, align="left" if place == 0 else "right") for place, title in enumerate(titles))
    cells = ((row.engine.name, _plain(row.startup_s), _plain(row.warmup_s), _plain(row.prepare_s), _plain(row.train_s),
              _others(found, row)) for row in rows if row.done)  # fmt: skip
    return Table(columns=columns, rows=tuple(cells))


def _others(found: BenchResult, row: EngineResult) -> str:
    """What other programs took of the engine's cores while it worked: the least and the most over the repeats."""
    mine = [one.busy_during_cores for one in found.cells
            if (one.data, one.engine) == (row.data.name, row.engine.name) and one.reason is None]  # fmt: skip
    known = [one for one in mine if one is not None]
    if not known:
        return UNKNOWN
    least, most = f"{min(known):.2f}", f"{max(known):.2f}"
    return least if least == most else f"{least}–{most}"


def _power_blocks(rows: list[EngineResult]) -> Iterator[Table]:
    """Clocks, power and energy of preparing and training; nothing, and no column, of what no engine's row knows."""
    titles = ("engine", "CPU MHz", "CPU W", "CPU J", "GPU MHz", "GPU W", "GPU J", "held down by")
    cells = [_power_row(row) for row in rows if row.done]
    known = [0, *(place for place in range(1, len(titles)) if any(one[place] != UNKNOWN for one in cells))]
    if len(known) > 1:
        columns = tuple(Column(title=titles[place], align="right" if 0 < place < 7 else "left") for place in known)
        yield Table(columns=columns, rows=tuple(tuple(one[place] for place in known) for one in cells))


def _power_row(row: EngineResult) -> tuple[str, ...]:
    figures = [getattr(row, name) for name in POWER_FIGURES]
    shown = [
        UNKNOWN if figure is None else f"{figure.value / 1e6:,.0f}" if name.endswith("_hz") else short(figure.value, 3)
        for name, figure in zip(POWER_FIGURES, figures, strict=True)
    ]
    return (row.engine.name, *shown, UNKNOWN if row.throttled_by is None else row.throttled_by or "nothing")


def _predicted_table(rows: list[EngineResult]) -> Table:
    titles = (
        "engine", "predicted s (80 %)", "by tables", "measured s", "measured / predicted", "s without others",
        "of predicted", "predicted GiB", "measured GiB",
    )  # fmt: skip
    columns = tuple(
        Column(title=title, align="right" if place else "left", folds={2: 1, 7: 2, 8: 3}.get(place, 0),
               fold_text=title + " {}")
        for place, title in enumerate(titles)
    )  # fmt: skip
    return Table(columns=columns, rows=tuple(_predicted_row(row) for row in rows))


def _predicted_row(row: EngineResult) -> tuple[str, ...]:
    said = row.predicted_s
    sizes = [
        UNKNOWN if one is None else short(to_gib(one.value), 3) for one in (row.predicted_bytes, row.peak_rss_bytes)
    ]
    return (
        row.engine.name,
        _spread(said),
        str(row.predicted_by_tables or UNKNOWN),
        _plain(row.work_s),
        _over(row.work_s, said),
        _plain(row.alone_s),
        _over(row.alone_s, said),
        *sizes,
    )


def _over(seen: Figure | None, said: Figure | None) -> str:
    """A measured figure over the predicted one, and whether it lies within that one's interval."""
    if said is None or seen is None:
        return UNKNOWN
    return f"{seen.value / said.value:.2f}" + (" inside" if said.low <= seen.value <= said.high else "")


def _failures(found: BenchResult) -> Iterator[Block]:
    failed = [row for row in found.rows if row.failed]
    if failed:
        yield Heading(text="Failed cells")
        yield Bullets(items=tuple(f"{row.data.name}, {row.engine.name}: {plural(row.failed, 'cell')}: {row.reason}"
                                  for row in failed))  # fmt: skip


def _conditions(found: BenchResult) -> Iterator[Block]:
    spec, host = found.spec, found.host
    price = "not stated: dollars are unknown" if spec.usd_per_hour is None else f"USD {spec.usd_per_hour:g} an hour"
    price += f" ({spec.price_note})" if spec.price_note else ""
    versions = {name: said for row in found.rows for name, said in (row.versions or {}).items()}
    count = sum(cell.reason is not None for cell in found.cells)
    failed = f", {count} of them failed" if count else ""
    yield Heading(text="Conditions")
    yield Pairs(rows=(
        ("machine", f"{host.processor}, {plural(host.logical_cores, 'thread')}, {to_gib(host.memory_bytes):.0f} GiB"),
        *_surroundings(found), ("price", price), ("repeats", f"{spec.repeats}, engines in turn; seed {spec.seed}"),
        ("cells", f"{len(found.cells)} of {found.cells_asked} ended{failed}"),
        *([("other programs before a cell", f"up to {busiest(found):.2f} cores")] if found.cells else []),
        *([("versions", ", ".join(f"{name} {said}" for name, said in sorted(versions.items())))] if versions else []),
        *((f"rows of {name}", ", ".join(f"{part} {digest[:12]}" for part, digest in parts.items()))
          for name, parts in found.digests.items()),
    ))  # fmt: skip
    yield Paragraph(tone="faint", text=(
        "Seconds in all are preparing the rows in the engine's own form and training; start-up and warm-up stand "
        "apart. Rows/s count a row once for every tree or epoch. Intervals are 80 % over the repeats. The target is "
        "looked for on the validation rows, the quality is that of the test rows. Clocks, power and energy are those "
        "of whole processors and boards during preparing and training, whoever used them. «Without others» are the "
        "seconds that the work would take with the cores that other programs used meanwhile besides its own: an "
        "estimate; programs whose threads or workers wait for one another gain more."
    ))  # fmt: skip


def _surroundings(found: BenchResult) -> Iterator[tuple[str, str]]:
    """Settings of the machine; where sessions differ, each in turn."""
    names = dict.fromkeys(name for session in found.sessions for name in session)
    for name in names:
        if name not in ("processor", "threads"):  # of the machine, above
            texts = dict.fromkeys(session.get(name, UNKNOWN) for session in found.sessions)
            yield name, "; then ".join(texts)


def _spread(figure: Figure | None, digits: int = 3) -> str:
    if figure is None:
        return UNKNOWN
    if figure.low == figure.high:
        return short(figure.value, digits)
    return f"{short(figure.value, digits)} ({short(figure.low, digits)}–{short(figure.high, digits)})"


def _plain(figure: Figure | None, digits: int = 3) -> str:
    return UNKNOWN if figure is None else short(figure.value, digits)
