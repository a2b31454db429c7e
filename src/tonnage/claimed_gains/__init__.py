"""What a workload gains by spot, scaling or another machine or device, beside what documents promise."""

from tonnage.claimed_gains.gain import Gain, Lack, Target, Verdict
from tonnage.claimed_gains.targets import TARGETS, with_least

__all__ = ["TARGETS", "Gain", "Lack", "Target", "Verdict", "with_least"]
