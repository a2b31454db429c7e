"""A server of `tonnage ui`, asked from Python: the answers are the documents of `-o json`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote
from uuid import uuid4

import httpx

from tonnage.errors import InputError, NothingFits, PlanRefused, SourceError, TonnageError, UnknownName
from tonnage.login import read_login

SERVER: Final = "TONNAGE_SERVER"
KEY: Final = "TONNAGE_KEY"
TIMEOUT_S: Final = 60.0
_KINDS: Final[Mapping[int, type[TonnageError]]] = {
    400: InputError, 404: UnknownName, 409: PlanRefused, 422: NothingFits,
}  # fmt: skip


class Client:
    """`Client(url, key)`; by default what TONNAGE_SERVER and TONNAGE_KEY say, else what `tonnage login` kept.

    Errors are those that the verbs raise here, with their hints; SourceError where the server does not answer.
    """

    def __init__(self, url: str | None = None, key: str | None = None, *, http: httpx.Client | None = None) -> None:
        kept = read_login()
        url = url or os.environ.get(SERVER) or (None if kept is None else kept.server)
        if not url:
            raise InputError("no server is named", hint=f"`tonnage login URL`, Client('https://...'), or {SERVER}")
        key = key or os.environ.get(KEY)
        if key is None and kept is not None and kept.server == url.rstrip("/"):  # a key is for its own server alone
            key = kept.secret()
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

    def compare(self, name: str, **weights: float) -> dict[str, Any]:
        """A compare file of the server's folder, with weights in the place of its own (`tonnage/compare@1`)."""
        return self._get(f"compare/{name}", {key: f"{value:g}" for key, value in weights.items()})

    def home(self) -> dict[str, Any]:
        """What runs, and which alerts fire."""
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

    def resume(self, run: str, **limits: float) -> dict[str, Any]:
        """Go on with a run; `max_cost_usd`, `max_hours`, `idle_minutes`, `max_restarts` take the place of its own."""
        return self._post(f"runs/{run}/resume", limits, once=True)

    def service(self, name: str) -> dict[str, Any]:
        """What a service costs now, beside its plan."""
        return self._get(f"services/{name}")

    def budgets(self) -> dict[str, Any]:
        """What teams may spend, and what is left."""
        return self._get("budgets")

    def budget_runs(self, name: str) -> dict[str, Any]:
        """Who spent a budget."""
        return self._get(f"budgets/{name}")

    def gateways(self) -> dict[str, Any]:
        """The gateway files of the server's folder."""
        return self._get("gateways")

    def gateway_top(self, name: str, *, sort: str = "requests") -> dict[str, Any]:
        """What a running gateway does now."""
        return self._get(f"gateways/{name}", {"sort": sort})

    def gateway_spend(self, name: str, *, by: str = "key", days: int = 1) -> dict[str, Any]:
        """What a gateway has spent."""
        return self._get(f"gateways/{name}/spend", {"by": by, "days": str(days)})

    def price_history(self, machine: str, **narrowed: str) -> dict[str, Any]:
        """What a machine cost in each snapshot; narrowed by `provider`, `region`, `purchase`."""
        return self._get("catalog/history", {"machine": machine, **narrowed})

    def read(self, what: str, **query: str) -> dict[str, Any]:
        """Any other list of the server: `workloads`, `places`, `alerts`, `audit`, `settings`, `me`,
        `catalog/snapshots`; or the plan of a file in its folder, `plan/NAME`."""
        return self._get(what, query)

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
                method, f"{self._url}/{quote(path)}", headers={**self._headers, **(headers or {})}, **more
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
