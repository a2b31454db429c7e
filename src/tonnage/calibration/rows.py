"""Rows of the measured-facts tables as typed values; None where a table is blank."""

from __future__ import annotations

import re

from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRow:
    """The columns that both tables begin with: the row, where it was published, the model and its shape."""

    id: str
    config_id: str
    source: str
    model: str
    params: float | None
    n_layers: int | None
    d_model: int | None
    n_heads: int | None
    n_kv_heads: int | None
    d_ff: int | None
    vocab: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRow(FactRow):
    """One measurement of a training run, in the columns of `training_calibration.csv`.

    Columns from `program` on are optional: what the run's program did, in words of `workload.programs`. `y` and `n`
    answer; blank is unknown. Where a file has none of them, `row_facts` fills in what the row's source documents.
    """

    seq_len: int | None
    gpu: str
    n_gpus: int | None
    gpus_per_node: int | None
    micro_batch_per_gpu: int | None
    grad_accum: int | None
    global_batch: int | None
    precision: str
    method: str
    optimizer: str
    sharding: str
    activation_checkpointing: str
    attention: str
    compile: str
    metric: str
    value: float
    mfu_reported: float | None
    note: str
    mem_kind: str
    family: str
    source_group: str
    quality: str
    train_tokens: float | None = None
    program: str = ""  # torchtune, megatron, tensorflow, ...
    program_version: str = ""
    kernels: str = ""  # fused: element-wise work is merged by hand-written kernels
    state: str = ""  # autocast, cast-model, megatron
    loss: str = ""  # plain, chunked, fused, in-place
    checkpoint_kind: str = ""  # what selective recomputation makes again: scores, per-op
    channels_last: str = ""
    sequence_parallel: str = ""
    optimizer_fused: str = ""
    optimizer_in_backward: str = ""
    offload: str = ""  # optimizer, parameters, activations
    adapter_targets: str = ""  # attention, all-linear
    tables_apart: str = ""  # y: FSDP gathers embedding and head only while they are used
    objective: str = ""  # classification, language-model
    generator: str = ""  # y: a generator is trained beside the model
    flop_counted: str = ""  # hardware: a rate counts what is computed twice
    cached_tokens: int | None = None  # earlier tokens that a segment also attends to
    target_tokens: int | None = None  # of the decoder of an encoder-decoder
    batch_tokens: int | None = None  # tokens a GPU takes at a time, where the batch is stated so
    image_side: int | None = None
    network_gbit_per_s_per_gpu: float | None = None
    network_gbit_per_s_per_node: float | None = None
    # No columns of a file: what the scripts of a documented source say.
    softmax: str = ""  # adaptive: over clusters of WikiText-103's words that are slices of one table
    exchanges: str = ""  # n: its processes never sum their gradients
    peer_to_peer: str = ""  # n: GPUs of a node talk through its memory
    document_tokens: int | None = None  # of documents packed into a sequence, each attending to itself alone
    doubt: str = ""  # why the row is suspect, where its reader found so


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceRow(FactRow):
    """One measurement of inference, in the columns of `inference_calibration.csv`.

    Columns from `compiled` on are optional: `y` and `n` answer, blank is unknown. Where a file has none of them,
    `inference_facts` fills in what the row's note states and what its source documents.
    """

    kind: str
    gpu: str
    n_gpus: int | None
    tp: int | None
    engine: str
    precision: str
    weights_quant: str
    batch_size: int | None
    concurrency: float | None
    input_len: float | None
    output_len: float | None
    metric: str
    value: float
    note: str
    family: str = ""  # blank: the model is its own family
    quality: str = "ok"
    compiled: str = ""  # y: a compiler merges the graph that a framework would launch kernel by kernel
    autocast: str = ""  # y: weights are held in 32 bit and cast to 16 in every pass
    attention: str = ""  # sdpa: one kernel, scores stay on the chip; eager: they do not; blank: as the engine's class
    decoding_threads: int | None = None  # of the host, that decode photographs while the device works; blank: no need
    mem_kind: str = ""  # what a peak counts: allocated or reserved by the framework; blank: all that the device holds
    traced: str = ""  # y: TorchScript runs the graph of a PyTorch model
    native: str = ""  # y: the network was written for the engine, n: converted to it
    kv_cache: str = ""  # fp8: keys and values are held in 8 bits under wider products
    pp: int | None = None  # pipeline stages
    remote: str = ""  # y: a client measured it, through an inference server
    padding: str = ""  # removed: only real tokens are computed, `mean_input_len` a sequence
    mean_input_len: float | None = None  # real tokens of a sequence, where `input_len` is the longest or blank
    data_set: str = ""  # whose prompts and answers were sent: cnn/dailymail, openorca, sharegpt
    lengths: str = ""  # fixed, varied; blank: as the output length looks, chosen or a mean
    prompts: int | None = None  # requests sent in all
    request_rate_qps: float | None = None  # offered; blank: all at once
    beams: int | None = None  # hypotheses that each request carries
    latency_bound: str = ""  # y: the load was raised as far as a limit of latency allows, and is not stated
    channels_last: str = ""  # y: images are laid out as tensor cores want them; n: each convolution converts them
    fused_norms: str = ""  # n: norm and activation behind convolutions are not fused, though the engine can
    staged: str = ""  # n: images are copied to the device inside the step that reads them
    instances: int | None = None  # of the model, that a server runs side by side on a device; blank: one
    # y: 8-bit products give 8-bit values, in which the residual stream is held too; n: they give 32-bit sums, which the
    # kernels behind them narrow
    quantised_residual: str = ""
    looped: str = ""  # y: every batch is a step of the program's loop over its data: handed over, answers taken back
    start_up: str = ""  # y: a mean that first passes are part of, which compile or choose kernels
    switched: str = ""  # n: four devices of a board joined to one another, each by a third of its links, by no switch
    token_mean: str = ""  # y: mean and median time per token are over all tokens (inter-token latency)
    rereads: str = ""  # y: a decode step reads keys and values again for each of the query heads that share them
    most_requests: int | None = None  # requests in flight that the engine was set to, or built for; blank: its default
    most_step_tokens: int | None = None  # the same of the tokens of one step
    cache_fraction: float | None = None  # of the memory that the engine finds free, for keys and values; blank: its own
    # y: its benchmark tool set the engine to these lengths (`trtllm-bench`); decimal: a release of it that took 10^9
    # bytes of weights for a GiB (0.17)
    tuned: str = ""
    built: str = ""  # y: a TensorRT engine, whose runtime holds buffers for all the requests that it was built for
    chunked: str = ""  # y: prompts are read in pieces of a step
    front_end: str = ""  # python: an HTTP server written in Python is in front of the engine
    doubt: str = ""  # why the row is suspect, where its reader found so


def publication(source: str) -> str:
    """Who published a row: the repository or report its source begins with. What one has in several files was measured
    by the same people in the same way.

    >>> publication("pytorch/torchtune@0031bfb:README.md"), publication("NVIDIA/TensorRT demo/BERT@7d2a70a1")
    ('pytorch/torchtune', 'NVIDIA/TensorRT')
    """
    return re.split("[@: ]", source, maxsplit=1)[0]
