"""What a request may cost at most at a deployment, before it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tonnage.errors import TonnageError
from tonnage.gateway.file.described import Deployment, Route
from tonnage.gateway.media.asked import MediaAsk, NoPrice
from tonnage.gateway.money.allowances import Allowance, Amounts
from tonnage.gateway.money.book import SpendBook
from tonnage.gateway.money.rates import usd_text
from tonnage.gateway.proxy.asked import OUTPUT_KEYS, GatewayRequest

UNSTATED_OUTPUT_TOKENS: Final = 4096  # of one answer, where neither client nor file states a limit
SHARES: Final = 4  # a headroom that does not pay for that is shared: so many requests may be under way
FEWEST_SHARED_TOKENS: Final = 1024  # but less than this is no answer: who comes first has it


class Unbounded(TonnageError):
    """A request to which the upstream adds tokens that cannot be counted before, under a budget that must hold."""

    def __init__(self, part: str, deployment: str) -> None:
        super().__init__(
            f"`{part}` makes {deployment} add input that no budget can bound: send the input itself, or have "
            f"`stored_tokens` of {deployment} say in the gateway file how much it may be"
        )
        self.part = part


class Unpriced(TonnageError):
    """A kind of image that the gateway file has no price for: unknown is not free."""


class TooDear(TonnageError):
    """A request that could cost more than its route allows for one."""


class Bound(NamedTuple):
    """`output_limit`: of output tokens, sent upstream because neither client nor route stated any, and because the
    deployment's own limit is unknown or more than the headroom pays for; None: nothing is added to the request.
    `output_tokens`: of one answer, as the amounts count them; None: the client stated them, or there are none."""

    amounts: Amounts
    output_limit: int | None
    output_tokens: int | None


async def most_amounts(
    asked: GatewayRequest, deployment: Deployment, route: Route, allowances: Sequence[Allowance], book: SpendBook,
    *, expected_output: int,
) -> Bound:  # fmt: skip
    """`most_amounts_now`, after what the budgets have left was leased where that decides."""
    found = most_amounts_now(asked, deployment, route, allowances, book, expected_output=expected_output)
    if found is not None:
        return found
    await book.lease_all(allowances)
    found = most_amounts_now(asked, deployment, route, allowances, book, expected_output=expected_output, leased=True)
    assert found is not None
    return found


def most_amounts_now(
    asked: GatewayRequest, deployment: Deployment, route: Route, allowances: Sequence[Allowance], book: SpendBook,
    *, expected_output: int, leased: bool = False,
) -> Bound | None:  # fmt: skip
    """Dollars: the most input tokens that the bytes can be, at the dearest price of input, and every output token.

    Tokens, for rate limits: the input by estimate. `expected_output`: of one answer, where no budget needs a bound.
    None: it depends on what the budgets have left, and not all of that is `leased`.
    Raises TooDear, Unbounded, Unpriced.
    """
    if asked.media is not None:
        return _media(asked.media, deployment, route)
    part = None if deployment.stored_tokens is not None else asked.unbounded
    if part is not None and (route.most_usd_pico is not None or book.left(allowances) is not None):
        raise Unbounded(part, deployment.name)
    inputs = asked.most_input_tokens(deployment.image_tokens, deployment.stored_tokens)
    outputs, output_limit = asked.max_tokens, None
    if outputs is None:
        left = book.left(allowances)
        unstated_output = _unstated(asked, deployment, route, left, inputs, expected_output, leased=leased)
        if unstated_output is None:
            return None
        outputs, output_limit = unstated_output
    unstated = outputs if asked.max_tokens is None and OUTPUT_KEYS[asked.surface] else None
    outputs = (outputs + asked.predicted_tokens) * asked.answers
    usd_pico = deployment.rates.most_pico(inputs, outputs)
    if route.most_usd_pico is not None:
        _allow(usd_pico, route)
    return Bound(Amounts(usd_pico, asked.input_tokens_estimate + outputs), output_limit, unstated)


def _allow(usd_pico: int, route: Route) -> None:
    """Raises TooDear."""
    if route.most_usd_pico is not None and usd_pico > route.most_usd_pico:
        allowed = usd_text(route.most_usd_pico)
        raise TooDear(f"this request may cost {usd_text(usd_pico)} USD, the route {route.name} allows {allowed}")


def _media(media: MediaAsk, deployment: Deployment, route: Route) -> Bound:
    """Of images or audio, which are billed by themselves. Raises TooDear, Unpriced."""
    assert deployment.media is not None
    try:
        usd_pico = media.most_pico(deployment.media)
    except NoPrice as error:
        raise Unpriced(f"{deployment.name}: {error}") from error
    _allow(usd_pico, route)
    return Bound(amounts=Amounts(usd_pico=usd_pico, tokens=0), output_limit=None, output_tokens=None)


def _unstated(
    asked: GatewayRequest, deployment: Deployment, route: Route, left: int | None, inputs: int, expected: int,
    *, leased: bool,
) -> tuple[int, int | None] | None:  # fmt: skip
    """Output tokens of one answer where the client states none: the route's, the deployment's, what can be paid for.
    `left`: pico-dollars, None: no budget; None: more may be left than is leased."""
    if not OUTPUT_KEYS[asked.surface]:
        return 0, None
    if route.max_tokens is not None:
        return route.max_tokens, route.max_tokens
    most = deployment.max_output_tokens
    if left is None:
        return most or expected, None
    wanted = UNSTATED_OUTPUT_TOKENS if most is None else most
    affordable = _affordable(asked, deployment, inputs, left)
    if affordable >= wanted:
        return wanted, wanted if most is None else None
    if not leased:
        return None
    share = max(affordable // SHARES, min(affordable, FEWEST_SHARED_TOKENS), 1)
    return share, share


def _affordable(asked: GatewayRequest, deployment: Deployment, inputs: int, left: int) -> int:
    """Output tokens of one answer that pico-dollars pay for, beside what a prediction may add."""
    most = deployment.rates.affordable_output_tokens(inputs, left) // asked.answers
    return max(most - asked.predicted_tokens, 0)
