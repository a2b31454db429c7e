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
# on (host of an A100); 1.6 ms, 229 and 420 us (of a V100), 1.5 times as much.
SERVER_CALL_S: Final = 0.35e-3
IMAGE_CALL_S: Final = 1.05e-3
CACHED_MESSAGE_BYTES: Final = 24e6
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
    the next batch ready while the device works on this one.
    """
    seconds = in_step_s(pass_s(work, engine), instances, copied_s)
    if load == "offline":
        share = np.where(np.asarray(within_latency) > 0, SERVER_SHARE, 1.0)
        return {"compute": seconds, "rate": share * np.asarray(work.batch) * replicas / seconds}
    gathered = load == "batching-server"
    latency = request_s(seconds, fixed_s, sending_s, np.full(len(seconds), gathered), fed_s)
    rate = np.asarray(users) / latency if gathered else np.asarray(work.batch) * replicas / latency
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
    sent = requests * np.asarray(input_bytes(shape, tokens))
    cached = np.where(many | (sent <= CACHED_MESSAGE_BYTES), CACHED_BYTES_PER_S, CLIENT_BYTES_PER_S)
    call = IMAGE_CALL_S if shape.image_side else SERVER_CALL_S
    return (call if many else hosts * call), hosts * sent / cached


def request_s(pass_seconds: Array, fixed_s: Num, sending_s: Num, batching: Flags, fed_s: Num = 0.0) -> Array:
    """Seconds of a request around its pass. Where a server batches, half the clients' requests are under way while the
    other half gathers: a request waits one pass and takes one, unless inputs arrive slower. `fed_s` as above."""
    shared = np.hypot(2.0 * pass_seconds, sending_s)
    return np.maximum(fixed_s + np.where(batching, shared, pass_seconds + sending_s), fed_s)


def input_bytes(shape: ModelShape, tokens: Num) -> Num:
    """What a client sends with one sequence or image; token ids are small."""
    return 3.0 * shape.image_side**2 * IMAGE_ELEMENT_BYTES if shape.image_side else TOKEN_BYTES * tokens


def tail(percentile: str, *, captured: bool, remote: bool) -> float:
    """A percentile of equal passes over their mean: `captured` kernels vary less, a server's way (`remote`) more."""
    return (TAILS if captured and not remote else HOST_TAILS)[percentile]
