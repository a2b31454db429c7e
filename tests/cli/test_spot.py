"""`tonnage spot` as a user runs it, on small made-up traces."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .conftest import Run

DOC = Path(__file__).parents[2] / "docs" / "json.md"
POLICIES = ["tonnage", "uniform-progress", "greedy", "time-sliced", "on-demand", "optimum"]
JOB = ("--hours", "4", "--deadline-hours", "5", "--changeover-hours", "0.1", "--price-ratio", "3")


def write(path: Path, seed: int, ticks: int = 900, **metadata: Any) -> str:
    random = np.random.default_rng(seed)
    data: list[int] = []
    while len(data) < ticks:
        for state, scale in ((1, 1.2), (0, 0.5)):
            data += [state] * max(1, round(30 * scale * float(random.weibull(0.65))))
    trace = {"metadata": {"gap_seconds": 120, "family": "made-up"} | metadata, "data": data[:ticks]}
    path.write_text(json.dumps(trace))
    return str(path)


@pytest.fixture
def traces(tmp_path: Path) -> list[str]:
    return [write(tmp_path / f"zone-{seed}.json", seed, zone=f"z{seed}", family=f"f{seed % 2}") for seed in (1, 2, 3)]


def described(schema: str, document: dict[str, Any]) -> None:
    found = re.search(rf"^## {re.escape(schema)}\n(.*?)(?=^## |\Z)", DOC.read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"docs/json.md has no section {schema}"
    assert document["schema"] == schema
    assert not [key for key in document if f"`{key}`" not in found[1]]


def test_replay_json(inside: Run, traces: list[str]) -> None:
    """The keys other programs read; nobody misses or beats the optimum; the rivals stand in their order."""
    done = inside("spot", "replay", *traces, *JOB, "--windows", "20", "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    described("tonnage/spot-replay@1", found)
    assert [one["trace"] for one in found["traces"]] == ["zone-1", "zone-2", "zone-3"]
    assert (found["windows"], found["seed"], found["skipped"]) == (20, 0, [])
    for one in found["traces"]:
        assert [line["policy"] for line in one["policies"]] == POLICIES
        for line in one["policies"]:
            assert {"cost_vs_on_demand", "cost_vs_optimum", "misses", "windows"} <= set(line)
            assert (line["misses"], line["windows"]) == (0, 20)
            assert line["cost_vs_optimum"] >= 1
        by_name = {line["policy"]: line for line in one["policies"]}
        assert by_name["on-demand"]["cost_vs_on_demand"] == 1
        assert by_name["optimum"]["cost_vs_optimum"] == 1
        assert by_name["time-sliced"]["slices"] in (2, 4, 8, 16, 32)
    assert [line["policy"] for line in found["mean"]] == POLICIES


def test_replay_is_repeatable(inside: Run, traces: list[str]) -> None:
    """The same inputs give the same bytes; another seed other windows; a trace's figures do not hang on the others."""
    arguments = ("spot", "replay", *traces, *JOB, "--windows", "10", "-o", "json")
    first, second = inside(*arguments), inside(*arguments)
    assert first.stdout == second.stdout
    assert inside(*arguments, "--seed", "1").stdout != first.stdout
    alone = json.loads(inside("spot", "replay", traces[1], *JOB, "--windows", "10", "-o", "json").stdout)
    assert alone["traces"][0] == json.loads(first.stdout)["traces"][1]


@pytest.mark.parametrize("form", ["table", "csv", "md", "html"])
def test_replay_prints_every_form(inside: Run, traces: list[str], form: str) -> None:
    done = inside("spot", "replay", *traces, *JOB, "--windows", "5", "-o", form)
    assert (done.returncode, done.stderr) == (0, "")
    assert "uniform-progress" in done.stdout
    if form == "csv":
        assert {line["policy"] for line in csv.DictReader(io.StringIO(done.stdout))} == set(POLICIES)


def test_zones_together(inside: Run, traces: list[str]) -> None:
    """One job over three zones: one entry, cheaper than the mean of the zones apart."""
    arguments = ("spot", "replay", *traces, *JOB, "--windows", "20", "-o", "json")
    together = json.loads(inside(*arguments, "--zones", "together").stdout)
    apart = json.loads(inside(*arguments).stdout)
    assert [one["zones"] for one in together["traces"]] == [["z1", "z2", "z3"]]
    for place, line in enumerate(together["traces"][0]["policies"]):
        assert line["misses"] == 0
        assert line["cost_vs_on_demand"] <= apart["mean"][place]["cost_vs_on_demand"]


def test_a_short_trace_is_skipped_and_named(inside: Run, traces: list[str], tmp_path: Path) -> None:
    """The others are replayed; with nothing left it is bad input."""
    short = write(tmp_path / "short.json", 9, ticks=60)
    done = inside("spot", "replay", traces[0], short, *JOB, "--windows", "5", "-o", "json")
    assert done.returncode == 0
    assert done.stderr == "skipped: short covers 2.0 h without a hole, the deadline 5.0 h\n"
    assert [one["trace"] for one in json.loads(done.stdout)["skipped"]] == ["short"]
    assert inside("spot", "replay", short, *JOB).returncode == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (("--deadline-hours", "4.05"), "shorter than 4 h of work plus 0.1 h of start-up"),
        (("--hours", "-1"), "--hours -1 cannot be used"),
        (("--price-ratio", "0.5"), "--price-ratio 0.5 cannot be used"),
        (("--changeover-hours", "nan"), "--changeover-hours nan cannot be used"),
        (("--zones", "apart-ish"), "'apart-ish' is not a way to take zones"),
        (("--windows", "0"), "--windows"),
        (("--model", "missing.json"), "missing.json cannot be read"),
        (("--model", "zone-1.json"), "is not a hazard model"),
        (("missing.json",), "missing.json cannot be read"),
        (("bad.json",), "bad is not JSON"),
    ],
)
def test_bad_input_is_one_sentence(
    inside: Run, traces: list[str], tmp_path: Path, changes: tuple[str, ...], said: str
) -> None:
    """Exit code 2, an error and a hint on stderr, nothing on stdout."""
    (tmp_path / "bad.json").write_text("{")
    done = inside("spot", "replay", *traces, *JOB, *changes)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_fit_writes_a_model_that_replay_and_advise_take(inside: Run, traces: list[str], tmp_path: Path) -> None:
    """Byte-identical twice; the JSON form holds the same model."""
    done = inside("spot", "fit", *traces, "--out", "a.json", "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    described("tonnage/spot-fit@1", found)
    assert inside("spot", "fit", *traces, "--out", "b.json").returncode == 0
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert json.loads((tmp_path / "a.json").read_text()) == found["model"]
    assert {line["family"] for line in found["left_out"]} == {"f0", "f1"}
    assert len(found["zones"]) == 3
    replayed = inside("spot", "replay", traces[0], *JOB, "--windows", "5", "--model", "a.json", "-o", "json")
    assert json.loads(replayed.stdout)["model"] == "3 traces of f0, f1"
    assert inside("spot", "advise", *JOB, "--model", "a.json").returncode == 0


@pytest.mark.parametrize("form", ["table", "csv", "md", "html"])
def test_fit_prints_every_form(inside: Run, traces: list[str], form: str) -> None:
    done = inside("spot", "fit", *traces, "-o", form)
    assert (done.returncode, done.stderr) == (0, "")
    assert "zone-2" in done.stdout


def test_fit_says_what_cannot_be(inside: Run, traces: list[str], tmp_path: Path) -> None:
    steady = tmp_path / "steady.json"
    steady.write_text(json.dumps({"metadata": {"gap_seconds": 60}, "data": [1] * 50}))
    assert "nothing to fit" in inside("spot", "fit", str(steady)).stderr
    assert "is not a folder" in inside("spot", "fit", *traces, "--out", "no/such.json").stderr


def test_advise_json(inside: Run) -> None:
    """Hours, bill and miss chance; with a price the bill is in USD."""
    done = inside("spot", "advise", *JOB, "--price", "0.5", "--nodes", "2", "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    described("tonnage/spot-advice@1", found)
    assert found["refused"] is None
    assert found["expected_h"]["low"] < found["expected_h"]["value"] < found["expected_h"]["high"]
    assert found["cost_usd"]["value"] == pytest.approx(found["billed_h"]["value"] * 0.5 * 2, rel=1e-4)
    assert found["with_policy"]["misses"] == 0
    assert 0 < found["miss_chance_on_spot_alone"] < 1


@pytest.mark.parametrize("form", ["table", "csv", "md", "html"])
def test_advise_prints_every_form(inside: Run, form: str) -> None:
    done = inside("spot", "advise", *JOB, "-o", form)
    assert (done.returncode, done.stderr) == (0, "")
    assert "best" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--hours", "60", "--no-checkpoints"), r"spot without checkpoints diverges: [\d,]+ h are expected"),
        (("--hours", "4", "--deadline-hours", "3"), r"no machine keeps a deadline of 3 h: .* [\d,]+ h are expected"),
        (
            ("--hours", "3", "--deadline-hours", "4", "--no-checkpoints"),
            r"misses the deadline .* [\d,]+ h are expected",
        ),
    ],
)
def test_advise_refuses_with_the_expected_hours(inside: Run, arguments: tuple[str, ...], said: str) -> None:
    """Exit code 4; the report stands on stdout all the same, the reason in it and on stderr."""
    done = inside("spot", "advise", "--changeover-hours", "0.1", "--price-ratio", "3", *arguments, "-o", "json")
    assert done.returncode == 4
    assert re.search(said, done.stderr)
    assert re.search(said, json.loads(done.stdout)["refused"])


def test_advise_says_what_cannot_be(inside: Run) -> None:
    both = inside("spot", "advise", *JOB, "--no-checkpoints", "--checkpoint-minutes", "10")
    assert (both.returncode, "exclude each other" in both.stderr) == (2, True)
    assert inside("spot", "advise", *JOB, "--save-minutes", "-1").returncode == 2


MACHINE = ("--machine", "aws/p3.16xlarge", "--nodes", "4")


def test_advise_takes_hazard_and_saves_of_a_machine(inside: Run) -> None:
    """A machine sets how long spot lasts; the size of a checkpoint what a save takes, in parts where it is sharded."""
    whole, parts = (
        json.loads(inside("spot", "advise", *JOB, *MACHINE, "--checkpoint-gb", "84", *more, "-o", "json").stdout)
        for more in ((), ("--sharded",))
    )
    assert whole["job"]["save_h"] == pytest.approx((1 + 84 / 0.5) / 3600, abs=1e-4)
    assert parts["job"]["save_h"] == pytest.approx((1 + 84 / 2.0) / 3600, abs=1e-4)
    assert parts["billed_h"]["value"] < whole["billed_h"]["value"]
    assert whole["assumptions"]["model"].startswith("traces: ")
    other = json.loads(inside("spot", "advise", *JOB, "--machine", "azure/Standard_ND96asr_v4", "-o", "json").stdout)
    assert other["assumptions"]["model"].startswith("other machines: ")
    assert other["billed_h"]["high"] > whole["billed_h"]["high"] / 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--machine", "p4d.24xlarge"), "names no provider"),
        (("--machine", "aws/p4d.24xlarg"), "p4d.24xlarge"),
        (("--checkpoint-gb", "10"), "are of a machine"),
        (("--machine", "aws/p4d.24xlarge", "--model", "a.json"), "exclude each other"),
        (("--machine", "aws/p4d.24xlarge", "--checkpoint-gb", "1", "--save-minutes", "1"), "exclude each other"),
    ],
)
def test_advise_says_what_is_wrong_with_a_machine(inside: Run, arguments: tuple[str, ...], said: str) -> None:
    """Exit code 2, with what to write instead."""
    done = inside("spot", "advise", *JOB, *arguments)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
