"""What all readers of the web share: which faults may pass, how long to wait, and httpx's errors as ours."""

from __future__ import annotations

import httpx
import pytest

from tonnage.errors import FetchError, SourceError, TonnageError
from tonnage.http.client import check_temporary, open_client, translated
from tonnage.http.retries import LONGEST_WAIT_S, RetryPolicy, TemporaryError, is_temporary, retry_after_s


class Waits:
    """A policy whose waits are written down."""

    def __init__(self, attempts: int = 20, longest_s: float = 60.0) -> None:
        self.seconds: list[float] = []
        self.policy = RetryPolicy(
            attempts=attempts, wait=self.seconds.append, give_up=self.give_up, longest_retry_after_s=longest_s
        )

    def give_up(self, what: str, failures: int, error: TemporaryError) -> TonnageError:
        return FetchError(f"{what}: {error} after {failures}")


def test_waits_double_with_jitter_up_to_the_longest() -> None:
    """Each wait is between half of and the whole of its doubled base, never over a minute."""
    waits = Waits()
    for _ in range(12):
        waits.policy.failed(TemporaryError("busy"), "x")
    bases = [min(LONGEST_WAIT_S, 0.5 * 2**count) for count in range(12)]
    assert all(base / 2 <= seen <= base for base, seen in zip(bases, waits.seconds, strict=True))


def test_a_server_is_waited_for_as_it_asks_up_to_a_limit() -> None:
    """`Retry-After` replaces the back-off; over the limit the source is given up at once."""
    waits = Waits()
    waits.policy.failed(TemporaryError("busy", retry_after_s=7.0), "x")
    waits.policy.failed(TemporaryError("busy", retry_after_s=0.0), "x")
    assert waits.seconds == [7.0, 0.0]
    with pytest.raises(FetchError, match="x: busy after 3"):
        waits.policy.failed(TemporaryError("busy", retry_after_s=61.0), "x")


def test_failures_count_in_a_row() -> None:
    """Progress starts the count over; without it the attempts run out."""
    waits = Waits(attempts=2)
    for _ in range(3):
        waits.policy.failed(TemporaryError("cut"), "x")
        waits.policy.progressed()
    answers = iter([TemporaryError("one"), None])

    def ask() -> str:
        if (error := next(answers)) is not None:
            raise error
        return "found"

    assert waits.policy.insist(ask, "x") == "found"
    with pytest.raises(FetchError, match="x: cut after 2"):
        waits.policy.failed(TemporaryError("cut"), "x")


@pytest.mark.parametrize(
    ("status", "passes"),
    [(200, False), (404, False), (408, True), (425, True), (429, True), (500, True), (501, False), (503, True),
     (505, False), (524, True)],
)  # fmt: skip
def test_statuses_that_may_pass(status: int, passes: bool) -> None:
    """Time-outs, «too many» and server errors may pass, refusals and what a server cannot do may not."""
    assert is_temporary(status) is passes
    response = httpx.Response(status, headers={"Retry-After": "3"})
    if passes:
        with pytest.raises(TemporaryError) as caught:
            check_temporary(response, "said")
        assert (str(caught.value), caught.value.retry_after_s) == ("said", 3.0)
    else:
        check_temporary(response, "said")


@pytest.mark.parametrize("text", ["", None, "soon", "Mon, 99 Foo 2026", "-1"])
def test_a_retry_after_that_says_nothing(text: str | None) -> None:
    """An absent or unreadable header is None, not zero."""
    assert retry_after_s(text) is None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (httpx.ReadTimeout("late"), TemporaryError),
        (httpx.ConnectError(""), TemporaryError),
        (httpx.ProxyError("no such proxy"), SourceError),
        (httpx.UnsupportedProtocol("ftp://"), SourceError),
        (httpx.TooManyRedirects("20"), SourceError),
        (httpx.InvalidURL("port"), SourceError),
    ],
)
def test_errors_of_httpx(error: Exception, expected: type[Exception]) -> None:
    """What the network does may pass; what the address or the proxy is does not."""
    with pytest.raises(expected), translated(SourceError):
        raise error


def test_words_hold_no_secret() -> None:
    """An error that quotes the address is told without its password and signature."""
    with pytest.raises(TemporaryError) as caught, translated(SourceError):
        raise httpx.ConnectError("https://me:pw1@host/a?sig=s3cret refused")
    assert str(caught.value) == "ConnectError: https://me:***@host/a?sig=*** refused"


def test_a_client_names_us() -> None:
    """The user agent is ours, beside the headers asked for."""
    with open_client(timeout_s=1.0, headers={"X-Key": "1"}) as client:
        assert (client.headers["User-Agent"], client.headers["X-Key"]) == ("tonnage", "1")
