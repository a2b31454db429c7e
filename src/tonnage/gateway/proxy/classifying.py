"""What the rules of a route ask of a request's text is found out before a deployment is chosen."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING

from tonnage.gateway.file.guardrail_entries import OUTCOME, RequestClassifier
from tonnage.gateway.guardrails.classifier import CheckFailed, Classifier
from tonnage.gateway.measures import GatewayMeasures, add_time
from tonnage.gateway.money.book import SpendBook
from tonnage.gateway.observing.redaction import without_escapes
from tonnage.gateway.proxy.replies import GatewayReply
from tonnage.gateway.proxy.running import Running
from tonnage.gateway.routing.classes import RequestClasses, WantedClasses, last_text, wanted_classes

if TYPE_CHECKING:
    from tonnage.gateway.proxy.journey import Journey


class RouteClassifying:
    """Of one route."""

    def __init__(self, route: str, wanted: WantedClasses, running: Running, book: SpendBook) -> None:
        self.route, self.wanted = route, wanted
        self._measures: GatewayMeasures = running.measures
        self._classifiers: list[tuple[RequestClassifier, Classifier]] = []
        for name in wanted.classifiers:
            terms = running.gateway.classifiers[name]
            self._classifiers.append((terms, Classifier(terms, terms.deployment, running, book, OUTCOME)))

    async def read(self, journey: Journey) -> GatewayReply | None:
        """Tell a journey what its request is about. A reply: a classifier that must be asked could not be."""
        text = without_escapes(last_text(journey.asked))
        found = self.wanted.read(text)
        if self.wanted.language:
            self._count("language", found.language or "unknown")
        if self._classifiers:
            asked = [self._asked(terms, classifier, text, journey) for terms, classifier in self._classifiers]
            labels: dict[str, frozenset[str]] = {}
            for (terms, _), said in zip(self._classifiers, await asyncio.gather(*asked), strict=True):
                if isinstance(said, frozenset):
                    labels[terms.name] = said
                elif terms.refuses:
                    message = f"the classifier {terms.name!r} could not say where the request belongs: {said}"
                    return GatewayReply(status=503, kind="classifier_failed", message=message, retry_after_s=1.0)
            found = found._replace(labels=labels)
        journey.classified(found, self._head(found))
        return None

    async def _asked(
        self, terms: RequestClassifier, classifier: Classifier, text: str, journey: Journey
    ) -> frozenset[str] | str:
        """Its labels, or why there are none. A request without a text has none, and no classifier is asked."""
        began_s = monotonic()
        said: frozenset[str] | str = frozenset()
        try:
            if text.strip():
                async with asyncio.timeout(terms.within_s):
                    said = await classifier.labels(
                        [text], caller=journey.caller, route=journey.route.name, request=journey.request
                    )
        except CheckFailed as error:
            said = str(error)
        except TimeoutError:
            said = f"{terms.deployment} took over {terms.within_s:g} s"
        add_time(
            self._measures.histogram("tonnage_gateway_classifying_seconds", (("classifier", terms.name),)),
            monotonic() - began_s,
        )
        self._count(terms.name, "failed" if isinstance(said, str) else "label" if said else "none")
        return said

    def _head(self, found: RequestClasses) -> bytes:
        """What the client gets to know of it."""
        said = [f"language={found.language or 'unknown'}"] if self.wanted.language else []
        for terms, _ in self._classifiers:
            labels = found.labels.get(terms.name)
            said.append(f"{terms.name}={'unknown' if labels is None else '+'.join(sorted(labels)) or 'none'}")
        return f"x-tonnage-class: {'; '.join(said)}\r\n".encode("latin-1", "replace") if said else b""

    def _count(self, by: str, met: str) -> None:
        self._measures.count("tonnage_gateway_classified_total", (("route", self.route), ("by", by), ("met", met)))


def route_classifying(running: Running, book: SpendBook) -> Mapping[str, RouteClassifying]:
    """By route, those whose rules ask for something of a text."""
    gateway, found = running.gateway, {}
    for name, route in gateway.routes.items():
        wanted = wanted_classes(gateway, route)
        if wanted:
            found[name] = RouteClassifying(name, wanted, running, book)
    return found
