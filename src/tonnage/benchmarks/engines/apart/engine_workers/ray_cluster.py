"""A Ray of this host for the job's workers, or a cluster by its address."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any

from .base import EngineFault
from .cluster_address import must_answer

STORE_BYTES = 200 * 2**20  # of the object store of this host, besides the rows
STORE_FACTOR = 3  # times the bytes of the rows: a store that is full writes to the disk
PACKAGE = Path(__file__).parent


def open_cluster(job: dict[str, Any]) -> Any:
    """The module `ray`, connected. EngineFault where a cluster does not answer, is of other versions than this
    environment, or has fewer processors than the workers need."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TRAIN_V2_ENABLED": "1"}
    if job["master"] is not None and has_token():
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # else Ray would not send it
    import ray

    common = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
    if job["master"] is None:
        ray.init(
            "local", num_cpus=job["threads"], include_dashboard=False,
            object_store_memory=STORE_BYTES + STORE_FACTOR * rows_bytes(job), _temp_dir=job["scratch"], **common,
        )  # fmt: skip
    else:
        _join(ray, job["master"], common)
    _must_hold(ray, job)
    return ray


def rows_bytes(job: dict[str, Any]) -> int:
    """Bytes of the table's parts on the disk, which are those of its arrays."""
    return sum(one.stat().st_size for one in Path(job["data"]).glob("*.npy"))


def has_token() -> bool:
    """Whether there is a token for clusters, where Ray looks for it."""
    stated = os.environ.get("RAY_AUTH_TOKEN_PATH")
    places = (Path(stated),) if stated else (Path.home() / ".ray" / "auth_token",)
    return bool(os.environ.get("RAY_AUTH_TOKEN")) or any(one.is_file() for one in places)


def _join(ray: Any, address: str, common: dict[str, Any]) -> None:
    """Its machines get this package by Ray, since they have Ray and the engine's library alone."""
    if address != "auto":
        must_answer("Ray cluster", address)
    carried = {"py_modules": [str(PACKAGE)]}
    try:
        ray.init(address, runtime_env=carried, **common)
    except Exception as error:  # Ray's own, those of its client and of the network
        raise EngineFault(f"Ray at {address} does not take this bench: {_in_a_line(error)}{mend(error)}") from error


def mend(error: Exception) -> str:
    """What helps, by Ray's own words."""
    said, own = str(error).lower(), f"Python {sys.version.split()[0]}"
    if "version" in said:
        return f" | `tonnage bench setup ray --with ray==VERSION` takes the cluster's version ({own} is here)"
    if isinstance(error, ConnectionError) or "token" in said:
        return (
            " | is it a Ray that listens there, and does it ask for a token "
            "(RAY_AUTH_MODE=token with RAY_AUTH_TOKEN, or in ~/.ray/auth_token)?"
        )
    return ""


def _in_a_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _must_hold(ray: Any, job: dict[str, Any]) -> None:
    each = threads_each(job)
    needed, held = each * job["workers"], ray.cluster_resources().get("CPU", 0.0)
    if held < needed:
        workers = f"{job['workers']} workers of {each} threads"
        raise EngineFault(f"{workers} need {needed} CPUs, the Ray cluster has {held:g}")


def threads_each(job: dict[str, Any]) -> int:
    return max(int(job["threads"]) // int(job["workers"]), 1)
