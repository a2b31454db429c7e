"""The tables of the accuracy page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import exp
from pathlib import Path
from statistics import median

from accuracy_figures import scatter_svg
from accuracy_rows import TARGETS, Target, diagnosis
from accuracy_study import MEASURED_ROWS, Study, errors, two
from rivals.compare import Meeting
from tonnage.calibration.intervals import source_of, usable
from tonnage.calibration.kinds import device_capacity, kind_named
from tonnage.calibration.prediction import JudgedRow
from tonnage.calibration.store import Calibration
from tonnage.calibration.validating import validate_file
from tonnage.calibration.validation import MemoryFit, error_pct, validate
from tonnage.catalog import Catalog
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.fitting import fits
from tonnage.sizing.program_profiles import ADAPTER_MEMORY, UNSTATED_MEMORY

FIGURES = Path(__file__).resolve().parent.parent / "docs" / "figures"
DEVICE_SIZES_GIB = (8, 12, 16, 24, 32, 40, 48, 80, 96, 141)
WORST = 10


def summary_table(studies: Mapping[str, Study]) -> Iterator[str]:
    """The figures Tonnage is held to."""
    yield (
        "| prediction | rows | fitted: median | p90 | left out: median | p90 | held to | bias "
        "| covered: source out | family out |"
    )
    yield "| --- | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: |"
    for target in (one for one in TARGETS if one.kind in studies):
        found = studies[target.kind]
        left = found.left_out(target)
        if not left:
            yield f"| {target.name} | 0 | — | — | — | — | {target.median_pct:g} / {target.p90_pct:g} | — | — | — |"
            continue
        middle, tail = errors(left)
        met = "met" if target.met_by(middle, tail) else "not met"
        whole = errors(found.with_bounds(target, found.part.left_out))
        if met == "met" and not target.met_by(*whole):
            met += f", but not with readings that only bound it ({two(whole)})".replace(" | ", " / ")
        yield (
            f"| {target.name} | {len(left):,} | {two(errors(found.fitted(target)))} "
            f"| **{middle:.1f}** | **{tail:.1f}** | {target.median_pct:g} / {target.p90_pct:g}: {met} "
            f"| {median(map(error_pct, left)):+.1f} | {found.covered(left)} |"
        )


def breakdown(found: Study, target: Target, title: str, key: Callable[[JudgedRow], str]) -> Iterator[str]:
    """Fitted and left-out error for each GPU or family."""
    fitted, left = found.fitted(target), found.left_out(target)
    yield (
        f"| {title} | rows | fitted: median | p90 | left out: median | p90 | bias | covered: source out | family out |"
    )
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for name in sorted({key(row) for row in left}):
        mine = [row for row in left if key(row) == name]
        seen = [row for row in fitted if key(row) == name]
        yield (
            f"| {name or 'not stated'} | {len(mine):,} | {two(errors(seen))} | {two(errors(mine))} "
            f"| {median(map(error_pct, mine)):+.1f} | {found.covered(mine)} |"
        )


def detail(found: Study, target: Target) -> Iterator[str]:
    """One section: by GPU, by family, the scatter, GPU x family."""
    rows = found.left_out(target)
    if not rows:
        return
    FIGURES.mkdir(exist_ok=True)
    points = [(row.measured, row.predicted) for row in rows]
    (FIGURES / f"{target.slug}.svg").write_text(scatter_svg(target.name, target.unit, points), encoding="utf-8")
    yield f"## {target.name[0].upper()}{target.name[1:]}\n"
    yield f"![{target.name}, predicted over measured, each family left out](figures/{target.slug}.svg)\n"
    yield from breakdown(found, target, "GPU", lambda row: row.gpu)
    yield ""
    yield from breakdown(found, target, "family", lambda row: row.family)
    yield "\n<details><summary>metric x GPU x family</summary>\n"
    yield from breakdown(found, target, "metric, GPU, family", lambda row: f"{row.metric}, {row.gpu}, {row.family}")
    yield "\n</details>\n"


def with_doubted_table(studies: Mapping[str, Study]) -> Iterator[str]:
    """What each figure would be with its doubted rows counted like all others."""
    yield "| prediction | doubted rows | left out, with them: median | p90 |"
    yield "| --- | ---: | ---: | ---: |"
    for target in TARGETS:
        found = studies.get(target.kind)
        doubted = [] if found is None else found.doubted(target)
        if found is not None and doubted:
            yield f"| {target.name} | {len(doubted):,} | {two(errors([*found.left_out(target), *doubted]))} |"


def worst_table(found: Study) -> Iterator[str]:
    """The rows that are farthest off when their family is left out."""
    rows = [row for row in found.part.left_out if isinstance(row, JudgedRow) and usable(row)]
    report = validate(rows)
    yield "| row | metric | family | GPU | measured | predicted | error | what shares it |"
    yield "| --- | --- | --- | --- | ---: | ---: | ---: | --- |"
    for row in report.worst[:WORST]:
        yield (
            f"| {row.row_id} | {row.metric} | {row.family} | {row.gpu or 'not stated'} | {row.measured:.4g} "
            f"| {row.predicted:.4g} | {error_pct(row):+.0f} % | {diagnosis(row, rows, found.cells).replace('|', '/')} |"
        )


def skipped_table(found: Study) -> Iterator[str]:
    """Reasons, the most frequent first; then the share judged."""
    report = validate(found.part.judged)
    yield "| rows | reason |"
    yield "| ---: | --- |"
    yield from (f"| {count:,} | {reason.replace('|', '/')} |" for reason, count in report.skipped)
    good = report.rows - report.suspect.rows
    yield f"\n{report.predicted:,} of {good:,} good rows are judged ({100 * report.predicted / max(good, 1):.0f} %)."


def memory_sentences(found: Study, catalog: Catalog) -> Iterator[str]:
    """What the predictions say about fitting."""
    fit = validate(found.part.left_out, capacity_of=device_capacity(catalog)).memory_fit
    yield (
        f"Against the device each run used, and rows that only say whether it fits ({fit.n} in all): "
        f"{fit.false_fits} falsely said to fit, {fit.false_misfits} falsely said not to."
    )
    ladder = ladder_fit([row for row in found.part.left_out if isinstance(row, JudgedRow) and usable(row)])
    yield (
        f"Against every common device size from {DEVICE_SIZES_GIB[0]} to {DEVICE_SIZES_GIB[-1]} GiB, with the default "
        f"margin ({ladder.n:,} comparisons): {ladder.false_fits} falsely said to fit "
        f"({100 * ladder.false_fits / max(ladder.n, 1):.1f} %), {ladder.false_misfits} falsely said not to."
    )


def bound_sentences(found: Study) -> Iterator[str]:
    """Readings that are no two-sided figure, and what counting them as such would make of the row above."""
    peaks = [
        row
        for row in found.part.left_out
        if isinstance(row, JudgedRow) and usable(row) and row.metric.startswith("peak_mem")
    ]
    bounds = [row for row in peaks if row.bound]
    over = [error_pct(row) for row in bounds if row.predicted > row.measured]
    most = f", by up to {max(over):.0f} %" if over else ""
    yield (
        f"{len(bounds)} readings are of a device under a caching allocator, by their own column `mem_kind`: they bound "
        f"what their run needs from above, and are in no figure of peak memory. {len(over)} are predicted above what "
        f"was read{most}. Counted like the others, all {len(peaks)} come to {two(errors(peaks))}.".replace(" | ", " / ")
    )


def published_table(studies: Mapping[str, Study]) -> Iterator[str]:
    """Peaks that others published and no fact table holds, by who measured: no fit saw one, and each is judged by an
    interval made without its source."""
    yield "| source | trained | rows | median | p90 | bias | covered: source out |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
    found = studies["training"]
    rows = [row for row in found.part.beside if row.family.startswith("published-") and row.group != UNSTATED_MEMORY]
    for source, group in sorted({(source_of(row), row.group) for row in rows}):
        mine = [row for row in rows if (source_of(row), row.group) == (source, group)]
        yield f"| {source} | {'adapters' if group == ADAPTER_MEMORY else 'all weights'} | {_published(found, mine)} |"
    yield f"| all | | {_published(found, rows)} |"
    ladder = ladder_fit(rows)
    yield (
        f"\nAgainst the same device sizes with the default margin ({ladder.n:,} comparisons): {ladder.false_fits} "
        f"falsely said to fit ({100 * ladder.false_fits / max(ladder.n, 1):.1f} %), {ladder.false_misfits} falsely "
        f"said not to."
    )


def _published(found: Study, rows: Sequence[JudgedRow]) -> str:
    middle, tail = errors(rows)
    inside = found.covered(rows).split(" | ")[0]
    return f"{len(rows)} | {middle:.1f} | {tail:.1f} | {median(map(error_pct, rows)):+.1f} | {inside}"


def ladder_fit(rows: Sequence[JudgedRow], margin: float | None = None) -> MemoryFit:
    """Would the run fit devices of other sizes, by the prediction (what is needed) and by the measurement?"""
    kept = Assumptions().memory_margin_fraction if margin is None else margin
    memory = [row for row in rows if row.metric.startswith("peak_mem")]
    pairs = [
        (bool(fits(row.predicted if row.needed_gib is None else row.needed_gib, size, kept)), row.measured <= size)
        for row in memory
        for size in DEVICE_SIZES_GIB
    ]
    return MemoryFit(
        n=len(pairs),
        false_fits=sum(said and not did for said, did in pairs),
        false_misfits=sum(did and not said for said, did in pairs),
    )


def interval_table(studies: Mapping[str, Study], made: Calibration) -> Iterator[str]:
    """Every group with the shares of its rows inside intervals made without their source, without their family."""
    yield (
        "| group | rows | sources | families | low | high | covered: source out | family out | wider for each unknown |"
    )
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
    for one in made.intervals.groups:
        inside = next(cells for found in studies.values() if (cells := _group_covered(found, one.group)))
        basis = (
            f"x {one.widening:.2f}, from {one.far_rows:,} rows" if one.far_rows else f"x {one.widening:.2f}, judgement"
        )
        factors = f"{exp(one.low_log):.3f} | {exp(one.high_log):.3f}"
        yield f"| {one.group} | {one.rows:,} | {one.sources} | {one.families} | {factors} | {inside} | {basis} |"


def _group_covered(found: Study, group: str) -> str:
    """`Study.covered` of a group; "" where the study has no row of it."""
    rows = [row for row in found.part.near if usable(row) and row.group == group]
    return found.covered(rows) if rows else ""


def source_table(studies: Mapping[str, Study]) -> Iterator[str]:
    """Each source of each group, under the intervals of the others."""
    yield "| group, source | rows | median | p90 | bias | covered: source out | family out |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for found in studies.values():
        by_source: defaultdict[tuple[str, str], list[JudgedRow]] = defaultdict(list)
        for row in found.part.near:
            if usable(row):
                by_source[row.group, source_of(row)].append(row)
        for (group, source), rows in sorted(by_source.items()):
            yield (
                f"| {group}, {source} | {len(rows):,} | {two(errors(rows))} | {median(map(error_pct, rows)):+.1f} "
                f"| {found.covered(rows)} |"
            )


def rival_table(meetings: Sequence[Meeting]) -> Iterator[str]:
    """Both errors on the rows that both answered; who is nearer at the median."""
    yield "| rival | metric | rows | rival: median | p90 | Tonnage, left out: median | p90 | nearer |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |"
    for meeting in meetings:
        for duel in meeting.duels:
            yield (
                f"| {duel.rival} | {duel.metric} | {duel.rows:,} | {duel.rival_median_pct:.1f} "
                f"| {duel.rival_p90_pct:.1f} | {duel.our_median_pct:.1f} | {duel.our_p90_pct:.1f} | {duel.winner} |"
            )
    yield ""
    for meeting in meetings:
        if meeting.absent:
            yield f"- **{meeting.rival.name}** is not measured here: {meeting.absent}."
            continue
        answered = sum(duel.rows for duel in meeting.duels)
        sample = " (a sample, by a digest of the row's id)" if meeting.rival.sample else ""
        why = "; ".join(f"{reason} ({count:,})" for reason, count in meeting.declined[:4])
        asked = f"{meeting.asked:,} rows{sample}"
        yield f"- **{meeting.rival.name}** answered {answered:,} of {asked}. Declined: {why or 'none'}."


def measured_table(studies: Mapping[str, Study], made: Calibration, catalog: Catalog) -> Iterator[str]:
    """Every file of `benchmarks/results` in the columns of a fact table, judged by the calibration of this page."""
    yield "| file | metric | rows | median | p90 | bias | covered |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for path in sorted(MEASURED_ROWS.glob("gpu_*.csv")):
        name = next((kind for kind in studies if f"_{kind}_" in path.name), None)
        if name is None:
            continue
        report = validate_file(kind_named(name), path, catalog, made)
        for line in report.metrics:
            yield (
                f"| {path.name} | {line.metric} | {line.n} | {line.median_abs_pct:.1f} | {line.p90_abs_pct:.1f} | "
                f"{line.bias_pct:+.1f} | {line.coverage80:.0%} |"
            )
