"""How a pretended machine boots: the script that its first script lays down for systemd, with a `docker` beside it."""

from __future__ import annotations

import re
import stat
import sys
from pathlib import Path
from typing import Final

SCRIPT: Final = re.compile(r"cat > /opt/tonnage/run\.sh <<'([^']+)'\n(.*?)\1\n", re.DOTALL)
DOCKER: Final = '''#!{python}
"""`docker run`: the container's command, without a container."""
import os
import sys

words, env, entry = sys.argv[2:], dict(os.environ), ""
while words and "@sha256:" not in words[0]:
    word = words.pop(0)
    if word == "--env":
        name, _, value = words.pop(0).partition("=")
        env[name] = value
    elif word == "--entrypoint":
        entry = words.pop(0)
os.execvpe(entry, [entry, *words[1:]], env)
'''


def lay_docker(folder: Path) -> Path:
    """A folder for PATH with a `docker` that runs a container's command without a container."""
    docker = folder / "bin" / "docker"
    docker.parent.mkdir(parents=True)
    docker.write_text(DOCKER.replace("{python}", sys.executable))
    docker.chmod(docker.stat().st_mode | stat.S_IXUSR)
    return docker.parent


def laid_script(first: str) -> str:
    """What the unit would run. AssertionError where the first script lays nothing down."""
    script = SCRIPT.search(first)
    assert script is not None, "the machine's first script lays no script down"
    return script[2]
