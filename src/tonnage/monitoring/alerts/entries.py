"""The keys of a watch file: pydantic models; every key with its meaning."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tonnage.comparison.user_files import Link, Named, Names, Reference, Text
from tonnage.monitoring.alerts.rules import Across, Direction, Take
from tonnage.workload.file.fields import Count, Duration, Flag, Spelled, StrictModel, Word, as_names
from tonnage.workload.file.fields import key as entry

MetricName = Annotated[str, Field(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$", max_length=200), Spelled("name of a metric")]
Limit = Annotated[float, Field(ge=-1e15, le=1e15), Spelled("number")]
Pattern = Annotated[str, Field(min_length=1, max_length=200), Spelled("value or pattern, such as chat-*")]
Words = Annotated[tuple[str, ...], BeforeValidator(as_names), Spelled("list of words")]
Files = Annotated[tuple[str, ...], BeforeValidator(as_names), Spelled("file or list of files")]
Hours = Annotated[
    str,
    Field(pattern=r"^\d{2}:\d{2}-\d{2}:\d{2}( [A-Za-z_]+(/[A-Za-z_+-]+)*)?$"),
    Spelled("hours, such as 22:00-07:00 Europe/Berlin"),
]
SeveralHours = Annotated[tuple[Hours, ...], BeforeValidator(as_names), Spelled("hours or list of hours")]
Body = Annotated[dict[str, Any], Spelled("mapping, sent as JSON")]


def _listed(value: object) -> object:
    return tuple(value) if isinstance(value, list) else (value,) if isinstance(value, dict) else value


class ConditionEntry(StrictModel):
    """A figure and its limit."""

    metric: MetricName = entry("Name of the metric, as `tonnage watch metrics` lists them.")
    labels: dict[str, Pattern] = entry("Labels a series must have, with patterns as of file names.", default={})
    take: Take = entry(
        "What is taken of the window: `newest`, `mean`, `max`, `min`, `rate` (a second), `increase`, `age` (seconds "
        "without a change), `ahead` (what it comes to one window from now at the window's pace), or `p50` to `p99` of "
        "a histogram.",
        default="newest",
    )
    over: Duration | None = entry("The window; for all but `newest`.", default=None, unit="seconds", example="5m")
    across: Across = entry("Each series by itself, or one figure over all that match.", default="each")
    above: Limit | None = entry("Fires above this.", default=None)
    below: Limit | None = entry("Fires below this.", default=None)
    clear: Limit | None = entry(
        "Ends only behind this, so that a figure at the limit does not fire and end in turns.",
        default=None, shown="the limit",
    )  # fmt: skip


class PostEntry(StrictModel):
    """A request to a service."""

    url: Link = entry("Where to.")
    body: Body = entry("What is posted.", default={})
    undo: Body | None = entry("What is posted when the alert ends.", default=None)
    knob: Word | None = entry("What it turns, such as `replicas of chat`: rules that fight over it are refused.",
                              default=None)  # fmt: skip
    direction: Direction | None = entry("Which way it turns it.", default=None)


class ActionEntry(StrictModel):
    """One action: exactly one of these keys."""

    notify: Word | None = entry("A channel.", default=None)
    stop: Literal["run", "budget"] | None = entry(
        "Save and verify a checkpoint, and stop: the alert's run, or all runs of its budget.", default=None
    )
    batch: Literal["smaller"] | None = entry(
        "Save a checkpoint of the alert's run, and go on with half of its micro-batch; what a step learns from stays.",
        default=None,
    )  # fmt: skip
    scale: Literal["replicas"] | None = entry(
        "Make the cheapest change of the alert's service that its plan predicts to bring p95 within the promise: more "
        "replicas, or fewer requests at a time for each. Taken back when the alert ends.",
        default=None,
    )  # fmt: skip
    plan: Literal["run"] | None = entry("Plan the run's workload again and tell what it would gain.", default=None)
    command: Words | None = entry("A command; {rule}, {value}, {series} and {label.NAME} are filled in.", default=None)
    post: PostEntry | None = entry("A request to a service.", default=None)


class AlertRuleEntry(StrictModel):
    """When something is to be done, and what."""

    name: Word = entry("The key above the entry.")
    when: ConditionEntry = entry("The figure and its limit.")
    for_: Duration = entry(
        "So long without a break before it fires.", default=0.0, shown="at once", alias="for", example="5m"
    )
    do: Annotated[tuple[ActionEntry, ...], BeforeValidator(_listed), Spelled("list of actions")] = entry(
        "What to do, in this order.", default=()
    )
    unless: Names = entry("While one of these rules fires, this one does nothing.", default=())
    quiet: SeveralHours = entry(
        "Hours without notifications; alerts that still fire at their end are sent then.", default=()
    )
    again_after: Duration = entry("An alert that still fires acts again after this.", default=3600.0, shown="1h")
    tries: Count = entry("Actions without effect after which it gives up, and says so.", default=3)
    most_per_day: Count = entry("Actions on one series in 24 hours.", default=24)
    dry_run: Flag = entry("Say what would be done; do nothing.", default=False)
    summary: Text | None = entry("What to tell people.", default=None, shown="the condition")


class ChannelEntry(StrictModel):
    """Where notifications go: exactly one of these keys."""

    name: Word = entry("The key above the entry.")
    webhook: Link | Reference | None = entry("A URL that takes JSON.", default=None)
    slack: Reference | None = entry("An incoming webhook of a chat that speaks as Slack does.", default=None)
    pagerduty: Reference | None = entry("A routing key of the Events API, version 2.", default=None)
    mail: Reference | None = entry("smtp://user:password@host:587?to=me@example.org", default=None)


class ScrapeEntry(StrictModel):
    """A page of figures in the text form of Prometheus."""

    name: Word = entry("The key above the entry: the label `target` of its series.")
    url: Link = entry("Where it is.", example="http://127.0.0.1:8000/metrics")
    bearer: Reference | None = entry("A key to sign in with.", default=None)
    labels: dict[str, Pattern] = entry("Labels added to its series.", default={})


class OtlpEntry(StrictModel):
    """Where every round's figures are sent as OpenTelemetry metrics, by OTLP over HTTP (extra `otel`)."""

    endpoint: Link = entry("The receiver's base URL; `/v1/metrics` is put behind it.", example="http://127.0.0.1:4318")
    headers: dict[str, Reference] = entry("What it asks for, each by reference.", default={})
    service: Word = entry("The `service.name` of the figures.", default="tonnage")


class WatchEntries(StrictModel):
    """A watch file."""

    every: Duration = entry("Time between two rounds.", default=10.0, shown="10s")
    keep: Duration = entry("How long figures are kept.", default=30 * 86_400.0, shown="30d")
    runs: Flag = entry("Look at the runs of this home.", default=True)
    defaults: Flag = entry("Have the default rules too; a rule of the same name takes the place of one.", default=True)
    scrape: Named[ScrapeEntry] = entry("Pages of services, gateways and exporters.", default={})
    plans: Files = entry(
        "Workload files, from this file's folder; planned again when prices change, once a day at most.",
        default=(),
    )  # fmt: skip
    halve_at_85_percent: Flag = entry(
        "The default rule `gpu-memory` halves the micro-batch where a GPU's memory is above 85 % for 5 minutes, also "
        "where it is stable; else it says so alone.",
        default=False,
    )  # fmt: skip
    otlp: OtlpEntry | None = entry("Where figures are sent by OTLP.", default=None)
    channels: Named[ChannelEntry] = entry("Where notifications go.", default={})
    rules: Named[AlertRuleEntry] = entry("What to do when.", default={})
