"""`tonnage evaluate`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tonnage.cli import options
from tonnage.cli.carry_out import Run
from tonnage.cli.session import open_session

if TYPE_CHECKING:
    from tonnage.runs.spec import Device

_DEVICES = ("auto", "cpu", "cuda")


def complete_device(incomplete: str) -> list[str]:
    return [name for name in _DEVICES if name.startswith(incomplete)]


Columns = Annotated[
    list[str] | None,
    typer.Option("--column", metavar="ROLE=COLUMN", help="A role's column in FILE; may be repeated."),
]
Batch = Annotated[
    int | None,
    typer.Option(
        "--batch", metavar="N", min=1, help="Samples at once. [default: 32, on a GPU 128]", show_default=False
    ),
]
DeviceName = Annotated[
    str, typer.Option("--device", metavar="NAME", autocompletion=complete_device, help="auto, cpu or cuda.")
]


def evaluate(
    run: Run,
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="FILE", help="Labelled rows. [default: the run's test rows]", show_default=False
        ),
    ] = None,
    column: Columns = None,
    baseline: Annotated[
        bool, typer.Option("--baseline", help="Also the simple models, which learn from the run's rows again.")
    ] = False,
    batch: Batch = None,
    device: DeviceName = "auto",
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """How good the finished model of a run is, on its test rows (its validation rows where it has none) or on FILE.

    FILE has the columns of the run's own rows. Its labels must be those the model has learned.
    """
    session = open_session(output=output, quiet=quiet)
    from tonnage.cli.home_runs import find_run
    from tonnage.recipes.judging import judge_run
    from tonnage.reports.answers import evaluation_report

    folder = find_run(session.settings, run)
    with session.progress(f"judging {run}"):
        found = judge_run(
            folder,
            data=data,
            columns=pairs_of(column or [], "--column"),
            batch=batch,
            device=known_device(device),
            baseline=baseline,
        )
    session.show(evaluation_report({**asdict(found), "seconds": round(found.seconds, 3)}))


def known_device(name: str) -> Device:
    """A device's name checked."""
    from tonnage.errors import InputError

    for one in ("auto", "cpu", "cuda"):
        if one == name:
            return one
    raise InputError(f"no device is named '{name}'", hint="auto, cpu or cuda")


def pairs_of(texts: list[str], option: str, *, alone: bool = False) -> dict[str, str]:
    """`NAME=OTHER` options as a mapping; `alone`: a name without another stands for itself."""
    from tonnage.errors import InputError

    found = {}
    for text in texts:
        name, sign, other = text.partition("=")
        if not name or (sign and not other) or (not sign and not alone):
            raise InputError(f"{option} {text}: two names with = between are expected", hint=f"{option} text=body")
        found[name] = other or name
    return found
