"""The files that a deployed command reads: found here, carried beside the other files, named where they will be there.

What an argument names is carried, and what a YAML file of it names in turn (plans, traces, other files); a secret's
file (`file:PATH`, a TLS key) is not: it is put there by hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

import yaml

from tonnage.errors import InputError
from tonnage.values import dataclass

FOLDER: Final = "files"  # beside the unit, Compose file or manifests
NEEDED: Final = ("gateway", "watch")  # verbs whose first argument is a file
SECRET_FLAGS: Final = ("--tls-key", "--tls-cert")
LARGEST_BYTES: Final = 1_000_000  # a ConfigMap takes 1 MiB in all


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """`args`: the command's, with places of the other machine. `texts`: files to be carried, by their path below
    `FOLDER`. `by_hand`: what the command names and is not brought along: folders, keys."""

    args: tuple[str, ...]
    texts: Mapping[str, str]
    by_hand: tuple[str, ...]


def bring(args: Sequence[str], here: Path, *, place: str) -> Brought:
    """The files of `args` (relative ones from `here`) for a machine that will have them below `place`.

    InputError for a file that the command cannot do without and that is not here, that is no text, or too large.
    """
    texts: dict[str, str] = {}
    by_hand: list[str] = []
    moved = list(args)
    for at, word in enumerate(args):
        flag, joined, value = word.partition("=") if word.startswith("--") else ("", "", word)
        if at == 0 or (word.startswith("--") and not joined):
            continue
        before = args[at - 1] if not joined else flag
        path = here / value
        if before in SECRET_FLAGS or (args[0] != "backup" and _is_folder(path, value, first=at == 1)):
            by_hand.append(value)
        elif path.is_file():
            name = _carry(path, texts, by_hand)
            moved[at] = f"{flag}{joined}{PurePosixPath(place) / name}"
        elif at == 1 and args[0] in NEEDED and not value.startswith(("/", "-")):
            raise InputError(f"the file {value} of `tonnage {args[0]}` is not here",
                             hint="name one that is, or the whole path that it will have there")  # fmt: skip
        elif value.startswith("/") and at == 1 and args[0] in NEEDED:
            by_hand.append(value)
    return Brought(args=tuple(moved), texts=texts, by_hand=tuple(dict.fromkeys(by_hand)))


def _is_folder(path: Path, value: str, *, first: bool) -> bool:
    """A folder that the command reads. A bare word after the verb could be a run of the home as well."""
    return path.is_dir() and (not first or "/" in value or value.startswith("."))


def _carry(path: Path, texts: dict[str, str], by_hand: list[str]) -> str:
    """Take the file, and those that it names in its own folder and below. Its name below `FOLDER`."""
    if path.name in texts and texts[path.name] != _text(path):
        raise InputError(f"two files of the command are named {path.name}", hint="rename one of them")
    texts[path.name] = _text(path)
    if path.suffix in (".yaml", ".yml"):
        for named in _names(_document(path)):
            if named.startswith("file:"):
                by_hand.append(named.removeprefix("file:"))
                continue
            inside = PurePosixPath(named)
            if named and not inside.is_absolute() and ".." not in inside.parts and (path.parent / named).is_file():
                texts.setdefault(str(inside), _text(path.parent / named))
    if sum(len(text.encode()) for text in texts.values()) > LARGEST_BYTES:
        raise InputError(f"the files of the command are over {LARGEST_BYTES / 1e6:g} MB together",
                         hint="put the large ones there by hand, and name their whole path")  # fmt: skip
    return path.name


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be brought: {error}", hint="put it there by hand, and name its whole path")\
            from error  # fmt: skip


def _document(path: Path) -> Any:
    try:
        return yaml.safe_load(_text(path))
    except yaml.YAMLError as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, str) and len(value) < 1000 and "\n" not in value and "\0" not in value:
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _names(one)
    elif isinstance(value, list):
        for one in value:
            yield from _names(one)
