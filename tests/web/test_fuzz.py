"""Whatever a client sends, the server answers in its own words: never 500, and problems as problems."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

pytest.importorskip("fastapi")

from tests.web.conftest import DAY, EXAMPLES, listening
from tests.web.scenes import spend

from tonnage.settings import current_settings
from tonnage.testing.runs import write_run
from tonnage.web import access
from tonnage.web.access import LOCAL_NAMES, Access
from tonnage.web.app import WebServer, make_app
from tonnage.web.keys import KeyFile

EXAMPLES_EACH = 40
WORKLOADS = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in sorted(EXAMPLES.glob("*.tonnage.yaml"))]
NAMES = {
    "plan": "bert-finetune", "size": "bert-finetune", "explain": "bert-finetune", "gains": "bert-finetune",
    "compare": "compare~h2o-vs-pytorch", "runs": "teach", "budgets": "ranking", "gateways": "gateway~chat",
}  # fmt: skip


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("fuzzed") / "home"
    spend(home)
    write_run(home / "runs" / "teach")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TONNAGE_HOME", str(home))
        patched.setattr(access, "PER_S", 1e9)
        patched.setattr(access, "BURST", 1e9)
        entry = Access(keys=KeyFile(home / "ui" / "keys.json"), open_here=True, hosts=LOCAL_NAMES)
        made = WebServer(current_settings(as_of=DAY), EXAMPLES, entry, secure=False, audit=lambda **_: None)
        with listening(made) as url:
            yield url


def described() -> dict[str, Any]:
    """The OpenAPI document with workloads in bodies and names in paths that there are, beside any other."""
    entry = Access(keys=KeyFile(Path("none")), open_here=True, hosts=LOCAL_NAMES)
    made = WebServer(current_settings(as_of=DAY), EXAMPLES, entry, secure=False, audit=lambda **_: None)
    document: dict[str, Any] = copy.deepcopy(make_app(made).openapi())
    for path, methods in document["paths"].items():
        for operation in methods.values():
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            if "workload" in body.get("properties", {}):
                body["properties"]["workload"] = {
                    "anyOf": [{"enum": WORKLOADS}, {"type": "object"}, {"type": "string"}]
                }
            for parameter in operation["parameters"]:
                if parameter["in"] == "path":
                    known = NAMES.get(path.split("/")[3], "teach")
                    parameter["schema"] = {"anyOf": [{"enum": [known]}, {"type": "string", "minLength": 1}]}
    return document


def hold(answer: Any) -> None:
    """An answer, or a problem in the server's own words."""
    assert answer.status_code < 500 or answer.status_code in (501, 503), answer.text[:2000]
    if answer.status_code >= 400:
        assert "application/problem+json" in str(answer.headers["content-type"])
        assert answer.json()["detail"]
    assert "Traceback" not in answer.text


OPERATIONS = [(method, path) for path, methods in described()["paths"].items() for method in methods]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("schemathesis") is None, reason="the extra dev brings it")
@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=[f"{method} {path[8:]}" for method, path in OPERATIONS])
def test_no_request_makes_the_server_fail(address: str, method: str, path: str) -> None:
    """Requests that the document allows and those that it does not (schemathesis): an answer, or a problem with a
    detail; what is refused names neither a traceback nor a module."""
    import schemathesis

    schema = schemathesis.openapi.from_dict(described())
    operation = schema[path][method.upper()]
    met: set[int] = set()

    for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):

        @settings(max_examples=EXAMPLES_EACH, deadline=None, phases=[Phase.generate], database=None,
                  derandomize=True, suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(case=operation.as_strategy(generation_mode=mode))
        def sent(case: Any) -> None:
            answer = case.call(base_url=address)
            met.add(answer.status_code)
            hold(answer)

        try:
            sent()
        except Unsatisfiable:  # nothing of this address can be wrong
            continue
    assert met, "nothing was sent"


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def changed_workloads(draw: st.DrawFn) -> dict[str, Any]:
    """An example with up to three of its values, at any depth, replaced by anything, taken out, or scaled."""
    document: dict[str, Any] = copy.deepcopy(draw(st.sampled_from(WORKLOADS)))
    for _ in range(draw(st.integers(1, 3))):
        place = document
        key = draw(st.sampled_from(sorted(place)))
        while isinstance(place[key], dict) and place[key] and draw(st.booleans()):
            place = place[key]
            key = draw(st.sampled_from(sorted(place)))
        how = draw(st.sampled_from(("any", "out", "scaled")))
        if how == "out" and len(place) > 1:
            del place[key]
        elif how == "scaled" and isinstance(place[key], int | float):
            place[key] *= draw(st.sampled_from((0, -1, 1e-9, 1e9, 1e300)))
        else:
            place[key] = draw(ANY)
    return document


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["plan", "size", "explain", "gains"])
def test_no_workload_makes_the_server_fail(address: str, verb: str) -> None:
    """Examples of workload files with values of any kind in the place of theirs."""

    @settings(max_examples=5 * EXAMPLES_EACH, deadline=None, phases=[Phase.generate], database=None, derandomize=True,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(changed_workloads())
    def sent(document: dict[str, Any]) -> None:
        with httpx.Client(base_url=address, timeout=120) as client:
            hold(client.post(f"/api/v1/{verb}", json={"workload": document}))

    sent()
