"""What sources of inference rows document, and what it changes in a prediction."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

import tonnage.calibration
from tonnage.calibration.inference_facts import with_inference_facts
from tonnage.calibration.inference_judge import judge_inference
from tonnage.calibration.inference_reading import InferenceCase, read_case
from tonnage.calibration.inference_setup import row_engine
from tonnage.calibration.inference_sources import documented_facts
from tonnage.calibration.prediction import JudgedRow, SkippedRow
from tonnage.calibration.rows import InferenceRow
from tonnage.catalog.loading import load_catalog
from tonnage.sizing.encoder_loads import LOOP_STEP_S
from tonnage.workload.engine_limits import EngineLimits

CATALOG = load_catalog()
EXAMPLES = "NVIDIA/DeepLearningExamples@729963dd "
ROW = InferenceRow(
    id="r1", config_id="c1", source=EXAMPLES + "TF2 BERT README", model="bert-large", params=335e6, n_layers=24,
    d_model=1024, n_heads=16, n_kv_heads=16, d_ff=4096, vocab=30522, kind="encoder", gpu="V100-16GB", n_gpus=1, tp=1,
    engine="tf", precision="fp16", weights_quant="", batch_size=1, concurrency=None, input_len=128.0, output_len=None,
    metric="latency_ms_mean", value=9.5, note="TF2",
)  # fmt: skip
PHOTOS = replace(
    ROW, model="resnet50", kind="vision", input_len=None, batch_size=256, gpu="A100-40GB-SXM",
    source=EXAMPLES + "TF1 resnet50v1.5 README", note="224x224; no XLA",
)  # fmt: skip
SERVED = replace(
    ROW, model="llama2-70b", params=69e9, kind="decoder", gpu="H100-80GB-SXM", engine="trtllm", precision="fp8",
    weights_quant="fp8", batch_size=None, input_len=None, metric="output_tokens_per_s", value=24323.0, source="mine",
    note="OpenOrca",
)  # fmt: skip


def case_of(row: InferenceRow) -> InferenceCase:
    case = read_case(with_inference_facts(row), CATALOG)
    assert isinstance(case, InferenceCase), case
    return case


def seconds(row: InferenceRow) -> float:
    (judged,) = judge_inference([row], CATALOG)
    assert isinstance(judged, JudgedRow), judged
    return judged.predicted / 1e3


def predicted_value(row: InferenceRow) -> float:
    (judged,) = judge_inference([with_inference_facts(row)], CATALOG)
    assert isinstance(judged, JudgedRow), judged
    return judged.predicted


# source, precision, engine -> class, autocast, threads that decode
READ: list[tuple[str, str, str, str, bool | None, int]] = [
    (EXAMPLES + "TF2 BERT README", "fp16", "tf", "compiled", True, 0),
    (EXAMPLES + "TF1 BERT README", "fp32", "tf", "compiled", False, 0),
    (EXAMPLES + "TF1 resnet50v1.5 README", "fp16", "tf", "graph", True, 10),
    (EXAMPLES + "PyTorch resnet50v1.5 README", "fp16", "pytorch", "eager", True, 0),
    (EXAMPLES + "PyTorch resnet50 triton", "fp16", "triton+onnxruntime-trt", "converted", None, 0),
    ("somebody/else@1", "fp16", "tf", "graph", None, 0),
]


@pytest.mark.parametrize(("source", "precision", "engine", "kind", "autocast", "threads"), READ)
def test_a_source_says_how_it_ran(
    source: str, precision: str, engine: str, kind: str, autocast: bool | None, threads: int
) -> None:
    """XLA, autocast and the threads that decode photographs are read off the scripts of a source, once."""
    case = case_of(replace(ROW, source=source, precision=precision, engine=engine, gpu="V100-16GB"))
    assert (case.engine, case.autocast, case.decoding_threads) == (kind, autocast, threads)


def test_a_column_goes_before_what_the_source_documents() -> None:
    """A user's table states its own; a source that is not known documents nothing."""
    stated = with_inference_facts(replace(ROW, compiled="n", autocast="n"))
    assert (stated.compiled, stated.autocast) == ("n", "n")
    assert not documented_facts(replace(ROW, source="mine"))


@pytest.mark.parametrize(("engine", "gpu"), [("tf-xla", "V100-16GB"), ("pytorch", "A100-40GB-SXM")])
def test_autocast_reads_weights_in_32_bit_and_writes_them_in_16(engine: str, gpu: str) -> None:
    """A pass under autocast takes as much longer as the casts of the products' weights move, 6 bytes each, and no
    more than twice that (a residual stream in 32 bit, a launch each)."""
    row = replace(ROW, source="mine", engine=engine, gpu=gpu, batch_size=8)
    longer = seconds(replace(row, autocast="y")) - seconds(replace(row, autocast="n"))
    weights = 24 * 12 * 1024**2
    least = weights * 6.0 / (CATALOG.accelerator(gpu).memory_bandwidth_gb_per_s or 0.0) / 1e9
    assert least < longer < 4.0 * least


def test_photographs_are_decoded_while_the_device_works() -> None:
    """Ten threads of libjpeg-turbo get 3,364 photographs of ImageNet ready a second; a device that takes more waits."""
    fed = replace(PHOTOS, source="mine", engine="tensorrt", decoding_threads=10)
    assert seconds(fed) == pytest.approx(256 / 3364, rel=1e-3)
    assert seconds(fed) > seconds(replace(fed, decoding_threads=None))
    slow = replace(fed, gpu="T4", precision="fp32")
    assert seconds(slow) == seconds(replace(slow, decoding_threads=None))


# source, note, precision, engine -> how images are laid out, whether batches are steps of a loop
LAID_OUT: list[tuple[str, str, str, str, bool | None, str]] = [
    (EXAMPLES + "TF1 resnet50v1.5 README", "224x224; no XLA", "tf32", "tf", False, "y"),
    (EXAMPLES + "TF1 resnet50v1.5 README", "224x224; no XLA", "fp16", "tf", True, "y"),
    (EXAMPLES + "TF1 resnet50v1.5 README", "224x224; XLA", "tf32", "tf", None, "y"),
    (EXAMPLES + "PyTorch resnet50v1.5 README", "224x224", "fp16", "pytorch", True, "y"),
    (EXAMPLES + "PyTorch resnet50v1.5 README", "224x224", "fp32", "pytorch", None, "y"),
    (EXAMPLES + "TF2 BERT README", "TF2", "fp16", "tf", None, "y"),
    ("mine", "channels_last=n; looped=y", "fp16", "pytorch", False, "y"),
    ("mine", "", "fp16", "pytorch", None, ""),
]


@pytest.mark.parametrize(("source", "note", "precision", "engine", "last", "looped"), LAID_OUT)
def test_a_source_says_how_images_are_laid_out_and_batches_handed_over(
    source: str, note: str, precision: str, engine: str, last: bool | None, looped: str
) -> None:
    """A program's default layout and the loop that its benchmark times are documented; else nothing is known."""
    case = case_of(replace(PHOTOS, source=source, note=note, precision=precision, engine=engine))
    assert (case.channels_last, case.row.looped) == (last, looped)


@pytest.mark.parametrize(
    ("engine", "native", "kind"),
    [("trt", "", "fused"), ("trt", "y", "fused"), ("trt", "n", "converted"), ("onnxruntime-trt", "", "converted"),
     ("onnxruntime-trt", "y", "fused"), ("pytorch", "n", "eager")],
)  # fmt: skip
def test_how_a_network_came_to_its_engine_says_its_class(engine: str, native: str, kind: str) -> None:
    """A network that a framework hands to TensorRT is a converted one, whatever the engine is called."""
    assert row_engine(replace(ROW, source="mine", engine=engine, native=native)) == kind


def test_a_step_of_a_loop_costs_its_hand_over() -> None:
    """A batch that a loop hands over takes 1.5 ms longer; one that comes through a server has that instead."""
    row = replace(ROW, source="mine")
    assert seconds(replace(row, looped="y")) - seconds(row) == pytest.approx(LOOP_STEP_S)
    served = replace(row, engine="triton+onnxruntime-trt", remote="y")
    assert seconds(replace(served, looped="y")) == seconds(served)


@pytest.mark.parametrize(
    ("note", "quantised"),
    [("pytorch build; padded; FT-INT8-v1", False), ("remove-padding mode; EFF-FT-INT8-v2", True), ("padded", None)],
)
def test_a_table_of_a_library_says_what_its_8_bit_products_give(note: str, quantised: bool | None) -> None:
    """FasterTransformer names columns by its mode; another document's words are not read so."""
    row = replace(ROW, source="NVIDIA/FasterTransformer docs@df4a7534 bert_guide", engine="fastertransformer",
                  gpu="T4", precision="int8", mean_input_len=64.0, note=note)  # fmt: skip
    assert case_of(row).quantised_residual is quantised
    assert case_of(replace(row, source="mine")).quantised_residual is None
    stated = case_of(replace(row, source="mine", note="", quantised_residual="y"))
    assert stated.quantised_residual is True


def test_removed_padding_stays_around_attention() -> None:
    """A row whose padding is removed keeps the length that it was padded to; another knows of none."""
    row = replace(ROW, source="mine", engine="fastertransformer", input_len=384.0, mean_input_len=192.0)
    removed = case_of(replace(row, padding="removed"))
    assert (removed.input_tokens, removed.padded_tokens) == (192.0, 384.0)
    assert case_of(row).padded_tokens == 0.0


def test_stated_layouts_change_what_convolutions_move() -> None:
    """Images that stay channels first take eager tf32 convolutions longer than channels last; unstated, PyTorch's are
    first, and TensorFlow's last."""
    eager = replace(PHOTOS, source="mine", note="", engine="pytorch", precision="tf32")
    assert seconds(replace(eager, channels_last="n")) > 1.2 * seconds(replace(eager, channels_last="y"))
    assert seconds(eager) == seconds(replace(eager, channels_last="n"))
    graph = replace(eager, engine="tf")
    assert seconds(graph) == seconds(replace(graph, channels_last="y")) < seconds(replace(graph, channels_last="n"))


# A row's note and source, and the columns that they fill.
FILLED: list[tuple[dict[str, object], dict[str, object]]] = [
    ({"note": "request_rate_qps=4; 500 requests; pp=2"}, {"request_rate_qps": 4.0, "prompts": 500, "pp": 2}),
    ({"note": "all at once; request_rate_qps=inf"}, {"request_rate_qps": None}),
    ({"note": "request_rate_qps=nan; pp=2.5"}, {"request_rate_qps": None, "pp": None}),
    ({"note": "data_set=openorca; beams=4; lengths=fixed"}, {"data_set": "openorca", "beams": 4, "lengths": "fixed"}),
    ({"note": "3000 ShareGPT-like prompts"}, {"data_set": "sharegpt", "prompts": 3000, "lengths": "varied"}),
    ({"note": "KV cache fp8, Triton"}, {"kv_cache": "fp8", "remote": "y"}),
    ({"note": "KV cache fp8", "kv_cache": "fp16"}, {"kv_cache": "fp16"}),
    ({"note": "XLA", "source": "mine"}, {"compiled": "y"}),
    ({"note": "no XLA", "source": "mine"}, {"compiled": ""}),
    ({"note": "batch-1 requests; fixed batch 8", "source": "mine"}, {"prompts": None, "lengths": ""}),
    ({"note": "not suspect; half of what Triton does", "source": "mine"}, {"quality": "ok", "remote": ""}),
    ({"note": "closed Server, Triton; real lengths (<= 384)", "source": "mlcommons/inference_results_v4.1 x"},
     {"native": "y", "remote": "n", "latency_bound": "y", "mean_input_len": pytest.approx(177, rel=0.01)}),
    ({"note": "closed Server", "source": "mine"}, {"native": "", "latency_bound": ""}),
    ({"engine": "trt", "source": EXAMPLES + "Paddle RN50v1.5 README"}, {"native": "n"}),
    ({"engine": "trt", "source": EXAMPLES + "Paddle RN50v1.5 README", "native": "y"}, {"native": "y"}),
    ({"engine": "trt", "source": "mine"}, {"native": ""}),
    ({"note": "memory of the pool", "metric": "peak_mem_gib", "source": "InternLM/lmdeploy a100_fp16.md"},
     {"mem_kind": "pool"}),
    ({"note": "memory of the pool", "metric": "peak_mem_gib", "source": "mine"}, {"mem_kind": ""}),
    ({"note": "anomalous: slower than batch 4"}, {"quality": "suspect"}),
    ({"note": "A100; throughput suspect"}, {"quality": "suspect"}),
    ({"note": "row is suspect (batch 4 is slower)"}, {"quality": "suspect"}),
    ({"note": "TPOT anomalous; 100 prompts"}, {"quality": "suspect", "prompts": 100}),
    ({"note": "not suspect; no anomalous values; no longer suspect"}, {"quality": "ok"}),
    ({"note": "not as fast as batch 4: suspect"}, {"quality": "suspect"}),
    ({"note": "Flash Attention 2"}, {"attention": "sdpa"}),
]  # fmt: skip


@pytest.mark.parametrize(("change", "columns"), FILLED)
def test_notes_and_sources_fill_columns_once(change: dict[str, object], columns: dict[str, object]) -> None:
    """Stated cells go first, then `key=value`, then the source, then words; filling twice changes nothing."""
    row = with_inference_facts(replace(ROW, **change))  # type: ignore[arg-type]
    assert {name: getattr(row, name) for name in columns} == columns
    assert with_inference_facts(row) == row


def test_no_prediction_reads_a_note_or_where_a_row_is_from() -> None:
    """Once columns are filled, note, source and source group decide nothing: no module but those that fill columns
    reads them, save to name a source (of a shape, of a residual, of a printed table)."""
    folder = Path(tonnage.calibration.__file__).parent
    readers: dict[str, set[str]] = {"note": set(), "source": set(), "source_group": set()}
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in readers:
                readers[node.attr].add(path.stem)
    fillers = {"inference_facts", "inference_sources", "row_facts", "row_sources"}
    own = {"local_rows"}  # rows that Tonnage wrote, in `key=value` of its own
    namers = {"inference_setup", "inference_contradictions", "inference_doubts", "inference_fit", "intervals",
              "training_judge", "training_memory_rows", "inference_judge"}  # fmt: skip
    assert readers["note"] <= fillers | own
    assert readers["source_group"] <= fillers
    assert readers["source"] <= fillers | own | namers


BOARDS = [  # row's system, devices, degree -> the link between its ranks
    ("mlcommons/inference_results_v4.1 Dell/XE8640_H100_SXM_80GBx4_TRT", 4, 2, "nvlink4-mesh-pair"),
    ("mlcommons/inference_results_v4.1 Dell/XE8640_H100_SXM_80GBx4_TRT", 4, 4, "nvlink4"),
    ("mlcommons/inference_results_v4.1 Dell/XE9680_H100_SXM_80GBx8_TRT", 8, 2, "nvlink4"),
    ("mine", 4, 2, "nvlink4"),
]


@pytest.mark.parametrize(("source", "devices", "degree", "link"), BOARDS)
def test_two_of_four_devices_without_a_switch_share_a_third_of_their_links(
    source: str, devices: int, degree: int, link: str
) -> None:
    """Boards of four join each pair by 6 of 18 links; behind a switch every pair has all of them."""
    case = case_of(replace(SERVED, source=source, n_gpus=devices, tp=degree))
    assert case.machine.intra == CATALOG.link(link)


def test_bridges_between_pcie_cards_are_not_assumed() -> None:
    """Cards that can be bridged in pairs talk over PCIe where nobody says that they are, as in training."""
    row = replace(SERVED, gpu="A100-80GB-PCIe", n_gpus=2, tp=2, precision="fp16", weights_quant="")
    case = case_of(row)
    assert case.machine.intra == CATALOG.link("pcie4")


def test_four_h100_without_a_switch_are_slower_than_half_of_eight() -> None:
    """MLPerf inference 4.1, Llama 2 70B offline: 10,696 and 10,591 output tokens a second of two systems of four,
    24,323 of one of eight: 0.87 a device."""
    eight = predicted_value(replace(SERVED, n_gpus=8, tp=2))
    four = predicted_value(replace(SERVED, n_gpus=4, tp=2, switched="n"))
    assert 2.0 * four / eight == pytest.approx(2.0 * 10_640 / 24_323, abs=0.05)


def test_queries_that_read_shared_keys_each_for_itself_are_slower() -> None:
    """TensorRT-LLM 0.5, Llama 2 70B on four A100, batches of 64, 2,048 tokens in and out: 738 tokens a second, where
    one reading of the cache would give 1,050 and more (performance docs v0.5); with one head a key nothing changes."""
    row = replace(
        SERVED,
        source="NVIDIA/TensorRT-LLM performance docs v0.5",
        gpu="A100-80GB-SXM",
        n_gpus=4,
        tp=4,
        precision="fp16",
        weights_quant="",
        batch_size=64,
        input_len=2048.0,
        output_len=2048.0,
        note="",
    )
    assert predicted_value(row) == pytest.approx(738.0, rel=0.15)
    assert predicted_value(replace(row, source="mine")) > 1.3 * 738.0
    plain = replace(row, model="llama-7b", n_gpus=1, tp=1)
    assert predicted_value(plain) == predicted_value(replace(plain, source="mine"))


# TensorRT-LLM's performance overviews, Llama 3.1 70B, fixed lengths, all requests at once: version, GPU, degree,
# weights, lengths, requests, output tokens a second. Engines of 0.14 differ in what they were built for; those of 0.17
# have the same layouts, with limits of their lengths.
BUILT = [
    ("e00d4e65 v0.14", "A100-80GB-SXM", 2, "", (2048, 2048), 1500, 126.1),  # built for 2,048 requests
    ("258c7540 v0.17", "A100-80GB-SXM", 2, "", (2048, 2048), 1500, 261.1),
    ("e00d4e65 v0.14", "A100-80GB-SXM", 2, "", (1000, 1000), 3000, 468.6),  # built for 256
    ("e00d4e65 v0.14", "H100-80GB-SXM", 1, "fp8", (128, 2048), 3000, 445.8),  # 2,048
    ("258c7540 v0.17", "H100-80GB-SXM", 1, "fp8", (128, 2048), 3000, 911.6),
    ("e00d4e65 v0.14", "H100-80GB-SXM", 8, "fp8", (128, 4096), 1500, 9168.7),  # 8,192, steps of 16,384 tokens
    ("258c7540 v0.17", "H100-80GB-SXM", 8, "fp8", (128, 4096), 1500, 14171.4),
    ("e00d4e65 v0.14", "H100-80GB-SXM", 4, "fp8", (2048, 128), 3000, 1001.1),  # steps of 1,024 tokens
    ("258c7540 v0.17", "H100-80GB-SXM", 4, "fp8", (2048, 128), 3000, 1302.6),
]


@pytest.mark.parametrize(("version", "gpu", "ranks", "quant", "lengths", "requests", "published"), BUILT)
def test_an_engine_answers_by_what_it_was_built_for(
    version: str, gpu: str, ranks: int, quant: str, lengths: tuple[int, int], requests: int, published: float
) -> None:
    """The same layouts come out within 30 %, and two versions up to twice apart: what an engine was built for takes
    memory from its cache, and tokens from its steps."""
    row = replace(
        SERVED, source=f"NVIDIA/TensorRT-LLM perf-overview@{version}", model="llama3.1-70b", gpu=gpu, n_gpus=ranks,
        tp=ranks, precision=quant or "fp16", weights_quant=quant, batch_size=None, input_len=float(lengths[0]),
        output_len=float(lengths[1]), metric="output_tokens_per_s", value=published,
        note=f"all requests queued at once; fixed lengths; {requests} requests{'; KV cache fp8' if quant else ''}",
    )  # fmt: skip
    assert predicted_value(row) == pytest.approx(published, rel=0.30)


@pytest.mark.parametrize(
    ("version", "lengths", "requests", "step_tokens"),
    [("258c7540 v0.17", (128, 2048), 256, 2048), ("258c7540 v1.0", (128, 2048), 384, 2048),
     ("258c7540 v1.0", (20000, 2000), 64, 20064)],
)  # fmt: skip
def test_what_the_benchmark_tool_sets_depends_on_its_release(
    version: str, lengths: tuple[int, int], requests: int, step_tokens: int
) -> None:
    """0.17 takes 10^9 bytes of weights for a GiB; 1.0 reads prompts whole, so that a step takes the longest one and a
    token of each request."""
    row = replace(
        SERVED, source=f"NVIDIA/TensorRT-LLM perf-overview@{version}", model="llama3.1-70b", n_gpus=2, tp=2,
        input_len=float(lengths[0]), output_len=float(lengths[1]),
        note="all requests queued at once; fixed lengths; 1000 requests; KV cache fp8",
    )  # fmt: skip
    limits = case_of(row).limits
    assert (limits.requests, limits.step_tokens) == (requests, step_tokens)


def test_a_note_may_say_what_an_engine_was_set_to() -> None:
    """`key=value` of a note goes before nothing else, and a row without any has the engine's defaults."""
    row = replace(SERVED, source="mine", note=SERVED.note + "; most_requests=64; most_step_tokens=1024; built=y")
    limits = case_of(with_inference_facts(row)).limits
    assert (limits.requests, limits.step_tokens, limits.built, limits.chunked) == (64, 1024, True, False)
    assert case_of(replace(SERVED, source="mine")).limits == EngineLimits()


@pytest.mark.parametrize(
    ("said", "reason"),
    [("cache_fraction=1.7", "no share of memory"), ("cache_fraction=-2", "no share of memory"),
     ("most_requests=0", "most_requests is 0: no request could run"),
     ("most_step_tokens=-1", "most_step_tokens is -1: no request could run"),
     ("instances=0", "instances is 0: no request could run")],
)  # fmt: skip
def test_limits_that_cannot_be_are_a_reason_to_skip(said: str, reason: str) -> None:
    """A share beyond all memory, no requests, no tokens: the row is skipped and says which."""
    found = read_case(with_inference_facts(replace(SERVED, source="mine", note=f"{SERVED.note}; {said}")), CATALOG)
    assert isinstance(found, SkippedRow)
    assert reason in found.reason


def test_a_python_server_in_front_takes_longer_to_the_first_token() -> None:
    """`trtllm-serve`, Qwen3-8B on an H100, four users: 51.6 ms to the first token, 7.7 ms a further one (gpustack/
    gpustack, docs/performance-lab/qwen3-8b/h100-latency.md). Triton's C++ front end would give 20 ms."""
    row = replace(
        SERVED, source="gpustack/gpustack@c0cee89", model="qwen3-8b", precision="bf16", weights_quant="", n_gpus=1,
        tp=1, concurrency=4.0, input_len=232.6, output_len=220.6, metric="ttft_ms", value=51.61,
        note="max_concurrency closed loop; 100 prompts",
    )  # fmt: skip
    bare = replace(row, source="mine")
    assert case_of(row).engine == "llm-http"
    assert predicted_value(row) == pytest.approx(51.6, rel=0.25)
    assert predicted_value(bare) < 25.0
    tokens = [predicted_value(replace(one, metric="tpot_ms")) for one in (row, bare)]
    assert tokens[0] == pytest.approx(tokens[1], rel=0.01)


def test_clients_beyond_an_engines_cache_wait() -> None:
    """64 clients of TurboMind with 2,048 tokens in and out on one A100, whose cache holds half of them: the mean first
    token of Llama 2 7B comes after 39 s, not after the 8 s of one batch (InternLM/lmdeploy, benchmark/a100_fp16.md). 32
    of them are one batch."""
    row = replace(
        SERVED, source="InternLM/lmdeploy a100_fp16.md", model="llama2-7b", engine="lmdeploy", gpu="A100-80GB-SXM",
        n_gpus=1, tp=1, precision="fp16", weights_quant="", batch_size=64, concurrency=64.0, input_len=2048.0,
        output_len=2048.0, metric="ttft_ms", value=39105.0, note="fixed",
    )  # fmt: skip
    assert predicted_value(row) == pytest.approx(39_105.0, rel=0.40)
    brief = replace(row, output_len=128.0, metric="tpot_ms_p50", value=46.0)  # over all tokens
    assert predicted_value(brief) == pytest.approx(46.0, rel=0.15)
    assert predicted_value(replace(brief, source="mine")) > 75.0  # over requests
    half = replace(row, batch_size=32, concurrency=32.0)
    assert case_of(half).load == "static"
    assert predicted_value(half) == pytest.approx(4_118.0, rel=0.2)
    assert predicted_value(replace(row, n_gpus=2)) == predicted_value(half)  # 32 for each of two replicas


def test_tensorflow_1_runs_norms_apart_without_xla_and_copies_images_in_the_step() -> None:
    """The README says that norm and rectifier are not fused without XLA; images are staged in training alone."""
    plain = case_of(replace(PHOTOS, source=EXAMPLES + "TF1 resnet50v1.5 README", note="224x224; no XLA", engine="tf"))
    compiled = case_of(replace(plain.row, note="224x224; XLA", channels_last="", fused_norms="", compiled="y"))
    assert (plain.norms_apart, compiled.norms_apart) == (True, False)
    assert plain.copied_bytes_per_s == compiled.copied_bytes_per_s == 23.73e9  # PCIe 4


@pytest.mark.parametrize(("gpu", "bytes_per_s"), [("V100-16GB", 12e9), ("A100-40GB-SXM", 23.73e9)])
def test_a_step_waits_for_images_that_are_not_staged(gpu: str, bytes_per_s: float) -> None:
    """602,112 bytes an image over the PCIe of the device's generation, before the pass."""
    row = replace(PHOTOS, source="mine", note="", engine="tf", gpu=gpu, decoding_threads=None)
    waited = seconds(replace(row, staged="n")) - seconds(row)
    assert waited == pytest.approx((row.batch_size or 0) * 602_112 / bytes_per_s)


def test_instances_of_a_model_share_the_device_and_onnx_runtime_copies_inside_its_run() -> None:
    """256 users of two instances: each computes 64 images in twice the time of a pass alone, and copies them first. The
    source says two instances online and one offline."""
    row = replace(PHOTOS, source="mine", note="", engine="triton+onnxruntime-trt", precision="fp16", gpu="V100-32GB",
                  batch_size=1, concurrency=256.0, metric="server_compute_ms_mean", decoding_threads=None,
                  staged="n")  # fmt: skip
    copied = 64 * 602_112 / 12e9
    alone = seconds(replace(row, concurrency=128.0)) - copied  # one instance: 64 images, half of the users
    assert seconds(replace(row, instances=2)) == pytest.approx(2.0 * alone + copied)
    online = case_of(replace(row, source=EXAMPLES + "PyTorch resnet50 triton", staged=""))
    assert (online.instances, online.copied_bytes_per_s) == (2, 12e9)
    assert case_of(replace(online.row, concurrency=1.0, instances=None)).instances == 1
