"""The same ONNX graph and tokenizer under LitServe: batches of up to 32, 5 ms for company, a worker for each core."""

from __future__ import annotations

import os

import litserve
import numpy as np
import onnxruntime
import tokenizers


class Embeds(litserve.LitAPI):
    """Mean-pooled embeddings of texts."""

    def setup(self, device):  # noqa: ARG002  # LitServe gives it
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(os.environ["GRAPH"], options, providers=["CPUExecutionProvider"])
        self.tokenizer = tokenizers.Tokenizer.from_file(os.environ["TOKENIZER"])
        self.tokenizer.enable_padding()
        self.tokenizer.enable_truncation(512)

    def decode_request(self, request):
        return request["inputs"]

    def batch(self, inputs):
        return inputs

    def unbatch(self, output):
        return list(output)

    def predict(self, texts):
        several = isinstance(texts, list)
        found = self.tokenizer.encode_batch(texts if several else [texts])
        ids, mask = (np.array([getattr(one, name) for one in found], np.int64) for name in ("ids", "attention_mask"))
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = self.session.run(None, given)[0]
        shown = mask[:, :, None].astype(np.float32)
        pooled = (hidden * shown).sum(1) / shown.sum(1)
        pooled /= np.linalg.norm(pooled, axis=1, keepdims=True)
        return pooled if several else pooled[0]

    def encode_response(self, output):
        return [output.tolist()]


if __name__ == "__main__":
    api = Embeds(max_batch_size=32, batch_timeout=0.005, api_path="/embed")
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=os.cpu_count())
    server.run(host="127.0.0.1", port=int(os.environ["PORT"]), generate_client_file=False, log_level="error")
