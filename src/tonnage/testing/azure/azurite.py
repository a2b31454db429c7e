"""Azurite, the vendor's own emulator of Blob Storage: `npm install -g azurite`, or TONNAGE_AZURITE names the program.

with azurite(folder) as environ: ...      # the variables of a client that it signs in by a SAS token
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from tonnage.testing.slurm import free_ports

ACCOUNT: Final = "account"
KEY: Final = base64.b64encode(b"a key of the emulator alone").decode()
VERSION: Final = "2021-12-02"  # of the SAS
START_S: Final = 30.0


def azurite_program() -> str | None:
    """Where the emulator is; None where it is not installed."""
    return os.environ.get("TONNAGE_AZURITE") or shutil.which("azurite-blob")


def account_sas() -> str:
    """A SAS token of the account, for an hour: «Create an account SAS», the text that is signed."""
    parts = {"sv": VERSION, "ss": "b", "srt": "sco", "st": "", "se": "2099-01-01T00:00:00Z", "sp": "rwdlac", "sip": "",
             "spr": "https,http"}  # fmt: skip
    order = ("sp", "ss", "srt", "st", "se", "sip", "spr", "sv")
    text = "\n".join([ACCOUNT, *(parts[name] for name in order), "", ""])
    signature = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    return urlencode({name: value for name, value in parts.items() if value}
                     | {"sig": base64.b64encode(signature).decode()})  # fmt: skip


@contextmanager
def azurite(folder: Path) -> Iterator[dict[str, str]]:
    """The emulator, with an empty container `runs`. AssertionError where it does not answer in time."""
    import httpx

    program, [port] = azurite_program(), free_ports(1)
    assert program is not None
    folder.mkdir(parents=True, exist_ok=True)
    words = [program, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder), "--silent",
             "--disableTelemetry"]  # fmt: skip
    env = {**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}
    process = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    root, sas = f"http://127.0.0.1:{port}/{ACCOUNT}", account_sas()
    try:
        until = time.monotonic() + START_S
        while True:
            assert process.poll() is None, f"{program} ended with {process.poll()}"
            try:
                made = httpx.put(f"{root}/runs?restype=container&{sas}", headers={"x-ms-version": VERSION},
                                 trust_env=False)  # fmt: skip
                assert made.status_code == 201, made.text
                break
            except httpx.TransportError:
                assert time.monotonic() < until, "azurite does not answer"
                time.sleep(0.1)
        yield {"AZURE_STORAGE_SERVICE_ENDPOINT": root, "AZURE_STORAGE_SAS_TOKEN": sas, "NO_PROXY": "127.0.0.1"}
    finally:
        process.terminate()
        process.wait(20)
