"""`tonnage init compare`: a compare file from flags, or from answers where a terminal can be asked."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from tonnage.errors import InputError


def write_compare_file(
    out: Path | None,
    *,
    names: list[str],
    works: list[str],
    title: str | None,
    today: str | None,
    usd_per_hour: float | None,
    force: bool,
) -> Path:
    """Write the file, which is checked as `tonnage compare` reads it; its path."""
    from tonnage.comparison.profiles import load_profiles
    from tonnage.comparison.request import parse_request
    from tonnage.comparison.starter import check_names, parse_work, render_starter
    from tonnage.files import save_for_user

    known = sorted(load_profiles())
    names, works = names or _ask("compare which platforms", known), works or _ask("workload files (FILE:JOBS)", [])
    if not names or not works:
        raise InputError(
            "name what is compared, and for which work",
            hint="tonnage init compare --compare databricks --compare bedrock --workload tune.tonnage.yaml:12",
        )
    chosen = check_names(names, known)
    if today is not None and today not in chosen:
        raise InputError(f"'{today}' is not compared", hint=f"--today is one of {', '.join(chosen)}")
    text = render_starter(
        title=title or " or ".join(chosen), names=chosen, works=[parse_work(one) for one in works], today=today,
        usd_per_hour=usd_per_hour,
    )  # fmt: skip
    path = out or Path("compare.tonnage.yaml")
    if path.exists() and not force:
        raise InputError(f"{path} is there", hint="name another --out, or write over it by --force")
    parse_request(text, file=str(path), folder=path.parent)
    save_for_user(path, text, hint="name another --out")
    return path


def _ask(question: str, known: list[str]) -> list[str]:
    """Names separated by commas or spaces; nothing where there is no terminal to ask at."""
    if not sys.stdin.isatty():
        return []
    shown = f" ({', '.join(known)})" if known else ""
    return str(typer.prompt(f"{question}{shown}", err=True)).replace(",", " ").split()
