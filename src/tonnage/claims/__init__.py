"""Claims of a Markdown document checked: what is wrong, stale or unknown, the right figure and its source."""

from tonnage.claims.checking import check_document
from tonnage.claims.findings import VERDICTS, CheckedDocument, ClaimAnswer, Finding, PassedOver, Verdict

__all__ = ["VERDICTS", "CheckedDocument", "ClaimAnswer", "Finding", "PassedOver", "Verdict", "check_document"]
