"""What verbs give back: a result that shows itself in a terminal, a notebook or a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tonnage.errors import TonnageError
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.reports.frames import Library
    from tonnage.reports.rendering import Format, Report

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Result:
    """What a report can do in Python and in a notebook."""

    def report(self) -> Report:
        """The report that every form is rendered from."""
        raise NotImplementedError

    def to_json(self) -> str:
        """The same text as `-o json`."""
        return self._rendered("json")

    def to_csv(self) -> str:
        """The same text as `-o csv`."""
        return self._rendered("csv")

    def to_markdown(self) -> str:
        """The same text as `-o md`."""
        return self._rendered("md")

    def to_frame(self, library: Library | None = None) -> Any:
        """The rows of the CSV, as pandas or polars; MissingExtra where neither is installed."""
        from tonnage.reports.frames import make_frame

        report = self.report()
        return make_frame(report.columns, report.rows(), library)

    def __str__(self) -> str:
        return self._rendered("table")

    def _repr_html_(self) -> str:
        from tonnage.reports.html import render_html

        return render_html(self.report().page(), fragment=True)

    def _rendered(self, form: Format) -> str:
        from tonnage.reports.rendering import render_report

        return render_report(self.report(), form)


@dataclass(frozen=True, slots=True)
class Answer(Result, Generic[T]):
    """The answer of a verb.

    `found` is the result as a value. `fault` is the error with which the command ends after it has printed the report
    («nothing fits», a refusal, a file that did not come); None where all is well. `remarks` are what it says on stderr.
    """

    found: T
    make_report: Callable[[T], Report] = field(repr=False, compare=False)
    fault: TonnageError | None = None
    remarks: tuple[str, ...] = ()

    def report(self) -> Report:
        """The report that the command prints."""
        return self.make_report(self.found)

    def checked(self) -> T:
        """`found`; raises `fault` where there is one."""
        if self.fault is not None:
            raise self.fault
        return self.found
