"""The `layout` section of a workload file: how the work is spread, where the user fixes it."""

from __future__ import annotations

from tonnage.workload.file.fields import Count, StrictModel, key
from tonnage.workload.jobs import Recompute, Sharding


class TrainLayoutFields(StrictModel):
    """How a training job is spread. What is left out is chosen; the planner tries nothing else.

    `--layout 'tp=2,pp=2,micro_batch=4'` gives the same keys on the command line (short forms: `dp`, `tp`, `pp`, `cp`,
    `vp`, `mb`) and goes before the file's.
    """

    nodes: Count | None = key("Machines.", default=None, shown="chosen", unit="machines", example="2")
    gpus: Count | None = key("GPUs in all, on full machines.", default=None, shown="chosen", unit="GPUs", example="16")
    data_parallel: Count | None = key(
        "Copies of the model that each take a share of the global batch.",
        default=None,
        shown="chosen",
        unit="copies",
        example="8",
    )
    tensor_parallel: Count | None = key(
        "GPUs that share each layer; must divide the attention heads.",
        default=None,
        shown="chosen",
        unit="GPUs",
        example="2",
    )
    pipeline_parallel: Count | None = key(
        "Stages the layers are cut into.", default=None, shown="chosen", unit="stages", example="1"
    )
    context_parallel: Count | None = key("GPUs that share each sequence.", default=None, shown="1", unit="GPUs",
                                         example="1")  # fmt: skip
    virtual_stages: Count | None = key(
        "Chunks of layers that each pipeline stage holds in turn (the interleaved schedule of Megatron, NeMo, "
        "torchtitan, PyTorch and Paddle): the bubble is shorter by as much, the hand-overs are as many more.",
        default=None,
        shown="1",
        unit="chunks",
        example="5",
    )
    sharding: Sharding | None = key(
        "What data-parallel ranks split; as `train.sharding`.", default=None, shown="chosen", example="zero3"
    )
    recompute: Recompute | None = key(
        "Activation recomputation; as `train.recompute`.", default=None, shown="chosen", example="none"
    )
    micro_batch: Count | None = key(
        "Samples one copy of the model takes at a time.", default=None, shown="chosen", unit="samples", example="4"
    )
    accumulation: Count | None = key(
        "Micro-batches a step; data_parallel x micro_batch x accumulation is the global batch.",
        default=None,
        shown="chosen",
        unit="micro-batches",
        example="1",
    )


class ServingLayoutFields(StrictModel):
    """How a service or a batch of requests is spread. What is left out is chosen.

    An engine that is given `tensor_parallel` alone does not distribute experts. Short forms in
    `--layout`: `tp`, `ep`, `dp_attention`, `prefill`, `decode`.
    """

    tensor_parallel: Count | None = key(
        "GPUs that share one copy of the model.", default=None, shown="chosen", unit="GPUs", example="2"
    )
    expert_parallel: Count | None = key(
        "Of those, GPUs that whole experts are dealt to (1: each expert is cut over all); mixtures of experts.",
        default=None,
        shown="chosen",
        unit="GPUs",
        example="8",
    )
    attention_data_parallel: Count | None = key(
        "Groups of those GPUs that each attend to requests of their own, with a cache of their own, and share the "
        "experts; mixtures of experts.",
        default=None,
        shown="chosen",
        unit="groups",
        example="8",
    )
    replicas: Count | None = key("Copies of the model.", default=None, shown="chosen", unit="copies", example="4")
    prefill_replicas: Count | None = key(
        "Copies that only read prompts and hand keys and values over to `decode_replicas`.",
        default=None,
        shown="chosen",
        unit="copies",
        example="2",
    )
    decode_replicas: Count | None = key(
        "Copies that only write answers; with `prefill_replicas`.",
        default=None,
        shown="chosen",
        unit="copies",
        example="6",
    )
    concurrency: Count | None = key(
        "Requests one copy answers at a time, where tokens are generated.",
        default=None,
        shown="chosen",
        unit="requests",
        example="64",
    )
    batch: Count | None = key(
        "Requests in one pass; where tokens are generated, one batch run from its prompts to its last token.",
        default=None,
        shown="chosen",
        unit="requests",
        example="32",
    )
