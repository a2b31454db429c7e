"""The audit of a home: opened so that its newest line is kept in the store too, and verified against it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tonnage.api.answers import Answer
from tonnage.api.backups import backup_manifest
from tonnage.api.watch import audit_file
from tonnage.errors import PlanRefused, TonnageError
from tonnage.reports.listing import Field, Listing, listing_report
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.monitoring.audit import AuditFile, AuditLine
    from tonnage.reports.rendering import Report
    from tonnage.store.audit_heads import AuditHead

Outcome = Literal["holds", "broken", "unknown"]
IN_BACKUPS: Final = "audit/audit.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCheck:
    """One thing that was looked at: `outcome` unknown where there was nothing to compare with."""

    what: str
    outcome: Outcome
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerdict:
    """How many lines there are, the first and the newest instant, and what each check found."""

    lines: int
    first_at: str | None
    last_at: str | None
    checks: tuple[AuditCheck, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against it."""
        return all(one.outcome != "broken" for one in self.checks)


def open_audit(settings: Settings) -> AuditFile:
    """The audit of a home. Each line that is written is noted in the store; a store that is gone for a while is caught
    up with by the next line."""
    from tonnage.monitoring.audit import AuditFile

    return AuditFile(audit_file(settings), anchor=_Anchor(settings.database_url))


class _Anchor:
    def __init__(self, url: str) -> None:
        from tonnage.store.audit_heads import AuditHeads

        self._heads = AuditHeads(url)

    def __call__(self, first_hash: str, line: AuditLine) -> None:
        from tonnage.store.audit_heads import AuditHead

        self._heads.put(AuditHead(first_hash=first_hash, number=line.number, hash=line.hash, at=line.at))


def verify_audit(
    *, backup: Path | str | None = None, key: str | None = None, settings: Settings | None = None
) -> Answer[AuditVerdict]:
    """Look whether a line of the audit was changed, taken out or cut off at the end.

    `backup`: a backup whose audit must be the beginning of this one, `key` what it is sealed with. The fault names the
    first thing that is broken.
    """
    from tonnage.monitoring.audit import AuditFile

    chosen = settings or current_settings()
    path = audit_file(chosen)
    lines: list[AuditLine] = []
    try:
        lines.extend(AuditFile(path).lines())
        chain = AuditCheck(what="chain", outcome="holds", found=f"{len(lines):,} lines, each follows from those before")
    except TonnageError as error:
        chain = AuditCheck(what="chain", outcome="broken", found=str(error))
    checks = [chain, _against_store(chosen, lines)]
    if backup is not None:
        checks.append(_against_backup(path, backup, key))
    made = AuditVerdict(
        lines=len(lines), first_at=lines[0].at if lines else None, last_at=lines[-1].at if lines else None,
        checks=tuple(checks),
    )  # fmt: skip
    broken = next((one for one in checks if one.outcome == "broken"), None)
    fault = None
    if broken is not None:
        fault = PlanRefused(f"{broken.what}: {broken.found}",
                            hint="compare it with a backup: tonnage audit verify --backup FILE")  # fmt: skip
    return Answer(made, _report, fault=fault)


def _against_store(settings: Settings, lines: list[AuditLine]) -> AuditCheck:
    from tonnage.store.audit_heads import AuditHeads

    say = partial(AuditCheck, what="head in the store")
    heads = AuditHeads(settings.database_url)
    try:
        known = heads.every()
    except TonnageError as error:
        return say(outcome="unknown", found=f"the store could not be asked: {error}")
    finally:
        heads.close()
    mine = next((one for one in known if lines and one.first_hash == lines[0].hash), None)
    if mine is not None:
        return say(**_compared(mine, lines))
    if known and settings.database_url.startswith("sqlite"):  # the store is this home's own
        newest = known[0]
        return say(outcome="broken", found=f"the store knows another audit of this home, up to line {newest.number} of "
                                           f"{newest.at[:19]}: its file was replaced or removed")  # fmt: skip
    return say(outcome="unknown", found="the store knows no line of this audit: nothing says where it ended")


def _compared(head: AuditHead, lines: list[AuditLine]) -> dict[str, Any]:
    if head.number > len(lines):
        lost = head.number - len(lines)
        words = f"the store knows line {head.number} of {head.at[:19]}, the file ends with line {len(lines)}"
        return {"outcome": "broken", "found": f"{words}: the last {lost} were cut off"}
    if lines[head.number - 1].hash != head.hash:
        words = f"line {head.number} is not the one that the store knows: lines of the end were replaced"
        return {"outcome": "broken", "found": words}
    behind = len(lines) - head.number
    rest = f"; the newest {behind} were written while the store did not answer" if behind else ""
    return {"outcome": "holds", "found": f"the store knows line {head.number} of {head.at[:19]}, which is there{rest}"}


def _against_backup(path: Path, backup: Path | str, key: str | None) -> AuditCheck:
    """The audit of a backup has a length and a hash in its manifest: this file must begin with it."""
    say = partial(AuditCheck, what="audit in the backup")
    manifest = backup_manifest(backup, key=key)
    kept = manifest["files"].get(IN_BACKUPS)
    if kept is None:
        return say(outcome="unknown", found=f"the backup of {manifest['made_at'][:19]} has no audit")
    size = path.stat().st_size if path.exists() else 0
    if size < kept["bytes"]:
        words = f"the backup of {manifest['made_at'][:19]} has {kept['bytes']:,} bytes of it, the file has {size:,}"
        return say(outcome="broken", found=f"{words}: its end was cut off")
    digest = hashlib.sha256()
    for piece in _pieces(path, kept["bytes"]):
        digest.update(piece)
    if digest.hexdigest() != kept["sha256"]:
        return say(outcome="broken", found=f"it does not begin with what the backup of {manifest['made_at'][:19]} has")
    return say(outcome="holds", found=f"it begins with what the backup of {manifest['made_at'][:19]} has")


def _pieces(path: Path, size: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        while size and (piece := file.read(min(size, 1 << 20))):
            size -= len(piece)
            yield piece


def _report(found: AuditVerdict) -> Report:
    fields: list[Field[AuditCheck]] = [
        Field("what", lambda one: one.what, title="check"),
        Field("outcome", lambda one: one.outcome, title="outcome"),
        Field("found", lambda one: one.found, title="found", wraps=True),
    ]
    head = {"lines": found.lines, "first_at": found.first_at, "last_at": found.last_at, "holds": found.holds}
    span = f" from {found.first_at[:19]} to {(found.last_at or '')[:19]}" if found.first_at else ""
    return listing_report(
        Listing(schema="tonnage/audit-verdict@1", title="Audit", name="checks", head=head, fields=fields,
                items=found.checks, remarks=[f"{found.lines:,} lines{span}"])
    )  # fmt: skip
