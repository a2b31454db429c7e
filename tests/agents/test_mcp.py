"""Agents ask over the Model Context Protocol: by the official client, in its process, and message by message."""

from __future__ import annotations

import asyncio
import io
import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import tonnage
from tonnage.agents.protocol import REVISIONS, answer_line, serve_lines
from tonnage.agents.tools import LISTED, agent_tools
from tonnage.settings import current_settings

EXAMPLES = Path(__file__).parents[2] / "examples"
DAY = "2026-11-20"
SERVICE: dict[str, Any] = {
    "kind": "serve", "model": "gpt2",
    "serve": {"rate_per_s": 5, "input_tokens": 64, "output_tokens": 8, "p95_latency": "2s"},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path / "home"))


def asked(method: str, **params: Any) -> dict[str, Any]:
    """The answer to one request."""
    line = json.dumps({"jsonrpc": "2.0", "id": "one", "method": method, "params": params})
    answer = answer_line(line, agent_tools(current_settings(as_of=DAY), EXAMPLES), "1.2.3")
    assert answer is not None
    found: dict[str, Any] = json.loads(answer)
    assert found["id"] == "one"
    return found


def called(tool: str, **arguments: Any) -> dict[str, Any]:
    found: dict[str, Any] = asked("tools/call", name=tool, arguments=arguments)["result"]
    return found


def test_the_documents_are_those_of_the_commands() -> None:
    """Of a mapping, a text and a file: the document with its lists cut, the Markdown as text."""
    file = EXAMPLES / "bert-finetune.tonnage.yaml"
    wanted = json.loads(tonnage.plan(file, as_of=DAY, top=5).to_json())
    for given in ({"file": file.name}, {"workload": file.read_text(encoding="utf-8")}):
        found = called("plan", **given)
        document = found["structuredContent"]
        assert not found["isError"]
        document["workload"]["name"] = wanted["workload"]["name"]  # a text has none
        assert document["cut"] == {key: len(wanted[key]) for key in ("options", "refused")}
        assert document["options"] == wanted["options"][:LISTED]
        assert document | {"cut": 0} == wanted | {key: wanted[key][:LISTED] for key in document["cut"]} | {"cut": 0}
        assert "| " in found["content"][0]["text"]
    sized = called("size", workload=SERVICE, gpus="T4", limit=1000)["structuredContent"]
    assert sized.pop("cut") == {}
    assert sized == json.loads(tonnage.size(SERVICE, gpus="T4", as_of=DAY, top=10).to_json())


def test_other_questions() -> None:
    """explain, gains, compare with weights, and lists of the catalog."""
    assert called("explain", workload=SERVICE, option="T4")["structuredContent"]["schema"].startswith("tonnage/")
    assert called("gains", workload=SERVICE)["structuredContent"]["schema"] == "tonnage/gains@1"
    compared = called("compare", file="compare/h2o-vs-pytorch.tonnage.yaml", weights={"cost": 0, "scaling": 9})
    assert compared["structuredContent"]["schema"] == "tonnage/compare@1"
    offers = called("catalog", what="offers", gpu="H100:8", limit=3)["structuredContent"]
    assert len(offers["offers"]) == 3
    assert offers["cut"]["offers"] > 3


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("plan", {}, "either `workload` or `file`"),
        ("plan", {"workload": SERVICE, "file": "x"}, "either"),
        ("plan", {"workload": {"kind": "serve"}}, "missing"),
        ("plan", {"workload": SERVICE, "rank": "speed"}, "cannot rank by 'speed'"),
        ("plan", {"workload": SERVICE, "tpo": 3}, "did you mean 'top'"),
        ("plan", {"workload": SERVICE, "top": True}, "whole number"),
        ("plan", {"file": "../pyproject.toml"}, "no file '../pyproject.toml' below"),
        ("plan", {"file": "/etc/passwd"}, "no file '/etc/passwd' below"),
        ("plan", {"file": "bert-finetun.tonnage.yaml"}, "did you mean 'bert-finetune.tonnage.yaml'"),
        ("explain", {"workload": SERVICE, "option": "H10O"}, "H10O"),
        ("catalog", {"what": "prices"}, "no list 'prices'"),
        ("compare", {"file": "compare/h2o-vs-pytorch.tonnage.yaml", "weights": {"cots": 1}}, "did you mean 'cost'"),
    ],
)
def test_bad_questions_are_answered_in_words(tool: str, arguments: dict[str, Any], said: str) -> None:
    """An answer with `isError` that an agent can learn from, with the hint."""
    found = called(tool, **arguments)
    assert found["isError"]
    assert said in found["content"][0]["text"]


@pytest.mark.parametrize(
    ("line", "code"),
    [("{", -32700), ("[]", -32600), ('{"jsonrpc": "2.0", "id": 1}', -32600), ("[" * 100_000, -32700),
     ('{"jsonrpc": "2.0", "id": 1, "method": "server/discover"}', -32601),
     ('{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}', -32602),
     ('{"jsonrpc": "2.0", "id": true, "method": "ping"}', -32600),
     ('{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "buy"}}', -32602),
     ('{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "plan", "arguments": 3}}', -32602)],
)  # fmt: skip
def test_messages_that_are_none(line: str, code: int) -> None:
    """The error of the protocol; the server goes on."""
    out = io.StringIO()
    serve_lines([line + "\n", '{"jsonrpc": "2.0", "id": 2, "method": "ping"}\n'], out, agent_tools(
        current_settings(as_of=DAY), EXAMPLES), "0")  # fmt: skip
    first, second = map(json.loads, out.getvalue().splitlines())
    assert first["error"]["code"] == code
    assert second["result"] == {}


def test_a_notification_gets_no_answer_and_a_revision_is_agreed_on() -> None:
    """The client's revision where it is known, else the newest."""
    assert answer_line('{"jsonrpc": "2.0", "method": "notifications/initialized"}', (), "0") is None
    assert asked("initialize", protocolVersion="2025-06-18")["result"]["protocolVersion"] == "2025-06-18"
    assert asked("initialize", protocolVersion="2031-01-01")["result"]["protocolVersion"] == REVISIONS[0]


@pytest.mark.heavy
@pytest.mark.skipif(find_spec("mcp") is None, reason="the extra dev brings it")
def test_the_official_client(tmp_path: Path) -> None:
    """It starts the command, agrees on a revision, lists the tools, and its answers pass the client's own checks."""
    from mcp import Client, StdioServerParameters

    command = StdioServerParameters(
        command=sys.executable, args=["-m", "tonnage", "mcp", "--folder", str(EXAMPLES), "--as-of", DAY],
        env={"TONNAGE_HOME": str(tmp_path / "home")},
    )  # fmt: skip

    async def scenario() -> None:
        async with Client(command) as client:
            listed = (await client.list_tools()).tools
            assert [one.name for one in listed] == ["plan", "size", "explain", "compare", "catalog", "gains"]
            assert all(one.annotations is not None and one.annotations.read_only_hint for one in listed)
            found = await client.call_tool("plan", {"file": "bert-finetune.tonnage.yaml", "limit": 3})
            assert not found.is_error
            assert found.structured_content is not None
            assert len(found.structured_content["options"]) == 3
            wrong = await client.call_tool("plan", {"file": "nowhere.yaml"})
            assert wrong.is_error

    asyncio.run(scenario())


def test_the_skill_names_commands_that_there_are() -> None:
    """Every `tonnage VERB` of the skill file, and its front matter."""
    import yaml

    from tonnage.cli.app import VERBS

    text = (EXAMPLES / "skill" / "SKILL.md").read_text(encoding="utf-8")
    head, body = text.removeprefix("---\n").split("---\n", 1)
    assert set(yaml.safe_load(head)) == {"name", "description"}
    named = set(re.findall(r"`tonnage ([a-z]+)", body))
    assert named >= {"plan", "explain", "size", "gains", "compare", "breakeven", "mcp"}
    assert named <= {one.name for one in VERBS}
    (example,) = re.findall(r"```yaml\n(.*?)```", body, re.DOTALL)
    assert tonnage.load_workload(yaml.safe_load(example), as_of=DAY)
