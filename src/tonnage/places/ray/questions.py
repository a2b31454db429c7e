"""Whether a Ray cluster can hold a run: asked of its dashboard, which starts nothing for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tonnage.errors import TonnageError
from tonnage.places.contract import PlaceFinding
from tonnage.places.ray.dashboard import RayDashboard, RayRefused
from tonnage.places.ray.place import RayPlace

OLDEST_RAY: Final = (2, 40)
OLDEST_PYTHON: Final = (3, 11)
MOST_NODES: Final = 10_000


def against(name: str, place: RayPlace, dashboard: RayDashboard) -> Iterator[PlaceFinding]:
    """Address and token first; then the versions of Ray and Python, and a node that has what the run takes."""
    try:
        version = dashboard.json("GET", "/api/version")
        cluster = dashboard.json("GET", "/api/v0/cluster_metadata")["data"]
        listed = dashboard.json("GET", f"/api/v0/nodes?detail=1&limit={MOST_NODES}")
        nodes = listed["data"]["result"]["result"]
    except RayRefused as error:
        if error.status != 404:
            yield PlaceFinding(kind="refused", message=error.message, hint=error.hint or "")
            return
        yield _refused(f"{place.address} is not a dashboard of Ray", f"places.{name}.address: http://HEAD:8265")
        return
    except TonnageError as error:
        yield PlaceFinding(kind="refused", message=error.message, hint=error.hint or "")
        return
    yield from against_versions(str(version["ray_version"]), str(cluster["pythonVersion"]))
    yield from against_nodes(name, place, nodes)


def against_versions(ray: str, python: str) -> Iterator[PlaceFinding]:
    """Of what runs there.

    >>> [one.message for one in against_versions("2.60.0", "3.9.18")]
    ['its Python is 3.9.18, 3.11 is needed']
    """
    for what, has, needs in (("Ray", ray, OLDEST_RAY), ("Python", python, OLDEST_PYTHON)):
        if tuple(int(part) for part in has.split(".")[:2] if part.isdigit()) < needs:
            wanted = ".".join(map(str, needs))
            yield _refused(
                f"its {what} is {has}, {wanted} is needed", f"start the cluster with {what} {wanted} or newer"
            )


def against_nodes(name: str, place: RayPlace, nodes: Sequence[Mapping[str, Any]]) -> Iterator[PlaceFinding]:
    """Whether nodes that live have all that the run takes of each; Ray lets a run that waits for more wait forever."""
    living = [one for one in nodes if one["state"] == "ALIVE"]
    bundle = place.bundle
    fits = sum(_has(one, bundle) for one in living)
    if fits >= place.nodes:
        return
    if fits:
        wanted = ", ".join(_said(key, amount) for key, amount in bundle.items())
        needed = f"{place.nodes} nodes with {wanted} are needed"
        yield _waits(
            name, place, f"{needed}, and of its {len(living)} living nodes {fits} {'is' if fits == 1 else 'are'} such"
        )
        return
    lacks = [f"{_said(key, amount)}" for key, amount in bundle.items()
             if not any(one["resources_total"].get(key, 0.0) >= amount for one in living)]  # fmt: skip
    wanted = ", ".join(lacks or (_said(key, amount) for key, amount in bundle.items()))
    together = "" if lacks else " together"
    message = f"none of its {len(living)} living nodes has {wanted}{together}"
    yield _waits(name, place, message)


def _waits(name: str, place: RayPlace, message: str) -> PlaceFinding:
    if place.autoscales:
        return PlaceFinding(kind="doubtful", message=f"{message}: it waits until one comes", hint="`ray status`")
    terms = f"places.{name}: nodes, cores, gpus, gpu, resources"
    hint = f"`ray status` on the head; {terms}; `autoscales = true` waits for one"
    return _refused(f"{message}: it would wait forever", hint)


def _has(node: Mapping[str, Any], bundle: Mapping[str, float]) -> bool:
    return all(node["resources_total"].get(key, 0.0) >= amount for key, amount in bundle.items())


def _said(key: str, amount: float) -> str:
    """As Ray calls it: `GPU: 8`; of a type its name alone."""
    return key if key.startswith("accelerator_type:") else f"{key}: {amount:g}"


def _refused(message: str, hint: str) -> PlaceFinding:
    return PlaceFinding(kind="refused", message=message, hint=hint)
