"""Recipe -> Containerfile: packages in a stage of their own, then a small image without compilers, not run as root."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from tonnage.images.recipe import SERVICE_PORT, ImageRecipe

CONSTRAINTS_FILE: Final = "constraints.txt"
PACKAGES_FILE: Final = "/opt/tonnage/packages.json"  # what pip installed, for the bill of materials
SYSTEM_FILE: Final = "/opt/tonnage/system-packages.txt"  # what Debian's dpkg has
HOME: Final = "/var/lib/tonnage"
_HEALTHY: Final = (
    f"import urllib.request as r; r.urlopen('http://127.0.0.1:{SERVICE_PORT}/health', timeout=3)"
)  # fmt: skip


def render_containerfile(recipe: ImageRecipe, *, version: str) -> str:
    """The Containerfile. Builders read pip's index from the build arguments PIP_INDEX_URL and PIP_EXTRA_INDEX_URL."""
    return "".join(f"{line}\n" for line in (*_packages(recipe), "", *_image(recipe, version)))


def _packages(recipe: ImageRecipe) -> Iterator[str]:
    wheel = recipe.requirement.endswith(".whl")
    source = f"/build/{recipe.requirement}" if wheel else "tonnage"
    release = "" if wheel else recipe.requirement.removeprefix("tonnage")
    index = () if recipe.torch_index is None else ("--extra-index-url", recipe.torch_index)
    pip = "/opt/tonnage/bin/python -m pip"
    constraint = f"--constraint /build/{CONSTRAINTS_FILE}"
    yield f"FROM {recipe.base} AS packages"
    yield 'ARG PIP_INDEX_URL=""'
    yield 'ARG PIP_EXTRA_INDEX_URL=""'
    yield "ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1"
    yield "COPY . /build/"
    steps = (
        "python3 -m venv /opt/tonnage",
        f"{pip} install {constraint} {' '.join((*index, ''))}'{source}[{','.join(recipe.extras)}]{release}'",
        *(f"{pip} uninstall --yes {out} && {pip} install {constraint} {into}" for out, into in recipe.swapped),
        f"{pip} inspect > {PACKAGES_FILE}",
        f"{pip} uninstall --yes pip",
    )
    yield "RUN " + " \\\n && ".join(steps)


def _image(recipe: ImageRecipe, version: str) -> Iterator[str]:
    yield f"FROM {recipe.base}"
    yield (
        f'LABEL org.opencontainers.image.title="{recipe.name}" org.opencontainers.image.version="{version}"'
        f' org.opencontainers.image.base.name="{recipe.base}" dev.tonnage.device="{recipe.device}"'
    )
    yield "COPY --from=packages /opt/tonnage /opt/tonnage"
    yield (
        f"RUN if command -v dpkg-query > /dev/null; then dpkg-query --show > {SYSTEM_FILE}; fi"
        f" && mkdir -p {HOME} && chown {recipe.user}:{recipe.user} {HOME}"
    )
    env = f'PATH="/opt/tonnage/bin:$PATH" HOME={HOME} TONNAGE_HOME={HOME} PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1'
    if recipe.device == "cuda":  # what NVIDIA's container toolkit mounts from the host
        env += " NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    yield f"ENV {env}"
    yield f"WORKDIR {HOME}"
    yield f"USER {recipe.user}:{recipe.user}"
    yield "STOPSIGNAL SIGTERM"
    if recipe.serves:
        healthy = json.dumps(["/opt/tonnage/bin/python", "-c", _HEALTHY])
        yield f"EXPOSE {SERVICE_PORT}"
        yield f"HEALTHCHECK --interval=10s --timeout=5s --start-period=120s CMD {healthy}"
        yield 'ENTRYPOINT ["tonnage", "serve"]'
        yield f'CMD ["/model", "--host", "0.0.0.0", "--port", "{SERVICE_PORT}"]'
    else:  # a job ends, and its supervisor writes a heartbeat: nothing answers questions
        yield "HEALTHCHECK NONE"
        yield 'CMD ["tonnage", "--help"]'
