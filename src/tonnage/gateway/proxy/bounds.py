"""What a request may cost at most at a deployment, before it is sent."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.errors import TonnageError
from tonnage.gateway.file.described import Deployment, Route
from tonnage.gateway.money.allowances import Allowance, Amounts
from tonnage.gateway.money.book import Book
from tonnage.gateway.money.rates import usd_text
from tonnage.gateway.proxy.asked import OUTPUT_KEYS, GatewayRequest
from tonnage.values import dataclass


class TooDear(TonnageError):
    """A request that could cost more than its route allows for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """`told`: output tokens that the upstream is told, because neither client nor route stated any and the headroom
    does not pay for the deployment's own limit; None: nothing is added to the request. `output_tokens`: of one answer,
    as the amounts count them; None: the client stated them, or there are none."""

    amounts: Amounts
    told: int | None
    output_tokens: int | None


async def most_amounts(
    asked: GatewayRequest,
    deployment: Deployment,
    route: Route,
    allowances: Sequence[Allowance],
    book: Book,
    *,
    expected_output: int,
) -> Bound:
    """Dollars: the most input tokens that the bytes can be, at the dearest price of input, and every output token.

    Tokens, for rate limits: the input by estimate. `expected_output`: of one answer, where no budget needs a bound.
    Raises TooDear.
    """
    inputs = asked.most_input_tokens(deployment.image_tokens)
    outputs, told = asked.max_tokens, None
    if outputs is None:
        outputs, told = await _unstated(asked, deployment, route, allowances, book, inputs, expected_output)
    unstated = outputs if asked.max_tokens is None and OUTPUT_KEYS[asked.surface] else None
    outputs *= asked.answers
    usd_pico = deployment.rates.most_pico(inputs, outputs)
    if route.most_usd_pico is not None and usd_pico > route.most_usd_pico:
        allowed = usd_text(route.most_usd_pico)
        raise TooDear(f"this request may cost {usd_text(usd_pico)} USD, the route {route.name} allows {allowed}")
    amounts = Amounts(usd_pico=usd_pico, tokens=asked.input_tokens_estimate + outputs)
    return Bound(amounts=amounts, told=told, output_tokens=unstated)


async def _unstated(
    asked: GatewayRequest, deployment: Deployment, route: Route, allowances: Sequence[Allowance], book: Book,
    inputs: int, expected: int,
) -> tuple[int, int | None]:  # fmt: skip
    """Output tokens of one answer where the client states none: the route's, the deployment's, what can be paid for."""
    if not OUTPUT_KEYS[asked.surface]:
        return 0, None
    if route.max_tokens is not None:
        return route.max_tokens, route.max_tokens
    left = book.left(allowances)
    most = deployment.max_output_tokens
    if left is None:
        return most or expected, None
    rates, answers = deployment.rates, asked.answers
    if most is not None and rates.most_pico(inputs, most * answers) <= left:
        return most, None
    await book.lease_all(allowances)
    left = book.left(allowances) or 0
    if most is not None and rates.most_pico(inputs, most * answers) <= left:
        return most, None
    affordable = max(rates.affordable_output_tokens(inputs, left) // answers, 1)
    affordable = affordable if most is None else min(affordable, most)
    return affordable, affordable
