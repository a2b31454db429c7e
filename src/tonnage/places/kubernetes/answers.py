"""What a cluster shows of a run's job, as one state: Job, JobSet, TrainJob or RayJob, its pods, its events. Pure.

Success and failure of a Job come in two conditions: SuccessCriteriaMet then Complete, FailureTarget then Failed. The
second is the end. A Job whose pods cannot be made is without a condition: only its events say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tonnage.places.states import JobView, Phase

Document = Mapping[str, Any]
DEACTIVATED: Final = "Deactivated"
INDEX: Final = "batch.kubernetes.io/job-completion-index"
ENDS: Final = {"Complete": "Complete", "Completed": "Complete", "Failed": "Failed"}
ENDING: Final = ("SuccessCriteriaMet", "FailureTarget")
RAY_ENDS: Final = {"SUCCEEDED": "Complete", "FAILED": "Failed", "STOPPED": "Failed"}


def view_of(
    job: Document | None, pods: Sequence[Document], events: Sequence[Document], workload: Document | None = None
) -> JobView:
    """`pods` and `events` are those of this job; events in the order of their time. `workload`: Kueue's."""
    if job is None:
        return JobView(phase=Phase.GONE)
    name = job["metadata"]["name"]
    first = newest(pods)
    ended = _end(job)
    if ended is not None:
        word, reason = ended
        return JobView(phase=Phase.ENDED, job_id=name, word=word, reason=_why(first, reason), nodes=_nodes(pods),
                       exit_code=exit_code(first))  # fmt: skip
    if job["metadata"].get("deletionTimestamp"):
        return JobView(phase=Phase.ENDING, job_id=name, word="Terminating", nodes=_nodes(pods))
    for kind in ENDING:
        if (met := _condition(job, kind)) is not None:
            reason = _why(first, str(met.get("reason") or ""))
            return JobView(phase=Phase.ENDING, job_id=name, word=kind, reason=reason, nodes=_nodes(pods))
    if _suspended(job):
        word, reason = _in_queue(workload)
        phase = Phase.ENDED if word == DEACTIVATED else Phase.QUEUED
        return JobView(phase=phase, job_id=name, word=word, reason=reason)
    wanted = int((job.get("spec") or {}).get("parallelism") or 1)
    phase, word, reason = _by_pods(first, pods, events, wanted)
    return JobView(phase=phase, job_id=name, word=word, reason=reason, nodes=_nodes(pods), exit_code=exit_code(first))


def newest(pods: Sequence[Document]) -> Document | None:
    """The newest pod of the first index: where the run is looked after."""
    firsts = [one for one in pods if _labels(one).get(INDEX, "0") == "0"]
    return max(firsts, key=lambda one: str(one["metadata"].get("creationTimestamp") or ""), default=None)


def newest_of_each(pods: Sequence[Document]) -> list[tuple[str, Document]]:
    """The newest pod of each index; the first index last, whose pod tells of the run's end."""
    found: dict[str, Document] = {}
    for one in sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp") or "")):
        found[_labels(one).get(INDEX, "0")] = one
    return sorted(found.items(), key=lambda item: int(item[0]), reverse=True)


def _labels(pod: Document) -> Mapping[str, str]:
    return pod["metadata"].get("labels") or {}


def _end(job: Document) -> tuple[str, str] | None:
    """(word, reason) of an end; None while there is none."""
    status = job.get("status") or {}
    if status.get("jobDeploymentStatus") in {"Complete", "Failed"} or status.get("jobStatus") in RAY_ENDS:
        word = RAY_ENDS.get(status.get("jobStatus") or "FAILED", "Failed")
        return word, str(status.get("reason") or status.get("message") or "")
    for kind, word in ENDS.items():
        if (met := _condition(job, kind)) is not None:
            return word, str(met.get("reason") or "")
    if status.get("terminalState"):
        return ENDS.get(status["terminalState"], "Failed"), ""
    return None


def _condition(given: Document, kind: str) -> Document | None:
    """A condition that holds: one with the status False stays for the rest of an object's life."""
    for one in (given.get("status") or {}).get("conditions") or ():
        if one["type"] == kind and one["status"] == "True":
            found: Document = one
            return found
    return None


def _suspended(job: Document) -> bool:
    return bool((job.get("spec") or {}).get("suspend")) or _condition(job, "Suspended") is not None


def _in_queue(workload: Document | None) -> tuple[str, str]:
    """(word, reason) of Kueue. A workload that is no longer active is not tried again, and its Job never fails."""
    if workload is None:
        return "Suspended", ""
    conditions = {one["type"]: one for one in (workload.get("status") or {}).get("conditions") or ()}
    for kind, status in (("Evicted", "True"), ("QuotaReserved", "False")):
        met = conditions.get(kind)
        if met is not None and met["status"] == status:
            word = "Suspended" if workload["spec"].get("active", True) else DEACTIVATED
            return word, f"{met.get('reason', '')}: {met.get('message', '')}"
    return "Suspended", ""


def _by_pods(
    first: Document | None, pods: Sequence[Document], events: Sequence[Document], wanted: int
) -> tuple[Phase, str, str]:
    """The same of several pods: they work together, so that one that waits, or is not there, holds all."""
    phase, word, reason = _by_pod(first, events)
    if phase is not Phase.RUNNING:
        return phase, word, reason
    newest_of: dict[str, Document] = {}
    for one in sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp") or "")):
        newest_of[_labels(one).get(INDEX, str(one["metadata"].get("name")))] = one
    waiting = [one for one in newest_of.values() if _waits(one)]
    wanted = max(wanted, len(newest_of))
    if not waiting and len(newest_of) == wanted:
        return phase, word, reason
    _, _, why = _by_pod(waiting[0] if waiting else None, events)
    return Phase.PROVISIONING, f"{len(newest_of) - len(waiting)} of {wanted} pods", why


def _waits(pod: Document) -> bool:
    """Whether a pod is not there yet, or goes: of a lost node it is so until the node comes back or is removed."""
    going = pod["metadata"].get("deletionTimestamp") is not None
    return going or (pod.get("status") or {}).get("phase", "Pending") == "Pending"


def _by_pod(pod: Document | None, events: Sequence[Document]) -> tuple[Phase, str, str]:
    """(phase, word, reason) of a job whose conditions say nothing."""
    if pod is None:
        refused = [one for one in events if one.get("reason") == "FailedCreate"]
        return Phase.QUEUED, "no pods", _last(refused) if refused else ""
    state = str((pod.get("status") or {}).get("phase") or "Pending")
    if pod["metadata"].get("deletionTimestamp"):
        return (Phase.QUEUED if state == "Pending" else Phase.ENDING), "Terminating", _why(pod, "")
    if state == "Running":
        return Phase.RUNNING, "Running", _why(pod, "")
    if state == "Pending":
        return _pending(pod)
    if state == "Succeeded":
        return Phase.ENDING, f"pod {state}", ""
    return Phase.QUEUED, f"pod {state}", _why(pod, "")  # its replacement comes


def _pending(pod: Document) -> tuple[Phase, str, str]:
    for one in pod["status"].get("conditions") or ():
        if one["type"] == "PodScheduled" and one["status"] == "False":
            said = f"{one.get('reason', '')}: {one['message']}" if one.get("message") else str(one.get("reason") or "")
            return Phase.QUEUED, "Pending", said
    for one in pod["status"].get("containerStatuses") or ():
        waits = (one.get("state") or {}).get("waiting") or {}
        if waits.get("reason"):
            more = f": {waits['message']}" if waits.get("message") else ""
            return Phase.PROVISIONING, "Pending", f"{waits['reason']}{more}"
    scheduled = any(one["type"] == "PodScheduled" for one in pod["status"].get("conditions") or ())
    return (Phase.PROVISIONING if scheduled or pod["spec"].get("nodeName") else Phase.QUEUED), "Pending", ""


def _why(pod: Document | None, reason: str) -> str:
    """Kubernetes' own reasons of a pod's end beside the job's: OOMKilled, Evicted, DisruptionTarget."""
    if pod is None:
        return reason
    found = [reason] if reason else []
    status = pod.get("status") or {}
    if status.get("reason"):
        found.append(str(status["reason"]))
    for one in status.get("containerStatuses") or ():
        ended = (one.get("state") or {}).get("terminated") or {}
        if ended.get("reason") and ended["reason"] not in {"Completed", "Error"}:
            found.append(str(ended["reason"]))
    met = _condition(pod, "DisruptionTarget")
    if met is not None:
        found.append(f"DisruptionTarget {met.get('reason', '')}".strip())
    return ", ".join(dict.fromkeys(found))


def exit_code(pod: Document | None) -> int | None:
    """Of the container, where it has ended."""
    for one in ((pod or {}).get("status") or {}).get("containerStatuses") or ():
        ended = (one.get("state") or {}).get("terminated")
        if ended is not None:
            code: int | None = ended.get("exitCode")
            return code
    return None


def _nodes(pods: Sequence[Document]) -> str:
    names = {one["spec"].get("nodeName") for one in pods if (one.get("status") or {}).get("phase") == "Running"}
    return ",".join(sorted(name for name in names if name))


def _last(events: Sequence[Document]) -> str:
    return str(events[-1].get("message") or events[-1].get("note") or "") if events else ""
