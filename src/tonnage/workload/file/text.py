"""The text of a file that a user wrote: read whole, in UTF-8, up to a size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tonnage.errors import WorkloadError, did_you_mean, nearest
from tonnage.units import MIB


def looked_for(path: Path) -> str:
    """Where a file that is not there was looked for, with names there that are like its own."""
    folder = path.absolute().parent
    if not folder.is_dir():
        return f"there is no folder {folder}"
    try:
        names = [one.name for one in folder.iterdir()]
    except OSError as error:
        return f"looked for in {folder}, whose files cannot be listed: {error.strerror or error}"
    return did_you_mean(nearest(path.name, names, count=1), f"looked for in {folder}")


def load_text(
    path: Path,
    *,
    largest_mb: int = 1,
    missing: Callable[[Path], str] = looked_for,
    too_large: str = "such a file is a few pages of text",
) -> str:
    """The text, without a byte order mark. WorkloadError where it is not there or too large, or is no UTF-8.

    `missing` gives the hint where there is no such file.
    """
    file = str(path)
    try:
        with path.open("rb") as stream:
            raw = stream.read(largest_mb * MIB + 1)
    except FileNotFoundError:
        raise WorkloadError("no such file", hint=missing(path), file=file) from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise WorkloadError(f"cannot be read: {reason}", hint="check the path", file=file) from error
    if len(raw) > largest_mb * MIB:
        raise WorkloadError(f"is over {largest_mb} MB", hint=too_large, file=file)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message, line = f"is not UTF-8 text (byte {error.start})", raw[: error.start].count(b"\n") + 1
        raise WorkloadError(message, hint="save it as UTF-8", file=file, line=line) from error
