"""What every verb does around its work: settings from flags, and a report to stdout in the form asked for."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tonnage.cli.streams import write_stdout
from tonnage.values import dataclass

if TYPE_CHECKING:
    from pathlib import Path

    from tonnage.api.answers import Answer
    from tonnage.reports.rendering import Report
    from tonnage.settings import Settings


@dataclass(frozen=True, slots=True)
class Session:
    """The settings of one command, and its two ways to speak: `show` (stdout) and `say` (stderr)."""

    settings: Settings
    quiet: bool
    form_given: bool = False  # by -o

    def show(self, report: Report) -> None:
        """Print a report on stdout."""
        from tonnage.reports.rendering import Look, render_report

        look = Look(width=terminal_width(), color=self._in_color())
        write_stdout(render_report(report, self.settings.output, look))

    def show_answer(self, answer: Answer[Any]) -> None:
        """Print the answer of a verb, its remarks on stderr; raise the fault that it ends with, where there is one."""
        self.show(answer.report())
        for remark in answer.remarks:
            self.say(remark)
        answer.checked()

    def say(self, message: str) -> None:
        """A message on stderr, unless quiet."""
        if not self.quiet:
            sys.stderr.write(message + "\n")

    def private_home(self) -> Path:
        """The home, to be written to: made for the user alone (0700) where it is not there, whatever the umask."""
        from tonnage.files import make_private_folder

        make_private_folder(self.settings.home)
        return self.settings.home

    @contextmanager
    def progress(self, message: str) -> Iterator[None]:
        """A line that is shown while something takes time; on a terminal only."""
        shown = sys.stderr.isatty() and not self.quiet
        if shown:
            sys.stderr.write(f"{message} ...\r")
            sys.stderr.flush()
        try:
            yield
        finally:
            if shown:
                sys.stderr.write("\r\033[K")

    def _in_color(self) -> bool:
        if self.settings.color == "auto":
            return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        return self.settings.color == "always"


def open_session(*, quiet: bool = False, **flags: Any) -> Session:
    """The settings of flags, environment and files; InputError on a value that cannot be used."""
    from tonnage.settings import current_settings

    return Session(current_settings(**flags), quiet, flags.get("output") is not None)


def terminal_width() -> int:
    """Cells a line: COLUMNS, else the terminal's own, else 120."""
    from tonnage.reports.rendering import DEFAULT_WIDTH

    return shutil.get_terminal_size(fallback=(DEFAULT_WIDTH, 24)).columns
