"""Studies on the page of a bench: the search for hyper-parameters, scaling over workers, ease of each engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tonnage.reports.blocks import Block, Bullets, Column, Heading, LineChart, Paragraph, Table
from tonnage.reports.listing import Field, Fields, cell, field_table, field_values
from tonnage.reports.plain import plain_figure, plain_number
from tonnage.reports.wording import UNKNOWN, plural, render_count, render_money, short
from tonnage.side_by_side.ease import EngineEase
from tonnage.side_by_side.scaling import PARTS, ScalingPoint
from tonnage.side_by_side.searches import EngineSearch, SearchTrial
from tonnage.side_by_side.spec import BenchData, BenchSpec, SearchTerms
from tonnage.sizing.estimates import Figure


def search_blocks(spec: BenchSpec, data: BenchData, searches: tuple[EngineSearch, ...]) -> Iterator[Block]:
    """The searches on one data set; nothing where there was none."""
    mine = [one for one in searches if one.data == data.name]
    if spec.search is None or not mine:
        return
    yield Heading(text=f"{data.name}: search with {said_budget(spec.search)} for each engine")
    yield field_table(_search_fields(spec.usd_per_hour), mine)
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


def _search_fields(hourly: float | None) -> Fields[EngineSearch]:
    return (
        Field("data", lambda one: one.data),
        Field("name", lambda one: one.engine, title="engine"),
        cell("trials", lambda one: str(len(one.trials)), right=True),
        cell("failed", lambda one: str(one.failed), right=True),
        Field("metric", lambda one: one.metric),
        Field("spent_s", lambda one: one.spent_s, title="s spent", show=lambda spent_s: short(spent_s, 3), right=True),
        Field("wall_s", lambda one: one.wall_s, title="with start-up s", show=lambda wall_s: short(wall_s, 3),
              right=True),
        Field("usd", lambda one: None if hourly is None else one.spent_s * hourly / 3600, title="USD",
              show=lambda usd: UNKNOWN if usd is None else render_money(usd), right=True),
        Field("as_given", lambda one: one.as_given, title="as given", right=True),
        Field("best", lambda one: None if one.best is None else one.best.quality, title="best", right=True),
        Field("best_trial", lambda one: None if one.best is None else one.best.number, title="in trial",
              show=lambda number: UNKNOWN if number is None else str(number), right=True),
        Field("settings", lambda one: None if one.best is None else dict(one.best.settings)),
        Field("trials", lambda one: [_trial_document(trial) for trial in one.trials]),
    )  # fmt: skip


def _trial_document(trial: SearchTrial) -> dict[str, Any]:
    return {
        "number": trial.number, "quality": plain_number(trial.quality), "spent_s": plain_number(trial.spent_s),
        "wall_s": plain_number(trial.wall_s), "reason": trial.reason, "settings": dict(trial.settings),
    }  # fmt: skip


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
    fields = _search_fields(spec.usd_per_hour)
    return {
        "trials": terms.trials, "work_s": plain_number(terms.work_s), "usd": plain_number(terms.usd),
        "sampler": terms.sampler, "seed": terms.seed, "validation_fraction": terms.validation_fraction,
        "engines": [field_values(fields, one) for one in searches],
    }  # fmt: skip


def scaling_blocks(points: Sequence[ScalingPoint]) -> Iterator[Block]:
    """A table and a chart for each data set; nothing where no engine was measured over workers."""
    for data in dict.fromkeys(one.data for one in points):
        mine = [one for one in points if one.data == data]
        yield Heading(text=f"{data}: scaling over workers")
        titles = ("engine", "scaling", "workers", "training rows", "rows/s", "efficiency (80 %)", "limited by", *PARTS)
        columns = tuple(
            Column(title=title, align="right" if 2 <= place != 6 else "left", folds=max(place - 6, 0),
                   fold_text=title + " {}")
            for place, title in enumerate(titles)
        )  # fmt: skip
        yield Table(columns=columns, rows=tuple(_scaling_row(one) for one in mine))
        curves = {(one.group, one.kind): [] for one in mine}  # type: dict[tuple[str, str], list[tuple[float, float]]]
        for one in mine:
            if one.efficiency is not None:
                curves[one.group, one.kind].append((float(one.workers), one.efficiency.value))
        lines = tuple((f"{group}, {kind}", tuple(at)) for (group, kind), at in curves.items() if len(at) > 1)
        if lines:
            yield LineChart(title=f"{data}: efficiency", x_title="workers",
                            y_title="rows/s of n workers over n times those of one", series=lines)  # fmt: skip
    if points:
        yield Paragraph(tone="faint", text=(
            "Efficiency is rows/s over the workers times the rows/s of one. Strong: all rows; weak: as many rows and "
            "as large a batch for each worker. The columns after it are what each part of a step takes from the "
            "efficiency (below zero: gives), from steps looked at after the training: «cores shared» is time that a "
            "worker was ready and waited for a processor, «computing» what the same rows take longer. Without an "
            "interval there was one repeat."
        ))  # fmt: skip


def _scaling_row(one: ScalingPoint) -> tuple[str, ...]:
    alone = one.workers == 1
    limit = "" if alone else UNKNOWN if one.limited_by is None else one.limited_by or "nothing above 2 %"
    return (
        one.group, one.kind, str(one.workers), f"{one.train_rows:,}", render_count(one.rows_per_s.value),
        "1" if alone else _efficiency(one.efficiency), limit,
        *("" if alone else _share(one.losses.get(part)) for part in PARTS),
    )  # fmt: skip


def _efficiency(figure: Figure | None) -> str:
    if figure is None:
        return UNKNOWN
    spread = "" if figure.low == figure.high else f" ({figure.low:.2f}–{figure.high:.2f})"
    return f"{figure.value:.2f}{spread}"


def _share(loss: float | None) -> str:
    return UNKNOWN if loss is None else f"{loss:.0%}".replace("%", " %")


def scaling_document(points: Sequence[ScalingPoint]) -> list[dict[str, Any]]:
    """The points for JSON; `limited_by` null: not measured, "": nothing above 2 %."""
    return [
        {
            "data": one.data, "name": one.group, "scaling": one.kind, "workers": one.workers,
            "train_rows": one.train_rows, "repeats": one.repeats, "rows_per_s": plain_figure(one.rows_per_s),
            "efficiency": plain_figure(one.efficiency), "limited_by": None if one.workers == 1 else one.limited_by,
            "losses": {part.replace(" ", "_"): plain_number(loss) for part, loss in one.losses.items()},
        }
        for one in points
    ]  # fmt: skip


_EASE: Final[Fields[tuple[str, EngineEase]]] = (
    Field("engine", lambda one: one[0], title="engine"),
    Field("environment", lambda one: one[1].environment, title="environment", show=lambda name: name or "tonnage's"),
    Field("setup_s", lambda one: one[1].setup_s, title="set-up s", right=True,
          show=lambda taken_s: UNKNOWN if taken_s is None else short(taken_s)),
    Field("adapter_lines", lambda one: one[1].adapter_lines, title="adapter lines", right=True, show=str),
)  # fmt: skip


def ease_blocks(ease: Mapping[str, EngineEase]) -> Iterator[Block]:
    """A table of engines; nothing where none was looked at."""
    if not ease:
        return
    yield Heading(text="Ease")
    yield field_table(_EASE, tuple(ease.items()))
    yield Paragraph(tone="faint", text=(
        "Set-up is that of `tonnage bench setup` here: packages fetched and installed, and a trial. Lines are those on "
        "which a statement of the engine's adapter begins, with the modules that it shares with others."
    ))  # fmt: skip


def ease_document(ease: Mapping[str, EngineEase]) -> list[dict[str, Any]]:
    """The same for JSON."""
    return [field_values(_EASE, one) for one in ease.items()]
