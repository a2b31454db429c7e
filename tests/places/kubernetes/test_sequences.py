"""States of a run, from what a real control plane showed: every recorded scenario, step by step."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest
from tests.places.kubernetes.replay import WORKLOADS, ScenarioReplay, read_scenarios

from tonnage.places.kubernetes.answers import view_of

FACTS: Final = os.environ.get("TONNAGE_FACTS")
OK: Final = "queued provisioning running ending ended"
TWICE: Final = "queued provisioning running queued provisioning running ending ended"
# scenario and workload -> its phases in their order, and the last word with its reason
EXPECTED: Final = {
    "insufficient-then-node train": (OK, "Complete CompletionsReached"),
    "preemption low": (
        "queued provisioning running ending queued provisioning running ending ended", "Complete CompletionsReached"),
    "preemption urgent": (OK, "Complete CompletionsReached"),
    "indexed-complete train": (OK, "Complete CompletionsReached"),
    "index-retry train": (OK, "Complete CompletionsReached"),
    "backoff-exhausted train": (OK, "Failed BackoffLimitExceeded"),
    "per-index-backoff train": (OK, "Failed FailedIndexes"),
    "pfp-failjob-42 train": (OK, "Failed PodFailurePolicy"),
    "pfp-ignore-disruption train": (OK, "Complete CompletionsReached"),
    "drain-evict train": (
        "queued provisioning running provisioning running ending ended", "Complete CompletionsReached"),
    "node-lost train": ("queued provisioning running provisioning ending", None),
    "active-deadline train": (OK, "Failed DeadlineExceeded"),
    "suspend-resume train": (TWICE, "Complete CompletionsReached"),
    "delete-foreground train": ("queued provisioning running ending gone", ""),
    "delete-default train": ("queued provisioning running ending gone", ""),
    "ttl train": (f"{OK} gone", ""),
    "no-serviceaccount train": ("queued", None),
    "quota-exceeded train": (OK.replace("running ", ""), "Complete CompletionsReached"),
    "image-pull train": ("queued provisioning gone", ""),
    "success-policy train": (OK, "Complete SuccessPolicy"),
    "kueue-two-in-turn first": (OK, "Complete CompletionsReached"),
    "kueue-two-in-turn second": (OK, "Complete CompletionsReached"),
    "kueue-preempt low": (TWICE, "Complete CompletionsReached"),
    "kueue-preempt high": (OK, "Complete CompletionsReached"),
    "kueue-pods-not-ready stuck": (
        "queued provisioning running queued provisioning running ended",
        "Deactivated DeactivatedDueToRequeuingLimitExceeded"),
    "kueue-inadmissible big": (OK, "Complete CompletionsReached"),
    "kueue-inadmissible lost": ("queued", "Suspended Misconfigured: LocalQueue nosuch doesn't exist"),
    "kueue-job-fails bad": (
        "queued provisioning running queued ending ended", "Failed BackoffLimitExceeded"),
    "jobset-success js": (OK, "Complete AllJobsCompleted"),
    "jobset-restart js": (None, "Complete AllJobsCompleted"),
    "jobset-fail js": (None, "Failed ReachedMaxRestarts"),
    "jobset-rule-fail js": (None, "Failed FailJobSetFailurePolicyAction"),
    "jobset-suspend-ttl js": (f"{OK} gone", ""),
    "kueue-jobset js": (OK, "Complete AllJobsCompleted"),
}  # fmt: skip
# words of Kubernetes itself that a user must meet on the way
SAID: Final = {
    "insufficient-then-node train": "Unschedulable: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu",
    "preemption low": "DisruptionTarget PreemptionByScheduler",
    "drain-evict train": "DisruptionTarget EvictionByEvictionAPI",
    "node-lost train": "DisruptionTarget DeletionByTaintManager",
    "no-serviceaccount train": 'serviceaccount "nope" not found',
    "quota-exceeded train": "exceeded quota",
    "image-pull train": "ImagePullBackOff",
    "kueue-inadmissible big": "ExceedsMaxQuota: couldn't assign flavors",
}


def followed() -> dict[str, tuple[str, str, str]]:
    """Of each workload: its phases, its last word and reason, every reason on the way."""
    found = {}
    for name, scenario in read_scenarios(Path(FACTS or "")).items():
        replay = ScenarioReplay(scenario)
        names = [(one["kind"], one["metadata"]["name"]) for one in scenario["submitted"] if one["kind"] in WORKLOADS]
        phases: dict[str, list[str]] = {}
        said: dict[str, list[str]] = {}
        last: dict[str, str] = {}
        for _ in replay.steps():
            for kind, workload in names:
                job, pods, events, queued = replay.of(kind, workload)
                if job is None and workload not in phases:
                    continue  # not submitted yet
                view = view_of(job, pods, events, queued)
                way = phases.setdefault(workload, [])
                if way[-1:] != [view.phase.value] and (way, view.phase.value) != (["queued", "provisioning"], "queued"):
                    way.append(view.phase.value)
                said.setdefault(workload, []).append(view.reason)
                last[workload] = f"{view.word} {view.reason}".strip()
        found |= {f"{name} {one}": (" ".join(phases[one]), last[one], "\n".join(said[one])) for one in phases}
    return found


@pytest.mark.skipif(FACTS is None, reason="TONNAGE_FACTS names no folder of fact tables")
def test_every_recorded_scenario() -> None:
    """The phases of each in their order, its end with the cluster's own reason, and what it said on the way."""
    found = followed()
    assert set(found) == set(EXPECTED)
    for name, (phases, end) in EXPECTED.items():
        way, last, said = found[name]
        if phases is not None:
            assert way == phases, name
        if end is not None:
            assert last.startswith(end) if end else last == "", name
        assert SAID.get(name, "") in said, name
    for name in ("jobset-restart js", "jobset-fail js", "jobset-rule-fail js"):  # attempts follow one another
        assert found[name][0].startswith("queued provisioning running ending")
