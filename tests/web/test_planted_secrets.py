"""Secrets planted wherever a person may put one: none of them is in a page, a document, an error, a log, the audit, the
watch's state or a backup. Files, logs and tracking of runs: tests/cli/test_run.py."""

from __future__ import annotations

import gzip
import io
import json
import logging
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest
from tests.web.conftest import Open

import tonnage
from tonnage.api.watch import audit_file, load_watch, watch_folder
from tonnage.errors import TonnageError
from tonnage.login import KeptLogin, keep_login
from tonnage.settings import Settings
from tonnage.web.keys import KeyFile, now_utc
from tonnage.web.resources import RESOURCES

PLANTED = {
    "database": "planted-in-a-database-url", "hub": "hf_plantedInAVariable0000000000000000",
    "key": "tnk-planted-in-a-header-0000000000", "query": "planted-in-a-query", "body": "planted-in-a-body",
    "chat": "planted/in/a/chats/path", "bearer": "planted-in-a-bearer", "otlp": "planted-in-an-otlp-header",
    "login": "tnk-planted-at-home-00000000000000", "mail": "planted-mail-password", "clear": "planted-in-the-clear",
}  # fmt: skip
Planted = Callable[[str], list[str]]


def found_in(text: str) -> list[str]:
    return [name for name, secret in PLANTED.items() if secret in text]


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """In variables: of the database, the hub, and those that a watch file names."""
    monkeypatch.setenv("TONNAGE_DATABASE_URL", f"postgresql://me:{PLANTED['database']}@127.0.0.1:9/x")
    for name in ("hub", "chat", "bearer", "otlp", "mail"):
        monkeypatch.setenv({"hub": "HF_TOKEN"}.get(name, f"PLANTED_{name.upper()}"), PLANTED[name])
    monkeypatch.setenv("PLANTED_CHAT", f"http://127.0.0.1:9/{PLANTED['chat']}")
    monkeypatch.setenv("PLANTED_MAIL", f"smtp://me:{PLANTED['mail']}@127.0.0.1:9?to=a@example.org")


@pytest.mark.usefixtures("planted")
def test_pages_documents_and_errors(server: Open, caplog: pytest.LogCaptureFixture) -> None:
    """Every address as page, document and CSV, let in and not; a query, a header, a cookie and a body that carry one; a
    method that is none. What the server logs meanwhile, too."""
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []
    sent = {"authorization": f"Bearer {PLANTED['key']}", "cookie": f"tonnage_session={PLANTED['key']}"}
    for client in (server(), server(open_here=False)):
        for one in RESOURCES:
            path = one.path.replace("{name}", "none")
            for form in (f"/{path}", f"/api/v1/{path or 'home'}", f"/api/v1/{path or 'home'}.csv"):
                texts += [client.get(form, params={"token": PLANTED["query"]}, headers=given).text
                          for given in ({}, sent)]  # fmt: skip
        for verb in ("plan", "size", "explain", "gains", "runs/none/stop", "runs/none/resume"):
            for body in ({"workload": {"kind": "train", "api_key": PLANTED["body"]}}, {"workload": PLANTED["body"]}):
                texts.append(client.post(f"/api/v1/{verb}", json=body, headers=sent).text)
            texts.append(client.request("PATCH", f"/api/v1/{verb}", headers=sent).text)
    shown = {name for text in texts for name in found_in(text)} - {"body"}  # a text that was sent may be quoted back
    assert shown == set()
    ours = "\n".join(one.getMessage() for one in caplog.records if one.name.startswith(("tonnage", "uvicorn")))
    assert found_in(ours) == []


@pytest.mark.parametrize(
    "text",
    [
        "channels: {a: {slack: CLEAR}}", "channels: {a: {pagerduty: CLEAR}}", "channels: {a: {mail: 'smtp://me:CLEAR@h'}}",
        "scrape: {a: {url: 'http://127.0.0.1:9/metrics', bearer: CLEAR}}",
        "otlp: {endpoint: 'http://127.0.0.1:9', headers: {authorization: CLEAR}}",
        "rules: {a: {when: {metric: x, above: 1}, do: [{post: {url: 'http://me:CLEAR@127.0.0.1:9/x'}}]}}",
    ],
)  # fmt: skip
def test_a_secret_in_the_clear_is_refused_without_being_shown(tmp_path: Path, text: str) -> None:
    """In every place of a watch file that takes a reference, and in an address."""
    file = tmp_path / "w.yaml"
    file.write_text(text.replace("CLEAR", PLANTED["clear"]))
    with pytest.raises(TonnageError) as caught:
        load_watch(file)
    assert found_in(f"{caught.value} {caught.value.hint}") == []
    assert str(file) in str(caught.value)


@pytest.fixture
def watched(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Settings, list[str]]]:
    """A watch of two rounds whose alert fires at once and tells everybody, where nobody answers."""
    monkeypatch.delenv("TONNAGE_DATABASE_URL")
    monkeypatch.setattr("tonnage.monitoring.otlp.SEND_S", 0.5)  # for so long it tries again
    here = tonnage.api.watch.current_settings()
    file = tmp_path / "w.yaml"
    file.write_text(
        "every: 1s\ndefaults: no\nscrape: {page: {url: 'http://127.0.0.1:9/metrics', bearer: env:PLANTED_BEARER}}\n"
        "otlp: {endpoint: 'http://127.0.0.1:9', headers: {authorization: env:PLANTED_OTLP}}\n"
        "channels: {chat: {slack: env:PLANTED_CHAT}, post: {mail: env:PLANTED_MAIL}}\n"
        "rules: {down: {when: {metric: tonnage_watch_target_up_ratio, below: 0.5}}}\n"
    )
    said: list[str] = []
    tonnage.open_watch(file, tonnage.WatchOptions(rounds=2), settings=here, say=said.append, stop=Event())
    said.append(str(tonnage.check_watch(file)) + tonnage.check_watch(file).to_json())
    yield here, said
    assert settings.home == here.home


@pytest.mark.usefixtures("planted")
def test_a_watch_that_reaches_nobody(watched: tuple[Settings, list[str]], keys: KeyFile) -> None:
    """What it says, its audit, state and figures, its rules as shown; then a backup of the home with a kept login."""
    here, said = watched
    assert any("down" in line for line in said)
    assert found_in("\n".join(said)) == []
    assert "failed" in audit_file(here).read_text("utf-8")  # it did try
    keep_login(KeptLogin(server="https://example.org", key=PLANTED["login"]), here)
    shown_once = keys.add("ci", "viewer", now=now_utc(), expires_at=None)
    for path in (one for one in here.home.rglob("*") if one.is_file() and one.name != "login.json"):
        content = path.read_bytes().decode("utf-8", errors="replace")
        assert (path, found_in(content), shown_once in content) == (path, [], False)
    made = tonnage.backup(here.home.parent / "kept", settings=here).found
    with gzip.open(made.file) as packed, tarfile.open(fileobj=io.BytesIO(packed.read())) as tar:
        names = tar.getnames()
        texts = [one.read().decode("utf-8", errors="replace") for name in names if (one := tar.extractfile(name))]
    assert "ui/login.json" not in names
    assert "ui/keys.json" in names
    assert [found_in(text) for text in texts if found_in(text)] == []
    assert str(watch_folder(here).name) in {name.split("/")[0] for name in names}


def test_what_is_true_of_an_installation_names_no_secret(settings: Settings) -> None:
    """A token in settings at home is named by its line alone."""
    settings.home.mkdir(mode=0o700)
    (settings.home / "places.toml").write_text(f'token = "{PLANTED["hub"]}"\n')
    answer = tonnage.compliance(settings=settings)
    assert "places.toml:1" in answer.to_json()
    assert found_in(json.dumps(answer.to_json()) + answer.to_markdown() + str(answer)) == []
