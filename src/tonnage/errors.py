"""The exception tree. The command line alone prints `error:` and `hint:` and picks the exit code from here."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar


class TonnageError(Exception):
    """Head of the tree: what is wrong, and in `hint` what to do next."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(TonnageError):
    """The user's input or usage is wrong: exit 2."""

    exit_code: ClassVar[int] = 2


class WorkloadError(InputError):
    """A workload file (or a `config.json`) cannot be used; says where, what was found and what was expected."""

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        file: str | None = None,
        line: int | None = None,
        key: str | None = None,
    ) -> None:
        where = ":".join(str(part) for part in (file, line) if part is not None)
        what = f"`{key}`: {message}" if key else message
        super().__init__(f"{where}: {what}" if where else what, hint=hint)
        self.file, self.line, self.key = file, line, key


class UnknownName(InputError):
    """A name is in no table of ours. `suggestions` are the nearest names that are."""

    def __init__(self, message: str, *, suggestions: tuple[str, ...] = (), hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.suggestions = suggestions


class UnknownAccelerator(UnknownName):
    """No accelerator of that name in the catalog."""


class UnknownInstanceType(UnknownName):
    """No instance type of that name in the catalog."""


class UnknownModel(UnknownName):
    """No model of that name among the known shapes."""


class DataError(InputError):
    """The rows of a run cannot be used; says which column, and in which file and line where one row is at fault."""


class MissingExtra(InputError):
    """The command needs an optional dependency that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs the extra '{extra}'", hint=f"pip install 'tonnage[{extra}]'")


class CatalogError(TonnageError):
    """A catalog row or snapshot is not valid. `fault` says what is wrong without `where`, the file and the line."""

    def __init__(self, fault: str, *, hint: str | None = None, where: str = "") -> None:
        super().__init__(f"{where}, {fault}" if where else fault, hint=hint)
        self.fault = fault


class SourceError(TonnageError):
    """A price source could not be read or answered something else than documented."""


class FetchError(TonnageError):
    """A file cannot be fetched: not there, refused, out of patience, or not the bytes that were stated."""


class UnsizedHardware(TonnageError):
    """A figure that the prediction needs is not published for this hardware; never another device's figure."""


class ClaimsFound(TonnageError):
    """A checked document has wrong or stale claims, and `--strict` asked for none: exit 1."""


class NothingFits(TonnageError):
    """No candidate meets the workload and its constraints: exit 3. The plan with the nearest misses rides along."""

    exit_code: ClassVar[int] = 3


class MeasuringStopped(TonnageError):
    """Someone ended work that reports what it had come to: exit 130, as after Ctrl-C."""

    exit_code: ClassVar[int] = 130


class PlanRefused(TonnageError):
    """A plan exists but is over budget or unsafe: exit 4."""

    exit_code: ClassVar[int] = 4


def nearest(name: str, known: Iterable[str], *, count: int = 3) -> tuple[str, ...]:
    """The names in `known` most like `name`, best first; case does not count. Those that it begins go first.

    >>> nearest("bert-bas", ["bert-base-uncased", "bart-base", "gpt2"], count=2)
    ('bert-base-uncased', 'bart-base')
    """
    by_folded = {candidate.casefold(): candidate for candidate in known}
    folded = name.casefold()
    begun = sorted((other for other in by_folded if folded and other.startswith(folded)), key=lambda o: (len(o), o))
    close = get_close_matches(folded, by_folded, n=count, cutoff=0.5)
    holding = sorted(other for other in by_folded if folded and folded in other)
    ordered = dict.fromkeys([*begun, *close, *holding])
    return tuple(by_folded[match] for match in ordered)[:count]


def did_you_mean(suggestions: tuple[str, ...], otherwise: str) -> str:
    """A hint naming the suggestions, or `otherwise` when there are none."""
    if not suggestions:
        return otherwise
    return "did you mean " + " or ".join(f"'{name}'" for name in suggestions) + f"? {otherwise}"
