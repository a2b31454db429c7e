"""`tonnage.doctor`: what is there of the installation and of this machine, and what to do where something is amiss."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tonnage.api.answers import Answer
from tonnage.api.machine_examination import examine_machine
from tonnage.errors import TonnageError
from tonnage.reports.environment import Check, doctor_report
from tonnage.reports.rendering import DEFAULT_WIDTH
from tonnage.settings import Settings, current_settings
from tonnage.units import mib_to_gib

OLDEST_PYTHON: Final = (3, 11)
NVIDIA_SMI_TIMEOUT_S: Final = 10
EXTRAS: Final = {  # one module of each is enough
    "frames": ("pandas", "polars"),
    "gpuhunt": ("gpuhunt",),
    "train": ("torch",),
    "load": ("httptools", "uvloop", "pyarrow"),
    "ray": ("ray",),
    "tabular": ("xgboost",),
    "spark": ("pyspark",),
    "serve": ("onnxruntime",),
    "llama": ("xllamacpp",),
    "gateway": ("httptools", "orjson", "uvloop"),
    "google": ("google.auth",),
    "azure": ("azure.identity",),
    "keyring": ("keyring",),
    "lightgbm": ("lightgbm",),
    "catboost": ("catboost",),
    "redis": ("redis",),
    "kubernetes": ("cel", "websockets"),
    "guardrails": ("presidio_analyzer",),
    "otel": ("opentelemetry.sdk",),
    "backup": ("cryptography",),
    "bills": ("duckdb",),
    "databricks": ("databricks.sdk",),
    "prepare": ("duckdb", "deltalake"),
    "cloud": ("sky",),
    "fetch": ("huggingface_hub",),
    "pipeline": ("dagster",),
    "qlora": ("bitsandbytes",),
    "postgres": ("psycopg",),
    "report": ("typst", "vl_convert"),
    "sweep": ("optuna",),
    "oidc": ("joserfc",),
    "ui": ("fastapi", "uvicorn"),
    "docs": ("mkdocs", "material"),
}


def doctor(*, settings: Settings | None = None) -> Answer[tuple[Check, ...]]:
    """Every check of the installation and of this machine, in the order a person would make them.

    Python, extras and their versions, catalog, home, terminal, processor, GPUs, Java, environments of engines, disk,
    ports, other programs. The answer's fault says how many found a problem.
    """
    settings = settings or current_settings()
    checks = (
        _python(),
        *(_extra(extra, modules) for extra, modules in EXTRAS.items()),
        _catalog(settings),
        _home(settings.home),
        _terminal(settings),
        _gpu(),
        *examine_machine(settings.home),
    )
    problems = sum(check.status == "problem" for check in checks)
    fault = TonnageError(f"{problems} of {len(checks)} checks found a problem") if problems else None
    return Answer(checks, doctor_report, fault)


def _python() -> Check:
    fine = sys.version_info[:2] >= OLDEST_PYTHON
    return Check(
        name="python",
        status="ok" if fine else "problem",
        found=f"{platform.python_version()} at {sys.executable}",
        advice="" if fine else "Python 3.11 or newer is needed",
    )


def _extra(extra: str, modules: tuple[str, ...]) -> Check:
    present = [module for module in modules if _installed(module)]
    if present:
        return Check(name=f"extra {extra}", status="ok", found=", ".join(_with_version(one) for one in present))
    return Check(
        name=f"extra {extra}", status="missing", found="not installed", advice=f"pip install 'tonnage[{extra}]'"
    )


def _installed(module: str) -> bool:
    """A module of a package that is not there is not there; `find_spec` raises for it."""
    package, _, _ = module.partition(".")
    return find_spec(package) is not None and find_spec(module) is not None


def _with_version(module: str) -> str:
    """The module and the version of the package that carries it, without importing it."""
    package = module.partition(".")[0]
    for name in (package, *_distributions().get(package, ())):
        try:
            return f"{module} {version(name)}"
        except PackageNotFoundError:
            continue
    return module


@cache
def _distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


def _catalog(settings: Settings) -> Check:
    from tonnage.api.catalogs import load_catalog

    try:
        catalog = load_catalog(settings=settings)
    except TonnageError as error:
        return Check(name="catalog", status="problem", found=str(error), advice=error.hint or "")
    today = settings.today
    age = (today - catalog.built_on).days
    found = (
        f"{catalog.name}: {len(catalog.instance_types):,} instance types, {len(catalog.offers):,} offers, "
        f"built {max(age, 0)} days ago"
    )
    stale = age > settings.max_price_age_days
    return Check(
        name="catalog",
        status="problem" if stale else "ok",
        found=found,
        advice="`tonnage catalog import` reads newer prices" if stale else "",
    )


def _home(home: Path) -> Check:
    place = home
    while not place.exists() and place != place.parent:
        place = place.parent
    writable = place.is_dir() and os.access(place, os.W_OK | os.X_OK)
    state = "exists" if home.exists() else "will be made when first needed"
    return Check(
        name="home",
        status="ok" if writable else "problem",
        found=f"{home} ({state})",
        advice="" if writable else f"{place} cannot be written; set TONNAGE_HOME to a folder of yours",
    )


def _terminal(settings: Settings) -> Check:
    kind = "terminal" if sys.stdout.isatty() else "not a terminal"
    encoding = sys.stdout.encoding or "unknown encoding"
    width = shutil.get_terminal_size(fallback=(DEFAULT_WIDTH, 24)).columns
    narrow = sys.stdout.isatty() and width < 80
    return Check(
        name="terminal",
        status="ok",
        found=f"{kind}, {width} columns, {encoding}, colour {settings.color}",
        advice="tables fold under 120 columns" if narrow else "",
    )


def _gpu() -> Check:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return Check(name="gpu", status="missing", found="no nvidia-smi here", advice="none is needed to plan")
    command = [tool, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=NVIDIA_SMI_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(name="gpu", status="missing", found=f"nvidia-smi failed: {error}", advice="none is needed to plan")
    lines = [line for line in answer.stdout.splitlines() if line.strip()]
    if answer.returncode or not lines:
        said = (answer.stderr or answer.stdout).strip().splitlines() or ["nothing"]
        return Check(name="gpu", status="missing", found=f"nvidia-smi says: {said[0]}", advice="none is needed to plan")
    return Check(name="gpu", status="ok", found="; ".join(_device(line) for line in lines))


def _device(line: str) -> str:
    """One line of nvidia-smi, its memory as GiB.

    >>> _device("NVIDIA H100 80GB HBM3, 81559, 550.54")
    'NVIDIA H100 80GB HBM3 (79.6 GiB, driver 550.54)'
    """
    name, memory, driver = (part.strip() for part in (line + ",,").split(",")[:3])
    size = f"{mib_to_gib(float(memory)):.1f} GiB" if memory.replace(".", "", 1).isdigit() else "memory unknown"
    return f"{name} ({size}, driver {driver or 'unknown'})"
