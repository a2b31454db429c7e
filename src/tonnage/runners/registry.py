"""Every runner there is, by the name that a workload file and `--runner` use. A new one is a line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tonnage.errors import InputError, did_you_mean, nearest
from tonnage.runners.local import Local
from tonnage.runners.ray import Ray
from tonnage.runners.runner import Runner
from tonnage.runners.torchrun import Torchrun

RUNNERS: Final[Mapping[str, type[Local] | type[Torchrun] | type[Ray]]] = {
    one.name: one for one in (Local, Torchrun, Ray)
}


def make_runner(name: str, **given: Any) -> Runner:
    """The runner of a name. InputError names those there are."""
    if name not in RUNNERS:
        hint = did_you_mean(nearest(name, RUNNERS, count=1), f"runners: {', '.join(RUNNERS)}")
        raise InputError(f"no runner is named '{name}'", hint=hint)
    return RUNNERS[name](**given)
