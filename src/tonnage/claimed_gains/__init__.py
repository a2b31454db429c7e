"""What a workload gains by spot, scaling or another machine or device, beside what documents promise."""

from tonnage.claimed_gains.gain import TARGETS, Gain, Lack, PromisedGain, Verdict, with_least

__all__ = ["TARGETS", "Gain", "Lack", "PromisedGain", "Verdict", "with_least"]
