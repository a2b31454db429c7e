"""What an instance does when it starts: a systemd unit runs the image, and the machine ends itself after it. Pure.

The unit and not the machine's first script runs the work: systemd passes SIGTERM on when the instance is ended, keeps
to the limit of time, and powers off whatever happened; EC2 takes that for the instance's end.
"""

from __future__ import annotations

import shlex
from typing import Final

from tonnage.places.aws.ec2_place import EC2Place
from tonnage.places.bucket.cloud import Work

UNIT: Final = "tonnage-run"
LAST_WORDS_S: Final = 90  # beside the grace: to bring the last checkpoint away
SCRIPT_FILE: Final = "/opt/tonnage/run.sh"
END: Final = "END-OF-TONNAGE-FILE"


def user_data(place: EC2Place, work: Work) -> str:
    """The script that cloud-init runs once, as root: the same bytes for the same work. 16 KiB is EC2's limit.

    Raises ValueError where a line of `setup` is the mark that ends a file.
    """
    run, unit = run_script(place, work), unit_file(place, work)
    if END in run + unit:
        raise ValueError(f"`setup`: {END} cannot be a part of it")
    return (
        "#!/bin/bash\n"
        f"mkdir -p {shlex.quote(place.mount)} /opt/tonnage\n"
        f"cat > {SCRIPT_FILE} <<'{END}'\n{run}{END}\n"
        f"cat > /etc/systemd/system/{UNIT}.service <<'{END}'\n{unit}{END}\n"
        "systemctl daemon-reload\n"
        f"systemctl start --no-block {UNIT}.service || systemctl poweroff\n"
    )


def run_script(place: EC2Place, work: Work) -> str:
    """Sign in at Amazon's registry where the image is there, then become the container."""
    host = place.image.partition("/")[0]
    login = []
    if ".dkr.ecr." in host:
        region = host.split(".")[3]
        login = [f"aws ecr get-login-password --region {region} | docker login --username AWS --password-stdin {host}"]
    lines = ("set -euo pipefail", *place.setup, *login, f"exec {shlex.join(docker_words(place, work))}")
    return "".join(f"{line}\n" for line in lines)


def docker_words(place: EC2Place, work: Work) -> tuple[str, ...]:
    """`docker run` in the foreground: it passes SIGTERM on to the image's first process."""
    devices = ("--gpus", "all") if place.gpus else ()
    variables = [word for name, value in work.env.items() for word in ("--env", f"{name}={value}")]
    return (
        "docker", "run", "--rm", "--network", "host", "--ipc", "host", *devices,
        "--ulimit", "memlock=-1", "--ulimit", "stack=67108864", "--security-opt", "no-new-privileges",
        "--volume", f"{place.mount}:{place.mount}", *variables, "--entrypoint", work.command[0],
        place.image, *work.command[1:],
    )  # fmt: skip


def unit_file(place: EC2Place, work: Work) -> str:
    """The unit. Its output is the machine's console too, which EC2 keeps for an hour after the end."""
    return f"""[Unit]
Description=tonnage: {work.name}
Wants=network-online.target
After=network-online.target docker.service

[Service]
Type=exec
ExecStart=/bin/bash {SCRIPT_FILE}
ExecStopPost=/bin/systemctl --no-block poweroff
SyslogIdentifier={UNIT}
StandardOutput=journal+console
StandardError=journal+console
KillMode=mixed
TimeoutStopSec={place.grace_s + LAST_WORDS_S}
RuntimeMaxSec={place.time_limit_minutes * 60}
"""
