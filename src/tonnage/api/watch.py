"""The watch: `tonnage.open_watch`, `check_watch`, `replay_watch`, `watch_status`, `watch_metrics`, `list_metrics`,
`export_watch`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Event
from time import time
from typing import TYPE_CHECKING, Any, Final

from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.api.reading import read_seconds
from tonnage.errors import InputError, PlanRefused, TonnageError
from tonnage.files import make_private_folder, save_for_user
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.metric_names import Metric
    from tonnage.monitoring.actions import Hands
    from tonnage.monitoring.alerts.engine import ReplayedAlert
    from tonnage.monitoring.alerts.rules import WatchRules
    from tonnage.monitoring.audit import AuditLine
    from tonnage.monitoring.figures import SeriesKey
    from tonnage.monitoring.history import MetricHistory
    from tonnage.monitoring.reports import StandingAlert
    from tonnage.runs.folder import RunFolder

WATCH_PORT: Final = 9464


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions(Options):
    """How the watch goes."""

    port: int | None = option(
        "--port", "Show what is seen at http://127.0.0.1:PORT/metrics; 0: any free port.", default=None, metavar="PORT",
        least=0, most=65_535,
    )  # fmt: skip
    rounds: int | None = option("--rounds", "End after so many rounds.", default=None, metavar="N", least=1)
    dry_run: bool = option("--dry-run", "Say what every rule would do; do nothing.", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchReplayOptions(Options):
    """How far back `watch replay` looks."""

    since_s: float = option(
        "--since", "How far back.", default=7 * 86_400.0, metavar="TIME", read=read_seconds, text="7d"
    )


def load_watch(path: Path | str | None) -> WatchRules:
    """The rules of a file; the default rules without one. WorkloadError names line and key of what is wrong."""
    from tonnage.monitoring.alerts.reading import default_rules, load_rules

    return default_rules() if path is None else load_rules(Path(path))


def check_watch(path: Path | str | None) -> Answer[WatchRules]:
    """A watch file as it is understood; nothing is looked at."""
    from tonnage.monitoring.reports import rules_report

    return Answer(load_watch(path), rules_report)


def open_watch(
    path: Path | str | None = None,
    options: WatchOptions | None = None,
    *,
    settings: Settings | None = None,
    say: Callable[[str], None] | None = None,
    stop: Event | None = None,
) -> None:
    """Look after what runs until `stop` is set, or for so many rounds. InputError where another watch does.

    What an action does, and whether it did, is in the audit: `audit_lines`.
    """
    from filelock import FileLock, Timeout

    asked, settings, say = options or WatchOptions(), settings or current_settings(), say or (lambda _: None)
    rules = load_watch(path)
    if asked.dry_run:
        rules = replace(rules, rules=tuple(replace(rule, dry_run=True) for rule in rules.rules))
    folder = watch_folder(settings)
    make_private_folder(folder)
    try:
        lock = FileLock(folder / "watch.lock", timeout=0)
        lock.acquire()
    except Timeout:
        raise InputError(
            f"another watch looks after {settings.home}", hint="stop it first, or name another home: TONNAGE_HOME"
        ) from None
    try:
        _watch(rules, asked, settings, say, stop or Event())
    finally:
        lock.release()


def _watch(rules: WatchRules, asked: WatchOptions, settings: Settings, say: Callable[[str], None], stop: Event) -> None:
    from tonnage.api.audits import open_audit
    from tonnage.api.home_runs import all_runs
    from tonnage.api.watch_figures import home_figures
    from tonnage.api.watch_plans import watched_plans
    from tonnage.monitoring.actions import ActionRunner
    from tonnage.monitoring.audit import LateAudit
    from tonnage.monitoring.collecting import Collector
    from tonnage.monitoring.history import MetricHistory
    from tonnage.monitoring.otlp import OtlpWriter
    from tonnage.monitoring.page import WatchPage
    from tonnage.monitoring.watcher import Watcher, WatchParts

    folder = watch_folder(settings)
    audit, page = LateAudit(open_audit(settings), say), WatchPage()
    actions = ActionRunner(channels=rules.channels, hands=_hands(settings), audit=audit, say=say)
    runs = partial(all_runs, settings) if rules.runs else tuple
    with contextlib.ExitStack() as stack:
        history = stack.enter_context(MetricHistory(history_file(settings), keep_s=rules.keep_s))
        stack.callback(lambda: audit.close(datetime.now(UTC)))
        stack.callback(actions.close)
        plans = watched_plans(rules.plans, settings, folder / "plans.json", say)
        collector = Collector(
            runs=lambda: _recent(runs()), targets=rules.targets,
            home=lambda now: (*home_figures(settings, now), *plans.figures(now)),
        )  # fmt: skip
        stack.callback(collector.close)
        otlp = None
        if rules.otlp is not None:
            otlp = OtlpWriter(rules.otlp, say)
            stack.callback(otlp.close)
        watcher = Watcher(
            WatchParts(
                rules=rules, collector=collector, history=history, actions=actions, page=page,
                state_file=folder / "state.json", audit=audit, say=say, otlp=otlp,
            )
        )  # fmt: skip
        if asked.port is not None:
            say(f"http://127.0.0.1:{page.serve(asked.port)}/metrics shows what is seen")
        watcher.run(stop, rounds=asked.rounds)


def replay_watch(
    path: Path | str | None = None, options: WatchReplayOptions | None = None, *, settings: Settings | None = None
) -> Answer[tuple[ReplayedAlert, ...]]:
    """When the rules of a file would have fired over the figures that were kept, and what they would have done.

    InputError where no figures were kept.
    """
    from tonnage.monitoring.alerts.engine import SPEND, replay
    from tonnage.monitoring.reports import replay_report

    asked, settings = options or WatchReplayOptions(), settings or current_settings()
    rules = load_watch(path)
    now = time()
    with _history(settings, keep_s=rules.keep_s) as history:
        conditions = [rule.condition for rule in rules.rules]
        keys = [key for key in history.names() if key.metric == SPEND or any(one.matches(key) for one in conditions)]
        found = replay(rules, history.rounds(keys, since=now - asked.since_s - rules.longest_s, until=now))
    return Answer(tuple(one for one in found if one.fired_at >= now - asked.since_s), replay_report)


def watch_metrics(*, settings: Settings | None = None) -> Answer[tuple[SeriesKey, ...]]:
    """Every series that the watch has kept figures of. InputError where no figures were kept."""
    from tonnage.monitoring.reports import metrics_report

    with _history(settings or current_settings(), keep_s=float("inf")) as history:
        return Answer(tuple(history.names()), metrics_report)


def list_metrics() -> Answer[tuple[Metric, ...]]:
    """Every metric that runs, machines, services, gateways and homes can have."""
    from tonnage.metric_names import REGISTRY
    from tonnage.monitoring.reports import names_report

    return Answer(tuple(REGISTRY.values()), names_report)


def watch_status(*, settings: Settings | None = None) -> Answer[tuple[StandingAlert, ...]]:
    """The alerts that are pending or fire, as the watch last wrote them down. InputError where none has run."""
    from tonnage.monitoring.alerts.engine import AlertEngine
    from tonnage.monitoring.reports import StandingAlert, status_report

    settings = settings or current_settings()
    file = watch_folder(settings) / "state.json"
    try:
        state: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        found = AlertEngine.states_of(state)
        written = datetime.fromtimestamp(float(state["at"]), UTC)
    except FileNotFoundError:
        raise InputError(f"no watch has run under {settings.home}", hint="tonnage watch start [FILE]") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} cannot be read: {error}", hint="the next watch writes it again") from error
    standing = tuple(StandingAlert(rule=rule, series=key, state=one) for (rule, key), one in sorted(found.items()))
    return Answer(standing, partial(status_report, written=written))


def export_watch(
    path: Path | str | None, folder: Path | str, *, watch_address: str = f"127.0.0.1:{WATCH_PORT}"
) -> tuple[Path, ...]:
    """Write `prometheus.yml`, `rules.yml` and `grafana-dashboard.json` into a folder. InputError where one is there."""
    from tonnage.monitoring.exports import export_files

    into = Path(folder)
    files = export_files(load_watch(path), watch_address=watch_address)
    there = [name for name in files if (into / name).exists()]
    if there:
        raise InputError(f"{into / there[0]} is there already", hint="name an empty folder")
    into.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        save_for_user(into / name, text)
    return tuple(into / name for name in files)


def audit_lines(*, settings: Settings | None = None) -> Answer[tuple[AuditLine, ...]]:
    """Everything that was done for this home, checked line by line. The fault names the first line that was changed."""
    from tonnage.monitoring.audit import AuditFile
    from tonnage.monitoring.reports import audit_report

    found: list[AuditLine] = []
    fault: TonnageError | None = None
    try:
        found.extend(AuditFile(audit_file(settings or current_settings())).lines())
    except TonnageError as error:
        fault = PlanRefused(str(error), hint=error.hint)
    return Answer(tuple(found), audit_report, fault=fault)


def watch_folder(settings: Settings) -> Path:
    """Where the watch keeps its state."""
    return settings.home / "watch"


def history_file(settings: Settings) -> Path:
    """Figures over time."""
    return watch_folder(settings) / "history.db"


def audit_file(settings: Settings) -> Path:
    """What was done, chained."""
    return settings.home / "audit" / "audit.jsonl"


@contextlib.contextmanager
def _history(settings: Settings, *, keep_s: float) -> Iterator[MetricHistory]:
    from tonnage.monitoring.history import MetricHistory

    file = history_file(settings)
    if not file.exists():
        raise InputError(f"no figures were kept under {settings.home}", hint="`tonnage watch` keeps them while it runs")
    with MetricHistory(file, keep_s=keep_s) as history:
        yield history


def _recent(runs: Iterator[RunFolder] | tuple[RunFolder, ...]) -> Iterator[RunFolder]:
    """Runs under way, and those that ended within the last day: what they spent still counts."""
    from tonnage.runs.liveness import observed_state

    for folder in runs:
        with contextlib.suppress(OSError, ValueError, TonnageError):  # the collector tells of a folder it cannot read
            state = observed_state(folder)
            if state.state.ended and state.ended_at is not None and time() - state.ended_at.timestamp() > 86_400.0:
                continue
        yield folder


def _hands(settings: Settings) -> Hands:
    from tonnage.api.watch_hands import halve_micro_batch, stop_budget, stop_verified
    from tonnage.api.watch_scaling import scale_service
    from tonnage.monitoring.actions import Hands

    return Hands(
        stop=partial(stop_verified, settings), plan=partial(_plan, settings),
        stop_budget=partial(stop_budget, settings), smaller_batch=partial(halve_micro_batch, settings),
        scale=partial(scale_service, settings),
    )  # fmt: skip


def _plan(settings: Settings, run: str) -> str:
    """What the plan of the run's workload says now."""
    from tonnage.api.home_runs import find_run
    from tonnage.api.plans import plan
    from tonnage.reports.plan_page import describe_option

    spec = find_run(settings, run).spec()
    if spec.workload_file is None:
        raise InputError(f"'{run}' was started without a workload file", hint="plan the file that describes it")
    made = plan(spec.workload_file, settings=settings).plan
    best = made.best
    if best is None:
        return f"nothing fits {spec.workload_file}: tonnage plan {spec.workload_file}"
    option = describe_option(best, horizon=made.horizon)
    return f"the plan's first now: {option} `tonnage plan {spec.workload_file}` shows the others"
