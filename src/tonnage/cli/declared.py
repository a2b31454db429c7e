"""The options class of a verb as options of its command: flags, defaults, ranges and help come from the class."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING
from functools import wraps
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import typer

from tonnage.api.declaring import Declared, Options, declared_options

Completion = Callable[[str], list[str]]
Command = Callable[..., None]
_NO_COMPLETIONS: Final[Mapping[str, Completion]] = {}


def with_options(
    options: type[Options], completions: Mapping[str, Completion] = _NO_COMPLETIONS
) -> Callable[[Command], Command]:
    """A decorator: the function's parameter of the type `options` becomes one option of the command for each field.

    `completions` gives what the shell completes, by field.
    """

    def declare(function: Command) -> Command:
        parameters = inspect.signature(function, eval_str=True).parameters.values()
        taken = next(one.name for one in parameters if one.annotation is options)
        declared = declared_options(options)

        @wraps(function)
        def command(**given: Any) -> None:
            asked = {name: _value(said, default, given.pop(name)) for name, (said, default) in declared.items()}
            function(**given, **{taken: options(**asked)})

        made = list(_parameters(list(parameters), options, completions))
        command.__signature__ = inspect.Signature(made)  # type: ignore[attr-defined]  # what typer reads
        command.__annotations__ = {one.name: one.annotation for one in made}
        return command

    return declare


def given_flags(asked: Options) -> dict[str, object]:
    """What differs from its default, by flag."""
    declared = declared_options(type(asked)).items()
    found = {said.flag: (getattr(asked, name), default) for name, (said, default) in declared}
    return {flag: value for flag, (value, default) in found.items() if value != default}


def _parameters(
    parameters: list[inspect.Parameter], options: type[Options], completions: Mapping[str, Completion]
) -> Iterator[inspect.Parameter]:
    for parameter in parameters:
        if parameter.annotation is not options:
            yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            continue
        hints = get_type_hints(options)
        for name, (said, default) in declared_options(options).items():
            yield _parameter(name, said, default, hints[name], completions.get(name))


def _parameter(name: str, said: Declared, default: Any, hint: Any, complete: Completion | None) -> inspect.Parameter:
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


def _value(said: Declared, default: Any, given: Any) -> Any:
    """The value of a field from what the command line gave."""
    if given is None:
        return default
    if said.read is not None:
        return said.read(said.flag, given)
    return tuple(given) if isinstance(given, list) else given
