"""Who is let in: keys, roles on every address, sessions, origins, hosts, rates; no secret anywhere."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.web.conftest import Open

import tonnage
from tonnage.errors import DataError, InputError, PlanRefused, UnknownName
from tonnage.settings import Settings
from tonnage.web.access import BURST
from tonnage.web.keys import KeyFile, Role, now_utc
from tonnage.web.resources import RESOURCES
from tonnage.web.verbs import VERBS

Headers = Callable[[Role], dict[str, str]]
ROLES: tuple[Role, ...] = ("viewer", "operator", "admin")
ADDRESSES = [("GET", f"/api/v1/{one.path or 'home'}", one.role) for one in RESOURCES] + [
    ("GET", f"/{one.path}", one.role) for one in RESOURCES
] + [("POST", f"/api/v1/{one.path}", one.role) for one in VERBS]  # fmt: skip


def test_every_address_asks_for_its_role(server: Open, key_of: Headers) -> None:
    """401 without a key, 403 for each role below the one it takes, neither for that one."""
    client, keys = server(open_here=False), {one: key_of(one) for one in ROLES}
    wrong = []
    for method, path, role in ADDRESSES:
        path = path.replace("{name}", "none")
        unknown = client.request(method, path).status_code
        status = {one: client.request(method, path, headers=keys[one]).status_code for one in ROLES}
        right = all((status[one] == 403) == (ROLES.index(one) < ROLES.index(role)) for one in ROLES)
        if unknown != 401 or not right or not {401, 429}.isdisjoint(status.values()):
            wrong.append((method, path, role, unknown, status))
    assert wrong == []


def test_openapi_describes_no_other_address(server: Open) -> None:
    """What the test above asks for is all there is."""
    described = server().get("/api/v1/openapi.json").json()["paths"]
    known = {(method, path) for method, path, _ in ADDRESSES if path.startswith("/api")}
    assert {(method.upper(), path) for path, methods in described.items() for method in methods} == known


def test_keys_end(keys: KeyFile, server: Open) -> None:
    """An ended key, a revoked one and a made-up one are not let in; the file has no secret, and is the user's alone."""
    now = now_utc()
    secret = keys.add("ci", "viewer", now=now, expires_at=now + timedelta(days=1))
    old = keys.add("old", "admin", now=now, expires_at=now)
    client = server(open_here=False)

    def asked(key: str) -> int:
        return client.get("/api/v1/home", headers={"x-api-key": key}).status_code

    assert (asked(secret), asked(old), asked("tnk-guess"), asked("")) == (200, 401, 401, 401)
    text = keys.path.read_text(encoding="utf-8")
    assert secret not in text
    assert keys.path.stat().st_mode & 0o077 == 0
    assert keys.every()[0].used_at is not None
    keys.revoke("ci")
    assert asked(secret) == 401
    with pytest.raises(UnknownName, match="ci"):
        keys.revoke("ci")
    with pytest.raises(InputError, match="already"):
        keys.add("old", "viewer", now=now, expires_at=None)
    with pytest.raises(InputError, match="name of a key"):
        keys.add("a b", "viewer", now=now, expires_at=None)


def test_a_broken_file_of_keys_lets_nobody_in(keys: KeyFile, server: Open, key_of: Headers) -> None:
    """Neither open nor a traceback: the server says that it cannot read it."""
    headers = key_of("admin")
    keys.path.write_text('{"keys": [{"name": "x"}]}', encoding="utf-8")
    answer = server(open_here=False).get("/api/v1/home", headers=headers)
    assert answer.status_code == 503
    with pytest.raises(DataError):
        keys.every()


def test_a_browser_signs_in(server: Open, keys: KeyFile, audited: list[dict[str, Any]]) -> None:
    """A wrong key says so; a right one gives a cookie that no script reads; changes need the page's own origin."""
    secret = keys.add("ann", "operator", now=now_utc(), expires_at=None)
    client = server(open_here=False)
    sent = client.get("/", headers={"accept": "text/html"}, follow_redirects=False)
    assert (sent.status_code, sent.headers["location"]) == (303, "/login")
    assert client.post("/login", data={"key": "tnk-wrong"}).status_code == 401
    begun = client.post("/login", data={"key": secret}, follow_redirects=False)
    cookie = begun.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert secret not in cookie
    assert "ann" in client.get("/", headers={"accept": "text/html"}).text
    assert [one["what"] for one in audited] == ["ui login"]
    for origin, status in (
        (None, 403),
        ("https://evil.example", 403),
        ("null", 403),
        (str(client.base_url).rstrip("/"), 404),
    ):
        headers = {} if origin is None else {"origin": origin}
        assert client.post("/api/v1/runs/none/stop", json={}, headers=headers).status_code == status, origin
    keys.revoke("ann")
    assert client.get("/api/v1/home").status_code == 401


def test_on_this_machine_other_pages_cannot_ask(server: Open) -> None:
    """Nobody signs in there, so a page of elsewhere must not be able to stop a run, nor a name that points here."""
    client = server()
    foreign = client.post("/api/v1/runs/none/stop", json={}, headers={"origin": "https://evil.example"})
    assert foreign.status_code == 403
    assert client.get("/api/v1/home", headers={"host": "evil.example"}).status_code == 400
    assert client.get("/api/v1/home", headers={"host": "localhost:8765"}).status_code == 200
    assert client.get("/api/v1/home", headers={"host": "[::1]:8765"}).status_code == 200


def test_headers_keep_scripts_of_others_out(server: Open) -> None:
    """A strict policy on every answer, errors too."""
    client = server()
    for path in ("/", "/api/v1/home", "/nowhere", "/static/page.js", "/login"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe-eval" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_too_many_requests(server: Open, key_of: Headers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the burst 429, for that key alone."""
    monkeypatch.setattr("tonnage.web.access.PER_S", 1e-3)  # however long the requests here take
    client, one, other = server(open_here=False), key_of("viewer"), key_of("viewer")
    answers = [client.get("/api/v1/audit", headers=one).status_code for _ in range(int(BURST) + 3)]
    assert answers == [403] * int(BURST) + [429] * 3
    assert client.get("/api/v1/audit", headers=other).status_code == 403


def test_no_secret_is_shown(server: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A database's password, which the settings know, is in no page, document or error."""
    monkeypatch.setenv("TONNAGE_DATABASE_URL", "postgresql://me:planted-secret@db.example/x")
    client = server()
    for one in RESOURCES:
        path = one.path.replace("{name}", "none")
        for form in (f"/{path}", f"/api/v1/{path or 'home'}"):
            assert "planted-secret" not in client.get(form).text
    bad = tmp_path / "x.tonnage.yaml"
    bad.write_text("kind: train\nmodel: [", encoding="utf-8")
    assert client.get("/api/v1/plan/x").status_code == 404
    assert server(folder=tmp_path).get("/api/v1/plan/x").status_code == 400


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1"])
def test_others_are_let_in_only_behind_tls_and_keys(settings: Settings, host: str, tmp_path: Path) -> None:
    """At an address that others reach it does not start without TLS or a proxy, nor without a key."""
    with pytest.raises(PlanRefused, match="read along"):
        tonnage.open_ui(tonnage.UiOptions(host=host), settings=settings)
    with pytest.raises(PlanRefused, match="sign in"):
        tonnage.open_ui(tonnage.UiOptions(host=host, behind_proxy=True), settings=settings)
    with pytest.raises(InputError, match="certificate"):
        tonnage.open_ui(tonnage.UiOptions(host=host, tls_cert=tmp_path / "c.pem"), settings=settings)


def test_keys_by_command(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Made, listed without secret, revoked; a role that is none is named."""
    from tonnage.cli import run

    assert run(["ui", "key", "ci", "--role", "operator", "--days", "30"]) == 0
    secret = capsys.readouterr().out.strip()
    assert run(["ui", "keys", "-o", "json"]) == 0
    listed = capsys.readouterr().out
    assert secret not in listed
    assert '"role": "operator"' in listed
    assert run(["ui", "key", "x", "--role", "root"]) == 2
    assert "viewer, operator, admin" in capsys.readouterr().err
    assert run(["ui", "revoke", "ci"]) == 0
    assert home.exists()
