"""What is deployed: a command of Tonnage that stays, its version, and how one sees that it is well."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from tonnage.errors import InputError
from tonnage.values import dataclass

Verb = Literal["serve", "ui", "gateway", "watch", "backup"]
VERBS: Final[dict[str, int | None]] = {"serve": 8000, "ui": 8765, "gateway": None, "watch": None, "backup": None}
HEALTH: Final[dict[str, str]] = {"serve": "/health", "ui": "/health", "gateway": "/health"}
EXTRAS: Final[dict[str, str]] = {
    "serve": "serve,load", "ui": "ui", "gateway": "gateway", "watch": "serve", "backup": "backup",
}  # fmt: skip
NAME: Final = re.compile(r"[a-z]([a-z0-9-]{0,50}[a-z0-9])?")
VERSION: Final = re.compile(r"(?P<release>\d{1,9}(\.\d{1,9})*)[a-z0-9.+-]{0,40}")
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
FILES: Final = "/etc/tonnage/files"  # in a container


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """A command of Tonnage that is kept running. `port` None: it listens nowhere. `every_s`: it runs so often and ends;
    None: it stays. `secrets`: names of variables that it needs, whose values are in a file of the operator's."""

    name: str
    args: tuple[str, ...]  # of `tonnage`, its verb first
    version: str
    port: int | None
    every_s: float | None = None
    secrets: tuple[str, ...] = ()
    gpus: int = 0
    storage_gib: int = 20
    memory_gib: float = 4.0
    cpus: float = 2.0
    image: str | None = None  # None: the one of the Dockerfile beside
    smoke: str | None = None  # the text of a smoke test's file
    files: tuple[tuple[str, str], ...] = ()  # that it reads: path below `FILES` and text

    @property
    def verb(self) -> str:
        return self.args[0]

    @property
    def health(self) -> str | None:
        """The path that answers 200 while it is well; None: it listens nowhere."""
        return None if self.port is None else HEALTH[self.verb]

    @property
    def extras(self) -> str:
        return EXTRAS[self.verb]

    @property
    def image_name(self) -> str:
        return self.image or f"tonnage-{self.name}:{self.version}"

    def in_container(self) -> tuple[str, ...]:
        """Its arguments where it has to listen on another address than this machine's own.

        InputError where it must be said how it is protected there.
        """
        if self.port is None or self.verb == "gateway":
            return self.args
        if (host := _value_of(self.args, "--host")) is not None:
            if host in LOOPBACK:
                raise InputError(f"in a container it is reached from outside, and --host says {host}",
                                 hint="--host 0.0.0.0, or leave it out")  # fmt: skip
            return self.args
        if self.verb == "ui":
            raise InputError("in a container the page is reached from outside, and listens on 127.0.0.1",
                             hint="add --host 0.0.0.0 with --behind-proxy or --tls-cert and --tls-key")  # fmt: skip
        return (*self.args, "--host", "0.0.0.0")


def described(
    name: str, args: Sequence[str], *, version: str, every_s: float | None = None, port: int | None = None,
    secrets: Sequence[str] = (), gpus: int = 0, image: str | None = None, smoke: str | None = None,
    files: Mapping[str, str] | None = None,
) -> Deployed:  # fmt: skip
    """What the arguments say. InputError for what cannot be kept running."""
    if not NAME.fullmatch(name):
        raise InputError(f"'{name}' cannot be the name of a unit", hint="small letters, digits and -, a letter first")
    if not args or args[0] not in VERBS:
        found = f"'{args[0]}' does not stay" if args else "nothing is to be deployed"
        raise InputError(found, hint=f"tonnage deploy files NAME … -- {' | '.join(VERBS)} ARGUMENTS")
    if (args[0] == "backup") is (every_s is None):
        raise InputError("a backup ends: it needs --every" if every_s is None else "--every is of a backup",
                         hint="tonnage deploy files nightly --every 1d … -- backup FOLDER")  # fmt: skip
    if image is not None and (":" not in image.rpartition("/")[2] or image.endswith(":latest")):
        raise InputError(f"the image '{image}' names no version", hint="NAME:VERSION, or NAME@sha256:…")
    listens = None if args[0] in ("watch", "backup") else port or _port_of(args) or VERBS[args[0]]
    if args[0] == "gateway" and listens is None:
        raise InputError("the port of a gateway is in its file, which is not here", hint="say it too: --port N")
    return Deployed(name=name, args=tuple(args), version=version, port=listens, every_s=every_s,
                    secrets=tuple(secrets), gpus=gpus, image=image, smoke=smoke,
                    files=tuple((files or {}).items()))  # fmt: skip


def require_known_version(version: str, own: str) -> None:
    """InputError for what is no version, and for a later one than `own`: its options are not known here."""
    found, here = VERSION.fullmatch(version), VERSION.fullmatch(own)
    assert here is not None
    if found is None:
        raise InputError(f"'{version[:40]}' is no version", hint=f"this one is {own}")
    if _release(found["release"]) > _release(here["release"]):
        raise InputError(f"version {version} is later than this one, {own}, which would not know its options",
                         hint=f"install tonnage {version} and write the files with it")  # fmt: skip


def _release(text: str) -> tuple[int, ...]:
    parts = [int(one) for one in text.split(".")]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def _port_of(args: Sequence[str]) -> int | None:
    text = _value_of(args, "--port") or ""
    return int(text) if text.isdigit() else None


def _value_of(args: Sequence[str], name: str) -> str | None:
    """Of `NAME VALUE` or `NAME=VALUE`."""
    for at, one in enumerate(args):
        flag, _, value = one.partition("=")
        if flag == name:
            return value or (args[at + 1] if at + 1 < len(args) else "")
    return None


def dockerfile(what: Deployed) -> str:
    """An image of this version alone."""
    return f"""\
FROM python:3.12-slim
RUN useradd --uid 10001 --create-home --home-dir /home/tonnage tonnage
RUN pip install --no-cache-dir 'tonnage[{what.extras}]=={what.version}'
ENV TONNAGE_HOME=/home/tonnage/home PYTHONUNBUFFERED=1
RUN mkdir /home/tonnage/home && chown tonnage: /home/tonnage/home
USER 10001
WORKDIR /home/tonnage
ENTRYPOINT ["tonnage"]
"""
