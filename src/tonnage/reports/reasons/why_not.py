"""Words for why an alternative that is compared does not do some work."""

from __future__ import annotations

from typing import Any, assert_never

from tonnage.comparison import reaching as kinds
from tonnage.comparison.reaching import WhyNot
from tonnage.reports.reasons.document import reason_document
from tonnage.reports.reasons.flips import relaxation_document, relaxation_words
from tonnage.reports.reasons.miss_words import miss_document, miss_words


def why_not_document(why: WhyNot) -> dict[str, Any]:
    """The reason as JSON, with the miss or the relaxation that it is based on."""
    text = why_not_words(why)
    match why:
        case kinds.NearestFails(provider=provider, instance_type=instance_type, miss=miss):
            where = {"provider": provider, "instance_type": instance_type}
            return {"kind": why.kind, **where, "miss": miss_document(miss), "text": text}
        case kinds.FitsWithout(relaxation=relaxation):
            return {"kind": why.kind, "relaxation": relaxation_document(relaxation), "text": text}
        case _:
            return reason_document(why, text)


def why_not_words(why: WhyNot | None) -> str:
    """One clause; empty where there is no reason."""
    match why:
        case None:
            return ""
        case kinds.NotComputed(of=None, why=said):
            return f"not computed: {said}"
        case kinds.NotComputed(of=of, why=said):
            return f"cannot be computed for kind {of}: {said or 'outside what it does'}"
        case kinds.NothingInCommon(of=of):
            return f"the workload's {of} and its own have none in common"
        case kinds.FitsWithout(relaxation=relaxation):
            return f"nothing fits: {relaxation_words(relaxation)}"
        case kinds.TooFewOwned(machines=machines, like=like):
            return f"nothing fits on {machines} owned machine{'' if machines == 1 else 's'} like {like}"
        case kinds.ProcessorsUnmeasured():
            return (
                "not known: no rate of these processors for inference is on record; `tonnage calibrate --local` on "
                "such a machine measures one"
            )
        case kinds.NearestFails(provider=provider, instance_type=instance_type, miss=miss):
            return f"nothing fits: {provider} {instance_type} {miss_words(miss).clause}"
        case kinds.NoModelNamed():
            return "no model of its price list is named for this work (buy.token_models names those that would do)"
        case kinds.NothingPriced(of=of):
            return f"the catalog has no price there for work of kind {of}"
        case _:
            assert_never(why)
