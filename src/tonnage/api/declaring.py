"""How the options of a verb are declared: each once, with default, range, meaning and its flag on the command line.

An options class is a frozen dataclass with `Options` as its base, whose fields are made by `option`. The Python API
checks the ranges when a value is made; the command line reads flags, defaults and help from the same fields
(`tonnage.cli.declared`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, field, fields
from typing import Any, Final, cast

from tonnage.errors import InputError
from tonnage.values import dataclass

_KEY: Final = "option"


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The declaration of one option. `read` turns the text of a flag into the value; `text` is its default as typed."""

    flag: str
    help: str
    metavar: str | None = None
    least: float | None = None
    most: float | None = None
    read: Callable[[str, Any], Any] | None = None  # (flag, text) -> value; InputError names the flag
    text: str | None = None
    repeated: bool = False  # the flag may be given several times; `read` gets the list


def option(flag: str, help: str, *, default: Any = MISSING, **said: Any) -> Any:
    """A field of an options class; without a default it must be given. `said`: the other fields of `Declared`."""
    return field(default=default, metadata={_KEY: Declared(flag=flag, help=help, **said)})


def declared_options(options: type[Options]) -> dict[str, tuple[Declared, Any]]:
    """Each field's declaration and its default (MISSING where it must be given), by the field's name."""
    return {one.name: (cast(Declared, one.metadata[_KEY]), one.default) for one in fields(options)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The base of every options class. InputError where a number lies outside its range."""

    def __post_init__(self) -> None:
        for name, (said, _) in declared_options(type(self)).items():
            value = getattr(self, name)
            if value is not None and not _in_range(value, said):
                raise InputError(f"found {value:g} for {name}, expected {_range_words(said)}")


def _in_range(value: Any, said: Declared) -> bool:
    """NaN lies in no range."""
    if said.least is not None and not value >= said.least:
        return False
    return said.most is None or bool(value <= said.most)


def _range_words(said: Declared) -> str:
    if said.most is None:
        return f"at least {said.least:g}"
    return f"at most {said.most:g}" if said.least is None else f"{said.least:g} to {said.most:g}"
