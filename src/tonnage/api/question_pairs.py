"""How safe a route's semantic cache is: `tonnage.gateway_similarity`."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.errors import InputError, TonnageError, UnknownName
from tonnage.settings import Settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.gateway.file.conduct_entries import SemanticEntry
    from tonnage.gateway.file.described import Gateway, Route
    from tonnage.gateway.semantic.embeddings import Vectors
    from tonnage.gateway.semantic.similarity import SimilarityFound

TEXTS_A_REQUEST: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySimilarOptions(Options):
    """Which route `gateway_similarity` judges, and how strictly."""

    route: str | None = option(
        "--route", "The route. [default: the only one with a semantic cache]", default=None, metavar="NAME"
    )
    most_false: float = option(
        "--most-false", "The share of false hits that is accepted.", default=0.01, metavar="FRACTION", least=0, most=1
    )


def gateway_similarity(
    file: Path | str, pairs: Path | str, options: GatewaySimilarOptions | None = None, *,
    settings: Settings | None = None,
) -> Answer[SimilarityFound]:  # fmt: skip
    """Pairs of questions (CSV: `text`, `other`, `same`) asked of the route's model of embeddings: which similarity
    finds questions of one meaning, and how often it takes two for one.

    The requests are booked in the gateway's ledger under the route. Raises InputError for a file of pairs or a gateway
    without a semantic cache, UnknownName for a route, TonnageError where the deployment does not answer.
    """
    from tonnage.api.gateway import load_gateway_file
    from tonnage.gateway.semantic.similarity import SimilarityFound, judge, read_pairs, similarity_report

    asked = options or GatewaySimilarOptions()
    gateway = load_gateway_file(file, settings=settings)
    route, entry = _semantic_route(gateway, asked.route)
    known = read_pairs(Path(pairs))
    texts = list(dict.fromkeys(text for one in known for text in (one.text, one.other)))
    long = next((one for one in texts if len(one) > entry.most_chars), None)
    if long is not None:
        raise InputError(
            f"{pairs}: a text of {len(long)} letters is longer than the route compares ({entry.most_chars})",
            hint=f"leave out {long[:40]!r}...",
        )
    found, tokens = asyncio.run(_embedded(gateway, route, entry, texts))
    place = {text: at for at, text in enumerate(texts)}
    steps = judge(
        known, found[[place[one.text] for one in known]], found[[place[one.other] for one in known]], entry.at_least
    )
    made = SimilarityFound(
        route=route.name, deployment=entry.deployment, stated=entry.at_least, most_false=asked.most_false, steps=steps,
        tokens=tokens,
    )  # fmt: skip
    return Answer(made, similarity_report)


def _semantic_route(gateway: Gateway, name: str | None) -> tuple[Route, SemanticEntry]:
    entries = {
        one.name: (one, one.cache.semantic)
        for one in gateway.routes.values()
        if one.cache is not None and one.cache.semantic is not None
    }
    if not entries:
        raise InputError("no route has a semantic cache", hint="`cache: {semantic: {deployment: NAME}}` in a route")
    if name is None and len(entries) > 1:
        raise InputError(f"{len(entries)} routes have a semantic cache", hint=f"--route: {', '.join(entries)}")
    if name is not None and name not in entries:
        raise UnknownName(f"no route with a semantic cache is named '{name}'", hint=f"known: {', '.join(entries)}")
    return entries[name] if name is not None else next(iter(entries.values()))


async def _embedded(gateway: Gateway, route: Route, entry: SemanticEntry, texts: list[str]) -> tuple[Vectors, int]:
    """A vector for each text, and the tokens that were booked."""
    import numpy as np

    from tonnage.gateway.file.described import ANYBODY
    from tonnage.gateway.measures import GatewayMeasures
    from tonnage.gateway.money.accounts_of import accounts_of
    from tonnage.gateway.money.book import SpendBook
    from tonnage.gateway.proxy.running import Running
    from tonnage.gateway.proxy.side_request import SideFailed, SideRequests
    from tonnage.gateway.semantic.cache import embedding_request
    from tonnage.gateway.semantic.embeddings import read_embeddings
    from tonnage.gateway.signing.signers import make_signer

    vectors, tokens = [], 0
    with TemporaryDirectory() as folder:
        book = SpendBook(accounts_of(gateway), Path(folder))
        await book.open()
        running = Running(gateway, GatewayMeasures(), make_signer)
        asking = SideRequests(entry.deployment, running, book)
        try:
            for at in range(0, len(texts), TEXTS_A_REQUEST):
                part = texts[at : at + TEXTS_A_REQUEST]
                request = embedding_request(asking.deployment.model, part, "similarity")
                read = partial(read_embeddings, count=len(part))
                vectors.append(
                    await asking.ask(request, read, caller=ANYBODY, route=route.name, request=f"similarity-{at}")
                )
                tokens += request.tokens
        except SideFailed as error:
            raise TonnageError(str(error), hint=f"is {entry.deployment} up?") from error
        finally:
            await book.close()
            running.close()
    return np.concatenate(vectors), tokens
