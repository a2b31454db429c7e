"""`tonnage calibrate`: fit the physical parameters to measured rows; with --local, measure this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from tonnage import api
from tonnage.api.judging import KEYS, CalibrateOptions, ValidateOptions
from tonnage.api.local import LocalOptions
from tonnage.cli import options
from tonnage.cli.declared import MarketSession, completing, given_flags, opened_by
from tonnage.cli.meter import Meter
from tonnage.cli.session import Session
from tonnage.errors import InputError

_DEVICES = ("cpu", "cuda")


def complete_kind_of_device(incomplete: str) -> list[str]:
    return [name for name in _DEVICES if name.startswith(incomplete)]


def calibrate(
    *,
    training: Annotated[
        str | None, typer.Option("--training", metavar="FILE", help="Measured training runs, CSV.", show_default=False)
    ] = None,
    inference: Annotated[
        str | None, typer.Option("--inference", metavar="FILE", help="Measured inference, CSV.", show_default=False)
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", metavar="FILE", help="Where the result goes, JSON. [default with --local: home]",
            show_default=False,
        ),
    ] = None,
    asked: Annotated[CalibrateOptions, completing(leave_out=complete_key)],
    local: Annotated[bool, typer.Option("--local", help="Measure this machine into a device profile.")] = False,
    of_machine: Annotated[LocalOptions, completing(device=complete_kind_of_device)],
    export: Annotated[
        str | None,
        typer.Option(
            "--export", metavar="FILE", help="With --local: the profile's rows as CSV; nothing is timed.",
            show_default=False,
        ),
    ] = None,
    tabular: Annotated[
        list[str] | None,
        typer.Option("--tabular", metavar="FILE", help="Rows of `tonnage bench`, CSV; may be repeated. Only --out goes "
                     "with it. [default of --out: home]", show_default=False),
    ] = None,
    session: MarketSession,
) -> None:  # fmt: skip
    """Fit the physical parameters to measured runs, leaving each family out in turn; write a calibration file.

    The residuals of what was left out give the 80 % intervals. The same files and clock give the same bytes.
    With --local instead: measure this machine (under a minute) into a device profile, for `tonnage size FILE
    --device local`; --rows adds measured runs to it, which narrow its intervals. With --tabular: what rows of `tonnage
    bench` say of each engine and device corrects plans of `kind: tabular` and later benches.
    """
    if tabular:
        given = {"--training": training, "--inference": inference, "--local": local, "--export": export}
        _refuse({**given, **given_flags(of_machine), **given_flags(asked)}, "does not go with --tabular")
        _calibrate_tabular(session, tabular, out)
        return
    if local:
        published = {"--training": training, "--inference": inference, "--peaks": asked.peaks}
        _refuse(published, "is for published runs; leave out --local")
        _calibrate_local(session, of_machine, out, export)
        return
    _refuse({**given_flags(of_machine), "--export": export}, "goes with --local")
    training, inference, out = (
        _needed(value, name) for name, value in (("--training", training), ("--inference", inference), ("--out", out))
    )
    with Meter(quiet=session.quiet) as meter:
        answer = api.calibrate(training, inference, out, asked, settings=session.settings, on_step=meter.step)
    session.show_answer(answer)


def _calibrate_local(session: Session, asked: LocalOptions, out: str | None, export: str | None) -> None:
    """Measure, or add rows to what was measured; save and show the profile. With --export alone: write its rows."""
    if export is not None:
        count = api.export_local_rows(export, out=out, settings=session.settings)
        session.say(f"{count} rows written to {export}")
        if asked.rows is None:
            return
    with Meter(quiet=session.quiet) as meter:
        answer = api.calibrate_local(
            asked, out=out, settings=session.settings,
            on_step=lambda what, done, of: meter.show(f"{what} ({done} of {of}) ..." if of else f"{what} ..."),
        )  # fmt: skip
    session.show_answer(answer)


def _calibrate_tabular(session: Session, files: list[str], out: str | None) -> None:
    session.private_home()
    session.show_answer(api.calibrate_tabular(files, out=out, settings=session.settings))


def _refuse(given: Mapping[str, object], why: str) -> None:
    for name, value in given.items():
        if value:
            raise InputError(f"{name} {why}", hint="`tonnage calibrate --help` shows what goes together")


def _needed(value: str | None, name: str) -> str:
    if value is None:
        hint = "published runs: --training, --inference and --out; or --local to measure this machine"
        raise InputError(f"Missing option '{name}'", hint=hint)
    return value


_KINDS = ("training", "inference")


def complete_kind(incomplete: str) -> list[str]:
    return [kind for kind in _KINDS if kind.startswith(incomplete)]


def complete_key(incomplete: str) -> list[str]:
    return [key for key in KEYS if key.startswith(incomplete)]


def validate(
    kind: Annotated[
        str,
        typer.Argument(metavar="KIND", autocompletion=complete_kind, help="training or inference.", show_default=False),
    ],
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A CSV table of measurements; its columns: docs/accuracy.md.", show_default=False
        ),
    ],
    asked: Annotated[ValidateOptions, completing(leave_out=complete_key)],
    memory_margin: options.MemoryMargin = None,
    *,
    session: Annotated[Session, opened_by("calibration", "catalog", "output", "quiet")],
) -> None:
    """Predict every row of a table of measurements and print the error: median, 90th percentile, bias, coverage.

    By metric, GPU and model family; rows that cannot be judged by reason; rows marked suspect apart.
    """
    with Meter(quiet=session.quiet) as meter:
        answer = api.validate(
            kind, file, asked, memory_margin=memory_margin, settings=session.settings, on_rows=meter.rows,
            on_step=meter.step,
        )  # fmt: skip
    session.show_answer(answer)
