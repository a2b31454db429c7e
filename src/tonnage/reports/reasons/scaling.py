"""Words for why a number of replicas is wanted."""

from __future__ import annotations

from typing import assert_never

from tonnage.reports.wording import plural, short
from tonnage.scaling import reasons as kinds
from tonnage.scaling.reasons import ScalingReason


def scaling_words(reason: ScalingReason) -> str:
    """One clause, without a capital or a full stop."""
    match reason:
        case kinds.FollowsLoad(load_slots=load, room_slots=room):
            return f"{short(load)} slots of load are expected after a start-up, {short(room)} more are room for chance"
        case kinds.ClearsBacklog(waiting=waiting):
            return f"{short(waiting)} requests would still wait after a start-up"
        case kinds.HoldsFloor(floor=floor):
            return f"past bursts were faster than a start-up: {plural(floor, 'replica')} stay"
        case kinds.HoldsPeak(load_slots=load, hold_s=hold):
            return f"the load has fallen to {short(load)} slots; replicas go slowly, in about {short(hold)} s"
        case kinds.Idle(silent_s=silent):
            return f"no request came for {short(silent)} s"
        case kinds.Scheduled(least=least, most=most):
            return f"the schedule and the range allow {least} to {most} replicas"
        case kinds.RivalRule(policy=policy, measured=measured, target=target):
            return f"{policy} measures {short(measured)} against a target of {short(target)} a replica"
        case _:
            assert_never(reason)
