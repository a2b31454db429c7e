"""The same ONNX graph and tokenizer under Ray Serve: batches of up to 32, 5 ms for company, a replica for each core."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import onnxruntime
import ray
import tokenizers
from ray import serve
from starlette.requests import Request

CORES = os.cpu_count() or 1


@serve.deployment(num_replicas=CORES, ray_actor_options={"num_cpus": 0}, max_ongoing_requests=128)
class Embeds:
    """Mean-pooled embeddings of texts."""

    def __init__(self, graph: str, tokenizer: str) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self.tokenizer = tokenizers.Tokenizer.from_file(tokenizer)
        self.tokenizer.enable_padding()
        self.tokenizer.enable_truncation(512)

    @serve.batch(max_batch_size=32, batch_wait_timeout_s=0.005)
    async def predict(self, texts: list[str]) -> list[np.ndarray]:
        found = self.tokenizer.encode_batch(texts)
        ids, mask = (np.array([getattr(one, name) for one in found], np.int64) for name in ("ids", "attention_mask"))
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = self.session.run(None, given)[0]
        shown = mask[:, :, None].astype(np.float32)
        pooled = (hidden * shown).sum(1) / shown.sum(1)
        pooled /= np.linalg.norm(pooled, axis=1, keepdims=True)
        return list(pooled)

    async def __call__(self, request: Request) -> list[list[float]]:
        return [(await self.predict((await request.json())["inputs"])).tolist()]


if __name__ == "__main__":
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    ray.init(num_cpus=CORES + 2, include_dashboard=False, object_store_memory=200 << 20, logging_level="ERROR",
             log_to_driver=False)  # fmt: skip
    serve.start(http_options={"host": "127.0.0.1", "port": int(os.environ["PORT"]), "access_log": False})
    serve.run(Embeds.bind(os.environ["GRAPH"], os.environ["TOKENIZER"]), route_prefix="/embed")
    ended.wait()
    ray.shutdown()
