"""Who asks, and whether they may: keys, sessions of browsers, origins, and how often."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import field
from datetime import datetime, timedelta
from http import HTTPStatus
from threading import Lock
from time import monotonic
from typing import Final, Literal

from tonnage.errors import TonnageError
from tonnage.values import dataclass
from tonnage.web.keys import ApiKey, KeyFile, Role, allows, now_utc

Scope = Literal["none", "project", "all"]  # what is shown: nothing of projects, the asker's, everything
COOKIE: Final = "tonnage_session"
SESSION: Final = timedelta(hours=12)
MOST_SESSIONS: Final = 10_000
PER_S: Final = 50.0  # requests of one identity, on the average
BURST: Final = 200.0
MAKES_KEYS: Final = "an admin makes keys: `tonnage ui key`"
MOST_IDENTITIES: Final = 10_000
LOCAL_NAMES: Final = frozenset({"127.0.0.1", "localhost", "::1", "[::1]"})


class Denied(TonnageError):
    """The request is not let in: its status, and what to do."""

    def __init__(self, status: HTTPStatus, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class WebCaller:
    """Who asks. `by_cookie`: a browser sent it without being asked to, so changes need the page's own origin.
    `projects` None: all of them."""

    name: str
    role: Role
    by_cookie: bool
    projects: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """What of a request decides whether it is let in."""

    method: str
    host: str  # as the client named the server, without a port
    authority: str  # the same with it
    origin: str | None  # scheme and host that the page came from
    address: str  # of the client
    key: str | None
    session: str | None


class _Bucket:
    __slots__ = ("at_s", "left")

    def __init__(self, now_s: float) -> None:
        self.at_s, self.left = now_s, BURST

    def take(self, now_s: float) -> bool:
        self.left = min(BURST, self.left + (now_s - self.at_s) * PER_S)
        self.at_s = now_s
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserSession:
    """A browser that has shown a key, or whose `person` an issuer has named."""

    key_hash: str | None
    until: datetime
    person: WebCaller | None = None


@dataclass(slots=True, kw_only=True)
class Access:
    """`open_here`: whoever reaches the server is its user (loopback alone). `hosts`: names of the server."""

    keys: KeyFile
    open_here: bool
    hosts: frozenset[str]
    _sessions: OrderedDict[str, BrowserSession] = field(default_factory=OrderedDict)
    _buckets: OrderedDict[str, _Bucket] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def admit(self, asked: RequestFacts, needed: Role, scope: Scope = "all") -> WebCaller:
        """Who asks. Raises Denied: 400 for a foreign host, 401, 403, 429."""
        self.check_host(asked.host)
        found = self._identity(asked)
        if not self._takes(found.name if found is not None else asked.address):
            raise Denied(HTTPStatus.TOO_MANY_REQUESTS, f"more than {PER_S:g} requests a second", hint="ask more slowly")
        if found is None:
            raise Denied(HTTPStatus.UNAUTHORIZED, "no key that holds", hint="`Authorization: Bearer KEY`, or /login")
        if not allows(found.role, needed):
            raise Denied(HTTPStatus.FORBIDDEN, f"{found.name} is {found.role}; this takes {needed}", hint=MAKES_KEYS)
        if scope == "all" and found.projects is not None:
            own = ", ".join(sorted(found.projects)) or "no project"
            raise Denied(
                HTTPStatus.FORBIDDEN, f"{found.name} may see {own} alone; this is of every project", hint=MAKES_KEYS
            )
        if asked.method not in ("GET", "HEAD") and found.by_cookie and not self._own_page(asked):
            raise Denied(HTTPStatus.FORBIDDEN, "the request does not come from this server's own page")
        return found

    def check_host(self, host: str) -> None:
        """Denied where the client names a server that this is not: its page may be one of elsewhere."""
        if host not in self.hosts:
            raise Denied(HTTPStatus.BAD_REQUEST, f"this server is not called '{host[:80]}'", hint="--host-name NAME")

    def begin_session(self, secret: str) -> tuple[ApiKey, str] | None:
        """The key of a secret, and a token for the browser that showed it; None where the key does not hold."""
        key = self.keys.owner(secret, now_utc())
        if key is None or key.holder == "service":
            return None
        return key, self._begun(BrowserSession(key_hash=key.hash, until=now_utc() + SESSION))

    def begin_session_of(self, person: WebCaller) -> str:
        """A token for the browser of somebody whom an issuer has signed in."""
        return self._begun(BrowserSession(key_hash=None, until=now_utc() + SESSION, person=person))

    def _begun(self, session: BrowserSession) -> str:
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._sessions[token] = session
            while len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
        return token

    def end_session(self, token: str | None) -> None:
        with self._lock:
            self._sessions.pop(token or "", None)

    def _identity(self, asked: RequestFacts) -> WebCaller | None:
        if self.open_here:
            return WebCaller(name="local", role="admin", by_cookie=True)
        now, by_cookie, key = now_utc(), False, None
        if asked.key is not None:
            key = self.keys.owner(asked.key, now)
        elif asked.session is not None:
            by_cookie = True
            with self._lock:
                session = self._sessions.get(asked.session)
            if session is not None and now < session.until:
                if session.person is not None:
                    return session.person
                key = next((one for one in self.keys.every() if one.hash == session.key_hash and one.holds(now)), None)
        if key is None:
            return None
        self.keys.used(key, now)
        projects = None if key.projects is None else frozenset(key.projects)
        return WebCaller(name=key.name, role=key.role, by_cookie=by_cookie, projects=projects)

    def _own_page(self, asked: RequestFacts) -> bool:
        """Without an origin it is no browser's form: programs send none, browsers do with every change."""
        if asked.origin is None:
            return self.open_here
        return asked.origin.rpartition("//")[2] == asked.authority

    def _takes(self, who: str) -> bool:
        now_s = monotonic()
        with self._lock:
            bucket = self._buckets.get(who)
            if bucket is None:
                bucket = self._buckets[who] = _Bucket(now_s)
                while len(self._buckets) > MOST_IDENTITIES:
                    self._buckets.popitem(last=False)
            self._buckets.move_to_end(who)
            return bucket.take(now_s)


def host_of(text: str) -> str:
    """The host of a Host header, without the port.

    >>> host_of("localhost:8080"), host_of("[::1]:80"), host_of("::1")
    ('localhost', '[::1]', '::1')
    """
    name, _, port = text.rpartition(":")
    return (name if port.isdigit() and name and (name.endswith("]") or ":" not in name) else text).lower()
