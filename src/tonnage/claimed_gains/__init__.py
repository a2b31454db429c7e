"""What a workload gains by spot, scaling or another machine or device, beside what documents promise."""

from tonnage.claimed_gains.gain import Gain, Lack, PromisedGain, Verdict
from tonnage.claimed_gains.targets import TARGETS, with_least

__all__ = ["TARGETS", "Gain", "Lack", "PromisedGain", "Verdict", "with_least"]
