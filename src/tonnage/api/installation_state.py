"""What is true of an installation, read from its files: nothing is taken from prose, and what is not known is None."""

from __future__ import annotations

import json
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage import __version__
from tonnage.api.audits import verify_audit
from tonnage.api.backups import read_backup_note
from tonnage.api.committing import FILE, open_book
from tonnage.api.gateway_keys import read_encryption_notes
from tonnage.api.watch import audit_file
from tonnage.errors import TonnageError
from tonnage.http.urls import without_secrets
from tonnage.monitoring.alerts.engine import AlertEngine
from tonnage.secret_references import is_reference
from tonnage.settings import Settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.api.audits import AuditVerdict
    from tonnage.api.backups import BackupNote
    from tonnage.api.gateway_keys import EncryptionNote
    from tonnage.web.keys import ApiKey

_SETTINGS_ENDINGS: Final = (".toml", ".yaml", ".yml", ".ini", ".env")
_IN_THE_CLEAR: Final = re.compile(  # shapes of keys that issuers publish, and passwords inside URLs
    r"AKIA[0-9A-Z]{16}|hf_[A-Za-z0-9]{30,}|gh[pousr]_[A-Za-z0-9]{30,}|sk-[A-Za-z0-9_-]{24,}|xox[abpr]-[A-Za-z0-9-]{20,}"
    r"|tnk-[A-Za-z0-9_-]{24,}|AIza[A-Za-z0-9_-]{35}|-----BEGIN [A-Z ]*PRIVATE KEY-----|://[^/\s:@'\"]+:[^@\s'\"$]{3,}@"
)
LARGEST_SETTINGS: Final = 1 << 20
MOST_FILES: Final = 200_000  # looked at for their rights


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationState:
    """One home at one instant. None: not known."""

    at: datetime
    version: str
    home: Path
    database: str  # without a password
    database_is_own: bool  # a file of the home
    database_encrypted_way: bool | None  # whether a server's connection insists on TLS; None for a file
    keys: tuple[ApiKey, ...]
    keys_fault: str | None
    audit: AuditVerdict | None
    audit_fault: str | None
    page_started: dict[str, Any] | None  # the newest line of the audit that says how the page was started
    backup: BackupNote
    encryption: tuple[EncryptionNote, ...]  # of gateways that were started from this home
    encryption_fault: str | None
    open_files: tuple[str, ...]  # of the home, that others on this machine may read
    clear_secrets: tuple[str, ...]  # file:line of settings at home that look like secrets
    secret_stores: tuple[tuple[str, int], ...]  # scheme of references in settings at home, and how many there are
    watch_at: datetime | None  # when the watch last wrote its state
    watch_fault: str | None  # why its state cannot be read
    rules_firing: tuple[str, ...]
    history_since: datetime | None
    runs: int
    oldest_run_at: datetime | None
    budgets: tuple[str, ...]
    hard_budgets: tuple[str, ...]


def read_state(settings: Settings, now: datetime) -> InstallationState:
    """Look at a home. What cannot be read is not known, and its fault is kept where there is a place for it."""
    home = settings.home
    keys, keys_fault = _keys(home)
    verdict, audit_fault, started = _audit(settings)
    watch_at, firing, watch_fault = _watch(home)
    runs, oldest = _runs(home)
    budgets = _budgets(home)
    encryption, encryption_fault = read_encryption_notes(home)
    own = settings.database_url.startswith("sqlite")
    return InstallationState(
        at=now, version=__version__, home=home, database=without_secrets(settings.database_url), database_is_own=own,
        database_encrypted_way=None if own else bool(re.search(r"sslmode=(require|verify)", settings.database_url)),
        keys=keys, keys_fault=keys_fault, audit=verdict, audit_fault=audit_fault, page_started=started,
        backup=read_backup_note(home), encryption=encryption, encryption_fault=encryption_fault,
        open_files=tuple(_readable_by_others(home)),
        clear_secrets=tuple(_clear_secrets(home)), secret_stores=_secret_stores(home),
        watch_at=watch_at, watch_fault=watch_fault, rules_firing=firing, history_since=_history_since(home), runs=runs,
        oldest_run_at=oldest,
        budgets=tuple(budgets), hard_budgets=tuple(name for name, hard in budgets.items() if hard),
    )  # fmt: skip


def _keys(home: Path) -> tuple[tuple[ApiKey, ...], str | None]:
    from tonnage.web.keys import KeyFile

    try:
        return KeyFile(home / "ui" / "keys.json").every(), None
    except TonnageError as error:
        return (), str(error)


def _audit(settings: Settings) -> tuple[AuditVerdict | None, str | None, dict[str, Any] | None]:
    from tonnage.monitoring.audit import AuditFile

    if not audit_file(settings).exists():
        return None, None, None
    started = None
    try:
        for line in AuditFile(audit_file(settings)).lines():
            if line.what == "ui started":
                started = {"at": line.at, **line.fields}
    except TonnageError as error:
        return verify_audit(settings=settings).found, str(error), started
    return verify_audit(settings=settings).found, None, started


def _readable_by_others(home: Path) -> Iterator[str]:
    """Files that others of this machine may read, and whose folders let them."""
    for number, (folder, names, files) in enumerate(os.walk(home)):
        if number > MOST_FILES:
            return
        if not stat.S_IMODE(os.stat(folder).st_mode) & 0o011:  # nobody else may pass through
            names.clear()
            continue
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink() and stat.S_IMODE(path.lstat().st_mode) & 0o044:
                yield str(path.relative_to(home))


def _clear_secrets(home: Path) -> Iterator[str]:
    """Lines of settings that hold a value in a published shape of secrets."""
    for path, number, line in _settings_lines(home):
        if _IN_THE_CLEAR.search(line):
            yield f"{path.relative_to(home)}:{number}"


def _secret_stores(home: Path) -> tuple[tuple[str, int], ...]:
    """How many references to secrets the settings hold, by scheme. Comments and file URLs do not count."""
    counts: Counter[str] = Counter()
    for _, _, line in _settings_lines(home):
        for word in re.split(r"[\s'\"{}\[\],]+", re.sub(r"(^|\s)#.*", "", line)):
            if is_reference(word) and not word.startswith("file://"):
                counts[word.partition(":")[0]] += 1
    return tuple(sorted(counts.items()))


def _settings_lines(home: Path) -> Iterator[tuple[Path, int, str]]:
    for path in sorted(home.glob("*")) + sorted((home / "places").glob("*")):
        if path.suffix not in _SETTINGS_ENDINGS or not path.is_file() or path.stat().st_size > LARGEST_SETTINGS:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
            yield path, number, line


def _watch(home: Path) -> tuple[datetime | None, tuple[str, ...], str | None]:
    """When the watch last wrote its state, the rules that fire in it, and why it cannot be read."""
    file = home / "watch" / "state.json"
    try:
        state = json.loads(file.read_text(encoding="utf-8"))
        found = AlertEngine.states_of(state)
        firing = tuple(sorted({rule for (rule, _), one in found.items() if one.status == "firing"}))
        return datetime.fromtimestamp(float(state["at"]), UTC), firing, None
    except FileNotFoundError:
        return None, (), None
    except (OSError, ValueError, KeyError, TypeError) as error:
        return None, (), f"{file} cannot be read: {error}"


def _history_since(home: Path) -> datetime | None:
    """The oldest figure that the watch keeps."""
    import sqlite3

    file = home / "watch" / "history.db"
    if not file.exists():
        return None
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as base:
            found = [base.execute(f"SELECT min({column}) FROM {table}").fetchone()[0]
                     for column, table in (("first", "blocks"), ("at", "rounds"))]  # fmt: skip
    except sqlite3.Error:
        return None
    known = [one for one in found if one is not None]
    return datetime.fromtimestamp(min(known), UTC) if known else None


def _runs(home: Path) -> tuple[int, datetime | None]:
    from tonnage.runs.folder import RunFolder

    count, oldest = 0, None
    for path in sorted((home / "runs").glob("*")) if (home / "runs").is_dir() else ():
        folder = RunFolder(path)
        if not folder.journal_file.exists():
            continue
        count += 1
        first = next(iter(folder.events()), None)
        if first is not None and (oldest is None or first.at < oldest):
            oldest = first.at
    return count, oldest


def _budgets(home: Path) -> dict[str, bool]:
    """Name -> whether it is hard; empty where there is no file, or one that cannot be used."""
    if not (home / FILE).exists():
        return {}
    try:
        return {one.name: one.at_limit == "hard" for one in open_book(home)[1]}
    except TonnageError:
        return {}
