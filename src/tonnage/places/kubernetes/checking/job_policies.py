"""When a Job counts a pod's end as a failure, and when it has succeeded.

Source: https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy and #success-policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tonnage.places.kubernetes.checking.formats import is_qualified
from tonnage.places.kubernetes.checking.refusals import (
    Found,
    ObjectRefusal,
    at_least,
    duplicate,
    invalid,
    many,
    one_of,
    part,
    required,
)

ACTIONS: Final = ("Count", "FailIndex", "FailJob", "Ignore")
RULES_LIMIT, CODES_LIMIT, CONDITIONS_LIMIT = 20, 255, 20


def failure_policy(given: Mapping[str, Any], spec: Mapping[str, Any], path: str) -> Found:
    rules = many(given, "rules")
    if len(rules) > RULES_LIMIT:
        yield ObjectRefusal(field=f"{path}.rules", reason="too many", message=f"must have at most {RULES_LIMIT} items")
    pods = part(part(spec, "template"), "spec")
    names = {one.get("name") for one in (*many(pods, "containers"), *many(pods, "initContainers"))}
    for place, rule in enumerate(rules):
        at, action = f"{path}.rules[{place}]", rule.get("action")
        yield from one_of(f"{at}.action", action, ACTIONS, empty=True)
        if action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            yield invalid(f"{at}.action", "requires the backoffLimitPerIndex to be set")
        codes, conditions = rule.get("onExitCodes"), many(rule, "onPodConditions")
        if codes is not None:
            yield from _exit_codes(codes, f"{at}.onExitCodes", names)
        if len(conditions) > CONDITIONS_LIMIT:
            most = f"must have at most {CONDITIONS_LIMIT} items"
            yield ObjectRefusal(field=f"{at}.onPodConditions", reason="too many", message=most)
        for number, one in enumerate(conditions):
            yield from _condition(one, f"{at}.onPodConditions[{number}]")
        if codes is not None and conditions:
            yield invalid(at, "specifying both onExitCodes and onPodConditions is not supported")
        if codes is None and not conditions:
            yield invalid(at, "specifying one of onExitCodes and onPodConditions is required")


def _condition(given: Mapping[str, Any], path: str) -> Found:
    if not is_qualified(given.get("type") or ""):
        yield invalid(f"{path}.type", f"'{given.get('type')}' is no qualified name")
    yield from one_of(f"{path}.status", given.get("status"), ("False", "True", "Unknown"))


def _exit_codes(given: Mapping[str, Any], path: str, names: set[str | None]) -> Found:
    operator, values, container = given.get("operator"), many(given, "values"), given.get("containerName")
    yield from one_of(f"{path}.operator", operator, ("In", "NotIn"), empty=True)
    if container is not None and container not in names:
        yield invalid(f"{path}.containerName", f"'{container}' is no container of the pod template")
    if not values:
        yield invalid(f"{path}.values", "at least one value is required")
    elif len(values) > CODES_LIMIT:
        yield ObjectRefusal(field=f"{path}.values", reason="too many", message=f"must have at most {CODES_LIMIT} items")
    seen: set[int] = set()
    for place, value in enumerate(values):
        if value in seen:
            yield duplicate(f"{path}.values[{place}]", value)
        elif operator == "In" and value == 0:
            yield invalid(f"{path}.values[{place}]", "must not be 0 for the In operator")
        seen.add(value)
    if values != sorted(values):
        yield invalid(f"{path}.values", "must be ordered")


def success_policy(given: Mapping[str, Any], path: str) -> Found:
    policy = given.get("successPolicy")
    if policy is None:
        return
    at, completions = f"{path}.successPolicy", given.get("completions")
    if given.get("completionMode") != "Indexed":
        yield invalid(at, "requires indexed completion mode")
        return
    rules = many(policy, "rules")
    if not rules:
        yield required(f"{at}.rules", "at least one rule is required")
    if len(rules) > RULES_LIMIT:
        yield ObjectRefusal(field=f"{at}.rules", reason="too many", message=f"must have at most {RULES_LIMIT} items")
    for place, rule in enumerate(rules):
        yield from _success_rule(rule, f"{at}.rules[{place}]", completions or 0)


def _success_rule(rule: Mapping[str, Any], path: str, completions: int) -> Found:
    indexes, count = rule.get("succeededIndexes"), rule.get("succeededCount")
    if indexes is None and count is None:
        yield required(path, "one of succeededCount and succeededIndexes")
    most = completions
    if indexes is not None:
        try:
            most = counted(indexes, completions)
        except ValueError as error:
            yield invalid(f"{path}.succeededIndexes", str(error))
            return
    yield from at_least(f"{path}.succeededCount", count, 1)
    if count is not None and count > most:
        yield invalid(f"{path}.succeededCount", f"must be less than or equal to {most}")


def counted(indexes: str, completions: int) -> int:
    """How many indexes `0,2-4` names. ValueError where they do not ascend or are too large.

    >>> counted("0,2-4", 5)
    4
    """
    total, last = 0, -1
    for span in indexes.split(",") if indexes else ():
        first, dash, end = span.partition("-")
        low, high = int(first), int(end) if dash else int(first)
        if low <= last or high < low or (dash and high == low):
            raise ValueError(f"the indexes do not ascend at {span}")
        if high >= completions:
            raise ValueError(f"the index {high} is too large: there are {completions}")
        total, last = total + high - low + 1, high
    return total
