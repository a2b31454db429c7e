"""Where this machine reaches what listens."""

from __future__ import annotations

from typing import Final

_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


def local_url(host: str, port: int) -> str:
    """Where this machine reaches what listens so."""
    host = _EVERYWHERE.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{host}:{port}"
