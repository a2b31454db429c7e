"""`tonnage run` and `tonnage resume`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tonnage.cli import options
from tonnage.cli.options import complete_run
from tonnage.cli.session import Session, open_session

if TYPE_CHECKING:
    from tonnage.cli.launching import Launch
    from tonnage.runs.folder import RunFolder

_RUNNERS = ("local", "torchrun", "ray")
_CLOUDS = ("aws", "gcp", "azure")


def complete_runner(incomplete: str) -> list[str]:
    return [name for name in _RUNNERS if name.startswith(incomplete)]


def complete_cloud(incomplete: str) -> list[str]:
    return [name for name in _CLOUDS if name.startswith(incomplete)]


RunnerChoice = Annotated[
    str | None,
    typer.Option(
        "--runner",
        metavar="NAME",
        autocompletion=complete_runner,
        help="local, torchrun or ray. [default: the file's, else local]",
        show_default=False,
    ),
]
Processes = Annotated[
    int | None,
    typer.Option("--processes", metavar="N", min=1, help="Worker processes, one a GPU.", show_default=False),
]
DeviceChoice = Annotated[
    str | None,
    typer.Option(
        "--device", metavar="NAME", help="auto, cpu or cuda. [default: the file's, else auto]", show_default=False
    ),
]
MaxCost = Annotated[
    float | None,
    typer.Option("--max-cost", metavar="USD", min=0.0, help="Save and stop before this is spent.", show_default=False),
]
MaxHours = Annotated[
    float | None,
    typer.Option("--max-hours", metavar="H", min=0.0, help="Save and stop before this time is up.", show_default=False),
]
UsdPerHour = Annotated[
    float | None,
    typer.Option(
        "--usd-per-hour", metavar="USD", min=0.0, help="What the machines of this run cost.", show_default=False
    ),
]
BillingQuantum = Annotated[
    str | None,
    typer.Option(
        "--billing-quantum",
        metavar="DURATION",
        help="What is begun of this is paid whole: 1s, 60s, 1h. [default: 60s]",
        show_default=False,
    ),
]
IdleMinutes = Annotated[
    float | None,
    typer.Option("--idle-minutes", metavar="M", min=0.0, help="Stop after so long without a step.", show_default=False),
]
MaxRestarts = Annotated[
    int | None,
    typer.Option(
        "--max-restarts",
        metavar="N",
        min=0,
        help="Restarts in a row without a newer checkpoint. [default: 3]",
        show_default=False,
    ),
]
Notices = Annotated[
    list[str] | None,
    typer.Option(
        "--notices",
        metavar="CLOUD",
        autocompletion=complete_cloud,
        help="Watch for this cloud's interruption notices: aws, gcp or azure; may be repeated.",
    ),
]
Detach = Annotated[bool, typer.Option("-d", "--detach", help="Do not follow the log; the run goes on alone.")]
Run = Annotated[str, typer.Argument(metavar="RUN", autocompletion=complete_run, help="A run's name.")]


def run(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A workload file with a `run:` section, or a spec.json.")],
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="[default: the file's own]", show_default=False)
    ] = None,
    runner: RunnerChoice = None,
    processes: Processes = None,
    device: DeviceChoice = None,
    max_cost: MaxCost = None,
    usd_per_hour: UsdPerHour = None,
    billing_quantum: BillingQuantum = None,
    max_hours: MaxHours = None,
    idle_minutes: IdleMinutes = None,
    max_restarts: MaxRestarts = None,
    notices: Notices = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            metavar="PORT",
            min=0,
            max=65535,
            help="Serve metrics to Prometheus here.",
            show_default=False,
        ),
    ] = None,
    detach: Detach = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print command, environment and files; do nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Start in spite of doubts, without asking.")] = False,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Run a workload on this machine: train, survive interruptions, measure.

    What is predicted and what is doubtful comes first; fewer GPUs or less memory than needed ends it before the first
    step. The log goes to stderr, the outcome to stdout. Ctrl-C leaves the run running: `tonnage logs -f` comes back.
    Exit code 4: stopped at a limit, or refused; 5: lost to preemption; 130: stopped by someone.
    """
    session = open_session(output=output, quiet=quiet)
    from tonnage.cli.launching import prepare, start

    given = {
        "name": name, "runner": runner, "processes": processes, "device": _device(device),
        "max_cost": max_cost, "usd_per_hour": usd_per_hour,
        "billing_quantum_s": _duration_s(billing_quantum),
        "max_hours": max_hours, "idle_minutes": idle_minutes, "max_restarts": max_restarts, "notices": notices,
        "metrics_port": metrics_port,
    }  # fmt: skip
    launch = prepare(session.settings, file, given)
    if dry_run:
        from tonnage.reports.jobs import job_report

        prediction, doubts = launch.prediction, launch.doubts
        session.show(job_report(launch.job, launch.spec, str(launch.folder.path), prediction=prediction, doubts=doubts))
        return
    _announce(session, launch)
    if launch.doubts and not yes:
        confirm()
    start(launch)
    _go_on(session, launch.folder, detach=detach)


def resume(
    run: Run,
    runner: RunnerChoice = None,
    processes: Processes = None,
    device: DeviceChoice = None,
    max_cost: MaxCost = None,
    usd_per_hour: UsdPerHour = None,
    billing_quantum: BillingQuantum = None,
    max_hours: MaxHours = None,
    idle_minutes: IdleMinutes = None,
    max_restarts: MaxRestarts = None,
    notices: Notices = None,
    detach: Detach = False,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Continue a run that was stopped, failed or lost, from its newest valid checkpoint.

    Limits count what was used before; those given here replace the run's own. With other processes, or on another
    device, it is the same run: the same rows in the same steps.
    """
    session = open_session(output=output, quiet=quiet)
    from tonnage.api.home_runs import find_run
    from tonnage.cli.resuming import resume_run

    given = {
        "runner": runner, "processes": processes, "device": _device(device),
        "max_cost": max_cost, "usd_per_hour": usd_per_hour,
        "billing_quantum_s": _duration_s(billing_quantum), "max_hours": max_hours, "idle_minutes": idle_minutes,
        "max_restarts": max_restarts, "notices": notices,
    }  # fmt: skip
    folder = find_run(session.settings, run)
    offset = folder.log_file.stat().st_size if folder.log_file.exists() else 0
    resume_run(folder, given, session.settings)
    session.say(f"{run} goes on")
    _go_on(session, folder, detach=detach, log_offset=offset)


def _device(name: str | None) -> str | None:
    """A device's name checked, where one is given."""
    from tonnage.api.trained import known_device

    return None if name is None else known_device(name)


def _duration_s(text: str | None) -> float | None:
    """Seconds of a duration; InputError says what was expected."""
    if text is None:
        return None
    from tonnage.errors import InputError
    from tonnage.workload.durations import parse_duration_s

    try:
        seconds = parse_duration_s(text)
    except ValueError as error:
        raise InputError(f"--billing-quantum {text}: {error}", hint="such as 1s, 60s or 1h") from error
    if seconds <= 0:
        raise InputError(f"--billing-quantum {text}: expected more than nothing", hint="such as 1s, 60s or 1h")
    return seconds


def _announce(session: Session, launch: Launch) -> None:
    from tonnage.cli.predicting import prediction_line
    from tonnage.reports.wording import plural

    where = f"{launch.spec.launch.runner}, {plural(launch.spec.launch.processes, 'process')}"
    session.say(f"run {launch.spec.name} ({launch.spec.task}; {where}) in {launch.folder.path}")
    session.say(prediction_line(launch.prediction))
    for doubt in launch.doubts:
        session.say(f"doubtful: {doubt.message}" + (f" ({doubt.hint})" if doubt.hint else ""))


def confirm() -> None:
    """Ask on a terminal; elsewhere the doubts stand on stderr and the run starts."""
    import sys

    if sys.stdin.isatty() and sys.stderr.isatty() and not typer.confirm("start it?", err=True):
        raise typer.Exit(4)


def _go_on(session: Session, folder: RunFolder, *, detach: bool, log_offset: int = 0) -> None:
    from tonnage.cli.following import exit_code, follow, last_words, to_stderr
    from tonnage.cli.ps import run_listing
    from tonnage.cli.running import Told

    name = folder.path.name
    if detach:
        session.say(f"{name} goes on alone; `tonnage logs -f {name}` follows it, `tonnage stop {name}` ends it")
        session.show(run_listing([folder], title="Started"))
        return
    quiet: Any = session.quiet
    try:
        state = follow(folder, print_line=_nothing if quiet else to_stderr, quiet=quiet, log_offset=log_offset)
    except KeyboardInterrupt:
        session.say(f"\n{name} goes on alone; `tonnage logs -f {name}` follows it, `tonnage stop {name}` ends it")
        raise typer.Exit(0) from None
    session.say(last_words(folder, state))
    session.show(run_listing([folder], title="Ended"))
    raise typer.Exit(Told(exit_code(state)))


def _nothing(_: str) -> None:
    """The log stays in its file."""
