"""Ways to carry out a run. Each renders a job without touching anything, and submits it to a supervisor."""

from tonnage.runners.registry import RUNNERS, make_runner
from tonnage.runners.runner import Runner

__all__ = ["RUNNERS", "Runner", "make_runner"]
