"""What `tonnage plan` and `tonnage explain` may be asked for beside the workload file: `PlanOptions`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tonnage.api.declaring import Options, option
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions(Options):
    """The keyword arguments of `tonnage.plan`. What is not given leaves the workload's own."""

    rank: str = option("--rank", "cost, time or pareto.", default="cost", metavar="BY")
    top: int = option("--top", "Rows on a page; JSON and CSV hold all.", default=10, metavar="N", least=1)
    providers: tuple[str, ...] = option(
        "--provider", "Only this provider; may be repeated.", default=(), metavar="NAME"
    )
    platforms: tuple[str, ...] = option(
        "--platform", "Only this platform: vm, databricks, sagemaker, vertex or bedrock; may be repeated.",
        default=(), metavar="NAME",
    )  # fmt: skip
    regions: tuple[str, ...] = option("--region", "Only this region; may be repeated.", default=(), metavar="NAME")
    gpus: tuple[str, ...] = option(
        "--gpu", "Only these GPUs: H100:8, A100-80GB:1..8, 24GB..80GB; may be repeated.", default=(), metavar="SPEC"
    )
    deadline: str | None = option(
        "--deadline", "A duration such as 8h or an instant.", default=None, metavar="WHEN"
    )  # fmt: skip
    budget_usd: float | None = option(
        "--budget", "At most; for a service a month.", default=None, metavar="USD"
    )  # fmt: skip
    hold: bool | None = option(
        "--hold", "Deadline, budget and latency must hold at the far end of the 80 % interval, as memory does.",
        default=None,
    )  # fmt: skip
    accept_risk: tuple[str, ...] = option(
        "--accept-risk",
        "Take the expected figure, not the far end of the 80 % interval: memory; with --hold also deadline, budget, "
        "latency. May be repeated.",
        default=(), metavar="RISK",
    )  # fmt: skip
    trust: str | None = option(
        "--trust",
        "dated: prices that are dated, young, like their kind's and of a data centre win; any. [default: dated]",
        default=None, metavar="PRICES",
    )  # fmt: skip
    exclude: tuple[str, ...] = option(
        "--exclude",
        "Rule out community, undated, arm64, rocm, a provider, a GPU or an instance family; may be repeated.",
        default=(), metavar="WHAT",
    )  # fmt: skip
    quotas: tuple[str, ...] = option(
        "--quota",
        "The answer of a cloud's quota API: AWS, Google, or Azure with its region; may be repeated.",
        default=(), metavar="FILE[@REGION]",
    )  # fmt: skip
    layout: str | None = option(
        "--layout",
        "How the work is spread, in place of the file's `layout`: 'tp=2,pp=2,micro_batch=4'. What is left out is "
        "chosen.",
        default=None, metavar="KEYS",
    )  # fmt: skip
    memory_margin: float | None = option(
        "--memory-margin", "Device memory kept free. [default: 0.1]", default=None, metavar="FRACTION"
    )

    def keywords(self) -> Mapping[str, Any]:
        """By the names of `tonnage.plan`."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def limits(self) -> Mapping[str, Any]:
        """What limits one machine as well as a choice among many."""
        return {name: getattr(self, name) for name in ("deadline", "budget_usd", "hold", "accept_risk")}
