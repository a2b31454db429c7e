"""Text from a file or a URL, with limits on time and size and a few more attempts. Imports httpx on use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from tonnage.errors import SourceError
from tonnage.http.client import check_temporary, open_client, translated
from tonnage.http.retries import FIRST_WAIT_S, RetryPolicy, TemporaryError
from tonnage.http.urls import is_url, without_secrets
from tonnage.values import dataclass

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """How long and how much. Seconds, bytes, attempts; the wait doubles after each failed attempt."""

    timeout_s: float = 30.0
    max_bytes: int = 64 * 2**20
    attempts: int = 3
    wait_s: float = FIRST_WAIT_S
    longest_wait_s: float = 60.0  # a server that asks for a longer one (Retry-After) is given up


class Watch:
    """Until when a fetch may go on: a time limit (seconds from now, None: no limit) and a flag that stops it."""

    def __init__(self, *, limit_s: float | None = None, stop: Event | None = None) -> None:
        self._end = None if limit_s is None else monotonic() + limit_s
        self._stop = stop or Event()

    def check(self) -> None:
        """Raise SourceError when time is up or the fetch was asked to stop."""
        if self._stop.is_set():
            raise SourceError("stopped before it answered")
        if self._end is not None and monotonic() > self._end:
            raise SourceError("the time limit was reached", hint="allow more with --timeout")

    def wait(self, seconds: float) -> None:
        """Sleep, though not past the limit; raises as `check` does."""
        left = seconds if self._end is None else min(seconds, max(0.0, self._end - monotonic()))
        self._stop.wait(left)
        self.check()

    def timeout_s(self, longest: float) -> float:
        """`longest`, or what is left."""
        return longest if self._end is None else max(0.05, min(longest, self._end - monotonic()))


def fetch_text(location: str, limits: FetchLimits | None = None, watch: Watch | None = None) -> str:
    """The UTF-8 text at a path or http(s) URL; raises SourceError when it cannot be had whole.

    Retries what may pass (server errors, 429, broken connections); an HTML page instead of data is an error.
    """
    limits = limits or FetchLimits()
    data = _download(location, limits, watch) if is_url(location) else _read_file(Path(location), limits)
    return decode_text(data, location)


def decode_text(data: bytes, location: str) -> str:
    """UTF-8 text that is no web page; raises SourceError."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"{without_secrets(location)} is not UTF-8 text ({error})") from error
    if text.lstrip()[:1] == "<":
        raise SourceError(
            f"{without_secrets(location)} answered a web page instead of data",
            hint="is it the address of the raw file?",
        )
    return text


def _read_file(path: Path, limits: FetchLimits) -> bytes:
    try:
        if path.stat().st_size > limits.max_bytes:
            raise SourceError(f"{path} is larger than {limits.max_bytes} bytes")
        return path.read_bytes()
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error


def _download(url: str, limits: FetchLimits, watch: Watch | None) -> bytes:
    def once(client: httpx.Client) -> bytes:
        with client.stream("GET", url) as response:
            check_status(response, url)
            return read_body(response, url, limits, watch)

    return with_attempts(url, limits, once, watch=watch)


def with_attempts(
    url: str,
    limits: FetchLimits,
    once: Callable[[httpx.Client], T],
    *,
    watch: Watch | None = None,
    headers: Mapping[str, str] | None = None,
    follow_redirects: bool | None = None,
    hint: str | None = None,
) -> T:
    """What `once` returns, tried again after faults that may pass. Raises SourceError, with `hint` where it is given.

    Headers may carry a secret, so a redirect is not followed with them unless `follow_redirects` says so.
    """
    watch = watch or Watch()
    where = without_secrets(url.partition("?")[0])

    def ask() -> T:
        watch.check()
        with (
            translated(lambda said: SourceError(f"{where}: {said}", hint=hint)),
            open_client(
                timeout_s=watch.timeout_s(limits.timeout_s),
                headers=headers,
                follow_redirects=not headers if follow_redirects is None else follow_redirects,
            ) as client,
        ):
            return once(client)

    def give_up(what: str, failures: int, error: TemporaryError) -> SourceError:
        asked_s = error.retry_after_s or 0.0
        if asked_s > limits.longest_wait_s:
            said = f"{what} asks to wait {asked_s:.0f} s ({error})"
        else:
            said = f"{what} failed {failures} times, last with {error}"
        return SourceError(said, hint=hint or "try again later")

    return RetryPolicy(
        attempts=limits.attempts, wait=watch.wait, give_up=give_up, first_wait_s=limits.wait_s,
        longest_retry_after_s=limits.longest_wait_s,
    ).insist(ask, where)  # fmt: skip


def check_status(response: httpx.Response, url: str) -> None:
    """Raise TemporaryError on a status that may pass, SourceError on anything else but 200."""
    status, where = response.status_code, without_secrets(url)
    check_temporary(response, f"status {status}")
    if status in (401, 403):
        raise SourceError(f"{where} refused access (status {status})", hint="check the key or token")
    if status != 200:
        raise SourceError(f"{where} answered status {status}")


def read_body(response: httpx.Response, url: str, limits: FetchLimits, watch: Watch | None) -> bytes:
    """The whole body, within the limits on size and time."""
    parts: list[bytes] = []
    size = 0
    for part in response.iter_bytes():
        if watch is not None:
            watch.check()
        size += len(part)
        if size > limits.max_bytes:
            raise SourceError(f"{without_secrets(url)} is larger than {limits.max_bytes} bytes")
        parts.append(part)
    return b"".join(parts)
