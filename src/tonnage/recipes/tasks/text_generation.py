"""Synthetic text: sampled from a model with a seed, each kept once, written as JSONL; goes on where it was cut off."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from tonnage.files import sync
from tonnage.recipes.alone import SingleProcess
from tonnage.recipes.beginning import WHO, note_beginning
from tonnage.recipes.data.reading import read_rows
from tonnage.recipes.interrupts import Interrupts
from tonnage.recipes.out_of_memory import (
    DoesNotFit,
    is_out_of_memory,
    journalled_micro_batch,
    peak_bytes,
    release_memory,
)
from tonnage.recipes.precision import choose_device, choose_precision
from tonnage.recipes.task import Evaluation
from tonnage.recipes.tasks.labels import check_texts
from tonnage.recipes.tasks.models import load_model, load_tokenizer, longest_input
from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import EventKind
from tonnage.runs.spec import RunSpec

FILE: Final = "generated.jsonl"  # in the run's folder: the texts that were kept
_SMALLER: Final = "try a smaller `batch.output_tokens` (its `max`), a smaller model, or a device with more memory"
SEEN: Final = "generated.state.jsonl"  # beside it, a line per batch: how far it is, what was left out


@dataclass(slots=True)
class _Output:
    """What is written so far. A batch counts once its line in the state is whole; texts after it are cut off."""

    folder: Path
    batches: int = 0
    size: int = 0  # bytes of the texts of whole batches
    tokens: int = 0
    texts: int = 0
    known: set[bytes] = field(default_factory=set)
    kept: int = 0

    @classmethod
    def open(cls, folder: Path) -> _Output:
        found = cls(folder)
        state = folder / SEEN
        for line in state.read_text(encoding="utf-8").split("\n")[:-1] if state.exists() else ():
            said = json.loads(line)
            found.batches, found.size = said["batch"] + 1, said["size"]
            found.tokens += said["tokens"]
            found.texts += said["texts"]
        if state.exists():
            _cut(state, state.read_bytes().rfind(b"\n") + 1)
        if (folder / FILE).exists():
            _cut(folder / FILE, found.size)
            for line in (folder / FILE).read_text(encoding="utf-8").splitlines():
                found.known.add(_mark(json.loads(line)["text"]))
                found.kept += 1
        return found

    def add(self, batch: int, rows: Sequence[Mapping[str, Any]], tokens: int) -> None:
        """Write the texts that are new, then the line which says so; both reach the disk."""
        new = []
        for row in rows:
            mark = _mark(row["text"])
            if row["text"].strip() and mark not in self.known:
                self.known.add(mark)
                new.append(json.dumps(row, ensure_ascii=False) + "\n")
        content = "".join(new).encode()
        self.size += len(content)
        _append(self.folder / FILE, content)
        said = {"batch": batch, "size": self.size, "texts": len(rows), "tokens": tokens}
        _append(self.folder / SEEN, (json.dumps(said) + "\n").encode())
        self.batches, self.kept = batch + 1, self.kept + len(new)
        self.texts, self.tokens = self.texts + len(rows), self.tokens + tokens


def run(folder: RunFolder) -> int:
    """Write the texts of a run, from where the last attempt was; the worker's exit code. Role: `prompt`."""
    spec = folder.spec()
    with Interrupts(folder.path) as interrupts, SingleProcess(folder, spec, interrupts) as alone:
        with interrupts.interruptible():
            rows = read_rows(
                spec.data.train, name="`run.data.train`", wanted=frozenset({spec.column("prompt") or "prompt"})
            )
            prompts = check_texts(rows, spec.column("prompt") or "prompt", "prompt")
            writer = _TextWriter(spec, journalled_micro_batch(folder))
        output = _Output.open(folder.path)
        path = str(folder.path / FILE) if output.batches else None
        note_beginning(folder, step=output.batches, path=path)
        total = -(-spec.generation.prompts // spec.generation.batch)
        alone.begin(total, output.batches)
        code = _write(writer, prompts, alone, output, total)
        if code is not None:
            return alone.leave(code, output.batches)
        return alone.finish(_figures(output), None, steps=total, samples=output.texts, device=writer.device, save=None)


def _write(
    writer: _TextWriter, prompts: Sequence[str], alone: SingleProcess, output: _Output, total: int
) -> int | None:
    """All batches that are left; an exit code where it was asked to end before."""
    spec, size = alone.spec, alone.spec.generation.batch
    while output.batches < total:
        if (code := alone.left()) is not None:
            return code
        batch = output.batches
        numbers = range(batch * size, min((batch + 1) * size, spec.generation.prompts))
        some = [prompts[number % len(prompts)] for number in numbers]
        alone.times.begin()
        texts, tokens = _within_memory(writer, batch, some, alone)
        rows = [
            {"number": number, "prompt": prompt, "text": text}
            for number, prompt, text in zip(numbers, some, texts, strict=True)
        ]
        output.add(batch, rows, tokens)
        alone.stepped(batch + 1, samples=len(rows), tokens=tokens)
        if (batch + 1) % spec.training.log_every_steps == 0 or batch + 1 == total:
            alone.log(batch + 1, loss=None, epoch=(batch + 1) / total, kept=float(output.kept))
    return None


def _within_memory(
    writer: _TextWriter, batch: int, prompts: Sequence[str], alone: SingleProcess
) -> tuple[list[str], int]:
    """A batch's texts. Where memory runs out, half as many are written at a time from then on, in later attempts too;
    DoesNotFit where one is too much."""
    while True:
        try:
            return writer.texts(batch, prompts)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        at_once = min(writer.at_once, len(prompts))
        alone.folder.record(
            EventKind.OUT_OF_MEMORY, who=WHO, step=batch, micro_batch=at_once, next_micro_batch=at_once // 2,
            peak_bytes=peak_bytes(writer.device == "cuda"), device=writer.device,
        )  # fmt: skip
        release_memory(writer.device == "cuda")
        if at_once == 1:
            raise DoesNotFit("one text at a time does not fit into memory", hint=_SMALLER)
        writer.at_once = at_once // 2


def _figures(output: _Output) -> Evaluation:
    metrics = {
        "kept_texts": float(output.kept),
        "kept_fraction": output.kept / max(1, output.texts),
        "tokens": float(output.tokens),
    }
    return Evaluation(metrics=metrics, samples=output.texts)


class _TextWriter:
    """Model and tokenizer. A batch's texts follow from the seed, its number, its prompts and how many of them fit into
    memory at a time, whatever came before."""

    def __init__(self, spec: RunSpec, at_once: int | None = None) -> None:
        import torch

        self.spec, self.device = spec, choose_device(spec.launch.device)
        self.at_once = at_once or spec.generation.batch
        self._tokenizer = load_tokenizer(spec)
        self._tokenizer.padding_side = "left"
        self._model = load_model(spec, "AutoModelForCausalLM", padding=self._tokenizer.pad_token_id)
        kind = {"fp16": torch.float16, "bf16": torch.bfloat16, "bf16-true": torch.bfloat16}
        self._model = self._model.to(kind.get(choose_precision(spec.training.precision, self.device), torch.float32))
        if getattr(self._model, "hf_device_map", None) is None:
            self._model = self._model.to(self.device)
        self._model.eval()
        room = longest_input(spec, self._tokenizer, self._model)
        self._longest_prompt = (
            max(1, room - spec.generation.max_new_tokens) if spec.training.max_tokens is None else room
        )

    def texts(self, batch: int, prompts: Sequence[str]) -> tuple[list[str], int]:
        """What the model adds to each prompt, and how many tokens that is."""
        texts, tokens = [], 0
        for first in range(0, len(prompts), self.at_once):
            part = prompts[first : first + self.at_once]
            found, more = self._part(part, self._seed(f"{batch}" if not first else f"{batch}|{first}"))
            texts += found
            tokens += more
        return texts, tokens

    def _part(self, prompts: Sequence[str], seed: int) -> tuple[list[str], int]:
        import torch

        said = self.spec.generation
        inputs = self._tokenizer(
            list(prompts), return_tensors="pt", padding=True, truncation=True, max_length=self._longest_prompt
        ).to(self._model.device)
        inputs.pop("token_type_ids", None)
        torch.manual_seed(seed)
        sampling = {"do_sample": True, "temperature": said.temperature, "top_p": said.top_p, "top_k": 0}
        with torch.inference_mode():
            found = self._model.generate(
                **inputs,
                max_new_tokens=said.max_new_tokens,
                pad_token_id=self._tokenizer.pad_token_id,
                **(sampling if said.temperature > 0 else {"do_sample": False}),
            )
        new = found[:, inputs["input_ids"].shape[1] :]
        tokens = int((new != self._tokenizer.pad_token_id).sum())
        return [text.strip() for text in self._tokenizer.batch_decode(new, skip_special_tokens=True)], tokens

    def _seed(self, part: str) -> int:
        mark = blake2b(f"{self.spec.training.seed}|{part}".encode(), digest_size=7).digest()
        return int.from_bytes(mark, "big")


def _mark(text: str) -> bytes:
    """Texts with one mark are one text: case and spaces do not count."""
    return blake2b(" ".join(text.casefold().split()).encode(), digest_size=16).digest()


def _append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)
    sync(path)


def _cut(path: Path, size: int) -> None:
    """Shorten a file to what is known to be whole."""
    if path.stat().st_size > size:
        os.truncate(path, size)
