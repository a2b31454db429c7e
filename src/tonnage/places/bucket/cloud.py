"""What is a cloud's own in carrying a run out: everything else passes through the bucket."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

from tonnage.errors import TonnageError
from tonnage.places.contract import DeclaredGap, PlaceFinding, home_mark, token_of
from tonnage.places.states import JobView
from tonnage.runs.folder import RunFolder
from tonnage.runs.spec import RunSpec
from tonnage.values import dataclass

Body = dict[str, Any]
LABEL_LENGTH: Final = 63  # of Google Cloud
RUN_LENGTH: Final = 36  # of a run's name in a job's


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call of a cloud's API, whole."""

    service: str
    operation: str
    body: Body


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one submission asks of a machine."""

    name: str  # of the job: the run's, home and token, 60 characters at most
    run: str
    token: str
    home: str
    tag: str
    owner: str
    command: tuple[str, ...]  # in the image
    env: Mapping[str, str]
    tags: Mapping[str, str]  # of everything that is made
    max_cost_usd: float | None
    secrets: tuple[str, ...] = ()  # variables that the place's secret has for the run


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedCloudJob:
    """A job of ours as the cloud lists it."""

    job_id: str
    tag: str
    view: JobView


class CloudJobs(Protocol):
    """One place's API. `requests` is pure; `send` alone spends."""

    @property
    def gaps(self) -> tuple[DeclaredGap, ...]: ...

    @property
    def notices(self) -> tuple[str, ...]:
        """The cloud whose notices of interruption a spot machine listens to; empty where SIGTERM is the notice."""

    def questions(self) -> Iterator[PlaceFinding]:
        """Obstacles to runs here, asked of the cloud."""

    def requests(self, work: Work) -> tuple[Request, ...]:
        """The calls that start the work, in their order, the one that spends last. InputError where one is refused."""

    def send(self, requests: tuple[Request, ...], token: str) -> str:
        """Make them, and give the job's id; what an earlier try of the same token has made is taken, not made again."""

    def find(self, token: str) -> str | None:
        """The job of a submission, whoever is alive to remember it."""

    def view(self, job_id: str) -> JobView: ...

    def end(self, job_id: str, token: str) -> None:
        """End it, and remove what only it needed; nothing where it has ended."""

    def tagged(self, home: str) -> list[TaggedCloudJob]:
        """Jobs of a home that live."""


def work_of(
    spec: RunSpec, folder: RunFolder, *, number: int, tag: str, place: str, owner: str, command: tuple[str, ...],
    env: Mapping[str, str], labels: Mapping[str, str], secrets: tuple[str, ...] = (),
) -> Work:  # fmt: skip
    """A submission's work, with the tags that tell it from all others: whose, of which run, how much it may cost."""
    token, home = token_of(folder.path, number), home_mark(folder.path.parent)
    plain = re.sub(r"[^a-z0-9]+", "-", spec.name.lower()).strip("-")[:RUN_LENGTH].strip("-") or "run"
    budget = spec.guard.max_cost_usd
    tags = {
        "tonnage": tag, "tonnage-home": home, "tonnage-token": token, "tonnage-run": spec.name[:200],
        "tonnage-place": place, "tonnage-owner": owner,
        **({} if budget is None else {"tonnage-max-cost-usd": f"{budget:g}"}), **labels,
    }  # fmt: skip
    return Work(
        name=f"t-{plain}-{home}-{token}", run=spec.name, token=token, home=home, tag=tag, owner=owner, command=command,
        env=env, tags=tags, max_cost_usd=budget, secrets=secrets,
    )  # fmt: skip


def refused(message: str, hint: str) -> PlaceFinding:
    return PlaceFinding(kind="refused", message=message, hint=hint)


def unasked(what: str, error: TonnageError) -> PlaceFinding:
    """A question that was refused is reported as refused, never counted as a yes."""
    return PlaceFinding(kind="unchecked", message=f"{what}: {error.message}", hint=error.hint or "")


def google_labels(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags as Google Cloud takes labels: small letters, digits, - and _, 63 of them at most; the first of two that
    become one stays.

    >>> google_labels({"tonnage-run": "BERT base", "Team": "ML"})
    {'tonnage-run': 'bert-base', 'team': 'ml'}
    """
    made: dict[str, str] = {}
    for key, value in tags.items():
        made.setdefault(_label(key), _label(value))
    return made


def _label(text: str) -> str:
    return re.sub(r"[^a-z0-9_-]", "-", text.lower())[:LABEL_LENGTH]


def script_of(requests: tuple[Request, ...]) -> str:
    """All bodies as JSON: what is shown before is what is sent."""
    shown = [{"service": one.service, "operation": one.operation, "body": one.body} for one in requests]
    return json.dumps(shown, indent=2, ensure_ascii=False) + "\n"


def requests_in(script: str) -> tuple[Request, ...]:
    """The requests of such a text."""
    return tuple(Request(**one) for one in json.loads(script))
