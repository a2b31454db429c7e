"""Many trials of one run: values chosen by Optuna, each trial a run of its own under its supervisor."""

from tonnage.sweeps.sweep import Sweep, load_sweep

__all__ = ["Sweep", "load_sweep"]
