"""The engines by name, and their commands out of a planned replica."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Final

from tonnage.errors import InputError, UnknownName, did_you_mean, nearest
from tonnage.serving.engines.arguments import check_arguments, engine_release
from tonnage.serving.engines.command_lines import (
    OPTIONS_FILE,
    llama_cpp_arguments,
    options_text,
    sglang_arguments,
    tei_arguments,
    tensorrt_llm_arguments,
    vllm_arguments,
)
from tonnage.serving.engines.engine import EngineCommand, EngineFile, EnginePlace
from tonnage.serving.engines.generation import GenerationService
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEngine:
    """An engine that is somebody else's program: its arguments written by us and checked against its own list.

    `image_starts`: its container image starts `program` by itself. `key_variable`: where it takes its key from the
    environment; None: as an argument alone, where every list of processes shows it.
    """

    name: str
    program: tuple[str, ...]
    arguments: Callable[[GenerationService], Iterable[str]]
    host_argument: str = "--host"
    image_starts: bool = False
    key_variable: str | None = None
    instead: tuple[str, ...] = ()  # the program where `program` is not on the PATH
    files: Callable[[GenerationService], tuple[EngineFile, ...]] | None = None

    def render(self, service: GenerationService, place: EnginePlace) -> EngineCommand:
        """The command of one replica; see `ServingEngine`."""
        if place.api_key and self.key_variable is None:
            raise InputError(f"{self.name} takes a key as an argument alone, where every list of processes shows it",
                             hint="put the key before it: in the balancer or a gateway")  # fmt: skip
        files = self.files(service) if self.files else ()
        written = (*self.arguments(service), *self._file_arguments(files, place))
        arguments = (*written, self.host_argument, place.host, "--port", str(place.port))
        check_arguments(self.name, arguments)
        release = engine_release(self.name)
        return EngineCommand(
            engine=self.name, argv=(*self.start(), *arguments), host=place.host, port=place.port,
            health=release.health, metrics=release.metrics, running=release.running, waiting=release.waiting,
            requests=release.requests, input_tokens=release.input_tokens, output_tokens=release.output_tokens,
            secrets=(self.key_variable,) if place.api_key and self.key_variable else (), files=files,
        )  # fmt: skip

    def start(self) -> tuple[str, ...]:
        """The program on this machine."""
        return self.instead if self.instead and shutil.which(self.program[0]) is None else self.program

    def in_container(
        self, service: GenerationService, place: EnginePlace, *, gpus: tuple[int, ...] | None, image: str | None = None
    ) -> EngineCommand:
        """The same replica as `docker run`: model and files read-only at their own paths, its port on this host's.

        `gpus`: indices the container sees; None: none, a replica on the host's cores.
        """
        inside = self.render(service, replace(place, host="0.0.0.0"))
        devices = () if gpus is None else ("--gpus", f'"device={",".join(map(str, gpus))}"', "--ipc=host")
        folders = filter(None, (_folder(service.model), place.folder if inside.files else None))
        mounts = tuple(part for name in folders for part in ("--volume", f"{name}:{name}:ro"))
        keys = tuple(part for name in inside.secrets for part in ("--env", name))
        published = ("--publish", f"{place.host}:{place.port}:{place.port}")
        argv = ("docker", "run", "--rm", *devices, *mounts, *keys, *published, image or engine_release(self.name).image,
                *self.inside_argv(inside))  # fmt: skip
        return replace(inside, argv=argv, host=place.host)

    def inside_argv(self, command: EngineCommand) -> tuple[str, ...]:
        """What follows the image's own entry point, of a command that `render` wrote."""
        return (*(() if self.image_starts else self.program), *command.argv[len(self.start()) :])

    def _file_arguments(self, files: tuple[EngineFile, ...], place: EnginePlace) -> tuple[str, ...]:
        found = [str(PurePosixPath(place.folder) / file.path) for file in files]
        return ("--extra_llm_api_options", *found) if found else ()


def _folder(model: str) -> str | None:
    """The folder to mount of a model on this machine; None for a name on a hub."""
    path = PurePosixPath(model)
    if not path.is_absolute():
        return None
    return str(path.parent if path.suffix == ".gguf" else path)


def _trtllm_files(service: GenerationService) -> tuple[EngineFile, ...]:
    return (EngineFile(path=OPTIONS_FILE, text=options_text(service)),)


ENGINES: Final[Mapping[str, CommandEngine]] = MappingProxyType(
    {
        engine.name: engine
        for engine in (
            CommandEngine(
                name="vllm", program=("vllm", "serve"), arguments=vllm_arguments, image_starts=True,
                key_variable="VLLM_API_KEY",
            ),
            CommandEngine(name="sglang", program=("python3", "-m", "sglang.launch_server"), arguments=sglang_arguments),
            CommandEngine(
                name="tensorrt-llm", program=("trtllm-serve", "serve"), arguments=tensorrt_llm_arguments,
                files=_trtllm_files,
            ),
            CommandEngine(
                name="llama.cpp", program=("llama-server",), arguments=llama_cpp_arguments, image_starts=True,
                key_variable="LLAMA_API_KEY",
                instead=(sys.executable, "-m", "tonnage.serving.engines.llama_server"),
            ),
            CommandEngine(
                name="tei", program=("text-embeddings-router",), arguments=tei_arguments, host_argument="--hostname",
                image_starts=True, key_variable="API_KEY",
            ),
        )
    }
)  # fmt: skip


def command_engine(name: str) -> CommandEngine:
    """The engine by name; UnknownName where it is not one of `ENGINES`."""
    if name not in ENGINES:
        known = ", ".join(ENGINES)
        near = nearest(name, ENGINES)
        raise UnknownName(
            f"no serving engine named '{name}'", suggestions=near, hint=did_you_mean(near, f"one of {known}")
        )
    return ENGINES[name]
