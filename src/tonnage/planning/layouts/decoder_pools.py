"""Fleets of two pools, one that reads prompts and one that writes answers: how many replicas of each a rate takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tonnage.planning.layouts.decoder_detail import decoder_detail
from tonnage.planning.layouts.decoder_table import DecoderTable
from tonnage.planning.layouts.fleets import machines_for, replicas_for
from tonnage.planning.plan import RunDetail
from tonnage.planning.reasons.changes import FewerPoolReplicas, LongerPromises, SetPools
from tonnage.planning.reasons.misses import Miss, PoolLinkMiss, PoolPromiseMiss, PoolSizesMiss
from tonnage.planning.reasons.notes import PoolLoadNote
from tonnage.planning.sized import IntArray, group_numbers
from tonnage.sizing.decoder_seen import SeenLoad
from tonnage.sizing.estimates import Array
from tonnage.sizing.promises import LatencyLimits
from tonnage.sizing.serving_pools import PoolRates, link_bytes_per_s, most_rates, pool_rates, seen_in_pools
from tonnage.values import dataclass
from tonnage.workload.jobs import ServeJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """Candidates: rows of a table, and for each what its pools carry and how many replicas of each it has."""

    table: DecoderTable
    row: IntArray
    carried: PoolRates  # of replicas on each row of the table
    used: float  # of what a replica carries, at most
    spare: int

    @property
    def job(self) -> ServeJob:
        assert isinstance(self.table.job, ServeJob)
        return self.table.job

    def counts(self, factor: Array | float = 1.0) -> tuple[Array, Array]:
        """Replicas of either pool if one carries 1/factor of what is predicted; those that the job fixes."""
        if self.job.prefill_replicas is not None and self.job.decode_replicas is not None:
            fixed = (self.job.prefill_replicas, self.job.decode_replicas)
            return np.full(len(self.row), float(fixed[0])), np.full(len(self.row), float(fixed[1]))
        each = (self.carried.prefill_per_s[self.row], self.carried.decode_per_s[self.row])
        rate = self.job.rate_per_s
        prefill, decode = (replicas_for(rate, one / factor, used=self.used, spare=self.spare) for one in each)
        return prefill, decode

    def nodes(self, factor: Array | float = 1.0) -> Array:
        prefill, decode = self.counts(factor)
        return machines_for(prefill + decode, self.table.per_node[self.row])

    @property
    def enough(self) -> np.ndarray:
        """Rows whose pools carry the rate and keep their promises."""
        (prefill, decode), carried = self.counts(), self.carried
        carries = np.minimum(prefill * carried.prefill_per_s[self.row], decode * carried.decode_per_s[self.row])
        return np.asarray(carried.kept[self.row] & (carries >= self.job.rate_per_s))

    def seen(self, some: IntArray) -> SeenLoad:
        """What requests see on some candidates at the rate that each replica gets, a row a candidate."""
        prefill, decode = (count[some] for count in self.counts())
        rows, rate = self.row[some], self.job.rate_per_s
        link = link_bytes_per_s(self.table.devices.take(rows), self.nodes()[some] == 1)
        return seen_in_pools(self.table.curves.take(self.table.kind[rows]), rate / prefill, rate / decode, link)

    def detail(self, index: int, seen: SeenLoad) -> RunDetail:
        """The breakdown of one candidate; `seen`: on it alone, a single row."""
        row = int(self.row[index])
        prefill, decode = (int(count[index]) for count in self.counts())
        nodes = int(self.nodes()[index])
        each = (float(self.carried.prefill_per_s[row]), float(self.carried.decode_per_s[row]))
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
    alone = ~table.networked
    kinds, of_kind = _alike(table.kind[rows])
    best = _carried(table, rows, lambda: most_rates(table.curves.take(table.kind[rows[kinds]])), of_kind)
    bound = Pools(table=table, row=rows, carried=best, used=used, spare=spare)
    if bound.job.prefill_replicas is None:
        fewest = np.full(int(table.machine.max(initial=0)) + 1, np.inf)
        np.fmin.at(fewest, table.machine, nodes)
        rows = rows[bound.nodes() < fewest[table.machine[rows]]]
    link = link_bytes_per_s(table.devices.take(rows), alone[rows])
    firsts, of_first = _alike(table.kind[rows], link)
    searched = table.kind[rows[firsts]]
    carried = _carried(
        table, rows, lambda: pool_rates(table.curves.take(searched), limits.take(searched), link[firsts]), of_first
    )
    found = Pools(table=table, row=rows, carried=carried, used=used, spare=spare)
    placed = found.enough & (~alone[rows] | (found.nodes() <= 1))
    return replace(found, row=rows[placed])


def _carried(table: DecoderTable, rows: IntArray, rates: Callable[[], PoolRates], taken: IntArray) -> PoolRates:
    """`rates`, of which each of `rows` has the one at `taken`, in columns over all rows of the table."""
    count = len(table.kind)
    none = PoolRates(prefill_per_s=np.full(count, np.nan), decode_per_s=np.full(count, np.nan),
                     kept=np.zeros(count, dtype=bool))  # fmt: skip
    if len(rows):
        some = rates()
        for name in ("prefill_per_s", "decode_per_s", "kept"):
            getattr(none, name)[rows] = getattr(some, name)[taken]
    return none


def _alike(*columns: Array | IntArray) -> tuple[IntArray, IntArray]:
    """(the first place of each distinct row of the columns, for each place the number of its distinct row)."""
    number = group_numbers(*columns)
    return np.unique(number, return_index=True)[1].astype(np.intp), number.astype(np.intp)


def pool_miss(table: DecoderTable, pools: Pools, rows: Sequence[int]) -> Miss:
    """Why pools of the stated sizes do not do: the sizes that would, on the row that needs the fewest replicas."""
    job = pools.job
    some = np.array(rows, dtype=np.intp)
    if not bool(np.any(table.networked[some])) and (job.prefill_replicas or 0) + (job.decode_replicas or 0) > int(
        np.max(table.per_node[some])
    ):
        return PoolLinkMiss(lifted_by=(FewerPoolReplicas(replicas=int(np.max(table.per_node[some]))),))
    each = (pools.carried.prefill_per_s[some], pools.carried.decode_per_s[some])
    needed = [np.ceil(job.rate_per_s / np.maximum(carries, 1e-12)) for carries in each]
    best = int(np.argmin(needed[0] + needed[1]))
    if not bool(pools.carried.kept[some[best]]):
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
