"""Roles of a project: each asker sees the runs and budgets that are theirs, and nothing of others, on every address."""

from __future__ import annotations

import json
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


SMALL = "kind: tabular\ntabular: {rows: 100_000, features: 10, method: boosted-trees, trees: 50}\n"
RUN = "run: {data: {train: rows.csv, columns: {label: y}}, charge: {project: %s}}\n"
FILES = {  # by name: what it says of its project
    "search~ours": "", "stated": RUN % "search", "zoo~zebra-plan": "", "gnu-plan": "",
    "zebra-stated": RUN % "zoo", "search~zebra-too": RUN % "zoo",
}  # fmt: skip
COMPARED = (
    "kind: compare\ncompare: [{name: a, profile: self-managed-aws}]\nworkloads: [{file: %s, jobs_per_month: 1}]\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Workload and compare files of two projects, and of none."""
    found = tmp_path / "workloads"
    texts = {name: SMALL + said for name, said in FILES.items()}
    texts["search~both"] = COMPARED % "ours.tonnage.yaml"
    texts["search~zebra-beside"] = COMPARED % "../zoo/zebra-plan.tonnage.yaml"
    for name, text in texts.items():
        path = found / f"{name.replace('~', '/')}.tonnage.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (found / "search" / "zebra-broken.tonnage.yaml").write_text("kind: [", encoding="utf-8")
    return found


@pytest.fixture
def ask(server: Open, home: Path, keys: KeyFile, folder: Path) -> Asked:
    """Ask as an operator of the project `search`; there are runs and budgets of two projects, and a run of none."""
    for name, project in (("mine", "search"), ("zebra", "zoo"), ("gnu-run", None)):
        run_of(home, name, project)
    (home / "budgets.toml").write_text(BUDGETS, encoding="utf-8")
    secret = keys.add("ann", "operator", now=now_utc(), expires_at=None, projects=("search",))
    client = server(open_here=False, folder=folder)

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


def test_workload_files_are_those_of_their_projects(ask: Asked) -> None:
    """By `run.charge.project`, else by the folder; a comparison where all of its workloads are theirs."""
    listed = {one["name"] for one in ask("/api/v1/workloads").json()["workloads"]}
    assert listed == {"search~ours", "stated", "search~both"}
    for verb in ("plan", "size", "explain", "gains"):
        for name in ("zoo~zebra-plan", "gnu-plan", "zebra-stated", "search~zebra-too", "search~zebra-broken"):
            answer = ask(f"/api/v1/{verb}/{name}")
            assert answer.status_code == 404, (verb, name)
            assert "zebra" not in answer.text.replace(f"'{name}'", "")
    assert ask("/api/v1/compare/search~zebra-beside").status_code == 404


def test_no_address_shows_what_is_of_others(ask: Asked, server: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every address and method of the OpenAPI document, with each name of others: 403, 404, or nothing of theirs."""
    for verb in ("stop", "resume"):
        monkeypatch.setattr(f"tonnage.api.{verb}", lambda *_, **__: pytest.fail("done"), raising=False)
    described = server().get("/api/v1/openapi.json").json()["paths"]
    names = ("zebra", "gnu-run", "zoo", "zoo~zebra-plan", "gnu-plan", "zebra-stated", "search~zebra-beside")
    asked = 0
    for path, methods in described.items():
        for method in methods:
            for name in names if "{" in path else names[:1]:
                body = {"json": {}} if method == "post" else {}
                answer = ask(path.replace("{name}", name), method.upper(), **body)
                text = answer.text.replace(f"'{name}'", "")
                assert not [word for word in ("zebra", "gnu-", "zoo") if word in text], (method, path, name)
                if "{" in path:
                    assert answer.status_code in (403, 404), (method, path, name)
                asked += 1
    assert asked > 60


@pytest.mark.parametrize("model", ["HERE/secret", "~/secret", "../HOME/secret", "secret/config.json"])
def test_a_body_of_theirs_names_no_file_of_the_server(
    ask: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    """Neither by its whole path nor from the folder that the server was started in; a known model is planned."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").mkdir()
    config = {"model_type": "bert", "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
              "intermediate_size": 512, "vocab_size": 30522, "max_position_embeddings": 512}  # fmt: skip
    (tmp_path / "secret" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))
    model = model.replace("HERE", str(tmp_path)).replace("HOME", tmp_path.name)
    work = {"kind": "train", "model": model, "data": {"samples": 1000, "seq_len": 64}}
    for workload in (work, f"kind: train\nmodel: {model}\ndata: {{samples: 1000, seq_len: 64}}\n"):
        answer = ask("/api/v1/size", "POST", json={"workload": workload})
        assert answer.status_code == 400, answer.text
        assert "names none" in answer.text or "no such file" in answer.text
    for workload in ({**work, "model": "bert-base-uncased"}, "kind: [", 7, {"a": {}}):
        answer = ask("/api/v1/size", "POST", json={"workload": workload})
        assert answer.status_code == (200 if isinstance(workload, dict) and "kind" in workload else 400), answer.text


def test_what_is_theirs_is_shown_and_done(ask: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their run and budget, and a stop of it."""
    stopped: list[str] = []

    def stop(run: str, **_: Any) -> Any:
        stopped.append(run)
        return tonnage.show(run)

    monkeypatch.setattr("tonnage.api.stop", stop, raising=False)
    for path in (
        "runs/mine",
        "runs/mine/logs",
        "budgets/search",
        "catalog/gpus",
        "workloads",
        "plan/search~ours",
        "size/stated",
    ):
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
