"""Files of a git revision, read by the `git` command."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tonnage.errors import InputError


def read_at(path: Path, revision: str) -> str | None:
    """The text of a file at a revision; None where that revision has no such file.

    Raises InputError where there is no git, no repository or no such revision, or the file was not UTF-8 text.
    """
    folder = _existing(path.parent)
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    if commit is None:
        _git(folder, "rev-parse", "--git-dir", why=f"{folder} is not in a git repository")
        hint = "a branch, tag or commit that `git rev-parse` knows; in CI, check out with `fetch-depth: 0`"
        raise InputError(f"no git revision '{revision}' in {folder}", hint=hint)
    inside = path.resolve().relative_to(folder.resolve()).as_posix()
    shown = _git(folder, "show", f"{commit.decode().strip()}:./{inside}")
    if shown is None:
        return None
    try:
        return shown.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} at {revision} is not UTF-8 text", hint="save it as UTF-8") from error


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above that still exists: a deleted file may have taken its folder along."""
    return next((one for one in (folder, *folder.absolute().parents) if one.is_dir()), Path.cwd())


def _git(folder: Path, *arguments: str, why: str | None = None) -> bytes | None:
    """What git prints; None where it fails, or InputError with `why`."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=False, timeout=60)
    except FileNotFoundError as error:
        raise InputError("there is no `git` here", hint="install git, or name two files") from error
    if done.returncode == 0:
        return done.stdout
    if why is not None:
        said = done.stderr.decode(errors="replace").strip()[:200]
        raise InputError(why, hint=said or "run it inside a clone")
    return None
