"""Environments of engines: the interpreter that a worker runs in, Java, and what to install where one is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tonnage.errors import InputError, TonnageError
from tonnage.side_by_side.spec import EngineKind, Environment, environment_of

MODULES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType({
    "scikit-learn": ("sklearn", "pip install 'tonnage[tabular]'"),
    "xgboost": ("xgboost", "pip install 'tonnage[tabular]'"),
    "lightgbm": ("lightgbm", "pip install 'tonnage[lightgbm]'"),
    "catboost": ("catboost", "pip install 'tonnage[catboost]'"),
    "pytorch": ("torch", "pip install 'tonnage[train]'"),
    "pytorch-fsdp": ("torch", "pip install 'tonnage[train]'"),
})  # fmt: skip
PACKAGES: Final[Mapping[Environment, tuple[str, ...]]] = MappingProxyType({
    "h2o": ("h2o==3.46.0.12", "pandas>=2.2,<4", "numpy>=1.26"),
    "sparkling": (
        "setuptools<81", "wheel", "pyspark==3.5.9", "h2o_pysparkling_3.5==3.46.0.6.post1", "pandas>=2.2,<4",
        "numpy>=1.26", "pyarrow>=17",
    ),
    "ray": ("ray[client,train]==2.60.0", "xgboost-cpu>=3,<4", "torch>=2.6", "numpy>=1.26"),
})  # fmt: skip
JAVA_VERSIONS: Final = (8, 17)  # those that H2O 3.46 runs on: 8 to 17
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRAS: Final = re.compile(r"\[[^\]]*\]")
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


def environments_folder(home: Path) -> Path:
    """Where `bench setup` makes environments."""
    return home / "bench-environments"


def python_of(engine: EngineKind, home: Path) -> Path:
    """The interpreter of the engine's worker."""
    kind = environment_of(engine)
    return Path(sys.executable) if kind == "own" else environments_folder(home) / kind / "bin" / "python"


def missing(engine: EngineKind, home: Path) -> str | None:
    """What the engine lacks and how to get it; None where it can run."""
    kind = environment_of(engine)
    if kind == "own":
        module, command = MODULES[engine]
        return None if find_spec(module) is not None else f"{engine} is not installed: {command}"
    if not (python_of(engine, home).parent.parent / "ready").is_file():
        return f"{engine} has no environment: tonnage bench setup {kind}"
    return java_fault() if needs_java(kind) else None


def setup_s(kind: Environment, home: Path) -> float | None:
    """Seconds that `bench setup` took; None where it did not record them, or there was none."""
    ready = environments_folder(home) / kind / "ready"
    text = ready.read_text(encoding="utf-8").strip() if ready.is_file() else ""
    return float(text) if text else None


def needs_java(kind: Environment) -> bool:
    """H2O and Spark run on Java, Ray does not."""
    return kind in ("h2o", "sparkling")


def java_fault() -> str | None:
    """Why Java cannot be used; None where it can."""
    program = java_program()
    if program is None:
        return "Java is not there: apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
    said = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False)
    found = java_version(said.stderr + said.stdout)
    first, last = JAVA_VERSIONS
    if found is None or not first <= found <= last:
        return f"{program} is version {found or 'unknown'}, H2O needs {first} to {last}: set JAVA_HOME to one of these"
    return None


def java_program() -> str | None:
    """The `java` of JAVA_HOME, else of the PATH."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")


def java_version(text: str) -> int | None:
    """The major version that `java -version` prints.

    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_402"')
    (17, 8)
    """
    found = _VERSION.search(text)
    return int(found[1]) if found else None


def make_environment(kind: Environment, home: Path, others: Sequence[str] = ()) -> Path:
    """An environment with the packages of `kind`; its folder. TonnageError with pip's last words where that fails.

    `others`: requirements in place of those of the same package, or besides.
    """
    packages = with_others(PACKAGES[kind], others)
    folder = environments_folder(home) / kind
    folder.parent.mkdir(parents=True, exist_ok=True)
    python = folder / "bin" / "python"
    _carried_out([sys.executable, "-m", "venv", str(folder)])
    tools = [one for one in packages if one.startswith(("setuptools", "wheel"))]
    if tools:  # pyspark is built from its source, with the setuptools that Sparkling Water can use
        _carried_out([str(python), "-m", "pip", "install", "--quiet", *tools])
    flags = ["--no-build-isolation"] if tools else []
    _carried_out([str(python), "-m", "pip", "install", "--quiet", *flags, *packages])
    return folder


def with_others(packages: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    """The packages with other requirements in place of their own; extras stay where the other names none.

    >>> with_others(("ray[client,train]==2.60.0", "torch>=2.6"), ("ray==2.48.0", "boto3"))
    ('ray[client,train]==2.48.0', 'torch>=2.6', 'boto3')
    """
    stated = {_name(one): one for one in others}
    kept = []
    for one in packages:
        other = stated.pop(_name(one), None)
        extras = _EXTRAS.search(one)
        if other is not None and extras is not None and "[" not in other:
            other = other.replace(_name(one), _name(one) + extras[0], 1)
        kept.append(other or one)
    return (*kept, *stated.values())


def _name(requirement: str) -> str:
    found = _NAME.match(requirement)
    if found is None:
        raise InputError(f"'{requirement}' is no requirement of a package", hint="as pip takes it: ray==2.60.0")
    return found[0]


def _carried_out(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise TonnageError(
            f"{' '.join(command[:6])} ... failed:\n{last}",
            hint="is the package index reachable, and is there such a version for this Python?",
        )
