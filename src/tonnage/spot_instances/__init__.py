"""Spot under a deadline: traces, policies replayed over them, lifetimes fitted, and advice for one job.

Each name loads on first use: a plan needs the hazards alone, not the replays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tonnage.lazy import lazy_names

if TYPE_CHECKING:
    from tonnage.spot_instances.advice import SpotAdvice, SpotQuestion, advise
    from tonnage.spot_instances.engine import Moment, Recorded, ReplayOutcome, SpotPolicy, World, replay
    from tonnage.spot_instances.fitting import SpotFit, fit_traces
    from tonnage.spot_instances.hazards import AGES_H, Direction, HazardModel, fit_hazards
    from tonnage.spot_instances.job import TICK_H, SpotJob
    from tonnage.spot_instances.knowledge import SpotHazard, machine_hazard
    from tonnage.spot_instances.model_file import model_document, model_text, packaged_model, parse_model
    from tonnage.spot_instances.optimum import optimal_cost, optimal_costs
    from tonnage.spot_instances.policy import TonnagePolicy
    from tonnage.spot_instances.replaying import (
        POLICIES,
        ReplayResult,
        SpotPolicyResult,
        TraceResult,
        replay_traces,
    )
    from tonnage.spot_instances.rivals import Greedy, OnDemand, TimeSliced, UniformProgress
    from tonnage.spot_instances.saves import machine_save_s
    from tonnage.spot_instances.traces import SpotTrace, TraceError, parse_trace
    from tonnage.spot_instances.windows import SpotWindows, draw_joint_windows, draw_windows

__all__ = [
    "AGES_H", "POLICIES", "TICK_H", "Direction", "Greedy", "HazardModel", "Moment", "OnDemand", "Recorded",
    "ReplayOutcome", "ReplayResult", "SpotAdvice", "SpotFit", "SpotHazard", "SpotJob", "SpotPolicy", "SpotPolicyResult",
    "SpotQuestion", "SpotTrace", "SpotWindows", "TimeSliced", "TonnagePolicy", "TraceError", "TraceResult",
    "UniformProgress", "World", "advise", "draw_joint_windows", "draw_windows", "fit_hazards", "fit_traces",
    "machine_hazard", "machine_save_s", "model_document", "model_text", "optimal_cost", "optimal_costs",
    "packaged_model", "parse_model", "parse_trace", "replay", "replay_traces",
]  # fmt: skip
__getattr__ = lazy_names(__name__)
