"""What can be asked with a body: plans of workloads that a client sends, and what is done to runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage import api
from tonnage.errors import InputError, did_you_mean, nearest
from tonnage.values import dataclass
from tonnage.web.access import Scope
from tonnage.web.keys import Role
from tonnage.workload.loading import WorkloadText

if TYPE_CHECKING:
    from tonnage.reports.rendering import Report
    from tonnage.settings import Settings

Do = Callable[[str, Mapping[str, Any], "Settings", Path], "Report"]
PLAN: Final = ("workload", "name", "constraints", "rank", "top", "layout")
LIMITS: Final = ("max_cost_usd", "max_hours", "idle_minutes", "max_restarts")
WHOLE: Final = ("max_restarts",)
MOST_LIMIT: Final = 1e9
SIZE: Final = ("workload", "name", "gpus", "layout", "top")


@dataclass(frozen=True, slots=True, kw_only=True)
class PostVerb:
    """An address that takes POST. `of_run`: something is done to a run that the address names: the asker must
    be allowed to see it, and the audit has lines of it."""

    name: str
    path: str
    about: str
    do: Do
    role: Role = "operator"
    of_run: bool = False

    @property
    def scope(self) -> Scope:
        return "project" if self.of_run else "none"


def _workload(body: Mapping[str, Any], known: Sequence[str], folder: Path) -> Mapping[str, Any] | WorkloadText:
    """The body's workload: a mapping, or the text of a file called `name`. Raises InputError, also for unknown keys."""
    for key in body:
        if key not in known:
            raise InputError(
                f"'{key[:40]}' is not a key here", hint=did_you_mean(nearest(key, known), ", ".join(known))
            )
    found = body.get("workload")
    if isinstance(found, Mapping):
        return found
    if isinstance(found, str) and found.strip():
        file = f"{_text(body, 'name') or 'workload'}.tonnage.yaml"
        return WorkloadText(text=found, file=file, folder=folder)
    raise InputError("`workload` is missing", hint="a mapping as in a workload file, or its text")


def _text(body: Mapping[str, Any], key: str, default: str | None = None) -> str | None:
    value = body.get(key, default)
    if value is not None and not isinstance(value, str):
        raise InputError(f"`{key}` must be a text")
    return value


def _count(body: Mapping[str, Any], key: str, default: int) -> int:
    value = body.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10_000:
        raise InputError(f"`{key}` must be a whole number from 1 to 10,000")
    return value


def _constraints(body: Mapping[str, Any]) -> dict[str, Any]:
    found = body.get("constraints") or {}
    if not isinstance(found, Mapping):
        raise InputError("`constraints` must be a mapping", hint="as the constraints of a workload file")
    return dict(found)


def _plan(_: str, body: Mapping[str, Any], settings: Settings, folder: Path) -> Report:
    made = api.plan(
        _workload(body, PLAN, folder), rank=_text(body, "rank", "cost"), top=_count(body, "top", 10),  # type: ignore[arg-type]
        layout=_text(body, "layout"), settings=settings, **_constraints(body),
    )  # fmt: skip
    return made.report()


def _explain(_: str, body: Mapping[str, Any], settings: Settings, folder: Path) -> Report:
    known = (*PLAN, "option")
    made = api.plan(_workload(body, known, folder), settings=settings, **_constraints(body))
    return made.explain(_text(body, "option")).report()


def _size(_: str, body: Mapping[str, Any], settings: Settings, folder: Path) -> Report:
    made = api.size(
        _workload(body, SIZE, folder), gpus=_text(body, "gpus") or (), layout=_text(body, "layout"),
        top=_count(body, "top", 30), settings=settings,
    )  # fmt: skip
    return made.report()


def _gains(_: str, body: Mapping[str, Any], settings: Settings, folder: Path) -> Report:
    return api.gains(
        _workload(body, ("workload", "name", "constraints"), folder), settings=settings, **_constraints(body)
    ).report()


def _end(at_once: bool) -> Do:
    def act(name: str, body: Mapping[str, Any], settings: Settings, _: Path) -> Report:
        if body:
            raise InputError("nothing can be said in the body")
        return api.stop(name, at_once=at_once, wait=False, settings=settings).report()

    return act


def _resume(name: str, body: Mapping[str, Any], settings: Settings, _: Path) -> Report:
    """Go on with a run; the body may raise its limits, and nothing else of it."""
    given: dict[str, Any] = {}
    for key, value in body.items():
        if key not in LIMITS:
            raise InputError(
                f"'{key[:40]}' is not a key here", hint=did_you_mean(nearest(key, LIMITS), ", ".join(LIMITS))
            )
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_LIMIT:
            raise InputError(f"`{key}` must be a number from 0 to {MOST_LIMIT:g}")
        if key in WHOLE and value != int(value):
            raise InputError(f"`{key}` must be a whole number")
        given[key] = int(value) if key in WHOLE else float(value)
    return api.resume(name, api.ResumeOptions(**given), settings=settings).report()


VERBS: Final[Sequence[PostVerb]] = (
    PostVerb(name="plan", path="plan", about="Rank every way to buy the workload of the body.", do=_plan),
    PostVerb(name="size", path="size", about="What the workload of the body needs.", do=_size),
    PostVerb(name="explain", path="explain", about="Why the winner won, or what became of `option`.", do=_explain),
    PostVerb(name="gains", path="gains", about="What promised gains come to for the workload of the body.", do=_gains),
    PostVerb(name="stop", path="runs/{name}/stop", about="Save a checkpoint and end a run.", do=_end(at_once=False),
         of_run=True),
    PostVerb(name="resume", path="runs/{name}/resume", do=_resume, of_run=True,
             about="Go on with a run that was stopped, failed or lost; `max_cost_usd`, `max_hours` raise its limits."),
    PostVerb(name="cancel", path="runs/{name}/cancel", about="End a run at once.", do=_end(at_once=True), of_run=True),
)  # fmt: skip
