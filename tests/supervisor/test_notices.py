"""Interruption notices of the clouds, played by a server of the test's own."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tonnage.errors import InputError
from tonnage.runs import EventKind, RunReason, RunStatus
from tonnage.runs.spec import LaunchSpec
from tonnage.supervisor.notices import CLOUDS, Notice, NoticeWatch, check_clouds

from .conftest import Bench


class Metadata(BaseHTTPRequestHandler):
    """The metadata services of three clouds at one address; `answers` says what is about to happen."""

    answers: dict[str, tuple[int, str]]
    token = "a-token"

    def do_PUT(self) -> None:
        if self.path == "/latest/api/token" and self.headers["X-aws-ec2-metadata-token-ttl-seconds"]:
            self._answer(200, self.token)
        else:
            self._answer(400, "")

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path.startswith("/latest/") and self.headers["X-aws-ec2-metadata-token"] != self.token:
            self._answer(401, "IMDSv2 only")
        elif path.startswith("/computeMetadata/") and self.headers["Metadata-Flavor"] != "Google":
            self._answer(403, "")
        elif path == "/metadata/scheduledevents" and self.headers["Metadata"] != "true":
            self._answer(400, "")
        else:
            self._answer(*self.answers.get(path, (404, "")))

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


QUIET = {
    "/computeMetadata/v1/instance/preempted": (200, "FALSE"),
    "/metadata/scheduledevents": (200, '{"Events": [{"EventType": "Reboot", "NotBefore": ""}]}'),
}
Cloud = Callable[..., None]


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Cloud]]:
    """The server's address, and a way to say what it answers."""
    handler = type("Handler", (Metadata,), {"answers": dict(QUIET)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    for cloud in CLOUDS.values():
        monkeypatch.setenv(cloud.variable, url)

    def answer(path: str, status: int, text: str) -> None:
        handler.answers[path] = (status, text)

    yield url, answer
    server.shutdown()
    thread.join()
    server.server_close()


def announce(answer: Cloud, cloud: str, seconds: float) -> None:
    """Let a cloud say that it takes the machine away."""
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    if cloud == "aws":
        said = {"action": "terminate", "time": at.strftime("%Y-%m-%dT%H:%M:%SZ")}
        answer("/latest/meta-data/spot/instance-action", 200, json.dumps(said))
    elif cloud == "gcp":
        answer("/computeMetadata/v1/instance/preempted", 200, "TRUE")
    else:
        event = {"EventType": "Preempt", "EventId": "e1", "NotBefore": format_datetime(at, usegmt=True)}
        answer("/metadata/scheduledevents", 200, json.dumps({"Events": [event]}))


def poll(cloud: str) -> Notice | None:
    import httpx

    with httpx.Client(base_url=CLOUDS[cloud].address, trust_env=False) as client:
        return CLOUDS[cloud].poll(client, datetime.now(UTC))


@pytest.mark.parametrize(("cloud", "low", "high"), [("aws", 115, 120), ("gcp", 30, 30), ("azure", 115, 120)])
def test_each_cloud_is_understood(metadata: tuple[str, Cloud], cloud: str, low: float, high: float) -> None:
    """Nothing while all is quiet; then the notice with the seconds that are left (GCP always leaves thirty)."""
    assert poll(cloud) is None
    announce(metadata[1], cloud, 120)
    notice = poll(cloud)
    assert notice is not None
    assert notice.deadline_s is not None
    assert low <= notice.deadline_s <= high


def test_a_rebalance_is_advice(metadata: tuple[str, Cloud]) -> None:
    """EC2's recommendation names no date: noted, nothing is stopped for it."""
    metadata[1]("/latest/meta-data/events/recommendations/rebalance", 200, '{"noticeTime": "2026-01-02T12:00:00Z"}')
    notice = poll("aws")
    assert notice is not None
    assert (notice.source, notice.deadline_s) == ("aws-rebalance", None)


NO_DATE = '{"Events": [{"EventType": "Preempt", "NotBefore": "x"}]}'


@pytest.mark.parametrize("answer", [(500, "oops"), (200, "{not json"), (200, NO_DATE)])
def test_a_service_that_stammers_is_asked_again(metadata: tuple[str, Cloud], answer: tuple[int, str]) -> None:
    """Errors and rubbish are no notice, and the next good answer is heard."""
    woken = threading.Event()
    metadata[1]("/metadata/scheduledevents", *answer)
    watch = NoticeWatch(("azure",), woken=woken)
    watch.start()
    assert not woken.wait(0.2)
    announce(metadata[1], "azure", 60)
    assert woken.wait(30)
    assert [notice.source for notice in watch.taken()] == ["azure"]
    watch.stop()


def test_unknown_clouds_are_refused() -> None:
    """The hint lists those there are."""
    with pytest.raises(InputError) as refused:
        check_clouds(["oracle"])
    assert "aws, gcp, azure" in (refused.value.hint or "")


@pytest.mark.parametrize(
    "cloud", ["gcp", pytest.param("aws", marks=pytest.mark.slow), pytest.param("azure", marks=pytest.mark.slow)]
)
def test_a_notice_saves_the_run_in_time(
    metadata: tuple[str, Cloud], make_bench: Callable[..., Bench], cloud: str
) -> None:
    """Noted, saved and verified before the deadline; the run is stopped as preempted."""
    bench = make_bench(launch=LaunchSpec(notices=(cloud,)))
    bench.environment[CLOUDS[cloud].variable] = metadata[0]
    bench.start(steps=100_000)
    bench.until_step(4)
    announced = time.monotonic()
    announce(metadata[1], cloud, 30)
    bench.until(bench.is_quiet)
    assert time.monotonic() - announced < 30, bench.words()
    state = bench.folder.state()
    assert (state.state, state.reason) == (RunStatus.STOPPED, RunReason.PREEMPTED), bench.words()
    assert state.message.startswith("saved step")
    assert state.message.endswith("verified")
    notice = next(event for event in bench.folder.events() if event.kind is EventKind.NOTICE)
    assert notice.fields["source"] == cloud


@pytest.mark.slow
def test_a_worker_too_slow_for_the_notice(metadata: tuple[str, Cloud], make_bench: Callable[..., Bench]) -> None:
    """It does not save in time: killed before the machine goes, with the older checkpoint named as what is left."""
    bench = make_bench(launch=LaunchSpec(notices=("azure",)))
    bench.environment[CLOUDS["azure"].variable] = metadata[0]
    bench.start(steps=100, hang_at=7)
    bench.until_step(6)
    announce(metadata[1], "azure", 5)
    bench.until(bench.is_quiet)
    state = bench.folder.state()
    assert (state.state, state.reason) == (RunStatus.STOPPED, RunReason.PREEMPTED), bench.words()
    assert "nothing was saved after the request; step 5 is the newest" in state.message
