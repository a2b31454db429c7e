"""The one error of this package, and MLflow's own put into it: short waits, no chatter."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tonnage.errors import MissingExtra, TonnageError
from tonnage.runs.secrets import masked

_PATIENCE: Final = {  # a server that is down is known to be so in seconds, not in the hour of MLflow's defaults
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",  # nothing about a run goes to anybody who was not named
}
_CHATTER: Final = (
    "mlflow.store.db.utils", "alembic.runtime.migration", "mlflow.tracking.fluent", "mlflow.models.model",
    "mlflow.utils.environment", "mlflow.pyfunc", "mlflow.utils.requirements_utils", "urllib3.connectionpool",
)  # fmt: skip


class TrackingUnavailable(TonnageError):
    """MLflow cannot be reached, or refuses. The run goes on; `tonnage runs sync` sends the rest later."""

    def __init__(self, uri: str, why: str) -> None:
        super().__init__(
            f"MLflow at {masked(uri)}: {masked(why)}", hint="`tonnage runs sync` sends what is missing later"
        )


@contextmanager
def reaching(uri: str) -> Iterator[None]:
    """MLflow's own errors become TrackingUnavailable; what it would print is not printed."""
    with _impatient():
        _import_mlflow()
        from mlflow.exceptions import MlflowException
        from requests.exceptions import RequestException
        from sqlalchemy.exc import SQLAlchemyError

        with _quiet():
            try:
                yield
            except (MlflowException, RequestException, SQLAlchemyError, OSError) as error:
                raise TrackingUnavailable(uri, _first_line(error)) from error


def _import_mlflow() -> None:
    try:
        with _quiet():
            import mlflow  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtra("tracking in MLflow", "train") from error


@contextmanager
def _impatient() -> Iterator[None]:
    """Settings for MLflow where the user made none, as long as we ask it something."""
    ours = [name for name in _PATIENCE if name not in os.environ]
    os.environ.update({name: _PATIENCE[name] for name in ours})
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


@contextmanager
def _quiet() -> Iterator[None]:
    levels = {name: logging.getLogger(name).level for name in _CHATTER}
    for name in _CHATTER:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            # MLflow with newer SQLAlchemy and pydantic: nothing that a user of ours could act on
            warnings.filterwarnings("ignore", message=".*``noload`` loader strategy.*")
            warnings.filterwarnings("ignore", category=DeprecationWarning, module="mlflow.*")
            warnings.filterwarnings("ignore", category=FutureWarning, module="mlflow.*")
            warnings.filterwarnings("ignore", category=UserWarning, module="mlflow.*")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
