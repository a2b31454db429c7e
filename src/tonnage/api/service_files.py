"""The files that put an existing balancer before a planned service: `tonnage.write_service_files`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tonnage.api.serving import ServeOptions, slots_of
from tonnage.errors import InputError
from tonnage.files import save_for_user

if TYPE_CHECKING:
    from tonnage.serving.replicas.proxy_files import ProxiedService
    from tonnage.serving.report import PlannedReplica


def write_service_files(planned: PlannedReplica, options: ServeOptions) -> tuple[str, ...]:
    """Write `nginx.conf`, `envoy.yaml` and `kserve.yaml` to the folder `options.files`; what was written, and which
    file was not and why.

    As many replicas as the plan has, or the most of `options.replicas`. Raises InputError for what is no folder, and
    for an invalid address of a replica.
    """
    from tonnage.serving.engines.kserve_file import KSERVE_FILE
    from tonnage.serving.replicas.proxy_files import ENVOY_FILE, NGINX_FILE, render_envoy, render_nginx

    folder = Path(options.files or ".")
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder", hint="make it first, or name another --files")
    proxied = _proxied(planned, options)
    texts = {NGINX_FILE: render_nginx(proxied), ENVOY_FILE: render_envoy(proxied)}
    said = []
    try:
        texts[KSERVE_FILE] = _cluster_file(planned, options)
    except InputError as error:
        said.append(f"{KSERVE_FILE} is not written: {error}")
    for name, text in texts.items():
        save_for_user(folder / name, text, hint="name another --files")
        said.append(f"wrote {folder / name}")
    return tuple(said)


def _replicas(planned: PlannedReplica, options: ServeOptions) -> tuple[int, int]:
    if options.replicas is not None:
        return options.replicas
    layout = {} if planned.option is None else dict(planned.option.run.layout_fields)
    return (count := int(layout.get("replicas", 1))), count


def _proxied(planned: PlannedReplica, options: ServeOptions) -> ProxiedService:
    from tonnage.serving.engines.kserve_file import cluster_name
    from tonnage.serving.replicas.proxy_files import ProxiedService, split_backend

    _, most = _replicas(planned, options)
    backends = options.backends or tuple(f"127.0.0.1:{options.port + number}" for number in range(1, most + 1))
    for one in backends:
        split_backend(one)
    return ProxiedService(
        name=cluster_name(planned.folder.name), backends=backends, slots=slots_of(planned, options),
        health=planned.command.health, host=options.host, port=options.port, most_waiting=options.queue,
    )  # fmt: skip


def _cluster_file(planned: PlannedReplica, options: ServeOptions) -> str:
    from tonnage.serving.engines.kserve_file import ClusterReplicas

    if planned.cluster_file is None:
        raise InputError(f"{planned.command.engine} has no image", hint="build one with pip install 'tonnage[serve]'")
    least, most = _replicas(planned, options)
    replicas = ClusterReplicas(
        name=planned.folder.name, least=least, most=most, slots=slots_of(planned, options),
        gpus=planned.devices, ready_timeout_s=options.ready_timeout_s, api_key=options.api_key,
    )  # fmt: skip
    return planned.cluster_file(replicas)
