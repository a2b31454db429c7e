"""Interruption notices of the clouds: a machine asks its metadata service whether it is about to be taken away.

Each cloud is one small poller in a thread of its own; a service that does not answer is asked again later and never
ends the run. The addresses can be replaced by `TONNAGE_AWS_METADATA_URL`, `TONNAGE_GCP_METADATA_URL` and
`TONNAGE_AZURE_METADATA_URL`.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import InputError
from tonnage.values import dataclass

if TYPE_CHECKING:
    import httpx

ANSWER_TIMEOUT_S: Final = 2.0
GCP_NOTICE_S: Final = 30.0  # ACPI shutdown follows the flag: cloud.google.com/compute/docs/instances/preemptible
AZURE_NOTICE_S: Final = 30.0  # Preempt events leave at least this: learn.microsoft.com, scheduled-events


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """The machine will be taken away in `deadline_s`; None: it may be (advice without a date)."""

    source: str
    deadline_s: float | None
    message: str = ""


def poll_aws(client: httpx.Client, now: datetime) -> Notice | None:
    """EC2: spot/instance-action, two minutes ahead; else the rebalance recommendation. With an IMDSv2 token."""
    answer = client.put("/latest/api/token", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"})
    answer.raise_for_status()
    headers = {"X-aws-ec2-metadata-token": answer.text}
    action = client.get("/latest/meta-data/spot/instance-action", headers=headers)
    if action.status_code == 200:
        said = action.json()
        deadline = max(0.0, (_instant(said["time"]) - now).total_seconds())
        return Notice(source="aws", deadline_s=deadline, message=f"instance-action {said.get('action', '')}".strip())
    advice = client.get("/latest/meta-data/events/recommendations/rebalance", headers=headers)
    if advice.status_code == 200:
        return Notice(source="aws-rebalance", deadline_s=None, message="a rebalance is recommended: risk is elevated")
    return None


def poll_gcp(client: httpx.Client, now: datetime) -> Notice | None:  # noqa: ARG001
    """Compute Engine: `instance/preempted` turns TRUE as the ACPI shutdown begins, 30 seconds ahead."""
    answer = client.get("/computeMetadata/v1/instance/preempted", headers={"Metadata-Flavor": "Google"})
    answer.raise_for_status()
    return Notice(source="gcp", deadline_s=GCP_NOTICE_S) if answer.text.strip().upper() == "TRUE" else None


def poll_azure(client: httpx.Client, now: datetime) -> Notice | None:
    """Azure scheduled events: a `Preempt`, 30 seconds ahead or more; `NotBefore` says when, empty once begun."""
    answer = client.get("/metadata/scheduledevents", params={"api-version": "2020-07-01"}, headers={"Metadata": "true"})
    answer.raise_for_status()
    for event in answer.json().get("Events", []):
        if event.get("EventType") == "Preempt":
            begins = event.get("NotBefore")
            deadline = (parsedate_to_datetime(begins) - now).total_seconds() if begins else AZURE_NOTICE_S
            return Notice(source="azure", deadline_s=max(0.0, deadline), message=str(event.get("EventId", "")))
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataService:
    """Where a cloud's metadata service is, how it is asked, and how often its rules want it."""

    url: str
    variable: str
    poll: Callable[[httpx.Client, datetime], Notice | None]
    every_s: float

    @property
    def address(self) -> str:
        return os.environ.get(self.variable) or self.url


_LINK_LOCAL: Final = "http://169.254.169.254"
CLOUDS: Final = {
    "aws": MetadataService(url=_LINK_LOCAL, variable="TONNAGE_AWS_METADATA_URL", poll=poll_aws, every_s=5.0),
    "gcp": MetadataService(
        url="http://metadata.google.internal", variable="TONNAGE_GCP_METADATA_URL", poll=poll_gcp, every_s=1.0
    ),
    "azure": MetadataService(url=_LINK_LOCAL, variable="TONNAGE_AZURE_METADATA_URL", poll=poll_azure, every_s=1.0),
}


def check_clouds(names: Sequence[str]) -> None:
    """InputError for a cloud whose notices cannot be read here."""
    for name in names:
        if name not in CLOUDS:
            raise InputError(f"no notices are known of '{name}'", hint=f"clouds with notices: {', '.join(CLOUDS)}")


class NoticeWatch:
    """Polls the clouds a run names, and keeps what they say until the supervisor takes it."""

    def __init__(self, names: Sequence[str], *, woken: threading.Event) -> None:
        check_clouds(names)
        self._names, self._woken = tuple(names), woken
        self._found: queue.SimpleQueue[Notice] = queue.SimpleQueue()
        self._stopped = threading.Event()

    def start(self) -> None:
        """One thread for each cloud; none where the run names none."""
        for name in self._names:
            threading.Thread(target=self._watch, args=(CLOUDS[name],), name=f"notices-{name}", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def add(self, notice: Notice) -> None:
        """A notice from elsewhere. Safe in a signal handler: it takes no lock."""
        self._found.put(notice)

    def taken(self) -> Iterator[Notice]:
        """What came since the last call."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._found.get_nowait()

    def _watch(self, cloud: MetadataService) -> None:
        import httpx

        said: set[tuple[str, str]] = set()
        with httpx.Client(base_url=cloud.address, timeout=ANSWER_TIMEOUT_S, trust_env=False) as client:
            while not self._stopped.is_set():
                # No answer, or none that can be read, is no notice: the service is asked again.
                with contextlib.suppress(httpx.HTTPError, ValueError, KeyError, TypeError):
                    notice = cloud.poll(client, datetime.now(UTC))
                    if notice is not None and (notice.source, notice.message) not in said:
                        said.add((notice.source, notice.message))
                        self.add(notice)
                        self._woken.set()
                self._stopped.wait(cloud.every_s)


def _instant(text: Any) -> datetime:
    found = datetime.fromisoformat(str(text))
    return found if found.tzinfo else found.replace(tzinfo=UTC)
