"""Whether a cluster can hold a run: asked of what `sinfo` answered. Pure.

Slurm itself accepts a job over the partition's time limit, or for nodes it does not have, and lets it wait forever.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tonnage.errors import did_you_mean, nearest
from tonnage.places.contract import PlaceFinding
from tonnage.places.file import SlurmPlace
from tonnage.places.slurm.answers import NodeGroup
from tonnage.units import mib_to_gib


def against(place: SlurmPlace, name: str, groups: Sequence[NodeGroup]) -> Iterator[PlaceFinding]:
    """Every reason why this cluster would refuse the job or let it wait forever."""
    key = f"places.{name}"
    mine = [one for one in groups if (one.default if place.partition is None else one.partition == place.partition)]
    if not mine:
        yield _no_partition(place, key, groups)
        return
    if not any(one.up for one in mine):
        yield _refused(f"the partition {mine[0].partition} is down", "`sinfo -R` says why; name another partition")
    limit = mine[0].limit_minutes
    if limit is not None and place.time_limit_minutes > limit:
        yield _refused(
            f"{place.time_limit_minutes} minutes are over the limit of {mine[0].partition}: {limit:g}; the job would "
            "wait forever",
            f"{key}.time_limit_minutes = {limit:g}: a run goes on after it from its checkpoint",
        )
    yield from _nodes(place, key, mine)


def _no_partition(place: SlurmPlace, key: str, groups: Sequence[NodeGroup]) -> PlaceFinding:
    names = tuple(dict.fromkeys(one.partition for one in groups))
    if place.partition is None:
        return _refused("the cluster has no default partition", f"{key}.partition: one of {', '.join(names)}")
    near = did_you_mean(nearest(place.partition, names), f"partitions: {', '.join(names)}")
    return _refused(f"no partition is named '{place.partition}'", f"{key}.partition: {near}")


def _nodes(place: SlurmPlace, key: str, mine: Sequence[NodeGroup]) -> Iterator[PlaceFinding]:
    """What one node has: each figure alone, then all together."""
    where = mine[0].partition
    types = sorted({kind for one in mine for kind, _ in one.gpus if kind})
    if place.gpus and place.gpu is not None and place.gpu not in types:
        near = did_you_mean(nearest(place.gpu, types), f"types: {', '.join(types) or 'none'}")
        yield _refused(f"no node of {where} has GPUs of the type '{place.gpu}'", f"{key}.gpu: {near}")
        return
    most = max(_gpus(one, place.gpu) for one in mine)
    if place.gpus > most:
        yield _refused(f"a node of {where} has {most} GPUs, {place.gpus} are asked for", f"{key}.gpus = {most}")
    cores, memory_gib = max(one.cores for one in mine), mib_to_gib(max(one.memory_mib for one in mine))
    if place.cores > cores:
        yield _refused(f"a node of {where} has {cores} cores, {place.cores} are asked for", f"{key}.cores = {cores}")
    if place.memory_gib > memory_gib:
        asked = f"{place.memory_gib:g} GiB are asked for"
        yield _refused(f"a node of {where} has {memory_gib:.1f} GiB, {asked}", f"{key}.memory_gib = {memory_gib:.0f}")
    fit = sum(one.nodes for one in mine if _holds(one, place))
    if fit < place.nodes:
        yield _refused(
            f"{fit} nodes of {where} have all that is asked for, {place.nodes} are needed; the job would wait forever",
            f"{key}.nodes = {fit}; `sinfo -p {where} -N -l` lists them",
        )


def _holds(one: NodeGroup, place: SlurmPlace) -> bool:
    enough = one.cores >= place.cores and mib_to_gib(one.memory_mib) >= place.memory_gib
    return enough and _gpus(one, place.gpu) >= place.gpus


def _gpus(one: NodeGroup, kind: str | None) -> int:
    return sum(count for name, count in one.gpus if kind is None or name == kind)


def _refused(message: str, hint: str) -> PlaceFinding:
    return PlaceFinding(kind="refused", message=message, hint=hint)
