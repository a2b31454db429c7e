"""What goes to the machine with a run: our own code and the project's, the rows and weights that the run reads.

Everything is an object, named by its SHA-256: it goes there once, is verified there, and a part that came through
before the connection broke is not sent again.
"""

from __future__ import annotations

import hashlib
import io
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from tonnage.errors import InputError
from tonnage.places.ssh.line import ConnectionCut, SSHConnection
from tonnage.runs.locations import files_at, is_remote
from tonnage.runs.spec import DataSource, DataSpec, RunSpec
from tonnage.values import dataclass

INPUTS: Final = "inputs"  # of the run's folder there: the client's files under their whole paths
TRIES: Final = 4  # connections in a row over which nothing arrives
PAUSE_S: Final = 0.5
BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Object:
    """Bytes with a name that tells them: from a file, or made here."""

    digest: str
    size: int
    path: Path | None = None
    content: bytes = b""

    def blocks(self, offset: int) -> Iterator[bytes]:
        """From an offset on."""
        if self.path is None:
            yield self.content[offset:]
            return
        left = self.size - offset
        with self.path.open("rb") as file:
            file.seek(offset)
            while left and (block := file.read(min(BLOCK, left))):
                left -= len(block)
                yield block
        if left:
            raise InputError(f"{self.path} became shorter while it was sent", hint="start the run again")


def object_of(path: Path) -> Object:
    """A file as an object."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256")
    return Object(digest=found.hexdigest(), size=path.stat().st_size, path=path)


def own_code() -> Object:
    """This package as an archive that PYTHONPATH can name: the same bytes for the same files."""
    package = Path(__file__).parents[2]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression=zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path in sorted(package.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                inside = str(path.relative_to(package.parent))
                archive.writestr(zipfile.ZipInfo(inside), path.read_bytes(), compress_type=zipfile.ZIP_DEFLATED)
    content = out.getvalue()
    return Object(digest=hashlib.sha256(content).hexdigest(), size=len(content), content=content)


def wheels(names: Iterable[str]) -> tuple[Object, ...]:
    """The project's wheels. InputError where one is not there."""
    found = []
    for name in names:
        path = Path(name).expanduser()
        if not path.is_file() or path.suffix != ".whl":
            raise InputError(f"{name} is not a wheel", hint="build it: `python -m build --wheel`, then name dist/*.whl")
        found.append(object_of(path))
    return tuple(found)


def never(_: str) -> bool:
    """Of a place that has no files of its own."""
    return False


def inputs_of(spec: RunSpec, held: Callable[[str], bool] = never) -> dict[str, Path]:
    """Every file of this machine that the run reads: its path there, under INPUTS, and here.

    `held`: whether a path is one of the place's own.
    """
    found: dict[str, Path] = {}
    for source in _sources(spec.data):
        for location in (source.location, *source.more):
            if _is_here(source, location) and not held(location):
                found |= {f"{INPUTS}{path.absolute()}": path for path in files_at(location)}
    for folder in (spec.weights, spec.config, spec.tokenizer):
        if folder is not None and not is_remote(folder) and not held(folder):
            found |= {f"{INPUTS}{path.absolute()}": path for path in _files_below(Path(folder))}
    return found


def spec_there(spec: RunSpec, run: str, held: Callable[[str], bool] = never) -> RunSpec:
    """The specification with every path of this machine replaced by that of its copy in the run's folder there."""

    def moved(location: str | None) -> str | None:
        if location is None or is_remote(location) or held(location):
            return location
        return f"{run}/{INPUTS}{Path(location).absolute()}"

    def source(one: DataSource | None) -> DataSource | None:
        if one is None or not _is_here(one, one.location) or held(one.location):
            return one
        return replace(
            one, location=moved(one.location) or one.location, more=tuple(moved(more) or more for more in one.more)
        )

    data = spec.data
    train = source(data.train)
    assert train is not None
    prints = data.prints and tuple(replace(one, path=moved(one.path) or one.path) for one in data.prints)
    return replace(
        spec,
        data=replace(data, train=train, validation=source(data.validation), test=source(data.test), prints=prints),
        weights=moved(spec.weights) or spec.weights,
        config=moved(spec.config) or spec.config,
        tokenizer=moved(spec.tokenizer) or spec.tokenizer,
    )


def send(line: SSHConnection, run: str, objects: Iterable[Object]) -> tuple[Mapping[str, int], list[str]]:
    """Bring there what is not there yet; a broken connection is made again and goes on where it broke.

    Gives the bytes that the run's growing files have there, and the names of its checkpoints.
    """
    wanted = {one.digest: one for one in objects}
    left, arrived = TRIES, -1
    while True:
        try:
            reply = line.ask("want", {"run": run, "objects": sorted(wanted)})
            reply.close()
            parts = [(wanted[name], have) for name, have in reply.answer["here"].items() if have >= 0]
            if not parts:
                return reply.answer["sizes"], reply.answer["saved"]
            here = sum(one.size for one in wanted.values()) - sum(one.size - have for one, have in parts)
            left, arrived = (TRIES if here > arrived else left), max(here, arrived)
            missing = [[one.digest, offset, one.size - offset] for one, offset in parts]
            blocks = (block for one, offset in parts for block in one.blocks(offset))
            line.ask("take", {"run": run, "parts": missing}, blocks).close()
        except ConnectionCut as error:
            left -= 1
            if error.why != "unreachable" or not left:
                raise
            time.sleep(PAUSE_S)


def _sources(data: DataSpec) -> tuple[DataSource, ...]:
    return tuple(one for one in (data.train, data.validation, data.test) if one is not None)


def _is_here(source: DataSource, location: str) -> bool:
    return source.format not in ("hf", "sql") and not is_remote(location) and "${" not in location


def _files_below(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    else:
        yield from (one for one in sorted(path.rglob("*")) if one.is_file())
