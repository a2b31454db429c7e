"""Where runs are tracked: as the workload file says, else MLFLOW_TRACKING_URI, else a SQLite file at home."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from tonnage.runs.spec import RunSpec


def tracking_uri(spec: RunSpec, home: Path, environ: Mapping[str, str] | None = None) -> str:
    """The URI for a run of this home."""
    found = spec.tracking.uri or (os.environ if environ is None else environ).get("MLFLOW_TRACKING_URI")
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


def shown(uri: str) -> str:
    """A URI, or a text with some, without passwords.

    >>> shown("https://me:secret@host/mlflow")
    'https://me:***@host/mlflow'
    """
    return re.sub(r"(://[^:/@]*):[^@/]*@", r"\1:***@", uri)
