"""Spot under a deadline: traces, policies replayed over them, lifetimes fitted, and advice for one job."""

from tonnage.planning.spot.advice import Advice, SpotQuestion, advise
from tonnage.planning.spot.engine import Moment, Outcome, Policy, Recorded, World, replay
from tonnage.planning.spot.fitting import SpotFit, fit_traces
from tonnage.planning.spot.hazards import AGES_H, Direction, HazardModel, fit_hazards
from tonnage.planning.spot.job import TICK_H, SpotJob
from tonnage.planning.spot.knowledge import SpotHazard, machine_hazard
from tonnage.planning.spot.model_file import model_document, model_text, packaged_model, parse_model
from tonnage.planning.spot.optimum import optimal_cost, optimal_costs
from tonnage.planning.spot.policy import TonnagePolicy
from tonnage.planning.spot.replaying import POLICIES, PolicyResult, ReplayResult, TraceResult, replay_traces
from tonnage.planning.spot.rivals import Greedy, OnDemand, TimeSliced, UniformProgress
from tonnage.planning.spot.saves import machine_save_s
from tonnage.planning.spot.traces import Trace, TraceError, parse_trace
from tonnage.planning.spot.windows import Windows, draw_joint_windows, draw_windows

__all__ = [
    "AGES_H",
    "POLICIES",
    "TICK_H",
    "Advice",
    "Direction",
    "Greedy",
    "HazardModel",
    "Moment",
    "OnDemand",
    "Outcome",
    "Policy",
    "PolicyResult",
    "Recorded",
    "ReplayResult",
    "SpotFit",
    "SpotHazard",
    "SpotJob",
    "SpotQuestion",
    "TimeSliced",
    "TonnagePolicy",
    "Trace",
    "TraceError",
    "TraceResult",
    "UniformProgress",
    "Windows",
    "World",
    "advise",
    "draw_joint_windows",
    "draw_windows",
    "fit_hazards",
    "fit_traces",
    "machine_hazard",
    "machine_save_s",
    "model_document",
    "model_text",
    "optimal_cost",
    "optimal_costs",
    "packaged_model",
    "parse_model",
    "parse_trace",
    "replay",
    "replay_traces",
]
