"""Routes by what a request says, by measured quality, by predicted wait; each also in `explain` and `simulate`."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.gateway.harness import GatewayHarness, Scripted, chat, late, play, said, whole

import tonnage
from tonnage.errors import InputError, TonnageError, UnknownName
from tonnage.gateway.file.described import ANYBODY, Gateway
from tonnage.gateway.file.reading import load_gateway
from tonnage.gateway.replayed import LoggedRequest
from tonnage.gateway.request_replay import RequestReplay, Speed
from tonnage.gateway.routing.choosing import Facts, considered, order
from tonnage.gateway.routing.health import FEWEST, DeploymentHealth, LoadLine
from tonnage.reports.rendering import render_report
from tonnage.settings import current_settings

PRICE = {"input_usd_per_million": 1.0, "output_usd_per_million": 2.0, "source": "a test"}
TOPIC = {"deployment": "judge", "above": 0.6, "within": "300ms"}
RULES = [
    {"classifier": "topic", "labels": ["code"], "deployments": ["coder"]},
    {"languages": ["de", "fr"], "deployments": ["abroad"]},
    {"words": ["invoice", "unpaid bill"], "deployments": ["desk"]},
    {"languages": ["unknown"], "deployments": ["guess"]},
]


def deployment(**more: Any) -> dict[str, Any]:
    return {"url": "http://127.0.0.1:9/v1", "model": "m", "price": PRICE, **more}


def written(folder: Path, deployments: dict[str, Any], route: dict[str, Any], **more: Any) -> Path:
    names = [name for name in deployments if name != "judge"]
    path = folder / "gateway.yaml"
    content = {"deployments": deployments, "routes": {"chat": {"deployments": names} | route}, **more}
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def loaded(folder: Path, deployments: dict[str, Any], route: dict[str, Any], **more: Any) -> Gateway:
    def unused(_: object) -> Any:
        raise AssertionError

    path = written(folder, deployments, route, **more)
    return load_gateway(path, home=folder, environment={}, catalog_rates=unused, planned_speeds=unused)


def labelled(*labels: tuple[str, float]) -> Any:
    return whole([[{"label": label, "score": score} for label, score in labels]])


# what a request says


def test_rules_on_language_words_and_a_classifier_choose_the_deployment(tmp_path: Path) -> None:
    """The first rule that holds; the client is told why; the classifier's request is a row of the ledger."""

    async def scenario() -> None:
        names = ("main", "coder", "abroad", "desk", "guess")
        judge = Scripted(always=labelled(("code", 0.1), ("talk", 0.9)))
        async with judge:
            ups = {name: await Scripted(always=said()).__aenter__() for name in names}
            route = {"deployments": ["main"], "rules": RULES}
            async with GatewayHarness(
                tmp_path, ups | {"judge": judge}, route=route, classifiers={"topic": TOPIC}
            ) as harness:
                asked = {
                    "Wie bezahle ich meine Rechnung?": "abroad", "How do I pay an  INVOICE of mine?": "desk",
                    "How do I pay for it?": "main", "invoices 42": "guess", "ok": "guess",
                }  # fmt: skip
                for text, where in asked.items():
                    answer = await harness.ask(chat(text))
                    assert answer.header("x-tonnage-deployment") == where, text
                    assert "topic=none" in str(answer.header("x-tonnage-class"))
                assert answer.header("x-tonnage-class") == "language=unknown; topic=none"
                judge.answers.append(labelled(("code", 0.7), ("talk", 0.3)))
                answer = await harness.ask(chat("Wie sortiere ich in Python eine Liste?"))
                assert answer.header("x-tonnage-deployment") == "coder"
                assert answer.header("x-tonnage-class") == "language=de; topic=code"
                assert judge.seen[-1]["inputs"] == ["Wie sortiere ich in Python eine Liste?"]
                rows = await harness.rows()
                assert sum(row["outcome"] == "classifier" for row in rows) == 6
                assert {row["deployment"] for row in rows if row["outcome"] == "classifier"} == {"judge"}
                counted = {
                    dict(labels)["met"]: cell[0] for (name, labels), cell in harness.measures.counts.items()
                    if name == "tonnage_gateway_classified_total" and dict(labels)["by"] == "topic"
                }  # fmt: skip
                assert counted == {"none": 5, "label": 1}
                times = harness.measures.times["tonnage_gateway_classifying_seconds", (("classifier", "topic"),)]
                assert sum(times[:-1]) == 6
            for one in ups.values():
                await one.__aexit__()

    play(scenario())


@pytest.mark.parametrize(("fails", "status"), [("unclassified", 200), ("refuse", 503)])
@pytest.mark.parametrize("answer", [late(labelled(("code", 1.0)), 1.0), whole({"error": "none"}, 500)])
def test_a_classifier_that_is_late_or_broken_is_told_and_not_guessed(
    tmp_path: Path, fails: str, status: int, answer: Any
) -> None:
    """No rule on its labels holds, or the request is refused: as the file says. What it may have cost is held."""

    async def scenario() -> None:
        async with Scripted(always=said()) as main, Scripted(always=said()) as coder, Scripted(answer) as judge:
            route = {"deployments": ["main"], "rules": RULES[:1]}
            topic = TOPIC | {"fails": fails}
            ups = {"main": main, "coder": coder, "judge": judge}
            async with GatewayHarness(tmp_path, ups, route=route, classifiers={"topic": topic}) as harness:
                got = await harness.ask(chat("write a loop in Rust"))
                assert got.status == status
                if status == 200:
                    assert got.header("x-tonnage-deployment") == "main"
                    assert got.header("x-tonnage-class") == "topic=unknown"
                else:
                    error = json.loads(got.body)["error"]
                    assert error["code"] == "classifier_failed"
                    assert "topic" in error["message"]
                    assert not main.seen
                rows = [row for row in await harness.rows() if row["deployment"] == "judge"]
                assert len(rows) == 1
                assert rows[0]["outcome"] in ("given-up", "status-500")

    play(scenario())


def test_a_request_without_a_text_asks_no_classifier(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Scripted(always=said()) as main, Scripted(always=said()) as coder, Scripted() as judge:
            route = {"deployments": ["main"], "rules": RULES[:1]}
            ups = {"main": main, "coder": coder, "judge": judge}
            async with GatewayHarness(tmp_path, ups, route=route, classifiers={"topic": TOPIC}) as harness:
                picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
                got = await harness.ask(chat() | {"messages": [{"role": "user", "content": [picture]}]})
                assert got.header("x-tonnage-class") == "topic=none"
                assert not judge.seen

    play(scenario())


def test_rules_of_the_route_that_it_falls_back_to_hold_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Scripted(always=whole({}, 500)) as broken, Scripted(always=said()) as de, Scripted() as plain:
            more = {"second": {"deployments": ["plain"], "rules": [{"languages": ["de"], "deployments": ["de"]}]}}
            route = {"deployments": ["broken"], "fallback": "second"}
            ups = {"broken": broken, "de": de, "plain": plain}
            async with GatewayHarness(tmp_path, ups, route=route, more=more) as harness:
                got = await harness.ask(chat("Ich habe eine Frage zu der Rechnung"))
                assert got.header("x-tonnage-deployment") == "de"

    play(scenario())


@pytest.mark.parametrize(
    ("said_wrong", "message"),
    [
        ({"rules": [{"languages": ["xx"], "deployments": ["a"]}]}, "xx"),
        ({"rules": [{"classifier": "topik", "labels": ["code"], "deployments": ["a"]}]}, "topik"),
        ({"rules": [{"classifier": "topic", "deployments": ["a"]}]}, "labels"),
        ({"rules": [{"labels": ["code"], "deployments": ["a"]}]}, "classifier"),
        ({}, "named by no rule"),
    ],
)
def test_rules_that_cannot_hold_are_refused(tmp_path: Path, said_wrong: dict[str, Any], message: str) -> None:
    ups = {"a": deployment(), "judge": deployment()}
    with pytest.raises(TonnageError, match=message):
        loaded(tmp_path, ups, said_wrong, classifiers={"topic": TOPIC})


def test_explain_says_which_rule_holds_and_what_a_classifier_would_decide(tmp_path: Path) -> None:
    ups = {name: deployment() for name in ("main", "coder", "abroad", "desk", "guess", "judge")}
    path = written(tmp_path, ups, {"deployments": ["main"], "rules": RULES}, classifiers={"topic": TOPIC})
    request = tmp_path / "request.json"
    request.write_text(json.dumps(chat("Wie sortiere ich in Python eine Liste?")), encoding="utf-8")
    settings = current_settings(home=tmp_path)
    plain = tonnage.explain_request(path, request, settings=settings)
    assert plain.found.order == ("abroad",)
    assert [one.taken for one in plain.found.rules] == [False, True, False, False]
    page = " ".join(render_report(plain.report(), "table").split())
    assert "topic is asked when it is sent: suppose with --label topic=LABEL" in page
    assert "language" in page
    supposed = tonnage.explain_request(path, request, labels=[("topic", "code")], settings=settings)
    assert supposed.found.order == ("coder",)
    for wrong in (("topik", "code"), ("topic", "codes")):
        with pytest.raises(UnknownName):
            tonnage.explain_request(path, request, labels=[wrong], settings=settings)


def test_simulate_follows_the_classes_that_the_log_has(tmp_path: Path) -> None:
    ups = {name: deployment() for name in ("main", "coder", "abroad", "desk", "guess", "judge")}
    path = written(tmp_path, ups, {"deployments": ["main"], "rules": RULES}, classifiers={"topic": TOPIC})
    log = tmp_path / "log.csv"
    log.write_text(
        "at_s,key,route,input_tokens,output_tokens,language,words,labels\n"
        "0,none,chat,10,10,de,,topic=code\n1,none,chat,10,10,de,,topic=talk\n2,none,chat,10,10,en,invoice,\n"
        "3,none,chat,10,10,en,,\n4,none,chat,10,10,,,\n",
        encoding="utf-8",
    )
    found = tonnage.simulate_gateway(path, log, settings=current_settings(home=tmp_path)).found
    assert found.requests == {"coder": 1, "abroad": 1, "desk": 1, "main": 1, "guess": 1, "judge": 5}


# shares and prompt caches


def test_weighted_routes_share_requests_by_weight(tmp_path: Path) -> None:
    """First tries follow the weights, and each request has all deployments to fall back on."""
    ups = {"a": deployment(), "b": deployment(), "c": deployment()}
    gateway = loaded(tmp_path, ups, {"policy": "weighted", "weights": {"a": 6, "b": 3, "c": 1}})
    healths, random, first = {name: DeploymentHealth() for name in ups}, Random(7), dict.fromkeys(ups, 0)
    for _ in range(4000):
        found = order(gateway.routes["chat"], Facts("chat", 10, ANYBODY), gateway, healths, 0.0, random)
        assert sorted(found) == ["a", "b", "c"]
        first[found[0]] += 1
    assert [first[name] / 4000 for name in "abc"] == pytest.approx([0.6, 0.3, 0.1], abs=0.03)


def test_a_sticky_route_keeps_a_prefix_at_one_deployment(tmp_path: Path) -> None:
    """Prefixes spread over deployments; where one is not to be used, its prefixes alone move."""
    ups = {name: deployment() for name in "abcd"}
    gateway = loaded(tmp_path, ups, {"policy": "in-order", "sticky": True})
    healths = {name: DeploymentHealth() for name in ups}

    def first(prefix: bytes, *tried: str) -> str:
        facts = Facts("chat", 10, ANYBODY, prefix=prefix)
        return order(gateway.routes["chat"], facts, gateway, healths, 0.0, Random(0), tried=tried)[0]

    prefixes = [b"system prompt %d" % number for number in range(400)]
    at = {prefix: first(prefix) for prefix in prefixes}
    assert {first(prefix) == at[prefix] for prefix in prefixes} == {True}
    shares = [list(at.values()).count(name) for name in ups]
    assert min(shares) > 60, shares  # 100 each on average
    without = {prefix: first(prefix, "a") for prefix in prefixes}
    assert {prefix for prefix in prefixes if without[prefix] != at[prefix]} == {p for p in prefixes if at[p] == "a"}


# measured quality


def evaluation(folder: Path, name: str, **metrics: float) -> dict[str, str]:
    document = {"schema": "tonnage/evaluation@1", "run": name, "task": "text-classification", "split": "test",
                "samples": 500, "metrics": metrics}  # fmt: skip
    (folder / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    return {"file": f"{name}.json", "metric": next(iter(metrics))}


def test_a_floor_leaves_out_what_evaluations_put_below_it(tmp_path: Path) -> None:
    ups = {
        "good": deployment(quality_from=evaluation(tmp_path, "good", accuracy=0.91)),
        "bad": deployment(quality_from=evaluation(tmp_path, "bad", accuracy=0.79)),
        "fair": deployment(quality=0.85),
    }
    gateway = loaded(tmp_path, ups, {"quality": 0.8})
    healths = {name: DeploymentHealth() for name in ups}
    facts = Facts("chat", 10, ANYBODY)
    assert order(gateway.routes["chat"], facts, gateway, healths, 0.0, Random(0)) == ["good", "fair"]
    seen = {one.name: one.why_not for one in considered(gateway.routes["chat"], facts, gateway, healths, 0.0)}
    assert seen == {"good": None, "bad": "quality", "fair": None}
    score = gateway.deployments["good"].quality
    assert score is not None
    assert (score.value, score.metric, score.samples) == (0.91, "accuracy", 500)
    document = tonnage.check_gateway(tmp_path / "gateway.yaml", settings=current_settings(home=tmp_path)).report()
    assert document.document()["deployments"][0]["quality_metric"] == "accuracy"


def test_an_unknown_quality_is_refused_unless_it_is_allowed(tmp_path: Path) -> None:
    ups = {"good": deployment(quality=0.9), "new": deployment(), "rare": deployment()}
    for route in ({"deployments": ["good", "new"]}, {
        "deployments": ["good"], "rules": [{"input_tokens_above": 10, "deployments": ["rare"]}]
    }, {"deployments": ["good"], "canary": {"deployment": "new"}}):  # fmt: skip
        with pytest.raises(TonnageError, match=r"the quality of (new|rare) is not known"):
            loaded(tmp_path, ups, {"quality": 0.8, **route})
    gateway = loaded(tmp_path, ups, {"quality": 0.8, "quality_unknown": "allow"})
    healths = {name: DeploymentHealth() for name in ups}
    found = order(gateway.routes["chat"], Facts("chat", 10, ANYBODY), gateway, healths, 0.0, Random(0))
    assert found == ["good", "new", "rare"]


def test_scores_of_two_measures_are_not_compared(tmp_path: Path) -> None:
    ups = {
        "a": deployment(quality_from=evaluation(tmp_path, "a", accuracy=0.9)),
        "b": deployment(quality_from=evaluation(tmp_path, "b", macro_f1=0.9)),
    }
    with pytest.raises(TonnageError, match="accuracy of a and macro_f1 of b"):
        loaded(tmp_path, ups, {"quality": 0.8})
    loaded(tmp_path, ups, {})  # without a floor nothing is compared


def test_a_bench_gives_scores_by_engine_and_data(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"name": name, "data": data, "quality": None if value is None else {"value": value}}
        for name, data, value in (("xgb", "flights", 0.71), ("xgb", "loans", 0.8), ("cat", "flights", None))
    ]
    document = {"schema": "tonnage/engine-bench@1", "engines": rows,
                "data": [{"name": name, "metric": "auc"} for name in ("flights", "loans")]}  # fmt: skip
    (tmp_path / "bench.json").write_text(json.dumps(document), encoding="utf-8")

    def score(**more: str) -> float | None:
        asked = {"file": "bench.json", "metric": "auc", **more}
        quality = loaded(tmp_path, {"a": deployment(quality_from=asked)}, {}).deployments["a"].quality
        return None if quality is None else quality.value

    assert score(of="xgb", data="loans") == 0.8
    for wrong, message in (
        ({"of": "xgb"}, "2 scores"), ({"of": "lgb"}, "no score"), ({}, "no score"), ({"of": "cat"}, "did not end"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            score(**wrong)


@pytest.mark.parametrize(
    ("content", "asked", "message"),
    [
        ("{", {}, "is not JSON"),
        ('{"schema": "tonnage/plan@1"}', {}, "not an evaluation"),
        ("[]", {}, "not an evaluation"),
        ('{"schema": "tonnage/evaluation@1"}', {}, "not whole"),
        ('{"schema": "tonnage/evaluation@1", "metrics": {"macro_f1": 0.5}}', {}, "has no accuracy"),
        ("{}", {"metric": "rmse"}, "less is better"),
        (None, {}, "cannot be read"),
    ],
)
def test_files_that_are_no_evaluations_are_refused(
    tmp_path: Path, content: str | None, asked: dict[str, str], message: str
) -> None:
    if content is not None:
        (tmp_path / "scores.json").write_text(content, encoding="utf-8")
    one = deployment(quality_from={"file": "scores.json", "metric": "accuracy", **asked})
    with pytest.raises(InputError, match=message):
        loaded(tmp_path, {"a": one}, {})


# predicted wait


def test_a_line_tells_shared_machines_from_those_that_are_not() -> None:
    """Seconds that grow with requests in flight, and seconds that do not; never below zero, never more than shared."""
    draw, shared, apart, odd = Random(1), LoadLine(), LoadLine(), LoadLine()
    for _ in range(300):
        under_way = draw.randint(1, 8)
        shared.add(under_way, 0.01 * under_way * draw.uniform(0.8, 1.2))
        apart.add(under_way, 0.05 * draw.uniform(0.8, 1.2))
        odd.add(under_way, 0.05 / under_way)
    assert shared.at(16) == pytest.approx(0.16, rel=0.2)
    assert shared.at(1) == pytest.approx(0.01, abs=0.01)
    assert apart.at(16) == pytest.approx(0.05, rel=0.25)
    assert odd.at(100) == odd.at(1)


def test_more_at_a_time_than_ever_seen_is_taken_as_shared() -> None:
    line = LoadLine()
    for _ in range(FEWEST + 5):
        line.add(2, 0.1)
    assert (line.at(1), line.at(2), line.at(6)) == pytest.approx((0.1, 0.1, 0.3))


def test_the_wait_counts_those_that_wait_for_a_place() -> None:
    """Four places, a second each: with four under way the next one waits a quarter of a second, with eight 1.25 s."""
    health = DeploymentHealth()
    health.expect(token_s=0.01, output_tokens=100)
    assert health.answer_s(100.0, places=None) == pytest.approx(1.0)
    for _ in range(3):
        health.begin()
    spread = DeploymentHealth()
    for _ in range(40):
        for under_way in (1, 2, 3, 4):
            spread.token_line.add(under_way, 0.01)
    spread.output_tokens, spread.under_way = 100.0, 3
    assert spread.answer_s(100.0, places=4) == pytest.approx(1.0)
    spread.under_way = 4
    assert spread.answer_s(100.0, places=4) == pytest.approx(1.25)
    spread.under_way = 8
    assert spread.answer_s(100.0, places=4) == pytest.approx(2.25)
    assert spread.answer_s(0.0, places=4) is None


def test_the_fastest_policy_goes_by_predicted_wait_and_tries_the_unknown_one_at_a_time(tmp_path: Path) -> None:
    gateway = loaded(tmp_path, {"a": deployment(), "b": deployment()}, {"policy": "fastest"})
    healths = {name: DeploymentHealth() for name in ("a", "b")}
    facts, route = Facts("chat", 10, ANYBODY), gateway.routes["chat"]

    def first() -> str:
        return order(route, facts, gateway, healths, 0.0, Random(0))[0]

    healths["a"].expect(token_s=0.01, output_tokens=100)
    assert first() == "b"  # nothing is known of it: tried
    healths["b"].begin()
    assert first() == "a"  # by one request at a time
    healths["b"].succeed(0.1, 100, 0.5)
    assert first() == "b"  # twice as fast
    for _ in range(2):
        healths["b"].begin()
    assert first() == "a"  # with three at a time it would be slower, as far as is known


def test_predicted_waits_shorten_the_tail_of_a_replayed_log(tmp_path: Path) -> None:
    """Three deployments of two places, of which the last is the fastest: more is answered than in the file's order, and
    the slowest twentieth sooner."""
    ups = {name: deployment(at_once=2) for name in ("slow", "fair", "fast")}
    speeds = {name: Speed(first_byte_s=0.1, per_output_token_s=each, output_tokens=100.0)
              for name, each in (("slow", 0.05), ("fair", 0.02), ("fast", 0.01))}  # fmt: skip
    p95 = {}
    for policy in ("fastest", "in-order"):
        replay = RequestReplay(loaded(tmp_path, ups, {"policy": policy}), speeds, Random(0))
        for number in range(300):
            one = LoggedRequest(at_s=number * 0.6, key="none", route="chat", input_tokens=10, output_tokens=100)
            replay.request(one, one.at_s)
        found = replay.finish()
        assert found.unserved == 0
        p95[policy] = found.latencies_s[285]
    assert p95["fastest"] < 0.5 * p95["in-order"], p95


def test_the_cheapest_that_keeps_its_promise_of_a_whole_answer(tmp_path: Path) -> None:
    cheap = {"input_usd_per_million": 0.1, "output_usd_per_million": 0.2}
    ups = {"slow": deployment(price=cheap), "quick": deployment()}
    gateway = loaded(tmp_path, ups, {"policy": "cheapest", "answer": "5s"})
    healths = {name: DeploymentHealth() for name in ups}
    facts, route = Facts("chat", 10, ANYBODY), gateway.routes["chat"]
    assert order(route, facts, gateway, healths, 0.0, Random(0)) == ["slow", "quick"]  # nothing is known
    healths["slow"].expect(token_s=0.1, output_tokens=100)
    healths["quick"].expect(token_s=0.02, output_tokens=100)
    assert order(route, facts, gateway, healths, 0.0, Random(0)) == ["quick", "slow"]
