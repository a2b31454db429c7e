"""The reference of the gateway file, rendered from the models that read it (docs/gateway-file.md)."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel

from tonnage.gateway.file import conduct_entries, deployment_entries, entries, guardrail_entries, kept_entries
from tonnage.workload.reference import render_sections

_SECTIONS: Final[tuple[tuple[str, type[BaseModel]], ...]] = (
    ("`listen`", entries.ListenEntry),
    ("A deployment", entries.DeploymentEntry),
    ("`price`", entries.PriceEntry),
    ("`price.above`", entries.LongPriceEntry),
    ("`media`", deployment_entries.MediaEntry),
    ("`own`", entries.OwnEntry),
    ("`quality_from`", deployment_entries.QualityFromEntry),
    ("`sign_in`", entries.SignInEntry),
    ("`timeouts`", entries.TimeoutsEntry),
    ("A route", entries.RouteEntry),
    ("`rules`", entries.RouteRuleEntry),
    ("`retry`", entries.RetryEntry),
    ("`hedge`", conduct_entries.HedgeEntry),
    ("`canary`", conduct_entries.CanaryEntry),
    ("`shadow`", conduct_entries.ShadowEntry),
    ("`cache`", entries.CacheEntry),
    ("`cache.semantic`", conduct_entries.SemanticEntry),
    ("A key", entries.KeyEntry),
    ("A budget", entries.BudgetEntry),
    ("A limit", entries.LimitEntry),
    ("A guardrail", guardrail_entries.GuardrailEntry),
    ("A classifier", guardrail_entries.ClassifierEntry),
    ("`queue`", conduct_entries.QueueEntry),
    ("`batches`", kept_entries.BatchesEntry),
    ("`encrypt`", kept_entries.EncryptEntry),
    ("`request_log`", kept_entries.RequestLogEntry),
    ("`spans`", kept_entries.SpansEntry),
    ("`idempotency`", conduct_entries.IdempotencyEntry),
)
_INTRODUCTION: Final = """\
# The gateway file

<!-- Generated: python -m tonnage.gateway.file.reference docs/gateway-file.md -->

`NAME.gateway.yaml` says where the gateway listens, which models there are and what they cost, what clients may ask
for, and within which budgets ([gateway](gateway.md)). Deployments, routes and keys are mappings by name. An unknown
key is an error that names the file and the line. Durations carry their unit: `500ms`, `30s`, `1h`. Secrets are
[references](secrets.md). A scope is `total`, or `key:`, `team:`, `project:`, `route:` or `deployment:`
with a name; `key:*` gives each key its own.
"""


def render_gateway_reference() -> str:
    """Markdown: every section with key, type, unit, default, meaning, example."""
    return render_sections(_INTRODUCTION, entries.GatewayEntries, _SECTIONS)


if __name__ == "__main__":
    import sys
    from pathlib import Path

    Path(sys.argv[1]).write_text(render_gateway_reference(), encoding="utf-8")
