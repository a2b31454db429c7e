"""Who is faster on the page of a bench: how many times as long each engine takes as the first, and how surely."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tonnage.reports.blocks import Block, Column, Paragraph, Table
from tonnage.reports.plain import plain_figure, plain_number
from tonnage.reports.wording import UNKNOWN, plural, short
from tonnage.side_by_side.faster import SURE, Faster, NotCompared
from tonnage.side_by_side.spec import BenchData


def said_faster(pairs: Sequence[Faster], left: Sequence[NotCompared] = ()) -> str:
    """Than which engines the first is surely faster, from which the repeats show no sure difference, and which are not
    compared; in brackets."""
    sure = [one.other for one in pairs if one.sure]
    open_ = [one.other for one in pairs if one.confidence is not None and not one.sure]
    once = [one.other for one in pairs if one.confidence is None]
    parts = [f"faster than {', '.join(sure)}"] if sure else []
    parts += [f"no sure difference from {', '.join(open_)}"] if open_ else []
    if once:
        beside = f" beside {', '.join(once)}" if sure or open_ else ""
        parts.append(f"one repeat only{beside}: no confidence")
    parts += [f"not compared: {', '.join(_said_left(one) for one in left)}"] if left else []
    return f" ({'; '.join(parts)})" if parts else ""


def _said_left(one: NotCompared) -> str:
    counts = ((one.failed, "failed"), (one.missed, "missed the target"))
    said = " and ".join(f"{count} {word}" for count, word in counts if count)
    return f"{one.engine}, of whose {plural(one.repeats, 'repeat')} {said}"


def faster_blocks(data: BenchData, pairs: Sequence[Faster], left: Sequence[NotCompared] = ()) -> Iterator[Block]:
    """The table, where two engines or more are compared, and who is not."""
    if left:
        yield Paragraph(tone="warning", text=f"Not compared: {'; '.join(_said_left(one) for one in left)}.")
    if not pairs:
        return
    what = "in all" if data.target is None else f"to {data.metric} {data.target:g}"
    columns = (Column(title="engine"), Column(title=f"times as long {what} as {pairs[0].first} (80 %)", align="right"),
               Column(title="shared repeats", align="right"), Column(title=f"is {pairs[0].first} faster"))  # fmt: skip
    yield Table(columns=columns, rows=tuple(
        (one.other, _ratio(one), str(one.repeats), _word(one)) for one in pairs
    ))  # fmt: skip
    yield Paragraph(tone="faint", text=(
        "Times are compared within a repeat, in which all engines took their turn. «yes»: the confidence is "
        f"{_whole_percent(SURE)} or more that the two differ, corrected for the number of pairs among all engines "
        "(Holm); few repeats are sure of large differences alone."
    ))  # fmt: skip


def _ratio(one: Faster) -> str:
    ratio = one.ratio
    width = "" if one.confidence is None else f" ({short(ratio.low, 3)}–{short(ratio.high, 3)})"
    return f"{short(ratio.value, 3)}{width}"


def _word(one: Faster) -> str:
    if one.confidence is None:
        return UNKNOWN
    return f"{'yes' if one.sure else 'open'} (confidence {_whole_percent(one.confidence)})"


def _whole_percent(share: float) -> str:
    """Rounded down, so that no doubt is rounded away: 99 % is the most."""
    return f"{min(int(share * 100), 99)} %"


def faster_document(pairs: Sequence[Faster]) -> list[dict[str, Any]]:
    """The pairs for JSON; confidence null: one repeat alone."""
    return [
        {"data": one.data, "first": one.first, "other": one.other, "times_as_long": plain_figure(one.ratio),
         "shared_repeats": one.repeats, "faster_confidence": plain_number(one.confidence), "faster": one.sure}
        for one in pairs
    ]  # fmt: skip


def left_document(left: Sequence[NotCompared]) -> list[dict[str, Any]]:
    """Those that are not compared, for JSON."""
    return [{"data": one.data, "engine": one.engine, "repeats": one.repeats, "failed": one.failed,
             "missed_target": one.missed} for one in left]  # fmt: skip
