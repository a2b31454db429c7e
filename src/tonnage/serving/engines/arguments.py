"""What each engine's own command line takes: an argument that its version does not know is refused before it starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final, Literal, cast

from tonnage.catalog.hardware import Source
from tonnage.catalog.rows import read_rows
from tonnage.errors import InputError, UnknownName, did_you_mean, nearest
from tonnage.values import dataclass

Takes = Literal["value", "switch", "any"]
_DATA: Final = files("tonnage.serving.engines") / "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRelease:
    """The release of an engine whose arguments, addresses and metrics are known here, and where they were read.

    `running`, `waiting`: names of the gauges of requests that are worked on and that wait; `requests`, `input_tokens`,
    `output_tokens`: of its counters of what was answered. None: it has none.
    """

    name: str
    version: str | None
    image: str
    health: str
    metrics: str | None
    running: str | None
    waiting: str | None
    requests: str | None
    input_tokens: str | None
    output_tokens: str | None
    source: Source


@cache
def engine_release(name: str) -> EngineRelease:
    """The release by the engine's name; UnknownName where there is none."""
    known = {row.text("engine"): row for row in read_rows(_DATA / "engines.csv", _COLUMNS)}
    if name not in known:
        raise UnknownName(f"no engine named '{name}'", suggestions=nearest(name, known), hint=", ".join(known))
    row = known[name]
    return EngineRelease(
        name=name, version=row.cells["version"] or None, image=row.text("image"), health=row.text("health"),
        metrics=row.cells["metrics"] or None, running=row.cells["running"] or None,
        waiting=row.cells["waiting"] or None, requests=row.cells["requests"] or None,
        input_tokens=row.cells["input_tokens"] or None, output_tokens=row.cells["output_tokens"] or None,
        source=row.source(),
    )  # fmt: skip


_COLUMNS: Final = (
    "engine", "version", "image", "health", "metrics", "running", "waiting", "requests", "input_tokens",
    "output_tokens", "source", "read_on",
)  # fmt: skip


@cache
def known_arguments(engine: str) -> Mapping[str, Takes]:
    """Argument -> what it takes, for the release of `engine_release`."""
    rows = read_rows(_DATA / "arguments.csv", ("engine", "argument", "takes"))
    taken: dict[str, Takes] = {
        row.text("argument"): cast(Takes, row.one_of("takes", ("value", "switch", "any")))
        for row in rows
        if row.text("engine") == engine
    }
    return MappingProxyType(taken)


def check_arguments(engine: str, arguments: Sequence[str]) -> None:
    """Refuse what the engine's command line would refuse: a name it does not know, a value that is missing.

    Raises UnknownName (with the nearest names) or InputError.
    """
    release, known = engine_release(engine), known_arguments(engine)
    for argument, has_value in _pairs(arguments):
        takes = known.get(argument) or known.get("--" + argument.removeprefix("--no-"))
        if takes is None:
            said = f"{engine} {release.version or ''}".strip()
            near = nearest(argument, known)
            raise UnknownName(f"{said} has no argument {argument}", suggestions=near,
                              hint=did_you_mean(near, f"see {release.source.text}"))  # fmt: skip
        if takes == "value" and not has_value:
            raise InputError(f"{engine}: {argument} takes a value", hint=f"{argument} VALUE")


def _pairs(arguments: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """(argument, whether a value comes with it); values themselves, and `-x` alone, are not looked at."""
    for at, argument in enumerate(arguments):
        if not argument.startswith("--"):
            continue
        name, equals, _ = argument.partition("=")
        follows = at + 1 < len(arguments) and not arguments[at + 1].startswith("--")
        yield name, bool(equals) or follows
