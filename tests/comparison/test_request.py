"""The compare file: what is wrong with it is told before anything is computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.request import CompareRequest, parse_request
from tonnage.errors import InputError, WorkloadError

SMALL = """
kind: compare
title: Two
compare:
  - databricks
  - {name: aws, profile: self-managed-aws, gpus: [H100]}
workloads: [{file: tune.yaml, jobs_per_month: 4}]
weights: {cost: 2}
migration: {from: aws, to: databricks}
"""


def read(text: str) -> CompareRequest:
    return parse_request(text, file="two.tonnage.yaml", folder=Path())


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("weights: {cost: 2}", "weights: {cost: -1}", "two.tonnage.yaml:8: `weights.cost`: found -1"),
        ("weights: {cost: 2}", "weights: {price: 2}", "no criterion is named 'price'"),
        ("weights: {cost: 2}", "weights: {purpose: 2}", "is not scored"),
        ("weights: {cost: 2}", "weights: {cost: 0}\nonly_these_weights: true", "no weight is above 0"),
        ("weights: {cost: 2}", "weights: {cost: heavy}", "a number"),
        ("weights: {cost: 2}", "weights: {cost: .nan}", "finite"),
        ("weights: {cost: 2}", "weight: {cost: 2}", "unknown key 'weight'"),
        ("- databricks\n", "- databrics\n", "no platform profile is named 'databrics'"),
        ("{name: aws, ", "{name: databricks, ", "is compared twice"),
        ("to: databricks", "to: bedrock", "no alternative compared here is named 'bedrock'"),
        ("to: databricks", "to: aws", "is where it comes from"),
        ("to: databricks", "to: databricks, start: soon", "a date such as"),
        ("kind: compare", "kind: comparison", "expected 'compare'"),
        ("title: Two", "title: Two\nhorizons_weeks: {short: 9, medium: 4, long: 20}", "is not short < medium < long"),
        ("gpus: [H100]", "setup_hours: {low: 9, likely: 2, high: 3, because: so}", "is not low <= likely <= high"),
    ],
)
def test_faults_are_reported(before: str, after: str, said: str) -> None:
    """Each with file and line, as bad input (exit 2)."""
    assert before in SMALL
    with pytest.raises(InputError) as caught:
        read(SMALL.replace(before, after, 1))
    assert said in str(caught.value)
    assert "two.tonnage.yaml:" in str(caught.value)
    assert caught.value.exit_code == 2


def test_weights_join_the_defaults() -> None:
    """Own weights replace defaults; with `only_these_weights` the rest is 0."""
    some = read(SMALL)
    only = read(SMALL + "only_these_weights: true\n")
    assert some.weights["cost"] == 2
    assert some.weights["hardware"] == 1
    assert {key for key, weight in only.weights.items() if weight} == {"cost"}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("jobs_per_month: 30", "name: tune", "has no volume"),
        (
            "file: tune.yaml, jobs_per_month: 30",
            "file: answer.yaml, jobs_per_month: 30",
            "a service has no jobs a month",
        ),
        ("custom_fine_tuning: false", "custom_tuning: false", "is not asked for by the rule set"),
        (
            "[{file: tune.yaml, jobs_per_month: 30}]",
            "[{file: tune.yaml, jobs_per_month: 30}, {file: tune.yaml, jobs_per_month: 3}]",
            "a second workload is named 'tune'",
        ),
    ],
)
def test_volumes_and_needs_are_checked(
    compared: Callable[..., Comparison], standard: str, before: str, after: str, said: str
) -> None:
    """What only the workloads or the rules can tell is told, too."""
    assert before in standard
    with pytest.raises(WorkloadError, match=said) as caught:
        compared(standard.replace(before, after, 1))
    assert caught.value.hint
