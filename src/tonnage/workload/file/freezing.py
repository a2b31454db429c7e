"""From a checked workload file to the frozen values the rest of the library works on."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from math import ceil
from typing import Any, Final, assert_never, cast

from tonnage.catalog.grammar import parse_gpu_filter
from tonnage.units import SECONDS_PER_HOUR
from tonnage.workload.engine_limits import EngineLimits
from tonnage.workload.file.fields import StrictModel
from tonnage.workload.file.job_fields import RequestFields, TabularFields
from tonnage.workload.file.kinds import BatchFile, ServeFile, TabularFile, TrainFile, WorkloadFile, requests_of
from tonnage.workload.file.length_fields import LengthFields, freeze_lengths
from tonnage.workload.file.market_checks import MarketTerms
from tonnage.workload.file.terms_checks import choose_purchases, is_interruptible
from tonnage.workload.file.terms_fields import TeamFields
from tonnage.workload.file.train_program import freeze_lora, program_terms
from tonnage.workload.host import HostTerms
from tonnage.workload.jobs import (
    NO_LIMIT,
    BatchJob,
    BuyTerms,
    Constraints,
    DataPlace,
    Job,
    Lengths,
    Requests,
    ServeJob,
    Speculation,
    TabularJob,
    Team,
    Tokens,
    Traffic,
    TrainJob,
    WeightFormat,
    Workload,
)
from tonnage.workload.shapes import ModelShape

_SERVING: Final = ("kv_cache", "prefix_cache_fraction", "tensor_parallel", "engine")


def freeze_workload(
    file: WorkloadFile,
    shape: ModelShape | None,
    *,
    name: str,
    as_of: datetime,
    source: str | None,
    draft: ModelShape | None = None,
    market: MarketTerms | None = None,
    traffic: Traffic | None = None,
) -> Workload:
    """The `Workload` of a file in which no problem was found. `shape` is None for tables only; `draft`: the model
    that guesses, where there is one; `market`: what is excluded, and the quotas; `traffic`: how a service's rate
    moves."""
    job = _freeze_job(file, shape, draft)
    return Workload(
        name=file.name or name,
        job=replace(job, traffic=traffic) if isinstance(job, ServeJob) else job,
        constraints=_freeze_constraints(file, as_of, market or MarketTerms()),
        buy=_freeze_buy(file, traffic),
        team=_freeze_team(file.team),
        as_of=as_of,
        file=source,
        data=_freeze_place(file),
        host=HostTerms() if isinstance(file, TabularFile) else file.host,
    )


def _freeze_job(file: WorkloadFile, shape: ModelShape | None, draft: ModelShape | None) -> Job:
    if isinstance(file, TabularFile):
        return _freeze_tabular(file.tabular)
    assert shape is not None
    work = _freeze_work(file, shape)
    stated = requests_of(file)
    if isinstance(work, ServeJob | BatchJob) and stated is not None and stated.speculative is not None:
        guesses = stated.speculative
        work = replace(
            work, speculative=Speculation(tokens=guesses.tokens, acceptance=float(guesses.acceptance), draft=draft)
        )
    if isinstance(work, ServeJob | BatchJob) and stated is not None and stated.engine_limits is not None:
        work = replace(work, engine_limits=EngineLimits(**stated.engine_limits.model_dump()))
    return replace(work, **_forced(file))


def _forced(file: TrainFile | ServeFile | BatchFile) -> dict[str, Any]:
    """The layout's own keys, which go before the same ones elsewhere."""
    return file.layout.model_dump(exclude_none=True)


def _freeze_work(file: TrainFile | ServeFile | BatchFile, shape: ModelShape) -> TrainJob | ServeJob | BatchJob:
    match file:
        case TrainFile():
            return _freeze_train(file, shape)
        case ServeFile():
            return _freeze_serve(file, shape)
        case BatchFile():
            return BatchJob(
                model=shape,
                requests=_freeze_requests(file.batch, shape),
                items=_count_items(file),
                weights=_weights(file.batch, shape),
                **_stated(file.batch, *_SERVING),
            )
        case _:
            assert_never(file)


def _stated(section: StrictModel, *keys: str) -> dict[str, Any]:
    """Keys that mean the same inside as in the file."""
    return {key: getattr(section, key) for key in keys}


def _freeze_train(file: TrainFile, shape: ModelShape) -> TrainJob:
    data, train = file.data, file.train
    lengths = _lengths_for(data.seq_len, shape)
    samples = data.samples if data.samples is not None else ceil((data.tokens or 0) / lengths.mean)
    return TrainJob(
        model=shape,
        samples=samples,
        lengths=lengths,
        epochs=float(data.epochs),
        lora=freeze_lora(train),
        **program_terms(file, shape),
        **_stated(train, "global_batch", "method", "objective", "micro_batch", "recompute", "sharding"),
        **_stated(train, "tensor_parallel", "pipeline_parallel"),
    )


def _freeze_serve(file: ServeFile, shape: ModelShape) -> ServeJob:
    serve, schedule = file.serve, file.buy.schedule
    return ServeJob(
        model=shape,
        requests=_freeze_requests(serve, shape),
        rate_per_s=float(serve.rate_per_s),
        p95_latency_s=serve.p95_latency,
        p95_ttft_s=serve.p95_ttft,
        p95_tpot_s=serve.p95_tpot,
        weights=_weights(serve, shape),
        **_stated(serve, *_SERVING, "spare_replicas"),
        hours_per_month=float(serve.hours_per_month) if schedule is None else schedule.hours_per_month,
    )


def _weights(fields: RequestFields, shape: ModelShape) -> WeightFormat:
    """The format asked for, else that of the checkpoint."""
    if fields.weights is not None or not shape.stored_weights:
        return fields.weights or "fp16"
    return cast(WeightFormat, shape.stored_weights)


def _freeze_tabular(table: TabularFields) -> TabularJob:
    return TabularJob(
        epochs=float(table.epochs),
        hidden_layers=tuple(table.hidden_layers),
        **_stated(table, "rows", "features", "method", "trees", "depth", "bins", "global_batch", "engine"),
    )


def _freeze_requests(requests: RequestFields, shape: ModelShape) -> Requests:
    output = requests.output_tokens
    return Requests(
        input_tokens=_lengths_for(requests.input_tokens, shape),
        output_tokens=None if output is None else freeze_lengths(output),
    )


def _lengths_for(lengths: LengthFields | None, shape: ModelShape) -> Lengths:
    """As stated; an image is its patches and class tokens to a vision transformer, else one item."""
    if lengths is not None:
        return freeze_lengths(lengths)
    patches = (shape.image_side // shape.patch_side) ** 2 if shape.patch_side else 0
    tokens = max(1, patches + shape.class_tokens)
    return Lengths(mean=float(tokens), maximum=tokens)


def _count_items(file: BatchFile) -> int:
    batch = file.batch
    if batch.items is not None:
        return batch.items
    assert batch.items_per_hour is not None
    assert batch.hours is not None
    return ceil(batch.items_per_hour * batch.hours)


def _freeze_constraints(file: WorkloadFile, as_of: datetime, market: MarketTerms) -> Constraints:
    limits = file.constraints
    return Constraints(
        deadline_s=_deadline_s(file, as_of),
        budget_usd=None if limits.budget_usd is None else float(limits.budget_usd),
        **_stated(limits, "providers", "regions", "residency", "platforms", "max_gpus", "hold", "accept_risk", "trust"),
        gpus=tuple(parse_gpu_filter(text) for text in limits.gpus),
        interruptible=is_interruptible(limits, file.buy, service=isinstance(file, ServeFile)),
        exclude=market.exclude,
        quotas=market.quotas,
        max_nodes=limits.max_nodes or _max_nodes(file),
    )


def _max_nodes(file: WorkloadFile) -> int:
    """Machines at once where the file states no limit: a service takes what its rate asks for."""
    if isinstance(file, ServeFile):
        return NO_LIMIT
    return 64 if isinstance(file, BatchFile) else 8


def _deadline_s(file: WorkloadFile, as_of: datetime) -> float | None:
    """The nearer of the stated deadline and, for items per hour, the hours they arrive in."""
    stated = file.constraints.deadline
    limits_s = [] if stated is None else [stated.seconds_from(as_of)]
    if isinstance(file, BatchFile) and file.batch.hours is not None:
        limits_s.append(file.batch.hours * SECONDS_PER_HOUR)
    return min(limits_s, default=None)


def _freeze_buy(file: WorkloadFile, traffic: Traffic | None) -> BuyTerms:
    buy = file.buy
    load = float(buy.token_load)
    if traffic is not None and "token_load" not in buy.model_fields_set:
        load = min(traffic.mean, 1.0)
    rate: float | None = buy.interruptions_per_hour
    return BuyTerms(
        purchases=choose_purchases(file.constraints, buy, service=isinstance(file, ServeFile)),
        interruptions_per_hour=None if rate is None else float(rate),
        checkpoint_interval_s=buy.checkpoint_interval,
        startup_s=buy.startup,
        discount_percent=tuple(sorted((name, float(share)) for name, share in buy.discounts.items())),
        committed_usd=tuple(sorted((name, float(amount)) for name, amount in buy.committed_usd.items())),
        schedule=buy.schedule,
        idle_s=buy.idle,
        reserved_utilization=None if buy.reserved_utilization is None else float(buy.reserved_utilization),
        reserved_owned=buy.reserved_owned,
        dbu_sku=buy.dbu_sku,
        disk_gb=float(buy.disk_gb),
        prices=buy.prices,
        tokens=Tokens(
            models=buy.token_models,
            per_minute=_float(buy.tokens_per_minute),
            p95_latency_s=buy.token_p95_latency,
            p95_ttft_s=buy.token_p95_ttft,
            cached_input_fraction=float(buy.cached_input),
            load=load,
            model_units=buy.model_units,
            model_storage_months=float(buy.model_storage_months),
            prompt_tokens=float(buy.token_prompt),
            answer_tokens=float(buy.token_answer),
        ),
    )


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)


def _freeze_team(team: TeamFields) -> Team:
    return Team(
        size=team.size,
        ml_expertise=team.ml_expertise,
        compliance=team.compliance,
        hourly_usd=_float(team.hourly_usd),
        setup_hours=tuple(sorted((name, float(hours)) for name, hours in team.setup_hours.items())),
        operation_hours=tuple(sorted((name, float(hours)) for name, hours in team.operation_hours.items())),
        setup_months=float(team.setup_months),
    )


def _freeze_place(file: WorkloadFile) -> DataPlace | None:
    if file.data.location is None or file.data.size_gb is None:
        return None
    provider, _, region = file.data.location.partition("/")
    return DataPlace(provider=provider, region=region, size_gb=float(file.data.size_gb))
