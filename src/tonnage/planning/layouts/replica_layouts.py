"""How one copy of a served model may be spread on a machine: degrees of tensor, expert and attention parallelism."""

from __future__ import annotations

from tonnage.planning.reasons.changes import DivideGpus, Publish
from tonnage.planning.reasons.misses import DegreesMiss, Miss, UnpublishedMiss
from tonnage.sizing.devices import Machine
from tonnage.values import dataclass
from tonnage.workload.expert_layouts import EXPERT_RULES, Degrees, allowed
from tonnage.workload.jobs import BatchJob, ServeJob
from tonnage.workload.shapes import ModelShape


@dataclass(frozen=True, slots=True)
class ReplicaLayout:
    """`devices` share a copy; experts are dealt whole to `experts` of them; `groups` attend to different requests."""

    devices: int
    experts: int = 1
    groups: int = 1

    def describe(self) -> str:
        """
        >>> ReplicaLayout(8, 8, 8).describe()
        'tp 8, ep 8, dp attention 8'
        """
        named = (("tp", self.devices), ("ep", self.experts), ("dp attention", self.groups))
        return ", ".join(f"{name} {degree}" for name, degree in named if degree > 1)


def tensor_degrees(shape: ModelShape, per_node: int, wanted: int | None) -> list[int]:
    """GPUs of a replica worth trying on a machine of `per_node`."""
    if wanted is not None:
        return [wanted] if wanted <= per_node else []
    if shape.architecture not in ("decoder", "encoder"):
        return [1]
    return [t for t in (1, 2, 4, 8, 16) if per_node % t == 0 and shape.heads % t == 0]


def replica_layouts(job: ServeJob | BatchJob, per_node: int) -> list[ReplicaLayout]:
    """Layouts worth trying, plain ones first: for mixtures of experts also whole experts, with attention over all
    devices or on each for itself, where the engine does that."""
    return [
        layout
        for devices in tensor_degrees(job.model, per_node, job.tensor_parallel)
        for layout in _layouts_over(job, devices)
    ]


def layout_miss(job: ServeJob | BatchJob, machine: Machine) -> Miss:
    """No layout with the degrees that the job fixes runs on this machine: a replica is never cut over machines."""
    named = {
        "tensor parallel": job.tensor_parallel,
        "expert parallel": job.expert_parallel,
        "attention data parallel": job.attention_data_parallel,
    }
    fixed = {name: degree for name, degree in named.items() if degree and degree > 1}
    return DegreesMiss(
        degrees=tuple(f"{name} {degree}" for name, degree in fixed.items()),
        needed_gpus=max(fixed.values(), default=1),
        gpus=machine.count,
        lifted_by=(DivideGpus(gpus=machine.count),),
    )


def unknown_link() -> Miss:
    """A replica of several devices whose link has no published bandwidth."""
    return UnpublishedMiss(binding="network", what="link bandwidth", lifted_by=(Publish(what="link bandwidth"),))


def _layouts_over(job: ServeJob | BatchJob, devices: int) -> list[ReplicaLayout]:
    shape, rule = job.model, EXPERT_RULES.get(job.engine or "vllm")
    searched = [(1, 1), *([(devices, 1), (devices, devices)] if devices > 1 and shape.experts else [])]
    if job.batch is not None or rule is None:
        searched = [(1, 1)]
    if job.tensor_parallel is not None:  # an engine that is given the degree alone shards every expert
        searched = [(1, 1)]
    asked = (job.expert_parallel, job.attention_data_parallel)
    pairs = list(dict.fromkeys(tuple(own or one for own, one in zip(asked, pair, strict=True)) for pair in searched))
    return [ReplicaLayout(devices, experts, groups) for experts, groups in pairs
            if rule is None or _runs(shape, devices, experts, groups, rule.experts, rule.attention)]  # fmt: skip


def _runs(shape: ModelShape, devices: int, experts: int, groups: int, of_experts: Degrees, of_groups: Degrees) -> bool:
    if (experts, groups) == (1, 1):
        return True
    divided = shape.experts % experts == 0 and devices % groups == 0 and shape.heads % (devices // groups) == 0
    return divided and allowed(experts, devices, of_experts) and allowed(groups, devices, of_groups)
