"""`tonnage explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tonnage import api
from tonnage.cli import options
from tonnage.cli.declared import PlanSession, given_flags
from tonnage.cli.local_device import Device, OtherMachine, refuse_beside_device
from tonnage.cli.meter import Meter
from tonnage.cli.plan import PlanChoices, make, plan_on_device, stop_if_nothing_fits
from tonnage.cli.session import Session, terminal_width
from tonnage.cli.streams import write_stdout
from tonnage.errors import InputError, WorkloadError


def explain(
    file: options.File,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            autocompletion=options.complete_name,
            help="An instance type, GPU, provider, platform or token model. Without it: the winner and all losers.",
            show_default=False,
        ),
    ] = None,
    *,
    asked: PlanChoices,
    device: Device = None,
    other_machine: OtherMachine = False,
    flips: Annotated[
        int | None,
        typer.Option(
            "--flips",
            min=0,
            max=1000,
            metavar="N",
            help="Of how many losers to work out every change that flips them, each tried. [default: 10 of those that "
            "NAME means, 0 of a whole plan]",
            show_default=False,
        ),
    ] = None,
    session: PlanSession,
) -> None:
    """Explain the plan: the winner's ledger, time, memory and assumptions, and what each other option lacks.

    For each loser: the limit that binds, and the smallest change that would make it win; with NAME or --flips, in every
    dimension (price, memory, speed, deadline, budget, rate, promise), each tried. Of a compare file: its decision tree
    with the way taken and what would change the outcome (-o md adds Mermaid, -o html is a page). With --device: where
    the time goes on a device that `tonnage calibrate --local` measured, and which benches correct it.
    """
    if device is not None:
        refuse_beside_device({"NAME": name, "--flips": flips})
        plan_on_device(session, file, device, asked, other_machine=other_machine)
        return
    if is_compare_file(file):
        given = {"NAME": name, "--flips": flips, **given_flags(asked)}
        explain_comparison(session, file, memory_margin=asked.memory_margin, given=given)
        return
    result = make(session, file, asked)
    from tonnage.reports.explain import explain_report
    from tonnage.reports.selection import select_candidates

    selection = None if name is None else select_candidates(result.plan, result.catalog, name)
    wanted = (0 if name is None else 10) if flips is None else flips
    flipped = _flipped(result, selection or result.plan, wanted, quiet=session.quiet)
    session.show(explain_report(result.plan, selection, result.assumptions, top=asked.top, flipped=flipped))
    if name is None:
        stop_if_nothing_fits(result)


def _flipped(result: Any, among: Any, wanted: int, *, quiet: bool) -> list[Any]:
    """What flips the first `wanted` losers of a plan or selection, options before refusals."""
    losers = [*(one for one in among.options if one.rank > 1), *among.refused][:wanted]
    found = []
    with Meter(quiet=quiet) as meter:
        for number, loser in enumerate(losers, start=1):
            meter.show(f"what would flip {loser.instance_type} ({number} of {len(losers)}) ...")
            found.append((loser, result.flips(loser)))
    return found


def is_compare_file(file: str) -> bool:
    """Whether a file says `kind: compare`; its own reader reports whatever else is wrong with it."""
    from tonnage.workload.file.text import load_text
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
        found = api.compare(file, memory_margin=memory_margin, settings=session.settings)
    from tonnage.reports.comparison.report import render_decision
    from tonnage.reports.rendering import Look

    write_stdout(render_decision(found, session.settings.output, Look(width=terminal_width())))
