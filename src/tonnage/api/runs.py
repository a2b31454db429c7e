"""Runs on this machine: `tonnage.run`, `tonnage.show`, `tonnage.stop`, `tonnage.resume`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.api.answers import Answer
from tonnage.api.charging import charge_option, label_option
from tonnage.api.declaring import Options, declared_options, option
from tonnage.api.reading import read_quantum
from tonnage.errors import InputError
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.reports.rendering import Report
    from tonnage.runs.folder import RunFolder
    from tonnage.runs.summary import RunSummary

LOOK_EVERY_S: Final = 0.1
SILENT_S: Final = 60.0  # a step, an evaluation or a save may take that long


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeOptions(Options):
    """How a run goes on, and its limits; what is not given stays as it was."""

    on: str | None = option(
        "--on", "Go on at this place of places.toml; local: on this machine; any: the first that can. "
        "[default: where it was]", default=None, metavar="PLACE",
    )  # fmt: skip
    runner: str | None = option(
        "--runner", "local, torchrun or ray. [default: the file's, else local]", default=None, metavar="NAME"
    )
    processes: int | None = option("--processes", "Worker processes, one a GPU.", default=None, metavar="N", least=1)
    device: str | None = option(
        "--device", "auto, cpu or cuda. [default: the file's, else auto]", default=None, metavar="NAME"
    )
    max_cost_usd: float | None = option(
        "--max-cost", "Save and stop before this is spent.", default=None, metavar="USD", least=0.0
    )
    usd_per_hour: float | None = option(
        "--usd-per-hour", "What the machines of this run cost.", default=None, metavar="USD", least=0.0
    )
    billing_quantum_s: float | None = option(
        "--billing-quantum", "What is begun of this is paid whole: 1s, 60s, 1h. [default: 60s]",
        default=None, metavar="DURATION", read=read_quantum,
    )  # fmt: skip
    max_hours: float | None = option(
        "--max-hours", "Save and stop before this time is up.", default=None, metavar="H", least=0.0
    )
    idle_minutes: float | None = option(
        "--idle-minutes", "Stop after so long without a step.", default=None, metavar="M", least=0.0
    )
    max_restarts: int | None = option(
        "--max-restarts", "Restarts in a row without a newer checkpoint. [default: 3]",
        default=None, metavar="N", least=0,
    )  # fmt: skip
    notices: tuple[str, ...] = option(
        "--notices", "Watch for this cloud's interruption notices: aws, gcp or azure; may be repeated.",
        default=(), metavar="CLOUD",
    )  # fmt: skip

    def given(self) -> dict[str, Any]:
        """What is given, by name; InputError for an unknown device."""
        from tonnage.api.trained import known_device

        found = {name: getattr(self, name) for name in declared_options(type(self))}
        if self.device is not None:
            known_device(self.device)
        return found | {"max_cost": self.max_cost_usd}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(ResumeOptions):
    """The name of a run, how it is carried out and its limits; what is not given is the file's own."""

    name: str | None = option("--name", "[default: the file's own]", default=None, metavar="NAME")
    on: str | None = option(
        "--on", "Carry it out at this place of places.toml: NAME or KIND:NAME; any: the first that can; plan: "
        "the first option of the plan that a place has. [default: this machine]", default=None, metavar="PLACE",
    )  # fmt: skip
    project: str | None = charge_option("project", "the file's")
    team: str | None = charge_option("team", "the file's")
    environment: str | None = charge_option("environment", "the file's")
    labels: tuple[str, ...] = label_option(", over the file's")
    metrics_port: int | None = option(
        "--metrics-port", "Serve metrics to Prometheus here.", default=None, metavar="PORT", least=0, most=65535
    )


def run(file: Path | str, options: RunOptions | None = None, *, settings: Settings | None = None) -> Answer[RunFolder]:
    """Start the workload file (or spec.json) on this machine and come back at once; the run goes on alone.

    The answer's remarks are what is doubtful: a program that asks first takes `tonnage.api.launching.prepare`. Raises
    InputError and PlanRefused for what prevents the run: nothing is started then.
    """
    from tonnage.api.launching import prepare, refuse_cut_short, start

    launch = prepare(settings or current_settings(), str(file), (options or RunOptions()).given())
    refuse_cut_short(launch.doubts)
    start(launch)
    remarks = tuple(f"doubtful: {one.message}" + (f" ({one.hint})" if one.hint else "") for one in launch.doubts)
    return Answer(launch.folder, partial(_listing, title="Started"), remarks=remarks)


def resume(run: str, options: ResumeOptions | None = None, *, settings: Settings | None = None) -> Answer[RunFolder]:
    """Go on with a run that was stopped, failed or lost, from its newest valid checkpoint; come back at once.

    Raises UnknownName where there is no such run, InputError where there is nothing to go on with, PlanRefused where a
    limit is used up.
    """
    from tonnage.api.home_runs import find_run
    from tonnage.api.resuming import resume_run

    chosen = settings or current_settings()
    folder = find_run(chosen, run)
    resume_run(folder, (options or ResumeOptions()).given(), chosen)
    return Answer(folder, partial(_listing, title="Started"))


def show(run: str, *, settings: Settings | None = None) -> Answer[RunSummary]:
    """One run in full: what was asked, predicted beside measured, loss, events, spend, files.

    Raises UnknownName where there is no such run.
    """
    from tonnage.api.home_runs import find_run
    from tonnage.api.placing import look_at_place
    from tonnage.reports.run_report import run_report
    from tonnage.runs.summary import summarise

    chosen = settings or current_settings()
    folder = find_run(chosen, run)
    remark = look_at_place(chosen, folder)
    return Answer(summarise(folder), run_report, remarks=(remark,) if remark else ())


def stop(
    run: str,
    *,
    at_once: bool = False,
    wait: bool = True,
    settings: Settings | None = None,
    on_silence: Callable[[str], None] | None = None,
) -> Answer[RunFolder]:
    """Ask a run to write a checkpoint and end; `at_once`: end it without one.

    With `wait` it comes back when the run has ended; `on_silence` is called once where that takes longer than a minute.
    Raises UnknownName where there is no such run, InputError where it has ended.
    """
    from tonnage.api.home_runs import find_run
    from tonnage.api.launching import runner_of
    from tonnage.api.placing import executor_of, settle
    from tonnage.runs.liveness import observed_state

    chosen = settings or current_settings()
    folder = find_run(chosen, run)
    settle(chosen, folder)  # a place that does not answer refuses the request itself, below
    runner = executor_of(chosen, folder) or runner_of(folder)
    state = observed_state(folder)
    if state.state.ended and not _is_alive(folder):
        raise InputError(f"'{run}' has ended: {state.state.value}", hint="`tonnage ps` lists runs under way")
    ask = runner.cancel if at_once else runner.stop
    ask(folder, by="cli", reason="asked for by `tonnage cancel`" if at_once else "asked for by `tonnage stop`")
    if wait:
        _wait(folder, None if at_once else on_silence, look=lambda: settle(chosen, folder))
    return Answer(folder, partial(_listing, title="Ended" if wait else "Asked to end"))


def _wait(folder: RunFolder, on_silence: Callable[[str], None] | None, *, look: Callable[[], str]) -> None:
    """Until nothing of the run is alive. `look` learns it of a run whose folder lies elsewhere."""
    if folder.mirror_file.exists():
        look()
    said_at = time.monotonic() + SILENT_S
    while _is_alive(folder):
        time.sleep(LOOK_EVERY_S)
        if folder.mirror_file.exists():
            look()
        if on_silence is not None and time.monotonic() >= said_at:
            said_at = math.inf
            on_silence(
                f"no answer for {SILENT_S:.0f} s: `tonnage cancel {folder.path.name}` ends it without a checkpoint"
            )


def _is_alive(folder: RunFolder) -> bool:
    from tonnage.runs.liveness import has_supervisor, is_held, workers_lock

    return has_supervisor(folder) or is_held(workers_lock(folder))


def _listing(folder: RunFolder, *, title: str) -> Report:
    from tonnage.api.run_listing import run_listing

    return run_listing([folder], title=title)
