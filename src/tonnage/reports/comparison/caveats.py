"""What a reader must know before acting on the summary, beside the reasons of the answer."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.scoring import learn_apart


def caveats(comparison: Comparison) -> list[str]:
    """What a reader must know before acting on the answer, beside its reasons."""
    if learn_apart(comparison.request.alternatives, comparison.totals):
        return [
            "They learn different models of one table: accuracy is not compared, measure it on your own data. A pass "
            "over the rows is not the same work for each: compare times, not rates."
        ]
    return []


def level(comparison: Comparison, alternatives: Sequence[str]) -> str:
    """Those that lead together, by their titles."""
    names = [comparison.title_of[alternative] for alternative in alternatives]
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
