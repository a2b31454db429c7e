"""Providers, GPUs and machines that a compare file misspells; the file that `tonnage init compare` writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.request import parse_request
from tonnage.comparison.starter import StarterWork, check_names, parse_work, render_starter
from tonnage.errors import InputError, WorkloadError


@pytest.mark.parametrize(
    ("wrong", "said", "near"),
    [
        ("gpus: [H10O]", "no accelerator named 'H10O'", "H100"),
        ("gpus: ['A100:x']", "is not a GPU filter", "NAME:8"),
        ("providers: [awss]", "no provider is named 'awss'", "'aws'"),
        ("providers: [gcp]", "self-managed-aws does not run on gcp", "aws"),
        ("machines: ['c7x*']", "no machine of the catalog is like 'c7x*'", "catalog"),
    ],
)
def test_a_misspelt_name_is_bad_input(
    compared: Callable[..., Comparison], standard: str, wrong: str, said: str, near: str
) -> None:
    """It would else leave the alternative without offers, silently; the error has key and nearest name."""
    text = standard.replace("- self-managed-aws", f"- {{name: self-managed-aws, {wrong}}}")
    with pytest.raises(WorkloadError, match=r"compare\[0\]") as caught:
        compared(text)
    assert said in str(caught.value)
    assert near in str(caught.value.hint)


def test_a_starter_is_read_as_written() -> None:
    """What the flags say stands in the file, whatever marks a title has; the rest are comments."""
    text = render_starter(
        title='Ours: "fast" & cheap \\ #1', names=("databricks", "bedrock"), today="databricks",
        works=(StarterWork(file="tune.yaml", jobs_per_month=12.0), StarterWork(file="serve.yaml", jobs_per_month=None)),
        usd_per_hour=100, employees=20, team_size=3, compliance=("soc2",),
    )  # fmt: skip
    found = parse_request(text, file="c.tonnage.yaml", folder=Path())
    assert found.title == 'Ours: "fast" & cheap \\ #1'
    assert [one.name for one in found.alternatives] == ["databricks", "bedrock"]
    assert [one.jobs_per_month for one in found.works] == [12.0, None]
    assert (found.organisation.usd_per_hour, found.organisation.compliance) == (100.0, ("soc2",))
    assert found.move is not None
    assert (found.move.origin, found.move.target) == ("databricks", "bedrock")


def test_a_starter_without_answers() -> None:
    """Nobody asked, nothing stated: no people, no move, and the file still reads."""
    text = render_starter(title="T", names=("databricks", "bedrock"), works=(parse_work("a.yaml"),))
    found = parse_request(text, file=None, folder=Path())
    assert (found.move, found.organisation.usd_per_hour) == (None, None)


@pytest.mark.parametrize(("names", "near"), [(["databriks", "bedrock"], "'databricks'"), (["bedrock"], "--compare")])
def test_names_of_a_starter(names: list[str], near: str) -> None:
    """A typing error has the nearest name; one alternative alone is no comparison."""
    with pytest.raises(InputError) as caught:
        check_names(names, ["bedrock", "databricks"])
    assert near in str(caught.value.hint)


@pytest.mark.parametrize("text", ["a.yaml:x", "a.yaml:0", "a.yaml:-3", ":4"])
def test_jobs_a_month_of_a_starter(text: str) -> None:
    """A number above 0 behind a file."""
    with pytest.raises(InputError, match="jobs a month"):
        parse_work(text)
