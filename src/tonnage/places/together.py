"""Several machines that a cloud gives for one run, as one job: their ids joined, and one view of all. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tonnage.places.states import JobView, Phase

JOINT: Final = ","  # between the machines' ids in a job's
SLOWEST: Final = (Phase.QUEUED, Phase.PROVISIONING, Phase.RUNNING, Phase.ENDING)


def joint_view(views: Sequence[JobView]) -> JobView:
    """Several machines as one job: it works while one of them does, and is where the slowest is.

    Why one has ended before the others is kept: that is why the job ends.

    >>> taken = JobView(phase=Phase.ENDED, job_id="i-2", word="terminated", reason="Spot took it")
    >>> joint_view([JobView(phase=Phase.RUNNING, job_id="i-1", word="running"), taken]).reason
    'i-2: Spot took it'
    """
    if len(views) == 1:
        return views[0]
    live = [one for one in views if one.phase in SLOWEST]
    over = [one for one in views if one.phase not in SLOWEST]
    shown = min(live, key=lambda one: SLOWEST.index(one.phase)) if live else _ended_as(over)
    told = sorted((one for one in over if one.reason), key=lambda one: one.phase is not Phase.ENDED)
    first = told[0] if told else over[0] if over else shown
    said = first.reason or ("no longer listed" if first.phase is Phase.GONE else "")
    reason = f"{first.job_id}: {said}" if said and over else shown.reason
    return JobView(
        phase=shown.phase, job_id=JOINT.join(str(one.job_id) for one in views), word=shown.word, reason=reason
    )  # fmt: skip


def _ended_as(over: Sequence[JobView]) -> JobView:
    """Of machines that have all ended: the end that says most."""
    order = (Phase.ENDED, Phase.CANCELLED, Phase.GONE)
    return min(over, key=lambda one: order.index(one.phase))
