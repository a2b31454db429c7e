"""Roles of a project: each asker sees the runs and budgets that are theirs, and nothing of others, on every address."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.web.conftest import Open

import tonnage
from tonnage.runs.spec import ChargeSpec, dump_spec
from tonnage.testing.runs import run_spec, write_run
from tonnage.web.keys import KeyFile, now_utc
from tonnage.web.resources import RESOURCES

BUDGETS = "".join(f'[budgets.{name}]\nusd = 10\nperiod = "month"\nproject = "{name}"\n' for name in ("search", "zoo"))
Asked = Callable[..., httpx.Response]


def run_of(home: Path, name: str, project: str | None) -> None:
    folder = write_run(home / "runs" / name, finished=False)
    spec = replace(run_spec(name), charge=ChargeSpec(project=project))
    folder.spec_file.write_text(dump_spec(spec), encoding="utf-8")


@pytest.fixture
def ask(server: Open, home: Path, keys: KeyFile) -> Asked:
    """Ask as an operator of the project `search`; there are runs and budgets of two projects, and a run of none."""
    for name, project in (("mine", "search"), ("zebra", "zoo"), ("gnu-run", None)):
        run_of(home, name, project)
    (home / "budgets.toml").write_text(BUDGETS, encoding="utf-8")
    secret = keys.add("ann", "operator", now=now_utc(), expires_at=None, projects=("search",))
    client = server(open_here=False)

    def asked(path: str, method: str = "GET", **more: Any) -> httpx.Response:
        return client.request(method, path, headers={"x-api-key": secret}, **more)

    return asked


def test_lists_hold_what_is_theirs(ask: Asked) -> None:
    """Runs, home and budgets: in JSON, CSV and on the page."""
    assert [one["name"] for one in ask("/api/v1/runs").json()["runs"]] == ["mine"]
    assert [one["name"] for one in ask("/api/v1/budgets").json()["budgets"]] == ["search"]
    for path in ("runs", "home", "budgets"):
        for address in (f"/api/v1/{path}", f"/api/v1/{path}.csv", f"/{'' if path == 'home' else path}"):
            text = ask(address).text
            assert "zebra" not in text, address
            assert "gnu-run" not in text, address
            assert "zoo" not in text, address


@pytest.mark.parametrize("name", ["zebra", "gnu-run", "nowhere"])
def test_what_is_of_others_is_as_if_it_were_not(ask: Asked, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """404 that names no run of others, for reading and for doing; nothing is done."""
    for verb in ("stop", "resume"):
        monkeypatch.setattr(f"tonnage.api.{verb}", lambda *_, **__: pytest.fail("done"), raising=False)
    answers = [ask(f"/api/v1/runs/{name}"), ask(f"/api/v1/runs/{name}/logs"), ask(f"/runs/{name}")]
    answers += [ask(f"/api/v1/runs/{name}/{verb}", "POST", json={}) for verb in ("stop", "cancel", "resume")]
    for answer in answers:
        assert answer.status_code == 404
        assert "zebra" not in answer.text.replace(f"'{name}'", "")
    assert ask("/api/v1/budgets/zoo").status_code == 404


def test_what_is_theirs_is_shown_and_done(ask: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their run and budget, and a stop of it."""
    stopped: list[str] = []

    def stop(run: str, **_: Any) -> Any:
        stopped.append(run)
        return tonnage.show(run)

    monkeypatch.setattr("tonnage.api.stop", stop, raising=False)
    for path in ("runs/mine", "runs/mine/logs", "budgets/search", "catalog/gpus", "workloads"):
        assert ask(f"/api/v1/{path}").status_code == 200, path
    assert ask("/api/v1/runs/mine/stop", "POST", json={}).status_code == 200
    assert stopped == ["mine"]
    me = ask("/api/v1/me").json()
    assert (me["name"], me["role"], me["projects"]) == ("ann", "operator", ["search"])


def test_what_is_of_every_project_is_not_theirs(server: Open, keys: KeyFile) -> None:
    """403 on each such address, whatever the role."""
    secret = keys.add("ann", "admin", now=now_utc(), expires_at=None, projects=("search",))
    client = server(open_here=False)
    of_all = [one.path.replace("{name}", "x") for one in RESOURCES if one.scope == "all"]
    assert {"gateways", "audit", "settings", "services/x", "places", "alerts"} <= set(of_all)
    for path in of_all:
        answer = client.get(f"/api/v1/{path}", headers={"x-api-key": secret})
        assert (answer.status_code, "search alone" in answer.text) == (403, True), path


def test_a_program_signs_no_browser_in(server: Open, keys: KeyFile, home: Path) -> None:
    """Its key asks the API; the login takes it for none. Keys of before, without projects, hold for all."""
    secret = tonnage.make_ui_key("ci", role="viewer", service=True)
    client = server(open_here=False)
    assert client.get("/api/v1/me", headers={"x-api-key": secret}).status_code == 200
    assert client.post("/login", data={"key": secret}).status_code == 401
    text = keys.path.read_text(encoding="utf-8")
    for gone in (' "projects": null,\n', ' "holder": "service",\n'):
        assert gone in text
        text = text.replace(gone, "")
    keys.path.write_text(text, encoding="utf-8")
    (found,) = KeyFile(keys.path).every()
    assert (found.projects, found.holder) == (None, "person")
    lines = tonnage.audit_lines().found
    assert [(one.what, one.fields["name"], one.fields["after"]["role"]) for one in lines] == [
        ("ui key made", "ci", "viewer")
    ]  # fmt: skip
    assert home.exists()
