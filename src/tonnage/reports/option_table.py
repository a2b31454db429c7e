"""Options as a table for people, with their risks as footnotes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from string import ascii_lowercase

from tonnage.planning.plan import Option, Plan, TokenOption
from tonnage.planning.reasons import Risk, has_figures, without_figures
from tonnage.reports.blocks import Pairs, Table
from tonnage.reports.cheaper import price_words
from tonnage.reports.listing import Field, Fields, cell, field_table
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
from tonnage.sizing.estimates import Figure


def option_table(plan: Plan, options: Sequence[Option], *, best_first: bool) -> tuple[Table, Pairs]:
    """The table of `options`, and what the letters in its last column mean."""
    notes = RiskNotes(options)
    front: list[Field[Option]] = []
    if plan.objective == "pareto":
        front.append(cell("front", lambda one: "on" if one.pareto else "behind"))
    promised, cost = ("p95", "cost a month") if plan.horizon == "month" else ("time", "cost")
    fields: Fields[Option] = (
        *leading_fields(provider_folds=2, gpus_fold=5),
        cell("region", lambda one: one.region or "any region", folds=8, fold_text="in {}"),
        cell("bought", render_option_bought, folds=3),
        cell(promised, lambda one: render_time(one, plan), right=True, folds=1),
        cell("80 %", lambda one: render_time_interval(time_of(one, plan)), right=True, folds=7),
        cell(cost, render_cost, right=True),
        cell("80 %", lambda one: render_money_interval(one.cost_usd), right=True, folds=6),
        cell("an hour each", lambda one: render_price(one.usd_per_instance_hour), right=True, folds=10, fold_text=""),
        cell("price read", price_words, folds=5, fold_text="price {}"),
        cell("layout", lambda one: one.layout, folds=9, wraps=True),
        *front,
        cell("risks", notes.letters, folds=4, fold_text="risks {}"),
    )
    return field_table(fields, options, first_is_best=best_first), notes.legend()


def time_of(option: Option, plan: Plan) -> Figure | None:
    """What a service promises, else how long the work takes."""
    promised = option.promised
    return promised[1] if plan.horizon == "month" and promised else option.time_s


def render_time(option: Option, plan: Plan) -> str:
    time = time_of(option, plan)
    return render_duration(time.value if time else None)


def render_option_bought(option: Option) -> str:
    return render_bought(option.purchase, option.platform)


def render_cost(option: Option) -> str:
    return render_money(option.cost_usd.value)


def render_hardware(option: Option) -> str:
    """The GPUs of an option; tokens need none."""
    if isinstance(option, TokenOption):
        return "token API"
    return render_gpus(option.gpu, option.gpu_count, option.count)


def leading_fields(*, provider_folds: int = 0, gpus_fold: int = 0) -> Fields[Option]:
    """What each table of options begins with; where these two columns fold, in which turn."""
    return (
        cell("#", lambda one: str(one.rank), right=True),
        cell("provider", lambda one: one.provider, folds=provider_folds, fold_text="at {}"),
        cell("machines", lambda one: render_machines(one.count, one.instance_type), wraps=True),
        cell("GPUs", render_hardware, folds=gpus_fold),
    )


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
