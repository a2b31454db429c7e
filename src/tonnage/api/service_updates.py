"""Another version of a service that runs: asked for by a file and a signal, on trial, and back by itself."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.api.reading import read_seconds
from tonnage.api.serving import ServeOptions, absolute_target, planned_replica
from tonnage.errors import InputError, TonnageError, UnknownName, did_you_mean, nearest
from tonnage.files import write_whole
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.reports.rendering import Report
    from tonnage.serving.engines.engine import EngineCommand
    from tonnage.serving.replicas.replica import SmokeTest
    from tonnage.serving.replicas.service import Service
    from tonnage.serving.replicas.trial import TrialRules
    from tonnage.serving.report import PlannedReplica

REQUEST: Final = "update.json"
OUTCOME: Final = "update-outcome.json"
VERSIONS: Final = "versions.json"
LOOK_EVERY_S: Final = 0.2
READ_WITHIN_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceUpdateOptions(Options):
    """How a new version is tried."""

    model: str | None = option("--model", "Weights of a workload file's model.", default=None, metavar="FOLDER")
    window_s: float = option(
        "--window", "How long it is on trial.", default=30.0, metavar="TIME", read=read_seconds, text="30s"
    )
    share: float = option("--share", "Of the requests, while it is on trial.", default=0.2, least=0.01, most=1.0)
    most_errors_percent: float = option(
        "--max-errors-percent", "More answers of 500 and above send it back.", default=1.0, least=0, most=100
    )
    p95_ratio: float = option(
        "--p95-ratio", "A 95th percentile of so many times the old version's sends it back.", default=1.5, least=1.0
    )
    p95_s: float | None = option(
        "--p95", "A longer 95th percentile sends it back.", default=None, metavar="TIME", read=read_seconds
    )
    wait_s: float = option(
        "--timeout", "How long to wait for the end of the update.", default=3600.0, metavar="TIME", read=read_seconds,
        text="1h",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedVersion:
    """What a service serves: the target of `tonnage serve`, and the weights where it is a workload file."""

    target: str
    model: str | None = None
    since: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateOutcome:
    """How an update ended."""

    service: str
    version: ServedVersion
    passed: bool
    why: str  # in words; empty where it passed


def update_service(
    name: str, target: Path | str, options: ServiceUpdateOptions | None = None, *, settings: Settings | None = None
) -> Answer[UpdateOutcome]:
    """Replace a running service's replicas by those of another target, the first of them on trial.

    The answer's fault is set where the old version stays, with the reason. Raises UnknownName where no such service
    runs, InputError where it has no replicas behind a balancer.
    """
    asked, settings = options or ServiceUpdateOptions(), settings or current_settings()
    folder, pid = _running(name, settings)
    wanted = ServedVersion(target=absolute_target(str(target)), model=asked.model)
    rules = {
        "window_s": asked.window_s, "share": asked.share, "most_errors": asked.most_errors_percent / 100.0,
        "p95_ratio": asked.p95_ratio, "p95_s": asked.p95_s,
    }  # fmt: skip
    number = uuid.uuid4().hex
    write_whole(folder / REQUEST, json.dumps({"id": number, **asdict(wanted), "rules": rules}) + "\n")
    os.kill(pid, signal.SIGUSR1)
    outcome = _followed(name, folder, pid, number, wanted, asked.wait_s)
    fault = None
    if not outcome.passed:
        fault = TonnageError(f"the old version of '{name}' stays: {outcome.why}",
                             hint=f"its replicas' logs: {folder}")  # fmt: skip
    return Answer(outcome, _report, fault=fault)


def rollback_service(
    name: str, options: ServiceUpdateOptions | None = None, *, settings: Settings | None = None
) -> Answer[UpdateOutcome]:
    """Go back to the version before. InputError where there is none."""
    settings = settings or current_settings()
    folder, _ = _running(name, settings)
    versions = read_versions(folder)
    if len(versions) < 2:
        raise InputError(f"'{name}' has had one version only", hint="tonnage deploy update gives it another")
    before = versions[-2]
    asked = replace(options or ServiceUpdateOptions(), model=before.model)
    return update_service(name, before.target, asked, settings=settings)


def read_versions(folder: Path) -> list[ServedVersion]:
    """What the service has served since it was started, the present version last."""
    try:
        found: list[dict[str, Any]] = json.loads((folder / VERSIONS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    return [ServedVersion(**one) for one in found]


def begin_versions(folder: Path, version: ServedVersion) -> None:
    """The service begins with this one; an old request is not carried out."""
    for name in (REQUEST, OUTCOME):
        (folder / name).unlink(missing_ok=True)
    _write_versions(folder, [version])


def _write_versions(folder: Path, versions: list[ServedVersion]) -> None:
    write_whole(folder / VERSIONS, json.dumps([asdict(one) for one in versions], indent=2) + "\n")


class VersionUpdates:
    """Carries out what is asked of a service that runs, in its own event loop."""

    def __init__(
        self, service: Service, planned: PlannedReplica, asked: ServeOptions,
        placed: Callable[[PlannedReplica, str, int], EngineCommand],
    ) -> None:  # fmt: skip
        self._service, self._folder, self._asked, self._placed = service, planned.folder, asked, placed
        self._task: asyncio.Task[None] | None = None
        begin_versions(self._folder, ServedVersion(target=planned.target, model=asked.model, since=_now()))

    def begin(self) -> None:
        """Read the request and carry it out; what is wrong with it is its outcome."""
        self._task = asyncio.ensure_future(self._carried_out())

    async def _carried_out(self) -> None:
        read: dict[str, Any] = json.loads((self._folder / REQUEST).read_text(encoding="utf-8"))
        version = ServedVersion(target=read["target"], model=read["model"], since=_now())
        self._service.say(f"another version is asked for: {version.target}")
        try:
            made, rules = await asyncio.to_thread(self._planned, version, read["rules"])
        except TonnageError as error:
            self._ended(read["id"], version, str(error))
            return
        self._service.update(partial(self._placed, made), rules, partial(self._ended, read["id"], version))

    def _planned(self, version: ServedVersion, rules: dict[str, Any]) -> tuple[PlannedReplica, TrialRules]:
        from tonnage.serving.replicas.trial import TrialRules

        asked = replace(self._asked, model=version.model, name=self._folder.name)
        made = planned_replica(version.target, asked).checked()
        return made, TrialRules(**rules, predicted_high_s=_predicted_high_s(made))

    def _ended(self, number: str, version: ServedVersion, why: str | None) -> None:
        if why is None:
            _write_versions(self._folder, [*read_versions(self._folder), version])
        write_whole(self._folder / OUTCOME, json.dumps({"id": number, "passed": why is None, "why": why or ""}) + "\n")


def _predicted_high_s(made: PlannedReplica) -> float | None:
    """The upper end of the 95th percentile that is predicted on this machine at the rate that is surely held; None: not
    known."""
    if made.here is None:
        return None
    found = made.here.latency_s("p95", made.here.holds_per_s.low)
    return None if found is None or math.isinf(found.high) else found.high


def read_smoke_test(path: str | None) -> SmokeTest | None:
    """`{"path": "/v1/...", "body": {...}}`, with `method` where it is not POST. InputError says what is wrong."""
    if path is None:
        return None
    from tonnage.serving.replicas.replica import SmokeTest

    hint = '{"path": "/v1/embeddings", "body": {"input": "a"}}'
    try:
        read = json.loads(Path(path).read_text(encoding="utf-8"))
        unknown = sorted(set(read) - {"path", "body", "method"})
        if unknown or not str(read["path"]).startswith("/"):
            raise InputError(f"{path}: {unknown[0] if unknown else 'path'} cannot be used", hint=hint)
        body = b"" if "body" not in read else json.dumps(read["body"]).encode()
        return SmokeTest(path=read["path"], body=body, method=str(read.get("method", "POST")).upper())
    except OSError as error:
        raise InputError(f"the smoke test {path} cannot be read: {error.strerror}", hint=hint) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not a smoke test: {error!r}", hint=hint) from error


def _running(name: str, settings: Settings) -> tuple[Path, int]:
    from tonnage.serving.running.record import running_services

    found = {one.name: one for one in running_services(settings.home) if one.is_alive}
    if name not in found:
        hint = did_you_mean(nearest(name, found), "`tonnage ps` lists services")
        raise UnknownName(f"no service named '{name}' runs here", hint=hint)
    if found[name].replicas is None:
        raise InputError(f"'{name}' has no balancer, so that nothing could answer in between",
                         hint="tonnage serve … --replicas 1..2")  # fmt: skip
    return settings.home / "services" / name, found[name].pid


def _followed(name: str, folder: Path, pid: int, number: str, version: ServedVersion, wait_s: float) -> UpdateOutcome:
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        try:
            read = json.loads((folder / OUTCOME).read_text(encoding="utf-8"))
        except FileNotFoundError:
            read = {}
        if read.get("id") == number:
            return UpdateOutcome(service=name, version=version, passed=read["passed"], why=read["why"])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            raise TonnageError(
                f"'{name}' ended during the update", hint=f"the logs of its replicas: {folder}"
            ) from None
        time.sleep(LOOK_EVERY_S)
    raise TonnageError(f"the update of '{name}' is still under way after {wait_s:g} s", hint="tonnage show shows it")


def _report(found: UpdateOutcome) -> Report:
    from tonnage.reports.blocks import Page, Paragraph
    from tonnage.reports.rendering import Report

    words = f"all replicas of {found.service} are of {found.version.target}"
    if not found.passed:
        words = f"rolled back: {found.why}"
    values = {
        "service": found.service,
        "target": found.version.target,
        "passed": found.passed,
        "why": found.why or None,
    }
    return Report(
        page=lambda: Page(title="Update", blocks=(Paragraph(text=words),)),
        document=lambda: {"schema": "tonnage/service-update@1", **values},
        columns=tuple(values), rows=lambda: [list(values.values())],
    )  # fmt: skip


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
