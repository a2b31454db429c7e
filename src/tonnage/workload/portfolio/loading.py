"""Read a portfolio file: text in, a frozen `Portfolio` out, or one WorkloadError that tells every problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from os.path import isfile
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from tonnage.catalog.catalog import Catalog
from tonnage.errors import WorkloadError
from tonnage.workload.file.problems import Problem, explain_validation, raise_problem, raise_problems, shorten
from tonnage.workload.file.yaml_lines import YamlDocument, read_yaml
from tonnage.workload.jobs import Workload
from tonnage.workload.portfolio.checks import find_portfolio_problems
from tonnage.workload.portfolio.fields import EntryFields, PortfolioFile
from tonnage.workload.portfolio.freezing import freeze_capacity, freeze_commitment, freeze_shares
from tonnage.workload.portfolio.values import Portfolio, PortfolioEntry

LARGEST_FILE_BYTES: Final = 1024 * 1024
_PAGE: Final = "docs/portfolio.md lists every key; examples/portfolio.yaml is an example"
ReadWorkload = Callable[[Path, datetime], Workload]


def load_portfolio(path: Path | str, *, as_of: datetime, catalog: Catalog, read_workload: ReadWorkload) -> Portfolio:
    """The portfolio in a file. WorkloadError (file, line, key, hint) for whatever is wrong with it.

    `read_workload` reads a workload file as of a clock; its own errors are passed on.
    """
    path = Path(path)
    text = _read_text(path)
    return parse_portfolio(
        text, file=str(path), folder=path.parent, as_of=as_of, catalog=catalog, read_workload=read_workload
    )


def parse_portfolio(
    text: str, *, file: str | None, folder: Path, as_of: datetime, catalog: Catalog, read_workload: ReadWorkload
) -> Portfolio:
    """The portfolio in a text; workload files are found from `folder`."""
    document = read_yaml(text, file=file)
    fields = _validate(document)
    raise_problems(find_portfolio_problems(fields, catalog), document)
    raise_problems(_missing_files(fields, folder), document)
    entries, problems = [], []
    for place, entry in enumerate(fields.workloads):
        workload = read_workload(folder / entry.file, as_of)
        problems += list(_entry_problems(place, entry, workload, as_of))
        entries.append(_freeze_entry(entry, workload, as_of))
    raise_problems(problems, document)
    name = fields.name or (Path(file).name.removesuffix(".yaml").removesuffix(".yml") if file else "portfolio")
    return Portfolio(
        name=name,
        entries=_named_apart(entries),
        as_of=as_of,
        shares=freeze_shares(fields.shares),
        share_tolerance=fields.share_tolerance_percent / 100.0,
        capacity=tuple(freeze_capacity(one) for one in fields.capacity),
        commitments=tuple(freeze_commitment(one, catalog) for one in fields.reserved),
        budget_usd=fields.budget_usd,
        file=file,
    )


def _read_text(path: Path) -> str:
    file = str(path)
    try:
        raw = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise WorkloadError(f"cannot be read: {reason}", hint="check the path", file=file) from error
    if len(raw) > LARGEST_FILE_BYTES:
        raise WorkloadError("is over 1 MB", hint=_PAGE, file=file)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise WorkloadError("is not UTF-8 text", hint="save it as UTF-8", file=file) from error


def _validate(document: YamlDocument) -> PortfolioFile:
    entries = document.value
    if entries is None:
        raise WorkloadError("is empty", hint=_PAGE, file=document.file)
    if not isinstance(entries, dict):
        raise_problem((), "expected keys such as `workloads:` at the top", document, _PAGE)
    if "kind" in entries:
        raise_problem(("kind",), "this is a workload file", document, "name it in the `workloads` of a portfolio file")
    try:
        return PortfolioFile.model_validate(entries)
    except ValidationError as error:
        found = explain_validation(error, PortfolioFile, document)
        raise_problems([_own_hint(problem) for problem in found], document)
        raise


def _own_hint(problem: Problem) -> Problem:
    if problem.hint is not None and "docs/workload-file.md" in problem.hint:
        return replace(problem, hint=_PAGE)
    return problem


def _missing_files(fields: PortfolioFile, folder: Path) -> list[Problem]:
    hint = "paths start from the portfolio file's folder"
    return [
        Problem(("workloads", place, "file"), f"found {shorten(entry.file)}, no such file", hint)
        for place, entry in enumerate(fields.workloads)
        if not isfile(folder / entry.file)  # a name that no system takes is no file either
    ]


def _entry_problems(place: int, entry: EntryFields, workload: Workload, as_of: datetime) -> list[Problem]:
    found = []
    if workload.is_service:
        if entry.runs_per_month != 1:
            path = ("workloads", place, "runs_per_month")
            found.append(Problem(path, "a service runs all month", "leave `runs_per_month` out"))
        if entry.deadline is not None:
            path = ("workloads", place, "deadline")
            found.append(Problem(path, "a service has no deadline", "its speed is `serve.p95_latency`"))
    elif entry.deadline is not None and entry.deadline.seconds_from(as_of) <= 0:
        path = ("workloads", place, "deadline")
        found.append(Problem(path, "found an instant that has passed", "a duration such as 8h counts from the start"))
    return found


def _freeze_entry(entry: EntryFields, workload: Workload, as_of: datetime) -> PortfolioEntry:
    if entry.deadline is not None:
        limits = replace(workload.constraints, deadline_s=entry.deadline.seconds_from(as_of))
        workload = replace(workload, constraints=limits)
    name = entry.name or workload.name
    return PortfolioEntry(name=name, workload=workload, runs_per_month=entry.runs_per_month, split=entry.split)


def _named_apart(entries: list[PortfolioEntry]) -> tuple[PortfolioEntry, ...]:
    """Entries of one name get their place behind it: `bert`, `bert` become `bert #1`, `bert #2`."""
    count = Counter(entry.name for entry in entries)
    seen: Counter[str] = Counter()
    out = []
    for entry in entries:
        seen[entry.name] += 1
        several = count[entry.name] > 1
        out.append(replace(entry, name=f"{entry.name} #{seen[entry.name]}") if several else entry)
    return tuple(out)
