"""Options as a table for people, with their risks as footnotes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from string import ascii_lowercase

from tonnage.planning.plan import Option, Plan, TokenOption
from tonnage.planning.reasons import Risk, has_figures, without_figures
from tonnage.reports.blocks import Column, Pairs, Table
from tonnage.reports.cheaper import price_words
from tonnage.reports.reasons import risk_words
from tonnage.reports.wording import (
    plural,
    render_bought,
    render_duration,
    render_gpus,
    render_machines,
    render_money,
    render_money_interval,
    render_price,
    render_time_interval,
)


def option_table(plan: Plan, options: Sequence[Option], *, best_first: bool) -> tuple[Table, Pairs]:
    """The table of `options`, and what the letters in its last column mean."""
    service = plan.horizon == "month"
    front = plan.objective == "pareto"
    notes = RiskNotes(options)
    columns = (
        Column(title="#", align="right"),
        Column(title="provider", folds=2, fold_text="at {}"),
        Column(title="machines", wraps=True),
        Column(title="GPUs", folds=5),
        Column(title="region", folds=8, fold_text="in {}"),
        Column(title="bought", folds=3),
        Column(title="p95" if service else "time", align="right", folds=1),
        Column(title="80 %", align="right", folds=7),
        Column(title="cost a month" if service else "cost", align="right"),
        Column(title="80 %", align="right", folds=6),
        Column(title="an hour each", align="right", folds=10, fold_text=""),
        Column(title="price read", folds=5, fold_text="price {}"),
        Column(title="layout", folds=9, wraps=True),
        *((Column(title="front"),) if front else ()),
        Column(title="risks", folds=4, fold_text="risks {}"),
    )
    rows = tuple(_row(option, notes, service=service, front=front) for option in options)
    return Table(columns=columns, rows=rows, first_is_best=best_first), notes.legend()


def _row(option: Option, notes: RiskNotes, *, service: bool, front: bool) -> tuple[str, ...]:
    promised = option.promised
    time = promised[1] if service and promised else option.time_s
    return (
        str(option.rank),
        option.provider,
        render_machines(option.count, option.instance_type),
        render_hardware(option),
        option.region or "any region",
        render_bought(option.purchase, option.platform),
        render_duration(time.value if time else None),
        render_time_interval(time),
        render_money(option.cost_usd.value),
        render_money_interval(option.cost_usd),
        render_price(option.usd_per_instance_hour),
        price_words(option),
        option.layout,
        *(("on" if option.pareto else "behind",) if front else ()),
        notes.letters(option),
    )


def render_hardware(option: Option) -> str:
    """The GPUs of an option; tokens need none."""
    if isinstance(option, TokenOption):
        return "token API"
    return render_gpus(option.gpu, option.gpu_count, option.count)


class RiskNotes:
    """Risks that differ only in their figures share a letter; the legend quotes the best-ranked option's."""

    def __init__(self, options: Sequence[Option]) -> None:
        self._first: dict[Hashable, tuple[Risk, int]] = {}
        self._count: dict[Hashable, int] = {}
        for option in options:
            for kind in dict.fromkeys(without_figures(risk) for risk in option.risks):
                self._count[kind] = self._count.get(kind, 0) + 1
            for risk in option.risks:
                self._first.setdefault(without_figures(risk), (risk, option.rank))
        self._letters = {kind: _letter(number) for number, kind in enumerate(self._first)}

    def letters(self, option: Option) -> str:
        return " ".join(dict.fromkeys(self._letters[without_figures(risk)] for risk in option.risks))

    def legend(self) -> Pairs:
        """Letter -> the risk; where others have it with their own figures, how many."""
        rows = []
        for kind, (risk, rank) in self._first.items():
            others = self._count[kind] - 1
            varies = has_figures(risk)
            whose = f" (#{rank}; {plural(others, 'other')} alike)" if others and varies else ""
            whose = f" (#{rank})" if varies and not others else whose
            rows.append((self._letters[kind], risk_words(risk) + whose))
        return Pairs(rows=tuple(rows))


def _letter(number: int) -> str:
    """
    >>> _letter(0), _letter(25), _letter(26)
    ('a', 'z', 'aa')
    """
    high, low = divmod(number, 26)
    return (ascii_lowercase[high - 1] if high else "") + ascii_lowercase[low]
