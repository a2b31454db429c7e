"""A server of `tonnage ui`, asked from Python: the answers are the documents of `-o json`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self
from uuid import uuid4

import httpx

from tonnage.errors import InputError, NothingFits, PlanRefused, SourceError, TonnageError, UnknownName

SERVER: Final = "TONNAGE_SERVER"
KEY: Final = "TONNAGE_KEY"
TIMEOUT_S: Final = 60.0
_KINDS: Final[Mapping[int, type[TonnageError]]] = {
    400: InputError, 404: UnknownName, 409: PlanRefused, 422: NothingFits,
}  # fmt: skip


class Client:
    """`Client(url, key)`; by default what TONNAGE_SERVER and TONNAGE_KEY say.

    Errors are those that the verbs raise here, with their hints; SourceError where the server does not answer.
    """

    def __init__(self, url: str | None = None, key: str | None = None, *, http: httpx.Client | None = None) -> None:
        url = url or os.environ.get(SERVER)
        if not url:
            raise InputError("no server is named", hint=f"Client('https://...'), or {SERVER}")
        key = key or os.environ.get(KEY)
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        self._http = http or httpx.Client(timeout=TIMEOUT_S)
        self._url, self._headers = url.rstrip("/") + "/api/v1", headers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def plan(self, workload: Mapping[str, Any] | str | Path, *, rank: str = "cost", top: int = 10,
             **constraints: Any) -> dict[str, Any]:  # fmt: skip
        """Every way to buy the work (`tonnage/plan@1`). `workload`: a mapping, the text of a file, or its path."""
        return self._post("plan", {**_body(workload, constraints), "rank": rank, "top": top})

    def size(self, workload: Mapping[str, Any] | str | Path, *, gpus: str | None = None) -> dict[str, Any]:
        """What the work needs and where it fits (`tonnage/size@1`)."""
        return self._post("size", _body(workload, {}) | ({} if gpus is None else {"gpus": gpus}))

    def explain(self, workload: Mapping[str, Any] | str | Path, option: str | None = None, **constraints: Any
                ) -> dict[str, Any]:  # fmt: skip
        """Why the winner won, or what became of `option`."""
        return self._post("explain", _body(workload, constraints) | ({} if option is None else {"option": option}))

    def gains(self, workload: Mapping[str, Any] | str | Path, **constraints: Any) -> dict[str, Any]:
        """What promised gains come to (`tonnage/gains@1`)."""
        return self._post("gains", _body(workload, constraints))

    def home(self) -> dict[str, Any]:
        """What runs, and which alerts stand."""
        return self._get("home")

    def runs(self, *, limit: int | None = None, offset: int = 0) -> dict[str, Any]:
        """Runs and services."""
        return self._get("runs", {} if limit is None else {"limit": str(limit), "offset": str(offset)})

    def show(self, run: str) -> dict[str, Any]:
        """One run: predicted and measured."""
        return self._get(f"runs/{run}")

    def logs(self, run: str, *, lines: int = 200) -> list[str]:
        """The last lines that a run printed."""
        found: list[str] = self._get(f"runs/{run}/logs", {"lines": str(lines)})["lines"]
        return found

    def stop(self, run: str, *, at_once: bool = False) -> dict[str, Any]:
        """Ask a run to save and end, or to end at once. A lost answer can be asked for again: it is done once."""
        return self._post(f"runs/{run}/{'cancel' if at_once else 'stop'}", {}, once=True)

    def catalog(self, what: str = "gpus", **filters: str) -> dict[str, Any]:
        """`gpus`, `instances` or `offers`, filtered by `gpu` and `provider`."""
        return self._get(f"catalog/{what}", filters)

    def _get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        return self._asked("GET", path, params=dict(query or {}))

    def _post(self, path: str, body: Mapping[str, Any], *, once: bool = False) -> dict[str, Any]:
        headers = {"idempotency-key": uuid4().hex} if once else {}
        return self._asked("POST", path, json=dict(body), headers=headers)

    def _asked(self, method: str, path: str, headers: Mapping[str, str] | None = None, **more: Any) -> dict[str, Any]:
        try:
            answer = self._http.request(
                method, f"{self._url}/{path}", headers={**self._headers, **(headers or {})}, **more
            )
        except httpx.HTTPError as error:
            raise SourceError(f"{self._url} does not answer: {error}", hint="`tonnage ui` starts a server") from error
        if answer.is_success:
            found: dict[str, Any] = answer.json()
            return found
        raise _error(answer)


def _error(answer: httpx.Response) -> TonnageError:
    try:
        said = answer.json()
    except ValueError:
        said = {}
    kind = _KINDS.get(answer.status_code, TonnageError)
    return kind(said.get("detail") or f"the server answers {answer.status_code}", hint=said.get("hint") or "")


def _body(workload: Mapping[str, Any] | str | Path, constraints: Mapping[str, Any]) -> dict[str, Any]:
    given: Mapping[str, Any] | str
    named: dict[str, str] = {}
    if isinstance(workload, Mapping) or (isinstance(workload, str) and "\n" in workload):
        given = workload
    else:
        named = {"name": Path(workload).name.removesuffix(".tonnage.yaml")}
        try:
            given = Path(workload).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{workload} cannot be read: {error}") from error
    return {"workload": given, **named} | ({"constraints": dict(constraints)} if constraints else {})
