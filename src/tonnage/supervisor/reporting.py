"""Measure and report beside a run: `python -m tonnage.supervisor.reporting RUN_DIR`, started by the supervisor.

Samples the workers' processes and GPUs, keeps the store's index and the tracking server up to date, serves metrics
where a port is given, and at the end writes the run's measured rows into the store. Each part fails alone: its error
goes to the supervisor's log and it is tried again later. The end of standard input is the end of the run.
"""

from __future__ import annotations

import os
import select
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import InputError, TonnageError
from tonnage.http.urls import without_secrets
from tonnage.monitoring.notifying import post_json, send_mail
from tonnage.runs.folder import RunFolder, append_values
from tonnage.runs.journal import EventKind
from tonnage.runs.liveness import read_heartbeat
from tonnage.runs.spec import LaunchSpec
from tonnage.runs.states import RunState, RunStatus
from tonnage.runs.tail import Tail
from tonnage.supervisor.recording import complain

if TYPE_CHECKING:
    from tonnage.monitoring import Sampler
    from tonnage.settings import Settings

WHO: Final = "reporter"
PRIVATE: Final = 0o077  # what MLflow and the store make here is the user's alone
SAMPLE_EVERY_S: Final = 5.0
INDEX_EVERY_S: Final = 15.0
TRACK_EVERY_S: Final = 15.0
LONGEST_DELAY_S: Final = 300.0
NO_TRACKING: Final = "none"


class PeriodicDuty:
    """One thing to do now and then; after an error less often, until it works again."""

    def __init__(self, name: str, every_s: float, do: Callable[[], None], finish: Callable[[], None]) -> None:
        self.name, self.finish = name, finish
        self._every_s, self._do = every_s, do
        self._delay_s = every_s
        self.due = time.monotonic()

    def run(self) -> None:
        """Do it once."""
        done = attempted(self.name, self._do)
        self._delay_s = self._every_s if done else min(LONGEST_DELAY_S, 2 * self._delay_s)
        self.due = time.monotonic() + self._delay_s


_failing: dict[str, str] = {}  # part -> the trouble that its newest try met


def attempted(name: str, do: Callable[[], None]) -> bool:
    """Whether it was done. An exception is written to the supervisor's log, a repeated one once: the other parts
    go on. A TonnageError is logged as one line, any other exception with its traceback."""
    try:
        do()
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        if _failing.get(name) != said:
            ours = isinstance(error, TonnageError)
            complain(f"{name} failed: {error}" if ours else f"{name} failed:\n{traceback.format_exc().rstrip()}")
        _failing[name] = said
        return False
    if _failing.pop(name, None) is not None:
        complain(f"{name} works again")
    return True


def report(folder: RunFolder, settings: Settings) -> None:
    """Until standard input ends; then every part's last words."""
    parts = list(_parts(folder, settings))
    open_ended = True
    while open_ended:
        wait_s = max(0.0, min(part.due for part in parts) - time.monotonic())
        ready, _, _ = select.select([sys.stdin], [], [], wait_s)
        open_ended = not ready or bool(os.read(sys.stdin.fileno(), 4096))
        for part in parts:
            if open_ended and time.monotonic() >= part.due:
                part.run()
    for part in parts:
        attempted(f"{part.name}, at the end,", part.finish)


def _parts(folder: RunFolder, settings: Settings) -> Iterator[PeriodicDuty]:
    sampling = _Sampling(folder)
    yield PeriodicDuty("sampling", SAMPLE_EVERY_S, sampling.do, sampling.do)
    port = folder.spec().launch.metrics_port
    if port is not None:
        serving = _Serving(folder, port)
        yield PeriodicDuty("the Prometheus endpoint", LONGEST_DELAY_S, serving.do, serving.finish)
    if _is_tracked(folder, settings):
        tracking = _Tracking(folder, settings)
        yield PeriodicDuty("tracking", TRACK_EVERY_S, tracking.do, tracking.finish)
    storing = _Storing(folder, settings)
    yield PeriodicDuty("the store", INDEX_EVERY_S, storing.do, storing.finish)
    yield PeriodicDuty("the message of its end", LONGEST_DELAY_S, _nothing, lambda: _tell(folder))


def _nothing() -> None:
    """Before its end nothing is reported of a run."""


def _tell(folder: RunFolder) -> None:

    tell_end(folder)


def _is_tracked(folder: RunFolder, settings: Settings) -> bool:
    """Not without the extra `train`, nor where the tracking store is given as `none`."""
    if find_spec("mlflow") is None:
        return False
    from tonnage.tracking import tracking_uri

    return tracking_uri(folder.spec(), settings.home) != NO_TRACKING


class _Sampling:
    """Memory, processors and GPUs of the newest start's processes."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder, self._journal = folder, Tail(folder.journal_file)
        self._sampler: Sampler | None = None

    def do(self) -> None:
        from tonnage.monitoring import Sampler, open_gpus

        for event in self._journal.events():
            if event.kind is EventKind.STARTED:
                gpus = open_gpus(most=gpus_of(self._folder.spec().launch))
                watchers = (os.getpid(), os.getppid())  # of this process and the supervisor that started it
                self._sampler = Sampler(int(event.fields["pid"]), watchers=watchers, gpus=gpus)
        if self._sampler is None:
            return
        sample = self._sampler.sample()
        if sample.processes:
            append_values(self._folder.samples_file, sample.to_values())


def gpus_of(launch: LaunchSpec) -> int | None:
    """How many of the visible GPUs a run computes on: worker n on the n-th, none of them on a processor, all (None)
    under a device map."""
    if launch.device == "cpu":
        return 0
    return None if launch.device_map is not None else launch.processes


class _Serving:
    """Metrics for Prometheus."""

    def __init__(self, folder: RunFolder, port: int) -> None:
        self._folder, self._port = folder, port
        self._exporter: Any = None

    def do(self) -> None:
        if self._exporter is None:
            from tonnage.monitoring import Exporter

            exporter = Exporter(self._folder, self._port)
            exporter.start()
            self._exporter = exporter

    def finish(self) -> None:
        if self._exporter is not None:
            self._exporter.stop()


class _Tracking:
    """MLflow, wherever it is; a server that is down is caught up with later."""

    def __init__(self, folder: RunFolder, settings: Settings) -> None:
        from tonnage.tracking import Tracker, tracking_uri

        spec = folder.spec()
        uri = tracking_uri(spec, settings.home)
        self._folder, self._shown = folder, without_secrets(uri)
        self._tracker = Tracker(spec, folder, uri)
        self._lost = False

    def do(self) -> None:
        self._try(self._tracker.sync)

    def finish(self) -> None:
        self._try(self._tracker.finish)

    def _try(self, send: Callable[[], None]) -> None:
        from tonnage.tracking import TrackingUnavailable

        try:
            send()
        except TrackingUnavailable:
            if not self._lost:
                self._lost = True
                self._folder.record(EventKind.TRACKING_LOST, who=WHO, uri=self._shown)
            raise
        if self._lost:
            self._lost = False
            self._folder.record(EventKind.TRACKING_SYNCED, who=WHO, uri=self._shown)


class _Storing:
    """The database: an index of the run, and at its end what was measured."""

    def __init__(self, folder: RunFolder, settings: Settings) -> None:
        self._folder, self._url = folder, settings.database_url

    def do(self) -> None:
        from tonnage.store import open_store

        with open_store(self._url) as store:
            store.index_run(self._folder)

    def finish(self) -> None:
        if self._folder.state().state is RunStatus.SUCCEEDED:
            self._keep_measurements()
        self.do()

    def _keep_measurements(self) -> None:
        from tonnage.runs.measured import measured_rows
        from tonnage.store import open_store

        rows = measured_rows(self._folder, datetime.now(UTC))
        if not rows:
            return
        with open_store(self._url) as store:
            kept = store.add_measurements(rows)
        self._folder.record(EventKind.MEASURED, who=WHO, rows=kept)


def main(arguments: list[str]) -> None:
    """Report on the run of this folder."""
    from tonnage.settings import load_settings

    os.umask(PRIVATE)
    report(RunFolder(Path(arguments[0])), load_settings({}, os.environ, Path.cwd()))


# TONNAGE_NOTIFY_URL: a POST of JSON goes there; its key `text` is what chat services show.
# TONNAGE_NOTIFY_MAIL: smtp://[user:password@]host[:port]?to=ADDRESS[&from=ADDRESS]; smtps:// encrypts from the start,
# smtp:// as soon as the server offers it.
URL: Final = "TONNAGE_NOTIFY_URL"
MAIL: Final = "TONNAGE_NOTIFY_MAIL"


def end_of(folder: RunFolder, state: RunState) -> dict[str, Any]:
    """The message about an ended run."""
    beat = read_heartbeat(folder)
    why = f" ({state.reason.value})" if state.reason else ""
    step = f"step {state.step:,}" + (f" of {state.total_steps:,}" if state.total_steps else "")
    said = f": {state.message}" if state.message else ""
    return {
        "schema": "tonnage/run-ended@1",
        "text": f"tonnage: {folder.path.name} {state.state.value}{why} at {step}{said}",
        "run": folder.path.name,
        "state": state.state.value,
        "reason": state.reason.value if state.reason else None,
        "message": state.message,
        "step": state.step,
        "total_steps": state.total_steps,
        "ended_at": state.ended_at.isoformat() if state.ended_at else None,
        "held_s": None if beat is None else round(beat.held_s, 1),
        "spent_usd": None if beat is None else beat.spent_usd,
    }


def tell_end(folder: RunFolder, environ: Mapping[str, str] | None = None) -> None:
    """Send the message to each address, independently. Raises the last error, once all were tried."""
    known = os.environ if environ is None else environ
    message, failed = end_of(folder, folder.state()), None
    for name, send in ((URL, post_json), (MAIL, partial(send_mail, what=MAIL))):
        if address := known.get(name):
            try:
                send(address, message)
            except (OSError, InputError) as error:
                failed = error
    if failed is not None:
        raise failed


if __name__ == "__main__":
    main(sys.argv[1:])
