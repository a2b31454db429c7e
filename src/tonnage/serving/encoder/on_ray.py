"""Encoder servers as replicas of a Ray Serve application: on the machines of a cluster, behind its proxies.

Each replica is the whole encoder server but its socket: batcher, bounds, versions and pages are the same. Its machine
must have this package and the model's folder. Ray picks the shorter queue of two replicas and starts others in their
place when they die.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import InputError, MissingExtra
from tonnage.serving.encoder.building import build_app
from tonnage.serving.encoder.service import EncoderService
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.serving.encoder.app import App

_PASSED_ON: Final = ("PYTHONPATH",)  # no secret: Ray would write it down
OBJECT_STORE_BYTES: Final = 128 << 20  # of a cluster that this process starts; requests are not kept in it


@dataclass(frozen=True, slots=True, kw_only=True)
class RayReplicas:
    """How many, and what each has. `gpus`: devices of each; `slots`: requests that it gets at once."""

    least: int
    most: int
    slots: int
    gpus: int


def deployment_options(service: EncoderService, replicas: RayReplicas) -> dict[str, Any]:
    """The arguments of `serve.deployment`: a fixed number of replicas, or Ray's own rule between two numbers, which
    aims at full slots."""
    cores = (service.workers or 1) * service.threads
    actor = {"num_cpus": cores, **({"num_gpus": replicas.gpus} if replicas.gpus else {})}
    found: dict[str, Any] = {"name": service.name, "max_ongoing_requests": replicas.slots, "ray_actor_options": actor}
    if replicas.least == replicas.most:
        return {**found, "num_replicas": replicas.most}
    scaling = {"min_replicas": replicas.least, "max_replicas": replicas.most,
               "target_ongoing_requests": replicas.slots}  # fmt: skip
    return {**found, "autoscaling_config": scaling}


def serve_on_ray(service: EncoderService, replicas: RayReplicas, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT. RAY_ADDRESS names a cluster; else one is started on this machine and ends with
    this process.

    Raises InputError for a service with a key of its own, which Ray would write down.
    """
    if service.key_variable is not None:
        raise InputError("a key of replicas on Ray would stand in its logs", hint="put a gateway with keys before it")
    ray, serve = _ray()
    alone = replace(service, workers=service.workers or 1)  # replicas of one machine do not know of one another

    def build() -> App:
        return build_app(alone)

    passed = {name: value for name, value in os.environ.items() if name in _PASSED_ON}
    own: dict[str, Any] = {} if os.environ.get("RAY_ADDRESS") else {
        "include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}  # fmt: skip
    ray.init(log_to_driver=False, logging_level="error", runtime_env={"env_vars": passed}, **own)
    ended = _end_signals()  # after Ray's own handlers, which abort
    try:
        where = {"host": service.host, "port": service.port, "access_log": False}
        serve.start(proxy_location="EveryNode", http_options={**where, "request_timeout_s": None})
        application = serve.deployment(**deployment_options(alone, replicas))(serve.ingress(build)())
        serve.run(application.bind(), name=service.name, route_prefix="/")
        say(f"http://{service.host}:{service.port} takes requests, on every machine of the cluster that has a replica")
        ended.wait()
        if own:
            serve.shutdown()
        else:  # a cluster of others too: their applications stay
            serve.delete(service.name)
    finally:
        ray.shutdown()


def _end_signals() -> threading.Event:
    """Set by SIGTERM and SIGINT."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    return ended


def _ray() -> tuple[Any, Any]:
    try:
        import ray
        from ray import serve
    except ImportError as error:
        raise MissingExtra("--on ray", "ray") from error
    return ray, serve
