"""A line on stderr that is rewritten while something long goes on; on a terminal only."""

from __future__ import annotations

import shutil
import sys
from types import TracebackType
from typing import Self


class Meter:
    """`with Meter(quiet=...) as meter: meter.show("1,000 rows")`; the line is gone afterwards."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._shown = sys.stderr.isatty() and not quiet

    def show(self, text: str) -> None:
        """Put `text`, cut to the terminal's width, in place of the last one."""
        if self._shown:
            width = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"\r\033[K{text[:width]}")
            sys.stderr.flush()

    def rows(self, done: int) -> None:
        """So many rows are done."""
        self.show(f"{done:,} rows ...")

    def step(self, left_out: str, number: int, of: int) -> None:
        """Round `number` of `of` of a cross-validation; 0 of 0 is the fit on everything."""
        self.show(f"fitting without {left_out} ({number} of {of}) ..." if of else "fitting on all rows ...")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
