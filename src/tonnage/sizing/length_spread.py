"""Lengths that vary: how far, where their 95th percentile lies, what a batch of them is padded to."""

from __future__ import annotations

import numpy as np

from tonnage.sizing.estimates import Array
from tonnage.workload.jobs import Lengths

Z95 = 1.645  # 95th percentile of a normal variable
Z999 = 3.09  # 99.9th


def log_spread(length: Lengths) -> float:
    """Standard deviation of log length, if lengths are log-normal and the longest is their 99.9th percentile.

    ln(max/mean) = 3.09·s - s²/2, solved for s.
    """
    ratio = min(float(np.log(length.maximum / length.mean)), Z999**2 / 2) if length.maximum > length.mean else 0.0
    return Z999 - float(np.sqrt(Z999**2 - 2.0 * ratio))


def upper_share(length: Lengths) -> float:
    """The 95th percentile of such lengths over their mean: exp(1.645·s - s²/2)."""
    s = log_spread(length)
    return float(np.exp(Z95 * s - s * s / 2.0))


def padded_tokens(length: Lengths, batch: Array) -> Array:
    """Expected length a batch is padded to, tokens: the longest of `batch` log-normal draws, at most the maximum.

    mean · exp(s·sqrt(2 ln b) - s²/2), the mean itself for one request.
    """
    s, many = log_spread(length), np.maximum(batch, 1.0)
    longest = length.mean * np.exp(s * np.sqrt(2.0 * np.log(many)) - s * s / 2.0)
    return np.clip(longest, length.mean, float(length.maximum))
