"""Flags that are declared once: a parameter of an options class is its fields, a session is the flags that open it.

A verb is a plain function. `Commands` shows typer a signature with flags in place of each such parameter, and
calls the function with the value made of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING
from functools import wraps
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperGroup

from tonnage.api.declaring import Declared, Options, declared_options
from tonnage.cli import options
from tonnage.cli.session import Session, open_session
from tonnage.values import dataclass

Completion = Callable[[str], list[str]]
Command = Callable[..., Any]
Given = dict[str, Any]  # what typer read, by parameter


@dataclass(frozen=True, slots=True)
class Completions:
    """What the shell completes, by field of an options class."""

    by_field: Mapping[str, Completion]


@dataclass(frozen=True, slots=True)
class SessionFlags:
    """The flags that a command's session is opened from, in the order of its help."""

    names: tuple[str, ...]


def completing(**by_field: Completion) -> Completions:
    """`asked: Annotated[ReplayOptions, completing(zones=complete_zones)]`."""
    return Completions(by_field)


def opened_by(*names: str) -> SessionFlags:
    """`session: Annotated[Session, opened_by("as_of", "output", "quiet")]`."""
    return SessionFlags(names)


QuietSession = Annotated[Session, opened_by("quiet")]
ReportSession = Annotated[Session, opened_by("output", "quiet")]
CatalogSession = Annotated[Session, opened_by("catalog", "output", "quiet")]
MarketSession = Annotated[Session, opened_by("catalog", "as_of", "output", "quiet")]
PlanSession = Annotated[
    Session, opened_by("calibration", "max_price_age_days", "catalog", "as_of", "output", "quiet")
]  # fmt: skip

_SESSION_FLAGS: Final[Mapping[str, tuple[Any, Any]]] = {  # type and default, by what `open_session` takes
    "calibration": (options.CalibrationFile, None),
    "max_price_age_days": (options.MaxPriceAge, None),
    "catalog": (options.CatalogFolder, None),
    "as_of": (options.AsOf, None),
    "output": (options.Output, None),
    "quiet": (options.Quiet, False),
}


class Commands(typer.Typer):
    """A group of verbs; sessions and options classes among their parameters become flags."""

    def command(  # type: ignore[override]  # by keyword alone
        self, name: str | None = None, **settings: Any
    ) -> Callable[[Command], Command]:
        return _as_it_was(super().command(name, **settings))

    def callback(self, **settings: Any) -> Callable[[Command], Command]:  # type: ignore[override]  # by keyword alone
        return _as_it_was(super().callback(**settings))


class StartGroup(TyperGroup):
    """What names no command is given to the usual one: `serve TARGET` is `serve start TARGET`."""

    usual = "start"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments, with the usual command put before what names none."""
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = [self.usual, *args]
        return super().parse_args(ctx, args)


def given_flags(asked: Options) -> dict[str, object]:
    """What differs from its default, by flag."""
    declared = declared_options(type(asked)).items()
    found = {said.flag: (getattr(asked, name), default) for name, (said, default) in declared}
    return {flag: value for flag, (value, default) in found.items() if value != default}


def as_command(function: Command) -> Command:
    """The function that typer is given."""
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    parts = [_part(one) for one in parameters]

    @wraps(function)
    def command(**given: Any) -> Any:
        return function(**{one.name: part.value(given) for one, part in zip(parameters, parts, strict=True)})

    made = [flag for part in parts for flag in part.flags()]
    command.__signature__ = inspect.Signature(made)  # type: ignore[attr-defined]  # what typer reads
    command.__annotations__ = {one.name: one.annotation for one in made}
    return command


def _as_it_was(register: Callable[[Command], Any]) -> Callable[[Command], Command]:
    """A decorator that registers the command made of a function, and leaves the function."""

    def declare(function: Command) -> Command:
        register(as_command(function))
        return function

    return declare


@dataclass(frozen=True, slots=True)
class _PlainParameter:
    """A parameter that typer reads as it is."""

    parameter: inspect.Parameter

    def flags(self) -> Iterator[inspect.Parameter]:
        yield self.parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)

    def value(self, given: Given) -> Any:
        return given[self.parameter.name]


@dataclass(frozen=True, slots=True)
class _SessionParameter:
    """A session: the flags that open it."""

    names: tuple[str, ...]

    def flags(self) -> Iterator[inspect.Parameter]:
        for name in self.names:
            annotation, default = _SESSION_FLAGS[name]
            yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)

    def value(self, given: Given) -> Session:
        return open_session(**{name: given[name] for name in self.names})


@dataclass(frozen=True, slots=True)
class _OptionsParameter:
    """An options class: one flag for each field."""

    options: type[Options]
    completions: Mapping[str, Completion]

    def flags(self) -> Iterator[inspect.Parameter]:
        hints = get_type_hints(self.options)
        for name, (said, default) in declared_options(self.options).items():
            yield _flag(name, said, default, hints[name], self.completions.get(name))

    def value(self, given: Given) -> Options:
        declared = declared_options(self.options).items()
        return self.options(**{name: _field_value(said, default, given[name]) for name, (said, default) in declared})


def _part(parameter: inspect.Parameter) -> _PlainParameter | _SessionParameter | _OptionsParameter:
    hint = parameter.annotation
    kind, *said = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    for one in said:
        if isinstance(one, SessionFlags):
            return _SessionParameter(one.names)
    if isinstance(kind, type) and issubclass(kind, Options):
        completions = [one.by_field for one in said if isinstance(one, Completions)]
        return _OptionsParameter(kind, completions[0] if completions else {})
    return _PlainParameter(parameter)


def _flag(name: str, said: Declared, default: Any, hint: Any, complete: Completion | None) -> inspect.Parameter:
    many = get_origin(hint) is tuple and said.read is None
    shown = said.text if said.read is not None else default
    kind: Any = list[get_args(hint)[0]] | None if many else hint  # type: ignore[misc]
    if said.repeated:
        kind = list[str] | None
    elif said.read is not None:
        kind = str if default is MISSING or said.text is not None else str | None
    made = typer.Option(
        said.flag, metavar=said.metavar, help=said.help, min=said.least, max=said.most, autocompletion=complete,
        show_default=default not in (MISSING, None, ""),
    )  # fmt: skip
    given: dict[str, Any] = {} if default is MISSING else {"default": None if many else shown}
    annotation = Annotated[kind, made]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, **given)


def _field_value(said: Declared, default: Any, given: Any) -> Any:
    """The value of a field from what the command line gave."""
    if given is None:
        return default
    if said.read is not None:
        return said.read(said.flag, given)
    return tuple(given) if isinstance(given, list) else given
