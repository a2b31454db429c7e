"""Write docs/accuracy.md: what Tonnage predicts against what was measured, left out and fitted, beside rivals.

`TONNAGE_FACTS=FOLDER make accuracy`. The folder holds training_calibration.csv and inference_calibration.csv.
`TONNAGE_RIVALS` names a folder with the rivals' environments (benchmarks/rivals/README.md).
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from accuracy_figures import scatter_svg
from accuracy_rows import TARGETS, Cells, Target, diagnosis
from doubted_rows import beyond_sentence, doubted_table
from rivals.compare import RIVALS, Meeting, meet, percentile
from source_spread import spread_table
from stacks import missed_list, stack_table
from tonnage.calibration.calibrating import CrossValidation, cross_validate, make_calibration
from tonnage.calibration.intervals import (
    Intervals,
    intervals_without_family,
    intervals_without_source,
    source_of,
    usable,
)
from tonnage.calibration.kinds import KINDS, device_capacity, kind_named
from tonnage.calibration.leave_out import usual_jobs
from tonnage.calibration.prediction import JudgedRow, SkippedRow
from tonnage.calibration.store import Calibration, save_calibration
from tonnage.calibration.validating import validate_file
from tonnage.calibration.validation import MemoryFit, error_pct, validate
from tonnage.catalog import Catalog, load_catalog
from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import SIZED_VENDORS
from tonnage.sizing.fitting import fits

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "accuracy.md"
FIGURES = ROOT / "docs" / "figures"
MEASURED_ROWS = ROOT / "benchmarks" / "results"
PEAKS = "gpu_*_training_h100*.csv"  # the same peaks were read on an H200, to the byte: they count once
DEVICE_SIZES_GIB = (8, 12, 16, 24, 32, 40, 48, 80, 96, 141)
WORST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """One table cross-validated, its cells by row id, and intervals that never saw a row's own source or family."""

    part: CrossValidation
    cells: Mapping[str, Cells]
    without_source: Mapping[str, Intervals]
    without_family: Mapping[str, Intervals]

    def covered(self, rows: Sequence[JudgedRow]) -> str:
        """Two cells: shares of rows inside intervals made without their source, and without their family."""
        by_source = sum(self.without_source[source_of(row)].covers(row) for row in rows)
        by_family = sum(self.without_family[row.family].covers(row) for row in rows)
        return f"{100 * by_source / len(rows):.0f} % | {100 * by_family / len(rows):.0f} %"

    def rows(self, target: Target, results: Sequence[JudgedRow | SkippedRow]) -> list[JudgedRow]:
        """Good rows that a target counts."""
        return [
            row
            for row in results
            if isinstance(row, JudgedRow) and usable(row) and target.belongs(row, self.cells[row.row_id])
        ]

    def left_out(self, target: Target) -> list[JudgedRow]:
        return self.rows(target, self.part.left_out)

    def fitted(self, target: Target) -> list[JudgedRow]:
        return self.rows(target, self.part.judged)


def study(name: str, path: Path, catalog: Catalog, *, with_distant: bool) -> Study:
    """Cross-validate one table."""
    started = perf_counter()

    def told(left_out: str, number: int, of: int) -> None:
        print(f"{name}: without {left_out} ({number} of {of}), {perf_counter() - started:.0f} s", file=sys.stderr)

    peaks = sorted(MEASURED_ROWS.glob(PEAKS)) if name == "training" else ()
    part = cross_validate(
        kind_named(name), path, catalog, peaks=peaks, jobs=usual_jobs(), on_step=told, with_distant=with_distant
    )
    with path.open(newline="", encoding="utf-8-sig") as stream:
        cells = {row["id"]: row for row in csv.DictReader(stream)}
    return Study(
        part=part,
        cells=cells,
        without_source=intervals_without_source(part.near, part.distant),
        without_family=intervals_without_family(part.near, part.distant),
    )


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
        met = "met" if middle <= target.median_pct and tail <= target.p90_pct else "not met"
        yield (
            f"| {target.name} | {len(left):,} | {two(errors(found.fitted(target)))} "
            f"| **{middle:.1f}** | **{tail:.1f}** | {target.median_pct:g} / {target.p90_pct:g}: {met} "
            f"| {median(map(error_pct, left)):+.1f} | {found.covered(left)} |"
        )


def errors(rows: Sequence[JudgedRow]) -> tuple[float, float] | None:
    """Median and 90th percentile of the absolute error in %; None without rows."""
    if not rows:
        return None
    values = [abs(error_pct(row)) for row in rows]
    return median(values), percentile(values, 0.9)


def two(found: tuple[float, float] | None) -> str:
    """Two cells of a table."""
    return "— | —" if found is None else f"{found[0]:.1f} | {found[1]:.1f}"


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


def meetings(studies: Mapping[str, Study], files: Mapping[str, Path]) -> list[Meeting]:
    found = []
    for rival in RIVALS:
        if rival.table not in studies:
            continue
        print(f"rival: {rival.name}", file=sys.stderr)
        ours = {
            row.row_id: row.predicted
            for row in studies[rival.table].part.left_out
            if isinstance(row, JudgedRow) and usable(row)
        }
        found.append(meet(rival, files[rival.table], ours))
    return found


HEAD = """\
# Accuracy

Generated by `make accuracy`; do not edit. Error is |predicted / measured - 1| in %. **Left out**: the row's whole model
family was not in the fit. Fitted: it was. Bias: median of predicted / measured - 1. Covered: share of rows inside an
80 % interval made without any row of their source (who measured: a repository or report), and without any of their
family. Rows of doubtful quality are in no figure of this page. Check any table of the same columns with
`tonnage validate training|inference FILE` and `--leave-out family|gpu|engine`.
"""


STACKS = """\
## Well-known stacks

What users of these programs read in their documentation, and what a plan of the same job in the same layout says:
`tonnage size tests/data/stacks/NAME.tonnage.yaml --memory-margin 0` prints each. Rows marked so stand in the fact
tables, the others in no table of the calibration. Ratio: planned / published. «GiB, allocator»: without what the
runtime holds outside it.
"""


def without_rows(made: Calibration, catalog: Catalog) -> Iterator[str]:
    """Per table, the GPUs that are sized though no measured row names them."""
    sized = sorted(one.name for one in catalog.accelerators if one.vendor in SIZED_VENDORS and one.dense_fp16_tflops)
    yield "GPUs that are predicted from published figures and microbenchmarks alone, since no row names them:\n"
    for kind in KINDS:
        seen = made.names_seen(kind).get("gpu", frozenset())
        yield f"- {kind}: {', '.join(name for name in sized if name not in seen) or 'none'}"


MEASURED = """## Measured for this page, in no fit

Rows of `benchmarks/gpu_models.py` (transformers models as a Trainer runs them: full and LoRA, autocast and 16-bit
weights, with and without checkpointing) and `benchmarks/gpu_grid.py` (plain modules down to one sequence a step), on
an H100 and on an H200, of which no training row is in any fit. They were in view while the physics of host launches,
adapters and kept activations was written, and memory on the H200 reads as on the H100, so they are a check, not an
independent test. Small batches are bound by the host, whose speed is not known beforehand: the two machines differ by a
factor of 1.5; the mean speed of such hosts was chosen on these rows. Memory intervals of known programs rest on the
peaks of the H100.
"""


INTERVALS = """\
Measured over predicted, 80 % of left-out rows inside. A row of an unknown GPU generation, precision or engine has the
interval widened by the factor, once for each. A source of n rows weighs as √n: many rows of one laboratory are no
independent evidence. A group of fewer than five sources is judged together with its kin, where it has any. The interval
of memory rests on the peaks measured for this page too, which are one source; where no program is stated, on all peaks
as if their program were not known. Encoders are of two families: without BERT their interval is that of vision.
"""


AGREEMENT = """\
## How far sources agree

Two documents that print the same configuration (model, device, devices, batch, lengths, precision, program or engine;
versions may differ). Halfway between both, a prediction errs by as much on either: nothing that knows no more than a
row states can be nearer to both.
"""


BEYOND = """\
## What bounds the errors

What neither a row nor its document states bounds them: the speed of the host (batches of 1), how photographs reach the
device, which kernels a version of an engine chose, how lengths are spread around a mean.

- Vision rests on two families. Without ResNet what is known of convolutions is the structure of the program, and
  TensorFlow 1 takes up to 4 ms a step more than that says, by the host it ran on, and on A100 up to twice the time in
  tf32.
- First tokens and tails of a saturated server are time in a queue: its length follows from the capacity, so that an
  error of the capacity is one of the wait, and engines differ in whom they let in first. All percentiles beyond the
  median that count come from one laboratory: without it, the means of others speak for them, one unknown further away.

Where the 90th percentile is missed, most of the rows beyond it are of:

"""


def beyond(studies: Mapping[str, Study]) -> Iterator[str]:
    """A line for each figure whose 90th percentile is missed."""
    yield BEYOND.rstrip("\n") + "\n"
    for target in (one for one in TARGETS if one.kind in studies):
        found = studies[target.kind]
        rows = found.left_out(target)
        held = errors(rows)
        if held is not None and held[1] > target.p90_pct:
            yield beyond_sentence(target, rows, found.cells)
    yield ""


def agreement(tables: dict[str, list[Any]], catalog: Catalog) -> Iterator[str]:
    """What bounds the errors: how far sources differ, and which rows their reader doubts."""
    yield AGREEMENT
    yield from spread_table(tables)
    yield "\nRows that are doubted, by their figures or by their table; they are judged and counted apart:\n"
    yield from doubted_table(tables, catalog)
    yield ""


def page(
    studies: Mapping[str, Study],
    made: Calibration,
    met: Sequence[Meeting],
    catalog: Catalog,
    files: Mapping[str, Path],
) -> Iterator[str]:
    yield HEAD
    for found in studies.values():
        yield f"- {found.part.kind}: {found.part.data.rows:,} rows, sha256 `{found.part.data.sha256[:16]}`"
    yield f"- calibrated on {made.made_on}\n"
    yield from summary_table(studies)
    yield ""
    if "training" in studies:
        yield "### Does it fit?\n"
        yield from memory_sentences(studies["training"], catalog)
        yield ""
    yield from beyond(studies)
    yield from agreement({name: list(kind_named(name).read(path, catalog)) for name, path in files.items()}, catalog)
    yield STACKS
    yield from stack_table()
    yield ""
    yield from missed_list()
    yield ""
    yield MEASURED
    yield from measured_table(studies, made, catalog)
    yield ""
    yield "## Rivals on the same rows\n"
    yield from rival_table(met)
    yield ""
    for target in TARGETS:
        if target.kind in studies:
            yield from detail(studies[target.kind], target)
    yield "## Intervals\n"
    yield INTERVALS
    yield from interval_table(studies, made)
    yield "\n<details><summary>group x source</summary>\n"
    yield from source_table(studies)
    yield "\n</details>\n"
    yield from without_rows(made, catalog)
    for name, found in studies.items():
        yield f"\n## The ten worst {name} rows\n"
        yield from worst_table(found)
        yield f"\n## Skipped {name} rows\n"
        yield from skipped_table(found)
    yield "\n## Columns\n"
    yield "`tonnage validate` finds columns by the names in the header and ignores others. Blank is «not stated»."
    for name in KINDS:
        yield f"\n- {name}: {columns(name)}"


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


def columns(name: str) -> str:
    from dataclasses import fields

    from tonnage.calibration.rows import InferenceRow, TrainingRow

    return ", ".join(f"`{field.name}`" for field in fields(TrainingRow if name == "training" else InferenceRow))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--facts", default=os.environ.get("TONNAGE_FACTS"), help="the folder of fact tables")
    parser.add_argument("--as-of", default="2026-11-21", help="the day printed on the page")
    parser.add_argument("--only", choices=KINDS, action="append", help="one table only, for trying out")
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("--save", type=Path, help="also write the calibration here")
    parser.add_argument("--far", action="store_true", help="also leave out each GPU and each engine (slower)")
    given = parser.parse_args()
    if not given.facts:
        parser.error("name the folder of fact tables: TONNAGE_FACTS=FOLDER make accuracy")
    catalog = load_catalog()
    files = {name: Path(given.facts) / f"{name}_calibration.csv" for name in given.only or KINDS}
    studies = {name: study(name, path, catalog, with_distant=given.far) for name, path in files.items()}
    made = make_calibration([one.part for one in studies.values()], made_on=given.as_of, left_out="family")
    if given.save:  # first: what took minutes is not lost by a fault of the page
        save_calibration(made, given.save)
    text = "\n".join(page(studies, made, meetings(studies, files), catalog, files)).rstrip("\n") + "\n"
    given.out.write_text(text, encoding="utf-8")
    print(f"wrote {given.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
