"""Words for the reasons that planning gives: one module for each sort, and the JSON of all of them."""

from tonnage.reports.reasons.document import reason_document
from tonnage.reports.reasons.risks import risk_document, risk_words

__all__ = ["reason_document", "risk_document", "risk_words"]
