"""`tonnage explain` of a compare file: the decision, not a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tonnage.cli.session import Session, terminal_width
from tonnage.cli.streams import write_stdout
from tonnage.errors import InputError


def is_compare_file(file: str) -> bool:
    """Whether a file says `kind: compare`; its own reader reports whatever else is wrong with it."""
    from tonnage.comparison.door import load_text
    from tonnage.errors import WorkloadError
    from tonnage.workload.file.yaml_lines import read_yaml

    if file == "-" or not Path(file).is_file():
        return False
    try:
        value = read_yaml(load_text(Path(file)), file=file).value
    except WorkloadError:
        return False
    return isinstance(value, dict) and value.get("kind") == "compare"


def explain_comparison(session: Session, file: str, *, memory_margin: float | None, given: dict[str, Any]) -> None:
    """The decision tree with the way taken. InputError for options that mean a plan."""
    wrong = [name for name, value in given.items() if value is not None and name not in ("--memory-margin", "--top")]
    if wrong:
        said = f"{', '.join(wrong)} is about a plan, and {file} is a comparison"
        raise InputError(said, hint="explain a workload file with it, or the compare file without")
    with session.progress("comparing"):
        from tonnage import api

        found = api.compare(file, memory_margin=memory_margin, settings=session.settings)
    from tonnage.reports.comparison.decision_report import render_decision
    from tonnage.reports.rendering import Look

    write_stdout(render_decision(found, session.settings.output, Look(width=terminal_width())))
