"""What a machine of a cloud does when it starts: a systemd unit runs the image, and the machine ends after it. Pure.

The unit and not the machine's first script runs the work: systemd passes SIGTERM on when the machine is ended, keeps
to the limit of time, and ends the machine whatever happened.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from tonnage.places.bucket.cloud import Work
from tonnage.places.bucket.place import MachinePlace

UNIT: Final = "tonnage-run"
LAST_WORDS_S: Final = 90  # beside the grace: to bring the last checkpoint away
SCRIPT_FILE: Final = "/opt/tonnage/run.sh"
END_FILE: Final = "/opt/tonnage/end.sh"
POWER_OFF: Final = "/bin/systemctl --no-block poweroff"
END: Final = "END-OF-TONNAGE-FILE"


def first_script(
    place: MachinePlace, work: Work, *, login: Sequence[str], end: str = POWER_OFF,
    files: Mapping[str, str] | None = None,
) -> str:  # fmt: skip
    """The script that a machine runs as root when it starts: the same bytes for the same work.

    `login`: lines that sign in at the image's registry; `end`: a script that ends the machine; `files`: more of them,
    each with its text, that root alone reads. Raises ValueError where a line of `setup` is the mark that ends a file.
    """
    run, unit = run_script(place, work, login), unit_file(place, work)
    if END in run + unit + end:
        raise ValueError(f"`setup`: {END} cannot be a part of it")
    private = "".join(
        f"install -D -m 600 /dev/null {path}\ncat > {path} <<'{END}'\n{text}\n{END}\n"
        for path, text in (files or {}).items()
    )
    return (
        "#!/bin/bash\n"
        f"mkdir -p {shlex.quote(place.mount)} /opt/tonnage\n"
        f"{private}"
        f"cat > {SCRIPT_FILE} <<'{END}'\n{run}{END}\n"
        f"cat > {END_FILE} <<'{END}'\n{end}\n{END}\n"
        f"cat > /etc/systemd/system/{UNIT}.service <<'{END}'\n{unit}{END}\n"
        "systemctl daemon-reload\n"
        f"systemctl start --no-block {UNIT}.service || systemctl poweroff\n"
    )


def run_script(place: MachinePlace, work: Work, login: Sequence[str]) -> str:
    """Sign in at the registry, then become the container."""
    lines = ("set -euo pipefail", *place.setup, *login, f"exec {shlex.join(docker_words(place, work))}")
    return "".join(f"{line}\n" for line in lines)


def docker_words(place: MachinePlace, work: Work) -> tuple[str, ...]:
    """`docker run` in the foreground: it passes SIGTERM on to the image's first process."""
    devices: tuple[str, ...] = ("--gpus", "all") if place.gpus else ()
    devices += tuple(word for path in place.devices for word in ("--device", path))
    given = {**work.env, **place.run_variables}
    variables = [word for name, value in given.items() for word in ("--env", f"{name}={value}")]
    variables += [word for name in place.passed_variables for word in ("--env", name)]
    libraries = place.library_folder
    seen_folders = place.seen_folders
    own = (*place.read_only_folders, *([] if libraries is None else [libraries]))
    kept = {path: path for path in own if not any(path.startswith(f"{one}/") for one in seen_folders.values())}
    kept |= seen_folders
    shown = [word for path, seen in kept.items() for word in ("--volume", f"{path}:{seen}:ro")]
    shown += [word for path in place.open_folders for word in ("--volume", f"{path}:{path}")]
    shown += [word for name in place.capabilities for word in ("--cap-add", name)]
    command = (
        work.command if libraries is None else (*_with_libraries(libraries, place.variables_script), *work.command)
    )
    variables += [word for path in place.variable_files for word in ("--env-file", path)]
    return (
        "docker", "run", "--rm", "--network", "host", "--ipc", "host", *devices,
        "--ulimit", "memlock=-1", "--ulimit", "stack=67108864", "--security-opt", "no-new-privileges",
        "--volume", f"{place.mount}:{place.mount}", *shown, *variables, "--entrypoint", command[0],
        place.image, *command[1:],
    )  # fmt: skip


def _with_libraries(folder: str, script: str | None) -> tuple[str, ...]:
    """A shell that puts a folder of libraries before those that the image names, and becomes the command.

    `script`: one of bash whose variables the command gets too.
    """
    shell = "sh" if script is None else "bash"
    read = "" if script is None else f"set -a; . {script}; set +a; "
    libraries = f'export LD_LIBRARY_PATH="{folder}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"'
    return f"/bin/{shell}", "-c", f'{read}{libraries}; exec "$@"', shell


def unit_file(place: MachinePlace, work: Work) -> str:
    """The unit. Its output is the machine's console too, which the cloud keeps for a while."""
    return f"""[Unit]
Description=tonnage: {work.name}
Wants=network-online.target
After=network-online.target docker.service

[Service]
Type=exec
ExecStart=/bin/bash {SCRIPT_FILE}
ExecStopPost=/bin/bash {END_FILE}
SyslogIdentifier={UNIT}
StandardOutput=journal+console
StandardError=journal+console
KillMode=mixed
TimeoutStopSec={place.grace_s + LAST_WORDS_S}
RuntimeMaxSec={place.time_limit_minutes * 60}
"""


def last_words(console: str) -> str:
    """The last line of the run's unit on a machine's console.

    >>> last_words("[   41.2] tonnage-run[812]: docker: command not found\\n[   41.9] systemd: Powering off\\n")
    'docker: command not found'
    """
    found = re.findall(rf"{UNIT}\[\d+\]: (.*)", console)
    return str(found[-1]).strip() if found else ""
