"""Probes and hooks of a container."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tonnage.places.kubernetes.checking.formats import PORT_NAME, PORT_NAME_LENGTH
from tonnage.places.kubernetes.checking.refusals import (
    Found,
    at_least,
    between,
    forbidden,
    invalid,
    many,
    one_of,
    part,
    required,
)

HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
PORT_LIMIT: Final = 65535


def handler(given: Mapping[str, Any], path: str) -> Found:
    chosen = [one for one in HANDLERS if given.get(one) is not None]
    if not chosen:
        yield required(path, "must specify a handler type")
    for extra in chosen[1:]:
        yield forbidden(f"{path}.{extra}", "may not specify more than 1 handler type")
    if "exec" in chosen and not many(given["exec"], "command"):
        yield required(f"{path}.exec.command")
    for kind in ("httpGet", "tcpSocket"):
        if kind in chosen:
            yield from _port_of(given[kind].get("port"), f"{path}.{kind}.port")
    if "httpGet" in chosen:
        yield from one_of(f"{path}.httpGet.scheme", given["httpGet"].get("scheme"), ("HTTP", "HTTPS"))


def _port_of(given: int | str | None, field: str) -> Found:
    if isinstance(given, str):
        yield from port_name(field, given)
    else:
        yield from between(field, given or 0, 1, PORT_LIMIT)


def sleep(given: Mapping[str, Any], path: str, grace_s: int) -> Found:
    seconds = part(given, "sleep").get("seconds")
    if seconds is not None and not 0 <= seconds <= grace_s:
        yield invalid(f"{path}.sleep", f"must be non-negative and less than terminationGracePeriodSeconds ({grace_s})")


def probe(given: Mapping[str, Any], name: str, path: str) -> Found:
    chosen, at = given.get(name), f"{path}.{name}"
    if chosen is None:
        return
    yield from handler(chosen, at)
    for key in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        yield from at_least(f"{at}.{key}", chosen.get(key))
    if name != "readinessProbe" and (chosen.get("successThreshold") or 1) != 1:
        yield invalid(f"{at}.successThreshold", "must be 1")
    if chosen.get("terminationGracePeriodSeconds") is not None:
        if name == "readinessProbe":
            yield invalid(f"{at}.terminationGracePeriodSeconds", "must not be set for readinessProbes")
        elif chosen["terminationGracePeriodSeconds"] <= 0:
            yield invalid(f"{at}.terminationGracePeriodSeconds", "must be greater than 0")


def port_name(field: str, name: str) -> Found:
    """A name of a port as IANA registers them."""
    if len(name) > PORT_NAME_LENGTH:
        yield invalid(field, f"must be no more than {PORT_NAME_LENGTH} characters")
    elif not PORT_NAME.fullmatch(name) or "--" in name or not re.search("[a-z]", name):
        yield invalid(field, f"'{name}' is no name of a port: lower-case letters, digits and single '-', one letter")
