"""A served model ready to answer: folder, tokenizer, runtime, batcher."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tonnage.serving.encoder.batching import Batcher, Waiting
from tonnage.serving.encoder.caching import AnswerCache, Kept, key_of
from tonnage.serving.encoder.export import digest_of
from tonnage.serving.encoder.faults import BadRequest, TooLarge
from tonnage.serving.encoder.folders import ModelFolder, read_folder
from tonnage.serving.encoder.runtimes import open_model
from tonnage.serving.encoder.service import EncoderService
from tonnage.serving.encoder.tasks import computing
from tonnage.serving.encoder.tokens import Pair, Tokens
from tonnage.serving.encoder.tuning import Tuned, tune


class Encoder:
    """One model. `answers` is for the event loop that serves requests; the workers are threads of their own."""

    def __init__(self, service: EncoderService, *, cache: AnswerCache | None = None) -> None:
        self.service, self.cache = service, cache
        self.hits = 0
        self.folder: ModelFolder = read_folder(Path(service.model), task=service.task)
        self.version = f"{digest_of(self.folder)[:12]}-{self.folder.task}-{service.weights}"
        self.tokens = Tokens(self.folder, most_tokens=service.most_tokens)
        model = open_model(self.folder, service, Path(service.exports), threads=service.threads)
        self.device = model.device
        compute = computing(self.folder, model, padding=self.tokens.padding)
        self.tuned = self._tuned(compute, model.device)
        self.batcher: Batcher[Any] = Batcher(
            compute, workers=self.tuned.workers, batch_tokens=self.tuned.batch_tokens, queue_items=service.queue_items
        )

    def _tuned(self, compute: Any, device: str) -> Tuned:
        """As the service says, or as measured; int8 is computed one text at a time, so that no answer depends on
        others."""
        service, alone = self.service, self.service.weights == "int8"
        if service.workers is not None and (service.batch_tokens is not None or alone):
            return Tuned(workers=service.workers, batch_tokens=1 if alone else service.batch_tokens or 1, tried=())
        workers = [service.workers] if service.workers else _workers(device, service.threads)
        return tune(compute, workers=workers, most_tokens=self.tokens.most_tokens, p95_s=service.p95_s, alone=alone)

    async def answers(
        self, given: Sequence[str | Pair], *, truncate: bool | None, deadline: float | None, tenant: bytes = b""
    ) -> tuple[list[Any], int]:
        """The answer to each text, and their tokens in all. Raises a Fault for what is not answered.

        Cancelled, it gives up what still waits.
        """
        if not given:
            raise BadRequest("there is nothing to answer: the batch is empty")
        if len(given) > self.service.request_items:
            raise TooLarge(f"{len(given)} texts in one request, at most {self.service.request_items}")
        cut = self.service.truncate if truncate is None else truncate
        if self.cache is None:
            kept = await self._computed(given, cut=cut, deadline=deadline)
        else:
            kept = await self._kept(self.cache, given, cut=cut, deadline=deadline, tenant=tenant)
        return [answer for answer, _ in kept], sum(tokens for _, tokens in kept)

    async def _kept(
        self, cache: AnswerCache, given: Sequence[str | Pair], *, cut: bool, deadline: float | None, tenant: bytes
    ) -> list[Kept]:
        """Those that are kept as they are, the others computed and kept."""
        asked = f"{self.version} {self.service.runtime} {self.tokens.most_tokens}"
        keys = [key_of(asked, tenant, one, cut=cut) for one in given]
        found = await cache.read(keys)
        missing = [at for at, one in enumerate(found) if one is None]
        self.hits += len(given) - len(missing)
        if missing:
            made = await self._computed([given[at] for at in missing], cut=cut, deadline=deadline)
            await cache.keep([(keys[at], one) for at, one in zip(missing, made, strict=True)])
            found = [*found]
            for at, one in zip(missing, made, strict=True):
                found[at] = one
        return [one for one in found if one is not None]

    async def _computed(self, given: Sequence[str | Pair], *, cut: bool, deadline: float | None) -> list[Kept]:
        texts = await self.tokens.read_all(given, truncate=cut)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def told(_: Waiting[Any]) -> None:
            loop.call_soon_threadsafe(_finish, future)

        request = self.batcher.submit(texts, told, deadline=deadline)
        try:
            await future
        finally:
            self.batcher.give_up(request)
        if request.fault is not None:
            raise request.fault
        return [(answer, len(text.ids)) for answer, text in zip(request.answers, texts, strict=True)]

    def drain(self, *, timeout_s: float) -> bool:
        """Finish what waits; whether all was finished."""
        return self.batcher.drain(timeout_s=timeout_s)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _workers(device: str, threads: int) -> list[int]:
    """On a GPU one worker computes and another prepares; on a CPU one for each core, or for each group of threads."""
    if device != "cpu":
        return [1, 2]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return sorted({1, max(1, cores // threads)})


def deadline_in(seconds: float | None) -> float | None:
    """A deadline of time.monotonic."""
    return None if seconds is None else time.monotonic() + seconds
