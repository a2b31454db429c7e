"""Runs in MLflow: parameters, metrics, files and models, sent from a run's folder. What was sent is not sent again.

Names load on first use: MLflow takes seconds to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.lazy import lazy_names

if TYPE_CHECKING:
    from tonnage.tracking.places import tracking_uri
    from tonnage.tracking.tracker import Tracker
    from tonnage.tracking.unavailable import TrackingUnavailable

__all__ = ["Tracker", "TrackingUnavailable", "tracking_uri"]
__getattr__ = lazy_names(__name__)
