"""Bedrock: what is asked is held to botocore's models; life cycles, one thing a name, nothing that stays billed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import tonnage
from tonnage.errors import InputError, PlanRefused, TonnageError, UnknownName
from tonnage.places.aws.bedrock_requests import BedrockOwner, customisation, hyper_faults, throughput
from tonnage.testing.aws.bedrock import FakeBedrock, fake_bedrock
from tonnage.testing.http_service import HTTPAnswer, times

pytestmark = pytest.mark.heavy
ROLE = "arn:aws:iam::123456789012:role/t"
NOVA = "amazon.nova-micro-v1:0:128k"
FILE = """
kind: train
model: gpt2
data: {samples: 10_000, seq_len: {mean: 200, max: 512}, epochs: EPOCHS}
run:
  task: causal-lm
  weights: hf://openai-community/gpt2
  learning_rate: 1.0e-5
  data: {train: "ROWS", columns: {text: text}}
"""


@pytest.fixture
def bedrock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBedrock]:
    """Bedrock and its schedules, an empty home, and a workload file."""
    monkeypatch.chdir(tmp_path)
    write()
    with fake_bedrock() as found:
        for name, value in {
            "TONNAGE_HOME": str(tmp_path / "home"), "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_BEDROCK": found.url, "AWS_ENDPOINT_URL_SCHEDULER": found.url,
            "AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", "NO_PROXY": "127.0.0.1",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("AWS_PROFILE", raising=False)
        monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.01)  # not seconds
        yield found


def write(*, rows: str = "s3://corpus/train.jsonl", epochs: str = "2", task: str = "causal-lm") -> None:
    text = FILE.replace("ROWS", rows).replace("EPOCHS", epochs).replace("causal-lm", task)
    Path("nova.tonnage.yaml").write_text(text)


def customise(*, dry_run: bool = False, **more: Any) -> Any:
    asked: dict[str, Any] = {"model": NOVA, "role": ROLE, "results": "s3://runs/out"} | more
    return tonnage.bedrock_customise("nova.tonnage.yaml", tonnage.CustomiseOptions(**asked), dry_run=dry_run)


def provision(name: str = "peak", *, dry_run: bool = False, **more: Any) -> Any:
    asked: dict[str, Any] = {"model": "amazon.nova-micro-v1:0", "hours": 2, "end_role": ROLE,
                             "usd_per_unit_hour": 20.0} | more  # fmt: skip
    return tonnage.bedrock_provision(name, tonnage.ProvisionOptions(**asked), dry_run=dry_run)


def states() -> dict[str, str]:
    return {one.resource.kind: one.resource.status for one in tonnage.bedrock_list().found}


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_customisation_is_priced_sent_once_and_followed(bedrock: FakeBedrock) -> None:
    """10,000 samples of 200 tokens, twice, at 1 USD a million tokens; the same command again is the same job."""
    dry = customise(dry_run=True)
    assert dry.to_json() == customise(dry_run=True).to_json()
    assert bedrock.asked == []
    assert dry.found.cost.usd == pytest.approx(4.0)
    assert dry.found.cost.usd_per_month == pytest.approx(1.95)
    bedrock.holds = True
    first = customise().found
    assert (first.status, len(bedrock.resources)) == ("InProgress", 1)
    assert customise().found.arn == first.arn
    assert customise(hyper=("epochCount=3",)).found.arn == first.arn  # the name is the job
    bedrock.holds = False
    until(lambda: states() == {"customisation": "Completed"})
    [listed] = tonnage.bedrock_list().found
    assert listed.resource.model.startswith("arn:aws:bedrock")
    with pytest.raises(InputError, match="has ended: Completed"):
        tonnage.bedrock_end(["nova"])


def test_a_job_that_fails_says_why_and_one_that_works_is_stopped(bedrock: FakeBedrock) -> None:
    bedrock.fails = "The training data is not in the expected format"
    customise()
    until(lambda: states() == {"customisation": "Failed"})
    [listed] = tonnage.bedrock_list().found
    assert listed.why == bedrock.fails
    bedrock.fails, bedrock.holds = "", True
    customise(name="other")
    [ended] = tonnage.bedrock_end(["other"]).found
    assert ended.resource.status == "ended"
    until(lambda: "Stopped" in {one.resource.status for one in tonnage.bedrock_list().found})


def test_throughput_ends_without_this_machine(bedrock: FakeBedrock) -> None:
    """The schedule is made first; when its time comes the throughput is gone, and nothing was asked again."""
    found = provision(hours=2).found
    assert [one.path.split("/")[1] for one in bedrock.asked if one.method == "POST" and "list" not in one.path] == [
        "schedules", "provisioned-model-throughput"
    ]  # fmt: skip
    assert found.cost.usd == pytest.approx(40.0)
    assert found.until is not None
    until(lambda: states() == {"throughput": "InService"})
    assert provision(hours=5).found.until == found.until  # the same name is the same, with the end that it has
    [schedule] = bedrock.schedules.values()
    ends = datetime.now(UTC) - timedelta(seconds=1)
    schedule["ScheduleExpression"] = f"at({ends:%Y-%m-%dT%H:%M:%S})"
    until(lambda: not bedrock.resources)
    assert tonnage.bedrock_list().found == ()
    assert bedrock.schedules == {}


def test_throughput_that_is_over_is_due_and_ended(bedrock: FakeBedrock) -> None:
    """Where a schedule did not do it; one without an end, which this program never makes, is due as well."""
    provision("old")
    provision("new", hours=3)
    [resource] = [one for one in bedrock.resources.values() if "old" in one.asked["provisionedModelName"]]
    for tag in resource.asked["tags"]:
        if tag["key"] == "tonnage-until":
            tag["value"] = "2026-01-01T00:00:00Z"
    listed = tonnage.bedrock_list()
    assert [one.due for one in listed.found if "old" in one.resource.name] == [True]
    assert listed.remarks
    [ended] = tonnage.bedrock_end([], due=True).found
    assert "old" in ended.resource.name
    assert [one["provisionedModelName"] for one in (one.asked for one in bedrock.resources.values())] == [
        provision("new").found.requests[1].body["provisionedModelName"]
    ]  # fmt: skip
    assert len(bedrock.schedules) == 1
    tonnage.bedrock_end(["new"])
    assert (bedrock.resources, bedrock.schedules) == ({}, {})


def test_what_cannot_be_had_leaves_no_schedule(bedrock: FakeBedrock) -> None:
    """A quota that refuses throughput, and a client that died between the two requests."""
    refused = HTTPAnswer(status=400, document={"message": "no units"},
                         headers={"x-amzn-ErrorType": "ServiceQuotaExceededException"})  # fmt: skip
    bedrock.before.append(times(1, refused, "POST", "/provisioned-model-throughput"))
    with pytest.raises(TonnageError, match="no units") as error:
        provision()
    assert "quota" in (error.value.hint or "")
    assert bedrock.schedules == {}
    bedrock.schedules["t-peak-x"] = {"ScheduleExpression": "at(2099-01-01T00:00:00)"}
    name = provision(dry_run=True).found.requests[0].body["Name"]
    bedrock.schedules[name] = {"ScheduleExpression": "at(2099-01-01T00:00:00)"}  # of a client that died
    provision()
    assert "2099" not in bedrock.schedules[name]["ScheduleExpression"]


def test_lost_answers_and_throttling_make_nothing_twice(bedrock: FakeBedrock) -> None:
    """The request is sent again with its token."""
    bedrock.after.append(times(1, HTTPAnswer(status=500, document={"message": "lost"}), "POST", "/model-custom"))
    throttled = HTTPAnswer(
        status=429, document={"message": "slow"}, headers={"x-amzn-ErrorType": "ThrottlingException"}
    )
    bedrock.before.append(times(2, throttled, "POST", "/model-custom"))
    customise()
    assert len(bedrock.resources) == 1


def test_an_import_is_listed_and_cannot_be_stopped(bedrock: FakeBedrock) -> None:
    bedrock.holds = True
    asked = tonnage.ImportOptions(weights="s3://runs/model", role=ROLE)
    found = tonnage.bedrock_import("bert", asked).found
    assert found.cost.usd is None
    assert "no price" in found.cost.why
    with pytest.raises(InputError, match="stops no import"):
        tonnage.bedrock_end(["bert"])
    bedrock.page = 1
    customise()
    assert states() == {"import": "InProgress", "customisation": "InProgress"}


def test_of_another_home_nothing_is_taken(
    bedrock: FakeBedrock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its things are not listed, and a name that is in use by it is said."""
    provision()
    [resource] = bedrock.resources.values()
    resource.asked["tags"][0]["value"] = "another"
    with pytest.raises(TonnageError, match="not this home's"):
        provision()
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path / "other"))
    assert tonnage.bedrock_list().found == ()


@pytest.mark.parametrize(
    ("file", "options", "message"),
    [
        ({"task": "sequence-classification"}, {}, "no sequence-classification"),
        ({"rows": "s3://corpus/*.jsonl"}, {}, "one .jsonl at S3"),
        ({"rows": "hf://corpus"}, {}, "one .jsonl at S3"),
        ({"epochs": "0.5"}, {}, "whole epochs"),
        ({"epochs": "6"}, {}, "epochCount = 6 is outside 1 to 5"),
        ({}, {"hyper": ("batchSize=8",)}, "has no batchSize"),
        ({}, {"hyper": ("learningRate=fast",)}, "a number is expected"),
        ({}, {"hyper": ("learningRate",)}, "NAME=VALUE"),
        ({}, {"role": "t"}, "roleArn"),
        ({}, {"results": "/tmp"}, "outputDataConfig.s3Uri"),
        ({}, {"model": "no such model!"}, "baseModelIdentifier"),
    ],
)  # fmt: skip
def test_what_bedrock_cannot_do_is_refused_before(
    bedrock: FakeBedrock, file: dict[str, str], options: dict[str, Any], message: str
) -> None:
    write(**file)
    with pytest.raises(InputError, match=message):
        customise(**options)
    assert bedrock.asked == []


def test_money_that_is_not_there_is_not_spent(bedrock: FakeBedrock) -> None:
    """Too dear, of an unknown price, or a name of nothing: nothing is asked."""
    with pytest.raises(PlanRefused, match=r"\$4\.00"):
        customise(max_cost_usd=1.0)
    with pytest.raises(PlanRefused, match="not known"):
        provision(usd_per_unit_hour=None, max_cost_usd=1.0)
    with pytest.raises(PlanRefused, match=r"\$40\.00"):
        provision(max_cost_usd=39.0)
    assert "no price for customising" in customise(model="meta.llama3-1-8b-instruct-v1:0:128k", dry_run=True,
                                                   hyper=("batchSize=1",)).found.cost.why  # fmt: skip
    assert bedrock.asked == []
    with pytest.raises(UnknownName, match="'nothing'"):
        tonnage.bedrock_end(["nothing"])
    with pytest.raises(InputError, match="nothing is named"):
        tonnage.bedrock_end([])


@pytest.mark.usefixtures("bedrock")
def test_the_commands(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents and exit codes."""
    from tonnage.cli import run

    words = ["bedrock", "customise", "nova.tonnage.yaml", "--model", NOVA, "--role", ROLE, "--results", "s3://runs/out"]
    assert run([*words, "--dry-run", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "tonnage/bedrock-work@1"
    assert run([*words, "--max-cost", "1"]) == 4
    assert run(words) == 0
    assert run(["bedrock", "list", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out.partition("{")[2].join(("{", "")))
    assert document["things"][0]["kind"] == "customisation"
    assert run(["bedrock", "provision", "p", "--model", "x", "--hours", "0", "--end-role", ROLE]) == 2
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    assert run(["bedrock", "list"]) == 2
    assert "--region" in capsys.readouterr().err


def test_requests_are_those_of_the_models() -> None:
    """The longest names and tags are taken; ranges are those of the documentation."""
    owned = BedrockOwner(
        name="A very long name of a run, with «quotes» and more words than fit", home="0a1b2c3d", owner="mé"
    )
    end = datetime(2026, 11, 27, 9, 0, tzinfo=UTC)
    schedule, held = throughput(owned, model=NOVA, units=2, until=end, end_role=ROLE)
    assert schedule.body["ScheduleExpression"] == "at(2026-11-27T09:00:00)"
    assert json.loads(schedule.body["Target"]["Input"]) == {"ProvisionedModelId": held.body["provisionedModelName"]}
    made = customisation(owned, model=NOVA, role=ROLE, data="s3://rows/a.jsonl", validation="s3://rows/b.jsonl",
                         output="s3://rows/out", hyper={"epochCount": "1"})  # fmt: skip
    assert made.body["validationDataConfig"] == {"validators": [{"s3Uri": "s3://rows/b.jsonl"}]}
    assert list(hyper_faults(NOVA, {"epochCount": "2.5"})) == ["epochCount = 2.5: a whole number is expected"]
    assert list(hyper_faults("unknown.model-v1", {"anything": "1"})) == []
