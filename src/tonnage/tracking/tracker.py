"""One run's way to MLflow: from the files of its folder, in batches, each point once."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.calibration.reading import in_batches
from tonnage.errors import InputError
from tonnage.files import DRAFT_PREFIX, PRIVATE, make_private_folder, move_whole
from tonnage.runs.folder import RunFolder
from tonnage.runs.liveness import Held, hold_lock
from tonnage.runs.measured import measure, read_records
from tonnage.runs.series import read_lines
from tonnage.runs.spec import RunSpec
from tonnage.tracking.places import artifacts_beside, sqlite_file
from tonnage.tracking.points import (
    MetricPoint,
    event_points,
    metric_points,
    parameters,
    result_points,
    sample_points,
    send_artifacts,
    state_tags,
    status_of,
)
from tonnage.tracking.progress import Sent, load_sent, only_one, save_sent
from tonnage.tracking.registering import Registered, put, register
from tonnage.tracking.unavailable import TrackingUnavailable, reaching

if TYPE_CHECKING:
    from mlflow import MlflowClient

OFFSETS: Final = "tonnage.offsets"
KEY: Final = "tonnage.key"
OPEN_WAIT_S: Final = 300.0  # MLflow makes its tables in some 10 s; many runs may wait for their turn
_LINES: Final = 50  # of a file in one batch: 1,000 metrics at most
_MOST: Final = {"metrics": 1000, "params": 100}
_KIND: Final = {"mlflow.experimentKind": "custom_model_development"}  # what its pages show: training, not chats
_SUMMARY: Final = (
    "median_step_s", "p90_step_s", "samples_per_s", "clock_samples_per_s", "tokens_per_s", "data_wait_fraction",
    "peak_allocated_bytes", "peak_reserved_bytes", "peak_device_bytes", "peak_process_rss_bytes",
    "peak_host_rss_bytes", "seconds", "usd",
)  # fmt: skip


class Tracker:
    """Sends what a run's folder holds and MLflow has not. Any number of times, from any process, one at a time."""

    def __init__(self, spec: RunSpec, folder: RunFolder, uri: str) -> None:
        self._spec, self._folder, self._uri = spec, folder, uri
        self._client: MlflowClient | None = None

    def sync(self) -> None:
        """Send new metrics, samples, evaluations and the state. TrackingUnavailable where MLflow cannot be reached."""
        with self._sending() as (client, sent):
            self._send_lines(client, sent)

    def finish(self) -> None:
        """Send the end: summary, files, the model into the registry. Does nothing where it is there already."""
        with self._sending() as (client, sent):
            sent = self._send_lines(client, sent)
            mark = self._fingerprint()
            if sent.finished == mark:
                return
            self._send_summary(client, sent)
            send_artifacts(client, _run_id(sent), self._folder, self._spec)
            version = register(client, _run_id(sent), self._folder, self._spec, known=sent.model_version)
            self._save(replace(sent, finished=mark, model_version=version))

    def register(self, name: str, alias: str | None) -> Registered:
        """The finished model into the registry under a name; the version there whose files are the same, if any is.

        InputError for a name or alias that the registry does not take.
        """
        tracking = replace(self._spec.tracking, register_as=name, alias=alias)
        with self._sending() as (client, sent):
            sent = self._send_lines(client, sent)
            with _names_checked():
                return put(client, _run_id(sent), self._folder, replace(self._spec, tracking=tracking), name=name)

    # inside

    @contextmanager
    def _sending(self) -> Iterator[tuple[MlflowClient, Sent]]:
        """Alone, with a client, the run there and the offsets as MLflow knows them."""
        with only_one(self._folder) as alone:
            if not alone:
                raise TrackingUnavailable(self._uri, "another process is sending this run")
            with reaching(self._uri):
                client = self._open()
                yield client, self._there(client, load_sent(self._folder, self._uri))

    def _open(self) -> MlflowClient:
        if self._client is None:
            from mlflow import MlflowClient

            file = sqlite_file(self._uri)
            with nullcontext() if file is None else _first(file):
                client = MlflowClient(tracking_uri=self._uri, registry_uri=self._uri)
                client.get_experiment_by_name(self._spec.tracking.experiment)  # moves tables of older versions up
            self._client = client
        return self._client

    def _there(self, client: MlflowClient, sent: Sent) -> Sent:
        """The run in MLflow: by its noted id, by its key where the note was lost, or a new one."""
        run = self._noted(client, sent) or self._by_key(client, sent)
        if run is None:
            run = client.create_run(
                self._experiment(client), run_name=self._spec.name, start_time=self._began_ms(),
                tags={KEY: sent.key, "tonnage.folder": str(self._folder.path), **_tags(self._spec)},
            )  # fmt: skip
        known = replace(sent, run_id=run.info.run_id).at_offsets(run.data.tags.get(OFFSETS))
        known = replace(known, finished="", model_version=None) if sent.run_id != known.run_id else known
        missing = {name: text for name, text in parameters(self._spec).items() if name not in run.data.params}
        self._send_params(client, known, missing)
        if known != sent:
            self._save(known)
        return known

    def _noted(self, client: MlflowClient, sent: Sent) -> Any:
        from mlflow.exceptions import MlflowException

        if sent.run_id is None:
            return None
        try:
            return client.get_run(sent.run_id)
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":  # there is another database now
                return None
            raise

    def _by_key(self, client: MlflowClient, sent: Sent) -> Any:
        found = client.search_runs([self._experiment(client)], f"tags.`{KEY}` = '{sent.key}'", max_results=1)
        return found[0] if found else None

    def _experiment(self, client: MlflowClient) -> str:
        from mlflow.exceptions import MlflowException

        name = self._spec.tracking.experiment
        found = client.get_experiment_by_name(name)
        if found is None:
            try:
                place = artifacts_beside(self._uri)
                return str(client.create_experiment(name, artifact_location=place, tags=_KIND))
            except MlflowException as error:
                found = client.get_experiment_by_name(name)
                if error.error_code != "RESOURCE_ALREADY_EXISTS" or found is None:  # else another run was quicker
                    raise
        return str(found.experiment_id)

    def _send_params(self, client: MlflowClient, sent: Sent, missing: dict[str, str]) -> None:
        from mlflow.entities import Param

        for part in in_batches(missing.items(), _MOST["params"]):
            client.log_batch(_run_id(sent), params=[Param(name, text) for name, text in part])

    def _send_lines(self, client: MlflowClient, sent: Sent) -> Sent:
        """Every new line of metrics, samples and journal, and the state."""
        while lines := list(islice(read_lines(self._folder.metrics_file, sent.metrics), _LINES)):
            points: list[MetricPoint] = []
            step = sent.step
            for line in lines:
                points += metric_points(line.values, after_step=step)
                step = max(step, int(line.values["step"]))
            sent = self._send(client, points, replace(sent, metrics=lines[-1].end, step=step))
        began = self._began()
        while lines := list(islice(read_lines(self._folder.samples_file, sent.samples), _LINES)):
            points = [point for line in lines for point in sample_points(line.values, began)]
            sent = self._send(client, points, replace(sent, samples=lines[-1].end))
        events = list(self._folder.events())
        if len(events) > sent.events:
            sent = self._send(client, event_points(events[sent.events :]), replace(sent, events=len(events)))
            self._send_state(client, sent)
        return sent

    def _send(self, client: MlflowClient, points: Sequence[MetricPoint], sent: Sent) -> Sent:
        """Points, then the tag that says how far they reach, then our own note of it.

        Where a crash comes between, the tag counts; where it comes before the tag, the points are sent again with the
        same key, time, step and value, and a SQL store of MLflow keeps one of two such points.
        """
        from mlflow.entities import Metric, RunTag

        parts = list(in_batches(points, _MOST["metrics"])) or [[]]
        for number, part in enumerate(parts, start=1):
            metrics = [Metric(point.key, point.value, point.at_ms, point.step) for point in part]
            tags = [RunTag(OFFSETS, sent.offsets())] if number == len(parts) else []
            client.log_batch(_run_id(sent), metrics=metrics, tags=tags)
        self._save(sent)
        return sent

    def _send_state(self, client: MlflowClient, sent: Sent) -> None:
        from mlflow.entities import RunTag

        state = self._folder.state()
        client.log_batch(_run_id(sent), tags=[RunTag(name, text) for name, text in state_tags(state).items()])
        status = status_of(state)
        ended = round(state.ended_at.timestamp() * 1000) if state.ended_at is not None else None
        if state.state.ended:
            client.set_terminated(_run_id(sent), status=status, end_time=ended)
        else:
            client.update_run(_run_id(sent), status=status)

    def _send_summary(self, client: MlflowClient, sent: Sent) -> None:
        records = read_records(self._folder)
        measured = measure(records)
        predicted = {
            key: figure["value"] for key, figure in (records.prediction.get("figures") or {}).items() if figure
        }
        figures = {
            "metrics": records.result.get("metrics"),
            "baseline": records.result.get("baseline"),
            "measured": {name: getattr(measured, name) for name in _SUMMARY},
            "predicted": predicted,
        }
        ended = records.state.ended_at or self._began()
        self._send(client, result_points(figures, ended_at=ended, step=measured.steps), sent)

    def _began(self) -> datetime:
        state = self._folder.state()
        return state.submitted_at or state.started_at or datetime.fromtimestamp(0, UTC)

    def _began_ms(self) -> int | None:
        state = self._folder.state()
        began = state.submitted_at or state.started_at
        return None if began is None else round(began.timestamp() * 1000)

    def _fingerprint(self) -> str:
        """Of what `finish` sends: a resumed run has another end."""
        state = self._folder.state()
        result = self._folder.result_file
        parts = [state.state.value, str(state.ended_at), result.read_text(encoding="utf-8") if result.exists() else ""]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def _save(self, sent: Sent) -> None:
        save_sent(self._folder, self._uri, sent)


@contextmanager
def _first(file: Path) -> Iterator[None]:
    """Alone with a SQLite file, which has MLflow's tables: two that make them at once leave a broken file."""
    make_private_folder(file.parent)
    try:
        with hold_lock(file.with_name(file.name + ".lock"), wait_s=OPEN_WAIT_S):
            if not file.exists() or not file.stat().st_size:
                _make(file)
            yield
    except Held as error:
        raise OSError(f"another process has been opening {file} for {OPEN_WAIT_S:.0f} s") from error


def _make(file: Path) -> None:
    """A new SQLite file with all of MLflow's tables, in place by rename: MLflow cannot go on with half of them, which a
    full disk or a kill would leave."""
    from mlflow import MlflowClient

    for left in file.parent.glob(f"{DRAFT_PREFIX}{file.name}-*"):
        left.unlink()
    draft = file.with_name(f"{DRAFT_PREFIX}{file.name}-{os.urandom(4).hex()}")  # MLflow keeps what it knows of a name
    draft.touch(mode=PRIVATE)
    uri = f"sqlite:///{draft.as_posix()}"
    MlflowClient(tracking_uri=uri, registry_uri=uri).search_experiments(max_results=1)
    move_whole(draft, file)


@contextmanager
def _names_checked() -> Iterator[None]:
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if error.error_code != "INVALID_PARAMETER_VALUE":
            raise
        raise InputError(str(error).splitlines()[0], hint="choose another --as or --alias") from error


def _run_id(sent: Sent) -> str:
    assert sent.run_id is not None
    return sent.run_id


def _tags(spec: RunSpec) -> dict[str, str]:
    """What a run is found by in MLflow."""
    of_sweep = {} if spec.sweep is None else {"tonnage.sweep": spec.sweep}
    return {"tonnage.task": spec.task, **of_sweep}
