"""A replica that answers in batches (encoders, vision): a request waits for the batch under way, then for its own."""

from __future__ import annotations

import numpy as np

from tonnage.sizing.assumptions import Assumptions
from tonnage.sizing.devices import Devices
from tonnage.sizing.encoder_loads import client_s, encoder_figures
from tonnage.sizing.engines import Engine
from tonnage.sizing.estimates import Array, Num
from tonnage.sizing.inference_memory import attending, attends_today, estimate_serving_memory
from tonnage.sizing.inference_pass import pass_work
from tonnage.sizing.length_spread import padded_tokens, upper_share
from tonnage.sizing.replicas import Replicas
from tonnage.sizing.served_formats import FORMATS
from tonnage.workload.jobs import Requests
from tonnage.workload.shapes import ModelShape

BATCHES = tuple(float(2**i) for i in range(11))  # 1 ... 1,024 requests in a pass


def encoder_replicas(
    shape: ModelShape,
    requests: Requests,
    devices: Devices,
    weights: str,
    tensor_parallel: Array,
    batch: Array,
    assumed: Assumptions,
    engine: Engine,
) -> Replicas:
    """Batches of up to `batch`: capacity = batch / S; p95 = wait for the batch under way + own + queue, under the load
    that fleets are planned to (the target utilisation of the capacity).

    A batch is padded to its longest member, so S follows `padded_tokens`; the 95th percentile waits for one
    batch and rides in one as long as the 95th percentile of lengths.
    Each request also passes a client and a server (`encoder_loads.client_s`). The queue term is the mean wait of an
    M/D/1 queue of batches, S·u/(2(1-u)) (Pollaczek-Khinchine), at utilisation u.
    """
    length = requests.input_tokens
    served = FORMATS[weights]

    def batch_s(tokens: Num) -> Array:
        """Seconds of one batch padded to `tokens`."""
        work = pass_work(
            shape, devices, served, engine, batch=batch, query=tokens, keys=tokens, tensor_parallel=tensor_parallel
        )
        return encoder_figures("pass", work, engine, replicas=1.0)["compute"]

    service = batch_s(padded_tokens(length, batch))
    longest = np.maximum(batch_s(length.mean * upper_share(length)), service)
    hosts = 1.0 if devices.host_factor is None else devices.host_factor
    call, sending = client_s(shape, requests=1.0, tokens=length.mean, hosts=hosts)
    around = np.asarray(call + sending)
    used = assumed.target_utilisation
    queue = service * used / (2 * (1 - used)) / np.maximum(batch, 1.0)
    memory = estimate_serving_memory(
        shape,
        served=served,
        tensor_parallel=tensor_parallel,
        batch=batch,
        tokens=length.maximum,
        engine=attending(engine, attends_today(engine, shape)),
        assumed=assumed,
    )
    p95 = around + service + longest + 3.0 * queue
    return Replicas(
        concurrency=batch,
        requests_per_s=batch / service,
        latency_mean_s=around + 1.5 * service + queue,
        latency_p95_s=p95,
        ttft_p95_s=p95,
        tpot_s=np.full(len(batch), np.nan),
        memory=memory,
        needed_bytes=memory.fixed_bytes,
    )
