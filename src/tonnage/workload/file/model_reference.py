"""From what `model:` says to a shape: a known name, a `config.json`, or the shape itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tonnage.errors import InputError, UnknownModel, did_you_mean
from tonnage.units import to_gib
from tonnage.values import dataclass
from tonnage.workload.file.inline_shape import InlineShape, find_shape_faults, freeze_shape
from tonnage.workload.file.problems import Problem, shorten
from tonnage.workload.parameters import count_parameters
from tonnage.workload.shapes import ModelShape

FetchConfig = Callable[[str], Mapping[str, Any]]

_REPOSITORY: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)
_PATH_LIKE: Final = re.compile(r"[./~]|.*\.json$", re.DOTALL)


def is_path(reference: str) -> bool:
    """Whether a model is named by its place on the disk.

    >>> is_path("./model"), is_path("config.json"), is_path("gpt2")
    (True, True, False)
    """
    return _PATH_LIKE.match(reference) is not None


@dataclass(frozen=True, slots=True)
class ModelFinder:
    """Where a model is looked up: `folder` is the workload file's own, None where text was given."""

    folder: Path | None
    fetch_config: FetchConfig | None

    def find(self, reference: str | InlineShape) -> ModelShape | tuple[Problem, ...]:
        """The shape, or what is wrong with the reference."""
        if isinstance(reference, InlineShape):
            faults = [Problem(("model", name), fault) for name, fault in find_shape_faults(reference)]
            return tuple(faults) or freeze_shape(reference)
        try:
            return _sizeable(self._look_up(reference))
        except InputError as error:
            found = "" if reference in str(error) else f"found {shorten(reference)}: "
            return (Problem(("model",), f"{found}{error}", error.hint),)

    def _look_up(self, reference: str) -> ModelShape:
        if reference.startswith("hf://"):
            return self._from_hub(reference.removeprefix("hf://"))
        if is_path(reference):
            return _load_config(self._on_disk(reference))
        from tonnage.workload.known import find_model

        try:
            return find_model(reference)
        except UnknownModel as error:
            if (path := self._existing(reference)) is not None:
                return _load_config(path)
            otherwise = "or give a path to its config.json, hf://org/name, or the shape itself"
            raise InputError(error.message, hint=did_you_mean(error.suggestions, otherwise)) from error

    def _from_hub(self, repository: str) -> ModelShape:
        if not _REPOSITORY.fullmatch(repository):
            raise InputError("not a repository", hint="write hf://organisation/model")
        if self.fetch_config is None:
            raise InputError(
                "nothing is fetched from the network here",
                hint=f"save the config.json of {repository} beside the file and write `model: ./config.json`",
            )
        from tonnage.workload.huggingface import parse_huggingface_config

        where = f"hf://{repository}/config.json"
        return parse_huggingface_config(self.fetch_config(repository), name=repository, file=where)

    def _on_disk(self, reference: str) -> Path:
        path = self._existing(reference)
        if path is None:
            where = f" in {self.folder}" if self.folder is not None else ""
            raise InputError(
                f"no such file{where}",
                hint="give the path, from the workload file, to a config.json or the folder that holds it",
            )
        return path

    def _existing(self, reference: str) -> Path | None:
        path = Path(reference)
        try:
            path = path.expanduser() if reference.startswith("~") else path
            if not path.is_absolute():
                if self.folder is None:
                    return None
                path = self.folder / path
            path = path / "config.json" if path.is_dir() else path
            return path if path.is_file() else None
        except (OSError, RuntimeError):  # a name too long, no permission, no home folder
            return None


def _sizeable(shape: ModelShape) -> ModelShape:
    """The shape, where its work is modelled. Raises `InputError` with what is known of a model that is only counted."""
    if not shape.not_modelled:
        return shape
    total = count_parameters(shape).total
    raise InputError(
        f"{shape.name} cannot be sized: {shape.not_modelled}",
        hint=f"known of it: {total:,} parameters, {to_gib(2.0 * total):.1f} GiB of weights at 16 bit",
    )


def _load_config(path: Path) -> ModelShape:
    from tonnage.workload.huggingface import load_huggingface_config

    return load_huggingface_config(path)
