"""The same ONNX graph and tokenizer under mosec: batches of up to 32, 5 ms for company, a worker for each core."""

from __future__ import annotations

import os
import sys

import numpy as np
import onnxruntime
import tokenizers
from mosec import Server, Worker


class Embeds(Worker):
    """Mean-pooled embeddings of texts."""

    def __init__(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(os.environ["GRAPH"], options, providers=["CPUExecutionProvider"])
        self.tokenizer = tokenizers.Tokenizer.from_file(os.environ["TOKENIZER"])
        self.tokenizer.enable_padding()
        self.tokenizer.enable_truncation(512)

    def forward(self, data):
        found = self.tokenizer.encode_batch([one["inputs"] for one in data])
        ids, mask = (np.array([getattr(one, name) for one in found], np.int64) for name in ("ids", "attention_mask"))
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = self.session.run(None, given)[0]
        shown = mask[:, :, None].astype(np.float32)
        pooled = (hidden * shown).sum(1) / shown.sum(1)
        pooled /= np.linalg.norm(pooled, axis=1, keepdims=True)
        return [[one.tolist()] for one in pooled]


if __name__ == "__main__":
    sys.argv = [sys.argv[0], "--address", "127.0.0.1", "--port", os.environ["PORT"]]
    server = Server()
    server.append_worker(Embeds, num=os.cpu_count(), max_batch_size=32, max_wait_time=5)
    server.run()
