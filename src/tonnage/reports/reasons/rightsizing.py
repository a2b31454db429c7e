"""Words for what a cheaper machine would break, what else differs on it, and how sure that is."""

from __future__ import annotations

from typing import Any, assert_never

from tonnage.reports.reasons.document import reason_document
from tonnage.reports.reasons.misses import miss_document, miss_words
from tonnage.rightsizing import remarks as kinds
from tonnage.rightsizing.holding import Broken, Differs, Lacks, Unfit
from tonnage.rightsizing.remarks import Difference, Doubt
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


def remark_document(remark: Difference | Doubt) -> dict[str, Any]:
    """The remark as JSON."""
    return reason_document(remark, remark_words(remark))


def remark_words(remark: Difference | Doubt) -> str:
    """One clause, without a capital or a full stop."""
    match remark:
        case kinds.NotMeasured(of=name):
            return f"{name} was not measured: what the machine has today is kept"
        case kinds.FewHours(hours_per_month=hours):
            return f"{hours:g} hours measured: peaks may be missed"
        case kinds.OtherGpuKind():
            return "another GPU: software, precision and kernels may behave otherwise"
        case kinds.SizedAndFits(workload=name):
            return f"{name} was sized on it and fits"
        case kinds.Headroom(headroom_fraction=share):
            return f"headroom of {100 * share:g} % over every measured peak"
        case _:
            return _difference(remark)


def _difference(one: Difference) -> str:
    match one:
        case kinds.OtherProvider(provider=provider):
            return f"another provider: {provider}"
        case kinds.OtherRegion(region=region):
            return f"another region: {region or 'any'} (data, latency, residency)"
        case kinds.OtherGpus():
            new, old = _gpus(one.gpu, one.gpu_count), _gpus(one.gpu_now, one.gpu_count_now)
            return f"{new} in place of {old}"
        case kinds.NoGpuLink(link=link):
            return f"no {link} between GPUs"
        case kinds.Smaller(of=what, available=available, now=now, unit=unit):
            has = "not published" if available is None else f"{available:g} {unit}"
            return f"{what}: {has} in place of {now:g} {unit}"
        case kinds.NoRate(precision=precision, gpu=gpu):
            return f"no {precision} rate is published for {gpu}"
        case _:
            assert_never(one)


def _gpus(name: str | None, count: float) -> str:
    return "no GPU" if name is None else f"{count:g} x {name}"
