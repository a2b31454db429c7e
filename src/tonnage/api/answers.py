"""What verbs give back: a result that shows itself in a terminal, a notebook or a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from tonnage.errors import InputError, MissingExtra, TonnageError
from tonnage.values import dataclass

if TYPE_CHECKING:
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


Library = Literal["pandas", "polars"]
LIBRARIES: tuple[Library, ...] = ("pandas", "polars")


def make_frame(columns: Sequence[str], rows: Sequence[Sequence[Any]], library: Library | None) -> Any:
    """A pandas or polars DataFrame; with `library` None the first of the two that is installed.

    Raises MissingExtra when it is not installed, InputError when `library` is another name.
    """
    if library is not None and library not in LIBRARIES:
        raise InputError(f"no data frame library '{library}' is known here", hint=f"one of {', '.join(LIBRARIES)}")
    wanted = LIBRARIES if library is None else (library,)
    chosen = next((name for name in wanted if find_spec(name) is not None), None)
    if chosen is None:
        raise MissingExtra("a data frame", "frames")
    module = import_module(chosen)
    table = {column: [row[place] for row in rows] for place, column in enumerate(columns)}
    return module.DataFrame(table) if chosen == "pandas" else module.DataFrame(table, strict=False)
