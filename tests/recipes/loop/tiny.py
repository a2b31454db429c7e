"""A task small enough for tests: sentences of random words, a transformer of some 100,000 parameters with dropout.

Also a program: `python tiny.py RUN_DIR` is a worker of this task. Faults to inject come by environment:
TINY_TOKEN_LIMIT (more positions in one pass than this raise what torch raises when memory runs out), TINY_LIMIT_FROM
(only from this many passes on), TINY_NAN_AT (the loss of this pass and all after it is not a number),
TINY_SLEEP_S (per pass), TINY_SIGNAL_AT (this pass sends SIGTERM to its process), TINY_EVALUATE_S (how long an
evaluation takes), TINY_FILE_BYTES (the system's limit on a file), TINY_END_FILE_BYTES (the same for the first process
alone, from its first evaluation on), TINY_MORE_BYTES (its limit on memory, beyond what
the loaded libraries take), TINY_WIDE (so many numbers per position are computed beside the model), TINY_UPDATE_LIMIT
(updates after a pass over more sentences than this run out of memory), TINY_UPDATE_FROM (only from this update on).
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import torch
from torch import Tensor, nn
from torch.nn import functional

from tonnage.recipes.task import Evaluation, Prepared
from tonnage.runs.folder import RunFolder
from tonnage.runs.spec import RunSpec

WORDS, CLASSES, WIDTH, HEADS, LAYERS = 200, 4, 64, 4, 2


class Block(nn.Module):
    """One transformer layer."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.qkv(self.before(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
        x = x + self.dropout(self.out(attended))
        return x + self.dropout(self.down(functional.gelu(self.up(self.between(x)))))


class Tiny(nn.Module):
    """Classifies a sentence by the mean of its words' states."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Block(dropout) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, CLASSES)
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> SimpleNamespace:
        inject(input_ids, int(self.passes))
        if self.training:
            self.passes += 1
        x, mask = self.words(input_ids), attention_mask[:, None, None, :].bool()
        for layer in self.layers:
            x = layer(x, mask)
        if wide := int(os.environ.get("TINY_WIDE", 0)):
            x = x + x.mean(-1, keepdim=True).expand(-1, -1, wide).exp().mean(-1, keepdim=True)
        kept = attention_mask[..., None]
        logits = self.head((x * kept).sum(1) / kept.sum(1))
        loss = functional.cross_entropy(logits.float(), labels)
        if int(self.passes) > int(os.environ.get("TINY_NAN_AT", sys.maxsize)):
            loss = loss * float("nan")
        return SimpleNamespace(loss=loss, logits=logits)


SEEN = {"sentences": 0, "updates": 0}  # of the newest pass; of all so far, the preflight's too
UPDATE = torch.optim.AdamW.step


def update(optimizer: torch.optim.AdamW, closure: Any = None) -> Any:
    """An optimizer's step, which may run out of memory when a part of it is done."""
    SEEN["updates"] += 1
    found = UPDATE(optimizer, closure)
    limit = int(os.environ.get("TINY_UPDATE_LIMIT", sys.maxsize))
    if SEEN["sentences"] > limit and SEEN["updates"] >= int(os.environ.get("TINY_UPDATE_FROM", 0)):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB (injected by a test)")
    return found


def inject(input_ids: Tensor, passes: int) -> None:
    """Run out of memory, or of time, as the environment says."""
    SEEN["sentences"] = len(input_ids)
    time.sleep(float(os.environ.get("TINY_SLEEP_S", 0)))
    if os.environ.get("TINY_SIGNAL_AT") == str(passes):
        signal.raise_signal(signal.SIGTERM)
    limit = int(os.environ.get("TINY_TOKEN_LIMIT", sys.maxsize))
    if input_ids.numel() > limit and passes >= int(os.environ.get("TINY_LIMIT_FROM", 0)):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB (injected by a test)")


def sentences(count: int, seed: int) -> list[dict[str, Any]]:
    """Words at random, 4 to 24 of them; the class is that of the first word."""
    source = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(count):
        length = int(torch.randint(4, 25, (), generator=source))
        words = torch.randint(1, WORDS, (length,), generator=source)
        found.append({"input_ids": words, "label": int(words[0]) % CLASSES})
    return found


def collate(items: Any) -> dict[str, Tensor]:
    """Padded to the longest."""
    padded = nn.utils.rnn.pad_sequence([item["input_ids"] for item in items], batch_first=True)
    labels = torch.tensor([item["label"] for item in items])
    return {"input_ids": padded, "attention_mask": (padded > 0).long(), "labels": labels}


def evaluate(model: nn.Module, items: Any, batch: int) -> Evaluation:
    """Share of sentences put into their class."""
    time.sleep(float(os.environ.get("TINY_EVALUATE_S", 0)))
    if (limit := int(os.environ.get("TINY_END_FILE_BYTES", 0))) and os.environ.get("RANK", "0") == "0":
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    right = 0
    for first in range(0, len(items), batch):
        given = collate([items[i] for i in range(first, min(len(items), first + batch))])
        piece = {name: value.to(next(model.parameters()).device) for name, value in given.items()}
        right += int((model(**piece).logits.argmax(-1) == piece["labels"]).sum())
    return Evaluation(metrics={"accuracy": right / len(items)}, samples=len(items))


def save(model: nn.Module, path: Path) -> None:
    torch.save(model.state_dict(), path / "model.pt")


def prepare(spec: RunSpec) -> Prepared:
    """The task: `data.train.location` says how many sentences, `model` the dropout."""
    torch.optim.AdamW.step, SEEN["sentences"], SEEN["updates"] = update, 0, 0  # type: ignore[method-assign]
    data = sentences(int(spec.data.train.location), seed=1)
    return Prepared(
        model=Tiny(float(spec.model or 0.1)),
        train=data,
        validation=sentences(50, seed=2),
        test=None,
        collate=collate,
        longest=lambda items: sorted(range(len(items)), key=lambda i: -len(items[i]["input_ids"])),
        tokens=lambda batch: int(batch["attention_mask"].sum()),
        evaluate=evaluate,
        save=save,
        baseline=lambda: Evaluation(metrics={"accuracy": 1 / CLASSES}, samples=50),
    )


if __name__ == "__main__":
    from tonnage.recipes.worker import run_worker

    if limit := int(os.environ.get("TINY_FILE_BYTES", 0)):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if more := int(os.environ.get("TINY_MORE_BYTES", 0)):
        import accelerate  # noqa: F401  with all that it loads

        limit = psutil.Process().memory_info().vms + more
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    sys.exit(run_worker(RunFolder(Path(sys.argv[1])), program=prepare))
