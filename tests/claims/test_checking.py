"""Documents of our own: what is read as a claim, what is not, and what each is answered."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.catalog import Catalog, load_catalog
from tonnage.claims import CheckedDocument, Finding, check_document

SMALL = Path(__file__).parents[1] / "data" / "documents" / "small.md"


@cache
def catalog() -> Catalog:
    return load_catalog()


def check(text: str) -> CheckedDocument:
    return check_document(text, catalog(), name="a.md")


def only(text: str) -> Finding:
    found = check(text).findings
    assert len(found) == 1, found
    return found[0]


def table(header: str, *rows: str) -> str:
    return "\n".join([header, "|".join("-" * 3 for _ in header.split("|")), *rows]) + "\n"


EXPECTED = [  # line, subject, quantity, verdict, in the right figure or the hint
    (7, "p5.48xlarge", "GPUs", "ok", "8x H100-SXM"),
    (7, "p5.48xlarge", "on-demand price an hour", "stale", "$55.04/h in us-east-1"),
    (7, "p5.48xlarge", "network", "ok", "3200 Gbit/s"),
    (8, "p5.24xlarge", "name", "wrong", "p5.4xlarge: 1x H100-SXM, 16 vCPUs, 256 GiB"),
    (8, "p5.24xlarge", "on-demand price an hour", "wrong", "does not exist"),
    (9, "g5.xlarge", "memory", "wrong", "16 GiB"),
    (9, "g5.xlarge", "network", "ok", "bursts up to 10"),
    (9, "g5.xlarge", "on-demand price an hour", "ok", "$1.006/h"),
    (10, "c7g.xlarge", "vCPUs", "ok", "4 vCPUs"),
    (11, "p9.48xlarge", "name", "unknown", "nearest names"),
    (17, "NC A100 v4", "memory", "ok", "880 GiB"),
    (18, "NC A100 v4", "sizes", "wrong", "Standard_ND96asr_v4"),
    (22, "L4", "memory", "ok", "24 GiB"),
    (23, "T4", "memory bandwidth", "ok", "320 GB/s"),
    (23, "L4", "memory bandwidth", "wrong", "300 GB/s"),
    (24, "T4", "tensor cores", "wrong", "320"),
    (28, "Llama-2-13B", "parameters", "ok", "13 billion"),
    (28, "Llama-2-13B", "fp16 memory", "wrong", "weights 26 GB"),
    (29, "BERT-base", "parameters", "ok", "109 million"),
    (29, "GPT-2 XL", "parameters", "wrong", "1.56 billion"),
    (31, "g5.24xlarge", "GPUs", "ok", "4x A10G"),
    (31, "g5.24xlarge", "on-demand price an hour", "ok", "$8.144/h"),
    (33, "p4de.24xlarge", "GPUs", "ok", "8x A100-80GB-SXM"),
    (33, "p4de.24xlarge", "on-demand price an hour", "stale", "$27.44705/h"),
    (35, "p3.2xlarge", "on-demand price an hour", "ok", "$3.06/h"),
    (39, "p3.8xlarge", "GPUs", "ok", "4x V100"),
    (40, "p3.16xlarge", "GPUs", "wrong", "8x V100-16GB"),
    (41, "3 × $0.752 × 24 × 30", "result", "ok", "rounded to 100"),
    (42, "12 × $1,624", "result", "wrong", "$19,488"),
    (45, "1,000,000 × $0.002", "result", "wrong", "$2,000"),
]


@pytest.mark.parametrize(("line", "subject", "quantity", "verdict", "right"), EXPECTED)
def test_small_document(line: int, subject: str, quantity: str, verdict: str, right: str) -> None:
    """Each claim of the sample has its line, its verdict and the right figure."""
    findings = check(SMALL.read_text(encoding="utf-8")).findings
    found = [one for one in findings if (one.line, one.subject, one.quantity) == (line, subject, quantity)]
    assert len(found) == 1
    assert found[0].verdict == verdict
    assert right in f"{found[0].answer.right} {found[0].answer.hint}"


def test_small_document_has_no_other_alarm() -> None:
    """What the sample says rightly, or leaves open, is not called wrong: the V100s of line 32, the cost of line 34."""
    expected = {(line, subject) for line, subject, _, verdict, _ in EXPECTED if verdict in ("wrong", "stale")}
    assert {(one.line, one.subject) for one in check(SMALL.read_text(encoding="utf-8")).alarms} == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no figures at all",
        "# Llama\n\nA list of `GPU`s | and | bars\n",
        "x = 3 * 4\n\na[1] * 2 == 4\n\n2x = 2x\n",
        "p4d.24xlarge instead of 4x V100, 32 vCPUs",
        "| a | b |\n|---|---|\n",
        "GPT-2 Large is 20 % slower",
        "Graviton3 has 64 cores",
        "NCv3 and p3 are old; the g4dn is cheap",
        "g5.16xlarge: 134.1 GiB per GPU even with 8 GPUs",
        "A100 × 8 = 640 GB and T4 x 4 = 64 GB",
        "7 × 10^9 parameters × 2 bytes = 14 GB",
        "6 × 7B × 1T tokens = 4.2e22 FLOP",
        "$500-$2,000 = a lot",
        "[p4d.24xlarge](https://example.com/8x-V100)",
    ],
)
def test_what_is_no_claim(text: str) -> None:
    """Names without figures, comparisons, code and prose give no finding."""
    assert not check(text).findings


SUMS = [  # sum as printed, verdict, in what sense
    ("2 × $0.526 × 8 × 22 = $185", "ok", "rounded to 1"),
    ("2 × $0.526 × 8 × 22 = $185.15", "ok", "rounded to 0.01"),
    ("2 × $0.526 × 8 × 22 = $185.16", "wrong", "digits printed"),
    ("3 x $0.752 x 24 x 30 = $1,624", "ok", "rounded to 1"),
    ("3 x $0.752 x 24 x 30 = $1,623", "wrong", "off by -1.32 (0.081 %)"),
    ("3 x $0.752 x 24 x 30 = $1,600", "ok", "rounded to 100"),
    ("3 x $0.752 x 24 x 30 ≈ $1,650", "ok", "roughly"),
    ("$9.99 * 1 = $9", "ok", "cut off at 1"),
    ("(2 + 1) × $0.5 × 8 hours/day × 22 days = $264", "ok", "exact"),
    ("1,000 / 8 = 125", "ok", "exact"),
    ("$100 + $50 = $160", "wrong", "not the sum"),
    ("30% × $100 = $30", "ok", "exact"),
    ("100k tokens × $3 / 1M = $0.30", "ok", "exact"),
    ("7 × $200 = $1,000", "wrong", "off by -400"),
    ("4 × 5 = 21", "wrong", "off by +1"),
    ("4 × $5 = $200", "wrong", "10 times too high"),
    ("($98.32 - $55.04) / $98.32 = 44%", "ok", "rounded"),
    ("16 bytes × 7B = 112 GB", "ok", "exact"),
    ("8 × 80 GB = 640 GB", "ok", "exact"),
    ("8 × 80 GB = 641 GB", "wrong", "off by"),
]


@pytest.mark.parametrize(("text", "verdict", "how"), SUMS)
def test_sums(text: str, verdict: str, how: str) -> None:
    """A result is right when it is the value rounded to the digits printed, and the hint says in what sense."""
    found = only(text)
    assert (found.kind, found.verdict) == ("sum", verdict)
    assert how in found.answer.hint


@pytest.mark.parametrize(
    "text", ["1 / 0 = 5", "((((2 + 3 = 5", "2 × = 4", "(" * 500 + "1 + 1 = 2", "9" * 400 + " × 2 = 4"]
)
def test_sums_that_are_none(text: str) -> None:
    """A division by zero, brackets left open and numbers without end are passed over, or wrong; never a crash."""
    assert all(finding.verdict in ("ok", "wrong") for finding in check(text).findings)


PRICES = [
    ("g4dn.xlarge: $0.526/hour", "ok", "us-east-1"),
    ("g4dn.xlarge: $0.587/hour in eu-west-1", "ok", "eu-west-1"),
    ("g4dn.xlarge: $0.526/hour in eu-west-1", "wrong", "$0.587/h in eu-west-1"),
    ("g4dn.xlarge: $0.55/hour", "partly", "no region lists it"),
    ("g4dn.xlarge: ~$0.54/hour", "ok", ""),
    ("g4dn.xlarge: $5.26/hour", "wrong", "+900%"),
    ("g4dn.xlarge: $0.2/hour on spot", "unknown", "spot prices move"),
    ("g4dn.xlarge: $0.33/hour 1-year reserved", "ok", "$0.331/h in us-east-1"),
    ("g4dn.xlarge: $0.45/hour 1-year reserved", "wrong", "$0.331/h in us-east-1"),
    ("Standard_NC4as_T4_v3: $0.3/hour 1-year reserved", "unknown", "no reserved"),
    ("g4dn.xlarge: $384/month", "ok", ""),
    ("g4dn.xlarge: $200/month", "unknown", "hours of the month"),
    ("g4dn.xlarge: $900/month", "wrong", ""),
    ("2x g4dn.xlarge: $1.052/hour", "ok", ""),
    ("p4d.24xlarge: $2.74/GPU-hour", "ok", "$21.957642/h"),
    ("Cost per GPU on p4d.24xlarge: $4.10/hour", "stale", "$21.957642/h"),
    ("p4d.24xlarge: $9.50 per GPU per hour", "wrong", "$21.957642/h"),
    ("a2-highgpu-8g: $24.48/hour", "wrong", "p3.16xlarge"),
    ("p4d.24xlarge: $32.77/hour", "stale", "2025-04-29"),
    ("p9.48xlarge: $3/hour", "unknown", "not in the catalog"),
]


@pytest.mark.parametrize(("text", "verdict", "right"), PRICES)
def test_prices(text: str, verdict: str, right: str) -> None:
    """A price is right in some region, or in the one named; stale where an earlier one is known; else wrong."""
    found = next(one for one in check(text).findings if one.kind == "price")
    assert found.verdict == verdict
    assert right in f"{found.answer.right} {found.answer.hint}"


def test_price_says_when_it_was_read() -> None:
    """The right price carries the day it was read and its source."""
    found = only("p3.2xlarge: $3.20/hour in us-east-1")
    assert found.answer.read_on is not None
    assert "karpenter" in found.answer.source


TRANSPORTS = [
    ("Nodes of a3-highgpu-8g talk over GPUDirect-TCPXO.", "wrong", "GPUDirect-TCPX"),
    ("The a3-highgpu-8g has GPUDirect-TCPX.", "ok", "GPUDirect-TCPX"),
    ("The a3-megagpu-8g uses TCPXO between machines.", "ok", "GPUDirect-TCPXO"),
    ("The a3-ultragpu-8g uses TCPXO between machines.", "wrong", "RoCE"),
    ("Machines such as p4d.24xlarge are joined by InfiniBand.", "wrong", "EFA"),
    ("The p5.48xlarge has EFA and NVSwitch.", "ok", "EFA"),
    ("Standard_ND96asr_v4 comes with InfiniBand.", "ok", "InfiniBand"),
    ("The c7g.16xlarge has EFA.", "unknown", "no transport"),
]


@pytest.mark.parametrize(("text", "verdict", "right"), TRANSPORTS)
def test_network_transports(text: str, verdict: str, right: str) -> None:
    """TCPX is not TCPXO, EFA not InfiniBand; an option of a machine on plain Ethernet is not judged."""
    found = only(text)
    assert found.quantity == "network transport"
    assert (found.verdict, right in f"{found.answer.right} {found.answer.hint}") == (verdict, True)


@pytest.mark.parametrize(
    "text",
    [
        "Unlike EFA, the a3-megagpu-8g has a network of its own.",
        "The p4d.24xlarge has no InfiniBand.",
        "Without EFA the p5.48xlarge is slow between machines.",
        "The p5.48xlarge has EFA where Azure has InfiniBand.",
    ],
)
def test_transports_that_are_no_claim(text: str) -> None:
    """Two of them, one that is not there, or one that the machine is set against: passed over."""
    assert not check(text).findings


GPUS = [
    ("T4: 2,560 CUDA cores", "ok", "2,560"),
    ("T4: 300 GB/s", "ok", "300 GB/s"),  # NVIDIA prints 300, most others 320
    ("T4: 310 GB/s", "wrong", "320 GB/s"),
    ("H100: 3.35 TB/s", "ok", "H100-PCIe"),
    ("H100 PCIe: 3.35 TB/s", "wrong", "2,000 GB/s"),
    ("RTX4090: 24 GB VRAM", "ok", "RTX-4090"),
    ("GeForce RTX 4090: 1,008 GB/s", "ok", "RTX-4090"),
    ("RTX 6000 Ada: 48 GB VRAM", "ok", "RTX-6000-Ada"),
    ("NVIDIA A100 80GB: 40 GB memory", "wrong", "80 GiB"),
    ("T4: $0.53/hour", "ok", "a GPU-hour"),
    ("T4: $0.35/hour", "partly", "the GPU alone"),
    ("T4: $0.01/hour", "wrong", "cheaper than every"),
    ("T4: $50/hour", "wrong", "dearer than every"),
    ("T4: $0.38-0.95/hour", "ok", "on spot only"),
    ("MI300X: $4.89/hour", "unknown", "some are lower"),
    ("H20: 4,000 tensor cores", "unknown", "no source"),
]


@pytest.mark.parametrize(("text", "verdict", "right"), GPUS)
def test_gpus(text: str, verdict: str, right: str) -> None:
    """A data-sheet figure holds for some form of the GPU named; the hint says which form differs."""
    found = only(text)
    assert found.verdict == verdict
    assert right in f"{found.answer.right} {found.answer.hint}"


MODELS = [
    ("GPT-2 Large is 1-7B parameters", "wrong", "774 million"),
    ("GPT-2 Large has 774M parameters", "ok", ""),
    ("GPT-2 XL has 1.5 billion parameters", "ok", ""),
    ("GPT-2 has 1.5B parameters", "partly", "gpt2-xl"),
    ("GPT-3 has 175B parameters", "ok", "2005.14165"),
    ("GPT-4 has 1.8T parameters", "unknown", "not published"),
    ("Llama-7B fp16 needs 16-40 GB", "partly", "108 GB"),
    ("Llama-7B in fp16 needs 24 GB for inference", "ok", "13.5 GB"),
    ("Llama-7B in fp16 needs 14 GB for inference", "partly", "KV cache"),
    ("Llama-7B in fp16 needs 8 GB for inference", "wrong", "weights alone"),
    ("Llama-7B in fp16 needs 160 GB to train", "ok", ""),
    ("Llama 2 70B in int4 fits in 40 GB", "ok", "35.6 GB"),
]


@pytest.mark.parametrize(("text", "verdict", "right"), MODELS)
def test_models(text: str, verdict: str, right: str) -> None:
    """A size against the published count; a memory need against weights, serving and training by the formulas."""
    found = only(text)
    assert found.verdict == verdict
    assert right in f"{found.answer.right} {found.answer.hint} {found.answer.source}"


def test_monthly_table() -> None:
    """Machines × hours × price an hour is checked against the month's cost; a part of a month is no month's price."""
    text = table(
        "Instance | Count | Hours/month | $/hour | Monthly cost",
        "g4dn.xlarge | 2 | 176 | $0.526 | $185",
        "g4dn.2xlarge | 3 | 720 | $0.752 | $1,523",
    )
    found = [(one.kind, one.verdict) for one in check(text).findings]
    assert found == [("sum", "ok"), ("price", "ok"), ("sum", "wrong"), ("price", "ok")]


@pytest.mark.parametrize("each", ["80 GB each", "80GB per GPU", "8x 80 GB", "640 GB", "640 GiB"])
def test_gpu_memory_of_one_or_all(each: str) -> None:
    """GPU memory may be printed of one device or of the machine, as long as it says so."""
    found = check(table("Instance | GPU Memory", f"p5.48xlarge | {each}")).findings
    assert [one.verdict for one in found] == ["ok"]


def test_gpu_memory_that_does_not_say() -> None:
    """The memory of one device beside a machine with eight holds partly."""
    assert only(table("Instance | GPU Memory", "p5.48xlarge | 80 GB")).verdict == "partly"


def test_units_of_headers() -> None:
    """A unit in the header holds for cells without one."""
    found = check(table("Instance | Memory (GiB) | GPU Memory (TB)", "p5.48xlarge | 2048 | 0.64")).findings
    assert [one.verdict for one in found] == ["ok", "ok"]


def test_broken_table_is_said() -> None:
    """Lines of bars without a line of dashes are no table; the remark says so, and the names in them are still read."""
    checked = check("| Instance | GPUs |\n| p5.24xlarge | 4 |\n")
    assert "line 1" in checked.remarks[0]
    assert [one.verdict for one in checked.findings] == ["wrong"]


def test_rows_of_other_lengths() -> None:
    """Cells too few or too many do not shift the others."""
    found = check(table("Instance | GPUs | vCPUs", "p5.48xlarge | 8", "p5.48xlarge | 8 | 192 | 7 | 9")).findings
    assert [(one.line, one.verdict) for one in found] == [(3, "ok"), (4, "ok"), (4, "ok")]


def test_long_lines_are_said() -> None:
    """A line too long to look at is named, not passed over in silence."""
    checked = check("p5.24xlarge " * 1000)
    assert not checked.findings
    assert "longer than" in checked.remarks[0]


@pytest.mark.parametrize(
    "text",
    ["a.1" * 1200, "1," * 1900, "$1 × " * 700 + "= 1", "(" * 3900, "x " * 1900 + "= 1", "T4 " * 1300, "gpt-" * 900],
)
def test_hostile_lines_end(text: str) -> None:
    """Repetitions that trip up careless patterns are read to their end: the claim on the next line is found."""
    assert [one.line for one in check(f"{text}\n\nA p5.24xlarge.").findings if one.verdict == "wrong"] == [3]


def test_tables_inside_lists_and_quotes() -> None:
    """Tables are found wherever Markdown allows them, with their own line numbers."""
    text = "> | Instance | GPUs |\n> |---|---|\n> | p5.48xlarge | 4 |\n"
    assert [(one.line, one.verdict) for one in check(text).findings] == [(3, "wrong")]


def facts(change: float) -> dict[str, str]:
    """The catalog's own figures as four documents, each figure times `change`."""
    machines = [one for one in catalog().instance_types if one.vcpus and one.memory_gib]
    prices = [offer for offer in catalog().offers if offer.purchase == "on_demand"]
    devices = [one for one in catalog().accelerators if one.memory_gib and one.memory_bandwidth_gb_per_s]
    return {
        "machines": table(
            "Instance type | vCPUs | RAM",
            *(f"{one.name} | {one.vcpus * change:g} | {one.memory_gib * change:g} GiB" for one in machines),
        ),
        "prices": "\n".join(
            f"- {offer.instance_type}: ${float(offer.usd_per_instance_hour) * change:.6f}/hour" for offer in prices
        ),
        "GPUs": table(
            "GPU | VRAM | Memory bandwidth",
            *(f"{one.name} | {one.memory_gib * change:g} GB | {one.memory_bandwidth_gb_per_s * change:g} GB/s"
              for one in devices),
        ),
        "code": "```yaml\n" + "\n".join(
            f"  - {one.name}  # {one.accelerator_count * change:g}x {one.accelerator}"
            for one in catalog().instance_types if one.accelerator and one.accelerator_count * change % 1 == 0
        ) + "\n```",
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["machines", "prices", "GPUs", "code"])
def test_the_catalogs_own_figures_hold(kind: str) -> None:
    """Every figure of the catalog, written as a document, is found right."""
    counts = check(facts(1.0)[kind]).counts
    assert counts["ok"] > 50
    assert not counts["wrong"] + counts["stale"] + counts["partly"] + counts["unknown"]


@pytest.mark.parametrize("kind", ["machines", "prices", "GPUs", "code"])
def test_the_catalogs_figures_doubled_do_not(kind: str) -> None:
    """Doubled they are wrong, but for a price of another region or an earlier one, or the memory of another form."""
    counts = check(facts(2.0)[kind]).counts
    assert counts["wrong"] > 0.9 * sum(counts.values())


def test_first_column_of_machines() -> None:
    """Machines are found in the first column whatever its header says."""
    found = check(table("What we rent | Hourly", "g5.xlarge | $1.006", "p3.2xlarge | $3.50")).findings
    assert [one.verdict for one in found] == ["ok", "wrong"]


def test_series_with_the_provider_in_front() -> None:
    """`Azure ND A100 v4` has a size with 40 GB cards and one with 80 GB cards."""
    text = table("What | Azure ND A100 v4 | AWS p4d", "GPUs | 8x A100 40GB | 8x A100", "GPUs | 8x A100 80GB | 4x A100")
    assert [one.verdict for one in check(text).findings] == ["ok", "ok", "ok", "wrong"]


def test_costs_of_several_machines() -> None:
    """A column of numbers counts machines; the price beside it may be of one of them or of all."""
    text = table(
        "Setup | Nodes | Instance type | Cost/hour", "a | 2 | p4d.24xlarge | $43.92", "b | 4 | p5.48xlarge | $200"
    )
    assert [one.verdict for one in check(text).findings] == ["ok", "wrong"]


def test_prices_per_gpu_in_a_table() -> None:
    """A header may say that a price is of one GPU."""
    text = table("Instance | $ per GPU-hour | $/hour", "p4d.24xlarge | 2.74 | 21.96", "p3.8xlarge | 9.06 | 12.24")
    assert [one.verdict for one in check(text).findings] == ["ok", "ok", "wrong", "ok"]


def test_series_in_a_text() -> None:
    """Azure's series are found with spaces in their names, and judged by their sizes."""
    assert [one.verdict for one in check("- **NC A100 v4**: 4x A100, 96 vCPUs").findings] == ["ok", "ok"]
    found = only("Azure's NC H100 v5 has 8x H100 and 176 vCPUs")
    assert (found.quantity, found.verdict) == ("sizes", "wrong")
    assert "Standard_ND96isr_H100_v5" in found.answer.hint


def test_a_price_of_nothing() -> None:
    """Zero is a price like any other wrong one."""
    assert only("T4: $0/hour").verdict == "wrong"
    assert only("g4dn.xlarge: $0.00/hour").verdict == "wrong"


PIECES = st.sampled_from(
    [
        "p5.48xlarge",
        "NC H100 v5",
        "n1-standard-4 + T4",
        "T4",
        "A100 80GB",
        "Llama-7B",
        "GPT-2",
        "$0.526",
        "$0",
        "/hour",
        "8x",
        "1/6",
        "96 vCPUs",
        "320 GB",
        "3.35 TB/s",
        "fp16 needs",
        "7B parameters",
        "|",
        "---|---",
        "\n",
        "- ",
        "```",
        "#",
        "(",
        ")",
        "×",
        "=",
        "≈",
        "~",
        "%",
        "-",
        "1,152",
        "per 1K tokens",
        "Instance | GPUs | $/h",
        "GPU | Price/hr",
        "<b>",
        "\\",
        "\t",
        "é",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, max_size=40))
def test_any_text_is_read(pieces: list[str]) -> None:
    """However the pieces of claims are put together, the document is read to its end, each finding on a line of it."""
    text = " ".join(pieces)
    lines = text.count("\n") + 1
    assert all(1 <= finding.line <= lines for finding in check(text).findings)
