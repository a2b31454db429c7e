"""Changes of a late service: which helps, at which cost, by the functions that plans use."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tonnage.api.catalogs import load_catalog
from tonnage.api.inputs import load_workload
from tonnage.errors import InputError
from tonnage.planning.planner import rank_options
from tonnage.planning.service_changes import RunningLayout, ServiceChanges, helpful_changes

EXAMPLES = Path(__file__).parents[2] / "examples"
T4: dict[str, Any] = {"provider": "aws", "instance_type": "g4dn.xlarge", "limit": 256}
FOUR_A10G: dict[str, Any] = {"provider": "aws", "instance_type": "g5.12xlarge", "limit": 256}


def changes(example: str, **given: Any) -> ServiceChanges:
    market = load_catalog()
    now = RunningLayout(**{"replicas": 1, "replicas_per_machine": 1, "tensor_parallel": 1,
                           "usd_per_machine_hour": 0.5, **given})  # fmt: skip
    workload = load_workload(EXAMPLES / f"{example}.tonnage.yaml", catalog=market)
    return helpful_changes(workload, market, now, partial(rank_options, objective="cost"))


def test_one_more_replica_is_the_change_where_one_is_just_too_slow() -> None:
    """Near its most a replica's queue is long: a second one halves the load, and the promise holds."""
    found = changes("serve-gpt2-realtime", rate_per_s=55.0, **T4)
    assert found.now_p95_s is not None
    assert found.now_p95_s.value > found.promised_s == 0.5
    best = found.best
    assert best is not None
    assert (best.kind, best.replicas) == ("replicas", 2)
    assert best.p95_s.value < found.promised_s
    assert (found.now_usd_per_hour, best.usd_per_hour) == (0.5, 1.0)


def test_where_the_replicas_should_do_no_change_is_named() -> None:
    """The plan's own figure keeps the promise: what is slow is something that replicas do not mend."""
    found = changes("serve-gpt2-realtime", rate_per_s=40.0, **T4)
    assert found.enough
    assert found.best is None
    assert found.now_p95_s is not None
    assert found.now_p95_s.value < 0.5


def test_far_beyond_what_they_carry_the_plan_counts_the_replicas() -> None:
    """No figure exists of a queue that grows without end."""
    found = changes("serve-gpt2-realtime", rate_per_s=1000.0, replicas=2, **{**T4, "replicas_per_machine": 1})
    assert found.now_p95_s is None
    assert found.has_queue
    assert found.best is not None
    assert found.best.replicas > 15


def test_fewer_requests_at_a_time_cost_nothing_and_come_first() -> None:
    """At a low rate a large batch is what is slow: a smaller one keeps the promise on the same machine."""
    found = changes("serve-llama-7b-realtime", rate_per_s=1.0, **FOUR_A10G)
    best = found.best
    assert best is not None
    assert (best.kind, best.replicas) == ("limit", 1)
    assert best.limit < 256
    assert best.usd_per_hour == found.now_usd_per_hour
    assert {one.kind for one in found.changes} == {"limit", "layout"}


def test_an_encoder_has_replicas_alone_and_no_queue() -> None:
    """Its plan has the time of a full batch; its server bounds batches by itself."""
    found = changes("serve-bert", rate_per_s=1500.0, provider="gcp", instance_type="g2-standard-4", limit=4)
    assert not found.has_queue
    assert found.now_p95_s is None
    assert [one.kind for one in found.changes] == ["replicas"]
    assert found.changes[0].replicas == 2


def test_what_cannot_be_asked_is_said() -> None:
    """A machine that is not sold any more; a workload without a promise."""
    with pytest.raises(InputError, match="no price of gone"):
        changes("serve-bert", rate_per_s=1.0, provider="aws", instance_type="gone", limit=4)
    with pytest.raises(InputError, match="promises no p95"):
        changes("bert-finetune", rate_per_s=1.0, **T4)
