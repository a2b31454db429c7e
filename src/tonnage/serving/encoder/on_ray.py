"""Encoder servers as replicas of a Ray Serve application: on the machines of a cluster, behind its proxies.

Each replica is the whole encoder server but its socket: batcher, bounds, versions and pages are the same. Its machine
must have this package and the model's folder. Ray picks the shorter queue of two replicas and starts others in their
place when they die.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import InputError, MissingExtra
from tonnage.runs.devices import BUS_ORDER
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

    Raises InputError for a service with a key of its own, which Ray would write down; KeyboardInterrupt where a signal
    came before the replicas took requests: what was deployed until then is taken away.
    """
    if service.key_variable is not None:
        raise InputError("a key of replicas on Ray would stand in its logs", hint="put a gateway with keys before it")
    ray, serve = _ray()
    alone = replace(service, workers=service.workers or 1)  # replicas of one machine do not know of one another

    def build() -> App:
        return build_app(alone)

    passed = {**dict([BUS_ORDER]), **{name: value for name, value in os.environ.items() if name in _PASSED_ON}}
    own: dict[str, Any] = {} if os.environ.get("RAY_ADDRESS") else {
        "include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}  # fmt: skip
    started = deployed = False
    with _interrupted_by_signals() as again:
        try:
            ray.init(log_to_driver=False, logging_level="error", runtime_env={"env_vars": passed}, **own)
            again()  # Ray has put its own handlers, which abort
            where = {"host": service.host, "port": service.port, "access_log": False}
            serve.start(proxy_location="EveryNode", http_options={**where, "request_timeout_s": None})
            started = True
            application = serve.deployment(**deployment_options(alone, replicas))(serve.ingress(build)())
            serve.run(application.bind(), name=service.name, route_prefix="/")
            deployed = True
            where_said = f"http://{service.host}:{service.port}"
            say(f"{where_said} takes requests, on every machine of the cluster that has a replica")
            threading.Event().wait()
        except KeyboardInterrupt:
            if not deployed:
                raise
        finally:
            if started:
                _take_away(serve, service.name, whole=bool(own))
            ray.shutdown()


def _take_away(serve: Any, name: str, *, whole: bool) -> None:
    """End this application; `whole`: all of Ray Serve, where the cluster is this process's own."""
    if whole:
        serve.shutdown()
    else:  # a cluster of others too: their applications stay
        serve.delete(name)


@contextmanager
def _interrupted_by_signals() -> Iterator[Callable[[], None]]:
    """SIGTERM and SIGINT raise KeyboardInterrupt while the block runs. It is given what sets them so once more."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def again() -> None:
        for number in before:
            signal.signal(number, signal.default_int_handler)

    again()
    try:
        yield again
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None: it was not set from Python


def _ray() -> tuple[Any, Any]:
    try:
        import ray
        from ray import serve
    except ImportError as error:
        raise MissingExtra("--on ray", "ray") from error
    return ray, serve
