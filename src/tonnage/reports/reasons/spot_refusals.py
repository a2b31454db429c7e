"""Words for why work is not to run on spot alone."""

from __future__ import annotations

from typing import Any, assert_never

from tonnage.reports.reasons.document import reason_document
from tonnage.spot_instances import refusals as kinds
from tonnage.spot_instances.refusals import SpotRefusal


def spot_refusal_document(refusal: SpotRefusal | None) -> dict[str, Any] | None:
    """The refusal as JSON; None where spot is not refused."""
    return None if refusal is None else reason_document(refusal, spot_refusal_words(refusal))


def spot_refusal_words(refusal: SpotRefusal) -> str:
    """One clause, without a capital or a full stop."""
    hours = f"{refusal.expected_h:,.0f} h" if refusal.expected_h < 1e6 else "more than a million hours"
    match refusal:
        case kinds.DeadlineTooSoon(deadline_h=deadline, undisturbed_h=undisturbed):
            return (
                f"no machine keeps a deadline of {deadline:g} h: work and start-up take {undisturbed:g} h, on spot "
                f"alone {hours} are expected"
            )
        case kinds.SpotDiverges(work_h=work, checkpoints=checkpoints):
            what = "at this checkpoint interval" if checkpoints else "without checkpoints"
            return f"spot {what} diverges: {hours} are expected for {work:g} h of work"
        case kinds.SpotMissesDeadline(deadline_h=deadline, chance_fraction=chance, checkpoints=checkpoints):
            slack = "there is no slack in which on-demand could step in"
            why = slack if checkpoints else "without checkpoints on-demand would begin again"
            return (
                f"spot alone misses the deadline of {deadline:g} h with a chance of {100 * chance:.0f} %: {hours} are "
                f"expected, and {why}"
            )
        case _:
            assert_never(refusal)
