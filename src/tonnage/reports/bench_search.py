"""A bench's search for hyper-parameters: what the equal budget bought each engine, the best settings, every trial."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tonnage.reports.blocks import Block, Bullets, Column, Heading, LineChart, Paragraph, Table
from tonnage.reports.plain import plain_number
from tonnage.reports.wording import UNKNOWN, plural, render_money, short
from tonnage.side_by_side.searches import EngineSearch
from tonnage.side_by_side.spec import BenchData, BenchSpec, SearchTerms

TITLES = ("engine", "trials", "failed", "s spent", "with start-up s", "USD", "as given", "best", "in trial")


def search_blocks(spec: BenchSpec, data: BenchData, searches: tuple[EngineSearch, ...]) -> Iterator[Block]:
    """The searches on one data set; nothing where there was none."""
    mine = [one for one in searches if one.data == data.name]
    if spec.search is None or not mine:
        return
    yield Heading(text=f"{data.name}: search with {said_budget(spec.search)} for each engine")
    columns = tuple(Column(title=title, align="right" if place else "left") for place, title in enumerate(TITLES))
    yield Table(columns=columns, rows=tuple(_row(one, spec.usd_per_hour) for one in mine))
    yield Bullets(items=tuple(f"{one.engine}: {said_settings(one.best.settings) or 'as given'}"
                              for one in mine if one.best is not None))  # fmt: skip
    searching = ", ".join(engine.name for engine in spec.engines if engine.family == "automl")
    if searching:
        yield Paragraph(
            text=f"{searching}: the same budget, searched within its training, which the tables above are of."
        )
    lines = tuple((one.engine, tuple(one.course())) for one in mine if one.best is not None)
    if lines:
        yield LineChart(
            title=f"{data.name}: best quality found",
            series=lines,
            x_title="seconds of preparing and training, all trials",
            y_title=f"{data.metric} on rows held out of the training rows",
        )
    yield Paragraph(tone="faint", text=(
        f"Trials are judged on {spec.search.validation_fraction:.0%} of the training rows, held out for that; no trial "
        "has the validation or the test rows. Trial 1 has the settings of the file. No trial is ended early: not every "
        "engine says on the way how good it is. The tables above are of the best settings on all training rows."
    ))  # fmt: skip


def said_budget(terms: SearchTerms) -> str:
    """The budget in words."""
    if terms.trials is not None:
        return plural(terms.trials, "trial")
    if terms.work_s is not None:
        return f"{terms.work_s:g} s of preparing and training"
    assert terms.usd is not None
    return f"{render_money(terms.usd)} of preparing and training"


def _row(one: EngineSearch, hourly: float | None) -> tuple[str, ...]:
    best = one.best
    return (
        one.engine, str(len(one.trials)), str(one.failed), short(one.spent_s, 3), short(one.wall_s, 3),
        UNKNOWN if hourly is None else render_money(one.spent_s * hourly / 3600),
        UNKNOWN if one.as_given is None else short(one.as_given, 4),
        UNKNOWN if best is None or best.quality is None else short(best.quality, 4),
        UNKNOWN if best is None else str(best.number),
    )  # fmt: skip


def said_settings(settings: Mapping[str, Any]) -> str:
    """Settings on one line, short figures.

    >>> said_settings({"depth": 8, "native.subsample": 0.73456, "hidden": [64, 32]})
    'depth 8, native.subsample 0.735, hidden 64x32'
    """
    return ", ".join(f"{name} {_short(value)}" for name, value in settings.items())


def _short(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "x".join(map(str, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def search_document(spec: BenchSpec, searches: tuple[EngineSearch, ...]) -> dict[str, Any] | None:
    """The budget and every trial; None where nothing is searched."""
    terms = spec.search
    if terms is None:
        return None
    return {
        "trials": terms.trials, "work_s": plain_number(terms.work_s), "usd": plain_number(terms.usd),
        "sampler": terms.sampler, "seed": terms.seed, "validation_fraction": terms.validation_fraction,
        "engines": [_engine_document(one, spec.usd_per_hour) for one in searches],
    }  # fmt: skip


def _engine_document(one: EngineSearch, hourly: float | None) -> dict[str, Any]:
    best = one.best
    return {
        "data": one.data, "name": one.engine, "metric": one.metric, "spent_s": plain_number(one.spent_s),
        "wall_s": plain_number(one.wall_s),
        "usd": None if hourly is None else plain_number(one.spent_s * hourly / 3600),
        "as_given": plain_number(one.as_given), "best": None if best is None else plain_number(best.quality),
        "best_trial": None if best is None else best.number, "settings": None if best is None else dict(best.settings),
        "trials": [
            {"number": trial.number, "quality": plain_number(trial.quality), "spent_s": plain_number(trial.spent_s),
             "wall_s": plain_number(trial.wall_s), "reason": trial.reason, "settings": dict(trial.settings)}
            for trial in one.trials
        ],
    }  # fmt: skip
