"""HashiCorp Vault's key-value engine, version 2, as its API documentation says: GET /v1/MOUNT/data/PATH.

with fake_vault() as vault: ...      # VAULT_ADDR is `vault.url`, VAULT_TOKEN is TOKEN
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from typing import Final

from tonnage.testing.http_service import Asked, Document, Fault, HTTPAnswer, running, server_of

TOKEN: Final = "hvs.test-token"
_DATA: Final = re.compile(r"/v1/([^/]+)/data/(.+)")


class FakeVault:
    """A running server. `secrets`: values by mount and path; `deleted`: paths whose newest version is deleted;
    `denied`: paths that no policy of the token lets it read."""

    def __init__(self) -> None:
        self.secrets: dict[str, Document] = {}
        self.deleted: set[str] = set()
        self.denied: set[str] = set()
        self.before: list[Fault] = []
        self.after: list[Fault] = []
        self.asked: list[Asked] = []
        self.http = server_of(self)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def answer(self, asked: Asked) -> HTTPAnswer:
        """What the server says."""
        found = _DATA.fullmatch(asked.path)
        name = f"{found[1]}/{found[2]}" if found else ""
        if asked.headers.get("x-vault-token") != TOKEN or name in self.denied:
            return HTTPAnswer(status=403, document={"errors": ["1 error occurred:\n\t* permission denied\n\n"]})
        if name in self.deleted:
            metadata = {"deletion_time": "2026-11-20T10:00:00Z", "destroyed": False, "version": 2}
            return HTTPAnswer(status=404, document={"data": {"data": None, "metadata": metadata}})
        if asked.method != "GET" or name not in self.secrets:
            return HTTPAnswer(status=404, document={"errors": []})
        metadata = {"deletion_time": "", "destroyed": False, "version": 1}
        return HTTPAnswer(document={"data": {"data": self.secrets[name], "metadata": metadata}})

    def tick(self) -> None:
        """Nothing happens by itself."""

    def close(self) -> None:
        """Nothing else is running."""


def fake_vault() -> AbstractContextManager[FakeVault]:
    """A running server without secrets."""
    return running(FakeVault())
