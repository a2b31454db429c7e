"""Platform profiles: what is shipped is whole, and what is wrong with one is told with file, line and hint."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from tonnage.comparison.criteria import load_criteria, measured_score, parse_criteria
from tonnage.comparison.profiles import find_profile, load_profiles, parse_profiles
from tonnage.errors import UnknownName, WorkloadError

GOOD = """
name: ours
title: Our own platform
about: A platform of our own.
plan: {platforms: [vm], providers: [aws]}
sources:
  handbook: {title: Our handbook, url: "https://example.org/handbook", read_on: 2026-11-01}
aspects:
  hardware: {value: Eight H100, sources: [handbook], score: 3, because: a short list}
"""
WANTED = {
    "self-managed-aws",
    "self-managed-gcp",
    "self-managed-azure",
    "self-managed-digitalocean",
    "kubernetes",
    "databricks",
    "sagemaker",
    "vertex-ai",
    "bedrock",
    "skypilot",
    "on-premise",
    "h2o-sparkling-water",
    "pytorch",
    "azure-ml",
    "self-managed-lambda",
    "self-managed-nebius",
    "self-managed-runpod",
    "serverless-gpu",
}


def test_every_platform_is_there() -> None:
    """The platforms and frameworks that documents compare are shipped."""
    assert set(load_profiles()) >= WANTED


@pytest.mark.parametrize("name", sorted(WANTED))
def test_profiles_are_whole(name: str) -> None:
    """A platform says something of every judged criterion, each with evidence; each score says why."""
    profile = load_profiles()[name]
    judged = {criterion.key for criterion in load_criteria() if criterion.measure is None and criterion.of == "any"}
    if profile.kind == "platform":
        assert set(profile.cells) == judged
    for key, cell in profile.cells.items():
        assert cell.evidence, key
        assert (cell.score is None) == (cell.because == ""), key
        for one in cell.evidence:
            assert one.judgement or (one.url or "").startswith("https://"), key
    assert profile.setup_hours is not None
    assert profile.risks


def test_what_a_file_leaves_out_is_its_base() -> None:
    """`based_on` fills in; the file's own cells and reach hold."""
    found = load_profiles()
    assert found["self-managed-gcp"].cells["storage"] == found["self-managed"].cells["storage"]
    assert found["self-managed-gcp"].cells["hardware"] != found["self-managed"].cells["hardware"]
    assert found["self-managed-gcp"].scope.providers == ("gcp",)


def test_a_folder_adds_profiles(tmp_path: Path) -> None:
    """A user's profile joins without code."""
    (tmp_path / "ours.yaml").write_text(GOOD)
    ours = load_profiles([tmp_path])["ours"]
    assert ours.cells["hardware"].score == 3
    assert ours.cells["hardware"].evidence[0].read_on is not None


@pytest.mark.parametrize(
    ("before", "after", "line", "said"),
    [
        ("  hardware:", "  hardwear:", 9, "no criterion is named 'hardwear'"),
        ("sources: [handbook]", "sources: []", 9, "names no source"),
        ("sources: [handbook]", "sources: [manual]", 9, "no source of this file is named 'manual'"),
        ("read_on: 2026-11-01", "read_on: last week", 7, "a date such as"),
        ("read_on: 2026-11-01", "read_on: 2026-13-01", 7, "a date such as"),
        (', url: "https://example.org/handbook"', "", 7, "a `url`"),
        ("https://example.org/handbook", "javascript:alert(1)", 7, "a web address"),
        ("score: 3", "score: 6", 9, "at most 5"),
        (", because: a short list", "", 9, "has no `because`"),
        ("  hardware: {value: Eight H100", "  purpose: {value: Eight H100", 9, "has no rubric"),
        ("  hardware: {value: Eight H100", "  cost: {value: Eight H100", 9, "it is computed"),
        ("title: Our own platform", "titel: Our own platform", 3, "unknown key"),
        (
            "about: A platform of our own.",
            "about: x\nattestations: {soc2: {status: attested, scope: all, sources: [pamphlet]}}",
            5,
            "no source of this file is named 'pamphlet'",
        ),
        (
            "about: A platform of our own.",
            "about: x\nattestations: {soc2: {status: sure, scope: a, sources: []}}",
            5,
            "",
        ),
        ("about: A platform of our own.", "based_on: nowhere\nabout: x", 4, "no profile is named 'nowhere'"),
    ],
)
def test_faults_are_reported(before: str, after: str, line: int, said: str) -> None:
    """Each fault with the file, its line and a hint."""
    assert before in GOOD
    with pytest.raises(WorkloadError) as caught:
        parse_profiles({"ours.yaml": GOOD.replace(before, after)})
    assert f"ours.yaml:{line}:" in str(caught.value)
    assert said in str(caught.value)
    assert caught.value.hint


def test_two_of_one_name() -> None:
    """A second profile of a name is an error that names the first file."""
    with pytest.raises(WorkloadError, match=r"b\.yaml:2.*a\.yaml"):
        parse_profiles({"a.yaml": GOOD, "b.yaml": GOOD})


def test_an_unknown_name_has_the_nearest() -> None:
    """find_profile tells what was meant."""
    with pytest.raises(UnknownName) as caught:
        find_profile("databrick", load_profiles())
    assert "'databricks'" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('criteria: {x: {title: X, group: G, asks: a, rubric: {"1": a}}}', "no 1 or no 5"),
        (
            "criteria: {x: {title: X, group: G, asks: a, measure: setup_usd, rubric: {'1': a, '5': b}}}",
            "judged or computed",
        ),
    ],
)
def test_aspects_are_checked(text: str, said: str) -> None:
    """A rubric has its ends, and a score one origin."""
    with pytest.raises(WorkloadError) as caught:
        parse_criteria(text)
    assert said in f"{caught.value} {caught.value.hint}"


def test_computed_scores() -> None:
    """The best has 5, each factor of two costs the criterion's points, nothing is below 1; more is better for rates."""
    cost = next(criterion for criterion in load_criteria() if criterion.key == "cost")
    rate = next(criterion for criterion in load_criteria() if criterion.key == "throughput")
    assert measured_score(cost, 7.0, 7.0) == 5.0
    assert measured_score(cost, 14.0, 7.0) == pytest.approx(5.0 - cost.points_per_doubling)
    assert measured_score(cost, 1e9, 7.0) == 1.0
    assert measured_score(rate, 50.0, 100.0) == pytest.approx(4.0)


def test_every_source_says_when_it_was_read_or_that_nobody_did() -> None:
    """A public source of a shipped profile has a date, or `read_on: null` written out; most of them were read."""
    folder = files("tonnage.comparison").joinpath("data/platforms")
    lines = [line for one in folder.iterdir() for line in one.read_text("utf-8").splitlines() if "url: " in line]
    assert len(lines) > 60
    assert [line for line in lines if "read_on:" not in line] == []
    public = {one for profile in load_profiles().values() for cell in profile.cells.values() for one in cell.evidence
              if not one.judgement}  # fmt: skip
    assert sum(one.verified for one in public) / len(public) > 0.75


def test_null_is_not_verified() -> None:
    """`read_on: null` and no `read_on` are the same: not verified; a third party's word never is."""
    for before, after in (("2026-11-01", "null"), ("2026-11-01", "2026-11-01, third_party: true")):
        profile = parse_profiles({"ours.yaml": GOOD.replace(f"read_on: {before}", f"read_on: {after}")})["ours"]
        assert not profile.cells["hardware"].evidence[0].verified
    assert parse_profiles({"ours.yaml": GOOD})["ours"].cells["hardware"].evidence[0].verified


def test_the_transports_of_a_cloud_are_distinguished() -> None:
    """TCPX is A3 High's and TCPXO A3 Mega's; what NCCL measures is called a bus bandwidth, never a link's rate."""
    said = load_profiles()["self-managed-gcp"].cells["network"].value
    assert "GPUDirect-TCPX on A3 High" in said
    assert "GPUDirect-TCPXO on A3 Mega" in said
    assert "bus bandwidth of about 340 GB/s" in said


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("self-managed-aws", ("B200", "P6-B200")),
        ("self-managed-gcp", ("A3 Ultra (H200)", "A4 (B200)", "A4X (GB200)", "G4 (RTX PRO 6000)", "Flex-start only")),
    ],
)
def test_newer_machines_are_named(name: str, named: tuple[str, ...]) -> None:
    """The families that the catalog holds stand in the profile of their cloud."""
    said = load_profiles()[name].cells["hardware"].value
    assert all(one in said for one in named)


def test_pages_are_cited_in_english() -> None:
    """A vendor's page that has an English edition is not cited in another language."""
    urls = [
        one.url or ""
        for profile in load_profiles().values()
        for cell in profile.cells.values()
        for one in cell.evidence
    ]
    other = re.compile(r"/(?!en-)[a-z]{2}[-_][a-z]{2}/|/(ja|jp|de|fr|es|ko)/|[?&](hl|authuser)=")
    assert [url for url in urls if other.search(url)] == []
