"""Messages to people: a POST of JSON, a chat, PagerDuty, mail.

A webhook and a chat get a POST of JSON whose key `text` is what chat services show; PagerDuty an event of its Events
API v2 (https://developer.pagerduty.com/docs/events-api-v2/trigger-events/); mail goes by SMTP.
"""

from __future__ import annotations

import smtplib
from collections.abc import Mapping
from email.message import EmailMessage
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from tonnage.errors import InputError
from tonnage.monitoring.alerts.rules import Channel
from tonnage.values import dataclass

TIMEOUT_S: Final = 20.0
TRIES: Final = 3
PAGERDUTY: Final = "https://events.pagerduty.com/v2/enqueue"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertMessage:
    """The message about an alert. `key` is the same for its beginning and its end."""

    text: str
    key: str
    ended: bool
    fields: Mapping[str, Any]


def notify(channel: Channel, message: AlertMessage, *, pagerduty: str = PAGERDUTY) -> None:
    """Send it. OSError where the receiver does not take it, InputError where the address is none."""
    content = {"schema": "tonnage/alert@1", "text": message.text, **message.fields}
    match channel.kind:
        case "webhook":
            post_json(channel.address, content)
        case "slack":
            post_json(channel.address, {"text": message.text})
        case "pagerduty":
            summary = {"summary": message.text[:1024], "source": "tonnage", "severity": "warning"}
            action = "resolve" if message.ended else "trigger"
            post_json(pagerduty, {
                "routing_key": channel.address, "event_action": action, "dedup_key": message.key[:255],
                "payload": {**summary, "custom_details": dict(message.fields)},
            })  # fmt: skip
        case "mail":
            send_mail(channel.address, content, what=f"channels.{channel.name}")


def post_json(url: str, content: Mapping[str, Any]) -> None:
    """The message as JSON, tried three times. OSError where the receiver does not take it, without the
    URL, which may be secret."""
    import httpx

    for left in reversed(range(TRIES)):
        try:
            with httpx.stream("POST", url, json=dict(content), timeout=TIMEOUT_S, follow_redirects=True) as answer:
                answer.raise_for_status()  # its body, which may never end, is not read
        except httpx.HTTPStatusError as error:
            if not left:
                raise OSError(
                    f"the webhook does not take the message: it answers {error.response.status_code}"
                ) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            if not left:
                raise OSError(f"the webhook does not take the message: {error}") from error
        else:
            return


def send_mail(address: str, content: Mapping[str, Any], *, what: str) -> None:
    """The message by SMTP: smtp://[user:password@]host[:port]?to=ADDRESS[&from=ADDRESS]; smtps:// encrypts from the
    start, smtp:// as soon as the server offers it. `what` names the setting in the error."""
    parts = urlsplit(address)
    asked = parse_qs(parts.query)
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname or "to" not in asked:
        raise InputError(f"{what} is not a mail address", hint="smtp://user:password@host:587?to=me@example.org")
    message = EmailMessage()
    message["Subject"] = str(content["text"]).splitlines()[0][:200]
    message["To"] = ", ".join(asked["to"])
    message["From"] = asked.get("from", asked["to"])[0]
    message.set_content("\n".join(f"{name}: {value}" for name, value in content.items() if value is not None))
    server = smtplib.SMTP_SSL if parts.scheme == "smtps" else smtplib.SMTP
    with server(parts.hostname, parts.port or 0, timeout=TIMEOUT_S) as connection:
        connection.ehlo()
        if parts.scheme == "smtp" and connection.has_extn("starttls"):
            connection.starttls()
        if parts.username:
            connection.login(unquote(parts.username), unquote(parts.password or ""))
        connection.send_message(message)
