"""httpx, imported on use: clients as ours are, and its errors as ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from tonnage.errors import TonnageError
from tonnage.http.retries import TemporaryError, is_temporary, retry_after_s
from tonnage.http.urls import without_secrets

if TYPE_CHECKING:
    import ssl

    import httpx

USER_AGENT: Final = "tonnage"


@lru_cache(maxsize=1)
def tls_context() -> ssl.SSLContext:
    """One for all clients: to read the certificates of all authorities takes 20 to 50 ms each time."""
    import httpx

    return httpx.create_ssl_context()


def open_client(
    *,
    timeout_s: float,
    headers: Mapping[str, str] | None = None,
    follow_redirects: bool = True,
    connections: int | None = None,
) -> httpx.Client:
    """A client. `timeout_s`: to connect, and between two pieces of an answer; `connections`: the most at once."""
    import httpx

    return httpx.Client(
        verify=tls_context(),
        follow_redirects=follow_redirects,
        timeout=httpx.Timeout(timeout_s, pool=None),
        limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        headers={"User-Agent": USER_AGENT, **(headers or {})},
    )


@contextmanager
def translated(fault: Callable[[str], TonnageError]) -> Iterator[None]:
    """httpx's errors as ours: TemporaryError where another attempt may do, else what `fault` makes of the words."""
    import httpx

    try:
        yield
    except (httpx.UnsupportedProtocol, httpx.ProxyError) as error:
        raise fault(without_secrets(str(error))) from error
    except httpx.TransportError as error:
        words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise TemporaryError(without_secrets(words)) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise fault(without_secrets(str(error))) from error


def check_temporary(response: httpx.Response, said: str) -> None:
    """Raise TemporaryError, in the words `said` and with the wait that is asked for, on a status that may pass."""
    if is_temporary(response.status_code):
        raise TemporaryError(said, retry_after_s=retry_after_s(response.headers.get("Retry-After")))
