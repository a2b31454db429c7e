"""The report on a run as JSON."""

from __future__ import annotations

from typing import Any, Final

from tonnage.reports.listing import field_values
from tonnage.reports.plain import plain_instant, plain_number
from tonnage.reports.run_fields import ARTIFACTS, CHECKPOINTS, session_fields
from tonnage.reports.run_figures import measured_document
from tonnage.runs.diagnosis import ComparedFigure
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
        "spend": [field_values(session_fields(run.records.spec.guard.billing_quantum_s), one) for one in run.sessions],
        "checkpoints": [field_values(CHECKPOINTS, one) for one in run.checkpoints],
        "artifacts": [field_values(ARTIFACTS, one) for one in run.artifacts],
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


def _compared_document(one: ComparedFigure) -> dict[str, Any]:
    predicted = {"value": one.predicted, "low": one.low, "high": one.high}
    return {
        "figure": one.key,
        "predicted": {name: plain_number(value) for name, value in predicted.items()} | {"basis": one.basis},
        "measured": plain_number(one.measured),
        "inside": one.inside,
        "off_fraction": plain_number(one.off_fraction),
        "read_as": one.read_as,
    }
