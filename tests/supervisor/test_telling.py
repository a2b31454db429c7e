"""The message of a run's end: to a webhook and by mail, each by itself."""

from __future__ import annotations

import json
import smtplib
import threading
from collections.abc import Iterator
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tonnage.errors import InputError
from tonnage.runs import RunFolder
from tonnage.supervisor.reporting import tell_end
from tonnage.testing import write_run


class Hook(BaseHTTPRequestHandler):
    """Refuses the first call, then takes what comes."""

    taken: ClassVar[list[dict[str, Any]]] = []
    calls: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.calls.append(self.path)
        if len(self.calls) > 1:
            self.taken.append(json.loads(content))
        self.send_response(200 if len(self.calls) > 1 else 503)  # last: whoever has the answer looks at what came
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


class Post:
    """What an SMTP server is to a client."""

    sent: ClassVar[list[EmailMessage]] = []
    said: ClassVar[list[tuple[Any, ...]]] = []

    def __init__(self, host: str, port: int, timeout: float) -> None:
        self.said.append(("connect", host, port, timeout > 0))

    def __enter__(self) -> Post:
        return self

    def __exit__(self, *_: object) -> None: ...

    def ehlo(self) -> None: ...

    def has_extn(self, name: str) -> bool:
        return name == "starttls"

    def starttls(self) -> None:
        self.said.append(("starttls",))

    def login(self, user: str, password: str) -> None:
        self.said.append(("login", user, password))

    def send_message(self, message: EmailMessage) -> None:
        self.sent.append(message)


@pytest.fixture
def hook() -> Iterator[str]:
    Hook.taken.clear()
    Hook.calls.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook"
    server.shutdown()
    server.server_close()


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return write_run(tmp_path / "run")


def test_a_webhook_gets_the_end(folder: RunFolder, hook: str) -> None:
    """As JSON with a text for people, tried again where the service is busy."""
    tell_end(folder, {"TONNAGE_NOTIFY_URL": hook})
    (told,) = Hook.taken
    assert (told["run"], told["state"], told["step"]) == ("run", "succeeded", 100)
    assert told["text"].startswith("tonnage: run succeeded at step 100")


def test_mail(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Encrypted where the server offers it, before the password is said."""
    monkeypatch.setattr(smtplib, "SMTP", Post)
    tell_end(folder, {"TONNAGE_NOTIFY_MAIL": "smtp://me:p%40w@mail.example:587?to=a@x.org&to=b@x.org"})
    assert Post.said == [("connect", "mail.example", 587, True), ("starttls",), ("login", "me", "p@w")]
    (message,) = Post.sent
    assert (message["To"], message["From"]) == ("a@x.org, b@x.org", "a@x.org")
    assert message["Subject"].startswith("tonnage: run succeeded")
    assert "state: succeeded" in message.get_content()


def test_one_that_fails_does_not_silence_the_other(folder: RunFolder, hook: str) -> None:
    """A bad address of mail is told, the webhook is called all the same; nobody named is nobody told."""
    with pytest.raises(InputError, match="not a mail address"):
        tell_end(folder, {"TONNAGE_NOTIFY_URL": hook, "TONNAGE_NOTIFY_MAIL": "me@example.org"})
    assert len(Hook.taken) == 1
    tell_end(folder, {})
