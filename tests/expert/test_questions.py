"""Thirty questions with an expert's range for each answer: what a plan says must be sensible, not only consistent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import tonnage
from tonnage.api import PlanResult
from tonnage.planning import MachineOption

AS_OF = "2026-11-22"
QUESTIONS: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "questions.yaml").read_text(encoding="utf-8"))


def planned(workload: dict[str, Any], **limits: Any) -> PlanResult:
    return tonnage.plan(workload, as_of=AS_OF, **limits)


def test_there_are_thirty_and_each_says_why() -> None:
    """A range without a reason is an opinion."""
    assert len(QUESTIONS) >= 30
    assert all(question["why"] and (question.get("best") or question.get("where")) for question in QUESTIONS)


@pytest.mark.parametrize("question", [one for one in QUESTIONS if "best" in one], ids=lambda one: one["ask"])
def test_the_best_is_what_an_expert_expects(question: dict[str, Any]) -> None:
    """Cost, time, memory, place and purchase of the winner."""
    result = planned(question["workload"])
    assert result.best is not None
    expect = question["best"]
    faults = out_of_range(result.best, expect)
    if "regions" in expect and not result.best.region.casefold().startswith(tuple(expect["regions"])):
        faults.append(f"region {result.best.region}")
    if "purchases" in expect and result.best.purchase not in expect["purchases"]:
        faults.append(f"bought {result.best.purchase}")
    best = result.best
    assert not faults, f"{best.count} x {best.instance_type} at {best.provider}: {'; '.join(faults)}"


PLACES = [(question, place) for question in QUESTIONS for place in question.get("where", ())]


@pytest.mark.parametrize(("question", "place"), PLACES, ids=[f"{q['ask']} on {p['gpus']}" for q, p in PLACES])
def test_on_a_given_gpu(question: dict[str, Any], place: dict[str, Any]) -> None:
    """Whether it fits there, and with what time, memory and rate."""
    wanted, colon, per_machine = place["gpus"].partition(":")
    limits: dict[str, Any] = {"gpus": [place["gpus"]]}
    if "max_gpus" in place:
        limits["max_gpus"] = place["max_gpus"]
    elif colon and "gpu_hours" not in place:
        limits["max_gpus"] = int(per_machine)
    result = planned(question["workload"], **limits)
    found = [one for one in result.options if one.gpu == wanted or wanted in str(one.gpu)]
    if not place.get("fits", True):
        assert not found, f"{found[0].instance_type} x {found[0].count}: {found[0].run.layout}"
        return
    assert found, [one.miss for one in result.refused if one.gpu][:3]
    assert not (faults := out_of_range(found[0], place)), f"{found[0].instance_type}: {'; '.join(faults)}"


@pytest.mark.parametrize("question", [one for one in QUESTIONS if "cheaper_than" in one], ids=lambda one: one["ask"])
def test_cheaper_than(question: dict[str, Any]) -> None:
    """One workload's winner costs less than another's."""
    this, other = planned(question["workload"]).best, planned(question["cheaper_than"]).best
    assert this is not None
    assert other is not None
    assert this.cost_usd.value < other.cost_usd.value


FIGURES = {"usd", "hours", "gpu_hours", "memory_gib", "instances", "ttft_p95_s"}


def out_of_range(option: Any, expect: dict[str, Any]) -> list[str]:
    """Every figure of an option outside its expected range."""
    figures = {"usd": option.cost_usd.value, "instances": option.count}
    if isinstance(option, MachineOption):
        run = option.run
        hours = None if run.time_s is None else run.time_s.value / 3600  # the work: no start, no waiting
        figures |= {
            "hours": hours,
            "gpu_hours": None if hours is None else hours * option.count * option.gpu_count,
            "memory_gib": run.memory_gib.value,
            "ttft_p95_s": None if run.ttft_p95_s is None else run.ttft_p95_s.value,
        }
    assert expect.keys() & FIGURES <= figures.keys(), "a token API has no such figure"
    return [
        f"{name} {figures[name]} not in {expect[name]}"
        for name in figures
        if name in expect and not (figures[name] is not None and expect[name][0] <= figures[name] <= expect[name][1])
    ]
