"""A home in one file: `tonnage.backup`, `tonnage.verify_backup`, `tonnage.restore`; what became of the newest one."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from tonnage import __version__
from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.errors import InputError, TonnageError
from tonnage.files import move_whole, write_whole
from tonnage.secret_references import SUCH_AS, read_reference
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.backups.archive import BackupReport
    from tonnage.reports.rendering import Report
SHORTEST_KEY: Final = 20  # characters; scrypt slows guessing, it does not make up for a short key
ENDINGS: Final = {False: ".tar.gz", True: ".tar.gz.sealed"}
NAMED: Final = re.compile(r"tonnage-\d{8}T\d{6}Z\.tar\.gz(\.sealed)?")
NOTE: Final = "backup-note.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupOptions(Options):
    """How `backup` writes."""

    key: str | None = option(
        "--key",
        f"Seal it with a secret: {SUCH_AS}.",
        default=None,
        metavar="REFERENCE",
    )
    checkpoints: bool = option("--checkpoints/--no-checkpoints", "Checkpoints of runs too.", default=True)
    keep: int | None = option(
        "--keep", "Of the backups in the folder, keep the newest so many.", default=None, metavar="N", least=1
    )


def backup(
    folder: Path | str,
    options: BackupOptions | None = None,
    *,
    settings: Settings | None = None,
    on_file: Callable[[str], None] | None = None,
) -> Answer[BackupReport]:
    """Write the home to a new file in a folder, read it back whole, then remove older ones beyond `keep`.

    Runs may go on meanwhile. Raises InputError where the home is empty or the key is not there, OSError where the
    folder cannot be written: nothing is left of the new file then, and older ones stay.
    """
    asked, settings = options or BackupOptions(), settings or current_settings()
    if asked.key is not None:
        from tonnage.encryption.data_keys import refuse_beside

        refuse_beside(asked.key, "--key", [settings.home, *(() if _in_store(folder) else (Path(folder),))])
    secret = _secret(asked.key)
    if secret is not None and len(secret) < SHORTEST_KEY:
        raise InputError(
            f"{asked.key} holds {len(secret)} characters: a key of fewer than {SHORTEST_KEY} can be guessed",
            hint="openssl rand -base64 32 > backup.key; chmod 600 backup.key; --key file:backup.key, kept apart too",
        )
    if not settings.home.is_dir():
        raise InputError(f"{settings.home} is not there: nothing to back up", hint="TONNAGE_HOME names the home")
    try:
        if _in_store(folder):
            made = _to_store(str(folder), asked, settings, secret, on_file)
        else:
            made = _to_folder(Path(folder), asked, settings, secret, on_file)
    except (OSError, TonnageError) as error:
        with suppress(OSError):  # of a full disk too
            note_backup(settings.home, why=str(error))
        raise
    note_backup(settings.home, target=made.file)
    return Answer(made, _shown("Backed up"), remarks=_remarks(settings))


def _in_store(where: Path | str) -> bool:
    """Whether an address is that of an object store."""
    return "://" in str(where)


def _to_folder(
    into: Path, asked: BackupOptions, settings: Settings, secret: str | None, on_file: Callable[[str], None] | None
) -> BackupReport:
    if into.resolve().is_relative_to(settings.home.resolve()):
        raise InputError(f"{into} lies in the home that is backed up", hint="name a folder on another disk")
    into.mkdir(parents=True, exist_ok=True)
    target, written = _written(into, asked, settings, secret, on_file)
    if asked.keep is not None:
        for old in sorted(one for one in into.iterdir() if NAMED.fullmatch(one.name))[: -asked.keep]:
            old.unlink()
    return _report(target, written)


def _to_store(
    url: str, asked: BackupOptions, settings: Settings, secret: str | None, on_file: Callable[[str], None] | None
) -> BackupReport:
    """Written here first, put there, and read back from there: what is verified is what the store has."""
    from tonnage.backups import archive
    from tonnage.places.bucket.objects import open_objects

    objects = open_objects(url)
    with tempfile.TemporaryDirectory(prefix="tonnage-backup-") as held:
        target, written = _written(Path(held), asked, settings, secret, on_file)
        objects.put(target.name, target)
        back = Path(held) / "read-back"
        objects.get(target.name, back)
        shown = f"{objects.url}/{target.name}"
        with back.open("rb") as source:
            archive.verify_backup(source, what=shown, secret=secret)
        made = replace(_report(target, written), file=shown)
    if asked.keep is not None:
        there = sorted(one for one in objects.sizes("tonnage-") if NAMED.fullmatch(one))
        objects.remove(there[: -asked.keep])
    return made


def _written(
    into: Path, asked: BackupOptions, settings: Settings, secret: str | None, on_file: Callable[[str], None] | None
) -> tuple[Path, dict[str, Any]]:
    """A new file in a folder, verified by reading it back."""
    from tonnage.backups import archive

    now = datetime.now(UTC)
    target = into / f"tonnage-{now:%Y%m%dT%H%M%SZ}{ENDINGS[secret is not None]}"
    beside = into / f".{target.name}.part"
    try:
        with open(os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            written = archive.write_backup(
                out, settings.home, version=__version__, secret=secret, checkpoints=asked.checkpoints, now=now,
                on_file=on_file,
            )  # fmt: skip
        with beside.open("rb") as source:
            archive.verify_backup(source, what=str(target), secret=secret)
        move_whole(beside, target)
    finally:
        beside.unlink(missing_ok=True)
    return target, written


def verify_backup(file: Path | str, *, key: str | None = None) -> Answer[BackupReport]:
    """Read a backup to its end: every hash, every database. DataError names the first thing that is wrong."""
    from tonnage.backups import archive

    with _fetched(file) as here, _opened(here) as source:
        found = archive.verify_backup(source, what=str(file), secret=_secret(key))
        return Answer(replace(_report(here, found), file=str(file)), _shown("Verified"))


def backup_manifest(file: Path | str, *, key: str | None = None) -> dict[str, Any]:
    """What a backup says of each of its files, once all of it was read and verified. DataError as `verify_backup`."""
    from tonnage.backups import archive

    with _fetched(file) as here, _opened(here) as source:
        return archive.verify_backup(source, what=str(file), secret=_secret(key))


def restore(file: Path | str, *, key: str | None = None, settings: Settings | None = None) -> Answer[BackupReport]:
    """Put a backup where the home is to be: whole, or not at all.

    InputError where the home is not empty; DataError where the backup is not whole, or the key is another.
    """
    from tonnage.backups import archive

    settings = settings or current_settings()
    with _fetched(file) as here, _opened(here) as source:
        found = archive.restore_backup(source, settings.home, what=str(file), secret=_secret(key))
        return Answer(replace(_report(here, found), file=str(file)), _shown(f"Restored to {settings.home}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupNote:
    """When a backup last succeeded, where to, and when one last failed, and why."""

    succeeded_at: datetime | None = None
    target: str = ""
    failed_at: datetime | None = None
    why: str = ""

    @property
    def fails(self) -> bool:
        """Whether the newest attempt failed."""
        return self.failed_at is not None and (self.succeeded_at is None or self.failed_at > self.succeeded_at)


def read_backup_note(home: Path) -> BackupNote:
    """The note of a home; an empty one where there is none."""
    try:
        read = json.loads((home / NOTE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return BackupNote()
    times = {name: None if read[name] is None else datetime.fromisoformat(read[name])
             for name in ("succeeded_at", "failed_at")}  # fmt: skip
    return BackupNote(target=read["target"], why=read["why"], **times)


def note_backup(home: Path, *, target: str = "", why: str = "") -> None:
    """Write down what became of it: `target` where it succeeded, `why` where it failed."""
    old, now = read_backup_note(home), datetime.now(UTC)
    values = {
        "succeeded_at": now if target else old.succeeded_at, "target": target or old.target,
        "failed_at": now if why else old.failed_at, "why": why or old.why,
    }  # fmt: skip
    text = json.dumps({name: one.isoformat() if isinstance(one, datetime) else one for name, one in values.items()})
    write_whole(home / NOTE, text + "\n")


def _secret(reference: str | None) -> str | None:
    if reference is None:
        return None
    return read_reference(reference, os.environ, "--key")


@contextmanager
def _fetched(file: Path | str) -> Iterator[Path]:
    """The file here; of an object store it is fetched, and goes with the block."""
    if not _in_store(file):
        yield Path(file)
        return
    from tonnage.places.bucket.objects import open_objects

    url, _, name = str(file).rpartition("/")
    with tempfile.TemporaryDirectory(prefix="tonnage-restore-") as held:
        here = Path(held) / name
        try:
            open_objects(url).get(name, here)
        except FileNotFoundError as error:
            raise InputError(f"{file} is not there", hint="check the address") from error
        yield here


@contextmanager
def _opened(file: Path) -> Iterator[IO[bytes]]:
    try:
        source = file.open("rb")
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}", hint="check the path") from error
    with source:
        yield source


def _remarks(settings: Settings) -> tuple[str, ...]:
    if settings.database_url.startswith("sqlite"):
        return ()
    return ("the store is another server's database, and is not in the backup: its own tools (pg_dump) save it",)


def _report(file: Path, manifest: dict[str, Any]) -> BackupReport:
    from tonnage.backups.archive import BackupReport

    return BackupReport(
        file=str(file), made_at=manifest["made_at"], version=manifest["version"], files=len(manifest["files"]),
        bytes=sum(one["bytes"] for one in manifest["files"].values()), size_bytes=file.stat().st_size,
        sealed=file.name.endswith(ENDINGS[True]), left_out=tuple(manifest["left_out"]),
    )  # fmt: skip


def _shown(title: str) -> Callable[[BackupReport], Report]:
    from tonnage.reports.listing import Field, Listing, listing_report

    fields: list[Field[BackupReport]] = [
        Field("file", lambda one: one.file, title="file", wraps=True),
        Field("made_at", lambda one: one.made_at, title="made", show=lambda one: one[:19].replace("T", " ")),
        Field("version", lambda one: one.version, title="tonnage"),
        Field("files", lambda one: one.files, title="files", right=True, show=lambda one: f"{one:,}"),
        Field("bytes", lambda one: one.bytes, title="MB", right=True, show=lambda one: f"{one / 1e6:,.1f}"),
        Field("size_bytes", lambda one: one.size_bytes, title="MB packed", right=True,
              show=lambda one: f"{one / 1e6:,.1f}"),
        Field("sealed", lambda one: one.sealed, title="sealed", show=lambda one: "yes" if one else "no"),
        Field("left_out", lambda one: one.left_out),
    ]  # fmt: skip
    return lambda one: listing_report(
        Listing(schema="tonnage/backup@1", title=title, name="backups", head={}, fields=fields, items=(one,),
                remarks=[f"left out: {words}" for words in one.left_out])
    )  # fmt: skip
