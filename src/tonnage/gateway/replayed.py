"""Logs of requests that can be replayed: the gateway's request log, its ledger, or a table of one's own."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from tonnage.errors import DataError
from tonnage.gateway.observing.request_log import log_files
from tonnage.gateway.routing.classes import UNCLASSIFIED, RequestClasses
from tonnage.values import dataclass

COLUMNS: Final = ("at_s", "key", "route", "input_tokens", "output_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRequest:
    """`at_s`: seconds, from any beginning; `key`: a caller's name."""

    at_s: float
    key: str
    route: str
    input_tokens: int
    output_tokens: int
    classes: RequestClasses = UNCLASSIFIED  # what the gateway found of its text, where the log has it


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestsLogged:
    """`requests` in the order of their time; `left_out`: those without a count of tokens, as refused ones; `share`: of
    the requests that came, as many as the log has kept; `attempts`: as the ledger has them, where the log tells."""

    requests: tuple[LoggedRequest, ...]
    left_out: int = 0
    share: float = 1.0
    attempts: tuple[Mapping[str, Any], ...] = ()


def requests_of_ledger(attempts: Sequence[Mapping[str, Any]]) -> RequestsLogged:
    """The requests of a ledger, each once: as its last attempt that has a usage."""
    last: dict[str, LoggedRequest] = {}
    for one in attempts:
        if one["input_tokens"] is not None:
            last[one["request"]] = LoggedRequest(
                at_s=one["at"], key=one["key"], route=one["route"], input_tokens=one["input_tokens"],
                output_tokens=one["output_tokens"] or 0,
            )  # fmt: skip
    left_out = len({one["request"] for one in attempts} - set(last))
    return RequestsLogged(requests=_in_order(last.values()), left_out=left_out, attempts=tuple(attempts))


def read_log(path: Path) -> RequestsLogged:
    """The requests of a CSV file with `COLUMNS`, of JSON lines with these keys, or of all files of the folder of a
    request log. DataError names file and line."""
    paths = log_files(path) if path.is_dir() else [path]
    if not paths:
        raise DataError(f"{path} has no file of a request log", hint="the folder that `request_log:` names")
    rows = [(place, row) for one in paths for place, row in _rows(one)]
    found, left_out, kept, came = [], 0, 0, 0.0
    attempts: list[Mapping[str, Any]] = []
    for place, row in rows:
        kept, came = kept + 1, came + 1.0 / _share(row, place)
        if row.get("route") is None or row.get("input_tokens") is None:
            if "request" not in row:
                missing = next(name for name in ("route", "input_tokens") if row.get(name) is None)
                raise DataError(f"{place}: has no {missing}", hint=f"columns: {', '.join(COLUMNS)}")
            left_out += 1
            continue
        found.append(_request(row, place))
        attempts += [one for one in row.get("attempts") or () if isinstance(one, Mapping)]
    return RequestsLogged(
        requests=_in_order(found), left_out=left_out, share=kept / came if came else 1.0, attempts=tuple(attempts)
    )


def _request(row: Mapping[str, Any], place: str) -> LoggedRequest:
    try:
        made = LoggedRequest(
            at_s=float(row["at_s"]), key=str(row.get("key") or "none"), route=str(row["route"]),
            input_tokens=int(row["input_tokens"]), output_tokens=int(row["output_tokens"]), classes=_classes(row),
        )  # fmt: skip
    except KeyError as error:
        raise DataError(f"{place}: there is no {error.args[0]}", hint=f"columns: {', '.join(COLUMNS)}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{place}: {error}", hint=f"columns: {', '.join(COLUMNS)}") from error
    if made.input_tokens < 0 or made.output_tokens < 0:
        raise DataError(f"{place}: negative tokens", hint="counts are 0 or more")
    return made


def _classes(row: Mapping[str, Any]) -> RequestClasses:
    """As a request log has them; a table says labels as `CLASSIFIER=LABEL` and words with `;` between."""
    labels, words = row.get("labels") or {}, row.get("words") or ()
    if isinstance(labels, str):
        pairs = [one.strip().partition("=") for one in labels.split(";") if one.strip()]
        labels = {name: [label for one, _, label in pairs if one == name] for name, _, _ in pairs}
    if isinstance(words, str):
        words = [one.strip() for one in words.split(";") if one.strip()]
    said = {str(name): frozenset(map(str, found)) for name, found in labels.items()}
    return RequestClasses(row.get("language") or None, frozenset(map(str, words)), said)


def _share(row: Mapping[str, Any], place: str) -> float:
    """The share of such requests that the log keeps."""
    share = row.get("sample", 1.0)
    if not isinstance(share, (int, float)) or not 0.0 < share <= 1.0:
        raise DataError(f"{place}: sample is {share!r}", hint="a share above 0, at most 1")
    return float(share)


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each row, and its place in words."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}", hint="a CSV file, JSON lines or their folder") from error
    if path.suffix == ".csv":
        for number, row in enumerate(csv.DictReader(text.splitlines()), start=2):
            yield f"{path}:{number}", row
        return
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            if number == len(lines) and path in log_files(path.parent):
                return  # the end of a worker that was killed while it wrote
            raise DataError(f"{path}:{number} is not JSON: {error}", hint="name a CSV file .csv") from error
        if not isinstance(found, dict):
            raise DataError(f"{path}:{number} is not an object", hint=f"keys: {', '.join(COLUMNS)}")
        yield f"{path}:{number}", found


def _in_order(found: Iterable[LoggedRequest]) -> tuple[LoggedRequest, ...]:
    return tuple(sorted(found, key=lambda one: one.at_s))
