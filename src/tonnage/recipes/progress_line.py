"""A line of metrics as a reader of the log sees it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any


def progress_line(values: Mapping[str, Any]) -> str:
    """Step, loss and rate in words; what is not known is left out.

    >>> progress_line({"step": 1200, "epoch": 1.5, "loss": 0.4312, "samples": 32.0, "step_s": 0.25})
    'step 1,200, epoch 1.5: loss 0.4312, 128 samples/s'
    """
    parts = []
    if values.get("loss") is not None:
        parts.append(f"loss {values['loss']:.4g}")
    if values.get("samples") and values.get("step_s"):
        parts.append(f"{values['samples'] / values['step_s']:,.3g} samples/s")
    epoch = f", epoch {values['epoch']:.3g}" if values.get("epoch") is not None else ""
    return f"step {values['step']:,}{epoch}" + (f": {', '.join(parts)}" if parts else "")


def say_progress(values: Mapping[str, Any]) -> None:
    """The line to stdout, which is the run's log."""
    sys.stdout.write(progress_line(values) + "\n")
    sys.stdout.flush()
