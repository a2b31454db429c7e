"""`tonnage serve simulate`: every form, the same as the function, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tonnage
from tonnage.cli.app import build_app
from tonnage.reports.reasons.scaling import scaling_words
from tonnage.scaling import reasons

SMALL = ("--burst", "ramps", "--hours", "0.3", "--peak-slots", "16", "--slots", "4", "--replicas", "1..15")


def asked(*words: str) -> str:
    done = CliRunner().invoke(build_app("serve"), ["serve", "simulate", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_prints_what_the_function_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same JSON; two policies, their bills, changes with their reasons."""
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    options = tonnage.ScalingOptions(
        burst="ramps", hours=0.3, peak_slots=16, slots=4, replicas=(1, 15), policies=("tonnage", "static"),
        usd_per_hour=2.0, warm=1,
    )  # fmt: skip
    answer = tonnage.simulate_scaling(options=options)
    text = asked(*SMALL, "--policy", "tonnage,static", "--usd-per-hour", "2", "--warm", "1", "-o", "json")
    assert answer.to_json() == text
    found = json.loads(text)
    assert found["schema"] == "tonnage/scaling-simulation@1"
    for one in found["policies"]:
        assert one["usd"] == pytest.approx(2.0 * (one["replica_hours"] + 0.1 * 0.15), rel=1e-5)
        assert one["lost"] == 0
    assert {one["reason"]["kind"] for one in found["changes"]} >= {"follows_load"}
    assert "static" in answer.to_csv()
    assert "<svg" in answer._repr_html_()
    assert "the cheapest rival that keeps the promise" in str(answer)


def test_a_trace_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A CSV of requests, scaled; with a schedule of the law."""
    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    trace = tmp_path / "trace.csv"
    rows = "\n".join(f"{second},1000,50" for second in range(300))
    trace.write_text(f"arrived_at,num_prefill_tokens,num_decode_tokens\n{rows}\n")
    found = json.loads(asked(str(trace), "--times", "3", "--policy", "tonnage", "--at-least", "0-24=2", "-o", "json"))
    assert found["load"]["requests"] == 900
    assert found["policies"][0]["most_replicas"] >= 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "one load is needed"),
        (("--burst", "storm"), "not a kind of burst"),
        (("--burst", "waves", "--times", "2"), "are of traces"),
        (("--burst", "waves", "--policy", "hope"), "is not a policy"),
        (("--burst", "waves", "--replicas", "many"), "--replicas 1..8"),
        (("--burst", "waves", "--replicas", "3..1"), "3 to 1 replicas"),
        (("--burst", "waves", "--tune", "luck"), "not a way to tune"),
        (("--burst", "waves", "--at-least", "noon=3"), "is not a schedule"),
        (("missing.csv",), "cannot be read"),
    ],
)
def test_bad_input_is_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Exit code 2, and words that say what to write."""
    from tonnage.cli import run

    monkeypatch.setenv("TONNAGE_HOME", str(tmp_path))
    assert run(["serve", "simulate", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_each_reason_has_words() -> None:
    """One clause each, with its figures."""
    for reason in (
        reasons.FollowsLoad(load_slots=20.0, room_slots=4.0),
        reasons.ClearsBacklog(waiting=7.0),
        reasons.HoldsFloor(floor=3),
        reasons.HoldsPeak(load_slots=20.0, hold_s=60.0),
        reasons.Idle(silent_s=60.0),
        reasons.Scheduled(least=1, most=4),
        reasons.RivalRule(policy="keda-queue", measured=3.0, target=2.0),
    ):
        words = scaling_words(reason)
        assert words == words.strip()
        assert any(sign.isdigit() for sign in words)
        assert words[0].islower() or words[0].isdigit()
