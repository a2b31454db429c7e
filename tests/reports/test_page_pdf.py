"""A page of blocks as PDF."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest

from tonnage.reports.blocks import Bullets, Code, Column, Heading, LineChart, Page, Pairs, Paragraph, Table
from tonnage.reports.page_pdf import page_pdf

MADE = datetime(2026, 11, 27, 20, 0, tzinfo=UTC)
PAGE = Page(title="Bench #a", blocks=(
    Paragraph(text="*no* markup, #sys.inputs and $x$", tone="warning"),
    Heading(text="rows-50k"),
    Table(columns=(Column(title="engine"), Column(title="s", align="right")), rows=(("xgboost_2", "1.5 (1–2)"),)),
    LineChart(title="quality", x_title="seconds", y_title="auc", log_x=True,
              series=(("a", ((1.0, 0.5), (90.0, 0.9))),)),
    LineChart(title="empty chart", x_title="x", y_title="y", series=()),
    Bullets(items=("one: failed",)), Pairs(rows=(("price", "USD 1"),)), Code(lines=("a  b",)), Code(lines=()),
))  # fmt: skip


def test_every_block_is_on_the_page_and_nothing_is_markup() -> None:
    """What a user's file says stands there letter by letter, the chart with its axes; a chart without points is left
    out. Same page and moment, same bytes."""
    pytest.importorskip("typst")
    pypdf = pytest.importorskip("pypdf")
    content = page_pdf(PAGE, made=MADE)
    assert content == page_pdf(PAGE, made=MADE)
    text = " ".join("".join(one.extract_text() for one in pypdf.PdfReader(io.BytesIO(content)).pages).split())
    for said in ("Bench #a", "*no* markup, #sys.inputs and $x$", "rows-50k", "xgboost_2", "1.5 (1–2)", "seconds", "auc",
                 "one: failed", "price", "USD 1", "1 of 1"):  # fmt: skip
        assert said in text, said
    assert "empty chart" not in text
