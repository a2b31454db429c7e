"""Rules a team must meet beside what vendors attest: what is not known never counts as met, and is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import Final
from urllib.parse import urlsplit

import pytest

from tonnage.comparison.comparing import Comparison
from tonnage.comparison.compliance import all_met, load_standards, match_rules, standard_name
from tonnage.comparison.profile_file import Evidence
from tonnage.comparison.profiles import Attestation, load_profiles, parse_profiles
from tonnage.comparison.request import CompareRequest
from tonnage.errors import WorkloadError
from tonnage.reports.comparison.report import render_comparison

PROFILE = """
name: ours
title: Ours
about: Ours.
plan: {platforms: [vm], providers: [aws]}
sources:
  read: {title: Trust page, url: "https://example.org/trust", read_on: 2026-11-01}
  unread: {title: Trust page, url: "https://example.org/trust", read_on: null}
  other: {title: A blog, url: "https://example.org/blog", read_on: 2026-11-01, third_party: true}
attestations:
  soc2: {status: attested, scope: all of it, sources: [read]}
  hipaa: {status: conditional, scope: with a BAA, sources: [read]}
  pci-dss: {status: not_attested, scope: refused in writing, sources: [read]}
  iso27001: {status: attested, scope: all of it, sources: [unread]}
  fedramp: {status: attested, scope: all of it, sources: [other]}
"""
ANSWERS = [
    ("soc2", "attested", True),
    ("hipaa", "conditional", True),
    ("pci-dss", "not attested", False),
    ("iso27001", "not known", None),  # nobody read it at the vendor
    ("fedramp", "not known", None),  # only a third party says so
    ("gdpr", "not known", None),  # nothing on record
]


@pytest.mark.parametrize(("rule", "answer", "met"), ANSWERS)
def test_an_answer_for_each_state(rule: str, answer: str, met: bool | None) -> None:
    """Attested, on a condition, refused; unread, a third party's word and nothing at all are «not known»."""
    profile = parse_profiles({"ours.yaml": PROFILE})["ours"]
    (found,) = match_rules(profile, (rule,), {}, ())
    assert (found.answer, found.met) == (answer, met)
    assert ("ask the vendor" in found.words) == (met is None)


def test_several_rules_are_as_good_as_the_worst() -> None:
    """One refusal is no; else one unknown is unknown."""
    profile = parse_profiles({"ours.yaml": PROFILE})["ours"]
    outcomes = {
        ("soc2", "hipaa"): True, ("soc2", "gdpr"): None, ("gdpr", "pci-dss"): False, (): True,
    }  # fmt: skip
    for rules, met in outcomes.items():
        assert all_met(match_rules(profile, rules, {}, ())) is met


def test_a_platform_on_clouds_stands_with_the_worst_of_them() -> None:
    """SkyPilot's choice of machines decides: two clouds are as good as the worse one; none chosen is not known."""
    read = Evidence(title="t", url="https://example.org", read_on=date(2026, 11, 1))
    known = {"aws": {"soc2": Attestation(status="attested", scope="all", evidence=(read,))}, "gcp": {}}
    skypilot = load_profiles()["skypilot"]
    for providers, met in ((("aws",), True), (("aws", "gcp"), None), ((), None)):
        (found,) = match_rules(skypilot, ("soc2",), known, providers)
        assert found.met is met


@pytest.mark.parametrize(
    ("said", "name"),
    [("SOC 2", "soc2"), ("soc2", "soc2"), ("SOC-2 Type II", "soc2"), ("ISO/IEC 27001", "iso27001"),
     ("PCI DSS", "pci-dss"), ("HIPAA", "hipaa"), ("hippa", None)],
)  # fmt: skip
def test_names_of_rules(said: str, name: str | None) -> None:
    """Spellings of one rule are one; a typing error is none."""
    assert standard_name(said) == name
    assert {"soc2", "hipaa", "iso27001"} <= set(load_standards())


def test_a_typing_error_is_reported(ask: Callable[..., CompareRequest], standard: str) -> None:
    """An unknown rule would stand as «not known» everywhere, so it is bad input with the nearest name."""
    with pytest.raises(WorkloadError, match="no rule or attestation is named 'hippa'") as caught:
        ask(standard.replace("usd_per_hour: 100", "usd_per_hour: 100, compliance: [hippa]"))
    assert "hipaa" in (caught.value.hint or "")


def test_what_is_not_known_is_left_out_of_every_choice(compared: Callable[..., Comparison], standard: str) -> None:
    """SageMaker's C5 is not on record: out of ranking, recommendation and split, with the words to act on."""
    text = standard.replace("usd_per_hour: 100", "usd_per_hour: 100, compliance: [C5]")
    text = text.replace("- self-managed-aws\n", "- {name: self-managed-aws, attests: {C5: our copy}}\n")
    found = compared(text.replace('title: "Databricks <b>"', 'title: "Databricks <b>", attests: {C5: our copy}'))
    assert found.standing.needs == ("c5",)
    assert {one.alternative for one in found.ranking} == {"self-managed-aws", "databricks"}
    outs = [advice.verdict.out_of("sagemaker") for advice in found.advice]
    assert all(out is not None and out.kind == "rule not known" for out in outs)
    assert all(out is not None and [match.standard for match in out.rules] == ["c5"] for out in outs)
    assert "sagemaker" not in {place for _, place in found.split.places}
    for form in ("md", "html", "table"):
        assert "not known: ask the vendor" in render_comparison(found, form)  # type: ignore[arg-type]
    assert '"meets_compliance": null' in render_comparison(found, "json")


def test_the_trace_names_the_rule_and_its_evidence(compared: Callable[..., Comparison], standard: str) -> None:
    """The computed tree asks for the rules, and says what each alternative's profile attests."""
    text = standard.replace("usd_per_hour: 100", "usd_per_hour: 100, compliance: [soc2]")
    text = text.replace("rules: seed-databricks-bedrock", "rules: computed-cost").split("needs:")[0]
    steps = {step.question.name: step for step in compared(text).decision.steps}
    assert steps["rules-met"].answer == "yes"
    assert "databricks: SOC 2 attested: SOC 2 Type II" in steps["rules-met"].origin


def test_no_vendor_on_record_ends_at_asking(compared: Callable[..., Comparison], standard: str) -> None:
    """Where nothing is known of a rule nothing is chosen."""
    text = standard.replace("usd_per_hour: 100", "usd_per_hour: 100, compliance: [c5]")
    text = text.replace("rules: seed-databricks-bedrock", "rules: computed-cost").split("needs:")[0]
    found = compared(text)
    assert found.decision.leaf is not None
    assert found.decision.leaf.name == "ask-vendors"
    assert all(advice.verdict.choice is None for advice in found.advice)
    assert found.split.usd_per_month is None


def test_a_tree_that_does_not_ask_is_still_warned(compared: Callable[..., Comparison], standard: str) -> None:
    """The hand-written tree knows no rules: its choice is shown with the rule that is not known to be met."""
    text = standard.replace("usd_per_hour: 100", "usd_per_hour: 100, compliance: [c5]")
    text = text.replace("custom_fine_tuning: false", "custom_fine_tuning: true")
    said = render_comparison(compared(text), "md")
    assert "None of the alternatives compared can be recommended" in said
    assert "Databricks &lt;b&gt;: BSI C5 not known: ask the vendor" in said


def test_evidence_of_ones_own(compared: Callable[..., Comparison], standard: str) -> None:
    """Who has the vendor's report says so, and it counts; an unknown rule there is told."""
    text = standard.replace("usd_per_hour: 100", "usd_per_hour: 100, compliance: [HIPAA]")
    mine = text.replace("- sagemaker", "- {name: sagemaker, attests: {HIPAA: our BAA of May 2026}}")
    found = compared(mine)
    assert found.standing.meets("sagemaker") is True
    assert "you state: our BAA of May 2026" in render_comparison(found, "md")
    with pytest.raises(WorkloadError, match="'hippa'"):
        compared(mine.replace("attests: {HIPAA", "attests: {hippa"))


VENDORS: Final[Mapping[str, tuple[str, ...]]] = {
    "aws": ("aws.amazon.com", "awsstatic.com"),
    "azure": ("microsoft.com", "github.com/MicrosoftDocs"),
    "gcp": ("cloud.google.com",),
    "databricks": ("databricks.com",),
    "digitalocean": ("digitalocean.com",),
    "modal": ("modal.com",),
}
OF_PROFILE: Final = {
    "self-managed-aws": "aws", "sagemaker": "aws", "bedrock": "aws", "self-managed-azure": "azure", "azure-ml": "azure",
    "self-managed-gcp": "gcp", "vertex-ai": "gcp", "databricks": "databricks", "serverless-gpu": "modal",
    "self-managed-digitalocean": "digitalocean",
}  # fmt: skip
STANDARDS: Final = ("iso.org", "fedramp.gov", "pcisecuritystandards.org", "aicpa.org", "hhs.gov", "bsi.bund.de")


def of_vendor(url: str, vendor: str) -> bool:
    """Whether a page stands on the vendor's own site, or on that of a standard's body."""
    parts = urlsplit(url)
    for site in (*VENDORS[vendor], *STANDARDS):
        host, _, folder = site.partition("/")
        named = parts.hostname == host or (parts.hostname or "").endswith("." + host)
        if named and parts.path.startswith("/" + folder):
            return True
    return False


def test_compliance_is_said_by_vendors_alone() -> None:
    """No statement of a shipped profile on compliance rests on another site than the vendor's or a standard's."""
    attesting = [profile for profile in load_profiles().values() if profile.attestations]
    assert {profile.name for profile in attesting} == set(OF_PROFILE)
    for profile in attesting:
        cell = profile.cells["compliance"].evidence
        attested = [one for each in profile.attestations.values() for one in each.evidence]
        for one in (*cell, *attested):
            if not one.judgement:
                assert one.url is not None
                assert of_vendor(one.url, OF_PROFILE[profile.name]), (profile.name, one.url)


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-compliance.html", True),
        ("https://www.iso.org/standard/27001", True),
        ("https://docslib.org/doc/2181781/architecting-for-hipaa", False),
        ("https://aws.amazon.com.example.org/compliance", False),
        ("https://github.com/someone/aws-notes", False),
    ],
)
def test_a_copy_elsewhere_is_no_vendor(url: str, good: bool) -> None:
    """A host that only begins or ends like the vendor's is another's."""
    assert of_vendor(url, "aws") is good


PUBLIC: Final = [
    ("self-managed-aws", "iso27001"), ("self-managed-azure", "iso27001"), ("self-managed-gcp", "iso27001"),
    ("sagemaker", "hipaa"), ("sagemaker", "fedramp"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "rule"), PUBLIC)
def test_what_vendors_publish_is_on_record(name: str, rule: str) -> None:
    """ISO 27001 of the three clouds and HIPAA and FedRAMP of SageMaker are met, on whatever condition is stated."""
    (found,) = match_rules(load_profiles()[name], (rule,), {}, ())
    assert found.met is True
