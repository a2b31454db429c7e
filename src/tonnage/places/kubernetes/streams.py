"""Commands in a pod: the API's exec over a WebSocket, subprotocol v5.channel.k8s.io.

Source: https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.36/ (connect, pods/exec) and KEP-4006.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from tonnage.errors import MissingExtra
from tonnage.places.kubernetes.client import ApiError, KubernetesClient, Unreachable, tls
from tonnage.places.kubernetes.pod_template import CONTAINER

PROTOCOL: Final = "v5.channel.k8s.io"
STDOUT, STDERR, STATUS = 1, 2, 3
OPEN_TIMEOUT_S: Final = 20.0


def run_in_pod(
    client: KubernetesClient,
    pod: str,
    argv: Sequence[str],
    *,
    out: Callable[[bytes], object],
    err: Callable[[bytes], object],
) -> int:
    """Run a command beside the run; its exit code. `pod` is the pod's path in the API. ApiError, Unreachable."""
    try:
        from websockets.exceptions import InvalidStatus, WebSocketException
        from websockets.sync.client import connect
        from websockets.typing import Subprotocol
    except ImportError as error:
        raise MissingExtra("commands in a pod", "kubernetes") from error
    words = [("container", CONTAINER), ("stdout", "true"), ("stderr", "true"), *(("command", one) for one in argv)]
    context = tls(client.cluster, client.signed)
    address = f"ws{client.cluster.server.removeprefix('http')}{pod}/exec?{urlencode(words)}"
    try:
        with connect(
            address, subprotocols=[Subprotocol(PROTOCOL)], additional_headers=_headers(client), max_size=None,
            ssl=None if isinstance(context, bool) else context, open_timeout=OPEN_TIMEOUT_S, compression=None,
        ) as socket:  # fmt: skip
            for message in socket:
                block = message.encode() if isinstance(message, str) else message
                channel, rest = block[0], block[1:]
                if channel == STATUS:
                    return _exit_code(json.loads(rest))
                (out if channel == STDOUT else err)(rest)
    except InvalidStatus as error:
        code = error.response.status_code
        said = error.response.body.decode(errors="replace")[:200] if error.response.body else ""
        raise ApiError(code, "", f"the API server refuses exec: {code} {said}".strip(),
                       hint="create on pods/exec is the right it takes") from error  # fmt: skip
    except (WebSocketException, OSError, TimeoutError) as error:
        raise Unreachable(f"the connection to the pod broke: {error}", hint="ask again") from error
    raise Unreachable("the connection to the pod ended without an exit code", hint="ask again")


def _headers(client: KubernetesClient) -> dict[str, str]:
    signed = client.signed
    if signed.token:
        return {"Authorization": f"Bearer {signed.token}"}
    if signed.basic:
        return {"Authorization": "Basic " + base64.b64encode(":".join(signed.basic).encode()).decode()}
    return {}


def _exit_code(status: dict[str, Any]) -> int:
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise ApiError(500, str(status.get("reason") or ""), str(status.get("message") or "the command was not started"),
                   hint="`tonnage show` says whether its pod runs")  # fmt: skip
