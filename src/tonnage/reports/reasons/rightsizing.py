"""Words for what a cheaper machine would break."""

from __future__ import annotations

from typing import Any, assert_never

from tonnage.planning.rightsizing.holding import Broken, Differs, Lacks, Unfit
from tonnage.reports.reasons.document import reason_document
from tonnage.reports.reasons.misses import miss_document, miss_words
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenWords:
    """A limit, what it needs and what there is."""

    limit: str
    needs: str
    has: str

    @property
    def clause(self) -> str:
        """«memory: needs 20 GiB, has 16 GiB»."""
        return f"{self.limit}: needs {self.needs}, has {self.has}"


def broken_document(broken: Broken) -> dict[str, Any]:
    """The limit in words, and as a value."""
    words = broken_words(broken)
    reason = reason_document(broken, words.clause)
    if isinstance(broken, Unfit) and broken.miss is not None:
        reason["miss"] = miss_document(broken.miss)
    return {"limit": words.limit, "needs": words.needs, "has": words.has, "reason": reason}


def broken_words(broken: Broken) -> BrokenWords:
    """What is needed and what there is."""
    match broken:
        case Differs(limit=limit, needed=needed, has=has):
            return BrokenWords(limit=limit, needs=needed, has=has or "none")
        case Lacks():
            return _lacks(broken)
        case Unfit():
            return _unfit(broken)
        case _:
            assert_never(broken)


def _unfit(broken: Unfit) -> BrokenWords:
    if broken.miss is None:
        return BrokenWords(limit=f"one machine ({broken.workload})", needs="more machines", has="1")
    words = miss_words(broken.miss)
    return BrokenWords(limit=f"{broken.miss.binding} ({broken.workload})", needs=words.needs, has=words.has)


def _lacks(broken: Lacks) -> BrokenWords:
    where = {"machine": "", "each GPU": " a GPU", "all GPUs": " in all"}[broken.of]
    needs, has = "a published figure", "not published"
    if broken.needed is not None:
        needs = f"{broken.needed:.4g} {broken.unit}".strip() + where
    if broken.available is not None:
        usable = " usable" if broken.limit == "GPU memory" else ""
        has = f"{broken.available:.4g} {broken.unit}".strip() + usable
    return BrokenWords(limit=broken.limit, needs=needs, has=has)
