"""Weighted scores of the alternatives compared, judged and computed alike, and how sure their order is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import numpy as np

from tonnage.comparison.computed import Total
from tonnage.comparison.criteria import HIGHEST, LOWEST, Criterion, best_of, measured_score
from tonnage.comparison.request import Alternative
from tonnage.sizing.estimates import Figure
from tonnage.values import dataclass

Basis = Literal["judged", "computed"]
WEIGHT_SIGMA: Final = 0.5  # of the logarithm: two thirds of the drawn weights lie within a factor of 1.65
JUDGED_STEPS: Final = (-1.0, 0.0, 1.0)
JUDGED_ODDS: Final = (0.25, 0.5, 0.25)  # a judged score is taken to be one off in half of the draws


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """1 to 5, with the scores at the ends of the figure's interval where it is computed."""

    value: float
    low: float
    high: float
    basis: Basis


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One alternative: `total` over the criteria that all have scores for; `low` and `high` with every unknown at 1
    and 5."""

    alternative: str
    total: float
    low: float
    high: float
    unknown: tuple[str, ...]


Scores = Mapping[str, Mapping[str, Score]]  # alternative -> criterion -> score


def score_all(
    criteria: Sequence[Criterion],
    alternatives: Sequence[Alternative],
    totals: Mapping[str, Total],
    costs: Mapping[str, Figure | None],
) -> Scores:
    """Every score that is known. `costs`: the figure behind the measure `usd_per_month`, by alternative."""
    out: dict[str, dict[str, Score]] = {alternative.name: {} for alternative in alternatives}
    for criterion in criteria:
        if criterion.measure is None:
            for alternative in alternatives:
                cell = alternative.profile.cells.get(criterion.key)
                if cell is not None and cell.score is not None:
                    level = float(cell.score)
                    out[alternative.name][criterion.key] = Score(value=level, low=level, high=level, basis="judged")
            continue
        if criterion.measure == "throughput_per_s" and learn_apart(alternatives, totals):
            continue
        for name, score in _measured(criterion, totals, costs).items():
            out[name][criterion.key] = score
    return out


def learn_apart(alternatives: Sequence[Alternative], totals: Mapping[str, Total]) -> bool:
    """Whether a table is learnt by different methods: a pass of a tree and one of a network are not the same work."""
    tabular = any(row.kind == "tabular" for total in totals.values() for row in total.rows)
    return tabular and len({alternative.profile.scope.tabular_method for alternative in alternatives}) > 1


def _measured(
    criterion: Criterion, totals: Mapping[str, Total], costs: Mapping[str, Figure | None]
) -> dict[str, Score]:
    found = {
        name: costs[name] if criterion.measure == "usd_per_month" else getattr(total, str(criterion.measure))
        for name, total in totals.items()
    }
    figures: dict[str, Figure] = {name: figure for name, figure in found.items() if figure is not None}
    if not figures:
        return {}
    best = best_of(criterion, figures)
    out = {}
    for name, figure in figures.items():
        ends = [measured_score(criterion, end, best) for end in (figure.low, figure.high)]
        value = measured_score(criterion, figure.value, best)
        out[name] = Score(value=value, low=min(*ends, value), high=max(*ends, value), basis="computed")
    return out


def common_criteria(scores: Scores, weights: Mapping[str, float], names: Sequence[str]) -> tuple[str, ...]:
    """Criteria with a weight for which every one of `names` has a score."""
    return tuple(key for key, weight in weights.items() if weight > 0 and all(key in scores[name] for name in names))


def weighted(scores: Scores, weights: Mapping[str, float], names: Sequence[str]) -> tuple[Scored, ...]:
    """The weighted mean of each of `names`, best first (ties by name)."""
    common = common_criteria(scores, weights, names)
    applied = [key for key, weight in weights.items() if weight > 0 and any(key in scores[name] for name in names)]
    out = [
        Scored(
            alternative=name,
            total=_mean([(weights[key], scores[name][key].value) for key in common]),
            low=_mean([(weights[key], scores[name][key].low if key in scores[name] else LOWEST) for key in applied]),
            high=_mean([(weights[key], scores[name][key].high if key in scores[name] else HIGHEST) for key in applied]),
            unknown=tuple(key for key in applied if key not in scores[name]),
        )
        for name in names
    ]
    return tuple(sorted(out, key=lambda one: (-one.total, one.alternative)))


def _mean(pairs: Sequence[tuple[float, float]]) -> float:
    total = sum(weight for weight, _ in pairs)
    return sum(weight * value for weight, value in pairs) / total if total else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFlip:
    """The weight of one criterion at which `rival` draws level with the winner; beyond it (`side`) the rival wins."""

    criterion: str
    rival: str
    weight_now: float
    weight_at_tie: float
    side: Literal["above", "below"]


def weight_flips(scores: Scores, weights: Mapping[str, float], names: Sequence[str]) -> tuple[WeightFlip, ...]:
    """For each criterion the nearest weight, all others as they are, at which the winner changes.

    Closed form: the winner W leads rival R by sum_b w_b d_b with d = s_W - s_R, so they tie at
    w_a = -(sum over b != a of w_b d_b) / d_a; no such weight (or a negative one) means that criterion cannot flip it.
    """
    common = common_criteria(scores, weights, names)
    if len(names) < 2 or not common:
        return ()
    winner = weighted(scores, weights, names)[0].alternative
    out = []
    for criterion in common:
        ties = []
        for rival in sorted(set(names) - {winner}):
            difference = {key: scores[winner][key].value - scores[rival][key].value for key in common}
            if abs(difference[criterion]) < 1e-12:
                continue
            rest = sum(weights[key] * difference[key] for key in common if key != criterion)
            tie = -rest / difference[criterion]
            if tie >= 0:
                side: Literal["above", "below"] = "below" if difference[criterion] > 0 else "above"
                now = weights[criterion]
                ties.append(WeightFlip(criterion=criterion, rival=rival, weight_now=now, weight_at_tie=tie, side=side))
        for side_wanted in ("below", "above"):
            of_side = [one for one in ties if one.side == side_wanted]
            if of_side:
                out.append(min(of_side, key=lambda one: (abs(one.weight_at_tie - one.weight_now), one.rival)))
    return tuple(sorted(out, key=lambda one: (_change(one), one.criterion)))


def _change(flip: WeightFlip) -> float:
    """How far a weight must move, as a factor; doubling and halving are equally far."""
    if flip.weight_at_tie == 0 or flip.weight_now == 0:
        return float("inf")
    ratio = flip.weight_at_tie / flip.weight_now
    return max(ratio, 1 / ratio)


def stability(
    scores: Scores, weights: Mapping[str, float], names: Sequence[str], *, draws: int, seed: int
) -> dict[str, float]:
    """Share of `draws` in which each of `names` is first, with weights and scores shaken.

    Weights: log-normal around their own (sigma 0.5). Judged scores: one off, up or down, in half of the draws. Computed
    scores: anywhere in their interval, evenly.
    """
    common = common_criteria(scores, weights, names)
    if not common:
        return dict.fromkeys(names, 0.0)
    generator = np.random.default_rng(seed)
    base = np.array([weights[key] for key in common])
    drawn = base * np.exp(generator.normal(0.0, WEIGHT_SIGMA, size=(draws, len(common))))
    totals = []
    for name in sorted(names):
        columns = [_shaken(scores[name][key], generator, draws) for key in common]
        totals.append((drawn * np.stack(columns, axis=1)).sum(axis=1))
    first = np.argmax(np.stack(totals, axis=1), axis=1)
    return {name: float(np.mean(first == place)) for place, name in enumerate(sorted(names))}


def _shaken(score: Score, generator: np.random.Generator, draws: int) -> np.ndarray:
    if score.basis == "judged":
        steps = generator.choice(JUDGED_STEPS, size=draws, p=JUDGED_ODDS)
        return np.clip(score.value + steps, LOWEST, HIGHEST)
    return (
        generator.uniform(score.low, score.high, size=draws) if score.high > score.low else np.full(draws, score.value)
    )
