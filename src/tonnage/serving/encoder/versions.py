"""The versions of one served model: which answers how large a share, which only shadows, and the way back.

A version is loaded beside those that serve; then the shares change at once, and what an old one took it still answers.
The arrangement before stays loaded until the next change, so that the way back is immediate.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import field, replace
from typing import Any, Final

from tonnage.errors import TonnageError
from tonnage.serving.encoder.engine import Encoder
from tonnage.serving.encoder.faults import BadRequest, NotFound
from tonnage.serving.encoder.service import EncoderService
from tonnage.values import dataclass

DRAIN_S: Final = 60.0
Load = Callable[[EncoderService], Encoder]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """Shares of the requests by version (they sum to 1), and the version that gets copies, whose answers are
    dropped."""

    shares: tuple[tuple[Encoder, float], ...]
    shadow: Encoder | None = field(default=None)

    @property
    def encoders(self) -> tuple[Encoder, ...]:
        serving = tuple(one for one, _ in self.shares)
        return serving if self.shadow is None else (*serving, self.shadow)


class Versions:
    """Used in the event loop of the server; models load and drain in threads of their own."""

    def __init__(self, first: Encoder, load: Load, *, seed: int | None = None) -> None:
        self.now = Arrangement(shares=((first, 1.0),))
        self.before: Arrangement | None = None
        self.shadowed, self.shadow_faults = 0, 0
        self._load, self._random = load, random.Random(seed)
        self.kept: Encoder | None = None  # is never drained while the server lives: the fallback
        self._changing = asyncio.Lock()
        self._beside: set[asyncio.Task[Any]] = set()  # shadows and drains under way

    @property
    def main(self) -> Encoder:
        """The version with the largest share."""
        return max(self.now.shares, key=lambda one: one[1])[0]

    def choose(self, version: str | None = None) -> Encoder:
        """The version that answers a request: the one asked for, else by the shares. NotFound for one that is not
        loaded."""
        if version is not None:
            found = next((one for one in self.now.encoders if one.version == version), None)
            if found is None:
                raise NotFound(f"version {version} is not loaded; loaded: {', '.join(self.names())}")
            return found
        if len(self.now.shares) == 1:
            return self.now.shares[0][0]
        encoders, shares = zip(*self.now.shares, strict=True)
        chosen: Encoder = self._random.choices(encoders, shares)[0]
        return chosen

    def names(self) -> list[str]:
        """The versions that are loaded and not only kept for the way back."""
        return [one.version for one in self.now.encoders]

    async def load(self, model: str, *, share: float, shadow: bool) -> Encoder:
        """Load a version beside the others, then give it `share` of the requests, or copies of them (`shadow`).

        Raises BadRequest for a model that cannot be used in place of the one that serves, and changes nothing then.
        """
        async with self._changing:
            made = await self._loaded(model)
            others = self.now.shares
            if shadow:
                self._change(replace(self.now, shadow=made))
            elif share == 1.0:
                self._change(Arrangement(shares=((made, 1.0),)))
            else:
                kept = tuple((one, part * (1.0 - share)) for one, part in others)
                self._change(Arrangement(shares=(*kept, (made, share)), shadow=self.now.shadow))
            return made

    async def _loaded(self, model: str) -> Encoder:
        service = replace(self.main.service, model=model)
        try:
            made = await asyncio.to_thread(self._load, service)
        except TonnageError as error:
            raise BadRequest(f"{model} cannot be served: {error}") from error
        unlike = made.folder.task != self.main.folder.task
        if unlike or made.version in self.names():
            made.drain(timeout_s=DRAIN_S)
            why = f"is for {made.folder.task}, not {self.main.folder.task}" if unlike else "is loaded already"
            raise BadRequest(f"{model} ({made.version}) {why}")
        return made

    async def unload(self, version: str) -> None:
        """Take a version out; its share goes to the others in proportion. BadRequest for the last one."""
        async with self._changing:
            gone = self.choose(version)
            shares = [(one, part) for one, part in self.now.shares if one is not gone]
            if not shares:
                raise BadRequest(f"{version} is the only version that answers: load another first")
            whole = sum(part for _, part in shares)
            shadow = None if self.now.shadow is gone else self.now.shadow
            self._change(Arrangement(shares=tuple((one, part / whole) for one, part in shares), shadow=shadow))

    async def roll_back(self) -> None:
        """The arrangement before the last change; called twice, it changes nothing."""
        async with self._changing:
            if self.before is None:
                raise BadRequest("nothing was changed: there is no way back")
            self._change(self.before)

    def shadow(self, ask: Callable[[Encoder], Coroutine[Any, Any, Any]]) -> None:
        """Put a copy of a request to the shadow, where there is one; its answer is counted and thrown away."""
        if self.now.shadow is not None:
            self._go_on(self._shadowed(ask(self.now.shadow)))

    async def _shadowed(self, asked: Coroutine[Any, Any, Any]) -> None:
        self.shadowed += 1
        try:
            await asked
        except Exception:  # whatever happens to a copy, the request itself has its answer
            self.shadow_faults += 1

    def _change(self, to: Arrangement) -> None:
        dropped = [one for one in (self.before.encoders if self.before else ()) if one not in to.encoders]
        self.before, self.now = self.now, to
        for one in dropped:
            if one not in self.before.encoders and one is not self.kept:
                self._go_on(asyncio.to_thread(one.drain, timeout_s=DRAIN_S))

    def _go_on(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    def every(self) -> Sequence[Encoder]:
        """All that are loaded, those for the way back too."""
        return list(dict.fromkeys((*self.now.encoders, *(self.before.encoders if self.before else ()))))

    def index(self) -> list[dict[str, Any]]:
        """The versions as the model repository's index lists them, with their shares."""
        rows = [(one, {"share": part}) for one, part in self.now.shares]
        rows += [(self.now.shadow, {"shadow": True})] if self.now.shadow else []
        return [{"name": one.service.name, "version": one.version, "state": "READY", "model": one.service.model, **said}
                for one, said in rows]  # fmt: skip
