"""The package aiconfigurator: decoder serving from its own database of measured operators."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path

from rivals.cells import Answer, Declined, Row, number, number_or, serving_metric

TABLE = "inference"
SYSTEMS = {"A100-80GB-SXM": "a100_sxm", "A100-80GB-PCIe": "a100_pcie", "H100-80GB-SXM": "h100_sxm", "L40S": "l40s"}
ENGINES = ("trtllm", "vllm", "sglang")
QUANTS = {"fp8": "fp8", "int8": "int8_wo", "int4": "int4_wo", "awq-int4": "int4_wo"}
BATCHES = (2048, 1024, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1)


def check(row: Row) -> None:
    """Declined unless the row lies in its support matrix and is of a kind that it speaks of."""
    if row["kind"] != "decoder" or ("llama" not in row["model"] and "qwen3" not in row["model"]):
        raise Declined("model not in its support matrix")
    if row["gpu"] not in SYSTEMS or row["engine"] not in ENGINES:
        raise Declined("GPU or engine not in its support matrix")
    if row["metric"].endswith(("p90", "p95", "p99")) or "request_rate" in row["note"]:
        raise Declined("says nothing about percentiles or offered load")


def predict(row: Row) -> Answer:
    """Mode `static` for a batch, `agg` for a concurrency; else the better of the two largest batches that fit."""
    check(row)
    if row["batch_size"]:
        batch = number(row, "batch_size")
        mode = "static"
    elif row["concurrency"]:
        batch = number(row, "concurrency")
        mode = "agg"
    else:
        return _at_saturation(row), ""
    return _metric(row, int(batch), mode), ""


def _at_saturation(row: Row) -> float:
    if "per_s" not in row["metric"]:
        raise Declined("neither batch nor concurrency stated")
    found: list[float] = []
    for batch in BATCHES:
        try:
            found.append(_saturated(row, batch))
        except Declined:
            continue
        if len(found) == 2:
            break
    if not found:
        raise Declined("says that no batch fits")
    return max(found)


def _saturated(row: Row, batch: int) -> float:
    return _metric(row, batch, "agg")


def _metric(row: Row, batch: int, mode: str) -> float:
    """Rates are its own figure of finished sequences a second; times are its own times."""
    first_ms, step_ms, sequences_per_s = _estimate(_question(row), mode, batch)
    tokens = number_or(row, "output_len", 1)
    rates = {
        "requests_per_s": sequences_per_s,
        "output_tokens_per_s": sequences_per_s * tokens,
        "total_tokens_per_s": sequences_per_s * (tokens + number(row, "input_len")),
    }
    if row["metric"] in rates:
        return rates[row["metric"]]
    return serving_metric(row, batch=batch, first_s=first_ms / 1e3, step_s=step_ms / 1e3)


def _question(row: Row) -> tuple[object, ...]:
    shape = tuple(int(number(row, name)) for name in ("n_layers", "d_model", "n_heads", "n_kv_heads", "d_ff", "vocab"))
    quant = QUANTS.get(row["weights_quant"] or row["precision"], "")
    lengths = (round(number(row, "input_len")), round(number_or(row, "output_len", 1)))
    return ("qwen3" in row["model"], shape, SYSTEMS[row["gpu"]], row["engine"], quant, lengths,
            int(number_or(row, "tp", number(row, "n_gpus"))))  # fmt: skip


@cache
def _estimate(question: tuple, mode: str, batch: int) -> tuple[float, float, float]:  # type: ignore[type-arg]
    from aiconfigurator.cli.api import cli_estimate

    qwen, shape, system, engine, quant, (tokens_in, tokens_out), gpus = question
    try:
        found = cli_estimate(
            _model(qwen, shape), system, mode=mode, backend_name=engine, isl=tokens_in, osl=max(tokens_out, 2),
            batch_size=batch, tp_size=gpus, gemm_quant_mode=quant or None,
            kvcache_quant_mode="fp8" if quant == "fp8" else None,
        )  # fmt: skip
    except Exception as error:
        raise Declined(f"its error: {type(error).__name__}") from error
    return float(found.ttft), float(found.tpot), float(found.raw["seq/s"])


@cache
def _model(qwen: bool, shape: tuple[int, ...]) -> str:
    layers, width, heads, kv_heads, mlp, vocab = shape
    config = {
        "architectures": ["Qwen3ForCausalLM" if qwen else "LlamaForCausalLM"],
        "model_type": "qwen3" if qwen else "llama", "hidden_size": width, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": mlp, "vocab_size": vocab,
        "max_position_embeddings": 131072, "torch_dtype": "bfloat16", "hidden_act": "silu",
        "head_dim": 128 if qwen else width // heads, "tie_word_embeddings": False,
    }  # fmt: skip
    folder = Path(tempfile.mkdtemp(prefix="rival-"))
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)
