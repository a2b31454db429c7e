"""Requests as OpenTelemetry spans in the GenAI semantic conventions, sent by OTLP over HTTP from a thread of its own.

One span a request (kind SERVER), a child for each attempt (kind CLIENT). Made from what became of the request once it
has ended, so that the request itself chooses ids and nothing more. Source of the names:
https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from random import Random
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import MissingExtra
from tonnage.gateway.dialects.usage import Dialect
from tonnage.gateway.file.kept_entries import SpansEntry
from tonnage.gateway.measures import GatewayMeasures
from tonnage.gateway.money.rates import PICO_PER_USD
from tonnage.gateway.observing.beside import BackgroundConsumer
from tonnage.gateway.observing.record import RecordedAttempt, RequestRecord, TraceContext, begin_trace
from tonnage.http.connection import Headers

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

MOST_WAITING_BYTES: Final = 16 << 20
MOST_A_CALL: Final = 512  # spans in one export
SEND_S: Final = 5
PATH: Final = "/v1/traces"
SCOPE: Final = "tonnage.gateway"
_OPERATIONS: Final = {"chat": "chat", "messages": "chat", "responses": "chat", "completions": "text_completion"}
_PROVIDERS: Final[Mapping[Dialect, str]] = {
    "openai": "openai", "anthropic": "anthropic", "converse": "aws.bedrock",
}  # fmt: skip
PARAMETERS: Final[Mapping[str, tuple[str, type | tuple[type, ...]]]] = {
    "temperature": ("gen_ai.request.temperature", (int, float)),
    "top_p": ("gen_ai.request.top_p", (int, float)),
    "top_k": ("gen_ai.request.top_k", (int, float)),
    "frequency_penalty": ("gen_ai.request.frequency_penalty", (int, float)),
    "presence_penalty": ("gen_ai.request.presence_penalty", (int, float)),
    "seed": ("gen_ai.request.seed", int),
}


class SpanWriter:
    """Of one worker. `say`: is called when spans begin to be lost, and when they are taken again."""

    def __init__(
        self, entry: SpansEntry, headers: Mapping[str, str], measures: GatewayMeasures, say: Callable[[str], None]
    ) -> None:
        """`headers`: what the receiver asks for. MissingExtra without OpenTelemetry."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        except ImportError as error:
            raise MissingExtra("spans of the gateway", "otel") from error
        self.entry, self._say = entry, say
        self._random, self._share = Random(), entry.sample_percent / 100.0
        url = entry.endpoint if entry.endpoint.endswith(PATH) else entry.endpoint.rstrip("/") + PATH
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # what it would say is said and counted here
        self._exporter = OTLPSpanExporter(endpoint=url, headers=dict(headers), timeout=SEND_S)
        self._resource = Resource.create({"service.name": entry.service})
        self._scope = InstrumentationScope(SCOPE)
        names = ("sent", "lost", "not-kept-up")
        self._sent, self._lost, self._late = (
            measures.cell("tonnage_gateway_spans_total", (("result", one),)) for one in names
        )
        self._losing = False
        self._beside = BackgroundConsumer(
            "gateway-spans", self._send, self._exporter.shutdown, most_bytes=MOST_WAITING_BYTES
        )

    def begin(self, headers: Headers) -> TraceContext | None:
        """The trace of a request; None: it is not recorded."""
        return begin_trace(headers, self._share, self._random)

    def put(self, record: RequestRecord) -> None:
        if record.trace is not None and not self._beside.put(record, record.size):
            self._late[0] += 1 + len(record.attempts)

    def close(self) -> None:
        self._beside.close()

    # in the thread

    def _send(self, records: list[RequestRecord]) -> None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        spans = [span for one in records for span in self._spans(one)]
        for begin in range(0, len(spans), MOST_A_CALL):
            batch = spans[begin : begin + MOST_A_CALL]
            try:
                sent = self._exporter.export(batch) is SpanExportResult.SUCCESS
            except Exception:  # a library's: whatever it is, requests go on, and the next batch is tried
                sent = False
            (self._sent if sent else self._lost)[0] += len(batch)
            if sent is self._losing:
                self._losing = not sent
                self._say(
                    "spans are taken again"
                    if sent
                    else f"spans are lost, requests go on: {self.entry.endpoint} takes none"
                )

    def _spans(self, record: RequestRecord) -> Iterator[ReadableSpan]:
        from opentelemetry.trace import SpanKind

        trace = record.trace
        assert trace is not None
        operation = _OPERATIONS.get(record.surface, record.surface)
        now_s, now = time(), monotonic()

        def moment_ns(at: float) -> int:
            return int((now_s - (now - at)) * 1e9)

        for one in record.attempts:
            began = moment_ns(one.ended_s - one.outcome.latency_s)
            failed = None if one.outcome.outcome == "ok" else one.outcome.outcome
            yield self._span(
                f"{operation} {one.deployment.model}", trace, trace.attempt(one.identity), trace.span_id,
                SpanKind.CLIENT, (began, moment_ns(one.ended_s)), _attempt(record, one, operation), failed,
            )  # fmt: skip
        status = record.status
        failed = None if 0 < status < 400 else "client_closed" if not status else _kind(record)
        yield self._span(
            f"{operation} {record.route or '-'}", trace, trace.span_id, trace.parent_id, SpanKind.SERVER,
            (moment_ns(record.began_s), moment_ns(record.began_s + record.latency_s)),
            _request(record, operation), failed,
        )  # fmt: skip

    def _span(
        self, name: str, trace: TraceContext, span_id: int, parent_id: int, kind: Any, ends_ns: tuple[int, int],
        attributes: dict[str, Any], failed: str | None,
    ) -> ReadableSpan:  # fmt: skip
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

        def context(identity: int, *, remote: bool) -> SpanContext:
            return SpanContext(trace.trace_id, identity, is_remote=remote, trace_flags=TraceFlags(TraceFlags.SAMPLED))

        if failed is not None:
            attributes["error.type"] = failed
        known = {key: value for key, value in attributes.items() if value is not None}
        return ReadableSpan(
            name=name, context=context(span_id, remote=False),
            parent=context(parent_id, remote=parent_id == trace.parent_id) if parent_id else None,
            resource=self._resource, attributes=known, kind=kind, instrumentation_scope=self._scope,
            status=Status(StatusCode.UNSET if failed is None else StatusCode.ERROR), start_time=ends_ns[0],
            end_time=ends_ns[1],
        )  # fmt: skip


def _kind(record: RequestRecord) -> str:
    return str(record.status) if record.reply is None else record.reply.kind


def _request(record: RequestRecord, operation: str) -> dict[str, Any]:
    last = record.attempts[-1].outcome if record.attempts else None
    return {
        "gen_ai.operation.name": operation, "gen_ai.request.model": record.route,
        "gen_ai.provider.name": _PROVIDERS[record.attempts[-1].deployment.dialect] if record.attempts else None,
        **_parameters(record), "http.response.status_code": record.status or None,
        "gen_ai.usage.input_tokens": last and last.input_tokens,
        "gen_ai.usage.output_tokens": last and last.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": last and last.cached_tokens,
        "tonnage.request.id": record.request, "tonnage.key": record.caller.name, "tonnage.team": record.caller.team,
        "tonnage.project": record.caller.project, "tonnage.cache": record.cache, "tonnage.guard": record.guard,
        "tonnage.cost.usd": sum(one.outcome.amounts.usd_pico for one in record.attempts) / PICO_PER_USD,
        "tonnage.usage.estimated": any(one.outcome.estimated for one in record.attempts),
    }  # fmt: skip


def _attempt(record: RequestRecord, one: RecordedAttempt, operation: str) -> dict[str, Any]:
    found, deployment = one.outcome, one.deployment
    streams = record.asked is not None and record.asked.stream
    return {
        "gen_ai.operation.name": operation, "gen_ai.provider.name": _PROVIDERS[deployment.dialect],
        "gen_ai.request.model": deployment.model, **_parameters(record),
        "gen_ai.response.time_to_first_chunk": found.first_byte_s if streams else None,
        "gen_ai.usage.input_tokens": found.input_tokens, "gen_ai.usage.output_tokens": found.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": found.cached_tokens, "server.address": deployment.endpoint.host,
        "server.port": deployment.endpoint.port, "http.response.status_code": found.status or None,
        "tonnage.deployment": deployment.name, "tonnage.outcome": found.outcome,
        "tonnage.cost.usd": found.amounts.usd_pico / PICO_PER_USD, "tonnage.usage.estimated": found.estimated,
    }  # fmt: skip


def _parameters(record: RequestRecord) -> dict[str, Any]:
    asked = record.asked
    if asked is None:
        return {}
    found: dict[str, Any] = {"gen_ai.request.stream": asked.stream, "gen_ai.request.max_tokens": asked.max_tokens}
    if asked.answers > 1:
        found["gen_ai.request.choice.count"] = asked.answers
    for name, (attribute, kind) in PARAMETERS.items():
        value = asked.said.get(name)
        if isinstance(value, kind) and not isinstance(value, bool):
            found[attribute] = value
    return found
