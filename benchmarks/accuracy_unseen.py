"""How often 80 % intervals hold on devices and engines that neither the fit nor the interval has seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import exp, log

from accuracy_study import Study
from tonnage.calibration.calibrating import CrossValidation
from tonnage.calibration.intervals import fit_intervals, usable
from tonnage.calibration.prediction import JudgedRow

UNSEEN = """\
Rows of a GPU, an engine or a whole generation that was left out: predicted by a fit without it, under an interval made
without it. Width: the upper end over the lower one, geometric mean. The widening rests on all rounds but the one it is
judged on.
"""


def unseen_table(studies: Mapping[str, Study]) -> Iterator[str]:
    """A line for each figure and what was left out."""
    yield "| figure | left out | rounds | rows | covered | width |"
    yield "| --- | --- | ---: | ---: | ---: | ---: |"
    for found in studies.values():
        for name, rounds in found.part.apart.items():
            yield from _lines(found.part, name, rounds)


def _lines(part: CrossValidation, name: str, rounds: tuple[tuple[JudgedRow, ...], ...]) -> Iterator[str]:
    covered: defaultdict[str, list[bool]] = defaultdict(list)
    widths: defaultdict[str, list[float]] = defaultdict(list)
    counted: defaultdict[str, int] = defaultdict(int)
    for held in rounds:
        away = [row for row in held if usable(row)]
        out = {(row.row_id, row.metric) for row in held}
        without = fit_intervals(
            (row for row in part.near if (row.row_id, row.metric) not in out),
            (row for row in part.distant if (row.row_id, row.metric) not in out),
        )
        for row in away:
            spread = without.spread_of(row)
            covered[row.group].append(without.covers(row))
            widths[row.group].append(log(spread.high_factor / spread.low_factor))
        for group in {row.group for row in away}:
            counted[group] += 1
    for group, inside in sorted(covered.items()):
        share, width = 100 * sum(inside) / len(inside), exp(sum(widths[group]) / len(widths[group]))
        yield f"| {group} | {name} | {counted[group]} | {len(inside):,} | {share:.0f} % | x {width:.2f} |"
