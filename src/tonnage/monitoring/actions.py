"""Actions of alerts carried out: each in its own thread with a time limit, written to the audit before and after."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Final, Literal, get_args

from tonnage.errors import InputError, TonnageError
from tonnage.monitoring.alerts.engine import Happening
from tonnage.monitoring.alerts.rules import Action, ActionKind, Channel
from tonnage.monitoring.audit import LateAudit
from tonnage.monitoring.notifying import AlertMessage, notify
from tonnage.runs.secrets import masked
from tonnage.values import dataclass

COMMAND_S: Final = 120.0
POST_S: Final = 20.0
THREADS: Final = 4  # of each kind of action: webhooks that hang keep no run from being stopped
LONGEST_OUTPUT: Final = 400


ScaleDo = Literal["act", "say", "undo"]  # of a service: make the cheapest change that helps, say it, take it back


@dataclass(frozen=True, slots=True, kw_only=True)
class Hands:
    """What actions on runs need from outside: to stop a run (None: every run under way) or the runs of a budget, to go
    on with half of a run's micro-batch, to plan its work again; to change a service whose answers are late.

    Each answers with what it did, in a sentence; TonnageError or OSError where it cannot.
    """

    stop: Callable[[str | None], str]
    stop_budget: Callable[[str], str]
    smaller_batch: Callable[[str], str]
    plan: Callable[[str], str]
    scale: Callable[[str, ScaleDo], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionOutcome:
    """How an action ended."""

    happening: Happening
    done: bool
    words: str
    said: bool = False  # a dry run's words: nothing was to be done


class ActionRunner:
    """Carries actions out beside the watch: a webhook that hangs delays nothing but itself.

    One action of one alert is carried out in the order it was asked for: never undone before it is done.
    """

    def __init__(
        self, *, channels: Mapping[str, Channel], hands: Hands, audit: LateAudit, say: Callable[[str], None]
    ) -> None:
        self._channels, self._hands, self._audit, self._say = channels, hands, audit, say
        self._threads = {kind: ThreadPoolExecutor(THREADS, thread_name_prefix=kind) for kind in get_args(ActionKind)}
        self._under_way: set[Future[ActionOutcome]] = set()
        self._newest: dict[tuple[str, str, str], Future[ActionOutcome]] = {}  # of each action of each alert
        self._lock = Lock()

    def start(self, happening: Happening) -> Future[ActionOutcome]:
        """Write down that it is due, and carry it out. A dry run is written down, and not carried out.

        Where the audit cannot be written its lines are held, and the action is carried out all the same: a full disk
        must not keep a run from being stopped.
        """
        action = happening.action
        assert action is not None  # an action is due
        what = "undo" if happening.kind == "undo" else "due"
        says = action.kind == "scale" and what == "due"  # a dry run of it says which change it would make
        if happening.rule.dry_run:
            what = "would do"
        self._write_down(what, happening)
        if happening.rule.dry_run and not says:
            done: Future[ActionOutcome] = Future()
            done.set_result(ActionOutcome(happening=happening, done=False, words=f"dry run: would {action.text}"))
            return done
        future: Future[ActionOutcome] = Future()

        def carry(_: object = None) -> None:
            self._threads[action.kind].submit(self._carried, happening, action).add_done_callback(
                lambda done: future.set_result(done.result())
            )

        key = (happening.rule.name, happening.series.text, action.text)
        with self._lock:
            before = self._newest.get(key)
            self._newest[key] = future
            self._under_way.add(future)
        future.add_done_callback(lambda done: self._ended(key, done))
        if before is None:
            carry()
        else:
            before.add_done_callback(carry)  # at once, where it is done already
        return future

    def close(self) -> None:
        """Wait for what is under way: each has a time limit of its own."""
        with self._lock:
            under_way = tuple(self._under_way)
        wait(under_way)
        for pool in self._threads.values():
            pool.shutdown(wait=True)

    def _ended(self, key: tuple[str, str, str], future: Future[ActionOutcome]) -> None:
        with self._lock:
            self._under_way.discard(future)
            if self._newest.get(key) is future:
                del self._newest[key]
        outcome = future.result()
        what = "done" if outcome.done else "failed"
        if outcome.said:
            what = "would do"
        self._say(f"{outcome.happening.rule.name}: {outcome.words}")
        self._write_down(what, outcome.happening, words=outcome.words)

    def _write_down(self, what: str, happening: Happening, **more: str) -> None:
        self._audit.put(at=datetime.now(UTC), who="watch", what=what, **described(happening), **more)

    def _carried(self, happening: Happening, action: Action) -> ActionOutcome:
        try:
            words = self._do(happening, action)
        except (OSError, TonnageError, subprocess.SubprocessError) as error:
            return ActionOutcome(happening=happening, done=False, words=masked(f"could not {action.text}: {error}"))
        if happening.rule.dry_run:
            return ActionOutcome(happening=happening, done=False, words=masked(f"dry run: {words}"), said=True)
        return ActionOutcome(happening=happening, done=True, words=masked(words))

    def _scaled(self, happening: Happening) -> str:
        """Change the alert's service, and tell the channels of its rule which change and what it is predicted to do."""
        service = happening.series.label("service")
        if service is None:
            raise InputError("no service is named by this alert", hint="when: {metric: tonnage_service_p95_seconds}")
        try:
            words = self._hands.scale(service, _scale_do(happening))
        except TonnageError as error:
            self._tell(happening, f"{service}: {error}")
            raise
        self._tell(happening, words)
        return words

    def _tell(self, happening: Happening, words: str) -> None:
        if happening.rule.dry_run:  # which sends no notification
            return
        fields = {**described(happening), "change": words}
        key = f"{happening.rule.name} {happening.series.text} change"
        message = AlertMessage(text=masked(f"tonnage: {words} [{happening.rule.name}]"), key=key, ended=False,
                               fields=fields)  # fmt: skip
        for action in happening.rule.actions:
            if action.kind == "notify" and action.channel is not None:
                try:
                    notify(self._channels[action.channel], message)
                except (OSError, TonnageError) as error:  # the change is made or refused all the same
                    self._say(masked(f"{happening.rule.name}: could not notify {action.channel}: {error}"))

    def _do(self, happening: Happening, action: Action) -> str:
        run = happening.series.label("run")
        match action.kind:
            case "notify":
                assert action.channel is not None  # reading has seen to it
                notify(self._channels[action.channel], message_of(happening))
                return f"notified {action.channel}"
            case "stop" if action.of == "budget":
                budget = happening.series.label("budget")
                if budget is None:
                    raise InputError("no budget is named by this alert", hint="a metric with the label `budget`")
                return self._hands.stop_budget(budget)
            case "stop" if run is None and happening.rule.condition.across == "each":
                raise InputError("no run is named by this alert", hint="`across: sum` stops every run under way")
            case "stop":
                return self._hands.stop(run)
            case "batch" | "plan":
                if run is None:
                    raise InputError("no run is named by this alert", hint="a metric with the label `run`")
                return self._hands.smaller_batch(run) if action.kind == "batch" else self._hands.plan(run)
            case "scale":
                return self._scaled(happening)
            case "command":
                return _run_command([_filled(word, happening) for word in action.command])
            case "post":
                assert action.url is not None  # reading has seen to it
                undo = happening.kind == "undo"
                return _post(action.url, (action.undo if undo else action.body) or {}, undo=undo)


def _scale_do(happening: Happening) -> ScaleDo:
    if happening.rule.dry_run:
        return "say"
    return "undo" if happening.kind == "undo" else "act"


def described(happening: Happening) -> dict[str, Any]:
    """What the audit and messages carry of it."""
    action = happening.action
    known = {
        "rule": happening.rule.name, "series": happening.series.text, "value": happening.value,
        "condition": happening.rule.condition.text, "action": None if action is None else action.text,
        "why": happening.why or None,
    }  # fmt: skip
    return {name: value for name, value in known.items() if value is not None}


def message_of(happening: Happening) -> AlertMessage:
    """The message to people."""
    rule, ended = happening.rule, happening.kind in ("ended", "gone")
    head = "ended" if ended else "alert"
    value = "" if happening.value is None else f": {happening.value:.4g}"
    why = f" ({happening.why})" if happening.why else ""
    text = f"tonnage {head}: {rule.summary or rule.condition.text}{value} [{rule.name}] {happening.series.text}{why}"
    return AlertMessage(text=text, key=f"{rule.name} {happening.series.text}", ended=ended, fields=described(happening))


def _filled(word: str, happening: Happening) -> str:
    """A word of a command with what it names put in; words are never read by a shell."""
    known = {"rule": happening.rule.name, "series": happening.series.text, "value": f"{happening.value}"}
    known |= {f"label.{name}": value for name, value in happening.series.labels}
    for name, value in known.items():
        word = word.replace("{" + name + "}", value)
    return word


def _run_command(words: list[str]) -> str:
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=COMMAND_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )  # fmt: skip
    said = (done.stdout or done.stderr).strip()[:LONGEST_OUTPUT]
    if done.returncode != 0:
        raise OSError(f"{words[0]} ended with {done.returncode}" + (f": {said}" if said else ""))
    return f"ran {words[0]}" + (f": {said}" if said else "")


def _post(url: str, body: Mapping[str, Any], *, undo: bool) -> str:
    import httpx

    try:
        answer = httpx.post(url, content=json.dumps(dict(body)), timeout=POST_S,
                            headers={"Content-Type": "application/json"})  # fmt: skip
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise OSError(str(error)) from error
    if answer.status_code >= 400:
        raise OSError(f"answers {answer.status_code}: {answer.text[:LONGEST_OUTPUT]}")
    return f"{'undone' if undo else 'posted'}: {answer.status_code}"
