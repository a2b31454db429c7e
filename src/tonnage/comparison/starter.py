"""A compare file to start from: what is compared, for which work and team; the rest is explained in comments."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.errors import InputError, did_you_mean, nearest
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StarterWork:
    """A workload file and how often its job runs a month; None: a service."""

    file: str
    jobs_per_month: float | None


def parse_work(text: str) -> StarterWork:
    """`FILE` for a service, `FILE:JOBS` for a job that runs so often a month.

    >>> parse_work("tune.tonnage.yaml:12"), parse_work("serve.tonnage.yaml").jobs_per_month
    (StarterWork(file='tune.tonnage.yaml', jobs_per_month=12.0), None)
    """
    file, colon, jobs = text.rpartition(":")
    if not colon:
        return StarterWork(file=text, jobs_per_month=None)
    try:
        number = float(jobs)
    except ValueError:
        number = -1.0
    if number <= 0 or not file:
        raise InputError(f"'{text}' does not end with jobs a month", hint="--workload tune.tonnage.yaml:12")
    return StarterWork(file=file, jobs_per_month=number)


def check_names(names: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Two or more names of profiles, each once. InputError with the nearest name."""
    for name in names:
        if name not in known:
            hint = did_you_mean(nearest(name, known, count=1), f"known: {', '.join(known)}")
            raise InputError(f"no platform profile is named '{name}'", hint=hint)
    found = tuple(dict.fromkeys(names))
    if len(found) < 2:
        raise InputError("a comparison needs two alternatives", hint="--compare databricks --compare bedrock")
    return found


def render_starter(
    *,
    title: str,
    names: Sequence[str],
    works: Sequence[StarterWork],
    today: str | None = None,
    usd_per_hour: float | None = None,
    employees: int | None = None,
    team_size: int | None = None,
    compliance: Sequence[str] = (),
) -> str:
    """The text of the file. `today`: where the work runs now, None: nowhere yet."""
    stated = {"employees": employees, "team_size": team_size, "usd_per_hour": usd_per_hour}
    people = [f"{key}: {value:g}" for key, value in stated.items() if value is not None]
    people += [f"compliance: [{', '.join(compliance)}]"] if compliance else []
    lines = [
        "# What is compared for which work. docs/compare.md lists every key. Try: tonnage compare FILE",
        "kind: compare",
        f"title: {_quoted(title)}",
        "compare:      # profiles, or one narrowed: {name: h100, profile: self-managed-gcp, gpus: [H100]}",
        *(f"  - {name}" for name in names),
        "workloads:    # jobs say how often they run a month; a service's own file holds its rate",
        *(f"  - {_work(one)}" for one in works),
        "# Who decides. Without usd_per_hour neither people nor moving are counted.",
        f"organisation: {{{', '.join(people)}}}" if people else "# organisation: {team_size: 6, usd_per_hour: 100}",
        "rules: computed-cost",
        "# What one point (of 1 to 5) of a judged criterion is worth to you, if anything; weights break ties alone.",
        "# worth: {data_control: 500 USD/month}",
    ]
    if today is not None:
        target = next(name for name in names if name != today)
        lines += [
            "# Where the work runs today: only a move that pays for itself within the horizon is recommended.",
            f"migration: {{from: {today}, to: {target}, people: 2}}",
        ]
    else:
        lines.append("# migration: {from: where-it-runs-today, to: another, people: 2}")
    return "\n".join(lines) + "\n"


def _work(work: StarterWork) -> str:
    jobs = "" if work.jobs_per_month is None else f", jobs_per_month: {work.jobs_per_month:g}"
    return f"{{file: {_quoted(work.file)}{jobs}}}"


def _quoted(text: str) -> str:
    """As YAML, whatever it holds."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'
