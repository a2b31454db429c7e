"""Commands of serving engines: exactly what a plan chose, and nothing that the engine's own release does not take."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml

from tonnage.errors import InputError, UnknownName
from tonnage.serving.engines.arguments import check_arguments, engine_release, known_arguments
from tonnage.serving.engines.engine import EnginePlace
from tonnage.serving.engines.generation import Draft, GenerationService
from tonnage.serving.engines.registry import ENGINES, command_engine

PLACE = EnginePlace(folder="/run/service", port=8000)
LLAMA = GenerationService(
    model="/models/llama-70b", name="llama-70b", weights="bf16", kv_cache="fp8", tensor_parallel=4, most_requests=192,
    step_tokens=8192, most_tokens=4096, memory_fraction=0.9, prefix_cache=True,
)  # fmt: skip
SERVED = {"llama.cpp": replace(LLAMA, model="/models/llama.gguf", weights="fp16", memory_fraction=None),
          "tei": GenerationService(model="BAAI/bge-m3", name="bge-m3", weights="fp16", step_tokens=16384)}  # fmt: skip


def value_of(argv: tuple[str, ...], name: str) -> str:
    return argv[argv.index(name) + 1]


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_keeps_the_contract(name: str) -> None:
    """A command is the same twice, names model, host and port, has a health path, and only known arguments."""
    service = SERVED.get(name, LLAMA)
    command = ENGINES[name].render(service, PLACE)
    assert command == ENGINES[name].render(service, PLACE)
    assert service.model in command.argv
    assert value_of(command.argv, "--port") == "8000"
    assert "127.0.0.1" in command.argv
    assert command.health.startswith("/")
    known = known_arguments(name)
    written = [one for one in command.argv[len(ENGINES[name].start()) :] if one.startswith("--")]
    assert set(written) <= set(known)
    assert json.loads(json.dumps(command.document()))["argv"] == list(command.argv)


def test_vllm_is_told_what_was_planned() -> None:
    """Degrees, requests in flight, tokens of a step and a request, memory and cache format stand in the command."""
    argv = command_engine("vllm").render(LLAMA, PLACE).argv
    assert argv[:3] == ("vllm", "serve", "/models/llama-70b")
    told = {name: value_of(argv, name) for name in (
        "--tensor-parallel-size", "--max-num-seqs", "--max-num-batched-tokens", "--max-model-len",
        "--gpu-memory-utilization", "--kv-cache-dtype", "--dtype")}  # fmt: skip
    assert told == {
        "--tensor-parallel-size": "4", "--max-num-seqs": "192", "--max-num-batched-tokens": "8192",
        "--max-model-len": "4096", "--gpu-memory-utilization": "0.9", "--kv-cache-dtype": "fp8", "--dtype": "bfloat16",
    }  # fmt: skip
    assert "--enable-prefix-caching" in argv


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("vllm", {"--tensor-parallel-size": "2", "--data-parallel-size": "4", "--max-num-seqs": "64"}),
        ("sglang", {"--tp-size": "8", "--ep-size": "8", "--attn-dp-size": "4", "--max-running-requests": "256"}),
    ],
)
def test_experts_and_attention_are_dealt_out_as_each_engine_says_it(engine: str, expected: dict[str, str]) -> None:
    """vLLM's groups are data-parallel ranks of the devices that are left; SGLang counts all devices in each degree."""
    service = replace(LLAMA, tensor_parallel=8, expert_parallel=8, attention_groups=4, most_requests=64)
    argv = command_engine(engine).render(service, PLACE).argv
    assert {name: value_of(argv, name) for name in expected} == expected


def test_tensorrt_llm_takes_the_rest_from_a_file() -> None:
    """Number formats and groups of attention have no arguments: they stand in the options file that is named."""
    service = replace(LLAMA, tensor_parallel=8, expert_parallel=8, attention_groups=8,
                      draft=Draft(tokens=3, model="/models/draft"))  # fmt: skip
    command = command_engine("tensorrt-llm").render(service, PLACE)
    assert value_of(command.argv, "--extra_llm_api_options") == "/run/service/trtllm-options.yaml"
    options = yaml.safe_load(command.files[0].text)
    assert options["enable_attention_dp"] is True
    assert options["kv_cache_config"] == {"dtype": "fp8", "enable_block_reuse": True}
    assert options["speculative_config"]["max_draft_len"] == 3


def test_llama_cpp_has_a_context_of_all_its_slots() -> None:
    """Its context is cut into slots: a request of 4,096 tokens in each of 192."""
    argv = command_engine("llama.cpp").render(SERVED["llama.cpp"], PLACE).argv
    assert value_of(argv, "--ctx-size") == str(192 * 4096)
    assert value_of(argv, "--cache-type-k") == "q8_0"


@pytest.mark.parametrize(
    ("engine", "service", "words"),
    [
        ("vllm", replace(LLAMA, weights="int4"), "int4 weights of a 16-bit checkpoint"),
        ("sglang", replace(LLAMA, weights="int8"), "int8 weights of a 16-bit checkpoint"),
        ("tensorrt-llm", replace(LLAMA, weights="fp8"), "fp8 weights of a 16-bit checkpoint"),
        ("tensorrt-llm", replace(LLAMA, attention_groups=2), "2 groups of attention over 4 GPUs"),
        ("llama.cpp", LLAMA, "serves GGUF files"),
        ("llama.cpp", replace(SERVED["llama.cpp"], expert_parallel=4), "dealt out over devices"),
        ("tei", replace(SERVED["tei"], tensor_parallel=2), "over several devices"),
        ("tei", replace(SERVED["tei"], weights="bf16"), "bf16 weights"),
        ("vllm", replace(LLAMA, extra=("--max-num-sequences", "3")), "no argument --max-num-sequences"),
    ],
)  # fmt: skip
def test_what_an_engine_cannot_be_told_is_refused(engine: str, service: GenerationService, words: str) -> None:
    """Each refusal names what it is about and has a hint."""
    with pytest.raises(InputError, match=words) as refused:
        command_engine(engine).render(service, PLACE)
    assert refused.value.hint


def test_a_misspelt_argument_is_compared_with_the_engines_own() -> None:
    """The hint names the argument that was meant; an argument without its value is found."""
    with pytest.raises(UnknownName) as unknown:
        check_arguments("vllm", ("--max-num-seq", "3"))
    assert "--max-num-seqs" in str(unknown.value.hint)
    with pytest.raises(InputError, match="takes a value"):
        check_arguments("sglang", ("--tp-size", "--enable-metrics"))
    check_arguments("vllm", ("--no-enable-prefix-caching", "--seed=3"))


def test_an_unknown_engine_is_refused() -> None:
    """The names there are stand in the hint."""
    with pytest.raises(UnknownName, match="no serving engine named 'vlm'"):
        command_engine("vlm")
    with pytest.raises(UnknownName):
        engine_release("vlm")


def test_a_key_stands_in_no_command() -> None:
    """Where a key is asked for, its variable is named; an engine that takes it as an argument alone is refused."""
    keyed = replace(PLACE, api_key=True)
    assert command_engine("vllm").render(LLAMA, keyed).secrets == ("VLLM_API_KEY",)
    with pytest.raises(InputError, match="argument alone"):
        command_engine("sglang").render(LLAMA, keyed)


def test_a_container_sees_its_model_its_gpus_and_its_port() -> None:
    """The folder of the model is mounted read-only where it is, GPUs are named, and the port is this host's."""
    argv = command_engine("sglang").in_container(LLAMA, PLACE, gpus=(0, 1, 2, 3)).argv
    line = " ".join(argv)
    assert '--gpus "device=0,1,2,3"' in line
    assert "--volume /models/llama-70b:/models/llama-70b:ro" in line
    assert "--publish 127.0.0.1:8000:8000" in line
    assert argv[argv.index("lmsysorg/sglang:v0.5.23") + 1 :][:3] == ("python3", "-m", "sglang.launch_server")
    assert "--host 0.0.0.0" in line
    hub = command_engine("vllm").in_container(replace(LLAMA, model="meta-llama/Llama-3.1-70B"), PLACE, gpus=None).argv
    assert "--volume" not in hub
    assert "--gpus" not in hub
    assert hub[hub.index("vllm/vllm-openai:v0.33.0") + 1] == "meta-llama/Llama-3.1-70B"
