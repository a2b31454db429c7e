"""Serving layouts that cannot be: degrees over GPUs or that do not divide, what an engine or a job has no use for."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.values import dataclass
from tonnage.workload.expert_layouts import EXPERT_RULES, POOLED_ENGINES, Degrees, allowed
from tonnage.workload.file.layout_checks import LayoutFault, find_head_faults
from tonnage.workload.file.layout_fields import ServingLayoutFields
from tonnage.workload.shapes import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutContext:
    """What of the job a layout is judged by. `shape` None: not known yet."""

    shape: ModelShape | None
    engine: str | None
    max_gpus: int | None
    service: bool  # requests come at a rate, rather than all at once
    latency: bool  # a whole answer's latency is promised

    @property
    def served_by(self) -> str:
        return self.engine or "vllm"


def find_serving_faults(layout: ServingLayoutFields, asked: LayoutContext) -> Iterator[LayoutFault]:
    """Everything about a serving layout that no machine can run."""
    tensor, groups = layout.tensor_parallel or 1, layout.attention_data_parallel or 1
    copies = (layout.prefill_replicas or 0) + (layout.decode_replicas or 0)
    needed = tensor * max(copies, 1)
    if asked.max_gpus is not None and needed > asked.max_gpus:
        name = "tensor_parallel" if tensor > asked.max_gpus else "decode_replicas"
        yield LayoutFault(
            name,
            f"the layout takes {needed} GPUs, max_gpus is {asked.max_gpus}",
            "lower it, or raise constraints.max_gpus",
        )
    if layout.batch is not None and layout.concurrency is not None:
        yield LayoutFault(
            "concurrency",
            f"found {layout.concurrency} beside batch {layout.batch}: a fixed batch runs to its "
            "last token, nothing joins it",
            "keep one of the two",
        )
    if asked.shape is None:
        return
    if asked.shape.causal:
        yield from find_head_faults(tensor // groups if tensor % groups == 0 else tensor, asked.shape)
    else:
        yield from find_head_faults(tensor, asked.shape)
        if layout.concurrency is not None:
            fault = f"{asked.shape.name} answers in one pass, in batches: nothing is in flight beside them"
            yield LayoutFault("concurrency", fault, f"batch: {layout.concurrency}")
    yield from _expert_faults(layout, asked, asked.shape)
    yield from _pool_faults(layout, asked, asked.shape)


def _expert_faults(layout: ServingLayoutFields, asked: LayoutContext, shape: ModelShape) -> Iterator[LayoutFault]:
    rule = EXPERT_RULES.get(asked.served_by)
    degrees: tuple[tuple[str, int | None, Degrees | None], ...] = (
        ("expert_parallel", layout.expert_parallel, None if rule is None else rule.experts),
        ("attention_data_parallel", layout.attention_data_parallel, None if rule is None else rule.attention),
    )
    for name, degree, of in degrees:
        if degree in (None, 1):
            continue
        if not shape.experts:
            yield LayoutFault(name, f"{shape.name} has no experts", "leave the key out")
        elif of is None or layout.batch is not None:
            runs = asked.served_by if layout.batch is None else "a fixed batch"
            yield LayoutFault(name, f"found {degree}, which {runs} does not run", f"engine: {', '.join(EXPERT_RULES)}")
        elif layout.tensor_parallel is not None and not allowed(degree, layout.tensor_parallel, of):
            takes = f"{layout.tensor_parallel} (all of them)" if of == "all" else "a divisor of it"
            fault = f"found {degree} of tensor_parallel {layout.tensor_parallel}: {asked.served_by} takes 1 or {takes}"
            yield LayoutFault(name, fault, f"tensor_parallel: {degree}, or {name}: 1")
        elif name == "expert_parallel" and shape.experts % degree:
            yield LayoutFault(
                name,
                f"found {degree}, which does not divide the {shape.experts} experts of {shape.name}",
                "use a divisor",
            )


def _pool_faults(layout: ServingLayoutFields, asked: LayoutContext, shape: ModelShape) -> Iterator[LayoutFault]:
    prefill, decode = layout.prefill_replicas, layout.decode_replicas
    if prefill is None and decode is None:
        return
    name = "prefill_replicas" if prefill is not None else "decode_replicas"
    if prefill is None or decode is None:
        missing = "decode_replicas" if decode is None else "prefill_replicas"
        yield LayoutFault(name, f"needs {missing} beside it", f"{missing}: 1, or more")
    elif not asked.service:
        yield LayoutFault(name, "prompts and answers of a batch are not kept apart: nothing waits for a first token",
                    "use replicas")  # fmt: skip
    elif shape.architecture != "decoder":
        yield LayoutFault(name, f"{shape.name} is not a decoder that hands keys and values on", "use replicas")
    elif asked.served_by not in POOLED_ENGINES:
        yield LayoutFault(name, f"{asked.served_by} does not hand keys and values from one server to another",
                    f"engine: {', '.join(POOLED_ENGINES)}")  # fmt: skip
    elif layout.replicas is not None or layout.batch is not None:
        other = "replicas" if layout.replicas is not None else "batch"
        yield LayoutFault(
            other, "goes with copies that both read and write, not with prefill_replicas", "keep one of the two"
        )
    elif asked.latency:
        yield LayoutFault(name, "two pools are sized by p95_ttft and p95_tpot, one each; p95_latency spans both",
                    "promise p95_ttft and p95_tpot in place of p95_latency")  # fmt: skip
