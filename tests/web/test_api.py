"""The REST API: the same documents as the commands, problems with hints, pages cut, things done once."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.web.conftest import DAY, EXAMPLES, Open, listening
from tests.web.scenes import spend

import tonnage
from tonnage.client import Client
from tonnage.errors import InputError, SourceError, TonnageError, UnknownName
from tonnage.runs import EventKind
from tonnage.settings import Settings, current_settings
from tonnage.store.answers import AnswerStore, AskedOnce
from tonnage.testing.runs import write_run
from tonnage.web.access import LOCAL_NAMES, Access
from tonnage.web.app import WebServer
from tonnage.web.asked import workload_files
from tonnage.web.keys import KeyFile
from tonnage.web.resources import RESOURCES
from tonnage.web.whatif import changed_workload

SERVICE: dict[str, Any] = {
    "kind": "serve", "model": "gpt2",
    "serve": {"rate_per_s": 5, "input_tokens": 64, "output_tokens": 8, "p95_latency": "2s"},
}  # fmt: skip


def test_the_documents_are_those_of_the_commands(server: Open) -> None:
    """A file of the folder, and a workload that the client sends: byte for byte the answer of the function."""
    client = server()
    said = client.get("/api/v1/plan/bert-finetune")
    assert said.status_code == 200
    assert said.text == tonnage.plan(EXAMPLES / "bert-finetune.tonnage.yaml", as_of=DAY).to_json()
    sent = client.post("/api/v1/size", json={"workload": SERVICE, "gpus": "T4"})
    assert sent.text == tonnage.size(SERVICE, gpus="T4", as_of=DAY).to_json()


def test_every_address_is_a_page_json_and_csv(server: Open) -> None:
    """One report in three forms; nothing of a page is fetched from elsewhere."""
    client = server()
    for path in [one.path for one in RESOURCES if "{" not in one.path]:
        page = client.get(f"/{path}", headers={"accept": "text/html"})
        assert page.status_code == 200, path
        assert "http://" not in page.text.replace("http://www.w3.org", ""), path
        document = client.get(f"/{path or 'home'}.json").json()
        assert document["schema"].startswith("tonnage/"), path
        assert client.get(f"/api/v1/{path or 'home'}").json() == document
        assert client.get(f"/api/v1/{path or 'home'}.csv").headers["content-type"].startswith("text/csv"), path


def test_a_run_is_shown_with_its_log(server: Open, home: Path) -> None:
    """Its document, the end of its log, and its name on the page of runs."""
    folder = write_run(home / "runs" / "teach")
    folder.log_file.write_text("".join(f"line {number}\n" for number in range(500)), encoding="utf-8")
    client = server()
    assert client.get("/api/v1/runs/teach").text == tonnage.show("teach").to_json()
    assert client.get("/api/v1/runs/teach/logs?lines=2").json()["lines"] == ["line 498", "line 499"]
    assert 'href="/runs/teach"' in client.get("/runs").text


PROBLEMS = (
    ("/api/v1/plan/bert-finetun", 404, "did you mean 'bert-finetune'"),
    ("/api/v1/plan/bert-finetune?deadlin=3", 400, "did you mean 'deadline'"),
    ("/api/v1/plan/bert-finetune?deadline=-3", 400, "expected 0.1 to 2000"),
    ("/api/v1/plan/bert-finetune?deadline=nan", 400, "expected"),
    ("/api/v1/plan/bert-finetune?top=0", 400, "whole number"),
    ("/api/v1/plan/..%2f..%2fetc", 404, "openapi.json"),
    ("/api/v1/runs?limit=x", 400, "whole number"),
    ("/api/v1/runs?colour=red", 400, "not a parameter"),
    ("/api/v1/runs/none", 404, "none"),
    ("/api/v1/services/none", 404, "none"),
    ("/api/v1/catalog/offers?gpu=H10O", 404, "H10O"),
    ("/api/v1/nowhere", 404, "openapi.json"),
)


def test_problems_have_a_hint(server: Open) -> None:
    """RFC 9457, with the words of the command."""
    client = server()
    for path, status, said in PROBLEMS:
        answer = client.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), path
        assert said in answer.text, path
        assert {"type", "title", "status", "detail", "hint"} <= answer.json().keys(), path


def test_a_body_that_cannot_be_planned(server: Open) -> None:
    """400 with what is wrong, never a fault of the server."""
    client = server()
    bodies: list[dict[str, Any]] = [
        {}, {"workload": 3}, {"workload": {}}, {"workload": "kind: train"}, {"workload": SERVICE, "rnak": "time"},
        {"workload": SERVICE, "rank": "speed"}, {"workload": SERVICE, "top": True},
        {"workload": SERVICE, "constraints": 3}, {"workload": SERVICE, "constraints": {"deadlin": "3h"}},
        {"workload": SERVICE | {"serve": {"rate_per_s": -1}}},
    ]  # fmt: skip
    for body in bodies:
        answer = client.post("/api/v1/plan", json=body)
        assert (answer.status_code, answer.json()["status"]) == (400, 400), body


def test_bodies_that_are_none(server: Open) -> None:
    """No JSON, a list, one that is too large, or of a length that is not stated."""
    client = server()
    for content in (b"{", b"[]", b"\xff\xfe", b"3"):
        assert (
            client.post("/api/v1/plan", content=content, headers={"content-type": "application/json"}).status_code
            == 400
        )
    assert client.post("/api/v1/plan", content=b"x" * (2 << 20)).status_code == 413
    assert client.post("/api/v1/plan", content=iter([b"{}"])).status_code == 411


def test_lists_are_cut_and_answers_tagged(server: Open) -> None:
    """`limit` and `offset` cut the longest list and say of how many; what the client has is not sent again."""
    client = server()
    whole = client.get("/api/v1/catalog/gpus").json()
    part = client.get("/api/v1/catalog/gpus?limit=3&offset=2").json()
    name = part["page"]["of"]
    assert part[name] == whole[name][2:5]
    assert part["page"] == {"of": name, "total": len(whole[name]), "limit": 3, "offset": 2}
    first = client.get("/api/v1/catalog/gpus")
    again = client.get("/api/v1/catalog/gpus", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_what_is_done_is_done_once_and_written_down(
    server: Open, home: Path, audited: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeat of the same key gets the first answer; the audit says who asked for what."""
    asked: list[tuple[str, bool]] = []
    write_run(home / "runs" / "teach", finished=False)

    def stop(run: str, *, at_once: bool, wait: bool, settings: Any) -> Any:
        assert not wait
        asked.append((run, at_once))
        return tonnage.show(run, settings=settings)

    monkeypatch.setattr("tonnage.api.runs.stop", stop)
    monkeypatch.setattr("tonnage.api.stop", stop, raising=False)
    client = server()
    headers = {"idempotency-key": "one"}
    first = client.post("/api/v1/runs/teach/cancel", json={}, headers=headers)
    assert client.post("/api/v1/runs/teach/cancel", json={}, headers=headers).text == first.text
    assert asked == [("teach", True)]
    assert [(one["who"], one["what"], one["name"]) for one in audited] == [
        ("local", "ui cancel", "teach"), ("local", "ui cancel ended", "teach")
    ]  # fmt: skip
    assert (audited[0]["address"], audited[0]["before"], audited[1]["after"]) == ("127.0.0.1", "running", "running")
    assert audited[1]["end"] == "done"


def test_nothing_is_done_that_the_audit_cannot_hold(
    settings: Settings, keys: KeyFile, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk: 507 in words and the way on, and no run is touched. One that fills up meanwhile keeps what was done
    from no answer."""
    asked, full = list[str](), [True]
    write_run(home / "runs" / "teach", finished=False)

    def stop(run: str, *, at_once: bool, wait: bool, settings: Any) -> Any:
        asked.append(f"{run} {at_once} {wait}")
        full[0] = True
        return tonnage.show(run, settings=settings)

    def audit(**_: object) -> None:
        if full[0]:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("tonnage.api.runs.stop", stop)
    monkeypatch.setattr("tonnage.api.stop", stop, raising=False)
    access, held = Access(keys=keys, open_here=True, hosts=LOCAL_NAMES), list[str]()
    made = WebServer(settings, EXAMPLES, access, secure=False, audit=audit,
                     audit_later=lambda **one: held.append(one["what"]))  # fmt: skip
    with listening(made) as url, httpx.Client(base_url=url, timeout=60) as client:
        refused = client.post("/api/v1/runs/teach/cancel", json={})
        assert (refused.status_code, asked) == (507, [])
        assert refused.json()["detail"] == "nothing was done: the audit cannot be written: No space left on device"
        assert "tonnage cancel teach" in refused.json()["hint"]
        full[0] = False
        assert client.post("/api/v1/runs/teach/cancel", json={}).status_code == 200
    assert (asked, held) == (["teach True False"], ["ui cancel ended"])


def test_a_database_that_is_gone_for_a_while(
    server: Open, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A request with an Idempotency-Key is refused in words, and nothing is done; what needs no database is shown; the
    same request is done once it is back."""
    asked = list[str]()
    write_run(home / "runs" / "teach", finished=False)

    def stop(run: str, *, at_once: bool, wait: bool, settings: Any) -> Any:
        assert at_once
        assert not wait
        asked.append(run)
        return tonnage.show(run, settings=settings)

    monkeypatch.setattr("tonnage.api.runs.stop", stop)
    monkeypatch.setattr("tonnage.api.stop", stop, raising=False)
    client = server()
    place = Path(current_settings().database_url.removeprefix("sqlite:///"))
    place.parent.mkdir(parents=True, exist_ok=True)
    for beside in place.parent.glob(f"{place.name}*"):
        beside.rename(tmp_path / beside.name)
    place.mkdir()  # as where a disk is not mounted: no file can be opened there
    headers = {"idempotency-key": "one"}
    refused = client.post("/api/v1/runs/teach/cancel", json={}, headers=headers)
    assert (refused.status_code, asked) == (503, [])
    assert "database" in refused.json()["detail"]
    assert refused.json()["hint"]
    assert client.get("/api/v1/runs/teach").status_code == 200
    place.rmdir()
    assert client.post("/api/v1/runs/teach/cancel", json={}, headers=headers).status_code == 200
    assert client.post("/api/v1/runs/teach/cancel", json={}, headers=headers).status_code == 200
    assert asked == ["teach"]


@pytest.fixture
def through(server: Open) -> Callable[[], Client]:
    """A client of a server on this machine."""

    def made() -> Client:
        return Client(str(server().base_url))

    return made


def test_the_client_asks_as_the_functions_do(through: Callable[[], Client]) -> None:
    """Plans of files, texts and mappings; errors of the kind that the functions raise, with their hints."""
    file = EXAMPLES / "bert-finetune.tonnage.yaml"
    with through() as client:
        mine = json.loads(tonnage.plan(file, as_of=DAY, top=3, providers="aws").to_json())
        assert client.plan(file, top=3, providers="aws") == mine
        assert client.size(file.read_text(encoding="utf-8"))["schema"] == "tonnage/size@1"
        assert client.gains(SERVICE)["schema"] == "tonnage/gains@1"
        assert client.catalog("offers", gpu="T4", provider="aws")["schema"]
        assert client.runs(limit=1)["page"]["total"] == 0
        with pytest.raises(UnknownName):
            client.show("none")
        with pytest.raises(InputError, match="deadlin"):
            client.plan(SERVICE, deadlin="3h")
        with pytest.raises(InputError, match="cannot be read"):
            client.plan("nowhere.yaml")


def test_a_server_that_is_not_there() -> None:
    """SourceError; without a name InputError."""
    with pytest.raises(SourceError, match="does not answer"):
        Client("http://127.0.0.1:9").home()
    with pytest.raises(InputError, match="no server"):
        Client()


def test_openapi_lists_every_address(server: Open) -> None:
    """Each resource and verb, with a summary and its problems."""
    described = server().get("/api/v1/openapi.json").json()
    for one in RESOURCES:
        path = f"/api/v1/{one.path or 'home'}"
        assert described["paths"][path]["get"]["summary"] == one.about
        assert "404" in described["paths"][path]["get"]["responses"]


def test_a_deadline_that_nothing_holds(server: Open) -> None:
    """A plan without options is an answer, as with the command."""
    answer = server().get("/api/v1/plan/llama-65b-full?deadline=0.1")
    assert answer.status_code == 200
    assert answer.json()["options"] == []


@pytest.mark.parametrize("name", sorted(workload_files(EXAMPLES)))
def test_every_slider_of_an_example_can_be_moved(name: str) -> None:
    """What a page offers to move makes a workload that can be read: a volume only in the way that the file states."""
    path = workload_files(EXAMPLES)[name]
    if "kind: compare" in path.read_text(encoding="utf-8"):
        return
    _, sliders = changed_workload(path, {})
    assert sliders
    for slider, value in sliders:
        middle = (slider.least * slider.most) ** 0.5
        moved, _ = changed_workload(path, {slider.name: str(min(slider.most, 1.1 * (value or middle)))})
        assert tonnage.load_workload(moved, as_of=DAY)


def test_two_requests_of_one_key_at_once(server: Open, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes second waits for the answer of the first: it is done once."""
    write_run(home / "runs" / "teach", finished=False)
    asked: list[str] = []

    def slow(run: str, *, at_once: bool, wait: bool, settings: Any) -> Any:
        assert at_once
        assert not wait
        asked.append(run)
        time.sleep(0.3)
        return tonnage.show(run, settings=settings)

    monkeypatch.setattr("tonnage.api.stop", slow, raising=False)
    client = server()
    with ThreadPoolExecutor(2) as pool:
        send = partial(client.post, "/api/v1/runs/teach/cancel", json={}, headers={"idempotency-key": "one"})
        first, second = (one.result() for one in [pool.submit(send), pool.submit(send)])
    assert first.text == second.text
    assert asked == ["teach"]


def test_a_run_is_gone_on_with(server: Open, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its limits may be raised, nothing else of it; the page offers what the state allows."""
    asked: list[tuple[str, Any]] = []
    write_run(home / "runs" / "done")
    stopped = write_run(home / "runs" / "teach", finished=False)
    stopped.record(EventKind.STOPPED, who="supervisor", reason="asked", message="asked to")

    def resume(run: str, options: Any, *, settings: Any) -> Any:
        asked.append((run, options))
        return tonnage.show(run, settings=settings)

    monkeypatch.setattr("tonnage.api.resume", resume, raising=False)
    client = server()
    address = "/api/v1/runs/teach/resume"
    assert client.post(address, json={"max_cost_usd": 20, "max_restarts": 5}).status_code == 200
    assert asked == [("teach", tonnage.ResumeOptions(max_cost_usd=20.0, max_restarts=5))]
    for body in ({"device": "cuda"}, {"max_hours": -1}, {"max_hours": True}, {"max_restarts": 1.5}, {"max_hours": "3"}):
        answer = client.post(address, json=body)
        assert (answer.status_code, len(asked)) == (400, 1), body
    assert 'data-address="/api/v1/runs/teach/resume"' in client.get("/runs/teach").text
    assert 'data-address="/api/v1/runs/teach/stop"' not in client.get("/runs/teach").text
    assert "data-address" not in client.get("/runs/done").text


def test_a_run_that_has_succeeded_is_not_gone_on_with(server: Open, home: Path) -> None:
    """By the verb itself: bad input, and where to look."""
    write_run(home / "runs" / "done")
    answer = server().post("/api/v1/runs/done/resume", json={})
    assert (answer.status_code, answer.json()["detail"]) == (400, "'done' has succeeded: nothing is left to do")
    assert "tonnage show done" in answer.json()["hint"]


def test_a_repeat_after_a_restart(server: Open, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second server of the home gives the first answer, byte for byte; another body under the key is refused."""
    asked: list[str] = []
    write_run(home / "runs" / "teach", finished=False)

    def stop(run: str, **_: Any) -> Any:
        asked.append(run)
        return tonnage.show(run)

    monkeypatch.setattr("tonnage.api.stop", stop, raising=False)
    address, headers = "/api/v1/runs/teach/cancel", {"idempotency-key": "one"}
    first = server().post(address, json={}, headers=headers)
    again = server()
    assert again.post(address, json={}, headers=headers).content == first.content
    assert asked == ["teach"]
    other = again.post(address, json={"x": 1}, headers=headers)
    assert (other.status_code, "another body" in other.json()["detail"]) == (422, True)
    assert again.post(address, json={}, headers={"idempotency-key": "two"}).status_code == 200
    assert asked == ["teach", "teach"]


def test_what_was_begun_and_not_answered_is_not_done_again(
    server: Open, home: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is killed between the deed and its answer: 409 says so. A refusal leaves the key free."""
    write_run(home / "runs" / "teach", finished=False)
    monkeypatch.setattr("tonnage.api.stop", lambda *_, **__: pytest.fail("done again"), raising=False)
    address = "/api/v1/runs/teach/cancel"
    kept = AnswerStore(settings.database_url)
    assert kept.begin(AskedOnce(caller="local", address=address, key="one"), "{}") is None
    kept.close()
    client = server()
    answer = client.post(address, json={}, headers={"idempotency-key": "one"})
    assert (answer.status_code, "answer is not known" in answer.json()["detail"]) == (409, True)
    for _ in range(2):
        refused = client.post("/api/v1/runs/none/resume", json={}, headers={"idempotency-key": "two"})
        assert (refused.status_code, "none" in refused.text) == (404, True)


def test_the_client_reaches_every_address(server: Open, home: Path) -> None:
    """A method for each operation of the OpenAPI document, or `read`."""
    write_run(home / "runs" / "teach")
    spend(home)
    client, asked = server(), set[tuple[str, str]]()
    paths = client.get("/api/v1/openapi.json").json()["paths"]

    def note(request: httpx.Request) -> None:
        asked.add((request.method, request.url.path))

    http = httpx.Client(timeout=60, event_hooks={"request": [note]})
    file = EXAMPLES / "bert-finetune.tonnage.yaml"
    with Client(str(client.base_url), http=http) as one:
        calls: list[Callable[[], Any]] = [
            one.home, one.runs, one.budgets, one.gateways, partial(one.show, "teach"), partial(one.logs, "teach"),
            partial(one.stop, "none"), partial(one.stop, "none", at_once=True),
            partial(one.resume, "none", max_hours=2),
            partial(one.service, "none"), partial(one.budget_runs, "ranking"), partial(one.gateway_top, "none"),
            partial(one.gateway_spend, "gateway~chat", by="team"), partial(one.price_history, "p5.48xlarge"),
            partial(one.compare, "compare~h2o-vs-pytorch", cost=5), partial(one.plan, file), partial(one.size, file),
            partial(one.explain, file), partial(one.gains, SERVICE), one.catalog,
        ]  # fmt: skip
        calls += [partial(one.catalog, what) for what in ("instances", "offers")]
        calls += [partial(one.read, f"{verb}/bert-finetune") for verb in ("plan", "size", "explain", "gains")]
        calls += [partial(one.read, what) for what in ("workloads", "places", "alerts", "audit", "settings", "me")]
        calls.append(partial(one.read, "catalog/snapshots"))
        for call in calls:
            with suppress(UnknownName):
                assert call()
    names = ("teach", "none", "ranking", "gateway~chat", "compare~h2o-vs-pytorch", "bert-finetune")
    missing = [
        (method, path)
        for path, methods in paths.items()
        for method in methods
        if not any((method.upper(), path.replace("{name}", name)) in asked for name in names)
    ]
    assert missing == []


def test_a_login_is_kept_for_its_server_alone(
    server: Open, key_of: Callable[[Any], dict[str, str]], home: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The client asks with it; another server does not get the key; a key that is none is not kept; logout forgets. Of
    a key that is referred to the reference alone lies on the disk."""
    from tonnage.cli import run

    secret = key_of("viewer")["authorization"].removeprefix("Bearer ")
    url, other = (str(server(open_here=False).base_url).rstrip("/") for _ in range(2))
    monkeypatch.setenv("MY_KEY", secret)
    assert run(["login", f"{url}/", "--key", "env:MY_KEY", "-o", "json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["role"] == "viewer"
    assert secret not in said.out + said.err
    path = home / "ui" / "login.json"
    assert path.stat().st_mode & 0o077 == 0
    assert "env:MY_KEY" in path.read_text(encoding="utf-8")
    assert secret not in path.read_text(encoding="utf-8")
    with Client() as client:
        assert client.read("me")["name"] == "viewer-0"
    with Client(other) as client, pytest.raises(TonnageError, match="no key that holds"):
        client.home()
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(InputError, match=r"the key of `tonnage login`: .*MY_KEY"):
        Client()
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{secret}\n"))
    assert run(["login", url]) == 0
    with Client() as client:  # typed: kept as it is
        assert client.read("me")["name"] == "viewer-0"
    monkeypatch.setenv("MY_KEY", "tnk-guess")
    assert run(["login", other, "--key", "env:MY_KEY"]) == 1
    assert json.loads(path.read_text(encoding="utf-8"))["server"] == url
    assert run(["login", "http://tonnage.example", "--key", "env:MY_KEY"]) == 4
    assert run(["login", "nowhere"]) == 2
    assert run(["logout"]) == 0
    assert not path.exists()
    with pytest.raises(InputError, match="no server"):
        Client()
