"""A rule that asks a deployment of classification, whose cost is held, settled and put into the ledger as any other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from time import monotonic, time
from typing import Any, Final

import orjson

from tonnage.errors import TonnageError
from tonnage.gateway.dialects.usage import Usage
from tonnage.gateway.file.described import Caller
from tonnage.gateway.file.guardrail_entries import Guardrail
from tonnage.gateway.money.allowances import Amounts
from tonnage.gateway.money.book import Book
from tonnage.gateway.money.holds import Outcome, Refused
from tonnage.gateway.proxy.asked import BYTES_PER_TOKEN
from tonnage.gateway.proxy.running import Running
from tonnage.http.upstream import Connection, UpstreamFault

OVERLAP_CHARS: Final = 200  # of two windows: a phrase at their border is whole in one of them
TEXTS_A_REQUEST: Final = 32  # what TEI takes at a time by default
MOST_WINDOWS: Final = 256
LARGEST_BYTES: Final = 4 << 20
TOKENS_A_WINDOW: Final = 16  # what a classifier adds around each
_HEADERS: Final = [(b"content-type", b"application/json"), (b"accept-encoding", b"identity")]


class CheckFailed(Exception):
    """A rule could not look at a text."""


class Classifier:
    """Of one rule. `running`: the configuration at work, with the deployment that is asked."""

    def __init__(self, rule: Guardrail, running: Running, book: Book) -> None:
        assert rule.deployment is not None
        self.rule, self.running, self.book = rule, running, book
        self.deployment = running.gateway.deployments[rule.deployment]

    async def labels(self, texts: Sequence[str], *, caller: Caller, route: str, request: str) -> frozenset[str]:
        """The labels that count as found in any of the texts. Raises CheckFailed."""
        windows = [one for text in texts for one in _windows(text, self.rule.window_chars)]
        if len(windows) > MOST_WINDOWS:
            raise CheckFailed(f"the texts are over {MOST_WINDOWS} pieces of {self.rule.window_chars} letters")
        found: set[str] = set()
        for at in range(0, len(windows), TEXTS_A_REQUEST):
            found |= await self._ask(windows[at : at + TEXTS_A_REQUEST], caller, route, request)
        return frozenset(found)

    async def _ask(self, texts: list[str], caller: Caller, route: str, request: str) -> set[str]:
        """One request, held before and settled after."""
        running, deployment = self.running, self.deployment
        health = running.healths[deployment.name]
        if not health.available(monotonic()):
            raise CheckFailed(f"{deployment.name} rests after failures")
        body = orjson.dumps(
            {"input": texts, "model": deployment.model}
            if self.rule.moderations
            else {"inputs": texts, "truncate": True}
        )
        # of the caller only money: the request that is checked has its place at a time already
        allowances = [one for one in running.allowances(caller, route) if one.unit == "usd"]
        allowances += running.allowances_at(deployment.name)
        rates = deployment.rates
        most = len(body) + TOKENS_A_WINDOW * len(texts)
        tokens = sum(len(one) // BYTES_PER_TOKEN + 1 for one in texts)
        cost = Amounts(usd_pico=rates.cost_pico(Usage(input_tokens=tokens, output_tokens=0)), tokens=tokens)
        amounts = Amounts(usd_pico=rates.most_pico(most, 0), tokens=tokens)
        who = running.who(caller, route, deployment.name)
        try:
            hold = await self.book.hold(allowances, amounts, who=who, request=request, lost_usd_pico=cost.usd_pico)
        except Refused as refused:
            running.count_refused(refused.allowance)
            raise CheckFailed(f"{refused.allowance.words} has too little left for the check") from refused
        except (TonnageError, OSError) as error:
            raise CheckFailed(f"the accounts take nothing now: {error}") from error
        health.begin()
        began_s = monotonic()
        sent, status, why = True, 0, "gateway-fault"
        try:
            async with asyncio.timeout(deployment.timeouts.total):
                answer = await self._sent(body)
                status, read = answer.status, await _read(answer)
            found = self._found(status, read)
        except UpstreamFault as fault:
            sent, why = fault.sent, fault.kind
            raise CheckFailed(f"{deployment.name} gave no whole answer: {fault}") from fault
        except TimeoutError as error:
            why = "total-time"
            raise CheckFailed(f"{deployment.name} took over {deployment.timeouts.total:g} s") from error
        except TonnageError as error:
            sent, why = False, "sign-in"
            raise CheckFailed(f"{deployment.name}: {error}") from error
        except _NoLabels as error:
            why = f"status-{status}" if status != 200 else "not-an-answer"
            raise CheckFailed(f"{deployment.name} answered {error}") from error
        else:
            why = "ok"
            return found
        finally:
            taken_s = monotonic() - began_s
            if why == "ok":
                health.succeed(taken_s, None)
            else:
                health.fail(monotonic())
            self.book.settle(hold, None if not sent else Outcome(
                status=status, outcome="guardrail" if why == "ok" else why, amounts=cost, input_tokens=tokens,
                output_tokens=0, cached_tokens=None, estimated=True, first_byte_s=None, latency_s=taken_s,
            ))  # fmt: skip

    async def _sent(self, body: bytes) -> Connection:
        target = b"/moderations" if self.rule.moderations else b"/predict"
        headers = list(_HEADERS)
        signer = self.running.signers.get(self.deployment.name)
        if signer is not None:
            url = self.deployment.endpoint.url
            fetching = signer.preparing(url, time())
            if fetching is not None:
                await asyncio.wrap_future(fetching)
            headers += signer.headers("POST", url + target.decode(), body, time())
        return await self.running.upstreams[self.deployment.name].ask("POST", target, headers, body)

    def _found(self, status: int, body: bytes) -> set[str]:
        """Raises _NoLabels for an answer that is none."""
        if status != 200:
            raise _NoLabels(str(status))
        try:
            said = orjson.loads(body)
            scored = list(_moderated(said) if self.rule.moderations else _predicted(said))
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise _NoLabels("what has no labels") from error
        if not scored:
            raise _NoLabels("no labels")
        return {label for label, score in scored if label in self.rule.labels and score >= self.rule.above}


class _NoLabels(Exception):
    """An answer without labels and scores."""


def _predicted(said: Any) -> Iterator[tuple[str, float]]:
    """A list for each text, of labels with their scores (Text Embeddings Inference, /predict)."""
    for text in said:
        for one in text if isinstance(text, list) else [text]:
            yield str(one["label"]), float(one["score"])


def _moderated(said: Any) -> Iterator[tuple[str, float]]:
    """Scores by category for each text (OpenAI, /moderations)."""
    for result in said["results"]:
        for label, score in result["category_scores"].items():
            yield str(label), float(score)


def _windows(text: str, chars: int) -> Iterator[str]:
    step = max(chars - OVERLAP_CHARS, chars // 2, 1)
    at = 0
    while True:
        yield text[at : at + chars]
        if at + chars >= len(text):
            return
        at += step


async def _read(answer: Connection) -> bytes:
    """The whole body. Raises UpstreamFault; one that is too large is a fault too."""
    pieces, size = [], 0
    while (piece := await answer.read()) is not None:
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST_BYTES:
            answer.abort()
            raise UpstreamFault(f"the answer is over {LARGEST_BYTES >> 20} MiB")
    return b"".join(pieces)
