"""What the watch shows: its rules, alerts, series, replays, and the audit."""

from __future__ import annotations

from datetime import UTC, datetime

from tonnage.metric_names import Metric
from tonnage.monitoring.alerts.engine import AlertState, ReplayedAlert
from tonnage.monitoring.alerts.rules import AlertRule, WatchRules, duration_words
from tonnage.monitoring.audit import AuditLine
from tonnage.monitoring.figures import SeriesKey
from tonnage.reports.listing import Field, Listing, listing_report
from tonnage.reports.rendering import Report
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingAlert:
    """An alert that is pending or fires, as the watch last wrote it down."""

    rule: str
    series: SeriesKey
    state: AlertState


def rules_report(rules: WatchRules) -> Report:
    fields: list[Field[AlertRule]] = [
        Field("name", lambda one: one.name, title="rule"),
        Field("condition", lambda one: one.condition.text, title="fires when", wraps=True),
        Field("for_s", lambda one: one.for_s, title="for", right=True,
              show=lambda one: duration_words(one) if one else ""),
        Field("actions", lambda one: tuple(action.text for action in one.actions), title="does", wraps=True,
              show=lambda one: "; ".join(one) or "says so"),
        Field("unless", lambda one: one.unless, title="unless", show=", ".join),
        Field("dry_run", lambda one: one.dry_run, title="dry run", show=lambda one: "yes" if one else ""),
    ]  # fmt: skip
    pages = ", ".join(one.name for one in rules.targets) or "none"
    remarks = [f"a round every {duration_words(rules.every_s)}; runs of this home: {'yes' if rules.runs else 'no'}; "
               f"pages: {pages}; channels: {', '.join(rules.channels) or 'none'}"]  # fmt: skip
    head = {"every_s": rules.every_s, "keep_s": rules.keep_s, "runs": rules.runs,
            "targets": [{"name": one.name, "url": one.url} for one in rules.targets],
            "channels": [{"name": one.name, "kind": one.kind} for one in rules.channels.values()]}  # fmt: skip
    return listing_report(
        Listing(schema="tonnage/watch@1", title="Watch", name="rules", head=head, fields=fields, items=rules.rules,
                remarks=remarks)
    )  # fmt: skip


def replay_report(found: tuple[ReplayedAlert, ...]) -> Report:
    fields: list[Field[ReplayedAlert]] = [
        Field("rule", lambda one: one.rule.name, title="rule"),
        Field("series", lambda one: one.series.text, title="series", wraps=True),
        Field("fired_at", lambda one: _instant(one.fired_at), title="fired"),
        Field("ended_at", lambda one: None if one.ended_at is None else _instant(one.ended_at), title="ended",
              show=lambda one: one or "still"),
        Field("actions", lambda one: tuple(what for _, what in one.actions), title="would have done", wraps=True,
              show=lambda one: "; ".join(_counted(one)) or "said so"),
        Field("saved_usd", lambda one: one.saved_usd, title="USD after a stop", right=True),
    ]  # fmt: skip
    remarks = [] if found else ["no rule would have fired"]
    remarks.append("figures older than 6 hours are means of a minute, older than 2 days of 10 minutes")
    return listing_report(
        Listing(schema="tonnage/watch-replay@1", title="What the rules would have done", name="alerts", head={},
                fields=fields, items=found, remarks=remarks)
    )  # fmt: skip


def _counted(actions: tuple[str, ...]) -> list[str]:
    """Each action once, with how often.

    >>> _counted(("notify team", "notify team", "stop"))
    ['notify team (2 times)', 'stop']
    """
    counts = {one: actions.count(one) for one in actions}
    return [one if count == 1 else f"{one} ({count} times)" for one, count in counts.items()]


def metrics_report(found: tuple[SeriesKey, ...]) -> Report:
    fields: list[Field[SeriesKey]] = [
        Field("metric", lambda one: one.metric, title="metric"),
        Field("labels", lambda one: dict(one.labels), title="labels", wraps=True, json=lambda one: one,
              show=lambda one: ", ".join(f"{name}={value}" for name, value in one.items())),
    ]  # fmt: skip
    return listing_report(
        Listing(schema="tonnage/watch-metrics@1", title="Metrics", name="metrics", head={}, fields=fields, items=found,
                remarks=[])
    )  # fmt: skip


def names_report(found: tuple[Metric, ...]) -> Report:
    """The registry of metrics."""
    fields: list[Field[Metric]] = [
        Field("name", lambda one: one.name, title="metric"),
        Field("kind", lambda one: one.kind, title="kind"),
        Field("unit", lambda one: one.unit, title="unit"),
        Field("labels", lambda one: one.labels, title="labels", show=", ".join, wraps=True),
        Field("help", lambda one: one.help, title="meaning", wraps=True),
        Field("predicted", lambda one: one.predicted, title="predicted by", wraps=True, show=lambda one: one or ""),
    ]
    return listing_report(
        Listing(schema="tonnage/metric-names@1", title="Names of metrics", name="metrics", head={}, fields=fields,
                items=found, remarks=[])
    )  # fmt: skip


def status_report(found: tuple[StandingAlert, ...], written: datetime) -> Report:
    fields: list[Field[StandingAlert]] = [
        Field("rule", lambda one: one.rule, title="rule"),
        Field("status", lambda one: one.state.status, title="status"),
        Field("since", lambda one: _instant(one.state.since), title="since"),
        Field("value", lambda one: one.state.value, title="value", right=True),
        Field("series", lambda one: one.series.text, title="series", wraps=True),
        Field("tries", lambda one: one.state.tries, title="acted", right=True),
        Field("gave_up", lambda one: one.state.gave_up, title="gave up", show=lambda one: "yes" if one else ""),
    ]
    remarks = [f"as of {written:%Y-%m-%d %H:%M:%S} UTC"] + ([] if found else ["no alert"])
    return listing_report(
        Listing(schema="tonnage/watch-status@1", title="Alerts", name="alerts", fields=fields, items=found,
                head={"written_at": written.isoformat()}, remarks=remarks)
    )  # fmt: skip


def audit_report(found: tuple[AuditLine, ...]) -> Report:
    fields: list[Field[AuditLine]] = [
        Field("number", lambda one: one.number, title="line", right=True),
        Field("at", lambda one: one.at, title="at", show=lambda one: one[:19].replace("T", " ")),
        Field("who", lambda one: one.who, title="who"),
        Field("what", lambda one: one.what, title="what"),
        Field("fields", lambda one: dict(one.fields), title="of", json=lambda one: one, wraps=True,
              show=lambda one: "; ".join(f"{name}: {value}" for name, value in one.items())),
        Field("hash", lambda one: one.hash, title="hash", show=lambda one: one[:12]),
    ]  # fmt: skip
    return listing_report(
        Listing(schema="tonnage/audit@1", title="Audit", name="lines", head={}, fields=fields, items=found,
                remarks=[f"{len(found):,} lines, each follows from those before it"])
    )  # fmt: skip


def _instant(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"
