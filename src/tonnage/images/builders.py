"""buildah, podman and docker: the commands that build an image, list its packages and push it; and running them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tonnage.errors import InputError, TonnageError
from tonnage.images.containerfile import PACKAGES_FILE, SYSTEM_FILE
from tonnage.images.recipe import ImageRecipe
from tonnage.values import dataclass

BUILDERS: Final = ("buildah", "podman", "docker")
FILE: Final = "Containerfile"
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
Command = tuple[str, ...]
Run = Callable[[Command], str]  # what the command prints on stdout
Show = Callable[[Command], None]  # its output goes to the terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltImage:
    """An image that was built. `digest`: of its manifest where it was pushed, which places name it by; else None."""

    name: str
    image_id: str
    digest: str | None
    size_bytes: int | None
    destination: str | None
    pip: Mapping[str, Any]
    system: str


class BuildFailed(TonnageError):
    """A builder ended with an error, which it has printed."""


def find_builder(name: str | None) -> str:
    """The builder asked for, or the first on the PATH; InputError where there is none."""
    if name is not None and name not in BUILDERS:
        raise InputError(f"no builder '{name}'", hint=f"one of {', '.join(BUILDERS)}")
    for one in BUILDERS if name is None else (name,):
        if shutil.which(one) is not None:
            return one
    missing = name or "none of " + ", ".join(BUILDERS)
    raise InputError(
        f"{missing} is on the PATH" if name is None else f"{missing} is not on the PATH",
        hint="`apt-get install buildah`; or --context FOLDER writes what any builder takes",
    )


def build_command(builder: str, recipe: ImageRecipe, folder: Path, index: Mapping[str, str]) -> Command:
    """Build the folder's Containerfile for all platforms; of several the name is that of their list.

    `index`: build arguments, those of pip's index. Docker's format alone carries a health check.
    """
    arguments = [word for name, value in sorted(index.items()) for word in ("--build-arg", f"{name}={value}")]
    platforms = ("--platform", ",".join(recipe.platforms))
    file = ("--file", str(folder / FILE))
    if builder == "docker":
        return ("docker", "buildx", "build", *platforms, *arguments, *file, "--load", "--tag", recipe.name, str(folder))
    name = ("--tag", recipe.name) if len(recipe.platforms) == 1 else ("--manifest", recipe.name)
    verb = "bud" if builder == "buildah" else "build"
    return (builder, verb, "--format", "docker", *platforms, *arguments, *file, *name, str(folder))


def push_command(builder: str, recipe: ImageRecipe, destination: str, digest_file: Path) -> Command:
    """Push the image; of several platforms their list and each of them."""
    if builder == "docker":
        return ("docker", "push", destination.removeprefix("docker://"))
    goal = destination if ":" in destination.partition("/")[0] else f"docker://{destination}"
    found = ("--digestfile", str(digest_file))
    if len(recipe.platforms) == 1:
        return (builder, "push", *found, recipe.name, goal)
    return (builder, "manifest", "push", "--all", *found, recipe.name, goal)


def build_image(
    builder: str,
    recipe: ImageRecipe,
    folder: Path,
    *,
    index: Mapping[str, str],
    push: str | None,
    show: Show,
    run: Run,
) -> BuiltImage:
    """Build what the folder holds, read what was installed, push it where a destination is named.

    Raises BuildFailed where the builder fails. An image that could not be pushed stays here.
    """
    show(build_command(builder, recipe, folder, index))
    pip, system = (
        json.loads(_file_of(builder, recipe.name, PACKAGES_FILE, run)),
        _file_of(builder, recipe.name, SYSTEM_FILE, run),
    )
    image_id, size = _identity(builder, recipe.name, run)
    digest = None if push is None else _pushed(builder, recipe, push, folder, run)
    return BuiltImage(
        name=recipe.name, image_id=image_id, digest=digest, size_bytes=size, destination=push, pip=pip, system=system
    )


def show_command(command: Command) -> None:
    """Run a builder with all that it says on stderr. Raises BuildFailed."""
    _check(command, subprocess.run(command, stdout=sys.stderr, check=False).returncode)


def run_command(command: Command) -> str:
    """Run a builder; its stdout. Raises BuildFailed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    _check(command, done.returncode)
    return done.stdout


def _check(command: Command, code: int) -> None:
    if code != 0:
        raise BuildFailed(
            f"{' '.join(command[:2])} ended with exit code {code}",
            hint="its last messages say why; --context FOLDER writes what it was given",
        )


def _file_of(builder: str, image: str, path: str, run: Run) -> str:
    """A file of the image for this machine's platform, read by a container that is gone afterwards."""
    if builder != "buildah":
        return run((builder, "run", "--rm", "--entrypoint", "cat", image, path))
    container = run(("buildah", "from", "--pull-never", image)).strip()
    try:
        return run(("buildah", "run", container, "--", "cat", path))
    finally:
        run(("buildah", "rm", container))


def _identity(builder: str, image: str, run: Run) -> tuple[str, int | None]:
    """(id, bytes) of the image for this machine's platform."""
    if builder == "buildah":
        words = ("buildah", "inspect", "--type", "image", "--format", "{{.FromImageID}}", image)
        return run(words).strip(), None  # it says sizes in words alone
    (found,) = json.loads(run((builder, "image", "inspect", image)))[:1]
    return str(found["Id"]).removeprefix("sha256:"), int(found["Size"])


def _pushed(builder: str, recipe: ImageRecipe, destination: str, folder: Path, run: Run) -> str:
    """Push, and the digest of the manifest."""
    digest_file = folder.parent / "pushed-digest"
    if builder == "docker":
        run(("docker", "tag", recipe.name, destination.removeprefix("docker://")))
    said = run(push_command(builder, recipe, destination, digest_file))
    text = digest_file.read_text(encoding="utf-8") if digest_file.exists() else said
    found: Sequence[str] = _DIGEST.findall(text)
    if not found:
        raise BuildFailed(f"{builder} pushed {recipe.name} and said no digest", hint=f"`skopeo inspect {destination}`")
    return found[-1]
