"""Five hand-written planning documents: each error that a careful reader found in them is found, and no other line
of them is called wrong without a reason given here. They lie beside the fact tables that `TONNAGE_FACTS` names."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tonnage.catalog import load_catalog
from tonnage.claims import CheckedDocument, Finding, Verdict, check_document

FACTS = Path(os.environ.get("TONNAGE_FACTS", ""))
SEEDS = FACTS.parent / "seeds"
pytestmark = pytest.mark.skipif(
    not (FACTS / "KNOWN_ERRORS.md").is_file() or not SEEDS.is_dir(),
    reason="TONNAGE_FACTS names no folder with KNOWN_ERRORS.md and seeds beside it",
)

NEEDS, CLOUDS, BEDROCK = "gpu-requirements-assessment.md", "multi-cloud-gpu-support.md", "databricks-vs-bedrock.md"


@dataclass(frozen=True)
class Expected:
    """`row` is the first cell of a row of KNOWN_ERRORS.md; empty texts match all findings of the subject."""

    row: str
    document: str
    subject: str
    verdict: Verdict
    quantity: str = ""
    claimed: str = ""
    right: str = ""  # stands in the right figure or in the hint


TABLE = (
    Expected(
        "p5.24xlarge = 4x H100, 96 vCPU", CLOUDS, "p5.24xlarge", "wrong", "name", "4x H100, 96 vCPUs", "p5.48xlarge"
    ),
    Expected(
        "p5.24xlarge = 4x H100, 96 vCPU", CLOUDS, "p5.24xlarge", "wrong", "name", "4x H100", "p5.4xlarge: 1x H100"
    ),
    Expected("p4d.24xlarge 8x A100, 320 GB, 1152 GB RAM", CLOUDS, "p4d.24xlarge", "ok"),
    Expected(
        "Azure NC H100 v5: 8 GPUs, 176 vCPU, 1760 GB", CLOUDS, "NC H100v5", "wrong", right="Standard_ND96isr_H100_v5"
    ),
    Expected(
        "Standard_NC48ads_A100_v4 = 8x H100 / 4x A100",
        CLOUDS,
        "Standard_NC48ads_A100_v4",
        "wrong",
        "GPUs",
        "8x H100",
        "2x A100-80GB-PCIe",
    ),
    Expected(
        "Standard_NC48ads_A100_v4 = 8x H100 / 4x A100",
        CLOUDS,
        "Standard_NC48ads_A100_v4",
        "wrong",
        "GPUs",
        "4x A100",
        "2x A100-80GB-PCIe",
    ),
    Expected(
        "Standard_NC96ads_A100_v4 = 8x A100",
        CLOUDS,
        "Standard_NC96ads_A100_v4",
        "wrong",
        "GPUs",
        "8x A100",
        "Standard_ND96asr_v4",
    ),
    Expected("NCv3 4x V100, 24 vCPU, 448 GB", CLOUDS, "NCv3", "ok"),
    Expected(
        "NC T4 v3: 4x T4, 28 vCPU, 224 GB", CLOUDS, "NC T4v3", "wrong", right="NC64as_T4_v3: 4x T4, 64 vCPUs, 440 GiB"
    ),
    Expected(
        "NV A10 v5: 6 GPUs, 72 vCPU, 880 GB",
        CLOUDS,
        "NV A10v5",
        "wrong",
        right="NV72ads_A10_v5: 2x A10, 72 vCPUs, 880 GiB",
    ),
    Expected("GCP a3-highgpu-8g 208 vCPU, 1872 GB", CLOUDS, "a3-highgpu-8g", "ok"),
    Expected("a2-ultragpu-8g 1360 GB, 640 GB GPU", CLOUDS, "a2-ultragpu-8g", "ok", "memory", "1360 GB"),
    Expected("n1-standard-16 + 8x V100", CLOUDS, "n1-standard-16", "ok", "GPUs", "8x V100"),
    Expected(
        "DigitalOcean gd-8vcpu-32gb-nvidia-h100x1 7.20/h",
        CLOUDS,
        "gd-8vcpu-32gb-nvidia-h100x1",
        "wrong",
        "price",
        "$7.20",
        "gpu-h100x1-80gb: $6.74",
    ),
    Expected(
        "DigitalOcean gd-8vcpu-32gb-nvidia-h100x1 7.20/h",
        CLOUDS,
        "gd-8vcpu-32gb-nvidia-h100x1",
        "wrong",
        "name",
        "",
        "gpu-h100x1-80gb: 1x H100-SXM, 20 vCPUs, 240 GiB",
    ),
    Expected(
        "DigitalOcean gd-16vcpu-64gb-nvidia-h100x8 57.60/h",
        CLOUDS,
        "gd-16vcpu-64gb-nvidia-h100x8",
        "wrong",
        "price",
        "$57.60",
        "gpu-h100x8-640gb: $23.92",
    ),
    Expected("g5.24xlarge 4x A10G, 96 GB", CLOUDS, "g5.24xlarge", "ok"),
    Expected("c7g.12xlarge 22.5 Gbps", CLOUDS, "c7g.12xlarge", "ok"),
    Expected("T4 320 tensor cores", NEEDS, "T4", "ok", "tensor cores", "320"),
    Expected("T4 320 tensor cores", NEEDS, "T4", "ok", "memory bandwidth"),
    Expected("T4 costs 0.35-0.95/h", NEEDS, "T4", "partly", "price", "$0.35-0.95/hr", "the GPU alone"),
    Expected("V100 640 tensor cores", NEEDS, "V100", "ok"),
    Expected("A100 432 tensor cores", NEEDS, "A100 40GB", "ok", "tensor cores", "432"),
    Expected("A100 432 tensor cores", NEEDS, "A100 80GB", "ok", "cores"),
    Expected(
        "H100 528 TC, 16,896 cores, 3350 GB/s",
        NEEDS,
        "H100",
        "ok",
        "memory bandwidth",
        "3,350",
        "2,000 GB/s (H100-PCIe)",
    ),
    Expected("H100 528 TC, 16,896 cores, 3350 GB/s", NEEDS, "H100", "ok", "cores", "", "H100-SXM"),
    Expected("g4dn.xlarge 0.526, g4dn.2xlarge 0.752", NEEDS, "g4dn.xlarge", "ok", "price", "$0.526", "us-east-1"),
    Expected("g4dn.xlarge 0.526, g4dn.2xlarge 0.752", NEEDS, "g4dn.2xlarge", "ok", "price", "$0.752"),
    Expected("p3.2xlarge 3.06, p3.8xlarge 12.24", NEEDS, "p3.2xlarge", "ok", "price", "$3.060"),
    Expected("p3.2xlarge 3.06, p3.8xlarge 12.24", NEEDS, "p3.8xlarge", "ok", "price", "$12.240"),
    Expected("p4d.24xlarge 32.77", NEEDS, "p4d.24xlarge", "stale", "price", "$32.770", "$21.957642/h in us-east-1"),
    Expected(
        "n1-standard-4 + T4 0.395",
        NEEDS,
        "n1-standard-4 + T4",
        "wrong",
        "price",
        "$0.395",
        "$0.539999/h in us-central1",
    ),
    Expected("a2-highgpu-1g 3.673", NEEDS, "a2-highgpu-1g", "ok"),
    Expected("a2-highgpu-8g 24.48", NEEDS, "a2-highgpu-8g", "wrong", "price", "$24.480", "p3.16xlarge"),
    Expected("NC4as_T4_v3 0.526", NEEDS, "NC4as_T4_v3", "ok"),
    Expected(
        "NC6s_v3 3.06 / 3.168", NEEDS, "NC6s_v3", "partly", "price", "$3.168", "no region lists it: $3.06 to $3.305"
    ),
    Expected("NC24ads_A100_v4 3.672", NEEDS, "NC24ads_A100_v4", "ok"),
    Expected("Llama-7B fp16 needs 16-40 GB", NEEDS, "Llama-7B", "partly", "fp16 memory", "16-40GB", "weights 13.5 GB"),
    Expected("Llama-7B fp16 needs 16-40 GB", NEEDS, "Llama-7B", "partly", "fp16 memory", "16-40GB", "108 GB"),
    Expected("GPT-2 Large is 1-7B parameters", NEEDS, "GPT-2 Large", "wrong", "parameters", "1-7B", "774 million"),
)

FURTHER = {  # what else is wrong there, and why
    (BEDROCK, 183, "1,000 × $0.003"): "1M tokens are a thousand times 1K",
    (NEEDS, 25, "BERT-Large"): "335 million parameters, not 1-7 billion",
    (NEEDS, 26, "GPT-J"): "6.05 billion, not 7-20",
    (NEEDS, 27, "GPT-3"): "175 billion parameters, 350 GB of fp16 weights",
    (NEEDS, 57, "n1-standard-8 + V100"): "0.38 for the machine, 2.48 for the V100",
    (NEEDS, 170, "3 × $0.752 × 24 × 30"): "1,624.32 rounds to 1,624",
    (CLOUDS, 48, "c7g.16xlarge"): "30 Gbit/s",
    (CLOUDS, 49, "c7gn.xlarge"): "bursts up to 40 Gbit/s",
    (CLOUDS, 59, "NC A100v4"): "at most 4 A100",
    (CLOUDS, 77, "a2-ultragpu-8g"): "8 x 80 GB are 640 GB",
    (CLOUDS, 78, "n1-standard-16"): "60 GiB; 104 are an n1-highmem-16",
    (CLOUDS, 79, "n1-standard-4"): "15 GiB; 26 are an n1-highmem-4",
    (CLOUDS, 93, "gd-8vcpu-32gb-nvidia-a100x1"): "no such droplet",
    (CLOUDS, 94, "gd-16vcpu-64gb-nvidia-a100x8"): "no such droplet",
}


@cache
def checked(document: str) -> CheckedDocument:
    text = (SEEDS / document).read_text(encoding="utf-8")
    return check_document(text, load_catalog(), name=document)


def fits(finding: Finding, expected: Expected) -> bool:
    return (
        finding.subject == expected.subject
        and expected.quantity in finding.quantity
        and expected.claimed in finding.claimed
    )


@pytest.mark.parametrize("expected", TABLE, ids=lambda one: f"{one.row} {one.quantity} {one.claimed}")
def test_known_claims(expected: Expected) -> None:
    """Each claim of KNOWN_ERRORS.md has its verdict and its right figure; every one of them, where it stands often."""
    found = [finding for finding in checked(expected.document).findings if fits(finding, expected)]
    assert found
    assert {finding.verdict for finding in found} == {expected.verdict}
    assert all(expected.right in f"{finding.answer.right} {finding.answer.hint}" for finding in found)
    assert all(finding.answer.source for finding in found)


def test_every_known_error_is_in_the_table() -> None:
    """No row of KNOWN_ERRORS.md is left out here."""
    lines = (FACTS / "KNOWN_ERRORS.md").read_text(encoding="utf-8").splitlines()
    rows = {line.split("|")[1].strip() for line in lines if line.startswith("|")} - {"claim", "---"}
    assert rows == {expected.row for expected in TABLE}


def alarms(documents: Iterable[str]) -> set[tuple[str, int, str]]:
    return {(name, one.line, one.subject) for name in documents for one in checked(name).alarms}


def test_no_false_alarm() -> None:
    """Whatever is called wrong or stale is in KNOWN_ERRORS.md, or in the list above with the reason."""
    known = {
        (expected.document, finding.line, finding.subject)
        for expected in TABLE
        if expected.verdict in ("wrong", "stale")
        for finding in checked(expected.document).findings
        if fits(finding, expected)
    }
    found = alarms(path.name for path in SEEDS.glob("*.md"))
    assert found - known == set(FURTHER)


def test_what_holds_only_partly() -> None:
    """Partly: memory needs that hold for inference and not for training, and prices explained in the table."""
    partly = [one for name in (NEEDS, CLOUDS, BEDROCK) for one in checked(name).findings if one.verdict == "partly"]
    assert {one.subject for one in partly if one.kind == "price"} == {"T4", "NC6s_v3"}
    assert all("not for full training" in one.answer.hint for one in partly if one.kind == "model memory")
    assert {one.kind for one in partly} == {"price", "model memory"}


def test_documents_without_figures_have_no_findings() -> None:
    """Two of the documents claim nothing that can be checked; nothing is made up about them."""
    for name in ("gcp-h100-vs-databricks.md", "multi-gpu-h2o-vs-pytorch.md"):
        assert not checked(name).findings
