"""Where runs are tracked: as the workload file says, else MLFLOW_TRACKING_URI, else a SQLite file at home."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tonnage.runs.secrets import fill_secrets
from tonnage.runs.spec import RunSpec


def tracking_uri(spec: RunSpec, home: Path, environ: Mapping[str, str] | None = None) -> str:
    """The URI for a run of this home."""
    asked = None if spec.tracking.uri is None else fill_secrets(spec.tracking.uri)
    found = asked or (os.environ if environ is None else environ).get("MLFLOW_TRACKING_URI")
    return found or f"sqlite:///{(home / 'mlflow.db').as_posix()}"


def artifacts_beside(uri: str) -> str | None:
    """Where files of a new experiment go: beside a SQLite file, since MLflow would take the working folder.

    None: a server or another database, which knows a place of its own.
    """
    path = sqlite_file(uri)
    return None if path is None else path.with_name(f"{path.stem}-artifacts").resolve().as_uri()


def sqlite_file(uri: str) -> Path | None:
    """The file behind a SQLite URI."""
    return Path(uri.partition(":///")[2]) if uri.startswith("sqlite:///") else None
