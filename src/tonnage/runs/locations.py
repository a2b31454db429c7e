"""Places in a file of runs made absolute: paths, patterns, `pkg://` folders, SQLite URLs; files behind a pattern."""

from __future__ import annotations

import re
from glob import glob, has_magic
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tonnage.errors import InputError, did_you_mean, nearest

PACKAGE: Final = "pkg://"
_REMOTE: Final = re.compile(r"^[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_SQLITE: Final = re.compile(r"^(sqlite(?:\+\w+)?:///)(?!/)(?!:memory:)(.+)$")
_SHARD: Final = re.compile(r"-(\d+)-of-(\d+)(?=\D|$)")


def is_remote(location: str) -> bool:
    """Whether a location is a URL rather than a path.

    >>> is_remote("s3://bucket/rows.csv"), is_remote("rows.csv")
    (True, False)
    """
    return _REMOTE.match(location) is not None


def absolute(location: str, folder: Path) -> str:
    """A location as it reads from anywhere; `folder` is that of the file which names it.

    >>> absolute("rows/*.csv", Path("/data")), absolute("hf://org/name", Path("/data"))
    ('/data/rows/*.csv', 'hf://org/name')
    >>> absolute("sqlite:///rows.db", Path("/data"))
    'sqlite:////data/rows.db'
    """
    if match := _SQLITE.match(location):
        return match[1] + str((folder / match[2]).absolute())
    if location.startswith(PACKAGE):
        return str(package_folder(location))
    if is_remote(location):
        return location
    return str((folder / Path(location).expanduser()).absolute())


def package_folder(location: str) -> Path:
    """The folder that `pkg://package/folder` names, found without importing the package."""
    package, _, inside = location.removeprefix(PACKAGE).partition("/")
    spec = find_spec(package) if package.isidentifier() else None
    if spec is None or spec.origin is None:
        hint = f"pip install {package.replace('_', '-')}, or name a folder or hf://org/name"
        raise InputError(f"no Python package '{package}' is installed here", hint=hint)
    found = Path(spec.origin).parent / inside
    if not found.is_dir():
        raise InputError(
            f"the package '{package}' has no folder '{inside}'", hint=f"look in {Path(spec.origin).parent}"
        )
    return found


def files_at(location: str) -> tuple[Path, ...]:
    """The local files a path or pattern names, in the order of their names.

    InputError where there is none, or where shards named `-00000-of-00004` are not all there.
    """
    found = tuple(Path(name) for name in sorted(glob(location, recursive=True)))
    found = tuple(path for path in found if path.is_file())
    if not found and not has_magic(location) and Path(location).is_file():
        found = (Path(location),)
    if not found:
        what = "no file matches" if has_magic(location) else "no such file:"
        raise InputError(f"{what} {location}", hint=_near(Path(location)))
    _all_shards(found)
    return found


def _near(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"the folder {folder} is not there; paths start from the workload file"
    names = [entry.name for entry in folder.iterdir() if entry.is_file()]
    return did_you_mean(nearest(path.name, names), f"{folder} holds {len(names)} files")


def _all_shards(files: tuple[Path, ...]) -> None:
    sets: dict[tuple[str, int], set[int]] = {}
    for path in files:
        if match := _SHARD.search(path.name):
            sets.setdefault((path.name[: match.start()], int(match[2])), set()).add(int(match[1]))
    for (stem, total), numbers in sets.items():
        first = min(*numbers, 1)
        missing = sorted(set(range(first, first + total)) - numbers)
        if missing:
            some = ", ".join(str(number) for number in missing[:5])
            raise InputError(
                f"{files[0].parent / stem}: shard {some} of {total} is missing ({len(numbers)} are there)",
                hint="fetch the missing shards, or name the files one by one",
            )
