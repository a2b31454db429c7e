"""An existing balancer before the replicas of a service: nginx or Envoy, configured to do what `Balancer` and
`ReplicaApp` do.

The least loaded replica gets a request; who did not answer gets no more for a while, and what it left goes to another
one as long as nothing of an answer was sent; streams pass piece by piece. nginx has no queue of its own: requests wait
in the engines. Neither reads bodies, so neither keeps prefixes together.
"""

from __future__ import annotations

import math
from typing import Any, Final

import yaml

from tonnage.errors import InputError
from tonnage.serving.replicas.app import LARGEST_BODY_BYTES, TRIES
from tonnage.serving.replicas.balancer import BREAK_AFTER, BREAK_S
from tonnage.serving.replicas.replica_set import HEALTH_EVERY_S, UNHEALTHY_LOOKS
from tonnage.values import dataclass

NGINX_FILE: Final = "nginx.conf"
ENVOY_FILE: Final = "envoy.yaml"
CONNECT_S: Final = 5
LONGEST_S: Final = 3600  # of one answer, streams too
_TYPES: Final = "type.googleapis.com/envoy."
Document = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxiedService:
    """The settings of a proxy. `backends`: HOST:PORT of each replica; a name stands for all addresses that it has."""

    name: str
    backends: tuple[str, ...]
    slots: int
    health: str
    host: str = "127.0.0.1"
    port: int = 8000
    most_waiting: int = 1000
    longest_wait_s: float = 300.0

    @property
    def inside(self) -> int:
        """Requests that replicas work on and that wait, at most."""
        return self.slots * len(self.backends) + self.most_waiting


def split_backend(text: str) -> tuple[str, int]:
    """HOST:PORT, `[::1]:8000` too; InputError for anything else.

    >>> split_backend("chat.default.svc:8000")
    ('chat.default.svc', 8000)
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536 or set(host) & set(" /;{}\"'"):
        raise InputError(f"'{text}' is not an address of a replica", hint="--backend HOST:PORT")
    return host.strip("[]"), int(port)


def render_nginx(service: ProxiedService) -> str:
    """A whole `nginx.conf` (1.13 and newer), checked by `nginx -t -c FILE`."""
    servers = "\n".join(
        f"        server {_nginx_address(one)} max_fails={BREAK_AFTER} fail_timeout={BREAK_S:g}s;"
        for one in service.backends
    )
    return f"""\
pid nginx.pid;
worker_processes auto;
events {{
    worker_connections {max(1024, 4 * service.inside)};
}}
http {{
    access_log off;
    limit_conn_zone $server_name zone=inside:1m;
    upstream {service.name} {{
        zone {service.name} 256k;
        least_conn;
{servers}
        keepalive {service.slots * len(service.backends)};
    }}
    server {{
        listen {_nginx_address(f"{service.host}:{service.port}")};
        server_name {service.name};
        client_max_body_size {LARGEST_BODY_BYTES >> 20}m;
        limit_conn inside {service.inside};
        limit_conn_status 429;
        location / {{
            proxy_pass http://{service.name};
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
            proxy_request_buffering on;
            proxy_buffering off;
            proxy_connect_timeout {CONNECT_S}s;
            proxy_read_timeout {LONGEST_S}s;
            proxy_next_upstream error non_idempotent;
            proxy_next_upstream_tries {TRIES};
        }}
    }}
}}
"""


def _nginx_address(text: str) -> str:
    host, port = split_backend(text)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def render_envoy(service: ProxiedService) -> str:
    """A whole bootstrap file of Envoy (API v3): `envoy -c FILE`."""
    return yaml.safe_dump(envoy_document(service), sort_keys=False, width=110)


def envoy_document(service: ProxiedService) -> Document:
    """The bootstrap as JSON values, every field of envoy.config.bootstrap.v3.Bootstrap."""
    manager = {
        "@type": f"{_TYPES}extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": service.name,
        "stream_idle_timeout": f"{math.ceil(service.longest_wait_s) + LONGEST_S}s",
        "route_config": {"virtual_hosts": [{"name": service.name, "domains": ["*"], "routes": [_route(service)]}]},
        "http_filters": [
            {"name": "envoy.filters.http.buffer", "typed_config": {
                "@type": f"{_TYPES}extensions.filters.http.buffer.v3.Buffer",
                "max_request_bytes": LARGEST_BODY_BYTES}},
            {"name": "envoy.filters.http.router", "typed_config": {
                "@type": f"{_TYPES}extensions.filters.http.router.v3.Router"}},
        ],
    }  # fmt: skip
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    listener = {"name": service.name, "address": _address(service.host, service.port),
                "filter_chains": [{"filters": filters}]}  # fmt: skip
    return {"static_resources": {"listeners": [listener], "clusters": [_cluster(service)]}}


def _route(service: ProxiedService) -> Document:
    """`reset`: the replica went before the head of its answer; the body that was held is sent again."""
    retry = {
        "retry_on": "connect-failure,refused-stream,reset", "num_retries": TRIES - 1,
        "retry_host_predicate": [{"name": "envoy.retry_host_predicates.previous_hosts", "typed_config": {
            "@type": f"{_TYPES}extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"}}],
        "host_selection_retry_max_attempts": TRIES,
    }  # fmt: skip
    return {"match": {"prefix": "/"}, "route": {"cluster": service.name, "timeout": "0s", "retry_policy": retry}}


def _cluster(service: ProxiedService) -> Document:
    """Connections are the slots and requests without one wait in the pool: one request at a time on each (HTTP/1.1)."""
    busy = service.slots * len(service.backends)
    endpoints = [{"endpoint": {"address": _address(*split_backend(one))}} for one in service.backends]
    limits = {"max_connections": busy, "max_pending_requests": service.most_waiting,
              "max_requests": service.inside, "max_retries": busy}  # fmt: skip
    health = {
        "timeout": "10s", "interval": f"{HEALTH_EVERY_S:g}s", "unhealthy_threshold": UNHEALTHY_LOOKS,
        "healthy_threshold": 1, "no_traffic_interval": f"{HEALTH_EVERY_S:g}s",
        "http_health_check": {"path": service.health},
    }  # fmt: skip
    ejection = {
        "split_external_local_origin_errors": True, "consecutive_local_origin_failure": BREAK_AFTER,
        "enforcing_consecutive_5xx": 0, "enforcing_success_rate": 0, "enforcing_local_origin_success_rate": 0,
        "base_ejection_time": f"{BREAK_S:g}s", "max_ejection_time": f"{BREAK_S:g}s", "interval": "1s",
        "max_ejection_percent": 100,
    }  # fmt: skip
    return {
        "name": service.name, "type": "STRICT_DNS", "connect_timeout": f"{CONNECT_S}s", "lb_policy": "LEAST_REQUEST",
        "circuit_breakers": {"thresholds": [limits]}, "health_checks": [health], "outlier_detection": ejection,
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "load_assignment": {"cluster_name": service.name, "endpoints": [{"lb_endpoints": endpoints}]},
    }  # fmt: skip


def _address(host: str, port: int) -> Document:
    return {"socket_address": {"address": host, "port_value": port}}
