"""The accounts that a gateway file names."""

from __future__ import annotations

from tonnage.gateway.file.described import Gateway
from tonnage.gateway.money.shared_accounts import SharedAccounts


def accounts_of(gateway: Gateway) -> SharedAccounts:
    """Not opened yet. Raises MissingExtra, InputError."""
    if gateway.limits_in_redis and gateway.redis is not None:
        from tonnage.gateway.money.redis_limits import LimitsInRedis

        return LimitsInRedis(gateway.store, gateway.redis, durable=gateway.durable)
    return SharedAccounts(gateway.store, durable=gateway.durable)
