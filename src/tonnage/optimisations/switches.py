"""The switches there are, for training and inference, on GPUs and on processors, and what each changes in a job or in
the process that carries it out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from tonnage.errors import InputError
from tonnage.values import dataclass
from tonnage.workload.engine_models import not_run
from tonnage.workload.jobs import (
    GENERATING_ENGINES,
    Attention,
    BatchJob,
    CacheFormat,
    EngineName,
    Job,
    ServeJob,
    TrainJob,
    TrainPrecision,
    WeightFormat,
)
from tonnage.workload.programs import Program

Allocator = Literal["glibc-keeping", "jemalloc", "tcmalloc"]
Runtime = Literal["onnx", "torch"]
Group = Literal[
    "number format", "attention", "fusion", "optimizer", "layout", "engine", "key-value cache", "threads", "memory",
    "input", "launches",
]  # fmt: skip
ALLOCATOR_PACKAGES: Final = {"jemalloc": "libjemalloc2", "tcmalloc": "libtcmalloc-minimal4"}  # of Debian and Ubuntu


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchChange:
    """What differs from how the work is stated. None: as it is.

    `program`: features over those of the job's program. `threads`: of one process; `workers`: that compute passes
    beside one another, on as many threads each. `runtime`: what an encoder is computed with on a processor.
    `cuda_graphs`: compiled steps are captured and launched at once.
    """

    precision: TrainPrecision | None = None
    attention: Attention | None = None
    compile: bool | None = None
    cuda_graphs: bool | None = None
    program: Program = Program()
    weights: WeightFormat | None = None
    kv_cache: CacheFormat | None = None
    engine: EngineName | None = None
    runtime: Runtime | None = None
    threads: int | None = None
    workers: int | None = None
    allocator: Allocator | None = None

    def over(self, other: SwitchChange) -> SwitchChange:
        """This change where it says something, else the other.

        >>> both = SwitchChange(precision="bf16").over(SwitchChange(precision="fp32", threads=2))
        >>> both.precision, both.threads
        ('bf16', 2)
        """
        stated = {
            name: value
            for name in ("precision", "attention", "compile", "cuda_graphs", "weights", "kv_cache", "engine", "runtime",
                         "threads", "workers", "allocator")
            if (value := getattr(self, name)) is not None
        }  # fmt: skip
        return replace(other, program=self.program.over(other.program), **stated)


def changed(job: Job, change: SwitchChange) -> Job:
    """The job with the change in what sizing reads of it. InputError where the job is of a kind that has no such terms.

    Threads, workers, allocator and runtime belong to the process, not to the job.
    """
    if isinstance(job, TrainJob):
        stated = {name: value for name in ("precision", "attention", "compile")
                  if (value := getattr(change, name)) is not None}  # fmt: skip
        return replace(job, program=change.program.over(job.program), **stated)
    if isinstance(job, (ServeJob, BatchJob)):
        stated = {name: value for name in ("weights", "kv_cache", "engine")
                  if (value := getattr(change, name)) is not None}  # fmt: skip
        return replace(job, **stated)
    raise InputError(
        "tables have no switches of this kind", hint="`tonnage bench` compares engines of boosted trees and networks"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """One thing to switch on. `how`: what to write, and where. Of one `group` one switch can be on at a time.

    `sized`: the predictor knows the change; else its gain is unknown until it is measured, and `unsized` says why.
    """

    name: str
    group: Group
    how: str
    change: SwitchChange = SwitchChange()
    sized: bool = True
    unsized: str = ""


def gpu_switches(job: Job) -> tuple[Switch, ...]:
    """The switches of a job on a GPU, those that would change nothing left out. Whether the device has them is for the
    predictor to say."""
    if isinstance(job, TrainJob):
        return tuple(one for one in _training_on_gpus(job) if not _is_on(job, one.change))
    if isinstance(job, (ServeJob, BatchJob)):
        return tuple(one for one in _inference_on_gpus(job) if not _is_on(job, one.change))
    return ()


def processor_switches(job: Job, *, cores: int, arm: bool) -> tuple[Switch, ...]:
    """The switches of a job on a processor of so many cores."""
    if isinstance(job, TrainJob):
        mine = _training_on_processors(job, cores)
    elif isinstance(job, (ServeJob, BatchJob)) and job.requests.output_tokens is None:
        mine = _encoders_on_processors(job, cores)
    else:
        return ()
    return (*mine, *_ALLOCATORS, *(_GRAVITON if arm else ()))


def _is_on(job: Job, change: SwitchChange) -> bool:
    """Whether the job is already as the change would make it."""

    return change != SwitchChange() and not change.cuda_graphs and changed(job, change) == job


def _training_on_gpus(job: TrainJob) -> list[Switch]:
    formats = [
        Switch(name="tf32", group="number format", change=SwitchChange(precision="tf32"),
               how='train.precision: tf32 (torch.set_float32_matmul_precision("high"))'),
        Switch(name="fp16", group="number format", change=SwitchChange(precision="fp16"), how="train.precision: fp16"),
        Switch(name="bf16", group="number format", change=SwitchChange(precision="bf16"), how="train.precision: bf16"),
        Switch(name="fp8 by Transformer Engine", group="number format", change=SwitchChange(precision="fp8"),
               how="train.precision: fp8 (transformer_engine.pytorch.fp8_autocast; Hopper and newer)"),
    ]  # fmt: skip
    rest = [
        Switch(name="fused attention", group="attention", change=SwitchChange(attention="sdpa"),
               how="train.attention: sdpa (torch.nn.functional.scaled_dot_product_attention)"),
        Switch(name="torch.compile", group="fusion", change=SwitchChange(compile=True), how="train.compile: true"),
        Switch(name="fused kernels", group="fusion", change=SwitchChange(program=Program(kernels="fused")),
               how="kernels that merge norm, bias, activation and loss (Liger, Apex, Transformer Engine)"),
        Switch(name="fused optimizer", group="optimizer", change=SwitchChange(program=Program(optimizer_fused=True)),
               how="torch.optim.AdamW(..., fused=True)"),
        Switch(name="CUDA graphs", group="launches", change=SwitchChange(compile=True, cuda_graphs=True), sized=False,
               how='torch.compile(model, mode="reduce-overhead"); under `tonnage run` train.compile: true and '
               "ACCELERATE_DYNAMO_MODE=reduce-overhead",
               unsized="launch by launch is modelled, captured training steps are not"),
        Switch(name="data loader and pinned memory", group="input", sized=False,
               how="num_workers at the cores a GPU has, pin_memory=True, non_blocking=True",
               unsized="waiting for input is not modelled; `tonnage show` measures it as data_wait_s"),
    ]  # fmt: skip
    if job.model.convolutions:
        rest.append(
            Switch(name="channels-last", group="layout", change=SwitchChange(program=Program(channels_last=True)),
                   how="model.to(memory_format=torch.channels_last)")
        )  # fmt: skip
    return formats + rest


def _inference_on_gpus(job: ServeJob | BatchJob) -> list[Switch]:
    generates = job.requests.output_tokens is not None
    engines: tuple[EngineName, ...] = (
        ("vllm", "sglang", "tensorrt-llm")
        if generates
        else ("tensorrt", "onnxruntime", "onnxruntime-tensorrt", "torch-compile")
    )
    found = [
        Switch(name=weights, group="number format", change=SwitchChange(weights=weights),
               how=f"serve.weights: {weights}")
        for weights in ("fp16", "bf16", "fp8", "int8", "int4")
    ]  # fmt: skip
    found += [
        Switch(name=engine, group="engine", change=SwitchChange(engine=engine), how=f"serve.engine: {engine}")
        for engine in engines
        if engine != (job.engine or ("vllm" if generates else "tensorrt")) and not_run(engine, job.model) is None
    ]
    if generates and (job.engine or "vllm") in GENERATING_ENGINES:
        found.append(
            Switch(name="fp8 key-value cache", group="key-value cache", change=SwitchChange(kv_cache="fp8"),
                   how="serve.kv_cache: fp8")
        )  # fmt: skip
    return found


def _training_on_processors(job: TrainJob, cores: int) -> tuple[Switch, ...]:
    formats = [
        Switch(name=name, group="number format", change=SwitchChange(precision=name), how=f"train.precision: {name}")
        for name in ("fp32", "bf16")
        if name != job.precision
    ]  # fmt: skip
    threads = [
        Switch(name=f"{count} thread{'s' if count > 1 else ''}", group="threads", change=SwitchChange(threads=count),
               how=f"OMP_NUM_THREADS={count} (run.threads: {count})")
        for count in sorted({1, cores})
    ]  # fmt: skip
    compiled = Switch(
        name="torch.compile", group="fusion", change=SwitchChange(compile=True), how="train.compile: true", sized=False,
        unsized="no curve of a device profile holds compiled steps",
    )  # fmt: skip
    return (*formats, *threads, *(() if job.compile else (compiled,)))


def _encoders_on_processors(job: ServeJob | BatchJob, cores: int) -> tuple[Switch, ...]:
    unmeasured = "no curve of a device profile holds PyTorch's forward passes"
    found = [
        Switch(name="ONNX Runtime int8", group="number format", change=SwitchChange(runtime="onnx", weights="int8"),
               how="serve.engine: onnxruntime, serve.weights: int8"),
        Switch(name="PyTorch fp32", group="number format", change=SwitchChange(runtime="torch", weights="fp32"),
               sized=False, how="serve.engine: pytorch, serve.weights: fp32", unsized=unmeasured),
        Switch(name="PyTorch bf16", group="number format", change=SwitchChange(runtime="torch", weights="bf16"),
               sized=False, how="serve.engine: pytorch, serve.weights: bf16", unsized=unmeasured),
        Switch(name="PyTorch fp32, torch.compile", group="number format", sized=False,
               change=SwitchChange(runtime="torch", weights="fp32", compile=True),
               how="torch.compile(model, dynamic=True)", unsized=unmeasured),
    ]  # fmt: skip
    if job.weights == "int8":
        found[0] = Switch(name="ONNX Runtime fp32", group="number format",
                          change=SwitchChange(runtime="onnx", weights="fp32"),
                          how="serve.engine: onnxruntime, serve.weights: fp32")  # fmt: skip
    if cores > 1:
        found.append(
            Switch(name=f"{cores} workers", group="threads", change=SwitchChange(workers=cores, threads=1),
                   how=f"tonnage serve --workers {cores}: a worker a core, a thread each")
        )  # fmt: skip
        found.append(
            Switch(name=f"{cores} threads a pass", group="threads", change=SwitchChange(workers=1, threads=cores),
                   how=f"intra_op_num_threads={cores}", sized=False,
                   unsized="profiles time passes of one thread, as the server runs them")
        )  # fmt: skip
    return tuple(found)


_ALLOCATORS: Final = (
    Switch(name="glibc keeps freed memory", group="memory", change=SwitchChange(allocator="glibc-keeping"),
           how="MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184"),
    Switch(name="jemalloc", group="memory", change=SwitchChange(allocator="jemalloc"), sized=False,
           how="apt-get install libjemalloc2; LD_PRELOAD=libjemalloc.so.2 "
           "MALLOC_CONF=dirty_decay_ms:-1,muzzy_decay_ms:-1",
           unsized="how an allocator spreads what threads ask for is not modelled"),
    Switch(name="tcmalloc", group="memory", change=SwitchChange(allocator="tcmalloc"), sized=False,
           how="apt-get install libtcmalloc-minimal4; LD_PRELOAD=libtcmalloc_minimal.so.4",
           unsized="how an allocator spreads what threads ask for is not modelled"),
)  # fmt: skip
# Source: AWS, «PyTorch inference on Graviton» (github.com/aws/aws-graviton-getting-started machinelearning/pytorch.md).
_GRAVITON_SETTINGS: Final[tuple[tuple[str, Group, str], ...]] = (
    ("bf16 kernels of oneDNN", "number format", "DNNL_DEFAULT_FPMATH_MODE=BF16"),
    ("huge pages", "memory", "THP_MEM_ALLOC_ENABLE=1"),
    ("larger cache of primitives", "launches", "LRU_CACHE_CAPACITY=1024"),
)
_GRAVITON: Final = tuple(
    Switch(name=name, group=group, how=how, sized=False, unsized="no measured row is of an Arm processor")
    for name, group, how in _GRAVITON_SETTINGS
)  # fmt: skip
