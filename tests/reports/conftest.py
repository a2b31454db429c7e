"""A small plan built by hand: what it prints depends on the reports alone, not on the physics."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from tonnage.planning.plan import CatalogStamp, MachineOption, Need, Option, Plan, Refusal, RunDetail
from tonnage.planning.reasons.changes import Publish, SetField
from tonnage.planning.reasons.distances import DearerDistance
from tonnage.planning.reasons.misses import MemoryMiss, NoPriceMiss, UnpublishedMiss
from tonnage.planning.reasons.notes import NoOffersNote
from tonnage.planning.reasons.origins import FromShape, WholeState
from tonnage.planning.reasons.risks import CommunityHostRisk, OldPriceRisk, SpotRisk
from tonnage.planning.sizes import SizeMiss, SizeReport, SizeRow
from tonnage.pricing.ledger import Ledger, LedgerLine
from tonnage.sizing.estimates import Figure

AS_OF = datetime(2026, 11, 20, tzinfo=UTC)
BEHIND = DearerDistance(
    times=2.0, more_usd=0.04, faster=False, usd_per_instance_hour=0.2039, wins_below_usd_per_instance_hour=0.1
)
SUMMARY = (("model", "bert-base-uncased, 109 M parameters"), ("constraints", "within 8 h"))
NEED = Need(
    figures=(
        ("parameters", Figure(value=109482240.0, low=109482240.0, high=109482240.0), FromShape()),
        ("state_gib", Figure(value=1.63141250, low=1.63141250, high=1.63141250), WholeState()),
    )
)


def run_detail(*, service: bool = False) -> RunDetail:
    return RunDetail(
        layout="1 GPU, micro-batch 32",
        layout_fields=(("gpus", 1), ("sharding", "ddp")),
        time_s=None if service else Figure(value=345.7068177, low=259.28, high=501.27474088),
        time_parts=(("forward", 0.014086), ("backward", 0.028172), ("data_parallel", 0.0)),
        time_parts_of="request" if service else "step",
        memory_gib=Figure(value=4.2896475, low=3.6462, high=4.93309),
        memory_parts_gib=(("weights", 0.4078531), ("kv cache", 3.88179)),
        memory_available_gib=15.0,
        rates=(("samples_per_s", Figure(value=581.487109, low=401.02, high=775.31561)),),
        latency_p95_s=Figure(value=0.4709523, low=0.353, high=0.659) if service else None,
        notes=(),
    )


def option(rank: int, **changes: object) -> MachineOption:
    line = LedgerLine(
        what="compute, g4dn.xlarge spot",
        part="machines",
        quantity=Decimal("0.2015"),
        unit="instance-hour",
        usd_per_unit=Decimal("0.2039"),
        source="a list | with <marks>",
        read_on=date(2026, 7, 20),
    )
    ledger = Ledger(lines=(line,))
    total = float(ledger.total_usd)
    values: dict[str, object] = {
        "rank": rank,
        "provider": "aws",
        "instance_type": "g4dn.xlarge",
        "region": "us-east-1",
        "purchase": "spot",
        "platform": "vm",
        "count": 1,
        "gpu": "T4",
        "gpu_count": 1.0,
        "usd_per_instance_hour": 0.2039,
        "price_read_on": date(2026, 7, 20),
        "time_s": Figure(value=725.465306, low=623.38373, high=933.80813869),
        "cost_usd": Figure(value=total, low=total * 0.9, high=total * 1.3),
        "ledger": ledger,
        "run": run_detail(),
        "risks": (SpotRisk(), OldPriceRisk(age_days=123)),
        "pareto": True,
        "loses_by": None if rank == 1 else BEHIND,
    }
    return MachineOption(**(values | changes))  # type: ignore[arg-type]


def refusal(**changes: object) -> Refusal:
    values: dict[str, object] = {
        "provider": "azure",
        "instance_type": "Standard_NC6s_v3",
        "region": "eastus",
        "purchase": "on_demand",
        "count": 2,
        "gpu": "V100-16GB",
        "gpu_count": 1.0,
        "miss": MemoryMiss(
            needed_gib=94.1, available_gib=15.8, lifted_by=(SetField(key="precision", value="bf16-true"),)
        ),
    }
    return Refusal(**(values | changes))  # type: ignore[arg-type]


def make(options: tuple[Option, ...], refused: tuple[Refusal, ...], **changes: object) -> Plan:
    values: dict[str, object] = {
        "name": "bert",
        "kind": "train",
        "summary": SUMMARY,
        "objective": "cost",
        "as_of": AS_OF,
        "horizon": "job",
        "need": NEED,
        "options": options,
        "refused": refused,
        "catalog": CatalogStamp(
            snapshot="2026-11-20",
            built_on=date(2026, 11, 20),
            oldest_price=date(2025, 4, 4),
            undated_prices=7,
            offers=1100,
        ),
        "notes": (NoOffersNote(purchase="reserved_1y"),),
    }
    return Plan(**(values | changes))  # type: ignore[arg-type]


REFUSED = (
    refusal(),
    refusal(
        provider="gcp", instance_type="n1-standard-4+1xT4", gpu="T4", count=1,
        miss=MemoryMiss(needed_gib=18.75, available_gib=15, kept_free_fraction=0.05),
    ),
    refusal(
        provider="oci", instance_type="BM.GPU.A10.4", gpu=None, gpu_count=0.0, purchase=None, region="",
        miss=NoPriceMiss(lifted_by=(Publish(what="price"),)),
    ),
)  # fmt: skip


@pytest.fixture
def plan() -> Plan:
    """Three options of two providers, three refusals."""
    return make(
        (
            option(1),
            option(2, provider="runpod", instance_type="1x_A30_COMMUNITY", region="", count=3, gpu="A30",
                   price_read_on=None, risks=(OldPriceRisk(age_days=99), CommunityHostRisk()), pareto=False),
            option(3, purchase="on_demand", risks=(), pareto=False),
        ),
        REFUSED,
    )  # fmt: skip


@pytest.fixture
def empty_plan() -> Plan:
    """Nothing fits."""
    return make((), REFUSED)


@pytest.fixture
def service_plan() -> Plan:
    """A service: no end, a price a month."""
    return make((option(1, time_s=None, run=run_detail(service=True)),), REFUSED, horizon="month", kind="serve")


@pytest.fixture
def size_report() -> SizeReport:
    """Two sizes of one GPU, one miss."""
    row = SizeRow(gpu="T4", gpu_count=1.0, nodes=1, instance_types=("aws/g4dn.xlarge",), run=run_detail())
    four = SizeRow(gpu="T4", gpu_count=4.0, nodes=1, instance_types=("aws/g4dn.12xlarge",), run=run_detail())
    miss = SizeMiss(
        gpu="M60", gpu_count=1.0, instance_types=("aws/g3s.xlarge",),
        miss=UnpublishedMiss(
            binding="rate", what="rate", device="M60", precision="bf16", lifted_by=(Publish(what="figure"),)
        ),
    )  # fmt: skip
    return SizeReport(
        name="bert", kind="train", summary=SUMMARY, as_of=AS_OF, need=NEED, rows=(row, four), misses=(miss,)
    )
