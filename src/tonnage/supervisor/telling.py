"""A message when a run ends: to a webhook, by e-mail, or both. What fails is told in the supervisor's log.

TONNAGE_NOTIFY_URL: a POST of JSON goes there; its key `text` is what chat services show.
TONNAGE_NOTIFY_MAIL: smtp://[user:password@]host[:port]?to=ADDRESS[&from=ADDRESS]; smtps:// encrypts from the start,
smtp:// as soon as the server offers it.
"""

from __future__ import annotations

import os
import smtplib
from collections.abc import Mapping
from email.message import EmailMessage
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from tonnage.errors import InputError
from tonnage.runs.folder import RunFolder
from tonnage.runs.liveness import read_heartbeat
from tonnage.runs.states import RunState

URL: Final = "TONNAGE_NOTIFY_URL"
MAIL: Final = "TONNAGE_NOTIFY_MAIL"
TIMEOUT_S: Final = 20.0
TRIES: Final = 3


def end_of(folder: RunFolder, state: RunState) -> dict[str, Any]:
    """What is said of an ended run."""
    beat = read_heartbeat(folder)
    why = f" ({state.reason.value})" if state.reason else ""
    step = f"step {state.step:,}" + (f" of {state.total_steps:,}" if state.total_steps else "")
    said = f": {state.message}" if state.message else ""
    return {
        "schema": "tonnage/run-ended@1",
        "text": f"tonnage: {folder.path.name} {state.state.value}{why} at {step}{said}",
        "run": folder.path.name,
        "state": state.state.value,
        "reason": state.reason.value if state.reason else None,
        "message": state.message,
        "step": state.step,
        "total_steps": state.total_steps,
        "ended_at": state.ended_at.isoformat() if state.ended_at else None,
        "held_s": None if beat is None else round(beat.held_s, 1),
        "spent_usd": None if beat is None else beat.spent_usd,
    }


def tell_end(folder: RunFolder, environ: Mapping[str, str] | None = None) -> None:
    """Send the message to whoever is named, each by itself. Raises the last error, once all were tried."""
    known = os.environ if environ is None else environ
    told, failed = end_of(folder, folder.state()), None
    for name, send in ((URL, post), (MAIL, mail)):
        if address := known.get(name):
            try:
                send(address, told)
            except (OSError, InputError) as error:
                failed = error
    if failed is not None:
        raise failed


def post(url: str, told: Mapping[str, Any]) -> None:
    """The message as JSON, tried three times. OSError where nobody takes it."""
    import httpx

    for left in reversed(range(TRIES)):
        try:
            httpx.post(url, json=dict(told), timeout=TIMEOUT_S, follow_redirects=True).raise_for_status()
        except httpx.HTTPError as error:
            if not left:
                raise OSError(f"the webhook does not take the message: {error}") from error
        else:
            return


def mail(address: str, told: Mapping[str, Any]) -> None:
    """The message by SMTP."""
    parts = urlsplit(address)
    asked = parse_qs(parts.query)
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname or "to" not in asked:
        raise InputError(f"{MAIL} is no address of mail", hint="smtp://user:password@host:587?to=me@example.org")
    message = EmailMessage()
    message["Subject"] = str(told["text"]).splitlines()[0][:200]
    message["To"] = ", ".join(asked["to"])
    message["From"] = asked.get("from", asked["to"])[0]
    message.set_content("\n".join(f"{name}: {value}" for name, value in told.items() if value is not None))
    server = smtplib.SMTP_SSL if parts.scheme == "smtps" else smtplib.SMTP
    with server(parts.hostname, parts.port or 0, timeout=TIMEOUT_S) as connection:
        connection.ehlo()
        if parts.scheme == "smtp" and connection.has_extn("starttls"):
            connection.starttls()
        if parts.username:
            connection.login(unquote(parts.username), unquote(parts.password or ""))
        connection.send_message(message)
