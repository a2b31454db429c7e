"""A memo with planted errors, written before the checker was made to read it: what is found, and no false alarm.

The key was fixed with the document. `PLANTED` are the words of each wrong statement; every other line is true as of
the catalog's day.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tonnage.catalog import load_catalog
from tonnage.claims import CheckedDocument, check_document

MEMO = Path(__file__).parent / "data" / "platform-memo.md"
PLANTED = (
    "| p5.48xlarge | 8x H100 | 192 | 2,048 GiB | 98.32 |",  # the price before June 2025
    "It carries eight A10G cards",  # four
    "The H100 SXM reaches 1,979 TFLOPS of dense BF16",  # with sparsity; 989 dense
    "With 3.35 TB/s the L40S",  # 0.864 TB/s
    "memory_gib: 384",  # 192; a slip of the author's, found by the checker and left in
    "memory_gib: 24",  # of the machine: 16 GiB
    "so it fits on a single H100 80 GB",
    "RoBERTa-large counts 125 million",  # 355 million
    "Full fine-tuning of a 7B model with Adam in mixed precision fits on one 24 GB GPU",
    "Mixtral 8x7B has 56B parameters",  # 46.7B
    "All-Purpose Compute at $0.25 per DBU",  # 0.55
    "Claude Opus 4.5 on Bedrock costs $15",  # 5
    "GPUDirect-TCPXO is what a3-highgpu-8g",  # TCPX
    "10 × $1.861 × 730 = $15,385.30",  # 13,585.30
    "A 20 % discount on $5,000 leaves $4,500",  # 4,000
    "saves 40 %",  # 30 %
    "p3.2xlarge holds one V100 with 32 GB",  # 16 GB
    "The Standard_NC6s_v3 has 12 vCPUs",  # 6
)


@pytest.fixture(scope="module")
def checked() -> CheckedDocument:
    return check_document(MEMO.read_text(encoding="utf-8"), load_catalog(), name=MEMO.name)


def test_no_true_statement_is_called_wrong(checked: CheckedDocument) -> None:
    """Every alarm is on a line with a planted error."""
    assert checked.alarms
    assert [one for one in checked.alarms if not any(words in one.text for words in PLANTED)] == []


def test_every_planted_error_is_found(checked: CheckedDocument) -> None:
    """Each is an alarm on its line."""
    assert [words for words in PLANTED if not any(words in one.text for one in checked.alarms)] == []


def test_figures_are_counted(checked: CheckedDocument) -> None:
    """Those that no claim holds are named: each stands on its line, and none is held by a finding there."""
    lines = MEMO.read_text(encoding="utf-8").splitlines()
    assert checked.figures > len(checked.passed_over) > 0
    assert all(one.figure in lines[one.line - 1] for one in checked.passed_over)
    assert checked.figures - len(checked.passed_over) >= len(PLANTED) / 2


@pytest.mark.parametrize(
    ("text", "figures", "left"),
    [
        ("T4: 16 GB GDDR6, bought for 900 days", 2, ["900 days"]),
        ("Version 2.5 of part 3", 0, []),
        ("p3.2xlarge in us-east-1", 0, []),
        ("g4dn.xlarge: $0.526/hour and $1,200 of support", 2, ["$1,200"]),
        ("| Instance | GPUs | seats |\n|---|---|---|\n| p5.48xlarge | 8 | 12 |", 2, ["12"]),
    ],
)
def test_a_figure_that_no_claim_holds_is_passed_over(text: str, figures: int, left: list[str]) -> None:
    """Money, numbers with a unit, cells that are numbers; versions and names are no figures."""
    found = check_document(text, load_catalog(), name="a.md")
    assert (found.figures, [one.figure for one in found.passed_over]) == (figures, left)


def test_true_statements_are_read(checked: CheckedDocument) -> None:
    """Silence is not the reason for so few alarms: most figures of the memo were judged, and hold."""
    assert checked.counts["ok"] >= 45
