"""`tonnage audit verify`: lines changed, taken out, cut off; `tonnage compliance`: what is true of a home."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tonnage.api.audits import AuditVerdict, open_audit, verify_audit
from tonnage.api.backups import BackupOptions, backup
from tonnage.api.compliance_controls import CONTROLS, each_control
from tonnage.api.complying import compliance
from tonnage.api.gateway import load_gateway_file
from tonnage.api.gateway_keys import note_encryption
from tonnage.api.pages import make_ui_key
from tonnage.api.watch import audit_file
from tonnage.errors import PlanRefused
from tonnage.gateway.state_keys import StateKeyStore
from tonnage.settings import Settings, load_settings
from tonnage.store.database import StoreError
from tonnage.web.keys import KeyFile

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return load_settings({"home": home}, {}, tmp_path)


@pytest.fixture
def written(settings: Settings) -> Settings:
    """A home whose audit has five lines."""
    audit = open_audit(settings)
    for number in range(5):
        audit.append(at=AT + timedelta(minutes=number), who="watch", what="done", rule=f"r{number}")
    return settings


def outcomes(found: AuditVerdict) -> dict[str, str]:
    return {one.what: one.outcome for one in found.checks}


def test_what_was_written_is_known_to_the_store(written: Settings) -> None:
    """Chain and head hold; without a backup nothing is said of one."""
    answer = verify_audit(settings=written)
    assert outcomes(answer.found) == {"chain": "holds", "head in the store": "holds"}
    assert (answer.found.lines, answer.fault) == (5, None)


@pytest.mark.parametrize(
    ("forge", "check", "words"),
    [
        (lambda lines: lines[:3], "head in the store", "the last 2 were cut off"),
        (lambda lines: lines[:1], "head in the store", "the last 4 were cut off"),
        (lambda lines: lines[:0], "head in the store", "replaced or removed"),
        (lambda lines: [*lines[:2], *lines[3:]], "chain", "one before it was taken out"),
        (lambda lines: [*lines[:2], lines[2].replace("r2", "r9"), *lines[3:]], "chain", "this line was changed"),
    ],
)  # fmt: skip
def test_a_tail_that_was_cut_is_found(
    written: Settings, forge: Callable[[list[str]], list[str]], check: str, words: str
) -> None:
    """The chain alone does not see it: every line that is left follows from those before it."""
    file = audit_file(written)
    file.write_text("".join(forge(file.read_text("utf-8").splitlines(keepends=True))), "utf-8")
    answer = verify_audit(settings=written)
    assert outcomes(answer.found)[check] == "broken"
    assert isinstance(answer.fault, PlanRefused)
    assert words in str(answer.fault)


def test_a_tail_that_was_written_anew_is_found(written: Settings) -> None:
    """Two lines cut off and two others put there, with a chain that holds: line 5 is another than the store knows."""
    file = audit_file(written)
    lines = file.read_text("utf-8").splitlines(keepends=True)
    file.write_text("".join(lines[:3]), "utf-8")
    from tonnage.monitoring.audit import AuditFile

    for number in range(2):
        AuditFile(file).append(at=AT, who="nobody", what="forged", rule=str(number))
    answer = verify_audit(settings=written)
    assert outcomes(answer.found) == {"chain": "holds", "head in the store": "broken"}
    assert "lines of the end were replaced" in str(answer.fault)


def test_a_backup_bears_witness(written: Settings, tmp_path: Path) -> None:
    """Where the store was forged too, the audit must still begin with what the backup has; later lines may follow."""
    made = backup(tmp_path / "kept", BackupOptions(), settings=written).found
    open_audit(written).append(at=AT, who="watch", what="done", rule="after")
    assert outcomes(verify_audit(backup=made.file, settings=written).found)["audit in the backup"] == "holds"
    file = audit_file(written)
    file.write_text("".join(file.read_text("utf-8").splitlines(keepends=True)[:3]), "utf-8")
    for one in written.home.glob("tonnage.db*"):
        one.unlink()
    found = outcomes(verify_audit(backup=made.file, settings=written).found)
    assert found == {"chain": "holds", "head in the store": "unknown", "audit in the backup": "broken"}


def test_a_store_that_is_gone_keeps_no_line_from_being_written(written: Settings) -> None:
    """The line stands; the next that the store takes catches up, and until then the check says how far it knows."""
    audit = open_audit(written)
    gone = [True]
    keep = audit._anchor
    assert keep is not None

    def anchor(first: str, line: object) -> None:
        if gone[0]:
            raise StoreError("the database failed")
        keep(first, line)  # type: ignore[arg-type]

    audit._anchor = anchor
    audit.append(at=AT, who="watch", what="done", rule="while it was gone")
    assert audit.anchor_fault == "the database failed"
    check = next(one for one in verify_audit(settings=written).found.checks if one.what == "head in the store")
    assert check.outcome == "holds"
    assert "the newest 1 were written while the store did not answer" in check.found
    gone[0], audit._anchor_again_s = False, 0.0
    audit.append(at=AT, who="watch", what="done", rule="after")
    assert audit.anchor_fault == ""
    assert "line 7" in next(one.found for one in verify_audit(settings=written).found.checks if "store" in one.what)


def test_an_empty_home_is_mostly_unknown(settings: Settings) -> None:
    """No key, no audit, no backup, no watch: no or unknown, and nothing is yes for the lack of it."""
    found = {one.key: one.outcome for one in compliance(settings=settings).found.answers}
    assert found["sign-in"] == found["keys-end"] == found["sealed"] == found["vulnerabilities"] == "unknown"
    assert found["audit"] == found["backups"] == found["watch"] == found["spending"] == "no"
    assert found["files"] == "yes"


def test_a_state_of_the_watch_that_cannot_be_read_is_reported(settings: Settings) -> None:
    """Neither «no watch» nor a watch without alerts: which file, and why."""
    file = settings.home / "watch" / "state.json"
    file.parent.mkdir(parents=True)
    alert = {"rule": "high", "metric": "load", "labels": {}, "status": "firing", "since": 1.0, "value": 1.0}
    for state, why in (({"alerts": [{**alert, "odd": 1}], "acted": [], "at": 1.0}, "'odd'"), ({"at": 1.0}, "'alerts'")):
        file.write_text(json.dumps(state))
        found = {one.key: one for one in compliance(settings=settings).found.answers}["watch"]
        assert found.outcome == "unknown"
        assert found.found.startswith(f"{file} cannot be read: ")
        assert why in found.found


def test_stores_of_secrets_are_counted(settings: Settings) -> None:
    """References in settings at home, by their store; comments and addresses of files are none."""
    settings.home.mkdir(parents=True, exist_ok=True)
    (settings.home / "team.gateway.yaml").write_text(
        'keys:\n  a: {key: "vault:secret/app#a"}\n  b: {key: aws:app/b}\n  c: {key: aws:app/c}  # not env:OLD\n'
    )
    (settings.home / "places.toml").write_text('bucket = "file:///tmp/x"\n')
    found = {one.key: (one.outcome, one.found) for one in compliance(settings=settings).found.answers}["secrets"]
    assert found[0] == "yes"
    assert found[1].endswith(
        "references to secrets: 2 in AWS Secrets Manager (aws:), "
        "1 in HashiCorp Vault, key-value engine version 2 (vault:)"
    )


def test_answers_follow_the_state(written: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys without an end, a sealed backup, a secret in settings, a file that others may read: each is said."""
    make_ui_key("anna", role="admin", days=30, settings=written)
    make_ui_key("ci", role="viewer", service=True, settings=written)
    monkeypatch.setenv("BACKUP_KEY", "a long key that nobody guesses, 42 letters")
    backup(tmp_path / "kept", BackupOptions(key="env:BACKUP_KEY"), settings=written)
    (written.home / "places.toml").write_text('token = "hf_' + "a1B2" * 9 + '"\n')
    written.home.chmod(0o755)
    (written.home / "places.toml").chmod(0o644)
    later = datetime.now(UTC) + timedelta(days=120)
    answer = compliance(settings=written, now=later)
    found = {one.key: (one.outcome, one.found) for one in answer.found.answers}
    assert found["keys-end"] == ("partly", "without an end: ci")
    assert found["keys-used"][0] == "no"
    assert "anna" in found["keys-used"][1]  # past its end by then
    assert found["sealed"][0] == "yes"
    assert found["backups"][0] == "no"  # 120 days later
    assert found["secrets"] == ("no", "values that look like secrets stand in places.toml:1")
    assert found["files"][0] == "no"
    assert found["audit"][0] == "yes"
    document = json.loads(answer.to_json())
    assert [one["name"] for one in document["keys"]] == ["anna", "ci"]
    text = answer.to_json() + answer.to_markdown() + str(answer)
    assert "hf_" not in text
    assert not any(one.hash in text for one in KeyFile(written.home / "ui" / "keys.json").every())


@pytest.mark.parametrize(
    ("entries", "outcome", "words"),
    [
        (({},), "no", "team0.yaml: no `encrypt:`"),
        (({"key": "vault:a/b#c"},), "yes", "key from HashiCorp Vault, key-value engine version 2 (vault:), never "
         "rotated, newest data key made on 2026-01-01, 30 days ago"),
        (({"key": "env:A"}, {}), "partly", "key from a variable (env:)"),
        (({"key": "env:A", "plain": ["batches"]},), "partly", "in the clear: batches"),
    ],
)  # fmt: skip
def test_how_gateways_encrypt_is_what_they_noted_when_they_started(
    entries: tuple[dict[str, Any], ...], outcome: str, words: str, settings: Settings
) -> None:
    """Each gateway counts: whether it encrypts, with the key of which store, since when; what stays in the clear."""
    find = {one.key: one for one in compliance(settings=settings).found.answers}
    assert (find["gateways"].outcome, "no gateway of this home" in find["gateways"].found) == ("unknown", True)
    for number, entry in enumerate(entries):
        store = str(settings.home / f"{number}.db")
        if entry:
            keys = StateKeyStore(store)
            keys.opened("a key of over 20 characters", what="key", now=AT)
            keys.close()
        file = written_gateway(settings.home.parent / f"team{number}.yaml", store, entry)
        gateway = load_gateway_file(file, settings=settings)
        note_encryption(settings.home, gateway, file, AT)
    found = {one.key: one for one in compliance(settings=settings, now=AT + timedelta(days=30)).found.answers}
    assert found["gateways"].outcome == outcome
    assert words in found["gateways"].found


def test_every_gateway_file_that_is_still_there_counts_once(settings: Settings) -> None:
    """Two files on one store are two answers; a file that was removed is none; a damaged note is not known."""
    store = str(settings.home / "store.db")
    keys = StateKeyStore(store)
    keys.opened("a key of over 20 characters", what="key", now=AT)
    keys.close()
    plain = written_gateway(settings.home.parent / "plain.yaml", store, {})
    sealed = written_gateway(settings.home.parent / "sealed.yaml", store, {"key": "env:A"})
    for file in (plain, sealed, sealed):
        note_encryption(settings.home, load_gateway_file(file, settings=settings), file, AT)
    assert answer_on_gateways(settings)[0] == "partly"
    plain.unlink()
    assert answer_on_gateways(settings)[0] == "yes"
    for damage in ("{", "[]", "{}", '{"file": "a", "at": 7}'):
        (note, _) = sorted((settings.home / "gateway" / "encryption-notes").iterdir())
        note.write_text(damage)
        outcome, words = answer_on_gateways(settings)
        assert (outcome, f"{note} cannot be read" in words, "start its gateway again" in words) == (
            "unknown", True, True)  # fmt: skip


def answer_on_gateways(settings: Settings) -> tuple[str, str]:
    found = {one.key: one for one in compliance(settings=settings).found.answers}["gateways"]
    return found.outcome, found.found


def written_gateway(path: Path, store: str, entry: dict[str, Any]) -> Path:
    """A gateway file with that `encrypt:`."""
    price = {"input_usd_per_million": 1, "output_usd_per_million": 1}
    document: dict[str, Any] = {
        "deployments": {"a": {"url": "http://127.0.0.1:1/v1", "model": "m", "price": price}},
        "routes": {"chat": {"deployments": ["a"]}}, "store": store,
    }  # fmt: skip
    document |= {"encrypt": entry} if entry else {}
    document |= {"batches": {}} if "plain" in entry else {}
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def test_how_the_page_was_started_is_read_from_the_audit(settings: Settings) -> None:
    """The newest start counts: behind a proxy with keys, after one for this machine alone."""
    audit = open_audit(settings)
    for host, encrypted, signed in (("127.0.0.1", "no", "none: loopback"), ("0.0.0.0", "by a proxy", "keys")):
        audit.append(at=AT, who="local:a", what="ui started", host=host, port=1, encrypted=encrypted, sign_in=signed)
        found = {one.key: one.outcome for one in compliance(settings=settings).found.answers}
        expected = "partly" if encrypted == "no" else "yes"
        assert (found["sign-in"], found["transport"]) == (expected, expected)


def test_every_control_that_is_named_is_one_that_was_read(settings: Settings) -> None:
    """Each answer's controls are in the table with what they ask; none of the table goes unused."""
    found = compliance(settings=settings).found
    named = {one for answer in found.answers for words in answer.controls for one in each_control(words)}
    assert named == set(CONTROLS)
