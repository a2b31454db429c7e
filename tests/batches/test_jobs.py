"""Batches as jobs of Bedrock and of OpenAI's batch API, against servers of the documented life cycle."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.killed import Killed

pytest.importorskip("fsspec")
pytest.importorskip("boto3")

from tests.batches.job_servers import Bedrock, OpenAI
from tests.batches.test_object_output import Memory

import tonnage
from tonnage import BatchOptions
from tonnage.api import job_batches
from tonnage.api.job_batches import catalog_prices
from tonnage.batches import bedrock_jobs, jobs
from tonnage.batches.outputs import FileOutput
from tonnage.errors import InputError, PlanRefused, TonnageError

ROLE = "arn:aws:iam::123456789012:role/batch"
MODEL = "amazon.nova-lite-v1:0"


def write_rows(folder: Path, count: int, *more: str, **said: Any) -> Path:
    file = folder / "in.jsonl"
    rows = [json.dumps({"id": f"r{at}", "text": f"text {at}", "max_tokens": 1, **said}) for at in range(count)]
    file.write_text("\n".join([*rows, *more]) + "\n")
    return file


def ids(out: Path) -> Counter[str]:
    return Counter(json.loads(line)["custom_id"] for line in out.read_text().splitlines())


@pytest.fixture
def bedrock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bedrock]:
    store = Memory()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setattr(job_batches, "S3BatchObjects", lambda _: store)
    monkeypatch.setattr(bedrock_jobs.BedrockJobs, "most_rows", 150)
    with Bedrock(store) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK", server.url)
        client = bedrock_jobs.make_client()  # 0.3 s to make
        monkeypatch.setattr(bedrock_jobs, "make_client", lambda: client)
        yield server
        client.close()


def on_bedrock(**said: Any) -> BatchOptions:
    given = {"jobs_at": "s3://bkt/jobs", "role": ROLE, "model": MODEL, "poll_s": 0.001} | said
    return BatchOptions(on="bedrock", **given)


@pytest.fixture
def openai(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAI]:
    monkeypatch.setenv("KEY", "right")
    with OpenAI() as server:
        yield server


def on_openai(server: OpenAI, **said: Any) -> BatchOptions:
    return BatchOptions(on="openai-batch", url=server.url, api_key_env="KEY", model="m", poll_s=0.001, **said)


def test_rows_go_through_jobs_of_bedrock(bedrock: Bedrock, tmp_path: Path) -> None:
    """In jobs of 100 to 150; refused and bad rows apart; cost by the catalog; the same call again asks nothing."""
    bad = ['{"id": "x", "text": "refuse this"}', "{", json.dumps({"custom_id": "seeded", "url": "/v1/chat/completions",
           "body": {"messages": [{"role": "user", "content": "a"}], "seed": 1}})]  # fmt: skip
    source, out = write_rows(tmp_path, 299, *bad), tmp_path / "out.jsonl"
    found = tonnage.batch(source, out, on_bedrock()).found
    assert (found.progress.answered, found.progress.failed, found.ending) == (299, 3, "done")
    assert ids(out) == {f"r{at}": 1 for at in range(299)}
    answer = json.loads(out.read_text().splitlines()[-1])["response"]["body"]
    assert answer["choices"][0]["message"]["content"].startswith("you said text")
    said = [json.loads(line)["error"] for line in (tmp_path / "out.jsonl.errors.jsonl").read_text().splitlines()]
    assert {one["message"] for one in said} >= {"refused as asked", "Bedrock's batch jobs do not take seed"}
    listed = catalog_prices(MODEL)
    assert listed is not None
    assert found.progress.usd == pytest.approx(float(299 * (2 * listed[0] + listed[1]) / 10**6))
    assert len(bedrock.jobs) == 3
    assert tonnage.batch(source, out, on_bedrock()).found.progress.answered == 0
    assert bedrock.records.total() == 300
    assert not (tmp_path / "out.jsonl.jobs").exists()


CALLS = ((jobs.JobNotes, "save"), (bedrock_jobs.BedrockJobs, "submit"), (FileOutput, "write"))


def dies_at(patched: pytest.MonkeyPatch, moment: int) -> None:
    """The process ends at that moment: before or after one of the calls that change something."""
    count = [0]

    def passed() -> None:
        count[0] += 1
        if count[0] == moment:
            raise Killed

    def deadly(whole: Any) -> Any:
        def call(*given: Any, **said: Any) -> Any:
            passed()
            found = whole(*given, **said)
            passed()
            return found

        return call

    for place, name in CALLS:
        patched.setattr(place, name, deadly(getattr(place, name)))


def test_a_client_killed_anywhere_finds_its_jobs(
    bedrock: Bedrock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after a note is written, a job handed over, answers recorded: each record is asked once."""
    source = write_rows(tmp_path, 100)
    monkeypatch.setattr(jobs, "RECORDED_AT_ONCE", 60)
    for moment in range(1, 100):
        out = tmp_path / f"out-{moment}.jsonl"
        bedrock.records.clear()
        with pytest.MonkeyPatch.context() as patched:
            dies_at(patched, moment)
            try:
                tonnage.batch(source, out, on_bedrock(poll_s=1e-6))
                break
            except Killed:
                pass
        tonnage.batch(source, out, on_bedrock(poll_s=1e-6)).checked()
        assert ids(out) == {f"r{at}": 1 for at in range(100)}
        assert set(bedrock.records.values()) == {1}
    assert moment > 8


def test_jobs_that_cannot_be_are_refused(bedrock: Bedrock, tmp_path: Path) -> None:
    """Too few rows for a job; a role and a model of another form, which botocore would send; options that miss."""
    source, out = write_rows(tmp_path, 30), tmp_path / "out.jsonl"
    assert "100 rows a job at least" in tonnage.batch(source, out, on_bedrock()).found.reason
    write_rows(tmp_path, 120)
    for wrong, said in (({"role": "batch"}, "roleArn"), ({"model": "a model"}, "modelId")):
        with pytest.raises(InputError, match=said):
            tonnage.batch(source, tmp_path / f"{said}.jsonl", on_bedrock(**wrong))
    with pytest.raises(InputError, match="needs --jobs-at and --role"):
        tonnage.batch(source, out, on_bedrock(role=None))
    assert not bedrock.jobs


def test_a_job_that_expires_leaves_its_rows(bedrock: Bedrock, tmp_path: Path) -> None:
    """What it answered is recorded, the same call asks the rest in another job."""
    source, out = write_rows(tmp_path, 300), tmp_path / "out.jsonl"
    bedrock.ends_as = "Expired"
    answer = tonnage.batch(source, out, on_bedrock())
    assert isinstance(answer.fault, TonnageError)
    assert answer.found.progress.answered == 150
    assert "ended early" in answer.found.reason
    bedrock.ends_as = None
    tonnage.batch(source, out, on_bedrock()).checked()
    assert ids(out) == {f"r{at}": 1 for at in range(300)}


def test_a_budget_counts_what_jobs_may_cost(bedrock: Bedrock, tmp_path: Path) -> None:
    """The first job fits, the second does not; without max_tokens nothing is known."""
    source, out = write_rows(tmp_path, 300, max_tokens=1000), tmp_path / "out.jsonl"
    answer = tonnage.batch(source, out, on_bedrock(usd_per_million_output=1.0, most_usd=0.15))
    assert isinstance(answer.fault, PlanRefused)
    assert (answer.found.progress.answered, len(bedrock.jobs)) == (100, 1)
    write_rows(tmp_path, 120, max_tokens=None)
    found = tonnage.batch(source, tmp_path / "other.jsonl", on_bedrock(usd_per_million_output=1.0, most_usd=0.2)).found
    assert "without max_tokens" in found.reason


@pytest.mark.usefixtures("bedrock")
def test_embeddings_are_records_of_the_model(tmp_path: Path) -> None:
    """Titan's own form."""
    source, out = write_rows(tmp_path, 100, max_tokens=None), tmp_path / "out.jsonl"
    tonnage.batch(source, out, on_bedrock(task="embeddings", model="amazon.titan-embed-text-v2:0")).checked()
    body = json.loads(out.read_text().splitlines()[0])["response"]["body"]
    assert body["data"][0]["embedding"] == [0.5]
    assert body["usage"]["prompt_tokens"] == 2


def test_rows_go_through_openais_batches(openai: OpenAI, tmp_path: Path) -> None:
    """Refused rows apart; an answer that was lost on the way makes no second batch; one with another key is refused."""
    source, out = write_rows(tmp_path, 20, '{"id": "x", "text": "refuse this"}'), tmp_path / "out.jsonl"
    openai.loses_answers_to = "/batches"
    found = tonnage.batch(source, out, on_openai(openai)).found
    assert (found.progress.answered, found.progress.failed, found.progress.input_tokens) == (20, 1, 40)
    assert ids(out) == {f"r{at}": 1 for at in range(20)}
    assert (len(openai.jobs), openai.records.total()) == (1, 21)
    write_rows(tmp_path, 30, '{"id": "x", "text": "refuse this"}')
    tonnage.batch(source, out, on_openai(openai, retry_errors=True))
    assert ids(out).total() == 30
    assert openai.records["R0000000001"] == 1


def test_a_deadline_leaves_the_jobs_to_go_on(openai: OpenAI, tmp_path: Path) -> None:
    """The same call collects them."""
    source, out = write_rows(tmp_path, 20), tmp_path / "out.jsonl"
    answer = tonnage.batch(source, out, on_openai(openai, deadline_s=1e-9))
    assert isinstance(answer.fault, PlanRefused)
    other = BatchOptions(on="openai-batch", url="http://127.0.0.1:9", model="m", poll_s=0.001)
    with pytest.raises(InputError, match="has jobs of http"):
        tonnage.batch(source, out, other)
    tonnage.batch(source, out, on_openai(openai)).checked()
    assert (len(openai.jobs), ids(out).total()) == (1, 20)


def test_results_that_cannot_be_asked_for_are_said(
    openai: OpenAI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network goes when the job is done: an error that says so, and the same command fetches them later."""
    import httpx

    def gone(*_: object, **__: object) -> None:
        raise httpx.ConnectError("no route to host")

    source, out = write_rows(tmp_path, 5), tmp_path / "out.jsonl"
    with monkeypatch.context() as patched:
        patched.setattr(httpx.Client, "stream", gone)
        with pytest.raises(TonnageError, match="the results broke off: no route to host"):
            tonnage.batch(source, out, on_openai(openai)).checked()
    tonnage.batch(source, out, on_openai(openai)).checked()
    assert (len(openai.jobs), ids(out).total()) == (1, 5)
