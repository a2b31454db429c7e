"""`tonnage runs compare A B`: what was asked differently, and what came of it: speed, memory, quality, cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from tonnage.reports.blocks import Block, Column, Heading, LineChart, Page, Paragraph, Table
from tonnage.reports.plain import plain_number, plain_usd
from tonnage.reports.rendering import Report
from tonnage.reports.run_figures import PEAKS, render_value
from tonnage.reports.wording import UNKNOWN, render_gib, short
from tonnage.runs.spec import RunSpec
from tonnage.runs.summary import RunSummary
from tonnage.units import to_gib

SCHEMA: Final = "tonnage/run-comparison@1"
_NOT_ASKED: Final = frozenset({"name", "schema", "sweep", "workload_file"})  # differ without meaning anything
_SPEED: Final = ("median_step_s", "p90_step_s", "samples_per_s", "tokens_per_s", "data_wait_fraction")
_LABELS: Final = {
    "median_step_s": "step, median", "p90_step_s": "step, 90th percentile", "samples_per_s": "samples/s",
    "tokens_per_s": "tokens/s", "data_wait_fraction": "waiting for data", "held_s": "machines held",
    "energy_j": "energy", "cost_usd": "cost",
}  # fmt: skip


def comparison_report(runs: Sequence[RunSummary]) -> Report:
    """The report in its three contents; the first run is what others are compared with."""
    return Report(
        page=lambda: Page(title=" beside ".join(run.name for run in runs), blocks=tuple(_blocks(runs))),
        document=lambda: _document(runs),
        columns=("kind", "name", *(run.name for run in runs)),
        rows=lambda: [[kind, name, *values] for kind, name, values in _lines(runs)],
    )


def differing(specs: Sequence[RunSpec]) -> dict[str, tuple[Any, ...]]:
    """What runs were asked differently, by its place in the specification."""
    flat = [flattened(asdict(spec)) for spec in specs]
    keys = dict.fromkeys(key for one in flat for key in one if key not in _NOT_ASKED)
    found = {key: tuple(one.get(key) for one in flat) for key in keys}
    return {key: values for key, values in found.items() if any(value != values[0] for value in values)}


def flattened(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested values under dotted names.

    >>> flattened({"training": {"seed": 0, "lora": {"rank": 8}}, "name": "a"})
    {'training.seed': 0, 'training.lora.rank': 8, 'name': 'a'}
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flattened(value, f"{above}{name}.")
        else:
            found[above + name] = list(value) if isinstance(value, tuple) else value
    return found


def _lines(runs: Sequence[RunSummary]) -> Iterator[tuple[str, str, list[Any]]]:
    """Every compared value: (kind, name, one value a run), as JSON and CSV carry them."""
    for name, values in differing([run.records.spec for run in runs]).items():
        yield "asked", name, [_plain(value) for value in values]
    yield "outcome", "state", [run.state.state.value for run in runs]
    yield "outcome", "device", [run.measured.device for run in runs]
    for name in dict.fromkeys(name for run in runs for name in run.metrics):
        yield "quality", name, [_plain(run.metrics.get(name)) for run in runs]
    yield "quality", "last_loss", [plain_number(run.loss[-1][1]) if run.loss else None for run in runs]
    for name in (*_SPEED, *(key for key, _, _ in PEAKS)):
        figures = [plain_number(getattr(run.measured, name)) for run in runs]
        if any(figure is not None for figure in figures):
            yield "speed" if name in _SPEED else "memory", name, list(figures)
    energy = [run.measured.energy for run in runs]
    yield "cost", "held_s", [plain_number(run.measured.seconds) for run in runs]
    yield "cost", "energy_j", [None if one is None else plain_number(one.joules) for one in energy]
    yield "cost", "cost_usd", [None if run.measured.usd is None else plain_usd(run.measured.usd) for run in runs]


def _plain(value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return plain_number(value) if number else " ".join(map(str, value)) if isinstance(value, list) else value


def _document(runs: Sequence[RunSummary]) -> dict[str, Any]:
    grouped: dict[str, dict[str, list[Any]]] = {
        kind: {} for kind in ("asked", "outcome", "quality", "speed", "memory", "cost")
    }
    for kind, name, values in _lines(runs):
        grouped[kind][name] = values
    return {"schema": SCHEMA, "runs": [run.name for run in runs], **grouped}


def _blocks(runs: Sequence[RunSummary]) -> Iterator[Block]:
    lines = list(_lines(runs))
    titles = {"asked": "Asked differently", "outcome": "Outcome", "quality": "How good it is", "speed": "Speed",
              "memory": "Memory", "cost": "Cost"}  # fmt: skip
    for kind, title in titles.items():
        chosen = [(name, values) for own, name, values in lines if own == kind]
        if kind == "asked" and not chosen:
            yield Heading(text=title)
            yield Paragraph(text="nothing: the same was asked of all", tone="faint")
        elif chosen:
            yield Heading(text=title)
            yield _table(runs, chosen, figures=kind not in {"asked", "outcome"})
    if any(run.loss for run in runs):
        yield Heading(text="Loss")
        series = tuple((run.name, run.loss) for run in runs)
        yield LineChart(title="Training loss", x_title="step", y_title="loss", series=series)


def _table(runs: Sequence[RunSummary], lines: Sequence[tuple[str, list[Any]]], *, figures: bool) -> Table:
    others = len(runs) == 2 and figures
    columns = (
        Column(title=""),
        *(Column(title=run.name, align="right" if figures else "left", wraps=not figures) for run in runs),
        *((Column(title="second / first", align="right"),) if others else ()),
    )
    rows = [
        (_label(name), *(_shown(name, value) for value in values), *((_ratio(values),) if others else ()))
        for name, values in lines
    ]
    return Table(columns=columns, rows=tuple(rows))


def _label(name: str) -> str:
    words = {key: label for key, label, _ in PEAKS} | _LABELS
    return words.get(name, name if "." in name else name.replace("_", " "))


def _shown(name: str, value: Any) -> str:
    if value is None:
        return UNKNOWN
    if not isinstance(value, int | float) or isinstance(value, bool) or "." in name:
        return str(value)
    if name.endswith("_bytes"):
        return render_gib(to_gib(value))
    if name == "energy_j":
        return f"{short(value / 1000)} kJ"
    return render_value(name, value)[1] if name in {*_SPEED, "held_s", "cost_usd"} else short(value, 4)


def _ratio(values: Sequence[Any]) -> str:
    first, second = values
    known = all(isinstance(value, int | float) for value in values)
    return f"{second / first:.3g}" if known and first else UNKNOWN
