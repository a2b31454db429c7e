"""The accounts that a gateway file names."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from tonnage.errors import InputError, MissingExtra
from tonnage.gateway.file.described import Gateway
from tonnage.gateway.money.shared_accounts import (
    AccountKey,
    AccountState,
    AttemptRow,
    Granted,
    LeaseAsk,
    LeaseMove,
    SharedAccounts,
)
from tonnage.gateway.money.sql_store import AccountsError
from tonnage.http.urls import without_secrets


def accounts_of(gateway: Gateway) -> SharedAccounts:
    """Not opened yet. Raises MissingExtra, InputError."""
    if gateway.limits_in_redis and gateway.redis is not None:
        return LimitsInRedis(gateway.store, gateway.redis, durable=gateway.durable)
    return SharedAccounts(gateway.store, durable=gateway.durable)


# Leases as in the store: in each account, at every moment, committed + leased <= cap. Redis forgets an account of a
# minute a while after it, with the leases of workers that died. Redis that is away refuses: a limit that is not counted
# is none.
_LOG: Final = logging.getLogger(__name__)
PREFIX: Final = "tonnage:limit:"
WORKERS: Final = "tonnage:limits:workers"
WANTED: Final = "tonnage:limits:wanted"
KEPT_S: Final = 180  # an account of a minute
WAIT_S: Final = 1.0
# A worker that asked for nothing in a minute counts as none. KEYS: accounts, workers, wanted. ARGV: worker, now, kept,
# then cap, need, share (-1: a fair part) of each account. All are granted, or none.
_LEASE: Final = """
redis.call('ZADD', KEYS[#KEYS - 1], ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[#KEYS - 1], '-inf', ARGV[2] - 60)
local workers = redis.call('ZCARD', KEYS[#KEYS - 1])
local rooms, short, granted = {}, false, {}
for i = 1, #KEYS - 2 do
  local found = redis.call('HMGET', KEYS[i], 'committed', 'leased')
  rooms[i] = ARGV[3 * i + 1] - (tonumber(found[1]) or 0) - (tonumber(found[2]) or 0)
  if rooms[i] < tonumber(ARGV[3 * i + 2]) then
    short = true
    redis.call('ZADD', KEYS[#KEYS], ARGV[2], KEYS[i])
  end
end
if short then return {0, workers, unpack(rooms)} end
for i = 1, #KEYS - 2 do
  local share = tonumber(ARGV[3 * i + 3])
  if share < 0 then share = workers <= 1 and rooms[i] or math.floor(rooms[i] / (2 * workers)) end
  granted[i] = math.max(tonumber(ARGV[3 * i + 2]), share)
  redis.call('HINCRBY', KEYS[i], 'leased', string.format('%.0f', granted[i]))
  redis.call('EXPIRE', KEYS[i], ARGV[3])
end
return {1, workers, unpack(granted)}
"""


def in_redis(account: AccountKey) -> bool:
    """Whether an account is of a minute."""
    return "/minute/" in account[0]


class LimitsInRedis(SharedAccounts):
    """The accounts of a gateway whose file says `limits_in: redis`."""

    def __init__(self, url: str, redis_url: str, *, durable: bool = False) -> None:
        """Raises MissingExtra, InputError; nothing is connected yet."""
        super().__init__(url, durable=durable)
        try:
            from redis import Redis
        except ImportError as error:
            raise MissingExtra("limits in Redis", "redis") from error
        try:
            self._redis = Redis.from_url(redis_url, socket_timeout=WAIT_S, socket_connect_timeout=WAIT_S)
        except ValueError as error:
            message = f"redis: {without_secrets(redis_url)} is not a Redis address"
            raise InputError(message, hint="redis://HOST:6379/0, rediss:// or unix://") from error
        self._lease_script = self._redis.register_script(_LEASE)

    def close(self) -> None:
        super().close()
        self._redis.close()

    def lease(self, worker: str, asks: Sequence[LeaseAsk], now_s: float) -> Granted:
        """Both kinds or neither. Raises AccountsError, where Redis is away too."""
        minutes = [one for one in asks if in_redis(one.account)]
        rest = [one for one in asks if not in_redis(one.account)]
        if not minutes:
            return super().lease(worker, rest, now_s)
        found = self._lease_minutes(worker, minutes, now_s)
        if found.short or not rest:
            return found
        try:
            other = super().lease(worker, rest, now_s)
        except BaseException:
            self._moved([LeaseMove(account=key, used=0, returned=amount) for key, amount in found.granted.items()])
            raise
        if other.short:
            self._moved([LeaseMove(account=key, used=0, returned=amount) for key, amount in found.granted.items()])
            return other
        return Granted(granted={**found.granted, **other.granted}, short={}, others=found.others or other.others)

    def apply(
        self, worker: str, moves: Sequence[LeaseMove], rows: Sequence[AttemptRow], *, number: int, journal_bytes: int,
        now_s: float,
    ) -> None:  # fmt: skip
        """The store first: what Redis does not hear of stays leased there until its minute is forgotten."""
        rest = [one for one in moves if not in_redis(one.account)]
        super().apply(worker, rest, rows, number=number, journal_bytes=journal_bytes, now_s=now_s)
        self._moved([one for one in moves if in_redis(one.account)])

    def leave(self, worker: str, moves: Sequence[LeaseMove], rows: Sequence[AttemptRow]) -> None:
        super().leave(worker, [one for one in moves if not in_redis(one.account)], rows)
        self._moved([one for one in moves if in_redis(one.account)])

    def wanted_since(self, moment_s: float) -> frozenset[AccountKey]:
        found = super().wanted_since(moment_s)
        try:
            self._redis.zremrangebyscore(WANTED, "-inf", moment_s - KEPT_S)
            names: Any = self._redis.zrangebyscore(WANTED, moment_s, "+inf")
        except Exception as error:
            _LOG.warning("Redis does not say which limits are wanted: %s", error)
            return found
        return found | {_account(one.decode()) for one in names}

    def states(self) -> list[AccountState]:
        """Raises AccountsError."""
        found = super().states()
        try:
            for name in self._redis.scan_iter(f"{PREFIX}*"):
                committed, leased = self._redis.hmget(name, ["committed", "leased"])
                state = AccountState(account=_account(name.decode()), committed=int(committed or 0),
                                     leased=int(leased or 0))  # fmt: skip
                found.append(state)
        except Exception as error:
            raise _away(error) from error
        return found

    def _lease_minutes(self, worker: str, asks: Sequence[LeaseAsk], now_s: float) -> Granted:
        given: list[Any] = [worker, now_s, KEPT_S]
        for one in asks:
            given += [one.cap, one.need, -1 if one.share is None else one.share]
        try:
            good, workers, *amounts = self._lease_script(
                [*(_name(one.account) for one in asks), WORKERS, WANTED], given
            )
        except Exception as error:  # of a client library: whatever it is, use is not counted now
            raise _away(error) from error
        pairs = list(zip(asks, amounts, strict=True))
        if good:
            return Granted(granted={one.account: int(amount) for one, amount in pairs}, short={}, others=workers > 1)
        short = {one.account: max(int(room), 0) for one, room in pairs if room < one.need}
        return Granted(granted={}, short=short, others=workers > 1)

    def _moved(self, moves: Sequence[LeaseMove]) -> None:
        if not moves:
            return
        try:
            with self._redis.pipeline(transaction=True) as asked:
                for one in moves:
                    name = _name(one.account)
                    asked.hincrby(name, "committed", one.used)
                    asked.hincrby(name, "leased", -(one.used + one.returned))
                    asked.expire(name, KEPT_S)
                asked.execute()
        except Exception as error:  # said; the minute counts it as leased, so its limit is no higher for it
            _LOG.warning("Redis did not get the use of %d limits: %s", len(moves), error)


def _name(account: AccountKey) -> str:
    return f"{PREFIX}{account[1]}:{account[0]}"


def _account(name: str) -> AccountKey:
    begin, _, allowance = name.removeprefix(PREFIX).partition(":")
    return allowance, int(begin)


def _away(error: Exception) -> AccountsError:
    return AccountsError(f"Redis does not count limits now: {error or type(error).__name__}",
                         hint="is it there? `redis:` in the gateway file")  # fmt: skip
