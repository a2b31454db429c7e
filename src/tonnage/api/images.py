"""Container images that carry out a workload: `tonnage.image_files`, `tonnage.build_image`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import unquote, urlsplit

from tonnage import __version__
from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.errors import InputError, TonnageError
from tonnage.files import save_for_user
from tonnage.settings import Settings, current_settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.api.inputs import WorkloadSource
    from tonnage.images.builders import BuiltImage
    from tonnage.images.recipe import ImageRecipe
    from tonnage.reports.image import ImageReport

IGNORE_FILE: Final = ".dockerignore"
INDEX_VARIABLES: Final = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOptions(Options):
    """What image is made, and by which builder."""

    device: str | None = option(
        "--device", "cpu, cuda or rocm. [default: cuda for trainings, cpu for tables and encoders]",
        default=None, metavar="DEVICE",
    )  # fmt: skip
    platforms: tuple[str, ...] = option(
        "--platform", "linux/amd64 or linux/arm64; may be repeated. [default: linux/amd64]",
        default=(), metavar="PLATFORM",
    )  # fmt: skip
    base: str | None = option(
        "--base", "The image to begin with, which has python3: NAME@sha256:DIGEST pins it.",
        default=None, metavar="IMAGE",
    )  # fmt: skip
    torch_index: str | None = option(
        "--torch-index", "Where pip also looks for PyTorch. ROCm needs one; cpu has PyTorch's own.",
        default=None, metavar="URL",
    )  # fmt: skip
    name: str | None = option("--tag", "NAME:TAG of the image. [default: from the file's name]", default=None)
    user: int = option("--user", "The number of the user that it runs as.", default=1000, metavar="UID", least=0)
    builder: str | None = option(
        "--builder", "buildah, podman or docker. [default: the first on the PATH]", default=None, metavar="NAME"
    )
    push: str | None = option(
        "--push", "Push it there: REGISTRY/NAME:TAG, or what the builder takes (oci:FOLDER).",
        default=None, metavar="DESTINATION",
    )  # fmt: skip
    materials: str | None = option(
        "--materials", "Write its bill of materials (CycloneDX).", default=None, metavar="FILE"
    )


def image_files(
    workload: WorkloadSource, options: ImageOptions | None = None, *, settings: Settings | None = None
) -> Answer[ImageReport]:
    """The Containerfile, the constraints and the command of an image; nothing is built.

    Raises InputError where no image of ours can carry the workload out, or an option does not go with another.
    """
    from tonnage.images.builders import BUILDERS, build_command
    from tonnage.reports.image import image_report

    asked, settings = options or ImageOptions(), settings or current_settings()
    recipe = _recipe(workload, asked, settings, _requirement())
    command = build_command(asked.builder or BUILDERS[0], recipe, Path("CONTEXT"), _index(os.environ))
    return Answer(_report(recipe, command), image_report, remarks=_remarks(recipe))


def write_image_files(
    folder: Path | str,
    workload: WorkloadSource,
    options: ImageOptions | None = None,
    *,
    settings: Settings | None = None,
) -> tuple[Path, ...]:
    """Write what any builder takes into a folder: Containerfile, constraints, and a wheel where Tonnage is a checkout.

    Files of these names are replaced. Raises InputError where the folder cannot be written.
    """
    asked, settings, into = options or ImageOptions(), settings or current_settings(), Path(folder)
    recipe = _recipe(workload, asked, settings, _requirement())
    return _write(recipe, into)


def build_image(
    workload: WorkloadSource, options: ImageOptions | None = None, *, settings: Settings | None = None
) -> Answer[ImageReport]:
    """Build the image with the builder of this machine, whose messages go to stderr; push it where that is asked for.

    Raises InputError without a builder, and `BuildFailed` where it fails.
    """
    from tonnage.images.builders import build_command, find_builder, run_command, show_command
    from tonnage.images.builders import build_image as build
    from tonnage.images.recipe import bill_of_materials
    from tonnage.reports.image import image_report

    asked, settings = options or ImageOptions(), settings or current_settings()
    builder = find_builder(asked.builder)
    recipe = _recipe(workload, asked, settings, _requirement())
    if asked.materials is not None and not Path(asked.materials).parent.is_dir():
        raise InputError(f"{asked.materials}: there is no folder for it", hint="make it first, or name another file")
    with tempfile.TemporaryDirectory(prefix="tonnage-image-") as scratch:
        folder, index = Path(scratch) / "context", _index(os.environ)
        _write(recipe, folder)
        built = build(builder, recipe, folder, index=index, push=asked.push, show=show_command, run=run_command)
        command = build_command(builder, recipe, Path("CONTEXT"), index)
    if asked.materials is not None:
        text = bill_of_materials(built.name, built.digest or f"sha256:{built.image_id}", built.pip, built.system)
        save_for_user(Path(asked.materials), text, fault=TonnageError, hint="name another file")
    return Answer(_report(recipe, command, built=built), image_report, remarks=_remarks(recipe))


def _recipe(workload: WorkloadSource, asked: ImageOptions, settings: Settings, requirement: str) -> ImageRecipe:
    from tonnage.api.catalogs import market_of
    from tonnage.api.inputs import read_workload
    from tonnage.images.recipe import DEFAULT_BASE, Device, image_recipe

    job = read_workload(workload, None, market_of(None, settings), settings)
    return image_recipe(
        job, requirement=requirement, version=__version__, device=cast("Device | None", asked.device),
        platforms=asked.platforms, base=asked.base or DEFAULT_BASE, torch_index=asked.torch_index, user=asked.user,
        name=asked.name,
    )  # fmt: skip


def _requirement() -> str:
    """What pip installs: a wheel of the checkout that this is, else the release of this version."""
    return f"tonnage=={__version__}" if _checkout() is None else f"tonnage-{__version__}-py3-none-any.whl"


def _checkout() -> Path | None:
    """The folder that Tonnage was installed from."""
    with suppress(PackageNotFoundError, ValueError):
        url = json.loads(distribution("tonnage").read_text("direct_url.json") or "{}").get("url", "")
        folder = Path(unquote(urlsplit(url).path))
        if url.startswith("file:") and (folder / "pyproject.toml").is_file():
            return folder
    return None


def _write(recipe: ImageRecipe, folder: Path) -> tuple[Path, ...]:
    from tonnage.images.builders import FILE
    from tonnage.images.containerfile import CONSTRAINTS_FILE, render_containerfile
    from tonnage.images.recipe import installed_pins

    texts = {
        FILE: render_containerfile(recipe, version=__version__),
        CONSTRAINTS_FILE: installed_pins(swapped=recipe.swapped),
        IGNORE_FILE: f"*\n!{CONSTRAINTS_FILE}\n!*.whl\n",
    }
    for name, text in texts.items():
        save_for_user(folder / name, text, parents=True, hint="name another folder")
    checkout = _checkout()
    if checkout is None:
        return tuple(folder / name for name in texts)
    return (*(folder / name for name in texts), _wheel(checkout, folder, recipe.requirement))


def _wheel(checkout: Path, folder: Path, name: str) -> Path:
    """Build the checkout's wheel into the folder; TonnageError where pip cannot."""
    command = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(checkout))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not (folder / name).is_file():
        said = (done.stderr.strip().splitlines() or ["it wrote another file"])[-1]
        raise TonnageError(f"pip made no {name} of {checkout}: {said}", hint="`pip wheel --no-deps FOLDER` tells more")
    return folder / name


def _index(env: Mapping[str, str]) -> dict[str, str]:
    """pip's index of this machine, for the build; it does not stay in the image."""
    return {name: env[name] for name in INDEX_VARIABLES if env.get(name)}


def _remarks(recipe: ImageRecipe) -> tuple[str, ...]:
    if recipe.pinned:
        return ()
    return (
        f"{recipe.base} is a tag, and may be another image tomorrow: --base NAME@sha256:DIGEST pins it "
        f"(`skopeo inspect docker://{recipe.base}` tells the digest)",
    )


def _report(recipe: ImageRecipe, command: tuple[str, ...], built: BuiltImage | None = None) -> ImageReport:
    from tonnage.images.containerfile import render_containerfile
    from tonnage.reports.image import ImageReport

    image = ImageReport(
        name=recipe.name, device=recipe.device, platforms=recipe.platforms, extras=recipe.extras, base=recipe.base,
        base_pinned=recipe.pinned, command=command, containerfile=render_containerfile(recipe, version=__version__),
    )  # fmt: skip
    if built is None:
        return image
    from tonnage.catalog.cuda import show_version
    from tonnage.catalog.cuda_compatibility import show_plain
    from tonnage.catalog.cuda_packages import cuda_of, nccl_of
    from tonnage.images.recipe import normal_name

    has = {normal_name(one["metadata"]["name"]): str(one["metadata"]["version"]) for one in built.pip["installed"]}
    cuda, nccl = cuda_of(has), nccl_of(has)
    return replace(
        image, image_id=built.image_id, digest=built.digest, size_bytes=built.size_bytes,
        destination=built.destination, python_packages=len(built.pip["installed"]),
        system_packages=len(built.system.splitlines()), cuda=None if cuda is None else show_version(cuda),
        nccl=None if cuda is None or nccl is None else show_plain(nccl),
    )  # fmt: skip
