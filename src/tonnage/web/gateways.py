"""Pages of gateways: which files there are, what a running one does now, what it has spent by key, route or team."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from tonnage.errors import InputError, TonnageError, did_you_mean, nearest
from tonnage.reports.blocks import Heading, Page, Paragraph
from tonnage.values import dataclass
from tonnage.web.asked import AskedField, PageRequest, Shown, file_of, named_files

if TYPE_CHECKING:
    from tonnage.reports.blocks import Block
    from tonnage.reports.rendering import Report

SUFFIX: Final = ".gateway.yaml"
SCHEMA: Final = "tonnage/gateways@1"
By = Literal["key", "team", "project", "route", "deployment", "outcome"]
DAY_S: Final = 86400
MOST_DAYS: Final = 366


@dataclass(frozen=True, slots=True, kw_only=True)
class _GatewayFile:
    name: str
    file: str
    address: str | None  # of its figures; None: the file cannot be used
    problem: str | None


def gateways(asked: PageRequest) -> Shown:
    """The gateway files of the folder."""
    from tonnage.reports.listing import Field, Fields, Listing, listing_report

    asked.refuse_others()
    fields: Fields[_GatewayFile] = (
        Field("name", lambda one: one.name, title="gateway"), Field("file", lambda one: one.file, title="file"),
        Field("figures_at", lambda one: one.address, title="figures at",
              show=lambda url: "" if url is None else url.partition("//")[2]),
        Field("problem", lambda one: one.problem, title="problem", wraps=True, show=lambda text: text or ""),
    )  # fmt: skip
    found = [_described(name, path, asked) for name, path in named_files(asked.folder, SUFFIX).items()]
    remarks = () if found else (f"No file here ends with {SUFFIX}: docs/gateway.md shows one.",)
    report = listing_report(
        Listing(schema=SCHEMA, title="Gateways", name="gateways", head={}, fields=fields, items=found, remarks=remarks)
    )
    return Shown(report=report, links=tuple((f"/gateways/{one.name}", one.name) for one in found if not one.problem))


def gateway(asked: PageRequest) -> Shown:
    """What a running gateway does now, as `tonnage gateway top` says it; on the page also what its keys have spent."""
    from tonnage.gateway.top.keeping import NoGateway, status_url
    from tonnage.gateway.top.rates import Top
    from tonnage.gateway.top.report import check_sort, top_report

    asked.refuse_others("sort")
    sort = asked.query.get("sort", "requests")
    check_sort(sort)
    path = _file(asked)
    url = status_url(_loaded(path, asked))
    found: Top | None = None
    fault: NoGateway | None = None
    try:
        found = asked.gateways.top(url)
    except NoGateway as error:
        fault = error
    links = ((f"/gateways/{asked.name}/spend", "spend"), ("/gateways", "gateways"))
    report = _silent(fault) if found is None else top_report(found, sort)
    return Shown(report=_with_spend(report, asked, path), live=True, links=links)


def spend(asked: PageRequest) -> Shown:
    """What a gateway has spent, from its ledger."""
    from tonnage import api

    asked.refuse_others("by", "days")
    by = asked.query.get("by", "key")
    if by not in get_args(By):
        hint = did_you_mean(nearest(by, get_args(By)), f"one of {', '.join(get_args(By))}")
        raise InputError(f"by: nothing is added up by '{by[:40]}'", hint=hint)
    days = asked.count("days", 1, MOST_DAYS)
    options = api.GatewaySpendOptions(by=by, since_s=float(days * DAY_S))
    answer = api.gateway_spend(_file(asked), options, settings=asked.settings)
    fields = (AskedField("by", "By", by, get_args(By)), AskedField("days", "Days", str(days)))
    return Shown(report=answer.report(), fields=fields, links=((f"/gateways/{asked.name}", asked.name),))


def _file(asked: PageRequest) -> Path:
    return file_of(asked, named_files(asked.folder, SUFFIX), "gateway", "/gateways")


def _loaded(path: Path, asked: PageRequest) -> Any:
    from tonnage.api.gateway import load_gateway_file

    return load_gateway_file(path, settings=asked.settings)


def _described(name: str, path: Path, asked: PageRequest) -> _GatewayFile:
    from tonnage.gateway.top.keeping import status_url

    try:
        return _GatewayFile(name=name, file=path.name, address=status_url(_loaded(path, asked)), problem=None)
    except TonnageError as error:
        return _GatewayFile(name=name, file=path.name, address=None, problem=error.message)


def _silent(fault: TonnageError | None) -> Report:
    """The page says that nothing answers; JSON and CSV raise it, as the command does."""
    from tonnage.reports.rendering import Report

    assert fault is not None
    message, hint = fault.message, fault.hint or ""

    def raised() -> Any:
        raise fault

    said = Paragraph(text=f"{message}. {hint}", tone="warning")
    return Report(page=lambda: Page(title="Gateway", blocks=(said,)), document=raised, columns=(), rows=raised)


def _with_spend(report: Report, asked: PageRequest, path: Path) -> Report:
    """The same report; its page has the last day's spending by key below."""
    from tonnage import api
    from tonnage.reports.rendering import Report

    def page() -> Page:
        options = api.GatewaySpendOptions(by="key", since_s=float(DAY_S))
        spent = api.gateway_spend(path, options, settings=asked.settings).report().page()
        shown = report.page()
        more: tuple[Block, ...] = (Heading(text=spent.title), *spent.blocks)
        return Page(title=shown.title, blocks=(*shown.blocks, *more))

    return Report(page=page, document=report.document, columns=report.columns, rows=report.rows)
