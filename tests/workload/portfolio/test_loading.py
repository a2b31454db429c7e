"""Portfolio files: read to frozen values, or refused with line and hint."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tonnage.catalog import Catalog, load_catalog
from tonnage.errors import WorkloadError
from tonnage.workload.jobs import Workload
from tonnage.workload.loading import load_workload
from tonnage.workload.portfolio.loading import load_portfolio, parse_portfolio
from tonnage.workload.portfolio.values import Portfolio

AS_OF = datetime(2026, 11, 20, tzinfo=UTC)
EXAMPLES = Path(__file__).parents[3] / "examples"
BERT = "workloads:\n  - file: bert-finetune.tonnage.yaml\n"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def read(text: str, catalog: Catalog) -> Portfolio:
    def workload(path: Path, as_of: datetime) -> Workload:
        return load_workload(path, as_of=as_of, catalog=catalog)

    return parse_portfolio(text, file="p.yaml", folder=EXAMPLES, as_of=AS_OF, catalog=catalog, read_workload=workload)


def test_the_example_reads(catalog: Catalog) -> None:
    """Shares are fractions of one; a deadline here replaces the file's; commitments and limits are as written."""

    def workload(path: Path, as_of: datetime) -> Workload:
        return load_workload(path, as_of=as_of, catalog=catalog)

    found = load_portfolio(EXAMPLES / "portfolio.yaml", as_of=AS_OF, catalog=catalog, read_workload=workload)
    assert sum(share.fraction for share in found.shares) == pytest.approx(1.0)
    assert found.share_tolerance == 0.05
    lora = next(entry for entry in found.entries if entry.name == "gptj-6b-lora")
    assert lora.workload.constraints.deadline_s == 12 * 3600
    assert (lora.runs_per_month, lora.split) == (20, True)
    assert found.commitments[0].up_to_gpus == 4
    assert found.capacity[0].at_once == 4


def test_shares_of_one_and_of_a_hundred_are_the_same(catalog: Catalog) -> None:
    """0.6 / 0.4 reads as 60 / 40."""
    one, hundred = (
        read(BERT + f"shares: {shares}\n", catalog) for shares in ("{aws: 0.6, gcp: 0.4}", "{aws: 60, gcp: 40}")
    )
    assert [share.fraction for share in one.shares] == pytest.approx([share.fraction for share in hundred.shares])


def test_names_are_distinguished(catalog: Catalog) -> None:
    """The same file twice has two names."""
    assert [entry.name for entry in read(BERT + BERT.splitlines()[1] + "\n", catalog).entries] == [
        "bert-finetune #1", "bert-finetune #2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "line", "key", "told", "hint"),
    [
        ("shares: {aws: 60, gcp: 30}\n", 3, "shares", "60 . 30 = 90", "whole spend"),
        ("shares: {awss: 60, gcp: 40}\n", 3, "shares.awss", "no provider", "did you mean 'aws'"),
        ("shares: {aws: -5, gcp: 105}\n", 3, "shares", "expected", ""),
        ("shares: {aws: .nan}\n", 3, "shares.aws", "finite", ""),
        ("share: {aws: 100}\n", 3, "share", "unknown key", "did you mean 'shares'"),
        ("budget_usd: 40k\n", 3, "budget_usd", "found '40k'", "write 40000"),
        ("budget_usd: -1\n", 3, "budget_usd", "above 0", ""),
        ("capacity: [{gpu: H10O, at_once: 8}]\n", 3, "capacity[0].gpu", "matches no GPU|no accelerator", ""),
        ("capacity: [{gpu: 'H100:8', at_once: 8}]\n", 3, "capacity[0].gpu", "count", "GPU alone"),
        ("capacity: [{gpu: H100, at_once: 8, region: us-east-9}]\n", 3, "capacity[0].region", "no region", ""),
        ("reserved: [{provider: aws, usd_per_gpu_hour: 1.0, gpus: 8}]\n", 3, "reserved[0]", "neither", ""),
        ("reserved: [{provider: aws, gpu: H100, gpus: 8}]\n", 3, "reserved[0]", "no reserved price", "usd_per_gpu"),
        ("reserved: [{provider: aws, gpu: H100, usd_per_gpu_hour: 1.0}]\n", 3, "reserved[0]", "commits nothing", ""),
        ("  - file: serve-gpt2-realtime.tonnage.yaml\n    runs_per_month: 3\n", 4, "workloads[1].runs_per_month",
         "service", "out"),
        ("  - file: bert-finetune.tonnage.yaml\n    deadline: 2020-01-01\n", 4, "workloads[1].deadline", "passed", ""),
        ("  - file: none.yaml\n", 3, "workloads[1].file", "no such file", "folder"),
        ("  - runs_per_month: 3\n", 3, "workloads[1].file", "is missing", "docs/portfolio.md"),
    ],
)  # fmt: skip
def test_faults_name_line_key_and_hint(catalog: Catalog, more: str, line: int, key: str, told: str, hint: str) -> None:
    """Each fault is told where it stands, with what to write instead."""
    with pytest.raises(WorkloadError) as raised:
        read(BERT + more, catalog)
    assert raised.value.line == line
    assert (raised.value.key or "").startswith(key)
    assert re.search(told, raised.value.message), raised.value.message
    assert hint in (raised.value.hint or ""), raised.value.hint


@pytest.mark.parametrize(
    "text", ["", "- 1\n", "workloads: []\n", "kind: train\nmodel: gpt2\n", "a: [1\n", "workloads: 3\n"]
)
def test_what_is_no_portfolio_is_refused(catalog: Catalog, text: str) -> None:
    """Empty files, lists, workload files and broken YAML are errors of the door, not tracebacks."""
    with pytest.raises(WorkloadError):
        read(text, catalog)


def load_workload_never(path: Path, as_of: datetime) -> Workload:
    raise AssertionError(f"{path} is read as of {as_of} before the portfolio is")


def test_files_that_cannot_be_read(catalog: Catalog, tmp_path: Path) -> None:
    """A missing portfolio, a folder, bytes that are no text, and a workload file that is not there."""
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "none.yaml", tmp_path, tmp_path / "bytes.yaml"):
        with pytest.raises(WorkloadError):
            load_portfolio(path, as_of=AS_OF, catalog=catalog, read_workload=load_workload_never)
    with pytest.raises(WorkloadError, match="no-such"):
        read("workloads: [{file: no-such.yaml}]\n", catalog)
