"""The gains that comparison documents promise most often, each as a figure that can be checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, get_args

from tonnage.claimed_gains.gain import PromisedGain, Subject
from tonnage.errors import InputError, did_you_mean, nearest

SUBJECTS: Final[tuple[str, ...]] = get_args(Subject)
TARGETS: Final = (
    PromisedGain(subject="spot", unit="saving", least=0.60, most=0.80),
    PromisedGain(subject="autoscaling", unit="saving", least=0.40),
    PromisedGain(subject="right-sizing", unit="saving", least=0.25),
    PromisedGain(subject="arm", unit="saving", least=0.20),
    PromisedGain(subject="h100", unit="times", least=10.0),
    PromisedGain(subject="a100", unit="times", least=6.0),
    PromisedGain(subject="providers", unit="spread", least=0.05),
)


def with_least(given: Mapping[str, float]) -> tuple[PromisedGain, ...]:
    """The targets with other figures for the subjects of `given`. Raises InputError for an unknown subject and for a
    figure that cannot be: a saving lies below 1, every figure above 0."""
    for name, least in given.items():
        if name not in SUBJECTS:
            hint = did_you_mean(nearest(name, SUBJECTS, count=1), f"known: {', '.join(SUBJECTS)}")
            raise InputError(f"no gain is named '{name}'", hint=hint)
        unit = next(one.unit for one in TARGETS if one.subject == name)
        if not (math.isfinite(least) and least > 0) or (unit != "times" and least >= 1):
            expected = "a multiple above 0, such as 10" if unit == "times" else "a part between 0 and 1, such as 0.6"
            raise InputError(f"{name}: found {least:g}, expected {expected}")
    return tuple(replace(one, least=given[one.subject], most=None) if one.subject in given else one for one in TARGETS)


def only(targets: Sequence[PromisedGain], subjects: Sequence[str]) -> tuple[PromisedGain, ...]:
    """Those of `subjects`; all where none is named."""
    return tuple(one for one in targets if not subjects or one.subject in subjects)
