"""Whether a machine can hold a run: asked of what it tells about itself. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tonnage.places.contract import PlaceFinding
from tonnage.places.ssh.line import SSHConnection
from tonnage.reports.wording import plural
from tonnage.units import mib_to_gib

NEEDED: Final = ("pydantic", "psutil", "sqlalchemy", "alembic")  # what the supervisor itself imports
USUAL: Final = ("torch", "transformers")  # what most tasks do
OLDEST: Final = (3, 11)
MOST_SKEW_S: Final = 60.0  # beyond it certificates, signatures of object stores and deadlines begin to fail
LEAST_OF_MEMORY: Final = 0.95  # the kernel keeps some of what is written on the box
IN_USE: Final = 0.05  # of a GPU's memory: more is somebody's


def against(line: SSHConnection, seen: Mapping[str, Any], *, skew_s: float) -> Iterator[PlaceFinding]:
    """Every reason why a run would fail there, with the command that mends it."""
    place, key = line.place, f"places.{line.name}"
    yield from _python(line, seen)
    if not seen["writable"]:
        mends = line.said(f"'sudo install -d -o $USER {place.folder}'")
        yield _refused(f"{place.folder} cannot be written", f"`{mends}`, or {key}.folder")
    free_gib = seen["free_bytes"] / 2**30
    if free_gib < place.free_gib:
        said = f"{free_gib:.2f} GiB are free at {place.folder}, {place.free_gib:g} are needed"
        yield _refused(said, f"make room: `{line.said('du -xsh', place.folder)}`; or {key}.free_gib")
    if abs(skew_s) > MOST_SKEW_S:
        how = "ahead of" if skew_s > 0 else "behind"
        yield _refused(
            f"its clock is {abs(skew_s):.0f} s {how} ours", f"`{line.said('sudo timedatectl set-ntp true')}`"
        )
    if place.cores > seen["cores"]:
        yield _refused(f"it has {plural(seen['cores'], 'core')}, {place.cores} are written", f"{key}.cores")
    has_gib = seen["memory_bytes"] / 2**30
    if place.memory_gib * LEAST_OF_MEMORY > has_gib:
        yield _refused(f"it has {has_gib:.1f} GiB, {place.memory_gib:g} are written", f"{key}.memory_gib")
    yield from _gpus(line, seen["gpus"])
    if seen["gpus"] is not None:
        yield from _software(line, seen)
    if not place.share:
        yield from _busy(line, seen)


def _python(line: SSHConnection, seen: Mapping[str, Any]) -> Iterator[PlaceFinding]:
    version = tuple(int(part) for part in seen["python"].split(".")[:2])
    if version < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        yield _refused(f"its Python is {seen['python']}, {wanted} is needed", f"places.{line.name}.python: a newer one")
    missing = [name for name in seen["missing"] if name in NEEDED]
    install = line.said(line.place.python, "-m pip install 'tonnage[train]'")
    if missing:
        yield _refused(f"its Python lacks {', '.join(missing)}", f"`{install}`")
    usual = [name for name in seen["missing"] if name in USUAL]
    if usual:
        said = f"its Python lacks {', '.join(usual)}: most tasks need them"
        yield PlaceFinding(kind="doubtful", message=said, hint=f"`{install}`")


def _gpus(line: SSHConnection, gpus: list[list[Any]] | None) -> Iterator[PlaceFinding]:
    place, key = line.place, f"places.{line.name}"
    if not place.gpus:
        return
    if gpus is None:
        yield _refused(
            "no nvidia-smi answers there", f"install the driver: `{line.said('nvidia-smi')}`; or {key}.gpus = 0"
        )
        return
    if len(gpus) < place.gpus:
        yield _refused(
            f"it has {plural(len(gpus), 'GPU')}, {place.gpus} are written", f"`{line.said('nvidia-smi -L')}`"
        )
    small = [name for name, total, _ in gpus if place.gpu_memory_gib and mib_to_gib(total) < 0.9 * place.gpu_memory_gib]
    if small:
        yield _refused(f"its {small[0]} has less memory than is written", f"{key}.gpu_memory_gib")


def _software(line: SSHConnection, seen: Mapping[str, Any]) -> Iterator[PlaceFinding]:
    """What nvidia-smi and the packages of its Python tell there."""
    from tonnage.places.gpu_software import oldest_driver, software_at

    driver = oldest_driver([seen["driver"]], source="nvidia-smi there")
    yield from software_at(line.place, line.name, driver=driver, packages=seen["packages"])


def _busy(line: SSHConnection, seen: Mapping[str, Any]) -> Iterator[PlaceFinding]:
    share = f"or places.{line.name}.share = true"
    if seen["runs"]:
        names = ", ".join(tag.split(":")[-1] for tag in seen["runs"])
        said = f"it carries {plural(len(seen['runs']), 'run')} already: {names}"
        yield _refused(said, f"wait for its end, `tonnage stop`, {share}")
        return
    used = [name for name, total, used in seen["gpus"] or () if total and used / total > IN_USE]
    if used and len(seen["gpus"]) - len(used) < line.place.gpus:
        yield _refused(f"{plural(len(used), 'GPU')} are in use", f"`{line.said('nvidia-smi')}` shows by whom, {share}")
    elif seen["load"] > seen["cores"]:
        said = f"it is busy: a load of {seen['load']:.1f} on {plural(seen['cores'], 'core')}"
        yield _refused(said, f"`{line.said('uptime')}`; wait, {share}")


def _refused(message: str, hint: str) -> PlaceFinding:
    return PlaceFinding(kind="refused", message=message, hint=hint)
