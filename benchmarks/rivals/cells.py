"""Reading a row's cells, and turning one quantity into the metric that a row states."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

Row: TypeAlias = Mapping[str, str]
Answer: TypeAlias = tuple[float | None, str]  # a value, or None with the reason


class Declined(Exception):
    """The rival says nothing about this row; the text is the reason."""


def number(row: Row, name: str) -> float:
    """The cell as a number; Declined where it is blank."""
    if not row.get(name):
        raise Declined(f"{name} not stated")
    return float(row[name])


def number_or(row: Row, name: str, otherwise: float) -> float:
    return float(row[name]) if row.get(name) else otherwise


def degree(row: Row, name: str) -> int:
    """A degree of parallelism in `sharding`, such as tp=8; 1 where it is not named."""
    found = re.search(rf"\b{name}=(\d+)", row.get("sharding", ""))
    return int(found[1]) if found else 1


def training_rate(row: Row, tokens_per_s_per_gpu: float) -> float:
    """A rate per GPU in the row's own metric."""
    metric = row["metric"]
    if metric == "tokens_per_s_per_gpu":
        return tokens_per_s_per_gpu
    total = tokens_per_s_per_gpu * number(row, "n_gpus")
    if metric == "sequences_per_s":
        return total / number(row, "seq_len")
    if metric == "iteration_time_s":
        return number(row, "global_batch") * number(row, "seq_len") / total
    raise Declined(f"says nothing about {metric}")


def serving_metric(row: Row, *, batch: float, first_s: float, step_s: float) -> float:
    """The row's metric from the time to the first token and the time of each further step of `batch` sequences."""
    metric = re.sub(r"_(mean|p50)$", "", row["metric"])
    tokens = number_or(row, "output_len", 1.0)
    whole_s = first_s + step_s * (tokens - 1)
    figures = {
        "ttft_ms": first_s * 1e3,
        "tpot_ms": step_s * 1e3,
        "latency_ms": whole_s * 1e3,
        "output_tokens_per_s": batch * tokens / whole_s,
        "requests_per_s": batch / whole_s,
        "sequences_per_s": batch / whole_s,
        "samples_per_s": batch / whole_s,
    }
    if metric == "total_tokens_per_s":
        return batch * (tokens + number(row, "input_len")) / whole_s
    if metric not in figures:
        raise Declined(f"says nothing about {metric}")
    return figures[metric]


def memory_gib(row: Row, amount_bytes: float) -> float:
    """Bytes in the row's unit. A GB of unknown size is taken as 2^30 bytes, the larger one."""
    if row["metric"] not in ("peak_mem_gib", "peak_mem_gb_unspecified"):
        raise Declined(f"says nothing about {row['metric']}")
    return amount_bytes / 2**30
