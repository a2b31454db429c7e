"""Right-sizing: the machine now, the cheaper one, the saving, what prevents it (`tonnage/rightsize@1`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, assert_never

from tonnage.catalog import Catalog, Offer
from tonnage.reports.blocks import Block, Bullets, Heading, Page, Paragraph
from tonnage.reports.listing import Field, Fields, cell, field_table, field_values, fields_report, part_fields
from tonnage.reports.plain import plain_usd
from tonnage.reports.reasons.document import reason_document
from tonnage.reports.reasons.miss_words import miss_document, miss_words
from tonnage.reports.rendering import Report
from tonnage.reports.wording import UNKNOWN, plural, render_money, render_price, render_purchase
from tonnage.rightsizing import remarks as kinds
from tonnage.rightsizing.holding import Broken, Differs, Lacks, Unfit
from tonnage.rightsizing.remarks import Difference, Doubt
from tonnage.rightsizing.rightsize import MachineFinding, Rejected
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


RIGHTSIZE_SCHEMA: Final = "tonnage/rightsize@1"


def rightsize_report(findings: Sequence[MachineFinding], catalog: Catalog) -> Report:
    """The report of all rows, the largest saving first on pages, in the table's order elsewhere."""
    return fields_report(lambda: _page(findings, catalog), lambda: _document(findings, catalog), _ROW, findings)


def _page(findings: Sequence[MachineFinding], catalog: Catalog) -> Page:
    saving = sum(one.saving_usd_per_month for one in findings)
    moves = [one for one in findings if one.action == "move"]
    text = f"{plural(len(moves), 'machine')} of {len(findings):,} can be cheaper: {render_money(saving)} a month."
    blocks: list[Block] = [Paragraph(text=text, tone="good" if moves else "plain")]
    order = sorted(findings, key=lambda one: -one.saving_usd_per_month)
    blocks.append(field_table(_CELLS, order))
    for one in order:
        blocks += [Heading(text=one.usage.name), Bullets(items=tuple(_remarks(one)))]
    blocks.append(Paragraph(text=f"Prices: catalog {catalog.name} (built {catalog.built_on}).", tone="faint"))
    return Page(title="Right-sizing", blocks=tuple(blocks))


def _remarks(one: MachineFinding) -> list[str]:
    if one.action == "no price":
        return ["no price is in the catalog for this machine, bought so, there: the saving is not known"]
    said = [f"changes: {'; '.join(map(remark_words, one.changes))}"] if one.changes else []
    said += [_cheaper_but(rejected) for rejected in one.cheaper_but]
    if one.action == "keep" and not one.cheaper_but:
        said.append("no cheaper machine is sold there")
    return [*said, *map(remark_words, one.reasons)]


def _price(offer: Offer | None) -> str:
    return UNKNOWN if offer is None else render_price(float(offer.usd_per_instance_hour))


def _cheaper_but(one: Rejected) -> str:
    broken = "; ".join(broken_words(limit).clause for limit in one.broken)
    return f"cheaper, but breaks: {one.instance.name} at {render_price(one.usd_per_hour)}: {broken}"


def _document(findings: Sequence[MachineFinding], catalog: Catalog) -> dict[str, Any]:
    return {
        "schema": RIGHTSIZE_SCHEMA,
        "catalog": {"snapshot": catalog.name, "built_on": catalog.built_on.isoformat()},
        "saving_usd_per_month": plain_usd(sum(one.saving_usd_per_month for one in findings)),
        "machines": [field_values(_MACHINE, one) for one in findings],
    }


_NOW: Final[Fields[MachineFinding]] = (
    Field("action", lambda one: one.action),
    Field("provider", lambda one: one.usage.instance.provider),
    Field("instance_type", lambda one: one.usage.instance.name),
    Field("region", lambda one: one.usage.region),
    Field("purchase", lambda one: one.usage.purchase),
    Field("hours_per_month", lambda one: one.usage.hours_per_month),
    Field("usd_per_instance_hour", lambda one: one.usd_per_hour_now),
    Field("price_read_on", lambda one: one.price_read_on),
)
_BETTER: Final[Fields[Offer]] = (
    Field("provider", lambda one: one.provider),
    Field("instance_type", lambda one: one.instance_type),
    Field("region", lambda one: one.region),
    Field("usd_per_instance_hour", lambda one: float(one.usd_per_instance_hour)),
    Field("price_read_on", lambda one: one.read_on),
)
_SAVING: Final[Field[MachineFinding]] = Field(
    "saving_usd_per_month", lambda one: one.saving_usd_per_month, json=plain_usd, title="saves a month",
    show=render_money, right=True,
)  # fmt: skip
_CONFIDENCE: Final[Field[MachineFinding]] = Field("confidence", lambda one: one.confidence, title="confidence", folds=1)
_REJECTED: Final[Fields[Rejected]] = (
    Field("provider", lambda one: one.instance.provider),
    Field("instance_type", lambda one: one.instance.name),
    Field("usd_per_instance_hour", lambda one: one.usd_per_hour),
    Field("breaks", lambda one: [broken_document(limit) for limit in one.broken]),
)
_CELLS: Final[Fields[MachineFinding]] = (
    cell("machine", lambda one: one.usage.name, wraps=True),
    cell("now", lambda one: one.usage.instance.name, wraps=True),
    cell("an hour", lambda one: render_price(one.usd_per_hour_now), right=True, folds=2),
    cell("bought", lambda one: render_purchase(one.usage.purchase), folds=4),
    cell("better", lambda one: one.action if one.instance is None else one.instance.name, wraps=True),
    cell("an hour", lambda one: _price(one.offer), right=True, folds=2),
    _SAVING,
    _CONFIDENCE,
)
_MACHINE: Final[Fields[MachineFinding]] = (
    Field("name", lambda one: one.usage.name),
    Field("line", lambda one: one.usage.line),
    *_NOW,
    Field("better", lambda one: one.offer, json=lambda offer: field_values(_BETTER, offer)),
    _SAVING,
    Field("changes", lambda one: [remark_words(change) for change in one.changes]),
    Field("change_values", lambda one: [remark_document(change) for change in one.changes]),
    Field("cheaper_but", lambda one: [field_values(_REJECTED, rejected) for rejected in one.cheaper_but]),
    _CONFIDENCE,
    Field("reasons", lambda one: [remark_words(reason) for reason in one.reasons]),
    Field("reason_values", lambda one: [remark_document(reason) for reason in one.reasons]),
)
_ROW: Final[Fields[MachineFinding]] = (
    Field("name", lambda one: one.usage.name),
    *_NOW,
    *part_fields("new_", lambda one: one.offer, _BETTER),
    _SAVING,
    _CONFIDENCE,
    Field("reasons", lambda one: "; ".join(map(remark_words, one.reasons))),
    Field("changes", lambda one: "; ".join(map(remark_words, one.changes))),
    Field("cheaper_but", lambda one: "; ".join(map(_cheaper_but, one.cheaper_but))),
)
