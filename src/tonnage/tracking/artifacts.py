"""Files of a run that go to MLflow: specification, plan and prediction, result, the log's end, the report."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tonnage.runs.folder import RunFolder
from tonnage.runs.secrets import masked
from tonnage.runs.spec import RunSpec

if TYPE_CHECKING:
    from mlflow import MlflowClient

LOG_BYTES: Final = 256 * 1024  # of the log's end


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


def _report(folder: RunFolder) -> str:
    from tonnage.reports.rendering import render_report
    from tonnage.reports.run_report import run_report
    from tonnage.runs.summary import summarise

    return render_report(run_report(summarise(folder)), "html")
