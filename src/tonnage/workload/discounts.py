"""Discounts as a workload file writes them: `aws`, `aws/p5`, `aws/p5.*`, `databricks/Jobs Compute`."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

PREFIXES = ("Standard_",)  # what a provider puts before a family's name


def split_discount(key: str) -> tuple[str, str]:
    """The biller and the family or SKU ("" for all of it).

    >>> split_discount("aws/p5"), split_discount("aws")
    (('aws', 'p5'), ('aws', ''))
    """
    biller, _, sku = key.partition("/")
    return biller.strip(), sku.strip()


def covers(pattern: str, sku: str) -> int:
    """How specifically `pattern` names `sku`: 0 not at all, 1 all of a biller, then by family, last the SKU itself.

    A family ends where a separator follows: `p5` is `p5.48xlarge` and not `p5en.48xlarge`.

    >>> covers("", "p5.48xlarge"), covers("p5", "p5en.48xlarge")
    (1, 0)
    >>> covers("p5", "p5.48xlarge") < covers("p5.4*", "p5.48xlarge") < covers("p5.48xlarge", "p5.48xlarge")
    True
    """
    if not pattern:
        return 1
    folded, name = pattern.casefold(), sku.casefold()
    names = [name, *(name.removeprefix(prefix.casefold()) for prefix in PREFIXES)]
    if folded in names:
        return 1000
    literal = len(folded.replace("*", ""))
    if any(fnmatchcase(one, folded) for one in names):
        return 1 + literal
    family = any(one.startswith(folded) and not one[len(folded)].isalnum() for one in names)
    return 1 + literal if family else 0


def percent_off(discounts: Sequence[tuple[str, float]], billers: Sequence[str], sku: str) -> float:
    """The percent of the most specific discount that covers `sku`; of two alike, that of the earlier biller. 0: none.

    >>> percent_off([("aws", 5.0), ("aws/p5", 20.0)], ["aws"], "p5.48xlarge")
    20.0
    """
    best, percent = (0, 0), 0.0
    for key, value in discounts:
        biller, pattern = split_discount(key)
        if biller not in billers:
            continue
        rank = (covers(pattern, sku), len(billers) - list(billers).index(biller))
        if rank[0] and rank > best:
            best, percent = rank, value
    return percent
