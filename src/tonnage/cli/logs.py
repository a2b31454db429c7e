"""`tonnage logs`."""

from __future__ import annotations

from codecs import getincrementaldecoder
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from tonnage.cli.carry_out import Run
from tonnage.cli.declared import QuietSession
from tonnage.cli.running import ReportedExit
from tonnage.cli.streams import write_stdout
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.runs.folder import RunFolder
    from tonnage.runs.logs import RunLogs


def logs(
    run: Run,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as the log grows, until the run ends.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", metavar="N", min=0, help="Only the last lines.", show_default=False)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="WHEN", help="A duration such as 10m, or an instant.", show_default=False),
    ] = None,
    machine: Annotated[
        int | None,
        typer.Option(
            "--machine", metavar="N", min=1, help="Of a run over several machines; the first is 1.", show_default=False
        ),
    ] = None,
    times: Annotated[bool, typer.Option("-t", "--times", help="Each line with its time (UTC).")] = False,
    *,
    session: QuietSession,
) -> None:
    """What the workers of a run print. With -f the exit code is the run's own, as with `tonnage run`.

    -f follows all machines of a run; lines of further ones have their number before. Ctrl-C leaves the run running.
    """
    from tonnage.api.home_runs import find_run
    from tonnage.api.placing import look_at_place

    folder = find_run(session.settings, run)
    if folder.mirror_file.exists() and (remark := look_at_place(session.settings, folder)):
        session.say(remark)
    log = _log(folder, machine, follow=follow, times=times, since=since)
    position = _shown_from(log, tail=tail, since=since)
    if follow:
        from tonnage.runs.logs import RunLogs, machine_logs

        offsets = {log.name: position}
        if machine is None:
            others = machine_logs(folder)
            offsets |= {name: _shown_from(folder.path / name, tail=tail, since=None) for name in others}
        _follow(run, folder, session, times=times, logs=RunLogs(folder, offsets=offsets, machine=machine))
    elif log.exists():
        _print_log(log, times=times, position=position)


def _print_log(log: Path, *, times: bool, position: int) -> None:
    """The log from a position on."""
    from tonnage.runs.logs import bytes_from, timed_lines

    if times:
        for line in timed_lines(log, position):
            write_stdout(line)
        return
    decoder = getincrementaldecoder("utf-8")(errors="replace")  # a letter may lie across two blocks
    for block in bytes_from(log, position):
        write_stdout(decoder.decode(block))
    write_stdout(decoder.decode(b"", final=True))


def _follow(run: str, folder: RunFolder, session: QuietSession, *, times: bool, logs: RunLogs) -> NoReturn:
    """The logs as they grow, until the run ends. Exits as the run does; 0 where its reader leaves."""
    from tonnage.api.placing import collect_at, look_at_place
    from tonnage.cli.following import exit_code, last_words
    from tonnage.cli.following import follow as follow_run

    asks = partial(look_at_place, session.settings, folder)
    try:
        state = follow_run(folder, print_line=_timed if times else _plain, quiet=session.quiet, logs=logs, settle=asks)
    except KeyboardInterrupt:
        session.say(f"\n{run} goes on alone; `tonnage logs -f {run}` follows it")
        raise typer.Exit(0) from None
    if fault := collect_at(session.settings, folder):
        session.say(fault)
    session.say(last_words(folder, state))
    raise typer.Exit(ReportedExit(exit_code(state)))


def _log(folder: RunFolder, machine: int | None, *, follow: bool, times: bool, since: str | None) -> Path:
    """The file to show. InputError where there is none of that machine, or not in that way."""
    if machine is None or machine == 1:
        return folder.log_file
    from tonnage.runs.logs import log_of_machine, machine_log

    if since is not None or (times and not follow):
        raise InputError("-t and --since: of the first machine's log alone", hint=f"`tonnage logs {folder.path.name} "
                         f"--machine {machine}`, with -f or --tail")  # fmt: skip
    return folder.path / machine_log(machine) if follow else log_of_machine(folder, machine)


def _plain(line: str) -> None:
    write_stdout(line + "\n")


def _timed(line: str) -> None:
    write_stdout(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}  {line}\n")


def _shown_from(log: Path, *, tail: int | None, since: str | None) -> int:
    """The position of the first line to show: in the newest part, or where `since` begins, in an older one too."""
    from tonnage.runs.log_parts import newest_begins
    from tonnage.runs.logs import position_of_last_lines, position_since

    position = newest_begins(str(log)) if since is None else position_since(log, _instant(since))
    return position if tail is None else max(position, position_of_last_lines(log, tail))


def _instant(text: str) -> datetime:
    """A duration before now, or an instant."""
    from tonnage.workload.durations import looks_like_a_date, parse_duration_s, parse_instant

    try:
        if looks_like_a_date(text):
            return parse_instant(text)
        return datetime.now(UTC) - timedelta(seconds=parse_duration_s(text))
    except ValueError as error:
        raise InputError(f"--since {text}: {error}", hint="a duration such as 10m, or 2026-12-01T00:00Z") from error
