"""`tonnage compliance`."""

from __future__ import annotations

from tonnage import api
from tonnage.cli.declared import ReportSession


def compliance(*, session: ReportSession) -> None:
    """Say what is true of this installation, from its state: access, audit, backups, encryption, secrets, retention.

    The questions are those of SOC 2, ISO 27001 and GDPR that software can answer; unknown is unknown. `-o md` and
    `-o json` are for those who ask.
    """
    session.show_answer(api.compliance(settings=session.settings))
