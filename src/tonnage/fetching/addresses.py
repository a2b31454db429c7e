"""Where something is fetched from: an address parsed, shown without secrets, and the names found there made safe."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from tonnage.errors import FetchError, InputError, did_you_mean, nearest
from tonnage.values import dataclass

SCHEMES: Final = ("hf", "s3", "gs", "az", "http", "https", "file")
MANIFEST_NAME: Final = ".tonnage-fetch.json"
_ALIASES: Final = {"gcs": "gs", "abfs": "az", "abfss": "az", "s3a": "s3"}
_REPO_KINDS: Final = {"models": "model", "datasets": "dataset", "spaces": "space"}
_SECRET: Final = re.compile(
    r"x-(amz|goog)-|sig$|signature|token|secret|password|api_?key|^key$|auth|credential|expires|policy|key-pair-id"
    r"|^(se|st|sp|sv|sr|spr|skoid|sktid|skt|ske|sks|skv)$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One source or target. `identity` names it in cache and manifest: the same place, without secrets."""

    scheme: str
    container: str  # bucket, repository, host; "" for a local path
    path: str  # inside the container; a local path; a whole URL for http
    identity: str
    repo_kind: str = "model"
    revision: str | None = None

    @property
    def name(self) -> str:
        """The last part of the path, which a single file keeps in a target."""
        path = urlsplit(self.path).path if self.scheme in ("http", "https") else self.path
        return unquote(path.rstrip("/").rpartition("/")[2])


def parse_address(text: str) -> Address:
    """The address in `text`; InputError says what is wrong with it.

    >>> parse_address("hf://datasets/org/name@v1.0/data/train.csv").identity
    'hf://datasets/org/name@v1.0/data/train.csv'
    >>> parse_address("https://me:secret@host/a.bin?X-Amz-Signature=1&part=2").identity
    'https://host/a.bin?part=2'
    """
    if not text.strip() or "\0" in text:
        raise InputError("an empty source or target", hint="docs/fetch.md shows the forms")
    head, mark, rest = text.partition("://")
    if not mark:
        return _local(text)
    scheme = _ALIASES.get(head.lower(), head.lower())
    if scheme not in SCHEMES:
        known = did_you_mean(nearest(head, SCHEMES, count=1), f"known: {', '.join(SCHEMES)}")
        raise InputError(f"'{hide_secrets(text)}': nothing reads {head}://", hint=known)
    if scheme == "file":
        return _local(unquote(rest))
    if scheme == "hf":
        return _hub(text, rest)
    if scheme in ("http", "https"):
        return _web(text)
    container, _, path = rest.partition("/")
    if not container:
        raise InputError(f"'{text}' names no bucket", hint=f"{scheme}://BUCKET/PATH")
    return Address(scheme=scheme, container=container, path=path, identity=f"{scheme}://{container}/{path}")


def _local(text: str) -> Address:
    try:
        path = Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise InputError(f"'{text}': {error}") from error
    return Address(scheme="file", container="", path=str(path), identity=path.as_uri())


def _web(text: str) -> Address:
    parts = urlsplit(text)
    if not parts.hostname:
        raise InputError(f"'{hide_secrets(text)}' names no host", hint="https://HOST/PATH")
    return Address(scheme=parts.scheme.lower(), container=parts.hostname, path=text, identity=hide_secrets(text))


def hide_secrets(text: str) -> str:
    """A URL without user, password and signed or secret parameters."""
    try:
        parts = urlsplit(text)
        host = parts.netloc.rpartition("@")[2]
        kept = [
            (key, value) for key, value in parse_qsl(parts.query, keep_blank_values=True) if not _SECRET.search(key)
        ]
    except ValueError as error:
        raise InputError(f"not a URL: {error}") from error
    return urlunsplit((parts.scheme, host, parts.path, urlencode(kept), ""))


def _hub(text: str, rest: str) -> Address:
    parts = rest.strip("/").split("/")
    kind = "model"
    if parts[0] in _REPO_KINDS:
        kind = _REPO_KINDS[parts.pop(0)]
    if len(parts) < 2 or not all(parts[:2]):
        raise InputError(
            f"'{text}' names no repository", hint="hf://ORG/NAME[@REVISION][/PATH], hf://datasets/ORG/NAME"
        )
    name, _, revision = parts[1].partition("@")
    inside = parts[2:]
    if revision == "refs" and len(inside) >= 2:  # refs/pr/1, refs/convert/parquet
        revision, inside = "/".join(["refs", *inside[:2]]), inside[2:]
    repo, path = f"{parts[0]}/{name}", "/".join(inside)
    prefix = "" if kind == "model" else f"{kind}s/"
    at = f"@{unquote(revision)}" if revision else ""
    identity = f"hf://{prefix}{repo}{at}" + (f"/{path}" if path else "")
    return Address(
        scheme="hf", container=repo, path=path, identity=identity, repo_kind=kind, revision=unquote(revision) or None
    )


def safe_name(name: str, source: str) -> str:
    """A remote file's name, refused when it could lead out of a target or hit our manifest there."""
    parts = name.split("/")
    bad = (
        not name
        or any(part in ("", ".", "..") for part in parts)
        or any(ord(letter) < 32 or letter in "\\\x7f" for letter in name)
        or re.match(r"[A-Za-z]:", name) is not None
        or parts[-1] == MANIFEST_NAME
    )
    if bad:
        raise FetchError(
            f"{source} has a file named {name!r}, which is refused: it could be written outside the target",
            hint="leave it out with --exclude, if the source is to be trusted at all",
        )
    return name


def is_wanted(name: str, include: tuple[str, ...], exclude: tuple[str, ...]) -> bool:
    """Whether patterns take a name; `*` crosses folders, a trailing `/` means all that is in it.

    >>> is_wanted("a/model.safetensors", ("*.safetensors",), ()), is_wanted("onnx/m.bin", (), ("onnx/",))
    (True, False)
    """

    def matches(patterns: tuple[str, ...]) -> bool:
        return any(fnmatchcase(name, f"{one}*" if one.endswith("/") else one) for one in patterns)

    return (not include or matches(include)) and not matches(exclude)
