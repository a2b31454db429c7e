"""Measures training steps and inference on this machine's NVIDIA GPU, under 8 minutes, as rows of measured facts.

    pip install torch==2.13.0
    python benchmarks/gpu_grid.py                          # writes two CSV files under benchmarks/results
    python benchmarks/gpu_grid.py --dry-run                # prints the points, touches nothing
    python benchmarks/gpu_grid.py --device cpu --tiny      # a minute on any machine: checks the script, not a GPU

BERT-base and -large, GPT-2, and Llama shapes, built here from torch modules with random weights; batch x length x
precision x recomputation x attention. A step is timed with CUDA events after warm-up; each row is a median. Peak
memory is three rows: allocated and reserved as torch counts them, and what the driver says the device holds. What runs
out of memory is a row `fits` = 0. The points are taken in a fixed random order, so that a grid cut short by the clock
still covers every dimension; what was cut is said.
"""

from __future__ import annotations

import argparse
import csv
import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
TRAINING_COLUMNS = """
id config_id source model params n_layers d_model n_heads n_kv_heads d_ff vocab seq_len gpu n_gpus gpus_per_node
micro_batch_per_gpu grad_accum global_batch precision method optimizer sharding activation_checkpointing attention
compile metric value mfu_reported note published_value published_unit derived mem_kind train_tokens family source_group
shape_source quality program program_version optimizer_fused objective
""".split()  # noqa: SIM905
INFERENCE_COLUMNS = """
id config_id source model params n_layers d_model n_heads n_kv_heads d_ff vocab kind gpu n_gpus tp engine precision
weights_quant batch_size concurrency input_len output_len metric value note mem_kind quality
""".split()  # noqa: SIM905
ENGINES = {"eager": "pytorch", "graph": "pytorch-cudagraph", "compile": "torch-compile"}  # the engine column
WARM_UP, STEPS = 3, 10  # steps before the clock, steps timed: at most
POINT_S = 1.0  # about as long as a point is timed; slow steps are timed at least three times


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A transformer: `encoder` (BERT: post-norm, GELU), `gpt` (pre-norm), `llama` (RMS norm, rotary, gated MLP)."""

    name: str
    style: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    positions: int = 8192

    @property
    def kind(self) -> str:
        return "encoder" if self.style == "encoder" else "decoder"


def shape_of(name: str, style: str, *sizes: int, positions: int = 8192) -> Shape:
    """`sizes`: layers, hidden, heads, kv heads, MLP width, vocabulary."""
    names = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab")
    return Shape(name=name, style=style, positions=positions, **dict(zip(names, sizes, strict=True)))


SHAPES = (
    shape_of("bert-base", "encoder", 12, 768, 12, 12, 3072, 30522, positions=512),
    shape_of("bert-large", "encoder", 24, 1024, 16, 16, 4096, 30522, positions=512),
    shape_of("gpt2", "gpt", 12, 768, 12, 12, 3072, 50257, positions=1024),
    shape_of("tinyllama-1.1b", "llama", 22, 2048, 32, 4, 5632, 32000),
    shape_of("llama-7b-4-layers", "llama", 4, 4096, 32, 32, 11008, 32000),
)
TINY = tuple(shape_of(f"tiny-{style}", style, 2, 32, 4, 2 if style == "llama" else 4, 64, 100) for style in
             ("encoder", "gpt", "llama"))  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Point:
    """One configuration to measure. `mode`: train, forward (encoder), prefill, decode; `how`: eager, graph, compile."""

    shape: Shape
    mode: str
    precision: str
    batch: int
    length: int
    attention: str
    recompute: str = "none"
    how: str = "eager"

    def text(self) -> str:
        parts = (self.mode, self.shape.name, self.precision, f"{self.batch} x {self.length}", self.attention)
        return " ".join((*parts, f"recompute {self.recompute}" if self.mode == "train" else self.how))


def training_points(shapes: tuple[Shape, ...], *, tiny: bool) -> Iterator[Point]:
    """Every batch, length and precision with fused attention; eager attention and recomputation at some of them."""
    batches, lengths = ((2,), (8, 16)) if tiny else ((1, 8, 64), (128, 512, 2048))
    precisions = ("fp32", "bf16") if tiny else ("fp32", "tf32", "bf16", "fp16")
    for shape, precision, batch, length in product(shapes, precisions, batches, lengths):
        if length > shape.positions or batch * length > (8192 if precision == "fp32" else 32_768):
            continue  # the rest would take seconds a step
        variants = [("sdpa", "none")]
        if precision in ("fp32", "bf16"):
            variants += [("eager", "none")]
            variants += [("sdpa", "full")] if tiny or batch * length >= 4096 else []  # nobody recomputes what is small
        for attention, recompute in variants:
            yield Point(shape=shape, mode="train", precision=precision, batch=batch, length=length,
                        attention=attention, recompute=recompute)  # fmt: skip


def inference_points(shapes: tuple[Shape, ...], *, tiny: bool, compiled: bool, graphs: bool) -> Iterator[Point]:
    """Encoders: whole passes. Decoders: prefill, and one step at a full KV cache."""
    batches, lengths = ((2,), (8, 16)) if tiny else ((1, 8, 64), (128, 512, 2048))
    precisions = ("fp32", "bf16") if tiny else ("fp32", "tf32", "fp16")
    hows = ("eager", *(("graph",) if graphs else ()), *(("compile",) if compiled else ()))
    for shape, precision, batch, length, how in product(shapes, precisions, batches, lengths, hows):
        if length > shape.positions or batch * length > 32_768:
            continue
        modes = ("forward",) if shape.kind == "encoder" else ("prefill", "decode")
        both = how == "eager" and precision in ("fp32", "fp16")
        for mode, attention in product(modes, ("sdpa", "eager") if both else ("sdpa",)):
            if how == "compile" and mode == "decode":
                continue  # compiling takes longer than all the rest of a decode point
            yield Point(shape=shape, mode=mode, precision=precision, batch=batch, length=length, attention=attention,
                        how=how)  # fmt: skip


def build_model(torch: Any, shape: Shape, attention: str, recompute: str) -> Any:
    """The model of `shape` from torch modules; its forward takes token ids, or (ids, cache) for a decode step."""
    nn, functional = torch.nn, torch.nn.functional
    head_dim, repeat = shape.hidden // shape.heads, shape.heads // shape.kv_heads
    dropout = 0.0 if shape.style == "llama" else 0.1
    causal = shape.style != "encoder"
    norm = nn.RMSNorm if shape.style == "llama" else nn.LayerNorm
    bias = shape.style != "llama"

    def attend(q: Any, k: Any, v: Any, training: bool) -> Any:
        if repeat > 1:
            k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        masked = causal and q.shape[2] > 1
        share = dropout if training else 0.0
        if attention == "sdpa":
            return functional.scaled_dot_product_attention(q, k, v, is_causal=masked, dropout_p=share)
        scores = q @ k.transpose(2, 3) / head_dim**0.5
        if masked:
            above = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(above, float("-inf"))
        return functional.dropout(scores.softmax(-1), share, training) @ v

    def angles(first: int, tokens: int, x: Any) -> Any:
        """Cosines and sines of rotary positions (Su et al. 2021, arXiv:2104.09864), once a pass."""
        half = head_dim // 2
        steps = torch.arange(first, first + tokens, device=x.device, dtype=torch.float32)
        turned = steps[:, None] * 10000.0 ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
        return turned.cos().to(x.dtype), turned.sin().to(x.dtype)

    def rotate(x: Any, turn: Any) -> Any:
        """Halves of each head rotated against each other."""
        a, b = x.chunk(2, -1)
        return torch.cat((a * turn[0] - b * turn[1], a * turn[1] + b * turn[0]), -1)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            kv = shape.kv_heads * head_dim
            self.q, self.k, self.v = (nn.Linear(shape.hidden, n, bias=bias) for n in (shape.hidden, kv, kv))
            self.out = nn.Linear(shape.hidden, shape.hidden, bias=bias)
            self.up = nn.Linear(shape.hidden, shape.ffn, bias=bias)
            self.gate = nn.Linear(shape.hidden, shape.ffn, bias=False) if shape.style == "llama" else None
            self.down = nn.Linear(shape.ffn, shape.hidden, bias=bias)
            self.norm1, self.norm2 = norm(shape.hidden), norm(shape.hidden)
            self.drop = nn.Dropout(dropout)

        def mix(self, x: Any, cache: Any, turn: Any) -> Any:
            batch, tokens, _ = x.shape
            q, k, v = (made(x).view(batch, tokens, -1, head_dim).transpose(1, 2) for made in (self.q, self.k, self.v))
            if turn is not None:
                q, k = rotate(q, turn), rotate(k, turn)
            if cache is not None:  # the new tokens' keys and values take the last places
                first = cache[0].shape[2] - tokens
                cache[0][:, :, first:], cache[1][:, :, first:] = k, v
                k, v = cache
            return self.drop(self.out(attend(q, k, v, self.training).transpose(1, 2).reshape(batch, tokens, -1)))

        def feed(self, x: Any) -> Any:
            inner = functional.gelu(self.up(x)) if self.gate is None else functional.silu(self.gate(x)) * self.up(x)
            return self.drop(self.down(inner))

        def forward(self, x: Any, cache: Any = None, turn: Any = None) -> Any:
            if shape.style == "encoder":
                x = self.norm1(x + self.mix(x, cache, turn))
                return self.norm2(x + self.feed(x))
            x = x + self.mix(self.norm1(x), cache, turn)
            return x + self.feed(self.norm2(x))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(shape.vocab, shape.hidden)
            self.places = None if shape.style == "llama" else nn.Embedding(shape.positions, shape.hidden)
            self.drop = nn.Dropout(dropout)
            self.blocks = nn.ModuleList(Block() for _ in range(shape.layers))
            self.last = norm(shape.hidden)
            outputs = 2 if shape.style == "encoder" else shape.vocab
            self.head = nn.Linear(shape.hidden, outputs, bias=False)
            if shape.style == "gpt":
                self.head.weight = self.tokens.weight  # tied
            for weight in self.parameters():
                if weight.dim() > 1:
                    nn.init.normal_(weight, std=0.02)

        def forward(self, ids: Any, caches: Any = None, last_only: bool = False) -> Any:
            x = self.tokens(ids)
            first = 0 if caches is None else caches[0][0].shape[2] - ids.shape[1]
            if self.places is not None:
                x = x + self.places.weight[first : first + ids.shape[1]]
            x = self.drop(self.last(x) if shape.style == "encoder" else x)
            turn = angles(first, ids.shape[1], x) if shape.style == "llama" else None
            for index, block in enumerate(self.blocks):
                if recompute == "full" and self.training:
                    x = torch.utils.checkpoint.checkpoint(block, x, None, turn, use_reentrant=False)
                else:
                    x = block(x, None if caches is None else caches[index], turn)
            if shape.style == "encoder":
                return self.head(x[:, 0])
            x = self.last(x)
            return self.head(x[:, -1:] if last_only else x)

    return Model()


class Bench:
    """Runs points on one device and keeps the rows."""

    def __init__(self, torch: Any, device: str, gpu: str) -> None:
        self.torch, self.device, self.gpu = torch, device, gpu
        self.cuda = device == "cuda"
        self.training: list[dict[str, Any]] = []
        self.inference: list[dict[str, Any]] = []
        self.versions = f"torch {torch.__version__}" + (f", CUDA {torch.version.cuda}" if self.cuda else ", CPU")
        self.today = time.strftime("%Y-%m-%d")
        self.device_bytes = 0
        self.optimizer = "AdamW fused" if self.cuda else "AdamW"

    def measure(self, point: Point) -> str:
        """Measures one point and adds its rows; out of memory is a result. Returns what to print."""
        torch = self.torch
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = point.precision == "tf32"
        torch.manual_seed(0)
        self._clear()
        try:
            params, times = self._train(point) if point.mode == "train" else self._infer(point)
        except torch.OutOfMemoryError:
            self._add(point, None, [("fits", 0.0, "")])
            return "does not fit"
        finally:
            self._read_device()
            self._clear(keep_peak=True)
        if point.mode == "train" and point.shape.kind == "encoder":
            found = [("sequences_per_s", point.batch / statistics.median(times), "")]
        elif point.mode == "train":
            found = [("tokens_per_s_per_gpu", point.batch * point.length / statistics.median(times), "")]
        else:
            median_ms, mean_ms = statistics.median(times) * 1e3, statistics.fmean(times) * 1e3
            name = {"forward": "latency_ms", "prefill": "ttft_ms", "decode": "tpot_ms"}[point.mode]
            found = [(f"{name}_p50", median_ms, ""), (f"{name}_mean" if name == "latency_ms" else name, mean_ms, "")]
        if self.cuda:
            gib = 2.0**30
            found.append(("peak_mem_gib", torch.cuda.max_memory_allocated() / gib, "peak allocated"))
            found.append(("peak_mem_gib", torch.cuda.max_memory_reserved() / gib, "peak reserved"))
            found.append(("peak_mem_gib", self.device_bytes / gib, "nvidia-smi"))
            if point.mode == "train":
                found.append(("fits", 1.0, ""))
        self._add(point, params, found, steps=len(times))
        return f"{statistics.median(times) * 1e3:.2f} ms over {len(times)} steps"

    def _train(self, point: Point) -> tuple[int, list[float]]:
        torch = self.torch
        with torch.device(self.device):
            model = build_model(torch, point.shape, point.attention, point.recompute).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=self.cuda)
        ids = torch.randint(point.shape.vocab, (point.batch, point.length), device=self.device)
        labels = ids[:, 0] % 2 if point.shape.kind == "encoder" else ids
        mixed = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(point.precision)
        scaler = torch.amp.GradScaler(self.device, enabled=point.precision == "fp16")

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(self.device, dtype=mixed, enabled=mixed is not None):
                logits = model(ids)
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2).float(), labels.flatten())
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

        return sum(p.numel() for p in model.parameters()), self._time(step)

    def _infer(self, point: Point) -> tuple[int, list[float]]:
        torch, shape = self.torch, point.shape
        kind = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(point.precision, torch.float32)
        with torch.device(self.device):
            model = build_model(torch, shape, point.attention, "none").to(kind).eval()
        self._clear()  # the fp32 weights it was made from do not count
        new = 1 if point.mode == "decode" else point.length
        ids = torch.randint(shape.vocab, (point.batch, new), device=self.device)
        caches = None
        if point.mode == "decode":
            size = (point.batch, shape.kv_heads, point.length, shape.hidden // shape.heads)
            caches = [
                tuple(torch.randn(size, device=self.device, dtype=kind) for _ in range(2)) for _ in range(shape.layers)
            ]
        call = torch.compile(model) if point.how == "compile" else model

        def step() -> None:
            with torch.no_grad():
                call(ids, caches, True)

        params = sum(p.numel() for p in model.parameters())
        return params, self._time(self._captured(step) if point.how == "graph" else step)

    def _captured(self, step: Callable[[], None]) -> Callable[[], None]:
        """The step as one CUDA graph: the host launches it once."""
        torch = self.torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay

    def _time(self, step: Callable[[], None]) -> list[float]:
        """Seconds of each step timed. On a GPU the events of all steps are read once, after the last."""
        torch, wait = self.torch, self.torch.cuda.synchronize if self.cuda else lambda: None
        begun, last = time.perf_counter(), 0.0
        for ran in range(WARM_UP):
            last = _seconds(lambda: (step(), wait()))
            if ran and time.perf_counter() - begun > POINT_S:
                break
        count = max(3, min(STEPS, int(POINT_S / last)))
        if not self.cuda:
            return [_seconds(step) for _ in range(count)]
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        marks[0].record()
        for mark in marks[1:]:
            step()
            mark.record()
        torch.cuda.synchronize()
        return [a.elapsed_time(b) / 1e3 for a, b in pairwise(marks)]

    def _read_device(self) -> None:
        """What the driver counts as used, before the allocator hands its cache back: context and libraries too."""
        if self.cuda:
            free, total = self.torch.cuda.mem_get_info()
            self.device_bytes = total - free

    def _clear(self, *, keep_peak: bool = False) -> None:
        gc.collect()
        if self.cuda:
            # cuBLAS keeps a workspace for every stream it ran on (32 MiB on Hopper): those of earlier points' graphs
            # would count in the peaks of later ones.
            self.torch._C._cuda_clearCublasWorkspaces()
            self.torch.cuda.empty_cache()
            if not keep_peak:
                self.torch.cuda.reset_peak_memory_stats()

    def _add(
        self, point: Point, params: int | None, found: list[tuple[str, float, str]], *, steps: int | None = None
    ) -> None:
        shape, train = point.shape, point.mode == "train"
        rows = self.training if train else self.inference
        config = f"{'t' if train else 'i'}-grid-{1 + len({row['config_id'] for row in rows}):04d}"
        source = f"tonnage benchmarks/gpu_grid.py {self.today} on {self.gpu}"
        timed = f"; {steps} steps timed after warm-up" if steps else "; out of memory"
        common = {
            "config_id": config, "source": source, "model": shape.name, "params": params, "n_layers": shape.layers,
            "d_model": shape.hidden, "n_heads": shape.heads, "n_kv_heads": shape.kv_heads, "d_ff": shape.ffn,
            "vocab": shape.vocab, "gpu": self.gpu, "n_gpus": 1, "precision": point.precision,
        }  # fmt: skip
        for metric, value, kind in found:
            row = {**common, "metric": metric, "value": float(f"{value:.6g}")}
            row["id"] = f"{'gt' if train else 'gi'}{len(rows) + 1:05d}"
            row["note"] = f"{self.versions}{timed}; random weights; {_said(point)}"
            if train:
                row |= {
                    "seq_len": point.length, "gpus_per_node": 1, "micro_batch_per_gpu": point.batch, "grad_accum": 1,
                    "global_batch": point.batch, "method": "full", "optimizer": self.optimizer, "sharding": "none",
                    "activation_checkpointing": point.recompute, "attention": point.attention, "compile": "n",
                    "published_value": row["value"], "published_unit": metric, "derived": "n", "mem_kind": kind,
                    "family": f"grid-{shape.name}", "source_group": "tonnage-grid", "shape_source": "script",
                    "quality": "ok", "program": "pytorch", "program_version": self.torch.__version__,
                    "optimizer_fused": "y" if self.cuda else "n",
                    "objective": "classification" if shape.kind == "encoder" else "language-model",
                }  # fmt: skip
            else:
                row |= {"kind": shape.kind, "tp": 1, "engine": ENGINES[point.how], "batch_size": point.batch,
                        "input_len": point.length, "output_len": None if shape.kind == "encoder" else 1,
                        "mem_kind": kind, "quality": "ok"}  # fmt: skip
            rows.append(row)


def _said(point: Point) -> str:
    """What the columns have no room for."""
    if point.mode == "train":
        task = "classification head" if point.shape.kind == "encoder" else "causal LM loss on every position"
        mixed = "; autocast, fp32 weights" if point.precision in ("bf16", "fp16") else ""
        dropout = "" if point.shape.style == "llama" else "; dropout 0.1"
        return f"{task}{mixed}{dropout}; no data loading"
    how = {"eager": "eager", "graph": "CUDA graph", "compile": "torch.compile"}[point.how]
    what = {"forward": "fixed length", "prefill": "prefill, last position's logits",
            "decode": "one decode step; input_len is the KV cache"}[point.mode]  # fmt: skip
    return f"{how}; attention {point.attention}; {what}"


def _seconds(step: Callable[[], object]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def write(path: Path, columns: list[str], rows: list[dict[str, Any]]) -> None:
    """CSV of `rows` in exactly `columns`; an unknown figure is blank."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="three toy shapes, to check the script")
    parser.add_argument("--compile", action="store_true", help="torch.compile for inference as well (slow to warm up)")
    parser.add_argument("--gpu", help="name for the gpu column; default: what torch calls the device")
    parser.add_argument("--minutes", type=float, default=7.5, help="start no point after this many minutes")
    parser.add_argument("--seed", type=int, default=0, help="order of the points")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--dry-run", action="store_true", help="print the points and stop")
    given = parser.parse_args()
    shapes = TINY if given.tiny else SHAPES
    graphs = given.device == "cuda"
    points = [
        *training_points(shapes, tiny=given.tiny),
        *inference_points(shapes, tiny=given.tiny, compiled=given.compile, graphs=graphs),
    ]
    random.Random(given.seed).shuffle(points)
    if given.dry_run:
        print("\n".join(point.text() for point in points))
        print(f"{len(points)} points", file=sys.stderr)
        return 0
    try:
        import torch
        import torch.utils.checkpoint
    except ImportError:
        print("error: torch is not installed\nhint: pip install torch==2.13.0", file=sys.stderr)
        return 2
    if given.device == "cuda" and not torch.cuda.is_available():
        print("error: torch sees no CUDA device\nhint: --device cpu --tiny checks the script", file=sys.stderr)
        return 2
    if given.device == "cpu":
        torch.set_num_threads(1)  # toy sizes: threads only wait for each other
    name = given.gpu or (torch.cuda.get_device_name() if given.device == "cuda" else "cpu")
    bench = Bench(torch, given.device, name)
    begun, done = time.perf_counter(), 0
    for point in points:
        if time.perf_counter() - begun > given.minutes * 60:
            break
        print(f"{done + 1}/{len(points)} {point.text()}: {bench.measure(point)}", flush=True)
        done += 1
    stem = f"{name.lower().replace(' ', '-')}_{bench.today}"
    write(given.out / f"gpu_grid_training_{stem}.csv", TRAINING_COLUMNS, bench.training)
    write(given.out / f"gpu_grid_inference_{stem}.csv", INFERENCE_COLUMNS, bench.inference)
    minutes = (time.perf_counter() - begun) / 60
    print(f"{done} of {len(points)} points, {len(bench.training)} + {len(bench.inference)} rows, {minutes:.1f} minutes")
    if done < len(points):
        print(f"left out for lack of time: {len(points) - done} points (--minutes, or another --seed)", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
