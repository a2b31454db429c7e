"""`tonnage.compliance`: the questions of SOC 2, ISO 27001 and GDPR that software can answer, from the installation's
state.

Each answer is yes, no, partly or unknown, with what it was read from. The controls that are named are those that ask
such a question: `compliance_controls` says what each asks and where that was read. They are answers, and no opinion of
an auditor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tonnage.api.answers import Answer
from tonnage.api.compliance_controls import CONTROLS, each_control
from tonnage.api.installation_state import InstallationState, read_state
from tonnage.reports.blocks import Block, Column, Heading, Page, Paragraph, Table
from tonnage.reports.rendering import Report
from tonnage.secret_references import SCHEMES
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.api.gateway_keys import EncryptionNote

Outcome = Literal["yes", "no", "partly", "unknown"]
SCHEMA: Final = "tonnage/compliance@1"
UNUSED_DAYS: Final = 90  # a key that was not used for so long is named
BACKUP_DAYS: Final = 2  # as the watch's default rule has it
LOOKING_S: Final = 120.0  # a watch that wrote its state within so long looks after this home


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlAnswer:
    """One question, its answer, what it was read from, and the controls that ask it."""

    key: str
    question: str
    outcome: Outcome
    found: str
    controls: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComplianceReport:
    """Every answer, and the keys for a review of access."""

    state: InstallationState
    answers: tuple[ControlAnswer, ...]


def compliance(*, settings: Settings | None = None, now: datetime | None = None) -> Answer[ComplianceReport]:
    """What is true of this installation: access, audit, backups, encryption, secrets, retention, monitoring."""
    state = read_state(settings or current_settings(), now or datetime.now(UTC))
    return Answer(ComplianceReport(state=state, answers=tuple(answers_of(state))), _report)


def answers_of(state: InstallationState) -> Iterator[ControlAnswer]:
    """The answers, in the order of the report."""
    for key, question, controls, read in _QUESTIONS:
        outcome, found = read(state)
        yield ControlAnswer(key=key, question=question, outcome=outcome, found=found, controls=controls)


def _sign_in(state: InstallationState) -> tuple[Outcome, str]:
    if state.keys_fault is not None:
        return "unknown", state.keys_fault
    if state.page_started is None:
        return "unknown", f"{len(state.keys)} keys are kept; the audit does not say that the page was ever started"
    words = f"the page was last started on {state.page_started['at'][:10]} at {state.page_started['host']}"
    if state.page_started["sign_in"] == "none: loopback":
        return "partly", f"{words}: whoever sits at that machine is let in without a key"
    return "yes", f"{words}, with sign-in by {state.page_started['sign_in']}"


def _least_rights(state: InstallationState) -> tuple[Outcome, str]:
    if not state.keys:
        return "unknown", state.keys_fault or "no key is kept"
    roles = {role: sum(one.role == role for one in state.keys) for role in ("viewer", "operator", "admin")}
    counted = ", ".join(f"{count} {role}" for role, count in roles.items())
    everywhere = sum(one.projects is None for one in state.keys)
    outcome: Outcome = "yes" if roles["admin"] < len(state.keys) or len(state.keys) == 1 else "no"
    return outcome, f"{counted}; {everywhere} of {len(state.keys)} hold for all projects"


def _ends(state: InstallationState) -> tuple[Outcome, str]:
    if not state.keys:
        return "unknown", state.keys_fault or "no key is kept"
    endless = [one.name for one in state.keys if one.expires_at is None]
    if not endless:
        return "yes", f"each of {len(state.keys)} keys has an end"
    return "no" if len(endless) == len(state.keys) else "partly", f"without an end: {', '.join(endless)}"


def _used(state: InstallationState) -> tuple[Outcome, str]:
    if not state.keys:
        return "unknown", state.keys_fault or "no key is kept"
    stale = [
        one.name
        for one in state.keys
        if one.holds(state.at) and (state.at - (one.used_at or one.made_at)).days > UNUSED_DAYS
    ]
    ended = [one.name for one in state.keys if not one.holds(state.at)]
    rest = f"; past their end, and refused: {', '.join(ended)}" if ended else ""
    if stale:
        return "no", f"not used for over {UNUSED_DAYS} days: {', '.join(stale)}{rest}"
    return "yes", f"each key that holds was made or used within {UNUSED_DAYS} days{rest}"


def _audit(state: InstallationState) -> tuple[Outcome, str]:
    if state.audit is None:
        return "no", "there is no audit: nothing that is written down was done yet"
    lines = f"{state.audit.lines:,} lines"
    if state.audit.first_at is not None:
        lines += f" since {state.audit.first_at[:10]}"
    found = "; ".join(f"{one.what}: {one.found}" for one in state.audit.checks)
    if not state.audit.holds:
        return "no", f"{lines}; {found}"
    known = all(one.outcome == "holds" for one in state.audit.checks)
    return "yes" if known else "partly", f"{lines}; {found}"


def _transport(state: InstallationState) -> tuple[Outcome, str]:
    if state.page_started is None:
        return "unknown", "the audit does not say that the page was ever started"
    how, host = state.page_started["encrypted"], state.page_started["host"]
    if how == "no":
        return "partly", f"the page was last started at {host} without TLS: what it says does not leave that machine"
    return "yes", f"TLS of the page is ended {how}"


def _store(state: InstallationState) -> tuple[Outcome, str]:
    if state.database_is_own:
        return (
            "unknown",
            f"the store is a file ({state.database}); whether its disk is encrypted cannot be seen from here",
        )
    if state.database_encrypted_way:
        return "partly", f"the connection to {state.database} insists on TLS; of the server's disks nothing is known"
    return "no", f"the connection to {state.database} does not insist on TLS (sslmode=require)"


def _backups(state: InstallationState) -> tuple[Outcome, str]:
    note = state.backup
    if note.succeeded_at is None:
        why = f"; the last try failed: {note.why}" if note.failed_at is not None else ""
        return "no", f"no backup of this home was made{why}"
    age = (state.at - note.succeeded_at).total_seconds() / 86_400
    words = f"the newest is of {note.succeeded_at:%Y-%m-%d %H:%M} UTC, {age:.1f} days old"
    if note.fails:
        outcome: Outcome = "partly" if age <= BACKUP_DAYS else "no"
        return outcome, f"{words}; the try of {note.failed_at:%Y-%m-%d} failed: {note.why}"
    return "yes" if age <= BACKUP_DAYS else "no", words


def _restorable(state: InstallationState) -> tuple[Outcome, str]:
    if state.backup.succeeded_at is None:
        return "unknown", "no backup of this home was made"
    return "partly", ("each backup is read back whole after it was written: every hash, every database; a restore on "
                      "another machine is not written down")  # fmt: skip


def _sealed(state: InstallationState) -> tuple[Outcome, str]:
    if not state.backup.target:
        return "unknown", "no backup of this home was made"
    sealed = state.backup.target.endswith(".sealed")
    return (
        ("yes", "the newest is sealed (AES-256-GCM; its key is not in it)")
        if sealed
        else ("no", "the newest is not sealed")
    )


def _gateways(state: InstallationState) -> tuple[Outcome, str]:
    """Requests and answers that gateways keep. A gateway says how it encrypts when it starts."""
    if state.encryption_fault is not None:
        return "unknown", state.encryption_fault
    if not state.encryption:
        return "unknown", "no gateway of this home was started since gateways write down whether they encrypt"
    found = "; ".join(_gateway_words(state, one) for one in state.encryption)
    if all(one.key_from is not None and not one.plain for one in state.encryption):
        return "yes", found
    return "no" if all(one.key_from is None for one in state.encryption) else "partly", found


def _gateway_words(state: InstallationState, one: EncryptionNote) -> str:
    name = Path(one.file).name
    if one.key_from is None or one.newest_at is None:
        return f"{name}: no `encrypt:`"
    since = f"newest data key made on {one.newest_at:%Y-%m-%d}, {(state.at - one.newest_at).days} days ago"
    rotated = f"{one.keys} data keys, {since}" if one.keys > 1 else f"never rotated, {since}"
    readable = f"; in the clear: {', '.join(one.plain)}" if one.plain else ""
    return f"{name}: AES-256-GCM, key from {SCHEMES[one.key_from].store} ({one.key_from}:), {rotated}{readable}"


def _secrets(state: InstallationState) -> tuple[Outcome, str]:
    if state.clear_secrets:
        return "no", f"values that look like secrets stand in {', '.join(state.clear_secrets)}"
    kept = ", ".join(f"{count} in {SCHEMES[scheme].store} ({scheme}:)" for scheme, count in state.secret_stores)
    return "yes", ("no line of the settings at home has a known shape of secrets; keys of the page are kept as hashes; "
                   + (f"references to secrets: {kept}" if kept else "no setting refers to a secret"))  # fmt: skip


def _rights(state: InstallationState) -> tuple[Outcome, str]:
    if not state.open_files:
        return "yes", "no file of the home can be read by others of this machine"
    some = ", ".join(state.open_files[:3])
    return "no", f"{len(state.open_files)} files can be read by others of this machine: {some}"


def _retention(state: InstallationState) -> tuple[Outcome, str]:
    parts = [f"{state.runs} runs" + (f", the oldest of {state.oldest_run_at:%Y-%m-%d}" if state.oldest_run_at else "")]
    if state.history_since is not None:
        parts.append(f"figures since {state.history_since:%Y-%m-%d}")
    parts.append("answers to repeated requests are kept for seven days; runs stay until `tonnage runs rm`")
    return "partly", "; ".join(parts)


def _watched(state: InstallationState) -> tuple[Outcome, str]:
    if state.watch_fault is not None:
        return "unknown", state.watch_fault
    if state.watch_at is None:
        return "no", "no watch has looked after this home"
    age = (state.at - state.watch_at).total_seconds()
    firing = f"; alerts that stand: {', '.join(state.rules_firing)}" if state.rules_firing else ""
    when = f"the watch last wrote its state on {state.watch_at:%Y-%m-%d %H:%M:%S} UTC{firing}"
    return ("yes" if age <= LOOKING_S else "no"), when


def _spending(state: InstallationState) -> tuple[Outcome, str]:
    if not state.budgets:
        return "no", "no budget is written down"
    soft = len(state.budgets) - len(state.hard_budgets)
    return "yes" if state.hard_budgets else "partly", f"{len(state.hard_budgets)} hard and {soft} soft budgets"


def _not_seen(state: InstallationState) -> tuple[Outcome, str]:
    del state
    return "unknown", "this software does not see it"


_QUESTIONS: Final = (
    ("sign-in", "Does the page ask who you are?", ("SOC 2 CC6.1", "ISO 27001 A.8.5", "GDPR Art. 32"), _sign_in),
    ("least-rights", "Are rights smaller than all?", ("SOC 2 CC6.3", "ISO 27001 A.5.15, A.8.2"), _least_rights),
    ("keys-end", "Has each key an end?", ("SOC 2 CC6.3", "ISO 27001 A.5.17"), _ends),
    ("keys-used", "Are unused keys gone?", ("SOC 2 CC6.3", "ISO 27001 A.5.18"), _used),
    ("audit", "Is what was done on record, unchanged?", ("SOC 2 CC7.2", "ISO 27001 A.8.15", "GDPR Art. 5(2)"), _audit),
    ("transport", "Is the page encrypted on its way?", ("SOC 2 CC6.7", "ISO 27001 A.8.24", "GDPR Art. 32"), _transport),
    ("store", "Is the store encrypted?", ("SOC 2 CC6.1", "ISO 27001 A.8.24", "GDPR Art. 32"), _store),
    ("backups", "Are there backups of late?", ("SOC 2 A1.2", "ISO 27001 A.8.13", "GDPR Art. 32(1)(c)"), _backups),
    ("restore", "Were they restored as a test?", ("SOC 2 A1.3", "ISO 27001 A.8.13", "GDPR Art. 32(1)(d)"), _restorable),
    ("sealed", "Are backups encrypted?", ("SOC 2 CC6.1", "ISO 27001 A.8.24", "GDPR Art. 32(1)(a)"), _sealed),
    ("gateways", "Is what gateways keep of requests encrypted?",
     ("SOC 2 CC6.1", "ISO 27001 A.8.24", "GDPR Art. 32(1)(a)"), _gateways),
    ("secrets", "Do secrets stand nowhere in the clear?", ("SOC 2 CC6.1", "ISO 27001 A.5.17, A.8.24"), _secrets),
    ("files", "Can others of the machine read nothing?", ("SOC 2 CC6.1", "ISO 27001 A.8.3"), _rights),
    ("retention", "How long is what kept?", ("SOC 2 C1.2", "ISO 27001 A.8.10", "GDPR Art. 5(1)(e)"), _retention),
    ("watch", "Does somebody look after what runs?", ("SOC 2 CC7.2", "ISO 27001 A.8.16"), _watched),
    ("spending", "Is spending bounded?", (), _spending),
    ("vulnerabilities", "Are known holes of the packages closed?", ("SOC 2 CC7.1", "ISO 27001 A.8.8"), _not_seen),
    ("personal-data", "Is personal data in rows listed?", ("ISO 27001 A.5.34", "GDPR Art. 30"), _not_seen),
)  # fmt: skip


def _report(found: ComplianceReport) -> Report:
    return Report(
        page=lambda: Page(title="What is true of this installation", blocks=tuple(_blocks(found))),
        document=lambda: _document(found),
        columns=("key", "question", "outcome", "found", "controls"),
        rows=lambda: [
            [one.key, one.question, one.outcome, one.found, "; ".join(one.controls)] for one in found.answers
        ],
    )


def _blocks(found: ComplianceReport) -> Iterator[Block]:
    state = found.state
    yield Paragraph(text=f"{state.home}, tonnage {state.version}, {state.at:%Y-%m-%d %H:%M} UTC. Read from its state; "
                         "«unknown» is what cannot be seen from here. It is no opinion of an auditor.")  # fmt: skip
    yield Table(
        columns=(Column(title="question", wraps=True), Column(title="answer"),
                 Column(title="read from its state", wraps=True),
                 Column(title="asked by", wraps=True, folds=1, fold_text="asked by {}")),
        rows=tuple((one.question, one.outcome, one.found, "; ".join(one.controls)) for one in found.answers),
    )  # fmt: skip
    yield Heading(text="What the controls ask")
    yield Table(columns=(Column(title="control"), Column(title="asks for", wraps=True)),
                rows=tuple((one, CONTROLS[one]) for one in _named(found)))  # fmt: skip
    yield Heading(text="Review of access")
    if not state.keys:
        yield Paragraph(text=state.keys_fault or "No key is kept.", tone="faint")
        return
    yield Table(
        columns=tuple(Column(title=one) for one in ("key", "of", "role", "projects", "made", "ends", "last used")),
        rows=tuple(
            (one.name, one.holder, one.role, "all" if one.projects is None else ", ".join(one.projects),
             f"{one.made_at:%Y-%m-%d}", f"{one.expires_at:%Y-%m-%d}" if one.expires_at else "never",
             f"{one.used_at:%Y-%m-%d}" if one.used_at else "never")
            for one in state.keys
        ),
    )  # fmt: skip


def _named(found: ComplianceReport) -> list[str]:
    """The controls that the answers name, in the order of their table."""
    named = {one for answer in found.answers for control in answer.controls for one in each_control(control)}
    return [one for one in CONTROLS if one in named]


def _document(found: ComplianceReport) -> dict[str, Any]:
    state = found.state
    return {
        "schema": SCHEMA, "home": str(state.home), "version": state.version, "at": state.at.isoformat(),
        "controls": {one: CONTROLS[one] for one in _named(found)},
        "answers": [{**asdict(one), "controls": list(one.controls)} for one in found.answers],
        "keys": [
            {"name": one.name, "holder": one.holder, "role": one.role,
             "projects": None if one.projects is None else list(one.projects), "made_at": one.made_at.isoformat(),
             "expires_at": None if one.expires_at is None else one.expires_at.isoformat(),
             "used_at": None if one.used_at is None else one.used_at.isoformat()}
            for one in state.keys
        ],
    }  # fmt: skip
