"""`tonnage batch` over real sockets: every row once, whatever the service does."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httptools")
pytest.importorskip("uvloop")

import tonnage
from tonnage import BatchOptions
from tonnage.batches.gate import Gate
from tonnage.batches.records import Record, tokens_of
from tonnage.cli import run
from tonnage.errors import InputError, PlanRefused, TonnageError
from tonnage.testing.upstream import PretendedUpstream
from tonnage.traffic.batch import BatchOutcome


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_rows(tmp_path, *(f"text {number}" for number in range(200)))


def write_rows(tmp_path: Path, *texts: str) -> Path:
    file = tmp_path / "in.jsonl"
    file.write_text("".join(json.dumps({"id": f"r{at}", "text": text}) + "\n" for at, text in enumerate(texts)))
    return file


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def asked(upstream: PretendedUpstream, **said: Any) -> BatchOptions:
    return BatchOptions(url=upstream.url, model="tiny", **said)


def once_each(source: Path, out: Path) -> bool:
    """Every row of the input stands in the output once."""
    found = Counter(line["custom_id"] for line in lines_of(out))
    return found == {json.loads(line)["id"]: 1 for line in source.read_text().splitlines()}


@pytest.mark.parametrize("task", ["chat", "completions", "embeddings", "classify"])
def test_every_row_is_answered_once(source: Path, tmp_path: Path, task: str) -> None:
    """In OpenAI's format, with the usage summed; the same call again sends nothing."""
    out = tmp_path / "out.jsonl"
    with PretendedUpstream() as upstream:
        found = tonnage.batch(source, out, asked(upstream, task=task)).checked()
        assert once_each(source, out)
        assert all(count == 1 for count in upstream.seen.values())
        first = lines_of(out)[0]
        assert first["error"] is None
        assert first["response"]["status_code"] == 200
        body = first["response"]["body"]
        assert body if task == "classify" else body["usage"]
        again = tonnage.batch(source, out, asked(upstream, task=task)).checked()
        assert (again.progress.answered, again.progress.done_before) == (0, 200)
        assert len(upstream.seen) == 200
    tokens = (0, 0) if task == "classify" else (200 * 7, 200 * 4)
    assert (found.progress.input_tokens, found.progress.output_tokens) == tokens
    assert not (tmp_path / "out.jsonl.errors.jsonl").exists()


def test_failures_that_pass_are_tried_again(tmp_path: Path) -> None:
    """A 503, a 429, a 500 the first time, a connection cut each time: all but the last are answered, with one key."""
    source = write_rows(tmp_path, "once-503 a", "once-429 b", "once-500 c", "d", "cut e")
    with PretendedUpstream() as upstream:
        answer = tonnage.batch(source, tmp_path / "out.jsonl", asked(upstream, tries=3))
    assert {line["custom_id"] for line in lines_of(tmp_path / "out.jsonl")} == {"r0", "r1", "r2", "r3"}
    (failed,) = lines_of(tmp_path / "out.jsonl.errors.jsonl")
    assert (failed["custom_id"], failed["error"]["code"]) == ("r4", "closed")
    assert sorted(upstream.seen.values()) == [1, 2, 2, 2, 3]
    assert isinstance(answer.fault, TonnageError)
    assert answer.fault.exit_code == 1


def test_rows_that_fail_stand_apart_with_the_reason(tmp_path: Path) -> None:
    """Bad rows, refusals and rubbish; the others are answered. `--retry-errors` asks those again."""
    source = write_rows(tmp_path, "a", "status-400 b", "rubbish c", "d")
    with source.open("a") as stream:
        stream.write("{no JSON\n")
    out, errors = tmp_path / "out.jsonl", tmp_path / "out.jsonl.errors.jsonl"
    with PretendedUpstream() as upstream:
        answer = tonnage.batch(source, out, asked(upstream, tries=2))
        found = {line["line"]: line["error"] for line in lines_of(errors)}
        assert {at: one["code"] for at, one in found.items()} == {2: "http 400", 3: "rubbish", 5: "bad row"}
        assert found[2]["message"] == "as asked"
        assert answer.found.progress.failed == 3
        assert upstream.seen.total() == 5  # rubbish is asked for twice
        assert tonnage.batch(source, out, asked(upstream)).found.progress.answered == 0
        again = tonnage.batch(source, out, asked(upstream, tries=1, retry_errors=True)).found.progress
    assert (again.done_before, again.failed) == (2, 3)
    assert len(lines_of(errors)) == 3
    assert len(lines_of(out)) == 2


def test_mended_rows_are_taken_up(tmp_path: Path) -> None:
    """With `--retry-errors`; without it an input that was changed is refused."""
    source, out = write_rows(tmp_path, "a", "b"), tmp_path / "out.jsonl"
    good = source.read_text()
    source.write_text(good + "{\n")
    with PretendedUpstream() as upstream:
        tonnage.batch(source, out, asked(upstream))
        source.write_text(good + json.dumps({"id": "r2", "text": "mended"}) + "\n")
        with pytest.raises(InputError, match="holds 1 row that"):
            tonnage.batch(source, out, asked(upstream))
        tonnage.batch(source, out, asked(upstream, retry_errors=True)).checked()
    assert once_each(source, out)


def test_a_limit_of_the_service_is_kept(tmp_path: Path) -> None:
    """40 a second are allowed: all rows are answered, and few requests are refused."""
    source = write_rows(tmp_path, *(f"text {number}" for number in range(100)))
    with PretendedUpstream(most_per_s=40, retry_after_s=1.0) as upstream:
        found = tonnage.batch(source, tmp_path / "out.jsonl", asked(upstream)).checked()
    assert once_each(source, tmp_path / "out.jsonl")
    assert found.progress.retries < 300


def test_headers_that_say_nothing_is_left_pause_the_batch() -> None:
    """OpenAI's: none of the requests left, until a moment."""
    gate = Gate(4)
    gate.learn_limits({b"x-ratelimit-remaining-requests": b"5"})
    assert gate._open()
    gate.learn_limits({b"x-ratelimit-remaining-tokens": b"0", b"x-ratelimit-reset-tokens": b"2m"})
    assert not gate._open()


def test_the_places_of_the_service_are_found(tmp_path: Path) -> None:
    """A service of 16 places is given at least so many, without being told; a fixed number is kept."""
    source = write_rows(tmp_path, *(f"text {number}" for number in range(600)))
    with PretendedUpstream(delay_s=0.01, slots=16) as upstream:
        tonnage.batch(source, tmp_path / "out.jsonl", asked(upstream)).checked()
        assert upstream.most_at_once >= 12
    with PretendedUpstream(delay_s=0.002) as upstream:
        tonnage.batch(source, tmp_path / "other.jsonl", asked(upstream, concurrency=3)).checked()
        assert upstream.most_at_once == 3


def test_a_budget_stops_the_batch_and_the_same_call_goes_on(source: Path, tmp_path: Path) -> None:
    """Exit 4 before the limit is passed; with more money the rest follows, and the sum is of both runs."""
    out, price = tmp_path / "out.jsonl", {"usd_per_million_input": 1.0, "usd_per_million_output": 1.0}
    with PretendedUpstream(delay_s=0.002) as upstream:
        answer = tonnage.batch(source, out, asked(upstream, most_usd=0.0011, concurrency=2, **price))
        assert isinstance(answer.fault, PlanRefused)
        spent = answer.found.progress
        assert spent.usd is not None
        assert 0.0009 < spent.usd <= 0.0011
        assert spent.usd_in_all == pytest.approx(200 * 11e-6)
        done = tonnage.batch(source, out, asked(upstream, **price)).checked().progress
    assert once_each(source, out)
    assert done.usd == pytest.approx(200 * 11e-6)


def test_a_deadline_stops_the_batch(source: Path, tmp_path: Path) -> None:
    """Exit 4; answers on their way are waited for and recorded."""
    with PretendedUpstream(delay_s=0.05) as upstream:
        answer = tonnage.batch(source, tmp_path / "out.jsonl", asked(upstream, deadline_s=0.2, concurrency=2))
        assert isinstance(answer.fault, PlanRefused)
        progress = answer.found.progress
        assert 0 < progress.answered == len(upstream.seen) < 200


def test_a_service_that_goes_away_stops_the_batch(source: Path, tmp_path: Path) -> None:
    """After the patience given, with exit 4 and no row in the errors; what comes back is taken up again."""
    with PretendedUpstream() as gone:
        pass
    answer = tonnage.batch(source, tmp_path / "out.jsonl", asked(gone, patience_s=0.3))
    assert answer.found.ending == "away"
    assert answer.fault is not None
    assert answer.fault.exit_code == 4
    assert f"127.0.0.1:{gone.port}" in answer.fault.message
    assert answer.found.progress.failed == 0
    with PretendedUpstream(port=gone.port) as back:
        tonnage.batch(source, tmp_path / "out.jsonl", asked(back)).checked()
    assert once_each(source, tmp_path / "out.jsonl")


@pytest.mark.slow
def test_a_port_where_nothing_listens_is_named_after_seconds(source: Path, tmp_path: Path) -> None:
    """Its address and the patience are said while the batch waits, and it is not knocked at without end."""
    with PretendedUpstream() as gone:
        pass
    reported: list[str] = []
    answer = tonnage.batch(
        source, tmp_path / "out.jsonl", asked(gone, patience_s=5.0), on_progress=lambda now: reported.append(now.away)
    )
    assert reported[0] == ""
    assert f"nothing answers at 127.0.0.1:{gone.port}" in reported[-1]
    assert "waiting up to 5 s" in reported[-1]
    assert answer.found.progress.retries < 60
    assert answer.found.progress.seconds < 8.0


@pytest.mark.parametrize("shared", [False, True])
def test_rows_without_a_model_wait_for_a_service_that_names_its_own(tmp_path: Path, shared: bool) -> None:
    """They are no bad rows: nothing is recorded, and the same call carries them once the service is up."""
    source, out = write_rows(tmp_path, "one", "two"), tmp_path / "out.jsonl"
    with pytest.raises(InputError, match=r"2 rows without a model, and http://127\.0\.0\.1:9 was asked") as refused:
        tonnage.batch(source, out, BatchOptions(url="http://127.0.0.1:9", shared=shared))
    assert "--model" in (refused.value.hint or "")
    assert sorted(one.name for one in tmp_path.glob("out.jsonl*")) == []
    with PretendedUpstream() as upstream:
        tonnage.batch(source, out, BatchOptions(url=upstream.url, shared=shared)).checked()
    assert once_each(source, out)


def test_a_wrong_key_stops_at_once(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one line of errors for each row; the right key passes, from the environment."""
    monkeypatch.setenv("SERVICE_KEY", "wrong")
    with PretendedUpstream(key="right") as upstream:
        answer = tonnage.batch(source, tmp_path / "out.jsonl", asked(upstream, api_key_env="SERVICE_KEY"))
        assert "401: wrong key" in answer.found.reason
        assert answer.found.progress.failed == 0
        monkeypatch.setenv("SERVICE_KEY", "right")
        tonnage.batch(source, tmp_path / "out.jsonl", asked(upstream, api_key_env="SERVICE_KEY")).checked()


def test_a_service_runs_as_long_as_the_batch(source: Path, tmp_path: Path) -> None:
    """The service of the caller is started once there is work, and ended."""
    states: list[str] = []

    @contextmanager
    def service() -> Iterator[str]:
        with PretendedUpstream() as upstream:
            states.append("up")
            yield upstream.url
        states.append("down")

    out = tmp_path / "out.jsonl"
    tonnage.batch(source, out, BatchOptions(model="tiny"), service=service()).checked()
    assert states == ["up", "down"]
    tonnage.batch(source, out, BatchOptions(model="tiny"), service=service()).checked()
    assert states == ["up", "down"]


def test_progress_is_reported(source: Path, tmp_path: Path) -> None:
    """Rows, speed, time left and the forecast of the cost."""
    from tonnage.reports.batch import progress_line

    reported: list[str] = []
    with PretendedUpstream(delay_s=0.02) as upstream:
        tonnage.batch(
            source, tmp_path / "out.jsonl", asked(upstream, concurrency=8, usd_per_million_input=1.0),
            on_progress=lambda one: reported.append(progress_line(one)),
        )  # fmt: skip
    assert "200 of 200 rows" in reported[-1]
    assert "of about $" in reported[-1]


def test_the_plan_stands_beside(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its rate, its cost for as many rows, and its machines' cost at the rate seen; another file is refused."""

    def figure(value: float) -> dict[str, float]:
        return {"value": value, "low": value / 2, "high": value * 2}

    option = {
        "rank": 2, "count": 2, "usd_per_instance_hour": 1.8, "cost_usd": figure(10.0),
        "run": {"time_s": figure(1000.0), "rates": {"requests_per_s": figure(10.0)}},
    }  # fmt: skip
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"schema": "tonnage/plan@1", "workload": {"kind": "batch"}, "options": [option]}))
    with PretendedUpstream() as upstream:
        words = ["batch", str(source), str(tmp_path / "out.jsonl"), "--url", upstream.url, "--model", "tiny", "--plan"]
        assert run([*words, f"{plan}:2", "-o", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["planned"]["rows_per_s"] == {"value": 10, "low": 5, "high": 20, "basis": "computed"}
        assert found["planned"]["usd"] == pytest.approx(200 * 0.001)
        at_this_speed = found["planned"]["usd_of_machines_at_this_speed"]
        assert at_this_speed == pytest.approx(200 * 3.6 / 3600 / found["rows_per_s"], rel=1e-3)
        assert run([*words, str(plan)]) == 2
        assert "has no option 1" in capsys.readouterr().err
        assert run([*words, str(source)]) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (BatchOptions(), "needs one service"),
        (BatchOptions(url="http://x", task="dance"), "not a task"),
        (BatchOptions(url="http://x", most_usd=1.0), "needs the price"),
        (BatchOptions(url="nowhere"), "not a URL"),
        (BatchOptions(url="http://x", on="moon"), "not a place"),
        (BatchOptions(url="http://x", workers=2), "of --on ray"),
        (BatchOptions(url="http://x", on="ray", shared=True), "two ways"),
        (BatchOptions(url="http://x", api_key_env="NOBODY_SETS_THIS"), "NOBODY_SETS_THIS"),
    ],
)
def test_options_that_cannot_be_used_are_refused(
    source: Path, tmp_path: Path, options: BatchOptions, said: str
) -> None:
    """Before anything is sent or written."""
    with pytest.raises(InputError, match=said):
        tonnage.batch(source, tmp_path / "out.jsonl", options)
    assert not (tmp_path / "out.jsonl").exists()


def test_the_command_shows_what_the_function_gives(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """JSON with its schema, exit 1 where rows failed; a folder that is not there is bad input."""
    with PretendedUpstream() as upstream:
        words = ["batch", str(source), str(tmp_path / "out.jsonl"), "--url", upstream.url, "--model", "tiny"]
        assert run([*words, "-o", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["schema"], found["answered"], found["left"]) == ("tonnage/batch@1", 200, 0)
        with source.open("a") as stream:
            stream.write("{\n")
        assert run(words) == 1
        assert "1 row has no answer" in capsys.readouterr().err
        assert run(["batch", str(source), str(tmp_path / "no" / "out.jsonl"), "--url", upstream.url]) == 2


def test_hanging_answers_time_out(tmp_path: Path) -> None:
    """A row whose answer never comes fails by its own timeout; the others do not wait for it."""
    source = write_rows(tmp_path, "hang", "b", "c")
    began = time.monotonic()
    with PretendedUpstream() as upstream:
        found: BatchOutcome = tonnage.batch(
            source, tmp_path / "out.jsonl", asked(upstream, timeout_s=0.2, tries=2)
        ).found
    assert dict(found.faults) == {"timeout": 1}
    assert found.progress.answered == 2
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    "usage",
    [{"prompt_tokens": -1}, {"prompt_tokens": 1e400}, {"completion_tokens": "many"}, {"prompt_tokens": True}],
)
def test_counts_that_no_line_could_hold_are_rubbish(usage: dict[str, Any]) -> None:
    """What is recorded must be read back: a count that is none makes the answer rubbish, and stops nothing."""
    with pytest.raises(ValueError):
        tokens_of({"choices": [], "usage": usage})
    assert tokens_of({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": None}}) == (3, 0)


def test_a_disk_that_is_full_ends_a_batch_of_bad_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be recorded any more: the batch ends with that error, however many rows are left."""

    def full(_: Record, __: object) -> None:
        raise TonnageError("no space left on device")

    source = tmp_path / "in.jsonl"
    source.write_text("{no JSON\n" * 30_000)
    monkeypatch.setattr(Record, "write", full)
    with PretendedUpstream() as upstream, pytest.raises(TonnageError, match="no space left"):
        tonnage.batch(source, tmp_path / "out.jsonl", asked(upstream))
