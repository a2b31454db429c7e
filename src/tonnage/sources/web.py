"""What every price API needs of the web: JSON or lines, attempts, a time limit, a cache with ETags, pages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast
from urllib.parse import urlencode, urlsplit, urlunsplit

from tonnage.errors import SourceError
from tonnage.http.retries import TemporaryError
from tonnage.http.urls import without_secrets
from tonnage.sources.answer_cache import KeptResponse, ResponseCache, is_fresh
from tonnage.sources.fetching import (
    FetchLimits,
    Watch,
    check_status,
    decode_text,
    read_body,
    with_attempts,
)
from tonnage.values import dataclass

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
MOST_PAGES: Final = 2_000
LARGEST_BULK_BYTES: Final = 8 * 2**30  # an AWS price list; it is never held in memory
LINES_OF: Final = "what was made of the lines of "  # a key of the cache
LONGEST_LINE_BYTES: Final = 2**20


class LineReader(Protocol[T_co]):
    """Takes the lines of a large file one by one, keeps what it needs."""

    def take(self, line: bytes) -> None:
        """One line without its end; raises SourceError on a file of another kind."""

    def finish(self, tail: bytes) -> T_co:
        """After the last line; `tail` is the text behind the last line end. Raises TemporaryError on a cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """A source's reader of the web. `max_age_s`: younger answers are not asked again (0: every one is)."""

    limits: FetchLimits = field(default_factory=FetchLimits)
    watch: Watch = field(default_factory=Watch)
    cache: ResponseCache | None = None
    max_age_s: float = 0.0
    say: Callable[[str], None] = field(default=lambda _text: None)
    days: list[date] = field(default_factory=list)  # on which the answers were read

    def read_on(self, today: date) -> date:
        """The day the oldest answer used so far was read, at the latest `today`."""
        return min([today, *self.days])

    def json(
        self, url: str, params: Mapping[str, str] | None = None, *, headers: Mapping[str, str] | None = None
    ) -> Any:
        """The JSON at an address; raises SourceError when it does not answer, or not with JSON."""
        address = f"{url}?{urlencode(params)}" if params else url
        self.say(urlsplit(url).netloc)
        return with_attempts(
            address, self.limits, lambda client: self._json_once(client, address), watch=self.watch, headers=headers
        )

    def collect(self, url: str, make: Callable[[], LineReader[T]]) -> T:
        """What a fresh reader makes of the lines of a large file; a broken transfer starts over with another one.

        What the reader makes must be JSON: it is kept, not the file, and used again while the file's ETag is the same.
        """
        key = f"{LINES_OF}{url}"

        def once(client: httpx.Client) -> T:
            now, kept, reader = datetime.now(UTC), self._kept(key), make()
            with client.stream("GET", url, headers=_condition(kept)) as response:
                if kept is not None and response.status_code == 304:
                    return cast(T, _parse(kept.text))
                check_status(response, url)
                tail = self._feed(response, reader, url)
                etag = response.headers.get("ETag", "")
            found = reader.finish(tail)
            if self.cache is not None and etag:
                self.cache.keep(key, json.dumps(found), etag=etag, read_at=now)
            return found

        return with_attempts(url, self.limits, once, watch=self.watch)

    def _kept(self, key: str) -> KeptResponse | None:
        return self.cache.load(key) if self.cache else None

    def _json_once(self, client: httpx.Client, url: str) -> Any:
        now = datetime.now(UTC)
        kept = self._kept(url)
        if kept is not None and is_fresh(kept, max_age_s=self.max_age_s, now=now):
            self.days.append(kept.read_at.date())
            return _parse(kept.text)
        with client.stream("GET", url, headers=_condition(kept)) as response:
            if kept is not None and response.status_code == 304:
                text, etag = kept.text, kept.etag
            else:
                check_status(response, url)
                text = decode_text(read_body(response, url, self.limits, self.watch), url)
                etag = response.headers.get("ETag", "")
        value = _parse(text)
        if self.cache is not None and (etag or self.max_age_s > 0):
            self.cache.keep(url, text, etag=etag, read_at=now)
        self.days.append(now.date())
        return value

    def _feed(self, response: httpx.Response, reader: LineReader[Any], url: str) -> bytes:
        size, rest = 0, b""
        for part in response.iter_bytes(2**18):
            self.watch.check()
            size += len(part)
            if size > LARGEST_BULK_BYTES:
                raise SourceError(f"{without_secrets(url)} is larger than {LARGEST_BULK_BYTES} bytes")
            *lines, rest = (rest + part).split(b"\n")
            if len(rest) > LONGEST_LINE_BYTES:
                raise SourceError(f"{without_secrets(url)} is not a file of lines")
            for line in lines:
                reader.take(line)
            self.say(f"{urlsplit(url).path.rpartition('/')[0].rpartition('/')[2]} {size / 2**20:,.0f} MiB")
        return rest


def _condition(kept: KeptResponse | None) -> dict[str, str]:
    """The header that asks for an answer only if it is another than the one kept."""
    return {"If-None-Match": kept.etag} if kept is not None and kept.etag else {}


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise TemporaryError(f"not JSON: {error}") from error  # a cut answer comes whole the next time


def follow_pages(
    first: T, ask: Callable[[T], tuple[Any, T | None]], *, what: str, most: int | None = None
) -> Iterator[Any]:
    """The items of page after page: `ask(page)` gives the items and the next page, None after the last.

    Raises SourceError when the pages come round again, or there are more than `most` (`MOST_PAGES` by default).
    """
    most = MOST_PAGES if most is None else most
    seen: set[T] = set()
    contents: set[int] = set()
    page: T | None = first
    while page is not None:
        if page in seen or len(seen) >= most:
            raise SourceError(f"{what}: the pages never end (after {len(seen)} of them)", hint="try again later")
        seen.add(page)
        items, page = ask(page)
        content = hash(json.dumps(items, sort_keys=True, default=str))
        if items and content in contents:
            raise SourceError(f"{what}: the pages never end (page {len(seen)} repeats an earlier one)")
        contents.add(content)
        yield items


def same_place(base_url: str, link: str) -> str:
    """`link`'s query at `base_url`'s address: a next page is requested from the configured server.

    >>> same_place("http://mirror:8080/api/retail/prices", "https://prices.azure.com:443/api/retail/prices?$skip=100")
    'http://mirror:8080/api/retail/prices?$skip=100'
    """
    base = urlsplit(base_url)
    return urlunsplit((base.scheme, base.netloc, base.path, urlsplit(link).query, ""))
