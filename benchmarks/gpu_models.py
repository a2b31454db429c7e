"""Measures training of real transformers models, and single kernels, on this machine's NVIDIA GPU, under 5 minutes.

    pip install torch==2.13.0 transformers peft
    python benchmarks/gpu_models.py --gpu H100-80GB-SXM     # writes two CSV files under benchmarks/results
    python benchmarks/gpu_models.py --device cpu --tiny     # seconds on any machine: checks the script, not a GPU

Models are made from their published configuration with random weights, so nothing is downloaded. Each training case is
the loop a Trainer runs: forward with labels, backward, AdamW step; all weights or LoRA, autocast over fp32 weights or
16-bit weights, with and without gradient checkpointing. Rows stand in the columns of the fact tables; peak memory is
three rows (allocated, reserved, what the driver says the device holds). Kernels: dense products per precision, and
grouped products as a mixture of experts runs them, in the columns of the kernel table.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_grid import RESULTS, TRAINING_COLUMNS, write

KERNEL_COLUMNS = """
gpu op model shape tp tokens batch ctx bytes n_workers devices_per_node time_us tflops frac_peak_flops gb_s frac_hbm_bw
source note
""".split()  # noqa: SIM905
WARM_UP, STEPS = 3, 8


@dataclass(frozen=True, kw_only=True)
class Model:
    """A transformers configuration: class names and the figures of its `config.json`."""

    name: str
    config: str
    auto: str
    figures: dict[str, Any]
    positions: int = 8192

    @property
    def images(self) -> bool:
        return self.auto == "AutoModelForImageClassification"


def _llama(
    name: str, layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, vocab: int, *, tied: bool
) -> Model:
    figures = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
               "num_key_value_heads": kv_heads, "intermediate_size": ffn, "vocab_size": vocab,
               "max_position_embeddings": 8192, "tie_word_embeddings": tied}  # fmt: skip
    return Model(name=name, config="LlamaConfig", auto="AutoModelForCausalLM", figures=figures)


LLAMA_1B = _llama("llama-3.2-1b", 16, 2048, 32, 8, 8192, 128256, tied=True)
LLAMA_8B = _llama("llama-3.1-8b", 32, 4096, 32, 8, 14336, 128256, tied=False)
QWEN_05B = Model(
    name="qwen2.5-0.5b", config="Qwen2Config", auto="AutoModelForCausalLM",
    figures={"num_hidden_layers": 24, "hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2,
             "intermediate_size": 4864, "vocab_size": 151936, "tie_word_embeddings": True},
)  # fmt: skip
GPT2_MEDIUM = Model(
    name="gpt2-medium", config="GPT2Config", auto="AutoModelForCausalLM", positions=1024,
    figures={"n_layer": 24, "n_embd": 1024, "n_head": 16, "vocab_size": 50257},
)  # fmt: skip
BERT_LARGE = Model(
    name="bert-large-uncased", config="BertConfig", auto="AutoModelForSequenceClassification", positions=512,
    figures={"num_hidden_layers": 24, "hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096},
)  # fmt: skip
BERT_BASE = Model(
    name="bert-base-uncased", config="BertConfig", auto="AutoModelForSequenceClassification", positions=512, figures={}
)
VIT_BASE = Model(name="vit-b16-224", config="ViTConfig", auto="AutoModelForImageClassification", figures={})
TINY = Model(
    name="tiny-llama", config="LlamaConfig", auto="AutoModelForCausalLM",
    figures={"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
             "intermediate_size": 64, "vocab_size": 100},
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training case. `precision`: fp32, tf32, bf16 or fp16 (autocast over fp32 weights), bf16-true."""

    model: Model
    batch: int
    length: int = 1
    precision: str = "bf16"
    method: str = "full"
    checkpointing: bool = False
    attention: str = "sdpa"
    fused: bool = False
    compiled: bool = False

    def text(self) -> str:
        flags = [flag for flag in ("checkpointing", "fused", "compiled") if getattr(self, flag)]
        return " ".join(
            (self.model.name, self.method, self.precision, f"{self.batch} x {self.length}", self.attention, *flags)
        )


def runs() -> list[Run]:
    """The grid: small first, so that a run cut short by the clock still covers every kind."""
    out = [
        Run(model=BERT_BASE, batch=32, length=128, precision="bf16"),
        Run(model=BERT_BASE, batch=32, length=128, precision="tf32"),
        Run(model=BERT_LARGE, batch=8, length=512, precision="fp16"),
        Run(model=BERT_LARGE, batch=32, length=512, precision="bf16"),
        Run(model=BERT_LARGE, batch=32, length=512, precision="bf16", checkpointing=True),
        Run(model=BERT_LARGE, batch=32, length=384, precision="bf16", attention="eager"),
        Run(model=VIT_BASE, batch=64, precision="bf16"),
        Run(model=VIT_BASE, batch=256, precision="bf16"),
        Run(model=GPT2_MEDIUM, batch=8, length=1024, precision="bf16"),
        Run(model=GPT2_MEDIUM, batch=8, length=1024, precision="tf32"),
        Run(model=QWEN_05B, batch=4, length=2048, precision="bf16"),
        Run(model=QWEN_05B, batch=4, length=2048, precision="bf16-true", fused=True),
        Run(model=QWEN_05B, batch=4, length=2048, precision="bf16-true", method="lora"),
    ]
    for checkpointing in (False, True):
        for precision in ("bf16", "bf16-true"):
            out += [
                Run(model=LLAMA_1B, batch=batch, length=2048, precision=precision, checkpointing=checkpointing)
                for batch in (1, 4)
            ]
        out += [
            Run(model=LLAMA_1B, batch=4, length=2048, precision=precision, method="lora", checkpointing=checkpointing)
            for precision in ("bf16-true", "bf16")
        ]
    out += [
        Run(model=LLAMA_1B, batch=4, length=2048, fused=True),
        Run(model=LLAMA_1B, batch=1, length=8192, checkpointing=True),
        Run(model=LLAMA_1B, batch=4, length=2048, precision="bf16-true", attention="eager"),
        Run(model=LLAMA_8B, batch=1, length=2048, precision="bf16-true", method="lora"),
        Run(model=LLAMA_8B, batch=4, length=2048, precision="bf16-true", method="lora", checkpointing=True),
        Run(model=LLAMA_8B, batch=1, length=8192, precision="bf16-true", method="lora", checkpointing=True),
        Run(model=LLAMA_8B, batch=1, length=2048, precision="bf16-true", checkpointing=True),
        Run(model=LLAMA_1B, batch=4, length=2048, compiled=True, fused=True),
    ]
    return out


class Bench:
    """Runs the cases on one device and keeps the rows."""

    def __init__(self, torch: Any, device: str, gpu: str) -> None:
        import peft
        import transformers

        self.torch, self.device, self.gpu = torch, device, gpu
        self.cuda = device == "cuda"
        self.rows: list[dict[str, Any]] = []
        self.kernels: list[dict[str, Any]] = []
        self.today = time.strftime("%Y-%m-%d")
        self.versions = (
            f"PyTorch {torch.__version__}; HF transformers {transformers.__version__}; peft {peft.__version__}"
        )

    def train(self, run: Run) -> str:
        """Measures one case and adds its rows; out of memory is a result. Returns what to print."""
        torch = self.torch
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = run.precision == "tf32"
        torch.manual_seed(0)
        self._clear()
        try:
            params, times = self._steps(run)
        except torch.OutOfMemoryError:
            self._clear()
            self._add(run, None, [("fits", 0.0, "")])
            return "does not fit"
        step_s = statistics.median(times)
        if run.model.images:
            found = [("images_per_s", run.batch / step_s, "")]
        elif run.model.auto.endswith("Classification"):
            found = [("sequences_per_s", run.batch / step_s, "")]
        else:
            found = [("tokens_per_s_per_gpu", run.batch * run.length / step_s, "")]
        if self.cuda:
            gib, (free, total) = 2.0**30, torch.cuda.mem_get_info()
            found.append(("peak_mem_gib", torch.cuda.max_memory_allocated() / gib, "peak allocated"))
            found.append(("peak_mem_gib", torch.cuda.max_memory_reserved() / gib, "peak reserved"))
            found.append(("peak_mem_gib", (total - free) / gib, "nvidia-smi"))
        self._add(run, params, found)
        return f"{step_s * 1e3:.1f} ms; " + ", ".join(f"{value:.4g} {kind or metric}" for metric, value, kind in found)

    def _steps(self, run: Run) -> tuple[int, list[float]]:
        import transformers

        torch = self.torch
        config = getattr(transformers, run.model.config)(**run.model.figures)
        torch.set_default_dtype(torch.bfloat16 if run.precision == "bf16-true" else torch.float32)
        try:
            with torch.device(self.device):
                made = getattr(transformers, run.model.auto)
                model = made.from_config(config, attn_implementation=run.attention).train()
        finally:
            torch.set_default_dtype(torch.float32)
        params = sum(p.numel() for p in model.parameters())
        if run.checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if run.method == "lora":
            import peft

            lora = peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
            model = peft.get_peft_model(model, lora)
            model.enable_input_require_grads()
        if hasattr(config, "use_cache"):
            model.config.use_cache = False
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=run.fused or None)
        mixed = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(run.precision)
        scaler = torch.amp.GradScaler(self.device, enabled=run.precision == "fp16")
        batch = self._batch(run, config)
        call = torch.compile(model) if run.compiled else model

        def step() -> None:
            with torch.autocast(self.device, dtype=mixed, enabled=mixed is not None):
                loss = call(**batch).loss
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)

        return params, self._time(step)

    def _batch(self, run: Run, config: Any) -> dict[str, Any]:
        torch = self.torch
        if run.model.images:
            kind = torch.bfloat16 if run.precision == "bf16-true" else torch.float32
            pixels = torch.randn(run.batch, 3, config.image_size, config.image_size, device=self.device, dtype=kind)
            return {"pixel_values": pixels, "labels": torch.zeros(run.batch, dtype=torch.long, device=self.device)}
        ids = torch.randint(5, config.vocab_size, (run.batch, run.length), device=self.device)
        whole = run.model.auto == "AutoModelForCausalLM"
        return {"input_ids": ids, "labels": ids if whole else ids[:, 0] % 2}

    def _time(self, step: Any) -> list[float]:
        wait = self.torch.cuda.synchronize if self.cuda else lambda: None
        times = []
        for _ in range(WARM_UP + STEPS):
            start = time.perf_counter()
            step()
            wait()
            times.append(time.perf_counter() - start)
            if len(times) > WARM_UP + 2 and sum(times[WARM_UP:]) > 4.0:
                break
        return times[WARM_UP:]

    def _clear(self) -> None:
        gc.collect()
        if self.cuda:
            self.torch.cuda.empty_cache()
            self.torch.cuda.reset_peak_memory_stats()

    def _add(self, run: Run, params: int | None, found: list[tuple[str, float, str]]) -> None:
        import transformers

        config = getattr(transformers, run.model.config)(**run.model.figures)
        number = 1 + len({row["config_id"] for row in self.rows})
        base = "bf16" if run.precision == "bf16-true" else "fp32"
        adapters = f"; LoRA r=16 on all linear layers, {base} base" if run.method == "lora" else ""
        held = "16-bit weights and optimizer state" if run.precision == "bf16-true" else "autocast, fp32 weights"
        for metric, value, kind in found:
            self.rows.append({
                "id": f"gm{len(self.rows) + 1:05d}", "config_id": f"t-models-{number:04d}",
                "source": f"tonnage benchmarks/gpu_models.py {self.today} on {self.gpu}", "model": run.model.name,
                "params": params, "n_layers": config.num_hidden_layers, "d_model": config.hidden_size,
                "n_heads": config.num_attention_heads,
                "n_kv_heads": getattr(config, "num_key_value_heads", config.num_attention_heads),
                "d_ff": getattr(config, "intermediate_size", 4 * config.hidden_size),
                "vocab": getattr(config, "vocab_size", None), "seq_len": None if run.model.images else run.length,
                "gpu": self.gpu, "n_gpus": 1, "gpus_per_node": 1, "micro_batch_per_gpu": run.batch, "grad_accum": 1,
                "global_batch": run.batch, "precision": run.precision,
                "method": "lora r=16" if run.method == "lora" else run.method,
                "optimizer": "AdamW fused" if run.fused else "AdamW", "sharding": "none",
                "activation_checkpointing": "full" if run.checkpointing else "none", "attention": run.attention,
                "compile": "y" if run.compiled else "n", "metric": metric, "value": float(f"{value:.6g}"),
                "note": f"{self.versions}; {held}{adapters}; random weights, random tokens, no data loading; "
                        f"{'fine-tuning' if run.model.auto.endswith('Classification') else 'causal LM loss in fp32'}",
                "published_value": float(f"{value:.6g}"), "published_unit": metric, "derived": "n", "mem_kind": kind,
                "family": f"models-{run.model.name}", "source_group": "tonnage-models", "shape_source": "script",
                "quality": "ok", "program": "transformers", "program_version": transformers.__version__,
                "optimizer_fused": "y" if run.fused else "n",
                "objective": "language-model" if run.model.auto.endswith("CausalLM") else "classification",
            })  # fmt: skip

    def products(self, *, tiny: bool) -> None:
        """Dense products by precision, and grouped products of a mixture of experts (bf16)."""
        torch = self.torch
        sizes = ((64, 64, 64),) if tiny else (
            (8192, 8192, 8192), (4096, 4096, 4096), (2048, 4096, 4096), (512, 4096, 14336), (128, 4096, 14336),
            (16, 4096, 14336), (1, 4096, 14336), (16384, 4096, 14336), (32768, 1024, 4096),
        )  # fmt: skip
        for precision in ("fp32", "tf32", "bf16", "fp8"):
            for m, k, n in sizes:
                self._product(precision, m, k, n)
        experts = ((4, 2, 64, 32),) if tiny else ((128, 8, 2048, 768), (8, 2, 4096, 14336), (32, 4, 2880, 2880))
        for count, chosen, hidden, ffn in experts:
            weights = torch.randn(count, hidden, ffn, device=self.device, dtype=torch.bfloat16)
            for tokens in (1, 4, 16, 64, 256, 1024, 4096, 16384):
                if tiny and tokens > 16:
                    continue
                self._grouped(weights, tokens, chosen, f"experts={count} k={chosen} K={hidden} N={ffn}")

    def _product(self, precision: str, m: int, k: int, n: int) -> None:
        torch = self.torch
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        if precision == "fp8":
            if not self.cuda or m < 16:
                return
            a = torch.randn(m, k, device=self.device).to(torch.float8_e4m3fn)
            b = torch.randn(n, k, device=self.device).to(torch.float8_e4m3fn).t()
            one = torch.tensor(1.0, device=self.device)
            seconds = self._kernel(lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16))
        else:
            kind = torch.bfloat16 if precision == "bf16" else torch.float32
            a, b = (torch.randn(*size, device=self.device, dtype=kind) for size in ((m, k), (k, n)))
            seconds = self._kernel(lambda: a @ b)
        element = {"fp32": 4, "tf32": 4, "bf16": 2, "fp8": 1}[precision]
        moved = element * (m * k + k * n) + (2 if precision == "fp8" else element) * m * n
        self._kernel_row("gemm", f"K={k} N={n}", m, seconds, 2.0 * m * k * n, moved, precision)

    def _grouped(self, weights: Any, tokens: int, chosen: int, shape: str) -> None:
        """Rows dealt to experts at random, as a router deals them; one grouped kernel."""
        torch = self.torch
        if not hasattr(torch, "_grouped_mm") or not self.cuda:
            return
        count, hidden, ffn = weights.shape
        picks = torch.rand(tokens, count, device=self.device).topk(chosen, dim=1).indices.flatten()
        per_expert = torch.bincount(picks, minlength=count)
        ends = per_expert.cumsum(0).to(torch.int32)
        rows = torch.randn(tokens * chosen, hidden, device=self.device, dtype=torch.bfloat16)
        seconds = self._kernel(lambda: torch._grouped_mm(rows, weights, offs=ends))
        hit = int((per_expert > 0).sum())
        moved = 2.0 * (rows.numel() + hit * hidden * ffn + tokens * chosen * ffn)
        self._kernel_row("grouped gemm", f"{shape} hit={hit}", tokens, seconds, 2.0 * rows.numel() * ffn, moved, "bf16")

    def _kernel(self, call: Any) -> float:
        """Median seconds of one call, by events around batches of calls."""
        torch = self.torch
        for _ in range(5):
            call()
        if not self.cuda:
            start = time.perf_counter()
            call()
            return time.perf_counter() - start
        times = []
        for _ in range(7):
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            for _ in range(10):
                call()
            last.record()
            torch.cuda.synchronize()
            times.append(first.elapsed_time(last) / 1e4)
        return statistics.median(times)

    def _kernel_row(
        self, op: str, shape: str, tokens: int, seconds: float, flop: float, moved: float, precision: str
    ) -> None:
        self.kernels.append({
            "gpu": self.gpu, "op": op, "shape": shape, "tokens": tokens, "n_workers": 1,
            "time_us": float(f"{seconds * 1e6:.5g}"), "tflops": float(f"{flop / seconds / 1e12:.5g}"),
            "gb_s": float(f"{moved / seconds / 1e9:.5g}"),
            "source": f"tonnage benchmarks/gpu_models.py {self.today}",
            "note": f"{precision}; torch {self.torch.__version__}; random data",
        })  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a toy model, to check the script")
    parser.add_argument("--gpu", required=False, help="the catalog's name of the device, for the gpu column")
    parser.add_argument("--minutes", type=float, default=5.0, help="start no case after this many minutes")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    import torch

    if given.device == "cuda" and not torch.cuda.is_available():
        print("error: torch sees no CUDA device\nhint: --device cpu --tiny checks the script", file=sys.stderr)
        return 2
    name = given.gpu or (torch.cuda.get_device_name() if given.device == "cuda" else "cpu")
    bench, begun = Bench(torch, given.device, name), time.perf_counter()
    bench.products(tiny=given.tiny)
    cases = runs()
    if given.tiny:
        cases = [Run(model=TINY, batch=2, length=16, method=method, checkpointing=again)
                 for method in ("full", "lora") for again in (False, True)]  # fmt: skip
    left = 0
    for case in cases:
        if time.perf_counter() - begun > given.minutes * 60:
            left += 1
            continue
        print(f"{case.text()}: {bench.train(case)}", flush=True)
    stem = f"{name.lower().replace(' ', '-')}_{bench.today}"
    write(given.out / f"gpu_models_training_{stem}.csv", TRAINING_COLUMNS, bench.rows)
    write(given.out / f"gpu_kernels_{stem}.csv", KERNEL_COLUMNS, bench.kernels)
    print(f"{len(bench.rows)} rows, {len(bench.kernels)} kernels, {(time.perf_counter() - begun) / 60:.1f} minutes")
    if left:
        print(f"left out for lack of time: {left} cases", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
