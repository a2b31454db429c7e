"""A service asked before it is measured: which model it has, whether it answers, how it counts tokens."""

from __future__ import annotations

import json
import random

from tonnage.benchmarks.load.dialects import Prompt
from tonnage.benchmarks.load.generator import LoadTarget, ask_once
from tonnage.benchmarks.load.prompts import made_text
from tonnage.errors import InputError, TonnageError
from tonnage.http.listed_models import first_listed, models_path
from tonnage.http.pool import ExchangeFault, HttpPool, request_bytes


async def first_model(target: LoadTarget, pool: HttpPool) -> str:
    """The first model of `/v1/models`."""
    path = models_path(target.endpoint.path)
    try:
        request = request_bytes(target.endpoint, path, None, target.headers, "GET")
        answer = await pool.send(request, timeout_s=target.timeout_s)
    except ExchangeFault as fault:
        raise _no_service(target, str(fault)) from fault
    found = first_listed(answer.body)
    if found is None:
        raise InputError(f"the service lists no model at {path}", hint="--model names it")
    return found


async def stated_model(target: LoadTarget, pool: HttpPool) -> str | None:
    """The model that a server of embeddings states at `/info`, as text-embeddings-inference does (its router's Info has
    `model_id`); None where it has no such page."""
    try:
        request = request_bytes(target.endpoint, f"{target.endpoint.path}/info", None, target.headers, "GET")
        answer = await pool.send(request, timeout_s=target.timeout_s)
        found = json.loads(answer.body) if answer.status == 200 else {}
    except (ExchangeFault, ValueError):  # what it is called is no reason not to measure it
        return None
    name = found.get("model_id") if isinstance(found, dict) else None
    return name if isinstance(name, str) else None


def made_prompt(words: int) -> Prompt:
    """A text of so many common words, and a short answer."""
    return Prompt(text=made_text(words, random.Random(words)), output_tokens=2)


async def probe(target: LoadTarget, pool: HttpPool, prompt: Prompt) -> int | None:
    """Tokens that the service counted in a prompt. TonnageError where it does not answer."""
    exchange, answer = await ask_once(target, pool, prompt)
    if exchange.fault:
        said = " ".join(answer.body[:200].decode("utf-8", "replace").split()) if answer else ""  # a page is lines
        raise _no_service(target, f"{exchange.fault} {said}".strip())
    return exchange.input_tokens


def _no_service(target: LoadTarget, why: str) -> TonnageError:
    return TonnageError(
        f"no answer from {target.endpoint.authority} over {target.dialect.name}: {why}",
        hint="is the service up, and does it speak that --protocol?",
    )
