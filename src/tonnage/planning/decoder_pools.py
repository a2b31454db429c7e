"""Fleets of two pools, one that reads prompts and one that writes answers: how many replicas of each a rate takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tonnage.planning.decoder_detail import decoder_detail
from tonnage.planning.decoder_table import DecoderTable
from tonnage.planning.fleets import machines_for, replicas_for
from tonnage.planning.plan import RunDetail
from tonnage.planning.reasons.changes import FewerPoolReplicas, LongerPromises, SetPools
from tonnage.planning.reasons.misses import Miss, PoolLinkMiss, PoolPromiseMiss, PoolSizesMiss
from tonnage.planning.reasons.notes import PoolLoadNote
from tonnage.planning.sized import IntArray
from tonnage.sizing.decoder_seen import SeenLoad
from tonnage.sizing.estimates import Array, distinct
from tonnage.sizing.promises import LatencyLimits
from tonnage.sizing.serving_pools import PoolRates, most_rates, pool_rates, seen_in_pools
from tonnage.values import dataclass
from tonnage.workload.expert_layouts import POOLED_ENGINES
from tonnage.workload.jobs import ServeJob


def wants_pools(job: ServeJob) -> bool:
    """Whether two pools are tried: both of their promises are made and no other, on an engine that has them."""
    if job.prefill_replicas is not None:
        return job.prefill_replicas > 0
    both = job.p95_ttft_s is not None and job.p95_tpot_s is not None and job.p95_latency_s is None
    fixed = job.replicas is not None or job.batch is not None
    return both and not fixed and job.model.architecture == "decoder" and (job.engine or "vllm") in POOLED_ENGINES


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """Candidates: rows of a table, and for each what its pools carry and how many replicas of each it has."""

    table: DecoderTable
    row: IntArray
    carried: PoolRates  # of each kind of replica
    used: float  # of what a replica carries, at most
    spare: int

    @property
    def job(self) -> ServeJob:
        assert isinstance(self.table.job, ServeJob)
        return self.table.job

    def counts(self, factor: Array | float = 1.0) -> tuple[Array, Array]:
        """Replicas of either pool if one carries 1/factor of what is predicted; those that the job fixes."""
        kind, rate = self.table.kind[self.row], self.job.rate_per_s
        if self.job.prefill_replicas is not None and self.job.decode_replicas is not None:
            fixed = (self.job.prefill_replicas, self.job.decode_replicas)
            return np.full(len(kind), float(fixed[0])), np.full(len(kind), float(fixed[1]))
        each = (self.carried.prefill_per_s[kind], self.carried.decode_per_s[kind])
        prefill, decode = (replicas_for(rate, one / factor, used=self.used, spare=self.spare) for one in each)
        return prefill, decode

    def nodes(self, factor: Array | float = 1.0) -> Array:
        prefill, decode = self.counts(factor)
        return machines_for(prefill + decode, self.table.per_node[self.row])

    @property
    def enough(self) -> np.ndarray:
        """Rows whose pools carry the rate and keep their promises."""
        kind = self.table.kind[self.row]
        prefill, decode = self.counts()
        carries = np.minimum(prefill * self.carried.prefill_per_s[kind], decode * self.carried.decode_per_s[kind])
        return np.asarray(self.carried.kept[kind] & (carries >= self.job.rate_per_s))

    def seen(self, some: IntArray) -> SeenLoad:
        """What requests see on some candidates at the rate that each replica gets, a row a candidate."""
        prefill, decode = (count[some] for count in self.counts())
        curves = self.table.curves.take(self.table.kind[self.row[some]])
        rate = self.job.rate_per_s
        return seen_in_pools(curves, rate / prefill, rate / decode, one_machine=self.nodes()[some] == 1)

    def detail(self, index: int, seen: SeenLoad) -> RunDetail:
        """The breakdown of one candidate; `seen`: on it alone, a single row."""
        row = int(self.row[index])
        kind = int(self.table.kind[row])
        prefill, decode = (int(count[index]) for count in self.counts())
        nodes = int(self.nodes()[index])
        each = (float(self.carried.prefill_per_s[kind]), float(self.carried.decode_per_s[kind]))
        carries = (prefill * each[0], decode * each[1])
        rate, capacity = self.job.rate_per_s, min(carries)
        note = PoolLoadNote(
            prefill_fraction=rate / carries[0], decode_fraction=rate / carries[1], planned_fraction=self.used
        )
        return decoder_detail(
            self.table, row, seen, nodes=nodes, replicas=prefill + decode, requests_per_s=capacity, notes=(note,),
            promise="ttft", pools=((prefill, each[0]), (decode, each[1])), utilisation=rate / capacity,
        )  # fmt: skip


def pooled(table: DecoderTable, limits: LatencyLimits, nodes: Array, *, used: float, spare: int) -> Pools:
    """Candidates of two pools: every row that fits, on machines with several devices. `nodes`: machines that each row
    takes without pools; where a bound on two pools is no less than the fewest of them, none are searched."""
    rows = np.flatnonzero(table.fits & (table.devices.per_node > 1))
    within = ~table.networked
    best = _carried(table, distinct(table.kind[rows]), lambda some: most_rates(table.curves.take(some)))
    bound = Pools(table=table, row=rows, carried=best, used=used, spare=spare)
    if bound.job.prefill_replicas is None:
        fewest = np.full(int(table.machine.max(initial=0)) + 1, np.inf)
        np.fmin.at(fewest, table.machine, nodes)
        rows = rows[bound.nodes() < fewest[table.machine[rows]]]
    kinds = distinct(table.kind[rows])
    carried = _carried(
        table, kinds, lambda some: pool_rates(table.curves.take(some), limits.take(some), one_machine=within[some])
    )
    found = Pools(table=table, row=rows, carried=carried, used=used, spare=spare)
    placed = found.enough & (~within[table.kind[rows]] | (found.nodes() <= 1))
    return replace(found, row=rows[placed])


def _carried(table: DecoderTable, kinds: IntArray, rates: Callable[[IntArray], PoolRates]) -> PoolRates:
    """`rates` of some kinds, in columns over all of them."""
    count = len(table.curves.batches)
    none = PoolRates(prefill_per_s=np.full(count, np.nan), decode_per_s=np.full(count, np.nan),
                     kept=np.zeros(count, dtype=bool))  # fmt: skip
    if len(kinds):
        some = rates(kinds)
        for name in ("prefill_per_s", "decode_per_s", "kept"):
            getattr(none, name)[kinds] = getattr(some, name)
    return none


def pool_miss(table: DecoderTable, pools: Pools, rows: Sequence[int]) -> Miss:
    """Why pools of the stated sizes do not do: the sizes that would, on the row that needs the fewest replicas."""
    job = pools.job
    kind = table.kind[list(rows)]
    if not bool(np.any(table.networked[kind])) and (job.prefill_replicas or 0) + (job.decode_replicas or 0) > int(
        np.max(table.per_node[list(rows)])
    ):
        return PoolLinkMiss(lifted_by=(FewerPoolReplicas(replicas=int(np.max(table.per_node[list(rows)]))),))
    each = (pools.carried.prefill_per_s[kind], pools.carried.decode_per_s[kind])
    needed = [np.ceil(job.rate_per_s / np.maximum(carries, 1e-12)) for carries in each]
    best = int(np.argmin(needed[0] + needed[1]))
    if not bool(pools.carried.kept[kind[best]]):
        return PoolPromiseMiss(
            given_prefill_replicas=job.prefill_replicas,
            given_decode_replicas=job.decode_replicas,
            lifted_by=(LongerPromises(),),
        )
    prefill, decode = int(needed[0][best]), int(needed[1][best])
    return PoolSizesMiss(
        needed_prefill_replicas=prefill,
        needed_decode_replicas=decode,
        given_prefill_replicas=job.prefill_replicas,
        given_decode_replicas=job.decode_replicas,
        rate_per_s=job.rate_per_s,
        lifted_by=(SetPools(prefill_replicas=prefill, decode_replicas=decode),),
    )
