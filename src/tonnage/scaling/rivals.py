"""Autoscalers as they are published, each with its source, to be compared with the control law."""

from __future__ import annotations

import math
from typing import Final

from tonnage.scaling.reasons import RivalRule
from tonnage.scaling.service import Observation, ScaledService
from tonnage.values import dataclass

Samples = tuple[tuple[float, float], ...]  # (second, value), oldest first
Decided = tuple[Samples, int, RivalRule]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """The same number all the time."""

    service: ScaledService
    count: int
    name: str = "static"
    interval_s: float = 60.0

    def begin(self) -> Samples:
        return ()

    def decide(self, state: Samples, seen: Observation, at_s: float) -> Decided:
        del at_s
        return state, self.count, _rule(self.name, seen.running, self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class RayServeState:
    since_up_s: float | None
    since_down_s: float | None
    samples: Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class RayServe:
    """Ray Serve's autoscaler: ongoing requests a replica against a target.

    Every 0.1 s in Ray, once a second here, desired = current · (1 + factor·(ongoing / (current·target) - 1)), ongoing
    averaged over `look_back_period_s` = 30 s; it must stay above the current number for `upscale_delay_s` = 30 s (below
    for `downscale_delay_s` = 600 s) before it is followed. From 0 a single request starts one replica at once.
    Source: docs.ray.io, Serve, «Advanced Ray Serve Autoscaling»; `serve/autoscaling_policy.py` of Ray 2.
    """

    service: ScaledService
    target_ongoing: float = 2.0
    upscale_delay_s: float = 30.0
    downscale_delay_s: float = 600.0
    look_back_s: float = 30.0
    factor: float = 1.0
    name: str = "ray-serve"
    interval_s: float = 1.0

    def begin(self) -> RayServeState:
        return RayServeState(since_up_s=None, since_down_s=None, samples=())

    def decide(self, state: RayServeState, seen: Observation, at_s: float) -> tuple[RayServeState, int, RivalRule]:
        samples = _recent(state.samples, at_s, float(seen.running + seen.waiting), self.look_back_s)
        ongoing = _mean(samples)
        current = seen.ready + seen.starting
        if current == 0:
            wanted = 1 if seen.waiting else 0
            return (
                RayServeState(since_up_s=None, since_down_s=None, samples=samples),
                self.service.within(wanted),
                _rule(self.name, ongoing, self.target_ongoing),
            )
        ratio = ongoing / (current * self.target_ongoing)
        desired = self.service.within(math.ceil(current * (1 + self.factor * (ratio - 1)) - 1e-9))
        up = (state.since_up_s if state.since_up_s is not None else at_s) if desired > current else None
        down = (state.since_down_s if state.since_down_s is not None else at_s) if desired < current else None
        wanted = self.service.within(current)
        if up is not None and at_s - up >= self.upscale_delay_s - 1e-9:
            wanted, up = desired, None
        if down is not None and at_s - down >= self.downscale_delay_s - 1e-9:
            wanted, down = desired, None
        return (
            RayServeState(since_up_s=up, since_down_s=down, samples=samples),
            wanted,
            _rule(self.name, ongoing, self.target_ongoing),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HpaState:
    wishes: Samples
    starts: Samples
    arrived: Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Hpa:
    """Kubernetes' HorizontalPodAutoscaler on an external metric, as KEDA feeds it.

    Every 15 s desired = ceil(metric / target), left alone within a tolerance of 0.1. Growth a period of 15 s: at most
    4 replicas or 100 %, whichever is more. Shrinking follows the highest wish of the last 300 s. KEDA goes from 0 to 1
    on the first request and back after 300 s without any. The metric is requests waiting and running
    (`queue`), or requests a second of the last minute (`rate`).
    Source: kubernetes.io, «Horizontal Pod Autoscaling», algorithm details and default behavior; keda.sh, «Scaling
    Deployments», cooldownPeriod.
    """

    service: ScaledService
    target: float
    metric: str = "queue"
    stabilization_s: float = 300.0
    cooldown_s: float = 300.0
    tolerance: float = 0.1
    name: str = "keda"
    interval_s: float = 15.0

    def begin(self) -> HpaState:
        return HpaState(wishes=(), starts=(), arrived=())

    def decide(self, state: HpaState, seen: Observation, at_s: float) -> tuple[HpaState, int, RivalRule]:
        arrived = _recent(state.arrived, at_s, float(seen.arrived), 60.0)
        active = _recent(state.starts, at_s, float(seen.arrived + seen.waiting + seen.running), self.cooldown_s)
        current = seen.ready + seen.starting
        measured = float(seen.waiting + seen.running)
        if self.metric == "rate":
            measured = sum(value for _, value in arrived) / min(60.0, self.interval_s * len(arrived))
        rule = _rule(self.name, measured, self.target)
        wish = math.ceil(measured / self.target - 1e-9)
        if current and abs(measured / (current * self.target) - 1) <= self.tolerance:
            wish = current
        wish = max(wish, 1)
        wishes = _recent(state.wishes, at_s, float(wish), self.stabilization_s)
        wanted = max(wish, min(int(max(value for _, value in wishes)), current))
        wanted = min(wanted, max(current + 4, 2 * current))
        if not any(value for _, value in active):
            wanted = 0
        return HpaState(wishes=wishes, starts=active, arrived=arrived), self.service.within(wanted), rule


@dataclass(frozen=True, slots=True, kw_only=True)
class SkyServeState:
    arrived: Samples
    up: int
    down: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SkyServe:
    """SkyServe's request-rate autoscaler: ceil(requests a second over 60 s / target) after enough decisions agree.

    A decision every 20 s; up after `upscale_delay_s` = 300 s of agreement, down after `downscale_delay_s` = 1200 s.
    Source: docs.skypilot.co, «Autoscaling» of SkyServe; `sky/serve/autoscalers.py`, RequestRateAutoscaler.
    """

    service: ScaledService
    target_qps: float
    upscale_delay_s: float = 300.0
    downscale_delay_s: float = 1200.0
    name: str = "skyserve"
    interval_s: float = 20.0

    def begin(self) -> SkyServeState:
        return SkyServeState(arrived=(), up=0, down=0)

    def decide(self, state: SkyServeState, seen: Observation, at_s: float) -> tuple[SkyServeState, int, RivalRule]:
        arrived = _recent(state.arrived, at_s, float(seen.arrived), 60.0)
        qps = sum(value for _, value in arrived) / 60.0
        target = self.service.within(math.ceil(qps / self.target_qps - 1e-9))
        current = self.service.within(seen.ready + seen.starting)
        up = state.up + 1 if target > current else 0
        down = state.down + 1 if target < current else 0
        wanted = current
        if up >= max(int(self.upscale_delay_s / self.interval_s), 1):
            wanted, up = target, 0
        elif down >= max(int(self.downscale_delay_s / self.interval_s), 1):
            wanted, down = target, 0
        return SkyServeState(arrived=arrived, up=up, down=down), wanted, _rule(self.name, qps, self.target_qps)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnativeState:
    samples: Samples
    panic_until_s: float
    panic_most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Knative:
    """Knative's pod autoscaler: concurrency over a stable window of 60 s and a panic window of 6 s.

    Every 2 s desired = ceil(concurrency / target). It panics where the panic window wants at least twice the ready
    replicas, and never shrinks until a stable window has passed since; growth at most tenfold, shrinking at most to
    half. The target is the stated concurrency times a utilization of 0.7.
    Source: knative.dev, «Configuring autoscaling»; `pkg/autoscaler/scaling/autoscaler.go` of knative/serving.
    """

    service: ScaledService
    target: float
    stable_s: float = 60.0
    panic_s: float = 6.0
    panic_threshold: float = 2.0
    utilization: float = 0.7
    name: str = "knative"
    interval_s: float = 2.0

    def begin(self) -> KnativeState:
        return KnativeState(samples=(), panic_until_s=-math.inf, panic_most=0)

    def decide(self, state: KnativeState, seen: Observation, at_s: float) -> tuple[KnativeState, int, RivalRule]:
        samples = _recent(state.samples, at_s, float(seen.waiting + seen.running), self.stable_s)
        target = self.target * self.utilization
        ready = max(seen.ready, 1)
        low, high = math.floor(ready / 2), math.ceil(10 * ready)
        stable = min(max(math.ceil(_mean(samples) / target - 1e-9), low), high)
        burst = _mean(tuple(one for one in samples if one[0] > at_s - self.panic_s))
        panic = min(max(math.ceil(burst / target - 1e-9), low), high)
        until, most = state.panic_until_s, state.panic_most
        if panic / ready >= self.panic_threshold:
            until = at_s + self.stable_s
            most = max(most, panic)
        if at_s < until:
            most = max(most, panic, seen.ready)
            wanted = most
        else:
            wanted, most = stable, 0
        after = KnativeState(samples=samples, panic_until_s=until, panic_most=most)
        return after, self.service.within(wanted), _rule(self.name, _mean(samples), target)


GRID: Final[dict[str, tuple[float, ...]]] = {
    "target": (0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95),
}  # of a replica's slots, or of its requests a second


def _rule(name: str, measured: float, target: float) -> RivalRule:
    return RivalRule(policy=name, measured=measured, target=target)


def _recent(samples: Samples, at_s: float, value: float, window_s: float) -> Samples:
    kept = (*samples, (at_s, value))
    first = 0
    while kept[first][0] <= at_s - window_s:
        first += 1
        if first == len(kept) - 1:
            break
    return kept[first:] if first else kept


def _mean(samples: Samples) -> float:
    return sum(value for _, value in samples) / len(samples) if samples else 0.0
