"""What goes to MLflow of a run: points from the content of its folder (pure: the same folder gives the same points),
and files: specification, plan and prediction, result, the log's end, the report.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import Event, EventKind
from tonnage.runs.secrets import masked
from tonnage.runs.spec import RunSpec
from tonnage.runs.states import RunState, RunStatus
from tonnage.values import dataclass

if TYPE_CHECKING:
    from mlflow import MlflowClient
_NOT_METRICS: Final = frozenset({"step", "at", "attempt"})
LONGEST_PARAM: Final = 500  # characters; what every MLflow store takes
STATUS: Final = {
    RunStatus.SUCCEEDED: "FINISHED", RunStatus.FAILED: "FAILED", RunStatus.LOST: "FAILED", RunStatus.STOPPED: "KILLED",
    RunStatus.CANCELLED: "KILLED", RunStatus.PENDING: "SCHEDULED",
}  # fmt: skip
LOG_BYTES: Final = 256 * 1024  # of the log's end


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One value of one metric. Its time is that of the measurement, so that the same point is the same anywhere."""

    key: str
    value: float
    at_ms: int
    step: int


def parameters(spec: RunSpec) -> dict[str, str]:
    """What was asked, under dotted names. What was not asked for is left out."""
    said = replace(spec, data=replace(spec.data, prints=None))  # of each file: too long for a parameter
    return {name: text[:LONGEST_PARAM] for name, text in _flat(asdict(said)) if text}


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}.")
        elif value is not None:
            yield above + name, " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def metric_points(line: Mapping[str, Any], *, after_step: int) -> list[MetricPoint]:
    """A line of metrics. A step that was sent before a restart is not sent again: MLflow cannot take a point back."""
    step = int(line["step"])
    if step <= after_step:
        return []
    at_ms = _milliseconds(line["at"])
    return [MetricPoint(key, float(value), at_ms, step) for key, value in line.items()
            if key not in _NOT_METRICS and _is_number(value)]  # fmt: skip


def sample_points(sample: Mapping[str, Any], began: datetime) -> list[MetricPoint]:
    """A sample of the machine, under the names MLflow's own page of system metrics looks for; steps are seconds."""
    at_ms = _milliseconds(sample["at"])
    step = max(round((at_ms - began.timestamp() * 1000) / 1000), 0)
    figures = {key: value for key, value in sample.items() if key != "gpus"}
    figures |= {f"machine/{key}": value for key, value in (sample.get("machine") or {}).items()}
    for gpu in sample.get("gpus", ()):
        figures |= {f"gpu_{gpu['index']}/{key}": value for key, value in gpu.items() if key != "index"}
    return [
        MetricPoint(f"system/{key}", float(value), at_ms, step) for key, value in figures.items() if _is_number(value)
    ]


def event_points(events: Iterable[Event]) -> list[MetricPoint]:
    """Metrics of evaluations during the run."""
    return [
        MetricPoint(
            f"evaluation/{name}", float(value), _milliseconds(event.at.isoformat()), int(event.fields.get("step", 0))
        )
        for event in events
        if event.kind is EventKind.EVALUATED
        for name, value in (event.fields.get("metrics") or {}).items()
        if _is_number(value)
    ]


def result_points(figures: Mapping[str, Any], *, ended_at: datetime, step: int) -> list[MetricPoint]:
    """What is known at the end: `metrics`, `baseline`, `measured` and `predicted`, each under its own name."""
    at_ms = _milliseconds(ended_at.isoformat())
    return [
        MetricPoint(f"{group}/{name}", float(value), at_ms, step)
        for group, values in figures.items()
        for name, value in (values or {}).items()
        if _is_number(value)
    ]


def state_tags(state: RunState) -> dict[str, str]:
    """The state of the run, as tags."""
    tags = {
        "tonnage.state": state.state.value,
        "tonnage.reason": state.reason.value if state.reason else "",
        "tonnage.starts": str(state.attempt),
        "tonnage.lost_steps": str(state.lost_steps),
    }
    return tags | ({} if state.checkpoint_step is None else {"tonnage.checkpoint_step": str(state.checkpoint_step)})


def status_of(state: RunState) -> str:
    """MLflow's word for it."""
    return STATUS.get(state.state, "RUNNING")


def send_artifacts(client: MlflowClient, run_id: str, folder: RunFolder, spec: RunSpec) -> None:
    """Send them; a second time replaces the first."""
    plain = (folder.spec_file, folder.prediction_file, folder.job_file, folder.result_file, folder.path / "plan.json")
    for path in plain:
        if path.exists():
            client.log_artifact(run_id, str(path))
    with tempfile.TemporaryDirectory() as place:
        for name, text in (*_workload(spec), ("report.html", _report(folder)), ("log-tail.txt", log_tail(folder))):
            path = Path(place) / name
            path.write_text(text, encoding="utf-8")
            client.log_artifact(run_id, str(path))


def _workload(spec: RunSpec) -> Iterator[tuple[str, str]]:
    """The workload file, the secrets of its URLs left out."""
    path = Path(spec.workload_file) if spec.workload_file else None
    if path is not None and path.is_file():
        yield path.name, masked(path.read_text(encoding="utf-8", errors="replace"))


def log_tail(folder: RunFolder) -> str:
    """The end of the log, from a whole line on."""
    if not folder.log_file.exists():
        return ""
    with folder.log_file.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - LOG_BYTES, 0))
        if size > LOG_BYTES:
            file.readline()
        return file.read().decode("utf-8", errors="replace")


def _milliseconds(at: str) -> int:
    return round(datetime.fromisoformat(at).timestamp() * 1000)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _report(folder: RunFolder) -> str:
    from tonnage.reports.rendering import render_report
    from tonnage.reports.run_report import run_report
    from tonnage.runs.summary import summarise

    return render_report(run_report(summarise(folder)), "html")
