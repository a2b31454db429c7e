"""The report on a run as JSON."""

from __future__ import annotations

from typing import Any, Final

from tonnage.reports.plain import plain_instant, plain_number, plain_usd
from tonnage.reports.run_figures import measured_document
from tonnage.runs.diagnosis import Compared
from tonnage.runs.states import RunState
from tonnage.runs.summary import RunSummary

SCHEMA: Final = "tonnage/run-report@1"


def run_document(run: RunSummary) -> dict[str, Any]:
    """`tonnage/run-report@1`."""
    spec, training = run.records.spec, run.records.spec.training
    prediction = run.records.prediction
    return {
        "schema": SCHEMA,
        "name": run.name,
        "folder": run.folder,
        **_state_document(run.state),
        "asked": {
            "task": spec.task, "model": spec.model, "weights": spec.weights, "method": training.method,
            "precision": training.precision, "global_batch": training.global_batch, "micro_batch": training.micro_batch,
            "epochs": training.epochs, "max_steps": training.max_steps, "runner": spec.launch.runner,
            "processes": spec.launch.processes,
        },
        "predicted_for": prediction.get("device"),
        "why_not_predicted": prediction.get("why_none"),
        "figures": [_compared_document(one) for one in run.compared],
        "why": list(run.why),
        "measured": measured_document(run.measured),
        "loss": [[plain_number(step), plain_number(loss)] for step, loss in run.loss],
        "metrics": {name: _number(value) for name, value in run.metrics.items()},
        "baseline": {name: _number(value) for name, value in run.baseline.items()},
        "events": [
            {"at": event.at.isoformat(), "who": event.who, "kind": event.kind.value, **event.fields}
            for event in run.records.events
        ],
        "spend": [
            {"session": one.number, "starts": one.attempts, "started_at": plain_instant(one.started_at),
             "ended_at": None if one.ended_at is None else plain_instant(one.ended_at),
             "held_s": plain_number(one.seconds), "usd_per_hour": one.usd_per_hour,
             "billing_quantum_s": plain_number(run.records.spec.guard.billing_quantum_s),
             "cost_usd": None if one.usd is None else plain_usd(one.usd)}
            for one in run.sessions
        ],
        "checkpoints": [
            {"step": one.step, "path": one.path, "size_bytes": one.bytes, "written_in_s": plain_number(one.seconds),
             "kept": one.there}
            for one in run.checkpoints
        ],
        "artifacts": [{"what": one.what, "path": one.path, "size_bytes": one.bytes} for one in run.artifacts],
    }  # fmt: skip


def _number(value: Any) -> Any:
    return plain_number(value) if isinstance(value, int | float) else value


def _state_document(state: RunState) -> dict[str, Any]:
    instants = {name: getattr(state, name) for name in ("submitted_at", "started_at", "ended_at")}
    return {
        "state": state.state.value,
        "reason": state.reason.value if state.reason else None,
        "message": state.message,
        **{name: None if at is None else plain_instant(at) for name, at in instants.items()},
        "starts": state.attempt,
        "step": state.step,
        "total_steps": state.total_steps,
        "lost_steps": state.lost_steps,
        "checkpoint_step": state.checkpoint_step,
    }


def _compared_document(one: Compared) -> dict[str, Any]:
    predicted = {"value": one.predicted, "low": one.low, "high": one.high}
    return {
        "figure": one.key,
        "predicted": {name: plain_number(value) for name, value in predicted.items()} | {"basis": one.basis},
        "measured": plain_number(one.measured),
        "inside": one.inside,
        "off_fraction": plain_number(one.off_fraction),
        "read_as": one.read_as,
    }
