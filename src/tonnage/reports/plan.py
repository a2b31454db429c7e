"""A plan as text, in the form asked for."""

from __future__ import annotations

from tonnage.planning.plan import Plan
from tonnage.reports.listing import fields_report
from tonnage.reports.plan_document import OPTION_ROW, plan_document
from tonnage.reports.plan_page import plan_page
from tonnage.reports.rendering import Format, Look, Report, render_report

DEFAULT_TOP = 10


def plan_report(plan: Plan, *, top: int = DEFAULT_TOP) -> Report:
    """The report of a plan. Pages show `top` options; JSON and CSV hold all."""
    return fields_report(lambda: plan_page(plan, top=top), lambda: plan_document(plan), OPTION_ROW, plan.options)


def render_plan(plan: Plan, form: Format, *, top: int = DEFAULT_TOP, look: Look | None = None) -> str:
    """The text of a plan."""
    return render_report(plan_report(plan, top=top), form, look)
