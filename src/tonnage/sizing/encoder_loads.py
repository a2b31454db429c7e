"""What requests see of a model that answers in whole passes (encoders, vision), load by load.

Plans and `validate` call the same functions.

A load is a fixed batch that is called again and again (`pass`), as much as the device takes (`offline`), or a server
that gathers single requests of many clients into batches (`batching-server`).
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from tonnage.sizing.engines import Engine
from tonnage.sizing.estimates import Array, Num
from tonnage.sizing.inference_pass import PassWork, pass_s
from tonnage.workload.shapes import ModelShape

EncoderLoad = Literal["pass", "offline", "batching-server"]
Flags = NDArray[np.bool_]

OFFLINE_TOKENS: Final = 32768.0  # a batch large enough to saturate any device
OFFLINE_IMAGES: Final = 256.0
SERVER_SHARE: Final = 0.87  # of offline throughput inside a latency limit: 0.72 to 0.95 over MLPerf submissions
# Client, network stack and queue of an inference server, one request: of texts, and of images, whose 602 kB pass a
# socket in several turns. Bytes of inputs through the client's connection and the server's copies: what caches of the
# host hold, and messages that they do not (of the last level 16 MB for a core of an EPYC 7742, 50 MB of a Xeon E5-2698
# v4). Images: NVIDIA/DeepLearningExamples@729963d, PyTorch/Classification/ConvNets/triton/resnet50/README.md, offline
# scenario, less the pass and the way to the device: 1.05 ms and 174 us an image up to 19 MB, 300 us an image from 38 MB
# on (host of an A100); 1.6 ms, 229 and 420 us (of a V100), 1.5 times as much. Between 19 and 38 MB nothing is measured:
# the share of a message that the caches no longer hold is taken to grow evenly. So is a call's time up to 602 kB, from
# which on it is the same at any size.
SERVER_CALL_S: Final = 0.35e-3
IMAGE_CALL_S: Final = 1.05e-3
IMAGE_CALL_BYTES: Final = 602_112.0
CACHED_MESSAGE_BYTES: Final = 32 * IMAGE_CALL_BYTES
UNCACHED_MESSAGE_BYTES: Final = 64 * IMAGE_CALL_BYTES
CACHED_BYTES_PER_S: Final = 3.8e9
CLIENT_BYTES_PER_S: Final = 2.2e9
# A step of a framework's loop over data: iterator, session, hooks and the answers' way back. TensorFlow's BERT-base
# takes at batch 1 so much longer through its estimator (NVIDIA/DeepLearningExamples@729963d: 3.4 to 4.5 ms on A100, 4.8
# to 5 on V100) than called on tensors that are there (NVIDIA/FasterTransformer@df4a7534: 2.2, 2.5 to 2.8): judgement,
# 0.5 to 3.
LOOP_STEP_S: Final = 1.5e-3
IMAGE_ELEMENT_BYTES: Final = 4.0  # clients send fp32 pixels
TOKEN_BYTES: Final = 16.0  # token ids and masks, two of 8 bytes
# Percentiles of repeated equal passes over their mean: captured kernels, and passes a host or a server takes part in.
TAILS: Final = {"p50": 1.0, "p90": 1.005, "p95": 1.01, "p99": 1.013}
HOST_TAILS: Final = {"p50": 1.0, "p90": 1.015, "p95": 1.04, "p99": 1.06}


def encoder_figures(
    load: EncoderLoad,
    work: PassWork,
    engine: Engine,
    *,
    replicas: Num,
    fixed_s: Num = 0.0,
    sending_s: Num = 0.0,
    users: Num = 1.0,
    within_latency: Num = 0.0,
    fed_s: Num = 0.0,
    instances: Num = 1.0,
    copied_s: Num = 0.0,
) -> dict[str, Array]:
    """Seconds of the pass alone (`compute`), of a request (`latency`), and sequences or images a second (`rate`).

    `work` covers the batch that `passed_batch` gives for the load. `fixed_s`, `sending_s`: what a client and a server
    add (`client_s`). `within_latency` 1: an offline rate that holds a latency limit. `fed_s`: in which the host gets
    the next batch ready while the device works on this one. Each of the `instances` on a device answers a batch in
    that time; the clients of a `batching-server` are dealt to them.
    """
    seconds = in_step_s(pass_s(work, engine), instances, copied_s)
    answered = np.asarray(work.batch) * replicas * instances
    if load == "offline":
        share = np.where(np.asarray(within_latency) > 0, SERVER_SHARE, 1.0)
        return {"compute": seconds, "rate": share * answered / seconds}
    gathered = load == "batching-server"
    latency = request_s(seconds, fixed_s, sending_s, np.full(len(seconds), gathered), fed_s)
    rate = np.asarray(users) / latency if gathered else answered / latency
    return {"compute": seconds, "latency": latency, "rate": rate}


def in_step_s(pass_seconds: Array, instances: Num = 1.0, copied_s: Num = 0.0) -> Array:
    """Seconds of a pass as whoever calls it sees it: `instances` of the model run side by side on one device, so that
    each pass lasts as many times as long, and its inputs are on their way to the device for `copied_s`."""
    return pass_seconds * instances + copied_s


def passed_batch(
    load: EncoderLoad, shape: ModelShape, *, batch: Num, tokens: Num, users: Num, instances: Num = 1.0
) -> Num:
    """Sequences or images in one pass: as stated; what saturates a device; half of the clients' requests, dealt to the
    `instances` of the model."""
    if load == "offline":
        images = shape.architecture in ("convolution", "vision-transformer")
        return np.full(np.shape(tokens), OFFLINE_IMAGES) if images else np.maximum(OFFLINE_TOKENS / tokens, 1.0)
    return np.maximum(np.asarray(users) / (2.0 * instances), 1.0) if load == "batching-server" else batch


def client_s(shape: ModelShape, *, requests: Num, tokens: Num, hosts: Num, many: bool = False) -> tuple[Num, Num]:
    """Seconds that client and server add to a request, and those that the inputs of `requests` take to arrive.

    `hosts`: how slow the hosts are (`inference_devices.host_factor`); `many`: many clients send at once.
    """
    each = np.asarray(input_bytes(shape, tokens))
    sent = requests * each
    beyond = (sent - CACHED_MESSAGE_BYTES) / (UNCACHED_MESSAGE_BYTES - CACHED_MESSAGE_BYTES)
    missed = 0.0 if many else np.clip(beyond, 0.0, 1.0)
    seconds_per_byte = (1.0 - missed) / CACHED_BYTES_PER_S + missed / CLIENT_BYTES_PER_S
    turns = np.minimum((each if many else sent) / IMAGE_CALL_BYTES, 1.0) if shape.image_side else 0.0
    call = SERVER_CALL_S + (IMAGE_CALL_S - SERVER_CALL_S) * turns
    return (call if many else hosts * call), hosts * sent * seconds_per_byte


def request_s(pass_seconds: Array, fixed_s: Num, sending_s: Num, batching: Flags, fed_s: Num = 0.0) -> Array:
    """Seconds of a request around its pass. Where a server batches, half the clients' requests are under way while the
    other half gathers: a request waits one pass and takes one, while inputs of all clients arrive in `sending_s`. Both
    go on at once, so that neither the two passes nor the inputs take longer than a request, and a request takes no
    longer than both in turn: the root of the sum of their squares lies between. (A pass behind all inputs is no bound:
    the inputs of one half arrive while the other computes.) `fed_s` as in `encoder_figures`."""
    shared = np.hypot(2.0 * pass_seconds, sending_s)
    return np.maximum(fixed_s + np.where(batching, shared, pass_seconds + sending_s), fed_s)


def input_bytes(shape: ModelShape, tokens: Num) -> Num:
    """What a client sends with one sequence or image; token ids are small."""
    return 3.0 * shape.image_side**2 * IMAGE_ELEMENT_BYTES if shape.image_side else TOKEN_BYTES * tokens


def tail(percentile: str, *, captured: bool, remote: bool) -> float:
    """A percentile of equal passes over their mean: `captured` kernels vary less, a server's way (`remote`) more."""
    return (TAILS if captured and not remote else HOST_TAILS)[percentile]
