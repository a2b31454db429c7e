"""A message when a run ends: to a webhook, by e-mail, or both. A failure is written to the supervisor's log.

TONNAGE_NOTIFY_URL: a POST of JSON goes there; its key `text` is what chat services show.
TONNAGE_NOTIFY_MAIL: smtp://[user:password@]host[:port]?to=ADDRESS[&from=ADDRESS]; smtps:// encrypts from the start,
smtp:// as soon as the server offers it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from tonnage.errors import InputError
from tonnage.monitoring.notifying import post_json, send_mail
from tonnage.runs.folder import RunFolder
from tonnage.runs.liveness import read_heartbeat
from tonnage.runs.states import RunState

URL: Final = "TONNAGE_NOTIFY_URL"
MAIL: Final = "TONNAGE_NOTIFY_MAIL"


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
    """Send the message to each address, independently. Raises the last error, once all were tried."""
    known = os.environ if environ is None else environ
    told, failed = end_of(folder, folder.state()), None
    for name, send in ((URL, post_json), (MAIL, partial(send_mail, what=MAIL))):
        if address := known.get(name):
            try:
                send(address, told)
            except (OSError, InputError) as error:
                failed = error
    if failed is not None:
        raise failed
