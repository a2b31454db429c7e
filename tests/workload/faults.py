"""Faulty workload files, and what the error of each must say: the table of `test_bad_input.py`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from tonnage.workload.jobs import Workload
from tonnage.workload.loading import parse_workload

AS_OF = datetime(2026, 11, 20, tzinfo=UTC)
FILE = "bad.tonnage.yaml"
TRAIN = """\
kind: train
model: bert-base-uncased
data:
  samples: 67_000
  seq_len: {mean: 48, max: 128}
train:
  global_batch: 32
"""
SERVE = """\
kind: serve
model: gpt2
serve:
  rate_per_s: 100
  input_tokens: 64
  output_tokens: 16
"""
BATCH = "kind: batch\nmodel: gpt2\nbatch:\n  input_tokens: 64\n  output_tokens: 16\n"
TABULAR = "kind: tabular\ntabular:\n  rows: 5_000_000\n  features: 310\n"


@dataclass(frozen=True)
class Bad:
    """A text, and what its error must say."""

    text: str
    line: int | None
    key: str | None
    says: str
    hint: str


def swap(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


def parse(text: str) -> Workload:
    return parse_workload(text, file=FILE, folder=None, as_of=AS_OF)


NUMBERS = {
    "text for a number": Bad(swap(TRAIN, "67_000", "67k"), 4, "data.samples", "'67k'", "write 67000"),
    "thousands comma": Bad(swap(TRAIN, "67_000", "67,000"), 4, "data.samples", "'67,000'", "write 67000"),
    "millions": Bad(swap(TRAIN, "67_000", "1.5M"), 4, "data.samples", "'1.5M'", "write 1500000"),
    "quoted number": Bad(swap(TRAIN, "67_000", "'67000'"), 4, "data.samples", "'67000'", "write 67000"),
    "word for a number": Bad(swap(TRAIN, "67_000", "lots"), 4, "data.samples", "'lots'", "digits"),
    "negative": Bad(swap(TRAIN, "67_000", "-5"), 4, "data.samples", "found -5, expected a number above 0", ""),
    "zero": Bad(swap(TRAIN, "67_000", "0"), 4, "data.samples", "found 0, expected a number above 0", ""),
    "nan": Bad(swap(TRAIN, "67_000", ".nan"), 4, "data.samples", "found nan, expected a whole number", ""),
    "nan epochs": Bad(
        swap(TRAIN, "  seq_len", "  epochs: .NaN\n  seq_len"),
        5,
        "data.epochs",
        "found nan",
        "leave the key out",
    ),
    "infinity": Bad(TRAIN + "constraints:\n  budget_usd: .inf\n", 9, "constraints.budget_usd", "found inf", "leave"),
    "overflow": Bad(TRAIN + "constraints:\n  budget_usd: 1e999\n", 9, "constraints.budget_usd", "found inf", "leave"),
    "half a sample": Bad(swap(TRAIN, "67_000", "10.5"), 4, "data.samples", "found 10.5, expected a whole", ""),
    "true for a number": Bad(swap(TRAIN, "67_000", "true"), 4, "data.samples", "found True, expected a whole", ""),
    "too many": Bad(swap(TRAIN, "67_000", "1e30"), 4, "data.samples", "at most 10,000,000,000,000", ""),
    "huge integer": Bad(swap(TRAIN, "67_000", "9" * 5000), 4, "data.samples", "found '999", ""),
    "list for a number": Bad(swap(TRAIN, "67_000", "[1, 2]"), 4, "data.samples", "found [1, 2]", ""),
    "date for a number": Bad(swap(TRAIN, "67_000", "2026-12-01"), 4, "data.samples", "'2026-12-01'", "digits"),
    "zero rows": Bad(swap(TABULAR, "5_000_000", "0"), 3, "tabular.rows", "found 0", ""),
    "negative layer": Bad(TABULAR + "  hidden_layers: [512, -1]\n", 5, "tabular.hidden_layers[1]", "found -1", ""),
    "negative rate": Bad(swap(SERVE, "100", "-1"), 4, "serve.rate_per_s", "found -1", ""),
    "discount over 100": Bad(
        TRAIN + "buy:\n  discounts: {aws: 120}\n",
        9,
        "buy.discounts.aws",
        "found 120, expected a number below 100",
        "",
    ),
}

NAMES = {
    "unknown section": Bad(TRAIN + "constrains: {}\n", 8, "constrains", "unknown key", "'constraints'"),
    "unknown key": Bad(TRAIN + "  global_bach: 8\n", 8, "train.global_bach", "unknown key", "'global_batch'"),
    "key of another section": Bad(TRAIN + "budget_usd: 8\n", 8, "budget_usd", "unknown", "`constraints.budget_usd`"),
    "section of another kind": Bad(TRAIN + "serve: {}\n", 8, "serve", "unknown key", "kind: serve"),
    "unknown key in lengths": Bad(
        swap(TRAIN, "mean", "average"), 5, "data.seq_len.average", "unknown key", "known here: mean"
    ),
    "yaml 1.1 boolean as key": Bad(TRAIN + "on: push\n", 8, "on", "unknown key 'on'", "known here"),
    "unknown kind": Bad(swap(TRAIN, "train\nmodel", "trian\nmodel"), 1, "kind", "found 'trian'", "'train'"),
    "kind of another type": Bad(swap(TRAIN, "train\nmodel", "3\nmodel"), 1, "kind", "found 3, expected one of", ""),
    "no kind": Bad(swap(TRAIN, "kind: train\n", ""), 1, "kind", "is missing", "kind: train"),
    "unknown model": Bad(
        swap(TRAIN, "bert-base-uncased", "bert-bas-uncased"),
        2,
        "model",
        "bert-bas-uncased",
        "'bert-base-uncased'",
    ),
    "model of another type": Bad(swap(TRAIN, "bert-base-uncased", "5"), 2, "model", "found 5, expected text", ""),
    "no model": Bad(swap(TRAIN, "model: bert-base-uncased\n", ""), 1, "model", "is missing", ""),
    "no such config": Bad(swap(TRAIN, "bert-base-uncased", "/nowhere/config.json"), 2, "model", "/nowhere", "config"),
    "relative path in a text": Bad(swap(TRAIN, "bert-base-uncased", "./m"), 2, "model", "'./m'", "config.json"),
    "nothing fetched": Bad(
        swap(TRAIN, "bert-base-uncased", "hf://org/name"), 2, "model", "hf://org/name", "save the config.json"
    ),
    "not a repository": Bad(swap(TRAIN, "bert-base-uncased", "hf://../x"), 2, "model", "hf://../x", "hf://org"),
    "unknown choice": Bad(TRAIN + "  optimizer: adamv\n", 8, "train.optimizer", "found 'adamv'", "'adamw'"),
    "unknown provider": Bad(
        TRAIN + "constraints:\n  providers: [aws, googel]\n", 9, "constraints.providers[1]", "'googel'", "gcp"
    ),
    "unknown discount": Bad(TRAIN + "buy:\n  discounts: {asw: 5}\n", 9, "buy.discounts.asw", "'asw'", "'aws'"),
    "unknown SKU in a discount": Bad(
        TRAIN + "buy:\n  discounts: {aws/p5.96xlarge: 5}\n",
        9,
        "buy.discounts.aws/p5.96xlarge",
        "no SKU",
        "'p5.4xlarge'",
    ),
    "negative percent": Bad(
        TRAIN + "buy:\n  discounts: {aws: -5}\n",
        9,
        "buy.discounts.aws",
        "found -5, expected a number of at least 0",
        "",
    ),
    "unknown commitment": Bad(
        TRAIN + "buy:\n  committed_usd: {asw: 5}\n", 9, "buy.committed_usd.asw", "'asw'", "'aws'"
    ),
    "unknown platform": Bad(
        TRAIN + "constraints:\n  platforms: [sagemaker, databrick]\n", 9, "constraints.platforms[1]", "'databrick'", ""
    ),
    "unknown token model": Bad(
        TRAIN + "buy:\n  token_models: [llama-3.1-9b]\n", 9, "buy.token_models[0]", "no token price", ""
    ),
    "hours twice": Bad(
        SERVE + "  hours_per_month: 100\nbuy:\n  schedule: {hours_per_day: 8, days_per_month: 22}\n",
        9,
        "buy.schedule",
        "stated twice",
        "keep one",
    ),
    "owned and shared": Bad(
        TRAIN + "buy:\n  reserved_owned: true\n  reserved_utilization: 0.5\n",
        10,
        "buy.reserved_utilization",
        "paid anyway",
        "drop",
    ),
    "place without a size": Bad(
        swap(TRAIN, "67_000", "67_000\n  location: aws/us-east-1"), 5, "data.location", "`size_gb` is missing", ""
    ),
    "unknown place": Bad(
        swap(TRAIN, "67_000", "67_000\n  location: aws/us-east-11\n  size_gb: 5"),
        5,
        "data.location",
        "no place",
        "'aws/us-east-1'",
    ),
    "people without a rate": Bad(TRAIN + "team:\n  setup_hours: 5\n", 8, "team", "not what one costs", "hourly_usd"),
    "unknown area": Bad(TRAIN + "constraints:\n  residency: europe\n", 9, "constraints.residency", "'europe'", "eu"),
    "unknown region": Bad(
        TRAIN + "constraints:\n  regions: [us-east-1, eastuss]\n",
        9,
        "constraints.regions[1]",
        "'eastuss'",
        "'eastus",
    ),
    "unknown gpu": Bad(
        TRAIN + "constraints:\n  gpus: H10O\n",
        9,
        "constraints.gpus",
        "'H10O', which matches no GPU",
        "'H100-",
    ),
    "bad gpu grammar": Bad(
        TRAIN + "constraints:\n  gpus:\n    - T4\n    - H100:8..1\n",
        11,
        "constraints.gpus[1]",
        "'H100:8..1'",
        "1..8",
    ),
    "empty name": Bad("name: ''\n" + TRAIN, 1, "name", "found '', expected text that is not empty", ""),
    "section of another type": Bad(TRAIN + "team: 5\n", 8, "team", "found 5, expected a mapping", ""),
}

CONTRADICTIONS = {
    "deadline in the past": Bad(
        TRAIN + "constraints:\n  deadline: 2026-11-19T00:00Z\n",
        9,
        "constraints.deadline",
        "in the past",
        "later",
    ),
    "a date in the past": Bad(
        TRAIN + "constraints:\n  deadline: 2020-01-01\n", 9, "constraints.deadline", "2020-01-01", "later"
    ),
    "deadline without a zone": Bad(
        TRAIN + "constraints:\n  deadline: 2026-12-01 00:00:00\n",
        9,
        "constraints.deadline",
        "no time zone",
        "",
    ),
    "deadline without a unit": Bad(
        TRAIN + "constraints:\n  deadline: 24\n", 9, "constraints.deadline", "found 24", "write 24h"
    ),
    "deadline of zero": Bad(TRAIN + "constraints:\n  deadline: 0h\n", 9, "constraints.deadline", "in the past", ""),
    "deadline far off": Bad(
        TRAIN + "constraints:\n  deadline: 2226-12-01\n", 9, "constraints.deadline", "2226", "check the year"
    ),
    "a service with a deadline": Bad(
        SERVE + "constraints:\n  deadline: 24h\n", 8, "constraints.deadline", "no deadline", "p95_latency"
    ),
    "spot, not interruptible": Bad(
        TRAIN + "constraints:\n  interruptible: false\nbuy:\n  purchases: [spot]\n",
        9,
        "constraints.interruptible",
        "found False",
        "interruptible: true",
    ),
    "no way to buy": Bad(TRAIN + "buy:\n  purchases: []\n", 9, "buy.purchases", "no way to buy", "on_demand"),
    "every way switched off": Bad(
        TRAIN + "buy:\n  on_demand: false\n  spot: false\n", 8, "buy", "no way to buy", "reserved_1y"
    ),
    "two ways to say how to buy": Bad(
        TRAIN + "buy:\n  purchases: [spot]\n  spot: true\n", 10, "buy.spot", "not both", "remove one"
    ),
    "residency outside the regions": Bad(
        TRAIN + "constraints:\n  residency: eu\n  regions: [us-east-1, us-west-2]\n",
        9,
        "constraints.residency",
        "us-east-1 (us)",
        "inside that area",
    ),
    "regions of other providers": Bad(
        TRAIN + "constraints:\n  providers: gcp\n  regions: [us-east-2]\n",
        10,
        "constraints.regions",
        "gcp has no such region",
        "of these providers",
    ),
    "residency where the provider is not": Bad(
        TRAIN + "constraints:\n  providers: ovh\n  residency: us\n",
        10,
        "constraints.residency",
        "ovh has no region there",
        "another provider",
    ),
    "mean above max": Bad(swap(TRAIN, "mean: 48", "mean: 480"), 5, "data.seq_len.mean", "480", "{mean: 48"),
    "percentiles that fall": Bad(
        swap(TRAIN, "mean: 48", "p50: 90, p90: 80"), 5, "data.seq_len.p50", "p50 (90) is above p90 (80)", ""
    ),
    "lengths without a max": Bad(swap(TRAIN, ", max: 128", ""), 5, "data.seq_len.max", "is missing", "max: 128"),
    "an empty histogram": Bad(swap(TRAIN, "{mean: 48, max: 128}", "[]"), 5, "data.seq_len", "found []", ""),
    "beyond learned positions": Bad(
        swap(TRAIN, "max: 128", "max: 513"), 5, "data.seq_len", "learned positions for 512", "cut it to 512"
    ),
    "beyond learned positions together": Bad(
        swap(SERVE, "input_tokens: 64", "input_tokens: 1020"),
        6,
        "serve.output_tokens",
        "1036",
        "cut it to 1024",
    ),
    "reserved positions do not count": Bad(
        swap(swap(TRAIN, "bert-base-uncased", "roberta-base"), "max: 128", "max: 513"),
        5,
        "data.seq_len",
        "learned positions for 512",
        "",
    ),
    "images with a length": Bad(
        swap(TRAIN, "bert-base-uncased", "resnet-50"), 5, "data.seq_len", "takes images", "remove the key"
    ),
    "text without a length": Bad(
        swap(TRAIN, "  seq_len: {mean: 48, max: 128}\n", ""), 3, "data.seq_len", "is missing", "a number"
    ),
    "no data": Bad(swap(TRAIN, "  samples: 67_000\n", ""), 3, "data.samples", "is missing", "`tokens:`"),
    "samples and tokens": Bad(swap(TRAIN, "67_000", "67_000\n  tokens: 5"), 5, "data.tokens", "not both", "remove one"),
    "micro above global": Bad(TRAIN + "  micro_batch: 33\n", 8, "train.micro_batch", "found 33", "lower micro_batch"),
    "lora without a method": Bad(TRAIN + "  lora: {rank: 8}\n", 8, "train.lora", "method is full", "`method: lora`"),
    "qlora in fp32": Bad(TRAIN + "  method: qlora\n  precision: fp32\n", 9, "train.precision", "found 'fp32'", "bf16"),
    "heads not divided": Bad(
        TRAIN + "  tensor_parallel: 5\n",
        8,
        "train.tensor_parallel",
        "the 12 heads",
        "one of 1, 2, 3, 4, 6, 12",
    ),
    "more stages than layers": Bad(
        TRAIN + "  pipeline_parallel: 13\n", 8, "train.pipeline_parallel", "found 13", "at most 12"
    ),
    "more GPUs than allowed": Bad(
        TRAIN + "  tensor_parallel: 4\nconstraints:\n  max_gpus: 2\n",
        10,
        "constraints.max_gpus",
        "found 2",
        "raise",
    ),
    "a filter above max_gpus": Bad(
        TRAIN + "constraints:\n  max_gpus: 4\n  gpus: 'H100:8'\n", 10, "constraints.gpus", "'H100:8'", "raise"
    ),
    "no items": Bad(BATCH, 3, "batch.items", "is missing", "`items_per_hour`"),
    "a rate without hours": Bad(BATCH + "  items_per_hour: 5\n", 3, "batch.hours", "is missing", "hours"),
    "items twice": Bad(
        BATCH + "  items: 5\n  items_per_hour: 5\n", 7, "batch.items_per_hour", "not both", "remove one"
    ),
    "a first token after the last": Bad(
        SERVE + "  p95_latency: 500ms\n  p95_ttft: 2s\n", 8, "serve.p95_ttft", "found 2s", "before the whole"
    ),
    "an unknown engine": Bad(SERVE + "  engine: vlm\n", 7, "serve.engine", "found 'vlm'", "vllm"),
    "weights that the engine does not run": Bad(
        SERVE + "  engine: llama.cpp\n  weights: fp8\n", 8, "serve.weights", "found 'fp8'", "0.5 and later"
    ),
    "a cache that the engine does not keep": Bad(
        swap(SERVE, "gpt2", "qwen3-0.6b") + "  engine: lmdeploy\n  kv_cache: fp8\n",
        8,
        "serve.kv_cache",
        "lmdeploy does not keep",
        "use vllm",
    ),
    "a model that an engine does not run": Bad(
        SERVE + "  engine: lmdeploy\n",
        7,
        "serve.engine",
        "does not run a decoder with learned positions: gpt2 is one",
        "use vllm (0.4 and later)",
    ),
    "an encoder-decoder under an engine of decoders": Bad(
        swap(SERVE, "gpt2", "t5-small") + "  engine: vllm\n",
        7,
        "serve.engine",
        "'vllm', which does not run an encoder-decoder",
        "tensorrt-llm (0.7 and later) or tgi",
    ),
    "a model that the engine by default does not run": Bad(
        swap(SERVE, "gpt2", "t5-small"),
        3,
        "serve.engine",
        "is missing, and vllm, the engine by default, does not run an encoder-decoder",
        "name it: use tensorrt-llm (0.7 and later) or tgi",
    ),
    "prefixes that an engine does not share": Bad(
        SERVE + "  engine: llama.cpp\n  prefix_cache_fraction: 0.5\n",
        8,
        "serve.prefix_cache_fraction",
        "llama.cpp shares no prefixes",
        "use vllm",
    ),
    "4-bit experts under an engine without them": Bad(
        swap(SERVE, "gpt2", "gpt-oss-20b") + "  engine: tgi\n  weights: mxfp4\n",
        8,
        "serve.weights",
        "found 'mxfp4', which tgi does not run",
        "vllm (0.10.2 and later)",
    ),
    "a checkpoint that an engine does not read": Bad(
        swap(SERVE, "gpt2", "gpt-oss-20b") + "  engine: tgi\n",
        7,
        "serve.engine",
        "does not run mxfp4, as the checkpoint of gpt-oss-20b is stored",
        "tensorrt-llm (1.0 and later) for mxfp4, or say `weights: bf16`",
    ),
    "a share of memory that an engine chooses itself": Bad(
        SERVE + "  engine: sglang\n  engine_limits: {cache_fraction: 0.9}\n",
        8,
        "serve.engine_limits.cache_fraction",
        "found 0.9, but sglang chooses its cache itself",
        "use vllm",
    ),
    "an engine that nobody builds": Bad(
        SERVE + "  engine_limits: {built: true}\n",
        7,
        "serve.engine_limits.built",
        "vllm builds no engine",
        "tensorrt-llm",
    ),
    "limits of an engine that runs fixed batches": Bad(
        SERVE + "  engine: pytorch\n  engine_limits: {requests: 64}\n",
        8,
        "serve.engine_limits",
        "pytorch runs fixed batches",
        "batch:",
    ),
    "more in flight than the engine is set to": Bad(
        SERVE + "  engine_limits: {requests: 32}\nlayout: {concurrency: 512}\n",
        7,
        "serve.engine_limits.requests",
        "found 32, but `layout` has 512 requests in flight",
        "lower `concurrency`",
    ),
    "limits beside a fixed batch": Bad(
        SERVE + "  engine_limits: {requests: 8, cache_fraction: 0.3}\nlayout: {batch: 64}\n",
        7,
        "serve.engine_limits",
        "`layout` has a fixed batch of 64",
        "concurrency:",
    ),
    "steps too small for the requests": Bad(
        SERVE + "  engine_limits: {requests: 1024, step_tokens: 16}\n",
        7,
        "serve.engine_limits.step_tokens",
        "found 16, below `requests` (1024)",
        "1024 or more",
    ),
    "a prompt above a step that reads it whole": Bad(
        swap(SERVE, "input_tokens: 64", "input_tokens: {mean: 64, max: 900}")
        + "  engine: tensorrt-llm\n  engine_limits: {step_tokens: 512}\n",
        5,
        "serve.input_tokens",
        "found 900 (the longest prompt), above the 512 tokens of a step",
        "chunked: true",
    ),
    "no requests at all": Bad(
        SERVE + "  engine_limits: {requests: 0}\n", 7, "serve.engine_limits.requests", "found 0", ""
    ),
    "more than all memory": Bad(
        SERVE + "  engine_limits: {cache_fraction: 1.2}\n", 7, "serve.engine_limits.cache_fraction", "found 1.2", ""
    ),
    "a draft model where the engine runs none": Bad(
        SERVE + "  engine: tgi\n  speculative:\n    tokens: 4\n    acceptance: 0.7\n    draft: distilgpt2\n",
        11,
        "serve.speculative.draft",
        "tgi runs no draft model",
        "use vllm",
    ),
    "an unknown draft model": Bad(
        SERVE + "  speculative:\n    tokens: 4\n    acceptance: 0.7\n    draft: distilgpt22\n",
        10,
        "serve.speculative.draft",
        "distilgpt22",
        "distilgpt2",
    ),
    "a draft that does not generate": Bad(
        SERVE + "  speculative:\n    tokens: 4\n    acceptance: 0.7\n    draft: bert-base-uncased\n",
        10,
        "serve.speculative.draft",
        "writes no tokens",
        "small decoder",
    ),
    "an acceptance over one": Bad(
        SERVE + "  speculative:\n    tokens: 4\n    acceptance: 70\n",
        9,
        "serve.speculative.acceptance",
        "found 70",
        "",
    ),
    "all of the prompt cached": Bad(
        BATCH + "  items: 10\n  prefix_cache_fraction: 1\n",
        7,
        "batch.prefix_cache_fraction",
        "found 1",
        "",
    ),
    "an engine that only generates": Bad(
        swap(swap(SERVE, "gpt2", "bert-base-uncased"), "  output_tokens: 16\n", "  engine: vllm\n"),
        6,
        "serve.engine",
        "serves models that generate",
        "onnxruntime",
    ),
    "an encoder that answers": Bad(
        swap(SERVE, "gpt2", "bert-base-uncased"), 6, "serve.output_tokens", "generates no tokens", "one pass"
    ),
    "a decoder that does not": Bad(
        swap(SERVE, "  output_tokens: 16\n", ""), 3, "serve.output_tokens", "is missing", "tokens per answer"
    ),
    "a latency without a unit": Bad(
        SERVE + "  p95_latency: 500\n", 7, "serve.p95_latency", "found 500, expected a duration", "500s"
    ),
}

INLINE = {
    "an inline shape lacks a key": Bad(
        swap(
            TRAIN,
            "bert-base-uncased",
            "{architecture: decoder, layers: 2, hidden: 64, heads: 2, vocab: 10}",
        ),
        2,
        "model.max_positions",
        "is missing: architecture decoder needs it",
        "",
    ),
    "inline heads do not divide": Bad(
        swap(
            TRAIN,
            "bert-base-uncased",
            "{architecture: encoder, layers: 2, hidden: 65, heads: 2, vocab: 10, max_positions: 512}",
        ),
        2,
        "model.heads",
        "2 heads do not divide hidden 65",
        "",
    ),
    "an inline value of another type": Bad(
        swap(TRAIN, "bert-base-uncased", "{architecture: decoder, layers: two}"),
        2,
        "model.layers",
        "'two'",
        "digits",
    ),
    "an unknown inline key": Bad(
        swap(TRAIN, "bert-base-uncased", "{architecture: decoder, layer: 2}"),
        2,
        "model.layer",
        "unknown key",
        "'layers'",
    ),
}

SYNTAX = {
    "empty": Bad("", None, None, "is empty", "examples/"),
    "only a comment": Bad("# nothing\n", None, None, "is empty", "examples/"),
    "a list at the top": Bad("- kind: train\n", 1, None, "found a list at the top", "examples/"),
    "a word at the top": Bad("train\n", 1, None, "found 'train' at the top", "examples/"),
    "an open bracket": Bad("kind: train\ndata: {samples: 5\nmodel: x\n", 3, None, "not valid YAML, column", "bracket"),
    "a tab": Bad("kind: train\ndata:\n\tsamples: 5\n", 3, None, "not valid YAML, column 1", "indentation"),
    "an open quote": Bad("kind: 'train\n", 2, None, "not valid YAML", "quotes"),
    "a control character": Bad("kind: train\nname: a\x07b\n", 2, None, "special characters", "UTF-8"),
    "a bad escape": Bad('name: "\\UFFFFFFFF"\n', None, None, "not valid YAML", "escape"),
    "half a character": Bad('name: "\\ud800"\n', 1, "name", "surrogate", "itself"),
    "a key twice": Bad(TRAIN + "kind: serve\n", 8, "kind", "given twice, first on line 1", "keep one"),
    "a key twice inside": Bad(TRAIN + "  global_batch: 8\n", 8, "train.global_batch", "first on line 7", "keep one"),
    "an alias": Bad("a: &x [1]\nb: *x\n", 2, "b", "alias '*x'", "write the value out"),
    "a tag": Bad("kind: !!python/object:os.system x\n", 1, "kind", "python/object", "remove the tag"),
    "a private tag": Bad("kind: !secret x\n", 1, "kind", "tag '!secret'", "remove the tag"),
    "an endless tag": Bad("kind: !" + "x" * 10**5 + " a\n", 1, "kind", "the YAML tag '!xxx", "remove the tag"),
    "an endless alias": Bad("kind: *" + "x" * 10**5 + "\n", 1, "kind", "alias '*xxx", "write the value"),
    "an endless key": Bad("? " + "x" * 10**5 + "\n: 1\n", 1, None, "a key of 100,000 characters", "short"),
    "two documents": Bad("kind: train\n---\nkind: serve\n", 2, None, "second YAML document", "one workload"),
    "a list as key": Bad("? [1, 2]\n: x\n", 1, None, "a key must be a word", "quote"),
    "deep nesting": Bad("a: " + "[" * 500 + "]" * 500, 1, None, "nested more than 12 levels", ""),
    "deep nesting, never closed": Bad("[" * 100_000, 1, None, "nested more than 12 levels", ""),
    "too many values": Bad("a: [" + "1," * 30_000 + "]", 1, None, "more than 20,000 values", ""),
}

ALL = {**NUMBERS, **NAMES, **CONTRADICTIONS, **INLINE, **SYNTAX}
