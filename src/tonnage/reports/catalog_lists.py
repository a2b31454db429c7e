"""`tonnage catalog gpus | instances | offers | models | check` as reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tonnage.catalog import Accelerator, Catalog, CatalogFinding, InstanceType, Offer, usd_per_gpu_hour
from tonnage.catalog.services import ServicePrice
from tonnage.reports.listing import Field, Listing, listing_report
from tonnage.reports.plain import plain_day
from tonnage.reports.rendering import Report
from tonnage.reports.wording import plural, render_count, render_date, render_price, render_purchase
from tonnage.workload.known import KnownModel
from tonnage.workload.parameters import count_parameters

_GPU_FIELDS: tuple[Field[Accelerator], ...] = (
    Field(key="name", title="GPU", read=lambda one: one.name),
    Field(key="vendor", title="vendor", read=lambda one: one.vendor, folds=5),
    Field(key="architecture", title="architecture", read=lambda one: one.architecture, folds=6),
    Field(key="memory_gib", title="GiB", read=lambda one: one.memory_gib, right=True),
    Field(key="usable_memory_gib", title="usable", read=lambda one: one.usable_memory_gib, right=True, folds=9,
          fold_text=""),
    Field(key="memory_bandwidth_gb_per_s", title="GB/s", read=lambda one: one.memory_bandwidth_gb_per_s, right=True),
    Field(key="dense_fp32_tflops", title="fp32", read=lambda one: one.dense_fp32_tflops, right=True, folds=3,
          fold_text="fp32 {}"),
    Field(key="dense_fp16_tflops", title="fp16", read=lambda one: one.dense_fp16_tflops, right=True),
    Field(key="dense_bf16_tflops", title="bf16", read=lambda one: one.dense_bf16_tflops, right=True),
    Field(key="dense_fp8_tflops", title="fp8", read=lambda one: one.dense_fp8_tflops, right=True),
    Field(key="dense_int8_tops", title="int8", read=lambda one: one.dense_int8_tops, right=True, folds=4,
          fold_text="int8 {}"),
    Field(key="scale_up_gb_per_s", title="NVLink etc. GB/s", read=lambda one: one.scale_up_gb_per_s, right=True,
          folds=8, fold_text=""),
    Field(key="interconnect", title="interconnect", read=lambda one: one.interconnect, folds=7),
    Field(key="tdp_w", title="W", read=lambda one: one.tdp_w, right=True, folds=8, fold_text=""),
    Field(key="notes", read=lambda one: one.notes),
    Field(key="source", read=lambda one: one.source.text),
    Field(key="read_on", read=lambda one: plain_day(one.source.read_on)),
)  # fmt: skip
_INSTANCE_FIELDS: tuple[Field[InstanceType], ...] = (
    Field(key="provider", title="provider", read=lambda one: one.provider),
    Field(key="instance_type", title="instance type", read=lambda one: one.name, wraps=True),
    Field(key="gpu", title="GPU", read=lambda one: one.accelerator),
    Field(key="gpu_count", title="count", read=lambda one: one.accelerator_count, right=True),
    Field(key="gpu_memory_gib", title="GPU GiB", read=lambda one: one.gpu_memory_gib, right=True, folds=2,
          fold_text="{} GiB of GPU memory"),
    Field(key="vcpus", title="vCPUs", read=lambda one: one.vcpus, right=True),
    Field(key="memory_gib", title="GiB", read=lambda one: one.memory_gib, right=True),
    Field(key="network_gbit_per_s", title="Gbit/s", read=lambda one: one.network_gbit_per_s, right=True, folds=1,
          fold_text="{} Gbit/s"),
    Field(key="local_ssd_gb", title="SSD GB", read=lambda one: one.local_ssd_gb, right=True, folds=4,
          fold_text="{} GB SSD"),
    Field(key="cpu_arch", title="arch", read=lambda one: one.cpu_arch, folds=3),
    Field(key="notes", read=lambda one: one.notes),
    Field(key="source", read=lambda one: one.source.text),
    Field(key="read_on", read=lambda one: plain_day(one.source.read_on)),
)  # fmt: skip
_SERVICE_FIELDS: tuple[Field[ServicePrice], ...] = (
    Field(key="provider", title="provider", read=lambda one: one.provider),
    Field(key="service", title="service", read=lambda one: one.service, wraps=True),
    Field(key="product", title="product", read=lambda one: one.product, wraps=True, folds=3),
    Field(key="regions", title="regions", read=lambda one: one.regions, wraps=True,
          show=lambda names: " ".join(names) or "all"),
    Field(key="from_quantity", title="from", read=lambda one: one.from_quantity, right=True, folds=4,
          fold_text="from {}"),
    Field(key="usd_per_unit", title="USD", read=lambda one: float(one.usd_per_unit), show=lambda usd: f"{usd:g}",
          right=True),
    Field(key="unit", title="per", read=lambda one: one.unit),
    Field(key="read_on", title="read", read=lambda one: plain_day(one.source.read_on),
          show=lambda day: day or render_date(None), folds=1, fold_text="read {}"),
    Field(key="source", title="source", read=lambda one: one.source.text, wraps=True, folds=5),
    Field(key="notes", title="notes", read=lambda one: one.notes, wraps=True, folds=6),
)  # fmt: skip
_FINDING_FIELDS: tuple[Field[CatalogFinding], ...] = (
    Field(key="severity", title="severity", read=lambda one: one.severity),
    Field(key="subject", title="about", read=lambda one: one.subject, wraps=True),
    Field(key="message", title="doubt", read=lambda one: one.message, wraps=True),
    Field(key="figure", title="found", read=lambda one: one.figure, wraps=True, folds=1),
    Field(key="expected", title="expected", read=lambda one: one.expected, wraps=True, folds=2,
          fold_text="expected {}"),
    Field(key="source", title="source", read=lambda one: one.source, wraps=True, folds=3),
)  # fmt: skip
_MODEL_FIELDS: tuple[Field[KnownModel], ...] = (
    Field(key="name", title="model", read=lambda one: one.shape.name),
    Field(key="architecture", title="architecture", read=lambda one: one.shape.architecture, folds=1),
    Field(key="parameters", title="parameters", read=lambda one: count_parameters(one.shape).total,
          show=render_count, right=True),
    Field(key="published_parameters", title="published", read=lambda one: one.published_parameters,
          show=render_count, right=True, folds=4, fold_text=""),
    Field(key="layers", title="layers", read=lambda one: one.shape.layers, right=True),
    Field(key="hidden", title="hidden", read=lambda one: one.shape.hidden, right=True),
    Field(key="heads", title="heads", read=lambda one: one.shape.heads, right=True, folds=2, fold_text="{} heads"),
    Field(key="kv_heads", title="kv heads", read=lambda one: one.shape.kv_heads, right=True, folds=3,
          fold_text="{} kv heads"),
    Field(key="vocab", title="vocab", read=lambda one: one.shape.vocab, right=True, folds=3, fold_text="vocab {}"),
    Field(key="experts", title="experts", read=lambda one: one.shape.experts, right=True, folds=5, fold_text="",
          show=lambda count: str(count or "")),
    Field(key="aliases", title="also called", read=lambda one: one.aliases, wraps=True, folds=6,
          show=", ".join),
    Field(key="published_in", read=lambda one: one.published_in),
    Field(key="source", read=lambda one: one.shape.source),
    Field(key="read_on", read=lambda one: plain_day(one.read_on)),
)  # fmt: skip


def gpus_report(catalog: Catalog, found: Sequence[Accelerator], *, top: int | None) -> Report:
    """Devices; rates are dense, in TFLOPS (int8: TOPS)."""
    return listing_report(
        Listing(
            schema="tonnage/catalog-gpus@1",
            title=f"{plural(len(found), 'accelerator')} of the catalog of {catalog.name}",
            name="gpus",
            head={"catalog": catalog.name},
            fields=_GPU_FIELDS,
            items=found,
            remarks=("Rates are dense, in TFLOPS (int8: TOPS). A dash: not published in a source read here.",),
            most=top,
        )
    )


def instances_report(catalog: Catalog, found: Sequence[InstanceType], *, top: int | None) -> Report:
    """Machines."""
    return listing_report(
        Listing(
            schema="tonnage/catalog-instances@1",
            title=f"{plural(len(found), 'instance type')} of the catalog of {catalog.name}",
            name="instance_types",
            head={"catalog": catalog.name},
            fields=_INSTANCE_FIELDS,
            items=found,
            most=top,
        )
    )


def offers_report(catalog: Catalog, found: Sequence[Offer], *, top: int | None) -> Report:
    """Prices, with the machine behind each."""
    return listing_report(
        Listing(
            schema="tonnage/catalog-offers@1",
            title=f"{plural(len(found), 'offer')} of the catalog of {catalog.name}",
            name="offers",
            head={"catalog": catalog.name},
            fields=_offer_fields(catalog),
            items=found,
            most=top,
        )
    )


def services_report(catalog: Catalog, found: Sequence[ServicePrice], *, top: int | None) -> Report:
    """List prices of what comes besides machines."""
    return listing_report(
        Listing(
            schema="tonnage/catalog-services@1",
            title=f"{plural(len(found), 'price')} of services besides machines",
            name="services",
            head={"catalog": catalog.name},
            fields=_SERVICE_FIELDS,
            items=found,
            remarks=("A price without a date comes from a third party or an undated page: its notes say which.",),
            most=top,
        )
    )


def _offer_fields(catalog: Catalog) -> tuple[Field[Offer], ...]:
    machines = {instance.key: instance for instance in catalog.instance_types}

    def machine(offer: Offer) -> InstanceType:
        return machines[offer.provider, offer.instance_type]

    def price(value: Any) -> str:
        return "—" if value is None else render_price(value)

    return (
        Field(key="provider", title="provider", read=lambda one: one.provider),
        Field(key="instance_type", title="instance type", read=lambda one: one.instance_type, wraps=True),
        Field(key="gpu", title="GPU", read=lambda one: machine(one).accelerator, folds=1),
        Field(key="gpu_count", title="count", read=lambda one: machine(one).accelerator_count, right=True, folds=1,
              fold_text="x {}"),
        Field(key="region", title="region", read=lambda one: one.region, show=lambda name: name or "any"),
        Field(key="purchase", title="bought", read=lambda one: one.purchase, show=render_purchase),
        Field(key="usd_per_instance_hour", title="USD/h", read=lambda one: float(one.usd_per_instance_hour),
              show=price, right=True),
        Field(key="usd_per_gpu_hour", title="a GPU", read=lambda one: usd_per_gpu_hour(catalog, one), show=price,
              right=True, folds=2, fold_text="{} a GPU"),
        Field(key="read_on", title="read", read=lambda one: plain_day(one.read_on),
              show=lambda day: day or render_date(None), folds=3, fold_text="read {}"),
        Field(key="source", title="source", read=lambda one: one.source.text, folds=4, wraps=True),
        Field(key="notes", read=lambda one: one.notes),
    )  # fmt: skip


def models_report(found: Sequence[KnownModel], *, top: int | None) -> Report:
    """Known model shapes."""
    return listing_report(
        Listing(
            schema="tonnage/catalog-models@1",
            title=f"{plural(len(found), 'known model')}",
            name="models",
            head={},
            fields=_MODEL_FIELDS,
            items=found,
            remarks=("Any Hugging Face config.json or inline shape works too: docs/workload-file.md.",),
            most=top,
        )
    )


def check_report(catalog: Catalog, found: Sequence[CatalogFinding], *, top: int | None) -> Report:
    """Doubts about a catalog."""
    counts = Counter(finding.severity for finding in found)
    said = ", ".join(plural(counts[kind], kind) for kind in ("error", "warning", "note")) if found else "no doubts"
    return listing_report(
        Listing(
            schema="tonnage/catalog-check@1",
            title=f"Catalog of {catalog.name}: {said}",
            name="findings",
            head={"catalog": catalog.name, "counts": {kind: counts[kind] for kind in ("error", "warning", "note")}},
            fields=_FINDING_FIELDS,
            items=found,
            most=top,
        )
    )
