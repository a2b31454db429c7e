"""Gateway files: what is wrong is said with its key, before anything starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tonnage
from tonnage.errors import InputError, TonnageError, UnknownName
from tonnage.gateway.file.reference import render_gateway_reference
from tonnage.gateway.request_replay import DEAREST, QUEUE_FULL, QUEUE_LATE, Simulated

PRICE = {"input_usd_per_million": 1, "output_usd_per_million": 2}
ONE = {"url": "http://127.0.0.1:1/v1", "model": "m", "price": PRICE}


def written(folder: Path, **keys: Any) -> Path:
    path = folder / "gateway.yaml"
    path.write_text(json.dumps({"deployments": {"a": ONE}, "routes": {"chat": {"deployments": ["a"]}}, **keys}))
    return path


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"deployments": {"a": {"url": ONE["url"], "model": "m"}}}, "is not taken as zero"),
        ({"deployments": {"a": ONE | {"catalog_price": "bedrock/x"}}}, "cannot be given together with price"),
        ({"deployments": {"a": ONE | {"url": "ftp://x"}}}, "not a URL of a service"),
        ({"deployments": {"a": ONE | {"sign_in": {"kind": "bearer"}}}}, "is missing"),
        ({"routes": {"chat": {"deployments": ["b"]}}}, "no deployment is named 'b'"),
        ({"routes": {"chat": {"deployments": ["a"], "fallback": "x"}}}, "no route is named 'x'"),
        (
            {"routes": {"x": {"deployments": ["a"], "fallback": "y"}, "y": {"deployments": ["a"], "fallback": "x"}}},
            "round in a circle: x -> y -> x",
        ),
        ({"routes": {"chat": {"deployments": ["a"], "policy": "weighted"}}}, "must name each deployment"),
        ({"routes": {"chat": {"deployments": ["a"], "quality": 0.5}}}, "the quality of a is not known"),
        ({"routes": {"chat": {"deployments": ["a"], "hedge": {}}}}, "needs a second deployment"),
        ({"queue": {"place": 3}}, "places"),
        ({"listen": {"host": "0.0.0.0"}}, "without a key"),
        ({"budgets": [{"of": "team:x", "usd": 1}]}, "no team is named 'x'"),
        ({"budgets": [{"usd": -1}]}, "a number above 0"),
        ({"limits": [{"of": "total"}]}, "limits nothing"),
        ({"cache": {}}, "cache"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    """With the file, the line and what to write instead."""
    with pytest.raises(InputError) as error:
        tonnage.check_gateway(written(tmp_path, **keys))
    assert said in f"{error.value} {error.value.hint}"
    assert "gateway.yaml:1" in str(error.value)


def test_an_unknown_key_of_a_named_entry_is_held_to_that_entry(tmp_path: Path) -> None:
    """The hint lists the keys of a price of a deployment, and no key of another level."""
    with pytest.raises(TonnageError, match="unknown key 'input'") as caught:
        tonnage.check_gateway(written(tmp_path, deployments={"a": ONE | {"price": PRICE | {"input": 1}}}))
    assert "known here: input_usd_per_million, output_usd_per_million" in (caught.value.hint or "")


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "examples" / "gateway").glob("*.gateway.yaml")))
def test_the_examples_are_accepted(path: Path) -> None:
    """Each as it stands, without an account."""
    assert tonnage.check_gateway(path).found.routes


def test_a_key_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that is not set is an error, never a key that lets everybody in."""
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(InputError, match="env:NO_SUCH_KEY is empty"):
        tonnage.check_gateway(written(tmp_path, keys={"me": {"key": "env:NO_SUCH_KEY"}}))


def test_prices_of_the_catalog(tmp_path: Path) -> None:
    """A model of the catalog has its prices with their source; one that is not there has the nearest names."""
    named = "bedrock/amazon.nova-lite-v1:0"
    deployments = {"a": {"url": ONE["url"], "model": "m", "catalog_price": named}}
    found = tonnage.check_gateway(written(tmp_path, deployments=deployments)).found
    rates = found.deployments["a"].rates
    assert (rates.tiers[0].input_pico, rates.tiers[0].output_pico) == (60_000, 240_000)
    assert rates.read_on is not None
    deployments["a"]["catalog_price"] = named + "x"
    with pytest.raises(UnknownName) as error:
        tonnage.check_gateway(written(tmp_path, deployments=deployments))
    assert named in (error.value.hint or "")


@pytest.mark.heavy
def test_the_speed_of_an_own_machine_is_planned(tmp_path: Path) -> None:
    """Input and output at planned speed cost together what a request takes of the machine's hour."""
    service = {"kind": "serve", "model": "llama3.1-8b", "constraints": {"gpus": "H100", "providers": "aws"},
               "serve": {"rate_per_s": 5, "input_tokens": 1000, "output_tokens": 200}}  # fmt: skip
    (tmp_path / "serve.yaml").write_text(json.dumps(service))
    own = {"usd_per_hour": 3.6, "plan": "serve.yaml"}
    path = written(tmp_path, deployments={"a": {"url": ONE["url"], "model": "m", "own": own}})
    tier = tonnage.check_gateway(path).found.deployments["a"].rates.tiers[0]
    option = tonnage.plan(service).options[0]
    per_s = dict(option.run.rates)["requests_per_s"].value / option.count
    assert (1000 * tier.input_pico + 200 * tier.output_pico) / 1e12 == pytest.approx(0.001 / per_s, rel=0.01)
    assert tier.output_pico > tier.input_pico > 0


def test_explain_and_simulate(tmp_path: Path) -> None:
    """Nothing is sent; the same log costs less under the cheapest policy."""
    dear = ONE | {"price": {"input_usd_per_million": 10, "output_usd_per_million": 20}}
    path = written(
        tmp_path, deployments={"dear": dear, "a": ONE}, routes={"chat": {"deployments": ["dear", "a"]}},
        budgets=[{"usd": 0.05}], store=str(tmp_path / "accounts.db"),
    )  # fmt: skip
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"model": "chat", "max_tokens": 100, "messages": []}))
    found = tonnage.explain_request(path, request).found
    assert found.order == ("dear", "a")
    assert found.held_pico["dear"] == 10 * found.held_pico["a"]
    assert all(0 < one.usd_pico <= found.held_pico[one.name] for one in found.candidates)
    log = tmp_path / "log.csv"
    log.write_text(
        "at_s,key,route,input_tokens,output_tokens\n" + "".join(f"{one},x,chat,1000,100\n" for one in range(20))
    )
    before = tonnage.simulate_gateway(path, log).found
    after = tonnage.simulate_gateway(path, log, tonnage.GatewaySimulateOptions(policy="cheapest")).found
    assert before.requests == {"dear": 4}
    assert sum(before.refused.values()) == 16
    assert (after.requests, after.refused) == ({"a": 20}, {})
    log.write_text("at_s,key,route,input_tokens,output_tokens\n1,x,chat,-5,1\n")
    with pytest.raises(TonnageError, match=r"log\.csv:2: negative tokens"):
        tonnage.simulate_gateway(path, log)
    log.write_text("at,key,route,input_tokens,output_tokens\n1,x,chat,5,1\n")
    with pytest.raises(TonnageError, match=r"log\.csv:2: there is no at_s"):
        tonnage.simulate_gateway(path, log)
    request.write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        tonnage.explain_request(path, request)


def test_simulate_waits_and_checks(tmp_path: Path) -> None:
    """A deployment of two places and half a second an answer, asked eight times at once: without a queue six are not
    taken; with one of four places they are taken two by two, the higher priority first, and two are refused; a check
    by another deployment costs its tokens and its time; a dearer request than its route takes is refused."""
    slow = ONE | {"at_once": 2, "first_byte_ms": 500}
    judge = ONE | {"first_byte_ms": 100}
    log = tmp_path / "log.csv"

    def run(requests: int = 8, tokens: int = 1000, **file: Any) -> Simulated:
        route = file.pop("route", {})
        path = written(
            tmp_path, deployments={"a": slow, "judge": judge}, routes={"chat": {"deployments": ["a"]} | route},
            store=str(tmp_path / "accounts.db"), **file,
        )  # fmt: skip
        log.write_text("at_s,key,route,input_tokens,output_tokens\n" + f"0,x,chat,{tokens},0\n" * requests)
        found: Simulated = tonnage.simulate_gateway(path, log).found
        return found

    alone = run()
    assert (alone.requests, alone.unserved, alone.waits_s) == ({"a": 2}, 6, ())
    queued = run(queue={"places": 4, "longest": "10s"})
    assert (queued.requests, queued.refused, queued.unserved) == ({"a": 6}, {QUEUE_FULL: 2}, 0)
    assert queued.waits_s == pytest.approx((0.5, 0.5, 1.0, 1.0))
    assert queued.latencies_s == pytest.approx((0.5, 0.5, 1.0, 1.0, 1.5, 1.5))
    hurried = run(queue={"places": 4, "longest": "600ms"})
    assert (hurried.requests, hurried.refused) == ({"a": 4}, {QUEUE_FULL: 2, QUEUE_LATE: 2})
    rule = {"attacks": {"detect": "classifier", "deployment": "judge", "labels": "X"}}
    checked = run(2, guardrails=rule, route={"guardrails": ["attacks"]})
    assert checked.requests == {"a": 2, "judge": 2}
    assert checked.latencies_s == pytest.approx((0.6, 0.6))
    assert checked.usd_pico["judge"] == checked.usd_pico["a"]
    dear = run(2, 10**6, route={"most_usd_per_request": 0.001})
    assert (dear.requests, dear.refused) == ({}, {DEAREST: 2})


def test_explain_tells_checks_and_conduct(tmp_path: Path) -> None:
    """What each guardrail finds in the request, in their order; what was taken out is not found again; what a
    deployment decides is not known beforehand; queue, canary, hedge and shadow are told."""
    rules = {
        "keys": {"detect": "secrets", "act": "redact"}, "again": {"detect": "secrets"},
        "cards": {"detect": "pii", "kinds": "card"},
        "attacks": {"detect": "classifier", "deployment": "a", "labels": "X"},
        "answers": {"detect": "words", "words": "hello", "on": "output"},
    }  # fmt: skip
    route = {
        "deployments": ["a", "b"], "guardrails": list(rules), "canary": {"deployment": "c", "percent": 5},
        "hedge": {"after": "2s"}, "shadow": {"deployment": "c", "percent": 1},
    }  # fmt: skip
    path = written(
        tmp_path, deployments={"a": ONE, "b": ONE, "c": ONE}, routes={"chat": route}, guardrails=rules,
        queue={"places": 7}, store=str(tmp_path / "accounts.db"),
    )  # fmt: skip
    request = tmp_path / "request.json"
    text = "hello, 4111 1111 1111 1111, sk-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    request.write_text(json.dumps({"model": "chat", "messages": [{"role": "user", "content": text}]}))
    answer = tonnage.explain_request(path, request)
    checks = {one.rule.name: (one.found, one.refuses) for one in answer.found.checks}
    assert checks == {
        "keys": (("key",), False), "again": ((), False), "cards": (("card",), True), "attacks": (None, False),
    }  # fmt: skip
    said = json.loads(answer.to_json())
    assert [one["refuses"] for one in said["checks"]] == [False, False, True, False]
    assert (said["queue"], said["canary"]) == ({"places": 7, "longest_s": 10}, {"deployment": "c", "percent": 5})
    assert (said["hedge"]["after_s"], said["shadow"]["deployment"]) == (2, "c")
    assert text.split()[1] not in answer.to_json()


def test_the_reference_is_fresh() -> None:
    """docs/gateway-file.md is what the models render; `python -m tonnage.gateway.file.reference` writes it."""
    page = Path(__file__).parents[2] / "docs" / "gateway-file.md"
    assert page.read_text(encoding="utf-8") == render_gateway_reference()
