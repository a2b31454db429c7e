"""Words for the reasons that planning gives: one module for each sort, and the JSON of all of them."""

from tonnage.reports.reasons.changes import change_document, change_words, changes_words
from tonnage.reports.reasons.document import reason_document
from tonnage.reports.reasons.miss_words import MissWords, miss_document, miss_words
from tonnage.reports.reasons.risks import risk_document, risk_words

__all__ = [
    "MissWords",
    "change_document",
    "change_words",
    "changes_words",
    "miss_document",
    "miss_words",
    "reason_document",
    "risk_document",
    "risk_words",
]
