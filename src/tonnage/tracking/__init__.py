"""Runs in MLflow: parameters, metrics, files and models, sent from a run's folder. What was sent is not sent again.

Names load on first use: MLflow takes seconds to import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tonnage.tracking.places import tracking_uri
    from tonnage.tracking.tracker import Tracker
    from tonnage.tracking.unavailable import TrackingUnavailable

_HOME: Final = {"Tracker": "tracker", "TrackingUnavailable": "unavailable", "tracking_uri": "places"}

__all__ = ["Tracker", "TrackingUnavailable", "tracking_uri"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
