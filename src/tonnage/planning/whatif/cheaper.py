"""What would win but for a risk, a doubted price or an unknown: named beside the best, never hidden."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tonnage.planning.order import order_key
from tonnage.planning.plan import (
    Cheaper,
    MachineOption,
    Objective,
    Option,
    PriceTrusted,
    Refusal,
    RiskAccepted,
    TokenOption,
    UnknownAnswered,
)


def cheaper_than(
    options: Sequence[Option],
    *,
    bolder: MachineOption | None,
    unverified: MachineOption | None,
    doubted: MachineOption | None,
    refused: Iterable[Refusal],
    objective: Objective,
) -> tuple[Cheaper, ...]:
    """What comes before the best of `options` (ranked). `bolder`: the best where memory fits on its expected figure;
    `unverified`: where a host's unknown memory is enough; `doubted`: at a price of machines that is in more doubt."""
    if not options:
        return ()
    best = options[0]

    def ahead(option: Option | None) -> bool:
        return option is not None and order_key(option, objective) < order_key(best, objective)

    found: list[Cheaper] = []
    if bolder is not None and ahead(bolder):
        found.append(RiskAccepted(risk="memory", option=bolder, saves_usd=_saves(bolder, best)))
    tokens = [one for one in options if isinstance(one, TokenOption) and one.doubt_level > best.doubt_level]
    doubts: list[Option] = [*([doubted] if doubted is not None else []), *tokens]
    first = min(doubts, key=lambda option: order_key(option, objective), default=None)
    if first is not None and ahead(first):
        found.append(PriceTrusted(option=first, saves_usd=_saves(first, best)))
    if unverified is not None and ahead(unverified):
        found.append(
            UnknownAnswered(candidate=unverified, unknown="host memory", cost_usd=unverified.cost_usd.value,
                            saves_usd=_saves(unverified, best))
        )  # fmt: skip
    return (*found, *_unknowns(refused, best))


def _unknowns(refused: Iterable[Refusal], best: Option) -> Iterator[UnknownAnswered]:
    """The cheapest refusal of each unknown that costs less than the best."""
    known_to_win: dict[str, Refusal] = {}
    priced = [one for one in refused if one.unknown is not None and one.would_cost_usd is not None]
    for refusal in sorted(priced, key=lambda one: one.would_cost_usd or 0.0):
        known_to_win.setdefault(refusal.unknown or "", refusal)
    for refusal in known_to_win.values():
        cost, unknown = refusal.would_cost_usd, refusal.unknown
        if cost is not None and unknown is not None and cost < best.cost_usd.value:
            yield UnknownAnswered(
                candidate=refusal, unknown=unknown, cost_usd=cost, saves_usd=best.cost_usd.value - cost
            )


def _saves(option: Option, best: Option) -> float:
    return best.cost_usd.value - option.cost_usd.value
