"""Why an option is doubted and why a candidate is out, as values. `reports.reasons` alone puts them into words."""

from tonnage.planning.reasons.risks import Risk
from tonnage.reason import Reason, has_figures, without_figures

__all__ = ["Reason", "Risk", "has_figures", "without_figures"]
