"""The encoder server's answers: those of the model itself, in the words of each API; and every fault as JSON."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tonnage.errors import InputError

Served = Callable[..., Any]
TEXTS = ["good film", "the film was bad bad bad", "it was", "who wrote the film the film the film the film"]


def run(work: Awaitable[Any]) -> Any:
    async def finish() -> Any:
        return await work

    return asyncio.run(finish())


def ask(served: Served, task: str, path: str, body: Any, **service: Any) -> httpx.Response:
    async def once() -> httpx.Response:
        async with served(task, **service) as client:
            answer: httpx.Response = await client.post(path, json=body)
            return answer

    found: httpx.Response = run(once())
    return found


def reference(folder: Path, head: str, *texts: Any) -> Any:
    """The model's own outputs for one text (or pair), by transformers."""
    import torch
    import transformers

    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
    given = tokenizer(*texts, return_tensors="pt")
    with torch.inference_mode():
        return getattr(transformers, head).from_pretrained(folder).eval()(**given)


def test_classification_is_the_models_own(served: Served, encoders: dict[str, Path]) -> None:
    """Labels with their probabilities, most probable first, whatever the batch-mates."""
    answers = ask(served, "classification", "/predict", {"inputs": TEXTS}).json()
    for text, answer in zip(TEXTS, answers, strict=True):
        logits = reference(encoders["classification"], "AutoModelForSequenceClassification", text).logits[0]
        expected = dict(zip(("neg", "pos", "none"), logits.softmax(-1).tolist(), strict=True))
        assert {one["label"]: one["score"] for one in answer} == pytest.approx(expected, abs=1e-5)
        scores = [one["score"] for one in answer]
        assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("service", [{}, {"runtime": "torch"}])
def test_embeddings_are_the_models_own(served: Served, encoders: dict[str, Path], service: dict[str, str]) -> None:
    """The mean over tokens, of length 1, by ONNX Runtime and PyTorch alike; OpenAI's form has the same in base64."""
    answers = ask(served, "embedding", "/embed", {"inputs": TEXTS}, **service).json()
    for text, answer in zip(TEXTS, answers, strict=True):
        mean = reference(encoders["embedding"], "AutoModel", text).last_hidden_state[0].mean(0).numpy()
        assert answer == pytest.approx((mean / np.linalg.norm(mean)).tolist(), abs=1e-5)
    body = {"input": TEXTS[0], "encoding_format": "base64", "model": "tiny"}
    shown = ask(served, "embedding", "/v1/embeddings", body, **service).json()
    packed = np.frombuffer(base64.b64decode(shown["data"][0]["embedding"]), "<f4")
    assert packed.tolist() == pytest.approx(answers[0], abs=1e-5)
    assert shown["usage"] == {"prompt_tokens": 4, "total_tokens": 4}


@pytest.mark.parametrize(("service", "within"), [({"weights": "fp16"}, 5e-3), ({"weights": "int8"}, 5e-2)])
def test_fewer_bits_are_near_the_models_own(served: Served, service: dict[str, str], within: float) -> None:
    """Embeddings of 16 and 8 bits point where those of 32 bits do."""
    whole = np.array(ask(served, "embedding", "/embed", {"inputs": TEXTS}).json())
    fewer = np.array(ask(served, "embedding", "/embed", {"inputs": TEXTS}, **service).json())
    assert ((whole * fewer).sum(axis=1) > 1 - within).all()
    assert not np.array_equal(whole, fewer)


def test_reranking_orders_by_the_models_score(served: Served, encoders: dict[str, Path]) -> None:
    """Each text is read together with the query; raw scores are the logits."""
    body = {"query": "who wrote it", "texts": TEXTS, "raw_scores": True, "return_text": True}
    answers = ask(served, "reranking", "/rerank", body).json()
    assert [one["score"] for one in answers] == sorted((one["score"] for one in answers), reverse=True)
    for one in answers:
        own = reference(encoders["reranking"], "AutoModelForSequenceClassification", "who wrote it", one["text"])
        assert one["score"] == pytest.approx(float(own.logits[0, 0]), abs=1e-5)
        assert TEXTS[one["index"]] == one["text"]


def test_a_question_is_answered_out_of_its_context(served: Served) -> None:
    """The span stands where it says, and never in the question."""
    context = "anna wrote the film"
    answer = ask(served, "question-answering", "/answer", {"question": "who wrote it", "context": context}).json()
    assert context[answer["start"] : answer["end"]] == answer["answer"]
    assert 0 < answer["score"] <= 1


def test_tokens_are_marked_where_they_stand(served: Served) -> None:
    """Each mark has its label, probability and place; special tokens have none."""
    text = "anna wrote the film"
    marks = ask(served, "token-classification", "/predict", {"inputs": text}).json()
    assert all(text[one["start"] : one["end"]] == one["word"] for one in marks)
    assert {one["entity"] for one in marks} <= {"PER"}


@pytest.mark.parametrize("weights", ["fp32", "int8"])
def test_an_answer_does_not_depend_on_its_batch_mates(served: Served, weights: str) -> None:
    """Alone and among others of all lengths: the same to 1e-6. int8 is computed one by one for that."""

    async def both() -> tuple[list[Any], list[Any]]:
        async with served("embedding", weights=weights, batch_tokens=512) as client:
            alone = [(await client.post("/embed", json={"inputs": text})).json()[0] for text in TEXTS]
            asked = [client.post("/embed", json={"inputs": [text, *TEXTS]}) for text in TEXTS]
            return alone, [answer.json()[0] for answer in await asyncio.gather(*asked)]

    alone, together = run(both())
    for one, other in zip(alone, together, strict=True):
        assert one == pytest.approx(other, abs=1e-6)


def test_open_inference_describes_and_answers(served: Served) -> None:
    """Metadata names the tensors; infer takes and gives them, by name and version."""

    async def calls() -> Any:
        async with served("classification") as client:
            tensor = {"name": "text", "datatype": "BYTES", "shape": [2, 1], "data": [["good film"], ["it was"]]}
            version = (await client.get("/info")).json()["version"]
            path = f"/v2/models/tiny/versions/{version}/infer"
            found = await client.post(path, json={"id": "a", "inputs": [tensor]})
            ready = [(await client.get(path)).status_code for path in ("/v2/health/ready", "/v2/models/tiny/ready")]
            return (await client.get("/v2/models/tiny")).json(), found.json(), ready

    metadata, found, ready = run(calls())
    assert metadata["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    assert ready == [200, 200]
    label, score = found["outputs"]
    assert (found["id"], label["shape"], score["shape"]) == ("a", [2], [2, 3])
    best = np.array(score["data"]).reshape(2, 3).argmax(axis=1)
    assert [("neg", "pos", "none")[at] for at in best] == label["data"]


TENSOR = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["it"]}


@pytest.mark.parametrize(
    ("path", "body", "status", "kind", "words"),
    [
        ("/embed", {"inputs": []}, 400, "invalid_request", "batch is empty"),
        ("/embed", {"inputs": [3]}, 400, "invalid_request", "inputs[0]"),
        ("/embed", {"inputs": None}, 400, "invalid_request", "a text or a list"),
        ("/embed", ["no object"], 400, "invalid_request", "a JSON object"),
        ("/embed", {"inputs": "it", "truncate": "yes"}, 400, "invalid_request", "true or false"),
        ("/embed", {"inputs": "it " * 100}, 413, "too_large", "102 tokens, the model takes 64"),
        ("/embed", {"inputs": ["it"] * 300}, 413, "too_large", "at most 256"),
        ("/embed", {"inputs": "x" * 9_000_000}, 413, "too_large", "bytes"),
        ("/rerank", {"query": "it", "texts": ["was"]}, 424, "model_type", "task is embedding"),
        ("/nowhere", {}, 404, "not_found", "no such path"),
        ("/v2/models/other/infer", {}, 404, "not_found", "served: tiny, "),
        ("/v2/models/tiny/versions/9/infer", {}, 404, "not_found", "version 9 is not loaded"),
        ("/v2/models/tiny/infer", {"inputs": [{**TENSOR, "datatype": "FP32"}]}, 400, "invalid_request", "BYTES"),
        ("/v2/models/tiny/infer", {"inputs": [{**TENSOR, "shape": [2]}]}, 400, "invalid_request", "`shape` says [2]"),
        ("/v2/models/tiny/infer", {"inputs": [{**TENSOR, "shape": [1, 3]}]}, 400, "invalid_request", "[n, 2]"),
        ("/v2/models/tiny/infer", {"inputs": []}, 400, "invalid_request", "one tensor"),
    ],
)
def test_bad_requests_are_named(served: Served, path: str, body: Any, status: int, kind: str, words: str) -> None:
    """The status, a word for programs and a sentence for people."""
    answer = ask(served, "embedding", path, body)
    assert (answer.status_code, answer.json()["error_type"]) == (status, kind)
    assert words in answer.json()["error"]


def test_a_long_text_is_cut_where_it_may_be(served: Served) -> None:
    """By the request, or by the server's own setting; the answer is that of the text's beginning."""
    cut = ask(served, "embedding", "/embed", {"inputs": "it " * 100, "truncate": True}).json()
    assert cut == ask(served, "embedding", "/embed", {"inputs": "it " * 90}, truncate=True).json()


def test_a_key_is_asked_for(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it 401, in OpenAI's shape on OpenAI's path; health and metrics need none."""
    monkeypatch.setenv("SERVED_KEY", "k1")

    async def calls() -> list[tuple[int, Any]]:
        async with served("embedding", key_variable="SERVED_KEY") as client:
            body = {"input": "it"}
            wrong = await client.post("/v1/embeddings", json=body, headers={"authorization": "Bearer k2"})
            right = await client.post("/v1/embeddings", json=body, headers={"authorization": "Bearer k1"})
            return [(one.status_code, one) for one in (wrong, right, await client.get("/health"))]

    (wrong, refused), (right, _), (health, _) = run(calls())
    assert (wrong, right, health) == (401, 200, 200)
    assert refused.json()["error"]["type"] == "unauthorized"


def test_a_variable_without_a_key_serves_nobody(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a key is asked for and the variable holds none, the server does not start: it would let everybody in."""
    monkeypatch.setenv("SERVED_KEY", " , ")
    with pytest.raises(InputError, match="SERVED_KEY holds no key"):
        ask(served, "embedding", "/embed", {"inputs": "it"}, key_variable="SERVED_KEY")


def test_a_context_without_tokens_is_a_bad_request(served: Served) -> None:
    """Not an error of the model."""
    answer = ask(served, "question-answering", "/answer", {"question": "who wrote it", "context": ""})
    assert (answer.status_code, answer.json()["error_type"]) == (400, "invalid_request")


def test_deadlines_come_in_a_header(served: Served) -> None:
    """One that cannot be read is a bad request; one that passes in the queue is 504."""

    async def calls() -> list[httpx.Response]:
        async with served("embedding", workers=1, batch_tokens=1) as client:
            wrong = await client.post("/embed", json={"inputs": "it"}, headers={"x-deadline-ms": "soon"})
            busy = [client.post("/embed", json={"inputs": TEXTS * 20}) for _ in range(3)]
            late = client.post("/embed", json={"inputs": "it"}, headers={"x-deadline-ms": "0.001"})
            return [wrong, *(await asyncio.gather(*busy, late))]

    wrong, *busy, late = run(calls())
    assert wrong.status_code == 400
    assert [one.status_code for one in busy] == [200] * 3
    assert (late.status_code, late.json()["error_type"]) == (504, "deadline_exceeded")


def test_metrics_count_what_was_answered(served: Served) -> None:
    """Requests by endpoint and status; unknown paths share one name."""

    async def calls() -> str:
        async with served("embedding") as client:
            await client.post("/embed", json={"inputs": TEXTS})
            await client.post("/a", json={})
            await client.post("/b", json={})
            return (await client.get("/metrics")).text

    text = run(calls())
    assert 'tonnage_encoder_requests_total{endpoint="/embed",status="200"} 1.0' in text
    assert 'tonnage_encoder_requests_total{endpoint="other",status="404"} 2.0' in text
    assert "tonnage_encoder_texts_total 4.0" in text
    assert "tonnage_encoder_texts_waiting 0.0" in text
